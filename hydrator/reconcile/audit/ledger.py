"""Which facts proved false: how far each site can be trusted, and what is held true instead.

A catalogue answers a cheap question of every dataset at every poll; the audit
asks an expensive one of a few. Where the two differ, the expensive answer is
held true until the cheap one changes. It counts as a lie only once the
catalogue repeats the cheap answer, read after the expensive one: until then
the dataset may just have left. An expensive question that failed says nothing.

Pure: values in, values out; the time is an argument.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.model import DatasetState, Did, Fact, Site, unix
from hydrator.reconcile.snapshot.memory import Datasets, Known, Memory

WINDOW = timedelta(hours=24)
"""What the audit found longer ago than this counts no more: trust heals."""
SAMPLE = 50
"""As long as fewer facts of a site were audited, those that are missing count as true."""
STEP = 0.01
RISE = 0.015
"""Trust is shown in steps; it falls at once and rises when it is this much better, so it does not flicker."""
_HOUR = 3600


class By(StrEnum):
    """Which expensive question was asked."""

    FILES = "file by file"
    PROBE = "probe"


@dataclass(frozen=True, slots=True, order=True)
class Question:
    """What one expensive question to a catalogue is about: one dataset, at all sites."""

    catalogue: str
    did: Did

    def __str__(self) -> str:
        return f"{self.catalogue} {self.did}"


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A catalogue says that a dataset is AVAILABLE at a site."""

    catalogue: str
    did: Did
    site: Site

    def __str__(self) -> str:
        return f"{self.catalogue} {self.did} {self.site}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an expensive question found of one claim.

    ``at`` is when it was answered; ``found`` what is there instead (None:
    nothing). ``again`` when it was asked only since the claim was false
    before: such verdicts say nothing of how often the site lies.
    """

    claim: Claim
    by: By
    at: datetime
    true: bool
    found: Fact | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Correction:
    """A claim that was found false at ``at``, first at ``since``; ``found`` is held true instead.

    ``repeated`` is when the catalogue was read that claimed it all the same; None: it did not yet.
    """

    at: datetime
    since: datetime
    found: Fact | None = None
    repeated: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lie:
    """A claim that a catalogue repeated, read at ``said``, after it was found false."""

    claim: Claim
    by: By
    said: datetime
    correction: Correction


@dataclass(frozen=True, slots=True)
class Tally:
    """What the audit found of one site: by hour since the epoch, claims that were true and that were false.

    ``shown`` is the trust that is advertised, ``last`` when a claim was last audited.
    """

    hours: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    shown: float = 1.0
    last: datetime | None = None

    @property
    def true(self) -> int:
        return sum(true for true, _ in self.hours.values())

    @property
    def false(self) -> int:
        return sum(false for _, false in self.hours.values())


Corrected = tuple[Claim, By]


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything the audit knows."""

    tallies: Mapping[Site, Tally] = field(default_factory=dict)
    corrections: Mapping[Corrected, Correction] = field(default_factory=dict)

    @property
    def trust(self) -> dict[Site, float]:
        """By site, what its ad says: the share of audited facts that were true."""
        return {site: tally.shown for site, tally in self.tallies.items()}

    @property
    def lying(self) -> frozenset[Site]:
        """The sites of which something false was found that still counts."""
        return frozenset(site for site, tally in self.tallies.items() if tally.false)

    def false_claims(self, site: Site) -> int:
        """How many claims of *site* are corrected."""
        return len({claim for claim, _ in self.corrections if claim.site == site})


def claims(
    memories: Mapping[str, Memory], audited: Collection[str], *, retired: Collection[Site] = ()
) -> dict[Question, frozenset[Site]]:
    """Everything that the catalogues named in *audited* claim to be AVAILABLE, with its sites."""
    found = {}
    for catalogue, memory in memories.items():
        for did, known in memory.known.items() if catalogue in audited else ():
            sites = frozenset(
                site
                for site, fact in known.here.items()
                if fact.state is DatasetState.AVAILABLE and site not in retired
            )
            if sites:
                found[Question(catalogue, did)] = sites
    return found


def fold(audit: Audit, verdicts: Iterable[Verdict]) -> Audit:
    """Add what expensive questions found. A lie is counted later, by :func:`settle`."""
    tallies, corrections = dict(audit.tallies), dict(audit.corrections)
    for verdict in verdicts:
        claim, key = verdict.claim, (verdict.claim, verdict.by)
        old = corrections.pop(key, None)
        if not verdict.true:
            since = old.since if old else verdict.at
            repeated = old.repeated if old else None
            corrections[key] = Correction(verdict.at, since, verdict.found, repeated)
        tally = replace(tallies.get(claim.site, Tally()), last=verdict.at)
        known = any(standing.repeated for standing in _standing(corrections, claim))
        if not verdict.again and (known or not _standing(corrections, claim)):
            tally = _counted(tally, verdict.at, true=not known)
        tallies[claim.site] = tally
    return Audit(tallies, corrections)


def settle(
    audit: Audit, memories: Mapping[str, Memory], *, now: datetime, window: timedelta, bound: timedelta
) -> tuple[Audit, tuple[Lie, ...]]:
    """Compare with what the catalogues say now.

    Args:
        audit: with all verdicts folded in.
        memories: by catalogue, what it said last.
        now: aware UTC time of this cycle.
        window: what was found longer ago counts no more.
        bound: a correction that was not confirmed for so long is given up, as facts are.

    Returns:
        The audit as it now stands, and the lies that are new.
    """
    tallies, corrections = dict(audit.tallies), {}
    lies = []
    for (claim, by), correction in audit.corrections.items():
        said = _said(memories, claim)
        if said is None or said.state is not DatasetState.AVAILABLE or now - correction.at > bound:
            continue
        corrections[claim, by] = correction
        if correction.repeated is None and said.as_of > correction.at:
            corrections[claim, by] = replace(correction, repeated=said.as_of)
            if not any(other.repeated for other in _standing(audit.corrections, claim)):
                tallies[claim.site] = _counted(tallies.get(claim.site, Tally()), correction.at, true=False)
            lies.append(Lie(claim, by, said.as_of, correction))
    oldest = unix(now - window) // _HOUR
    tallies = {site: aged for site, tally in tallies.items() if (aged := _aged(tally, oldest)).hours}
    return Audit(tallies, corrections), tuple(lies)


def corrected(memories: Mapping[str, Memory], audit: Audit) -> Mapping[str, Memory]:
    """*memories* with what was found instead of each claim that proved false; the given ones stay."""
    changed: dict[str, dict[Did, Known]] = {}
    for (claim, by), correction in sorted(audit.corrections.items(), key=lambda item: item[0]):
        if claim.catalogue not in memories:
            continue
        mine = changed.setdefault(claim.catalogue, {})
        known = mine.get(claim.did) or memories[claim.catalogue].known.get(claim.did)
        if known is None or claim.site not in known.here:
            continue
        here = {site: fact for site, fact in known.here.items() if site != claim.site}
        # of two corrections the probe's, which sorts last, decides
        if correction.found and (by is By.PROBE or (claim, By.PROBE) not in audit.corrections):
            here[claim.site] = correction.found
        mine[claim.did] = replace(known, here=here)
    right = {
        name: replace(memories[name], known=Datasets.of(memories[name].known).also(mine))
        for name, mine in changed.items()
    }
    return {**memories, **right}


def _said(memories: Mapping[str, Memory], claim: Claim) -> Fact | None:
    memory = memories.get(claim.catalogue)
    known = memory.known.get(claim.did) if memory else None
    return known.here.get(claim.site) if known else None


def _standing(corrections: Mapping[Corrected, Correction], claim: Claim) -> list[Correction]:
    return [corrections[claim, by] for by in By if (claim, by) in corrections]


def _counted(tally: Tally, at: datetime, *, true: bool) -> Tally:
    hour = unix(at) // _HOUR
    so_far = tally.hours.get(hour, (0, 0))
    one = (so_far[0] + 1, so_far[1]) if true else (so_far[0], so_far[1] + 1)
    return replace(tally, hours={**tally.hours, hour: one})


def _aged(tally: Tally, oldest: int) -> Tally:
    """*tally* without what no longer counts, and the trust to show for the rest."""
    tally = replace(tally, hours={hour: found for hour, found in tally.hours.items() if hour > oldest})
    share = 1 - tally.false / max(SAMPLE, tally.true + tally.false)
    steady = 0 <= share - tally.shown < RISE and tally.false > 0
    return tally if steady else replace(tally, shown=int(share / STEP + 1e-9) * STEP)
