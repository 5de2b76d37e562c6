"""Ledger of the audit: false claims, the trust in each site, and the corrections.

A poll reads every dataset by a cheap query. The audit verifies a few datasets by an expensive query. If
the two answers differ, the daemon uses the audit's answer until the poll's answer changes. A false claim
lowers the trust in the site only after a later poll repeats the claim: until then, the dataset may have been
deleted between the two queries. A failed query of the audit is not evidence.

This module is pure: the time is an argument.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.model import DatasetState, Did, Fact, Site, to_unix
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRecord, DatasetRows

AUDIT_WINDOW = timedelta(hours=24)
"""Older verdicts do not count, so the trust in a site recovers."""
MIN_SAMPLE = 50
"""If fewer claims of a site were audited, count the difference as true claims."""
TRUST_STEP = 0.01
MIN_TRUST_RISE = 0.015
"""The advertised trust falls at once but rises only by at least this much, so that ads change seldom."""
_HOUR = 3600


class VerificationMethod(StrEnum):
    """The kind of expensive query: the catalogue's list of files, or a probe of the storage."""

    FILES = "file by file"
    PROBE = "probe"


@dataclass(frozen=True, slots=True, order=True)
class AuditQuery:
    """One dataset that the audit verifies, at all sites, by one expensive query to a catalogue."""

    catalogue: str
    did: Did

    def __str__(self) -> str:
        return f"{self.catalogue} {self.did}"


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """The claim of a catalogue that a dataset is AVAILABLE at a site."""

    catalogue: str
    did: Did
    site: Site

    def __str__(self) -> str:
        return f"{self.catalogue} {self.did} {self.site}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the audit of one claim.

    If the claim is false, ``actual_fact`` is the fact that the audit found (None: the site has nothing of
    the dataset). ``is_recheck`` means that the audit repeated the query because the claim was false before.
    The verdict of a recheck does not change the trust in the site.
    """

    claim: Claim
    method: VerificationMethod
    answered_at: datetime
    is_true: bool
    actual_fact: Fact | None = None
    is_recheck: bool = False


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of a false claim: the daemon uses ``actual_fact`` in place of the claim.

    ``actual_fact`` is None if the site has nothing of the dataset. The audit first found the claim
    false at ``first_found_at``, and last at ``found_at``. ``repeated_at`` is the time of the first later poll
    in which the catalogue repeated the claim; None if no poll has repeated the claim.
    """

    found_at: datetime
    first_found_at: datetime
    actual_fact: Fact | None = None
    repeated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RepeatedFalseClaim:
    """A claim that the audit found false, and that the catalogue repeated in its poll at ``repeated_at``."""

    claim: Claim
    method: VerificationMethod
    repeated_at: datetime
    correction: Correction


@dataclass(frozen=True, slots=True)
class AuditTally:
    """The numbers of true and of false claims about one site, by hour since the epoch.

    ``advertised_trust`` is the trust in the site's ad. ``last_audited_at`` is the time of the last audit of
    a claim about the site.
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
    """The results of the audit: the numbers of true and false claims by site, and the corrections."""

    tallies: Mapping[Site, AuditTally] = field(default_factory=dict)
    corrections: Mapping[CorrectionKey, Correction] = field(default_factory=dict)

    @property
    def trust(self) -> dict[Site, float]:
        """Return, by site, the advertised trust: the share (0 to 1) of audited claims that were true."""
        return {site: tally.advertised_trust for site, tally in self.tallies.items()}

    @property
    def sites_with_false_claims(self) -> frozenset[Site]:
        """Return the sites with a false claim that is younger than the audit window."""
        return frozenset(site for site, tally in self.tallies.items() if tally.false_count)

    def count_false_claims(self, site: Site) -> int:
        """Return the number of claims about *site* that the audit found false and still corrects."""
        return len({claim for claim, _ in self.corrections if claim.site == site})


def claims(
    memories: Mapping[str, CatalogueMemory], catalogues: Collection[str], *, retired: Collection[Site] = ()
) -> dict[AuditQuery, frozenset[Site]]:
    """Return the datasets that *catalogues* claim to be AVAILABLE, each with its sites."""
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
    """Add *verdicts* to *audit*.

    A false claim lowers the trust in the site only after a poll repeats the claim: see
    :func:`expire_and_confirm`.
    """
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
        audit: the audit after :func:`record_verdicts`.
        memories: by catalogue, its last answers.
        now: aware UTC time of this cycle.
        window: the maximum age of a verdict that counts for the trust in a site.
        max_age: the maximum age of a correction; older corrections are dropped.

    Returns:
        The audit, and the false claims that a poll repeated for the first time.
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
    """Return a copy of *memories* in which the actual facts replace the false claims."""
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
    """Return *tally* without the counts up to *oldest_hour*; compute the trust from the later hours."""
    tally = replace(
        tally,
        counts_by_hour={hour: counts for hour, counts in tally.counts_by_hour.items() if hour > oldest_hour},
    )
    share = 1 - tally.false_count / max(MIN_SAMPLE, tally.true_count + tally.false_count)
    is_steady = 0 <= share - tally.advertised_trust < MIN_TRUST_RISE and tally.false_count > 0
    return (
        tally if is_steady else replace(tally, advertised_trust=int(share / TRUST_STEP + 1e-9) * TRUST_STEP)
    )
