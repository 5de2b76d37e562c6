"""Ledger of the audit: false claims, the trust in each site, and the corrections.

A catalogue answers a cheap question about every dataset at every poll; the audit asks an expensive one
about a few. Where the two differ, the expensive answer is used until the cheap one changes. It counts
against the catalogue only once the catalogue repeats the cheap answer, read after the expensive one:
until then the dataset may just have left. An expensive question that failed is not evidence.

Pure: values in, values out; the time is an argument.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.model import DatasetState, Did, Fact, Site, to_unix
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRecord, DatasetRows

AUDIT_WINDOW = timedelta(hours=24)
"""Older verdicts do not count: trust recovers."""
MIN_SAMPLE = 50
"""If fewer facts of a site were audited, the missing ones count as true."""
TRUST_STEP = 0.01
MIN_TRUST_RISE = 0.015
"""Advertised trust falls at once, but rises only by this much or more, so that it seldom changes."""
_HOUR = 3600


class VerificationMethod(StrEnum):
    """The kind of expensive question."""

    FILES = "file by file"
    PROBE = "probe"


@dataclass(frozen=True, slots=True, order=True)
class AuditQuery:
    """The subject of one expensive question to a catalogue: one dataset, at all sites."""

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
    """The result of an expensive question about one claim.

    ``actual_fact`` is the fact found instead (None: nothing is there). ``is_recheck``: the question was only
    asked because the claim was false before. Such a verdict does not count for the trust in the site.
    """

    claim: Claim
    method: VerificationMethod
    answered_at: datetime
    is_true: bool
    actual_fact: Fact | None = None
    is_recheck: bool = False


@dataclass(frozen=True, slots=True)
class Correction:
    """A false claim, found at ``found_at`` and first at ``first_found_at``; ``actual_fact`` is used instead.

    ``repeated_at`` is when the catalogue was read that claimed it all the same; None: not yet.
    """

    found_at: datetime
    first_found_at: datetime
    actual_fact: Fact | None = None
    repeated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RepeatedFalseClaim:
    """A claim that a catalogue repeated, read at ``repeated_at``, after the audit had found it false."""

    claim: Claim
    method: VerificationMethod
    repeated_at: datetime
    correction: Correction


@dataclass(frozen=True, slots=True)
class AuditTally:
    """The results of one site: by hour since the epoch, the numbers of true and of false claims.

    ``advertised_trust`` is in the site's ad; ``last_audited_at`` is when a claim was last audited.
    """

    counts_by_hour: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    advertised_trust: float = 1.0
    last_audited_at: datetime | None = None

    @property
    def true_count(self) -> int:
        return sum(true for true, _ in self.counts_by_hour.values())

    @property
    def false_count(self) -> int:
        return sum(false for _, false in self.counts_by_hour.values())


CorrectionKey = tuple[Claim, VerificationMethod]


@dataclass(frozen=True, slots=True)
class Audit:
    """The results of the audit: tallies by site, and corrections."""

    tallies: Mapping[Site, AuditTally] = field(default_factory=dict)
    corrections: Mapping[CorrectionKey, Correction] = field(default_factory=dict)

    @property
    def trust(self) -> dict[Site, float]:
        """Return by site the advertised trust: the share of audited claims that were true."""
        return {site: tally.advertised_trust for site, tally in self.tallies.items()}

    @property
    def sites_with_false_claims(self) -> frozenset[Site]:
        """Return the sites with a false claim that still counts."""
        return frozenset(site for site, tally in self.tallies.items() if tally.false_count)

    def count_false_claims(self, site: Site) -> int:
        """Return the number of corrected claims of *site*."""
        return len({claim for claim, _ in self.corrections if claim.site == site})


def claims(
    memories: Mapping[str, CatalogueMemory], catalogues: Collection[str], *, retired: Collection[Site] = ()
) -> dict[AuditQuery, frozenset[Site]]:
    """Return all claims of *catalogues* that a dataset is AVAILABLE, with its sites."""
    sites_by_query = {}
    for catalogue, memory in memories.items():
        for did, record in memory.records.items() if catalogue in catalogues else ():
            sites = frozenset(
                site
                for site, fact in record.facts.items()
                if fact.state is DatasetState.AVAILABLE and site not in retired
            )
            if sites:
                sites_by_query[AuditQuery(catalogue, did)] = sites
    return sites_by_query


def record_verdicts(audit: Audit, verdicts: Iterable[Verdict]) -> Audit:
    """Add *verdicts*; :func:`expire_and_confirm` counts a false claim later, once it is repeated."""
    tallies, corrections = dict(audit.tallies), dict(audit.corrections)
    for verdict in verdicts:
        claim, key = verdict.claim, (verdict.claim, verdict.method)
        old = corrections.pop(key, None)
        if not verdict.is_true:
            since = old.first_found_at if old else verdict.answered_at
            repeated = old.repeated_at if old else None
            corrections[key] = Correction(verdict.answered_at, since, verdict.actual_fact, repeated)
        tally = replace(tallies.get(claim.site, AuditTally()), last_audited_at=verdict.answered_at)
        is_disproved = any(one.repeated_at for one in _corrections_of(corrections, claim))
        if not verdict.is_recheck and (is_disproved or not _corrections_of(corrections, claim)):
            tally = _count_verdict(tally, verdict.answered_at, is_true=not is_disproved)
        tallies[claim.site] = tally
    return Audit(tallies, corrections)


def expire_and_confirm(
    audit: Audit,
    memories: Mapping[str, CatalogueMemory],
    *,
    now: datetime,
    window: timedelta,
    max_age: timedelta,
) -> tuple[Audit, tuple[RepeatedFalseClaim, ...]]:
    """Compare the corrections with the catalogues' present answers, and drop old results.

    Args:
        audit: with all verdicts recorded.
        memories: by catalogue, its last answers.
        now: aware UTC time of this cycle.
        window: older verdicts do not count.
        max_age: a correction that was not confirmed for so long is dropped, as facts are.

    Returns:
        The audit, and the false claims that were repeated for the first time.
    """
    tallies, corrections = dict(audit.tallies), {}
    repeated_claims = []
    for (claim, by), correction in audit.corrections.items():
        fact = _claimed_fact(memories, claim)
        if fact is None or fact.state is not DatasetState.AVAILABLE or now - correction.found_at > max_age:
            continue
        corrections[claim, by] = correction
        if correction.repeated_at is None and fact.as_of > correction.found_at:
            corrections[claim, by] = replace(correction, repeated_at=fact.as_of)
            if not any(other.repeated_at for other in _corrections_of(audit.corrections, claim)):
                tallies[claim.site] = _count_verdict(
                    tallies.get(claim.site, AuditTally()), correction.found_at, is_true=False
                )
            repeated_claims.append(RepeatedFalseClaim(claim, by, fact.as_of, correction))
    oldest = to_unix(now - window) // _HOUR
    tallies = {
        site: aged for site, tally in tallies.items() if (aged := _expire_hours(tally, oldest)).counts_by_hour
    }
    return Audit(tallies, corrections), tuple(repeated_claims)


def apply_corrections(memories: Mapping[str, CatalogueMemory], audit: Audit) -> Mapping[str, CatalogueMemory]:
    """Return *memories* with the actual fact instead of each false claim; the given ones are unchanged."""
    changed: dict[str, dict[Did, DatasetRecord]] = {}
    for (claim, by), correction in sorted(audit.corrections.items(), key=lambda item: item[0]):
        if claim.catalogue not in memories:
            continue
        records = changed.setdefault(claim.catalogue, {})
        record = records.get(claim.did) or memories[claim.catalogue].records.get(claim.did)
        if record is None or claim.site not in record.facts:
            continue
        facts = {site: fact for site, fact in record.facts.items() if site != claim.site}
        # If file listing and probe both disproved the claim, the probe is right: it read the storage.
        if correction.actual_fact and (
            by is VerificationMethod.PROBE or (claim, VerificationMethod.PROBE) not in audit.corrections
        ):
            facts[claim.site] = correction.actual_fact
        records[claim.did] = replace(record, facts=facts)
    corrected_memories = {
        name: replace(memories[name], records=DatasetRows.wrap(memories[name].records).with_records(records))
        for name, records in changed.items()
    }
    return {**memories, **corrected_memories}


def _claimed_fact(memories: Mapping[str, CatalogueMemory], claim: Claim) -> Fact | None:
    memory = memories.get(claim.catalogue)
    record = memory.records.get(claim.did) if memory else None
    return record.facts.get(claim.site) if record else None


def _corrections_of(corrections: Mapping[CorrectionKey, Correction], claim: Claim) -> list[Correction]:
    return [corrections[claim, by] for by in VerificationMethod if (claim, by) in corrections]


def _count_verdict(tally: AuditTally, answered_at: datetime, *, is_true: bool) -> AuditTally:
    hour = to_unix(answered_at) // _HOUR
    so_far = tally.counts_by_hour.get(hour, (0, 0))
    one = (so_far[0] + 1, so_far[1]) if is_true else (so_far[0], so_far[1] + 1)
    return replace(tally, counts_by_hour={**tally.counts_by_hour, hour: one})


def _expire_hours(tally: AuditTally, oldest_hour: int) -> AuditTally:
    """Return *tally* without hours up to *oldest_hour*, with the trust of the rest."""
    tally = replace(
        tally,
        counts_by_hour={hour: counts for hour, counts in tally.counts_by_hour.items() if hour > oldest_hour},
    )
    share = 1 - tally.false_count / max(MIN_SAMPLE, tally.true_count + tally.false_count)
    is_steady = 0 <= share - tally.advertised_trust < MIN_TRUST_RISE and tally.false_count > 0
    return (
        tally if is_steady else replace(tally, advertised_trust=int(share / TRUST_STEP + 1e-9) * TRUST_STEP)
    )
