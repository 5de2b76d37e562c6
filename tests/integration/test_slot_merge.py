"""Merges of site attributes into slots without a hook, in the collector of a real pool."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.slot_merge import SlotMerger
from hydrator.domain.model import Site, SiteAd
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import DOMAIN, Pool, SiteSpec
from tests.contracts.publisher import site_ad

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

US = f"hydrator@{DOMAIN}"
MAY_MERGE = f"COLLECTOR.ALLOW_NEGOTIATOR = condor@{DOMAIN} {US}"
HOOKED = {
    "STARTD_ATTRS": "GLIDEIN_Site DataLocalitySource DataLocalityGeneration AvailableDatasets",
    "DataLocalitySource": '"hook"',
    "DataLocalityGeneration": "1",
    "AvailableDatasets": '{"by:hook"}',
}
"""What a startd says whose hook has run."""
SITES = (
    SiteSpec("UK", cpus=4),
    SiteSpec("AU", cpus=1),
    SiteSpec("NL", cpus=1, extra=HOOKED),
    SiteSpec("ELSEWHERE", cpus=1),
)


@pytest.fixture(scope="module")
def pool(htcondor_release: str) -> Iterator[Pool]:
    extra = {"all": "UPDATE_INTERVAL = 3", "collector": MAY_MERGE}
    with Pool.start(htcondor_release, SITES, extra) as running:
        yield running


@pytest.fixture
def merger(client: CondorClient) -> SlotMerger:
    return merger_of(client)


def merger_of(client: CondorClient) -> SlotMerger:
    return SlotMerger(client, ["GLIDEIN_Site"], interval=timedelta(minutes=1))


def ads_of(*sites: str) -> dict[Site, SiteAd]:
    """Return ads of these sites, all of one generation; sites differ in nothing else."""
    return {Site(site): site_ad(site, 7) for site in sites}


def turn(merger: SlotMerger, ads: Mapping[Site, SiteAd], *retired: str) -> tuple[int, int]:
    """Run one merge cycle without failures; return the numbers of slots merged and withdrawn."""
    (done,) = merger.run_once(ads, lambda site: site in retired).values()
    assert done.error is None
    return done.merged_count, done.withdrawn_count


SHOWN = (
    "Name",
    "MyAddress",
    "StartdIpAddr",
    "LastHeardFrom",
    "GLIDEIN_Site",
    "AvailableDatasets",
    "DataLocalitySite",
    "DataLocalitySource",
    "DataLocalityGeneration",
)


def slot(pool: Pool, site: str) -> dict:
    (found,) = pool.slots(*SHOWN, constraint=f'regexp("^slot1@{site}(@|$)", Name)')
    return found


def renewed(pool: Pool, site: str) -> dict:
    """Return the slot after the next update of its startd."""
    before = slot(pool, site)["LastHeardFrom"]
    pool.wait(lambda: slot(pool, site)["LastHeardFrom"] > before, f"another update of {site}")
    return slot(pool, site)


def told(found: Mapping) -> tuple:
    return found.get("DataLocalitySource"), found.get("DataLocalitySite"), found.get("DataLocalityGeneration")


def shown(pool: Pool, site: str) -> tuple:
    return told(slot(pool, site))


def merged(pool: Pool, merger: SlotMerger, ads: Mapping[Site, SiteAd], site: str, *retired: str) -> dict:
    """Run merge cycles until the slot of *site* has its ad, or none if there is none; return the slot then.

    The slot is that of the last query: another update of its startd may remove the merge meanwhile.
    """
    ad = ads.get(Site(site))
    wanted = ("merge", site, ad.generation) if ad else (None, None, None)

    def there() -> dict | None:
        turn(merger, ads, *retired)
        found = slot(pool, site)
        return found if told(found) == wanted else None

    return pool.wait(there, f"{site} to show {wanted}")


@pytest.mark.older
def test_a_slot_without_a_hook_carries_its_sites_ad_until_its_startds_update_and_then_again(pool, merger):
    ads = ads_of("UK", "AU")
    renewed(pool, "UK")
    carried = merged(pool, merger, ads, "UK")
    assert carried["AvailableDatasets"] == ["ska:observation_00000", "ska:observation_00001"]
    assert carried["MyAddress"] == carried["StartdIpAddr"]
    wiped = renewed(pool, "UK")
    assert "DataLocalitySource" not in wiped
    assert "AvailableDatasets" not in wiped
    merged(pool, merger, ads, "UK")


def claim(pool: Pool, site: str, port: int) -> None:
    """Advertise a startd at *site* with the slot name of another one; its update comes now."""
    ad = (
        'MyType = "Machine"\nName = "slot1@twins"\nMachine = "twins"\nState = "Unclaimed"\n'
        f'MyAddress = "<127.0.0.1:{port}>"\nStartdIpAddr = "<127.0.0.1:{port}>"\nGLIDEIN_Site = "{site}"\n'
    )
    pool.run("condor_advertise", "-tcp", "UPDATE_STARTD_AD", "-", input=ad)
    pool.wait(lambda: slot(pool, "twins")["GLIDEIN_Site"] == site, "the slot to be advertised")


@pytest.mark.older
def test_a_slot_whose_startd_was_heard_since_we_looked_is_left_alone(pool, client):
    """A merge would put the previous startd's address into its ad, and make it unreachable."""
    claim(pool, "UK", 9001)
    seen = slot(pool, "twins")
    row = (seen["Name"], seen["MyAddress"], "UK", seen["LastHeardFrom"])
    pool.wait(lambda: time.time() > seen["LastHeardFrom"] + 1, "the next second")
    claim(pool, "AU", 9002)
    text = {"UK": site_ad("UK").text}
    assert client.merge(pool.collector, text, [row], seen["LastHeardFrom"]) == []
    assert shown(pool, "twins") == (None, None, None)
    assert slot(pool, "twins")["MyAddress"] == "<127.0.0.1:9002>"


def test_a_data_slot_is_no_slot(pool, client, merger):
    """HTCondor 25 advertises a slot of its own for the transfer of a job's files."""
    ad = (
        'MyType = "Machine"\nName = "data1_1@uk"\nMachine = "uk"\nState = "Claimed"\nIsDataSlot = true\n'
        'MyAddress = "<127.0.0.1:9003>"\nStartdIpAddr = "<127.0.0.1:9003>"\nGLIDEIN_Site = "UK"\n'
    )
    pool.run("condor_advertise", "-tcp", "UPDATE_STARTD_AD", "-", input=ad)
    data = lambda: pool.slots(*SHOWN, constraint="IsDataSlot")  # noqa: E731
    pool.wait(data, "the data slot to be advertised")
    try:
        assert not [one for one in client.slots(["Name"]) if one["Name"].startswith("data")]
        match = client.evaluate_match({"Requirements": "true"}, [], ["GLIDEIN_Site"])
        assert sum(row["slots"] for row in match["groups"]) == len(client.slots(["Name"]))

        def merged() -> bool:
            turn(merger, ads_of("UK"))
            return shown(pool, "UK") == ("merge", "UK", 7)

        pool.wait(merged, "the slot of UK to be merged")
        (found,) = data()
        assert told(found) == (None, None, None)
    finally:
        bye = 'MyType = "Query"\nTargetType = "Machine"\nRequirements = Name == "data1_1@uk"\n'
        pool.run("condor_advertise", "-tcp", "INVALIDATE_STARTD_ADS", "-", input=bye)


# --- the daemon


@pytest.fixture(scope="module")
def installed(pool: Pool) -> Iterator[Installation]:
    """Start a daemon that merges; NL alone has a stand-in for a hook."""
    settings = '[publish]\nnever = ["embargo:*"]\nslot_merge = true\n'
    catalogue = ListedCatalogue(pool.home, ("UK", "AU", "NL"))
    catalogue.hold(
        {
            "lofar:L1": {"UK": "available"},
            "lofar:L2": {"NL": "available"},
            "lofar:L3": {"AU": "available"},
            "embargo:secret": {"AU": "available"},
        }
    )
    installation = Installation(pool, catalogue, settings=settings, demand='patterns = ["*"]')
    installation.install()
    try:
        installation.start_daemon()
        yield installation
    finally:
        installation.stop_daemon()


def states(pool: Pool, site: str) -> str:
    (found,) = pool.slots(
        "DatasetStates", "DataLocalitySource", constraint=f'regexp("^slot1@{site}(@|$)", Name)'
    )
    return json.dumps(found)


@pytest.mark.older
def test_job_runs_on_a_slot_that_has_its_dataset_by_a_merge_alone(pool, installed):
    pool.reconfig(read_by=["SchedLog"], schedd=installed.pool_config("schedd"))
    pool.wait(lambda: '"merge"' in states(pool, "UK"), "the slot to be merged")
    job = installed.submit(["lofar:L1"], mode="require")
    assert installed.pool.ran_at(job) == ["UK"]


def matches_by_cycle(pool: Pool, cluster: int) -> list[int]:
    """Return how many jobs of *cluster* each negotiation cycle matched, cycles without any left out."""
    cycles = pool.logs("negotiator").split("Started Negotiation Cycle")
    counts = [len(re.findall(rf"Matched {cluster}\.\d+ ", cycle)) for cycle in cycles]
    return [count for count in counts if count]


@pytest.mark.older
def test_a_merged_partitionable_slot_starts_one_data_job_a_cycle(pool, installed):
    """The schedd's copy of a claimed slot lacks the merge: the rate in docs/operators/other-pools.md."""
    pool.reconfig(schedd=installed.pool_config("schedd"))
    at_uk = 'requirements = TARGET.GLIDEIN_Site == "UK"'
    plain = pool.submit(f"executable = /bin/true\nrequest_memory = 10\n{at_uk}\nqueue 8\n")
    pool.ran_at(plain, jobs=8)
    assert sum(matches_by_cycle(pool, plain)) < 8
    wanting = installed.submit(["lofar:L1"], mode="require", count=3)
    assert installed.pool.ran_at(wanting, jobs=3) == ["UK"] * 3
    matched = matches_by_cycle(pool, wanting)  # a job whose claim failed is matched twice
    assert max(matched) == 1
    assert len(matched) >= 3


def test_daemon_merges_into_slots_of_unlisted_sites_but_not_beside_a_hook(pool, installed):
    merged = ("merge", "ELSEWHERE")
    pool.wait(lambda: shown(pool, "ELSEWHERE")[:2] == merged, "the slot to be merged")
    assert slot(pool, "NL")["AvailableDatasets"] == ["by:hook"]


def failing(log: str) -> int:
    """Return the number of collectors that take no merges now, by the log."""
    return log.count("collector refused the slot merge") - log.count("collector accepts the slot merge again")


def checked(installed: Installation) -> list[dict]:
    return [finding for finding in installed.findings() if "slot merges" in finding["message"]]


def test_check_says_what_the_merge_opens_and_when_it_is_denied_one_line_of_the_log_does_and_all_else_goes_on(
    pool, installed
):
    (finding,) = checked(installed)
    # on a machine that is busy enough merges may have been late for once
    pool.wait(lambda: failing(installed.log) == 0, "all slots to be merged")
    before = len(installed.log)

    def said(words: str) -> list[str]:
        return [line for line in installed.log[before:].splitlines() if words in line]

    assert finding["level"] == "advice"
    assert f"accepts slot merges (NEGOTIATOR) from {US}" in finding["message"]
    assert "use any slot" in finding["message"]
    try:
        pool.reconfig(collector="")
        pool.wait(lambda: said("collector refused the slot merge"), "the log to say so")
        failed = installed.metric("hydrator_merge_errors_total")
        pool.wait(lambda: installed.metric("hydrator_merge_errors_total") >= failed + 3, "three more turns")
        (line,) = said("collector refused the slot merge")
        assert "COLLECTOR.ALLOW_NEGOTIATOR" in line
        assert US in line
        assert "Traceback" not in installed.log
        (finding,) = checked(installed)
        assert finding["level"] == "fail"
        assert "COLLECTOR.ALLOW_NEGOTIATOR" in finding["todo"]
        catalogue = {"lofar:L3": {"UK": "available"}}
        installed.catalogue.hold(catalogue)
        pool.wait(
            lambda: pool.ads('MyType == "DataLocality" && member("lofar:L3", AvailableDatasets)', "Name"),
            "the site ad to come",
        )
    finally:
        pool.reconfig(collector=MAY_MERGE)
    pool.wait(lambda: said("collector accepts the slot merge again"), "the log to say that it is well again")
