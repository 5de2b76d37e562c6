"""What the audit knows, as rows that can be stored. Pure.

A row that cannot be read is left out: what is lost of an audit is audited again.
"""

import json
from collections.abc import Iterable
from datetime import datetime

from hydrator.domain.model import DatasetState, Did, Fact, Site, from_unix
from hydrator.reconcile.audit.ledger import Audit, By, Claim, Corrected, Correction, Tally

AuditRow = tuple[str, str, str]
"""``tally`` or ``correction``, of what, and the rest as JSON."""


def audit_rows(audit: Audit) -> list[AuditRow]:
    """All rows of *audit*, the same for the same audit."""
    tallies = [
        ("tally", str(site), json.dumps([_hours(tally), tally.shown, _time(tally.last)]))
        for site, tally in sorted(audit.tallies.items())
    ]
    corrections = [
        ("correction", json.dumps([claim.catalogue, claim.did, claim.site, by]), _correction(correction))
        for (claim, by), correction in sorted(audit.corrections.items(), key=lambda item: item[0])
    ]
    return [*tallies, *corrections]


def audit_from(rows: Iterable[AuditRow]) -> Audit:
    """The audit that *rows* tell."""
    tallies: dict[Site, Tally] = {}
    corrections: dict[Corrected, Correction] = {}
    for kind, key, body in rows:
        try:
            if kind == "tally":
                tallies[Site(key)] = _tally_from(body)
            else:
                corrections[_key_from(key)] = _correction_from(body)
        except (ValueError, TypeError, KeyError, OverflowError, OSError, AttributeError):
            continue
    return Audit(tallies, corrections)


def _hours(tally: Tally) -> list[tuple[int, int, int]]:
    return [(hour, true, false) for hour, (true, false) in sorted(tally.hours.items())]


def _tally_from(body: str) -> Tally:
    hours, shown, last = json.loads(body)
    counts = {int(hour): (abs(int(true)), abs(int(false))) for hour, true, false in hours}
    return Tally(counts, min(1.0, max(0.0, float(shown))), None if last is None else from_unix(last))


def _correction(correction: Correction) -> str:
    found = correction.found
    fact = [found.state, found.as_of.timestamp(), found.fraction] if found else None
    times = [_time(correction.at), _time(correction.since), _time(correction.repeated)]
    return json.dumps([*times, fact])


def _key_from(key: str) -> Corrected:
    catalogue, did, site, by = (str(part) for part in json.loads(key))
    return Claim(catalogue, Did(did), Site(site)), By(by)


def _correction_from(body: str) -> Correction:
    at, since, repeated, fact = json.loads(body)
    found = Fact(DatasetState(fact[0]), from_unix(fact[1]), fact[2]) if fact else None
    return Correction(
        from_unix(at), from_unix(since), found, None if repeated is None else from_unix(repeated)
    )


def _time(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
