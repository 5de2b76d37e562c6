"""A Snapshot into the ad each site should have, inside its size budget.

A slot ad is copied to the collector and again to the negotiator for every
slot, and STARTD_CRON cuts a line at 64 KiB (HTCondor: cron_job_io.cpp,
STDOUT_LINEBUF_SIZE), so what does not fit must be left out knowingly: whole
jobs, least wanted first, because a job whose datasets are cut in two can
never match.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hydrator.domain.model import (
    DatasetState,
    Demand,
    Did,
    Fact,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
    Want,
    from_unix,
    unix,
)
from hydrator.domain.numbers import is_ahead
from hydrator.reconcile.snapshot.memory import THEN
from hydrator.reconcile.snapshot.merge import Facts

from .budget import (
    FRACTION_DIGITS,
    Budget,
    LeftOut,
    Wanted,
    between,
    choose,
    floored,
)

__all__ = [
    "Budget", "Draft", "Drafting", "drafting", "drafts", "facts_of", "forgotten", "implausible", "number",
    "quoted", "restored",
]  # fmt: skip

CONTRACT_VERSION = 1
_ENTRY = re.compile(r"'([^']+)'=([^;\]]+)")
"""One entry of a record as :func:`_record` writes it: a quote stands in no DID."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A site's ad before it has a generation, and the jobs that found no room in it."""

    site: Site
    as_of: datetime
    content: tuple[tuple[str, str], ...]
    left_out: Sequence[Want] = ()


@dataclass(frozen=True, slots=True)
class Drafting:
    """The drafts of one cycle, by site, and what the next cycle can start from."""

    drafts: Mapping[Site, Draft]
    wanted: Wanted
    budget: Budget
    clashing: frozenset[Did]
    sites: Mapping[Site, "_Drafted"]


@dataclass(frozen=True, slots=True)
class _Drafted:
    """What one draft was made of: with the same it is the same."""

    here: Mapping[Did, Fact]
    places: Sequence[int]
    inside: AbstractSet[int]
    age: datetime | None
    trust: float


def no_room(made: Mapping[Site, Draft]) -> dict[Site, frozenset[Did]]:
    """Return, by site, the datasets that its ad has no room for."""
    return {
        site: frozenset(did for want in draft.left_out for did in want.dids)
        for site, draft in made.items()
        if draft.left_out
    }


def drafts(
    snapshot: Snapshot, demand: Demand, *, budget: Budget, trust: Mapping[Site, float] | None = None
) -> Mapping[Site, Draft]:
    """What every site of *snapshot* should advertise for this *demand*.

    Args:
        snapshot: what we hold true.
        demand: what is wanted, most wanted first.
        budget: how large a line and an ad may grow, in bytes.
        trust: by site, the share (0 to 1) of audited facts that were true.

    Returns:
        By site, sorted; datasets that clash by letter case are in no ad.
    """
    return drafting(snapshot, demand, budget=budget, trust=trust or {}).drafts


def drafting(
    snapshot: Snapshot,
    demand: Demand,
    *,
    budget: Budget,
    trust: Mapping[Site, float],
    last: Drafting | None = None,
    altered: Mapping[Site, AbstractSet[Did]] | None = None,
) -> Drafting:
    """The same, starting from the *last* drafts.

    Args:
        snapshot: what we hold true.
        demand: what is wanted, most wanted first.
        budget: how large a line and an ad may grow, in bytes.
        trust: by site, the share (0 to 1) of audited facts that were true.
        last: the drafts that the snapshot before led to.
        altered: by site, the datasets whose fact may be another one than then; None: that is not known.
    """
    clashing = frozenset(did for clash in snapshot.clashes for did in clash)
    if last is None or altered is None or (clashing, budget) != (last.clashing, last.budget):
        last = None
    wanted = _wanted(demand, last)
    same_order = last is not None and wanted.naming is last.wanted.naming
    made, sites = {}, {}
    for site, facts in sorted(snapshot.sites.items()):
        before = last.sites.get(site) if last and same_order else None
        changed = altered.get(site, frozenset()) if altered is not None and before else None
        one = _look(facts, before, changed, clashing, wanted, trust.get(site, 1.0))
        if last and before and not changed and (one.age, one.trust) == (before.age, before.trust):
            content, inside = last.drafts[site].content, before.inside
        else:
            content, inside = _written(site, facts, one, wanted, budget)
        sites[site] = replace(one, inside=inside)
        made[site] = Draft(site, facts.as_of, content, LeftOut(demand.wants, one.places, inside))
    return Drafting(made, wanted, budget, clashing, sites)


def number(
    drafted: Mapping[Site, Draft],
    last: Mapping[Site, SiteAd],
    *,
    published: Mapping[Site, int],
    now: datetime,
    renumbered: AbstractSet[Site] = frozenset(),
) -> dict[Site, SiteAd]:
    """Give every draft its generation: a new one when, and only when, its content changed.

    A generation that is ``MOST_AHEAD`` of *now* or further was never a time at which content changed: it was
    forged, or the clock was wrong. Hooks refuse it, so the next one does not follow it but starts from *now*.

    Args:
        drafted: by site, what it should advertise.
        last: by site, the ad we last gave a generation.
        published: by site, the highest generation read back from anywhere, so
            that a lost state cannot send an older number.
        now: aware UTC time of this cycle.
        renumbered: sites whose ad gets a new generation with the same content too.
    """
    ads = {}
    for site, draft in drafted.items():
        old = last.get(site)
        there = _believed(published.get(site, 0), now)
        if old and old.content == draft.content and old.generation >= there and site not in renumbered:
            generation = old.generation
        else:
            before = max(_believed(old.generation, now) if old else 0, there)
            generation = max(before + 1, unix(now))
        ads[site] = SiteAd(site, min(draft.as_of, now), generation, draft.content)
    return ads


def _believed(generation: int, now: datetime) -> int:
    """Return *generation*, or 0 where it is too far ahead of *now* to be followed."""
    return 0 if is_ahead(generation, now) else generation


def implausible(ads: Mapping[Site, SiteAd], now: datetime) -> dict[Site, int]:
    """Return by site the generations of *ads* that every hook refuses, because they are ahead of *now*."""
    return {site: ad.generation for site, ad in sorted(ads.items()) if is_ahead(ad.generation, now)}


def quoted(text: str) -> str:
    """*text* as a ClassAd string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else " " for c in escaped) + '"'


def _wanted(demand: Demand, last: Drafting | None) -> Wanted:
    """The wants; in the order of the *last* ones, who names what need not be found again."""
    wants = demand.wants
    if last and [want.dids for want in wants] == [want.dids for want in last.wanted.wants]:
        return replace(last.wanted, wants=wants)
    return Wanted.of(wants)


def _look(
    facts: SiteFacts,
    before: _Drafted | None,
    changed: AbstractSet[Did] | None,
    clashing: AbstractSet[Did],
    wanted: Wanted,
    trust: float,
) -> _Drafted:
    rows = facts.facts
    age: datetime | None = facts.as_of
    if isinstance(rows, Facts):
        age = None if age == rows.now else age
        rows = rows.rows
    here = {did: fact for did, fact in rows.items() if did not in clashing} if clashing else rows
    if before is None or changed is None:
        places: Sequence[int] = wanted.places(here)
    else:
        places = _moved(
            before.places, [d for d in changed if (d in here) != (d in before.here)], here, wanted
        )
    return _Drafted(here, places, frozenset(), age, trust)


def _moved(
    places: Sequence[int], dids: Sequence[Did], here: Mapping[Did, Fact], wanted: Wanted
) -> Sequence[int]:
    """The *places* after these *dids* came or left."""
    if not dids:
        return places
    moved = list(places)
    for place in {place for did in dids for place in wanted.naming.get(did, ())}:
        at = bisect_left(moved, place)
        listed = at < len(moved) and moved[at] == place
        names_some = any(did in here for did in wanted.wants[place].dids)
        if names_some and not listed:
            moved.insert(at, place)
        elif listed and not names_some:
            del moved[at]
    return moved


def _written(
    site: Site, facts: SiteFacts, one: _Drafted, wanted: Wanted, budget: Budget
) -> tuple[tuple[tuple[str, str], ...], AbstractSet[int]]:
    choice = choose(one.here, wanted, one.places, budget, facts.as_of)
    states = {did: one.here[did] for did in sorted(choice.taken)}
    truncated = len(choice.inside) < len(one.places) or not choice.with_list
    content = _content(
        site, states, facts.as_of, with_list=choice.with_list, truncated=truncated, trust=one.trust
    )
    return content, choice.inside


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


def moved_ad(ad: SiteAd, by: timedelta) -> SiteAd:
    """Return *ad* with every time earlier *by* so much; if its content changes, it is another generation."""
    lines = dict(ad.content)
    ages = _ENTRY.findall(lines.get("DatasetAsOf", ""))
    if not ages:
        return replace(ad, as_of=ad.as_of - by)
    seconds = round(by.total_seconds())
    lines["DatasetAsOf"] = _record((Did(did), str(int(at) - seconds)) for did, at in ages)
    return replace(ad, as_of=ad.as_of - by, generation=ad.generation + 1, content=tuple(lines.items()))


def facts_of(ad: SiteAd) -> dict[Did, Fact]:
    """Return what *ad* lists, each with the age it says; what another version wrote may not be readable."""
    lines = dict(ad.content)
    fractions = dict(_ENTRY.findall(lines.get("DatasetFractions", "")))
    ages = dict(_ENTRY.findall(lines.get("DatasetAsOf", "")))
    found = {}
    for did, state in _ENTRY.findall(lines.get("DatasetStates", "")):
        with suppress(ValueError, OverflowError, OSError):
            found[Did(did)] = Fact(
                DatasetState(state.strip('"')),
                from_unix(int(ages[did])) if did in ages else ad.as_of,
                float(fractions[did]) if did in fractions else None,
            )
    return found


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


def _record(entries: Iterable[tuple[Did, str]]) -> str:
    """A nested ad; its keys stand in single quotes, which any character of a DID survives."""
    return "[" + ";".join(f"'{did}'={literal}" for did, literal in entries) + "]"


def _fractions(states: Mapping[Did, Fact]) -> Iterable[tuple[Did, str]]:
    return (
        (did, f"{floored(fact.fraction):.{FRACTION_DIGITS}f}")
        for did, fact in states.items()
        if fact.fraction is not None and between(fact)
    )


def _ages(states: Mapping[Did, Fact], as_of: datetime) -> Iterable[tuple[Did, str]]:
    of_site = unix(as_of)
    for did, fact in states.items():
        if fact.as_of is not THEN and (at := unix(fact.as_of)) < of_site:
            yield did, str(at)
