"""Rows of the audit in the state file. This module is pure: no socket, no clock.

The reader omits a row that it cannot decode: the daemon then audits the facts of this row again.
"""

import json
from collections.abc import Iterable
from datetime import datetime

from hydrator.domain.model import DatasetState, Did, Fact, Site, from_unix
from hydrator.reconcile.audit.ledger import (
    Audit,
    AuditTally,
    Claim,
    Correction,
    CorrectionKey,
    VerificationMethod,
)

AuditRow = tuple[str, str, str]
"""The kind of the row (``tally`` or ``correction``), its key (a site or a claim), and the values as JSON."""


def audit_rows(audit: Audit) -> list[AuditRow]:
    """Return all rows of *audit*; equal audits give equal rows."""
    tallies = [
        (
            "tally",
            str(site),
            json.dumps([_hour_rows(tally), tally.advertised_trust, _unix_or_none(tally.last_audited_at)]),
        )
        for site, tally in sorted(audit.tallies.items())
    ]
    corrections = [
        ("correction", json.dumps([claim.catalogue, claim.did, claim.site, by]), _correction_json(correction))
        for (claim, by), correction in sorted(audit.corrections.items(), key=lambda item: item[0])
    ]
    return [*tallies, *corrections]


def audit_from_rows(rows: Iterable[AuditRow]) -> Audit:
    """Return the audit in *rows*."""
    tallies: dict[Site, AuditTally] = {}
    corrections: dict[CorrectionKey, Correction] = {}
    for kind, key, body in rows:
        try:
            if kind == "tally":
                tallies[Site(key)] = _tally_from_json(body)
            else:
                corrections[_claim_key_from_json(key)] = _correction_from_json(body)
        except (ValueError, TypeError, KeyError, OverflowError, OSError, AttributeError):
            continue
    return Audit(tallies, corrections)


def _hour_rows(tally: AuditTally) -> list[tuple[int, int, int]]:
    return [(hour, true, false) for hour, (true, false) in sorted(tally.counts_by_hour.items())]


def _tally_from_json(body: str) -> AuditTally:
    hours, trust, last_audited_at = json.loads(body)
    counts = {int(hour): (abs(int(true)), abs(int(false))) for hour, true, false in hours}
    return AuditTally(
        counts,
        min(1.0, max(0.0, float(trust))),
        None if last_audited_at is None else from_unix(last_audited_at),
    )


def _correction_json(correction: Correction) -> str:
    fact = correction.actual_fact
    fact_row = [fact.state, fact.as_of.timestamp(), fact.fraction] if fact else None
    times = [
        _unix_or_none(correction.found_at),
        _unix_or_none(correction.first_found_at),
        _unix_or_none(correction.repeated_at),
    ]
    return json.dumps([*times, fact_row])


def _claim_key_from_json(key: str) -> CorrectionKey:
    catalogue, did, site, by = (str(part) for part in json.loads(key))
    return Claim(catalogue, Did(did), Site(site)), VerificationMethod(by)


def _correction_from_json(body: str) -> Correction:
    found_at, first_found_at, repeated_at, fact = json.loads(body)
    actual_fact = Fact(DatasetState(fact[0]), from_unix(fact[1]), fact[2]) if fact else None
    return Correction(
        from_unix(found_at),
        from_unix(first_found_at),
        actual_fact,
        None if repeated_at is None else from_unix(repeated_at),
    )


def _unix_or_none(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
