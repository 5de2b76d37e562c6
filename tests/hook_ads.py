"""Large site ads for the hook, each of which follows from its generation: a mixture of two is visible."""

from pathlib import Path

from hydrator import startd_cron as hook

DATASETS = 2000
OLD_FACT = 1_700_000_000
OURS = [*hook.READERS, "DataLocalitySource"]


def datasets(mark: int, many: int = DATASETS) -> list[str]:
    return [f"s{mark % 10}:d{number:05}" for number in range(many)]


def by_set(mark: int, many: int = DATASETS) -> dict[str, object]:
    """Return the answers for half as many sets, which follow from *mark*; every set lacks data here."""
    keys = [f"s{mark % 10}{number:019}" for number in range(many // 2)]
    return {
        "DataLocalitySets": dict.fromkeys(keys, 0.25),
        "DataLocalitySetsAsOf": {keys[0]: OLD_FACT + mark % 1000},
        "DataLocalityOpen": dict.fromkeys(keys, 256),
        "DataLocalityReadFrom": dict.fromkeys(keys, "RAL; no 2"),
        "DataLocalityBacklog": mark % 1000,
    }


def ad_text(generation: int, as_of: int, many: int = DATASETS, site: str = "UK") -> str:
    """Return the ad of *site*; its datasets follow from its generation."""
    dids = datasets(generation, many)
    values = {
        "DataLocalitySite": site,
        "AvailableDatasets": dids,
        "DatasetStates": dict.fromkeys(dids, "AVAILABLE"),
        "DatasetFractions": {dids[0]: 0.5},
        "DatasetAsOf": {dids[1]: OLD_FACT + generation % 1000},
        "DataLocalityTruncated": False,
        **by_set(generation, many),
        "DataLocalityOpenUntil": as_of + 900,
        "DataLocalityAsOf": as_of,
        "DataLocalityGeneration": generation,
        "DataLocalityVersion": 1,
    }
    return hook.ad_text(values)


def put(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.chmod(0o644)
    draft.replace(path)


def whole(ad: dict[str, object], many: int = DATASETS, site: str = "UK") -> bool:
    """Return True if *ad* has all attributes that one run of the hook printed, and none of another run."""
    generation = int(str(ad["DataLocalityGeneration"]))
    dids = datasets(generation, many)
    sets = by_set(generation, many)
    return (
        ad.get("AvailableDatasets") == dids
        and ad["DatasetStates"] == dict.fromkeys(dids, "AVAILABLE")
        and ad["DatasetFractions"] == {dids[0]: 0.5}
        and ad["DatasetAsOf"] == {dids[1]: OLD_FACT + generation % 1000}
        and (ad["DataLocalitySite"], ad["DataLocalitySource"]) == (site, "hook")
        and (ad["DataLocalityTruncated"], ad["DataLocalityVersion"]) == (False, 1)
        and sets == {name: ad.get(name) for name in sets}
    )
