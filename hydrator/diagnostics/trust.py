"""How far each site can be trusted, in rows for programs and lines for people. Pure."""

from collections.abc import Iterator
from typing import Any

from hydrator.domain.model import Site, unix
from hydrator.domain.text import count
from hydrator.reconcile.audit.ledger import Audit, Tally


def trust_row(audit: Audit, site: Site) -> dict[str, Any]:
    """What the audit says of one site; counts are of the audit's window."""
    tally = audit.tallies.get(site, Tally())
    return {
        "trust": round(tally.shown, 3),
        "audited": tally.true + tally.false,
        "false": tally.false,
        "corrected": audit.false_claims(site),
        "last_audit": unix(tally.last) if tally.last else None,
    }


def distrust(audit: Audit, below: float) -> Iterator[tuple[Site, str]]:
    """The sites that are trusted less than *below* (at 1: less than wholly), each with one line."""
    for site, tally in sorted(audit.tallies.items()):
        if tally.shown < below:
            audited = count(tally.true + tally.false, "audited fact")
            now = count(audit.false_claims(site), "dataset")
            yield site, f"trust {tally.shown:.2f}: {tally.false} of {audited} were false, {now} corrected now"


def trust_cell(row: dict[str, Any]) -> str:
    """Trust as a table shows it."""
    return "not audited" if row["last_audit"] is None else f"{row['trust']:.2f} ({row['audited']} audited)"
