"""A Snapshot into the ad each site should have, inside its size budget.

A slot ad is copied to the collector and again to the negotiator for every
slot, and STARTD_CRON cuts a line at 64 KiB (HTCondor: cron_job_io.cpp,
STDOUT_LINEBUF_SIZE), so what does not fit must be left out knowingly: whole
jobs, least wanted first, because a job whose datasets are cut in two can
never match.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from .model import DatasetState, Demand, Did, Fact, Site, SiteAd, SiteFacts, Snapshot, Want, from_unix, unix

CONTRACT_VERSION = 1
FRACTION_DIGITS = 2
_ENTRY = re.compile(r"'([^']+)'=([^;\]]+)")
"""One entry of a record as :func:`_record` writes it: a quote stands in no DID."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most bytes in one attribute's line, and in all three records and the list together."""

    line_bytes: int = 60_000
    ad_bytes: int = 240_000


@dataclass(frozen=True, slots=True)
class Draft:
    """A site's ad before it has a generation, and the jobs that found no room in it."""

    site: Site
    as_of: datetime
    content: tuple[tuple[str, str], ...]
    left_out: tuple[Want, ...] = ()


def drafts(
    snapshot: Snapshot, demand: Demand, *, budget: Budget, trust: Mapping[Site, float] | None = None
) -> dict[Site, Draft]:
    """What every site of *snapshot* should advertise for this *demand*.

    Args:
        snapshot: what we hold true.
        demand: what is wanted, most wanted first.
        budget: how large a line and an ad may grow, in bytes.
        trust: by site, the share (0 to 1) of audited facts that were true.

    Returns:
        By site, sorted; datasets that clash by letter case are in no ad.
    """
    clashing = frozenset(did for clash in snapshot.clashes for did in clash)
    trust = trust or {}
    naming = _naming(demand.wants)
    return {
        site: _draft(site, facts, demand.wants, naming, clashing, budget, trust.get(site, 1.0))
        for site, facts in sorted(snapshot.sites.items())
    }


def number(
    drafted: Mapping[Site, Draft],
    last: Mapping[Site, SiteAd],
    *,
    published: Mapping[Site, int],
    now: datetime,
) -> dict[Site, SiteAd]:
    """Give every draft its generation: a new one when, and only when, its content changed.

    Args:
        drafted: by site, what it should advertise.
        last: by site, the ad we last gave a generation.
        published: by site, the highest generation read back from anywhere, so
            that a lost state cannot send an older number.
        now: aware UTC time of this cycle.
    """
    ads = {}
    for site, draft in drafted.items():
        old = last.get(site)
        if old and old.content == draft.content and old.generation >= published.get(site, 0):
            generation = old.generation
        else:
            before = max(old.generation if old else 0, published.get(site, 0))
            generation = max(before + 1, unix(now))
        ads[site] = SiteAd(site, min(draft.as_of, now), generation, draft.content)
    return ads


def quoted(text: str) -> str:
    """*text* as a ClassAd string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else " " for c in escaped) + '"'


def _naming(wants: Sequence[Want]) -> dict[Did, list[int]]:
    """By dataset, the places in *wants* that name it, so that a site looks only at those of its own."""
    naming: dict[Did, list[int]] = {}
    for place, want in enumerate(wants):
        for did in want.dids:
            naming.setdefault(did, []).append(place)
    return naming


def _draft(
    site: Site,
    facts: SiteFacts,
    wants: Sequence[Want],
    naming: Mapping[Did, Sequence[int]],
    clashing: AbstractSet[Did],
    budget: Budget,
    trust: float,
) -> Draft:
    here = {did: fact for did, fact in facts.facts.items() if did not in clashing}
    places = sorted({place for did in here for place in naming.get(did, ())})
    chosen, left_out, with_list = _chosen(here, [wants[place] for place in places], budget, facts.as_of)
    states = {did: here[did] for did in sorted(chosen)}
    truncated = bool(left_out) or not with_list
    content = _content(site, states, facts.as_of, with_list=with_list, truncated=truncated, trust=trust)
    return Draft(site, facts.as_of, content, left_out)


def forgotten(ad: SiteAd, trust: float = 1.0) -> Draft:
    """What follows *ad* when nothing is known of its site any more and its facts are too old to stand."""
    return Draft(
        ad.site, ad.as_of, _content(ad.site, {}, ad.as_of, with_list=True, truncated=False, trust=trust)
    )


def restored(ad: SiteAd, trust: float, *, now: datetime, bound: timedelta) -> Draft:
    """*ad* as it was, each fact with the age it had; what is older than *bound* by *now* reads UNKNOWN."""
    lines = dict(ad.content)
    facts = {
        did: fact if now - fact.as_of <= bound else Fact(DatasetState.UNKNOWN, fact.as_of)
        for did, fact in facts_of(ad).items()
    }
    content = _content(
        ad.site,
        dict(sorted(facts.items())),
        ad.as_of,
        with_list="AvailableDatasets" in lines,
        truncated=lines.get("DataLocalityTruncated") == "true",
        trust=trust,
    )
    return Draft(ad.site, ad.as_of, content)


def facts_of(ad: SiteAd) -> dict[Did, Fact]:
    """What *ad* lists, each with the age it says; the ads of another version list nothing."""
    lines = dict(ad.content)
    fractions = dict(_ENTRY.findall(lines.get("DatasetFractions", "")))
    ages = dict(_ENTRY.findall(lines.get("DatasetAsOf", "")))
    return {
        Did(did): Fact(
            DatasetState(state.strip('"')),
            from_unix(int(ages[did])) if did in ages else ad.as_of,
            float(fractions[did]) if did in fractions else None,
        )
        for did, state in _ENTRY.findall(lines.get("DatasetStates", ""))
    }


def _content(
    site: Site,
    states: Mapping[Did, Fact],
    as_of: datetime,
    *,
    with_list: bool,
    truncated: bool,
    trust: float,
) -> tuple[tuple[str, str], ...]:
    available = [did for did, fact in states.items() if fact.state is DatasetState.AVAILABLE]
    listed = (
        [("AvailableDatasets", "{" + ",".join(f'"{did}"' for did in available) + "}")] if with_list else []
    )
    return (
        ("DataLocalitySite", quoted(site)),
        *listed,
        ("DatasetStates", _record((did, f'"{fact.state}"') for did, fact in states.items())),
        ("DatasetFractions", _record(_fractions(states))),
        ("DatasetAsOf", _record(_ages(states, as_of))),
        ("DataLocalityTruncated", "true" if truncated else "false"),
        ("DataLocalityTrust", f"{trust:.3f}"),
        ("DataLocalityVersion", str(CONTRACT_VERSION)),
    )


def _chosen(
    here: Mapping[Did, Fact], wants: Sequence[Want], budget: Budget, as_of: datetime
) -> tuple[set[Did], tuple[Want, ...], bool]:
    """The datasets that fit, the jobs that do not, and whether there was room for the plain list too.

    The plain list goes first: expressions look states up in the record.
    """
    for with_list in (True, False):
        room = _Room(budget, as_of, with_list=with_list)
        left_out = tuple(want for want in wants if not room.take(want, here))
        if not left_out or not with_list:
            return room.taken, left_out, with_list
        if not room.list_to_blame:
            return room.taken, left_out, with_list
    raise AssertionError("unreachable")


class _Room:
    """Counts the bytes of the four long lines while jobs are let in."""

    def __init__(self, budget: Budget, as_of: datetime, *, with_list: bool) -> None:
        self.taken: set[Did] = set()
        self.list_to_blame = False
        self._budget = budget
        self._as_of = unix(as_of)
        self._with_list = with_list
        self._lines = [len("AvailableDatasets = {}"), len("DatasetStates = []"), 0, 0]
        self._lines[2:] = [len("DatasetFractions = []"), len("DatasetAsOf = []")]

    def take(self, want: Want, here: Mapping[Did, Fact]) -> bool:
        new = [did for did in want.dids if did in here and did not in self.taken]
        if not new:
            return True
        lines = list(self._lines)
        for did in new:
            for line, size in enumerate(self._sizes(did, here[did])):
                lines[line] += size
        total = sum(lines)
        if max(lines) > self._budget.line_bytes or total > self._budget.ad_bytes:
            without_list = total - lines[0]
            self.list_to_blame |= (
                max(lines[1:]) <= self._budget.line_bytes and without_list <= self._budget.ad_bytes
            )
            return False
        self._lines = lines
        self.taken.update(new)
        return True

    def _sizes(self, did: Did, fact: Fact) -> tuple[int, int, int, int]:
        key = len(did) + 4  # two quotes, = or nothing, and the separator
        listed = len(did) + 3 if self._with_list and fact.state is DatasetState.AVAILABLE else 0
        fraction = key + 2 + FRACTION_DIGITS if _between(fact) else 0
        age = key + 10 if unix(fact.as_of) < self._as_of else 0
        return listed, key + len(fact.state) + 2, fraction, age


def _record(entries: Iterable[tuple[Did, str]]) -> str:
    """A nested ad; its keys stand in single quotes, which any character of a DID survives."""
    return "[" + ";".join(f"'{did}'={literal}" for did, literal in entries) + "]"


def _between(fact: Fact) -> bool:
    return fact.fraction is not None and 0.0 < _floored(fact.fraction) < 1.0


def _floored(fraction: float) -> float:
    """Rounded down, so that it never says more than is there, and small steps change no ad."""
    scale: int = 10**FRACTION_DIGITS
    return int(fraction * scale) / scale


def _fractions(states: Mapping[Did, Fact]) -> Iterable[tuple[Did, str]]:
    return (
        (did, f"{_floored(fact.fraction):.{FRACTION_DIGITS}f}")
        for did, fact in states.items()
        if fact.fraction is not None and _between(fact)
    )


def _ages(states: Mapping[Did, Fact], as_of: datetime) -> Iterable[tuple[Did, str]]:
    return ((did, str(unix(fact.as_of))) for did, fact in states.items() if unix(fact.as_of) < unix(as_of))
