"""Sites whose catalogue made claims that the audit disproved, as lines for people. Pure."""

from collections.abc import Iterator

from hydrator.domain.model import Site
from hydrator.domain.text import format_count
from hydrator.reconcile.audit.ledger import Audit


def find_distrusted_sites(audit: Audit, threshold: float) -> Iterator[tuple[Site, str]]:
    """Yield each site whose trust is below *threshold*, with a line for people.

    If *threshold* is 1, one false fact about a site is enough to yield the site.
    """
    for site, tally in sorted(audit.tallies.items()):
        if tally.advertised_trust < threshold:
            audited = format_count(tally.true_count + tally.false_count, "audited fact")
            now = format_count(audit.count_false_claims(site), "dataset")
            counts = f"{tally.false_count} of {audited} were false; the daemon now corrects {now}"
            yield site, f"trust {tally.advertised_trust:.2f}: {counts}"
