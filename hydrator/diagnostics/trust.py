"""Trust in each site, as rows for programs and lines for people. Pure."""

from collections.abc import Iterator
from typing import Any

from hydrator.domain.model import Site, to_unix
from hydrator.domain.text import format_count
from hydrator.reconcile.audit.ledger import Audit, AuditTally


def trust_row(audit: Audit, site: Site) -> dict[str, Any]:
    """Return the audit's result for one site; counts cover the audit's window."""
    tally = audit.tallies.get(site, AuditTally())
    return {
        "trust": round(tally.advertised_trust, 3),
        "audited": tally.true_count + tally.false_count,
        "false": tally.false_count,
        "corrected": audit.count_false_claims(site),
        "last_audit": to_unix(tally.last_audited_at) if tally.last_audited_at else None,
    }


def find_distrusted_sites(audit: Audit, threshold: float) -> Iterator[tuple[Site, str]]:
    """Yield each site whose trust is below *threshold* (1: any false fact counts), with one line."""
    for site, tally in sorted(audit.tallies.items()):
        if tally.advertised_trust < threshold:
            audited = format_count(tally.true_count + tally.false_count, "audited fact")
            now = format_count(audit.count_false_claims(site), "dataset")
            counts = f"{tally.false_count} of {audited} were false, {now} corrected now"
            yield site, f"trust {tally.advertised_trust:.2f}: {counts}"


def trust_cell(row: dict[str, Any]) -> str:
    """Return the table cell for a site's trust."""
    return "not audited" if row["last_audit"] is None else f"{row['trust']:.2f} ({row['audited']} audited)"
