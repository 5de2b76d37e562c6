"""Time until the audit finds a site where 1 % of the "complete" datasets are not complete: a simulation.

The real queue and the real audit, with seconds as an argument; no clock, no server.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hydrator.domain.model import DatasetState, Did, Fact, Site
from hydrator.reconcile.audit.ledger import (
    AUDIT_WINDOW,
    Audit,
    AuditQuery,
    Claim,
    Verdict,
    VerificationMethod,
    expire_and_confirm,
    record_verdicts,
)
from hydrator.reconcile.audit.priority_queue import AuditQueue
from hydrator.reconcile.snapshot.update import CatalogueMemory, DatasetRecord

from .material import NOW
from .record import Figure, Result

GOAL_SECONDS = 15 * 60
POLL_SECONDS = 30
FAULTY = Site("S00")
CATALOGUE = "catalogue"
BOUND = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class Case:
    """A number of sites and datasets, and of copies of each dataset; the first site is the faulty one.

    ``jobs_per_hour`` start at the faulty site, each on one of its datasets, and report missing data.
    """

    sites: int
    per_site: int
    copies: int = 1
    jobs_per_hour: int = 0
    calls_per_second: int = 1
    share: float = 0.01


class _Says(dict[Did, DatasetRecord]):
    """The catalogue's claims at the current poll: everything is complete everywhere."""

    def __init__(self, held: Mapping[AuditQuery, frozenset[Site]]) -> None:
        super().__init__()
        self.held = held
        self.at = NOW

    def get(self, did: Did, _default: object = None) -> DatasetRecord:
        fact = Fact(DatasetState.AVAILABLE, self.at)
        return DatasetRecord(self.at, dict.fromkeys(self.held[AuditQuery(CATALOGUE, did)], fact))


def claims_of(case: Case) -> dict[AuditQuery, frozenset[Site]]:
    """Return every dataset with its sites; each site has ``per_site`` of them."""
    names = [Site(f"S{n:02}") for n in range(case.sites)]
    count = case.sites * case.per_site // case.copies
    return {
        AuditQuery(CATALOGUE, Did(f"sim:D{n:06}")): frozenset(
            names[(n + 7 * copy) % case.sites] for copy in range(case.copies)
        )
        for n in range(count)
    }


def seconds_until_found(case: Case, seed: int, most: int = 4 * 3600) -> int:
    """Return the seconds until the faulty site's ad first shows less than full trust; at most *most*."""
    chance = random.Random(seed)
    held = claims_of(case)
    at_site = [question for question, sites in held.items() if FAULTY in sites]
    false = set(chance.sample(at_site, max(1, round(case.share * len(at_site)))))
    rota: AuditQueue[AuditQuery] = AuditQueue(seed)
    rota.update(held)
    audit, says, found = Audit(), _Says(held), list[Verdict]()
    for second in range(1, most + 1):
        now = NOW + timedelta(seconds=second)
        if case.jobs_per_hour and chance.random() < case.jobs_per_hour / 3600:
            chosen = chance.choice(at_site)
            if chosen in false:
                rota.prioritize(chosen)
        for _ in range(case.calls_per_second):
            found += _audit_next(rota, held, false, now)
        if second % POLL_SECONDS == 0:
            says.at = now + timedelta(microseconds=1)
            audit, _ = expire_and_confirm(
                record_verdicts(audit, found),
                {CATALOGUE: CatalogueMemory(records=says)},
                now=says.at,
                **_TERMS,
            )
            found = []
            if audit.trust.get(FAULTY, 1.0) < 1.0:
                return second
    return most


_TERMS = {"window": AUDIT_WINDOW, "max_age": BOUND}


def _audit_next(
    rota: AuditQueue[AuditQuery],
    held: Mapping[AuditQuery, frozenset[Site]],
    false: set[AuditQuery],
    now: datetime,
) -> list[Verdict]:
    turn = rota.take_next()
    assert turn is not None
    return [
        Verdict(
            Claim(turn.item.catalogue, turn.item.did, site),
            VerificationMethod.FILES,
            now,
            is_true=not (site == FAULTY and turn.item in false),
            is_recheck=turn.is_recheck,
        )
        for site in held[turn.item]
    ]


def percentile(values: list[int], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def run(*, quick: bool) -> Result:
    """Measure p50 and p95 of the seconds until detection, by number of sites and of datasets."""
    cases = [Case(sites, 500) for sites in ((1, 5) if quick else (1, 2, 3, 5, 10, 20))]
    if not quick:
        cases += [Case(1, 2000), Case(1, 10_000), Case(5, 2000)]
        cases += [Case(10, 500, copies=2), Case(20, 500, copies=2)]
        cases += [Case(sites, 500, jobs_per_hour=600) for sites in (5, 10, 20)]
        cases += [Case(sites, 500, calls_per_second=calls) for sites, calls in ((5, 2), (10, 4), (20, 7))]
    seeds = 10 if quick else 100
    figures, raw = [], {}
    for case in cases:
        taken = [seconds_until_found(case, seed) for seed in range(seeds)]
        within = sum(seconds <= GOAL_SECONDS for seconds in taken) / seeds
        name = _name(case)
        note = f"{within:.0%} of {seeds} within 15 min"
        figures.append(Figure(f"{name}, p50", percentile(taken, 0.5), "s"))
        figures.append(Figure(f"{name}, p95", percentile(taken, 0.95), "s", GOAL_SECONDS, note))
        raw[name] = taken
    return Result("trust", tuple(figures), __doc__ + _HOW, raw)


def _name(case: Case) -> str:
    words = [f"{case.sites} site{'s' if case.sites > 1 else ''}", f"{case.per_site:,} datasets each"]
    if case.copies > 1:
        words.append(f"{case.copies} copies of each")
    if case.jobs_per_hour:
        words.append(f"{case.jobs_per_hour} jobs/h report misses")
    if case.calls_per_second > 1:
        words.append(f"{case.calls_per_second} calls/s")
    return ", ".join(words)


_HOW = """
Of several sites one claims 1 % more than it has, chosen again by each seed. One dataset is verified a second
(or as many as the figure says), at all its sites at once, and a poll every 30 s uses the results.
The time is simulated: seconds are counted, not waited, and every call answers at once. The time ends
when the site's ad shows less than full trust. Sites share the calls equally whatever their size, so the
figures depend on the number of sites, hardly on that of datasets: of n sites each gets 900/n calls in 15
minutes, and the chance to find the faulty one is 1-0.99^(900/n). That is 95 % at three sites.
"""
