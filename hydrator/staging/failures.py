"""Failures of staging: backoff of a dataset and site, breaker of a site, halt of a catalogue. Pure."""

import hashlib
from dataclasses import replace
from datetime import datetime

from hydrator.domain.model import Did, Site
from hydrator.domain.ports.staging import RefusalKind
from hydrator.domain.text import format_duration

from .ledger import EndedEntry, FailureRecord, Ledger, LedgerEntry
from .policy import StagingTimes

FINAL_KINDS = frozenset({RefusalKind.NO_SOURCE, RefusalKind.UNKNOWN_DATASET})
HALTING_KINDS = frozenset({RefusalKind.PERMISSION, RefusalKind.ACTIVITY})
"""Refusals that every other request at this catalogue would get, too."""
SITE_KINDS = frozenset({RefusalKind.QUOTA, RefusalKind.CLOSED})
"""Refusals that every other request to this site would get, too: they open its breaker at once."""
_JITTER = 0.25
_MIN_FAILURES_OF_SHARE = 3


def record_failure(
    ledger: Ledger,
    catalogue: str,
    did: Did,
    site: Site,
    kind: RefusalKind,
    reason: str,
    now: datetime,
    times: StagingTimes,
) -> Ledger:
    """Return *ledger* with one more failed attempt to bring *did* to *site*.

    The pause before the next attempt doubles, with a jitter that depends on the dataset: many datasets that
    failed together are not all asked for at the same moment again.
    """
    previous = ledger.failures.get((did, site))
    attempts = (previous.attempts if previous else 0) + 1
    pause = times.retry * 2 ** (attempts - 1) * (1 + _JITTER * _fraction(did, site, attempts))
    is_final = kind in FINAL_KINDS or attempts >= times.max_attempts
    failure = FailureRecord(attempts, now, now + pause, kind, reason, is_final, kind in FINAL_KINDS)
    refused = dict(ledger.totals.refused)
    refused[kind] = refused.get(kind, 0) + 1
    count = times.breaker_failures if kind in SITE_KINDS else 1
    site_times = (*ledger.site_failures.get(site, ()), *([now] * count))
    halts = dict(ledger.halts)
    if kind in HALTING_KINDS:
        halts[catalogue] = reason
    return replace(
        ledger,
        failures={**ledger.failures, (did, site): failure},
        site_failures={**ledger.site_failures, site: site_times},
        halts=halts,
        totals=replace(ledger.totals, failed=ledger.totals.failed + 1, refused=refused),
    )


def explain_backoff(ledger: Ledger, did: Did, site: Site, now: datetime) -> str | None:
    """Return why earlier failures forbid a request for *did* to *site* now; None if it is allowed."""
    for (other, place), failure in ledger.failures.items():
        if other != did:
            continue
        is_pausing = not failure.is_final and now < failure.retry_at
        if is_pausing or (failure.is_final and (place == site or failure.is_everywhere)):
            return _explain_failure(failure, now)
    return None


def _explain_failure(failure: FailureRecord, now: datetime) -> str:
    attempts = f"{failure.attempts} attempt{'' if failure.attempts == 1 else 's'} failed ({failure.reason})"
    if failure.is_final:
        return f"{attempts}; no further attempt before `hydrator staging resume`"
    left = format_duration((failure.retry_at - now).total_seconds())
    return f"{attempts}; the next attempt is in {left}"


def explain_open_breaker(ledger: Ledger, site: Site, now: datetime, times: StagingTimes) -> str | None:
    """Return why many failures forbid requests to *site* now; None if they are allowed."""
    recent = [at for at in ledger.site_failures.get(site, ()) if now - at < times.breaker]
    if len(recent) < times.breaker_failures and not _is_large_share(ledger, site, len(recent), now, times):
        return None
    left = format_duration((max(recent) + times.breaker - now).total_seconds())
    return f"requests to {site} failed lately; nothing is asked for there for {left}"


def _is_large_share(ledger: Ledger, site: Site, failures: int, now: datetime, times: StagingTimes) -> bool:
    """Return whether *failures* are many of the requests to *site* in the time of the breaker.

    One or two failures say little: they could be the only requests of this time.
    """
    if failures < _MIN_FAILURES_OF_SHARE:
        return False
    accepted: list[LedgerEntry | EndedEntry] = [*ledger.entries.values(), *ledger.ended]
    count = sum(one.site == site and now - one.asked_at < times.breaker for one in accepted)
    return failures > times.breaker_share * (failures + count)


def _fraction(did: Did, site: Site, attempts: int) -> float:
    digest = hashlib.sha256(f"{did}\n{site}\n{attempts}".encode()).digest()
    return digest[0] / 256
