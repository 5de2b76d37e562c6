"""The shrink breaker: a cycle in which too much would vanish at once is held until it is confirmed.

A catalogue that answers, but too little (an emptied file, a lost page, a lost
right), looks like one that holds nothing. So when more than a share of what a
site, or all sites together, listed would be listed no longer, the facts in
question stand as they did, each with its age. No age is made younger, so a
hold never outlives the age bound: past it, what is held reads UNKNOWN.

The one evidence that counts is that a dataset is still listed at the site in
another state: then somebody looked. A list edited by hand is none, nor is the
dataset at another site, because an emptied list and a storage element that
lost its site look just so. What jobs no longer want, sites the operator
retired and catalogues taken out of the configuration are no losses.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.model import DatasetState, Did, Fact, Site
from hydrator.domain.text import count

from .memory import Datasets, Known, Memory

_Places = Mapping[Site, Fact]
"""Where a dataset is listed; AVAILABLE where any catalogue says so."""
_NOWHERE: _Places = {}
_FEW = 2
"""Of so many datasets, the loss of all, everywhere, is one too many for a coincidence."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may vanish in one cycle.

    ``site_share`` and ``all_share`` (0 to 1) are of what was listed, and of
    what was AVAILABLE, at one site and at all sites. A loss of fewer than
    ``least`` datasets passes, unless nothing at all is left anywhere.
    ``polls`` further polls that say the same, each at least ``apart`` after
    the one before, end a hold; with 0 nothing is held.
    """

    site_share: float = 0.5
    all_share: float = 0.3
    least: int = 5
    polls: int = 20
    apart: timedelta = timedelta()


class Cause(StrEnum):
    """Why a site is held."""

    SITE = "site"  # too much of this site would go at once
    ALL = "all"  # too much of all sites would go at once
    UNNAMED = "unnamed"  # its catalogue named it before, and names it no longer


@dataclass(frozen=True, slots=True)
class Held:
    """What is held at one site.

    ``gone`` are the datasets in question, each with the number of further
    polls that said so; ``of`` is how many the site lists. ``since`` is when
    the hold began, ``told`` when a poll last counted.
    """

    since: datetime
    told: datetime
    gone: Mapping[Did, int]
    of: int
    cause: Cause

    @property
    def polls(self) -> int:
        """How many further polls agree that all of it is gone."""
        return min(self.gone.values(), default=0)

    def text(self, needed: int) -> str:
        """One sentence with the numbers; *needed* is how many polls end the hold."""
        if self.cause is Cause.UNNAMED:
            return f"its catalogue no longer names it; {count(len(self.gone), 'dataset')} stand and age"
        also = ", and more at other sites" if self.cause is Cause.ALL else ""
        return (
            f"{len(self.gone)} of {count(self.of, 'dataset')} would leave at once{also}; "
            f"{self.polls} of {count(needed, 'further poll')} confirm it"
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """How many of the wanted datasets are listed at each site, and how many of them are AVAILABLE."""

    listed: Mapping[Site, int] = field(default_factory=dict)
    available: Mapping[Site, int] = field(default_factory=dict)

    def changed(self, places: Iterable[_Places], sign: int) -> "Listed":
        """With what datasets at these *places* add, or take away."""
        listed, available = Counter(self.listed), Counter(self.available)
        for here in places:
            for site, fact in here.items():
                listed[site] += sign
                if fact.state is DatasetState.AVAILABLE:
                    available[site] += sign
        return Listed(+listed, +available)


@dataclass(frozen=True, slots=True)
class Judged:
    """What to remember, what is held, and what was let go though it was held, each with its reason.

    ``listed`` counts what is to be remembered; None where nobody looked.
    """

    memories: Mapping[str, Memory]
    held: Mapping[Site, Held] = field(default_factory=dict)
    released: Mapping[Site, Mapping[Did, str]] = field(default_factory=dict)
    listed: Listed | None = None


@dataclass(frozen=True, slots=True)
class Since:
    """What the last judgement left: its counts, and the datasets that something else is said of since."""

    listed: Listed
    changed: AbstractSet[Did]


@dataclass(frozen=True, slots=True)
class _Case:
    """One site: how much it *listed*, what is *lost*, what was held and nobody was asked about.

    ``available`` are those of the datasets in question that were AVAILABLE, of so many in all.
    ``fresh``: something else there was read.
    """

    listed: int
    all_available: int
    available: AbstractSet[Did]
    lost: AbstractSet[Did]
    silent: AbstractSet[Did]
    approved: AbstractSet[Did]
    fresh: bool
    last: Held | None

    def tells(self, now: datetime, limits: Limits) -> bool:
        """Does this poll count as one more?"""
        return bool(self.lost) and (self.last is None or now - self.last.told >= limits.apart)

    def polls(self, now: datetime, limits: Limits) -> dict[Did, int]:
        """By dataset in question, how many further polls said that it is gone."""
        last = self.last.gone if self.last else {}
        more = int(self.tells(now, limits))
        lost = {did: last[did] + more if did in last else 0 for did in self.lost}
        counts = lost | {did: last[did] for did in self.silent}
        return {did: polls for did, polls in sorted(counts.items()) if did not in self.approved}


@dataclass(frozen=True, slots=True)
class _Doubt:
    """What of one site is in question, and how much of it would still be listed before that."""

    gone: Mapping[Did, int]
    gone_available: int
    listed: int
    available: int

    @property
    def all_gone(self) -> bool:
        return len(self.gone) == self.listed


def judge(
    before: Mapping[str, Memory],
    after: Mapping[str, Memory],
    wanted: AbstractSet[Did],
    *,
    held: Mapping[Site, Held],
    approved: Mapping[Site, AbstractSet[Did]],
    retired: AbstractSet[Site],
    limits: Limits,
    now: datetime,
    since: Since | None = None,
) -> Judged:
    """Compare what was held true *before* with what the answers make of it *after*; hold what shrinks.

    Args:
        before: by catalogue, what was held true until this cycle.
        after: the same with the answers of this cycle in it.
        wanted: the demanded datasets; others are no loss.
        held: what the last cycle held.
        approved: by site, the held datasets that the operator lets go.
        retired: sites the operator took out.
        limits: how much may vanish.
        now: aware UTC time of this cycle.
        since: what judging *before* left, and what of it changed *after*; None: that is not known.

    Returns:
        What to remember: *after*, but what is held as it was *before*.
    """
    if not limits.polls:
        return Judged(after)
    before = {name: before.get(name, Memory()) for name in after}
    question = _question(before, after, wanted, held, approved, retired, since)
    cases = _cases(before, after, held, approved, question)
    polls = {site: case.polls(now, limits) for site, case in cases.items()}
    sure = {site: {did for did, n in told.items() if n >= limits.polls} for site, told in polls.items()}
    doubts = {site: _doubt(case, polls[site], sure[site]) for site, case in cases.items()}
    causes = _causes(doubts, limits)
    kept = {site: doubts[site].gone.keys() & cases[site].lost for site in causes}
    let_go = {site: case.approved - case.lost for site, case in cases.items() if case.approved}
    unread = {site for site in causes if not cases[site].fresh}
    memories = {name: _settled(m, before[name], kept, let_go, unread) for name, m in after.items()}
    now_held = {
        site: Held(
            since=_since(cases[site].last, doubts[site].gone, now),
            told=now if cases[site].tells(now, limits) else _told(cases[site].last, now),
            gone=doubts[site].gone,
            of=cases[site].listed,
            cause=cause,
        )
        for site, cause in causes.items()
    }
    listed = question.now_listed(after, memories, retired)
    for site, gone in _unnamed(memories, wanted, listed.listed.keys()).items():
        last = held.get(site)
        begun = last.since if last and last.cause is Cause.UNNAMED else now
        told = Held(begun, begun, dict.fromkeys(sorted(gone), 0), cases[site].listed, Cause.UNNAMED)
        now_held.setdefault(site, told)
    return Judged(memories, dict(sorted(now_held.items())), _released(cases, sure, limits), listed)


@dataclass(frozen=True, slots=True)
class _Question:
    """The datasets that may have left, where each *was* and where it *is*, and the counts before."""

    was: Mapping[Did, _Places]
    now: Mapping[Did, _Places]
    listed: Listed

    def now_listed(
        self, after: Mapping[str, Memory], memories: Mapping[str, Memory], retired: AbstractSet[Site]
    ) -> Listed:
        """The counts of the *memories* to keep: those *after* the answers, but for what is held."""
        held = [
            did
            for name, memory in memories.items()
            if memory is not after[name]
            for did in {**self.was, **self.now}
            if Datasets.of(memory.known).rows.get(did) is not Datasets.of(after[name].known).rows.get(did)
        ]
        kept = {**self.now, **_places(memories, held, retired)}
        return self.listed.changed(self.was.values(), -1).changed(kept.values(), 1)


def _question(
    before: Mapping[str, Memory],
    after: Mapping[str, Memory],
    wanted: AbstractSet[Did],
    held: Mapping[Site, Held],
    approved: Mapping[Site, AbstractSet[Did]],
    retired: AbstractSet[Site],
    since: Since | None,
) -> _Question:
    if since is None:
        was, now = _places(before, wanted, retired), _places(after, wanted, retired)
        return _Question(was, now, Listed().changed(was.values(), 1))
    asked = [one.gone for one in held.values()]
    dids = frozenset(since.changed).union(*asked, *approved.values())
    unwanted = _places(before, dids - wanted, retired)
    was, now = _places(before, dids & wanted, retired), _places(after, dids & wanted, retired)
    return _Question(was, now, since.listed.changed(unwanted.values(), -1))


def _places(
    memories: Mapping[str, Memory], dids: Collection[Did], retired: AbstractSet[Site]
) -> dict[Did, _Places]:
    """Where those of *dids* are listed that are listed anywhere."""
    found: dict[Did, _Places] = {}
    for memory in memories.values():
        rows = Datasets.of(memory.known).rows
        for did in dids if rows else ():
            if (known := rows.get(did)) is not None and known.here:
                here = known.here
                if retired:
                    here = {site: fact for site, fact in here.items() if site not in retired}
                found[did] = _either(found[did], here) if did in found else here
    return found


def _either(one: _Places, other: _Places) -> _Places:
    return {
        **one,
        **{s: f for s, f in other.items() if s not in one or f.state is DatasetState.AVAILABLE},
    }


def _cases(
    before: Mapping[str, Memory],
    after: Mapping[str, Memory],
    held: Mapping[Site, Held],
    approved: Mapping[Site, AbstractSet[Did]],
    question: _Question,
) -> dict[Site, _Case]:
    lost: dict[Site, set[Did]] = {}
    available: dict[Site, set[Did]] = {}
    came: Counter[Site] = Counter()
    for did, was in question.was.items():
        is_now = question.now.get(did, _NOWHERE)
        for site, fact in was.items():
            if site not in is_now:
                lost.setdefault(site, set()).add(did)
            if fact.state is DatasetState.AVAILABLE:
                available.setdefault(site, set()).add(did)
    for did, is_now in question.now.items() if question.was else ():
        came.update(is_now.keys() - question.was.get(did, _NOWHERE).keys())
    cases = {}
    for site, listed in sorted(question.listed.listed.items()):
        last = held.get(site)
        asked = last.gone.keys() if last else frozenset[Did]()
        here = {did for did in asked if site in question.now.get(did, _NOWHERE)}
        stands = {did for did in here if _not_read(before, after, site, did)}
        silent = stands if last and last.cause is not Cause.UNNAMED else set()
        gone = lost.get(site, set())
        cases[site] = _Case(
            listed=listed,
            all_available=question.listed.available.get(site, 0),
            available=available.get(site, set()),
            lost=gone,
            silent=silent,
            approved=approved.get(site, frozenset()) & asked & (gone | stands),
            fresh=listed - len(gone) + came[site] > len(silent),
            last=last if last and last.cause is not Cause.UNNAMED else None,
        )
    return cases


def _not_read(before: Mapping[str, Memory], after: Mapping[str, Memory], site: Site, did: Did) -> bool:
    """Does all that is known of *did* at *site* stand just as it stood *before*?"""
    return all(_at(memory, site, did) == _at(before[name], site, did) for name, memory in after.items())


def _at(memory: Memory, site: Site, did: Did) -> Fact | None:
    known = memory.known.get(did)
    return known.here.get(site) if known else None


def _doubt(case: _Case, polls: Mapping[Did, int], sure: AbstractSet[Did]) -> _Doubt:
    settled = sure | case.approved
    gone = {did: n for did, n in polls.items() if did not in sure}
    return _Doubt(
        gone,
        len(gone.keys() & case.available),
        case.listed - len(settled),
        case.all_available - len(settled & case.available),
    )


def _causes(doubts: Mapping[Site, _Doubt], limits: Limits) -> dict[Site, Cause]:
    """The sites that are held, and why; a site that is held by itself says nothing of the others."""
    losing = {site for site, doubt in doubts.items() if doubt.gone}
    nothing_left = all(doubt.all_gone for doubt in doubts.values())
    datasets = {did for doubt in doubts.values() for did in doubt.gone}
    alone = {site for site in losing if _shrinks([doubts[site]], limits.site_share, limits.least)}
    rest = [doubt for site, doubt in doubts.items() if site not in alone]
    together = (nothing_left and len(datasets) >= _FEW) or _shrinks(rest, limits.all_share, limits.least)
    causes = {site: Cause.SITE if site in alone else Cause.ALL for site in sorted(losing)}
    # few datasets are no shrink, but all of a site's few, when another site is held, are no coincidence
    emptied = {site for site in losing if alone and doubts[site].all_gone}
    return causes if together else {s: cause for s, cause in causes.items() if s in alone | emptied}


def _shrinks(doubts: Collection[_Doubt], share: float, least: int) -> bool:
    """Is too much in question, of all that is listed or of what is AVAILABLE?"""
    gone = sum(len(doubt.gone) for doubt in doubts)
    of = sum(doubt.listed for doubt in doubts)
    available_gone = sum(doubt.gone_available for doubt in doubts)
    available = sum(doubt.available for doubt in doubts)
    return _much(gone, of, share, least) or _much(available_gone, available, share, least)


def _much(gone: int, of: int, share: float, least: int) -> bool:
    return gone >= max(1, least) and gone > share * of


def _settled(
    memory: Memory,
    before: Memory,
    kept: Mapping[Site, AbstractSet[Did]],
    let_go: Mapping[Site, AbstractSet[Did]],
    unread: AbstractSet[Site],
) -> Memory:
    """*memory* with what is *kept* as it was, without what is *let_go*, and *unread* sites no newer."""
    changed: dict[Did, Known] = {}
    for site, dids in kept.items():
        for did in dids:
            old, new = before.known.get(did), changed.get(did) or memory.known.get(did)
            if old and new and site in old.here:
                changed[did] = replace(
                    new,
                    here={**new.here, site: old.here[site]},
                    before={**new.before, **{s: f for s, f in old.before.items() if s == site}},
                )
    for site, dids in let_go.items():
        for did in dids:
            if new := changed.get(did) or memory.known.get(did):
                changed[did] = replace(new, here=_without(new.here, site), before=_without(new.before, site))
    ages = {s: age for s in sorted(unread & memory.sites) if (age := before.age(s)) is not None}
    if not changed and not ages:
        return memory
    known = Datasets.of(memory.known).also(changed)
    return replace(memory, known=known, ages={**memory.ages, **ages})


def _without(facts: Mapping[Site, Fact], site: Site) -> dict[Site, Fact]:
    return {name: fact for name, fact in facts.items() if name != site}


def _unnamed(
    memories: Mapping[str, Memory], wanted: AbstractSet[Did], listed: AbstractSet[Site]
) -> dict[Site, set[Did]]:
    """The sites that no catalogue names any more, of those *listed*, with what stands there from before."""
    lost = listed - frozenset[Site]().union(*(memory.sites for memory in memories.values()))
    unnamed: dict[Site, set[Did]] = {}
    for memory in memories.values() if lost else ():
        known = Datasets.of(memory.known)
        for did in known.apart & wanted:  # what was read with the rest is at a site that is named
            row = known.rows[did]
            for site in row.here.keys() & lost:
                if row.here[site].as_of < row.at:
                    unnamed.setdefault(site, set()).add(did)
    return dict(sorted(unnamed.items()))


def _since(last: Held | None, gone: Mapping[Did, int], now: datetime) -> datetime:
    """A hold goes on as long as some of its datasets are in question."""
    return last.since if last and last.gone.keys() & gone.keys() else now


def _told(last: Held | None, now: datetime) -> datetime:
    return last.told if last else now


def _released(
    cases: Mapping[Site, _Case], sure: Mapping[Site, AbstractSet[Did]], limits: Limits
) -> dict[Site, dict[Did, str]]:
    """What was let go though it had been held, and why."""
    told = f"{count(limits.polls, 'further poll')} said that it is gone"
    found = {
        site: dict.fromkeys(sorted(sure[site]), told)
        | dict.fromkeys(sorted(case.approved), "gone, as the operator approved")
        for site, case in cases.items()
    }
    return {site: reasons for site, reasons in found.items() if reasons}
