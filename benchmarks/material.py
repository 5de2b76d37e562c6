"""Inputs of the sizes in the goals: catalogues, demand and the resulting ads."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Origin,
    QueuedJobs,
    Replica,
    ScheddDemand,
    Seen,
    Site,
    Survey,
    to_unix,
)
from hydrator.domain.ports import IdleJobs, Resources, RunningJobs, ScheddLoad, ScheddQueue, SlotGroup
from hydrator.reconcile.evaluate import Evaluation, evaluate
from hydrator.reconcile.state import ReconcileState

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SITES = tuple(Site(f"SITE{number:02}") for number in range(20))


def dids(count: int) -> list[Did]:
    """Return names like those of LOFAR runs: 240 sub-bands each."""
    return [Did(f"lofar:L{600000 + n // 240}_SB{n % 240:03}_uv.MS") for n in range(count)]


def short_dids(count: int) -> list[Did]:
    """Return names so short that 2,000 of them fit into one line of an ad."""
    return [Did(f"lofar:d{n:05}") for n in range(count)]


def survey(readings: Iterable[tuple[Did, Sequence[Replica]]], at: datetime = NOW) -> Survey:
    """Return the answer of a catalogue with only these, for all sites."""
    readings_by_did = {did: Seen(at, tuple(replicas), bytes_total=10**10) for did, replicas in readings}
    return Survey("catalogue", at, frozenset(SITES), readings_by_did)


def wants(dids: Iterable[Did]) -> Demand:
    """Return a demand of one job for each dataset."""
    return Demand(tuple(DemandEntry((did,), 1, Origin.JOB, NOW, set_key([did])) for did in sorted(dids)))


def busy_site_ads(count: int, at: datetime = NOW) -> Evaluation:
    """Evaluate ads of 20 sites with the same *count* demanded datasets; every fifth is staging, 40 % here."""
    names = dids(count)

    def replica(place: int, did: Did, site: Site) -> Replica:
        if place % 5 == 0:
            return Replica(did, site, DatasetState.STAGING, 0.4)
        return Replica(did, site, DatasetState.AVAILABLE, 1.0)

    readings = ((did, [replica(place, did, site) for site in SITES]) for place, did in enumerate(names))
    answers = {"catalogue": survey(readings, at)}
    return evaluate(
        ReconcileState(), answers, wants(names), published_generations={}, settings=Settings(), now=at
    )


SLOTS = tuple(SlotGroup(site, Resources(8.0), Resources(free), 25) for site in SITES for free in (0.0, 2.0))
"""50 slots of 8 cores at each site; half of them have two free cores."""


class MadePool:
    """The queue of a schedd: each of *names* has some idle jobs, and a running job that ends after 50 polls.

    The next running job is then at another site.
    """

    def __init__(self, names: Iterable[Did], poll: timedelta) -> None:
        self._sets = [((did,), set_key([did])) for did in names]
        self._poll = poll
        self.turn = 0

    def read_queue(self, now: datetime) -> ScheddQueue:
        """Return the queue at the poll number ``turn``."""
        queued, idle, running = [], [], []
        for place, (dids, key) in enumerate(self._sets):
            count = 1 + (place + self.turn) % 7
            queued.append(QueuedJobs(dids, count, key))
            idle.append(IdleJobs(count, key, lane=place % 5))
            lap, polls = divmod(place + self.turn, 50)
            started_at = (to_unix(now - polls * self._poll),)
            running.append(RunningJobs(started_at, SITES[lap % len(SITES)], key, None, "read 60 s from CAM"))
        return ScheddQueue(ScheddDemand(now, tuple(queued)), ScheddLoad(tuple(idle), tuple(running)))
