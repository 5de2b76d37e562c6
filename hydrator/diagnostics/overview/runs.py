"""Progress of a run or a cluster: its jobs that run beside their data, those that wait, and for what. Pure.

``WorkflowRun`` names a run; the key of a set of datasets (``DataLocalityKey``) names the jobs of this set.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.model import DatasetState, Demand, Did, Site, Snapshot
from hydrator.domain.ports import ClusterJobs, PoolLoad, ScheddLoad
from hydrator.domain.text import format_count


@dataclass(frozen=True, slots=True)
class WaitingSet:
    """Idle jobs with the same key; ``missing_dids`` are the datasets that the best site lacks."""

    key: str
    job_count: int
    dids: tuple[Did, ...]
    site: Site | None
    missing_dids: tuple[Did, ...]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The jobs of one run in the queues; ended jobs are not in it.

    ``beside_count`` jobs run at a site that has all their data, ``elsewhere_count`` run at another site.
    Of the other running jobs the site or the data is unknown. ``slot_count`` idle jobs have all their
    data at a site and wait for a slot. The jobs in ``waiting`` wait for data, which is there at ``ready_at``;
    None if that is unknown. The held jobs of a run are not read; those of a cluster are.
    """

    name: str
    as_of: datetime
    running_count: int
    beside_count: int
    elsewhere_count: int
    slot_count: int
    unknown_count: int
    waiting: tuple[WaitingSet, ...] = ()
    ready_at: datetime | None = None
    running_by_site: tuple[tuple[Site, int], ...] = ()
    held_count: int = 0

    @property
    def waiting_count(self) -> int:
        return sum(each.job_count for each in self.waiting)

    @property
    def missing_dids(self) -> tuple[Did, ...]:
        return tuple(sorted({did for each in self.waiting for did in each.missing_dids}))

    @property
    def job_count(self) -> int:
        idle_count = self.slot_count + self.unknown_count + self.waiting_count
        return self.running_count + idle_count + self.held_count

    @property
    def sentence(self) -> str:
        """Return the counts in words, without the time at which the data is there."""
        parts = [f"{self.beside_count} running beside their data"] if self.beside_count else []
        if self.elsewhere_count:
            parts.append(f"{self.elsewhere_count} running elsewhere")
        if other := self.running_count - self.beside_count - self.elsewhere_count:
            parts.append(f"{other} running")
        if self.slot_count:
            parts.append(f"{_verb(self.slot_count)} for a slot beside their data")
        if self.unknown_count:
            parts.append(_verb(self.unknown_count))
        if self.held_count:
            parts.append(f"{self.held_count} held")
        if self.waiting_count:
            datasets = format_count(len(self.missing_dids), "dataset")
            parts.append(f"{_verb(self.waiting_count)} for {datasets}")
        return f"{format_count(self.job_count, 'job')}: {', '.join(parts)}"


def _verb(count: int) -> str:
    return f"{count} waits" if count == 1 else f"{count} wait"


def find_run(name: str, load: PoolLoad, demand: Demand, snapshot: Snapshot) -> RunProgress | None:
    """Return the progress of the jobs of run *name*, or with the key *name*; None if no job is in a queue."""
    all_running = (jobs for schedd in load.answers.values() for jobs in schedd.running)
    running = tuple(each for each in all_running if name in (each.run, each.key))
    idle = tuple(each for each in load.idle if name in (each.run, each.key))
    if not running and not idle:
        return None
    found = ClusterJobs(load.as_of, ScheddLoad(idle, running))
    return measure_progress(name, found, demand, snapshot)


def count_idle_jobs(did: Did, load: PoolLoad, demand: Demand) -> int:
    """Count the idle jobs that need *did*."""
    dids_by_key = _index_sets(demand)
    return sum(jobs.job_count for jobs in load.idle if did in dids_by_key.get(jobs.key, ()))


def measure_progress(name: str, found: ClusterJobs, demand: Demand, snapshot: Snapshot) -> RunProgress:
    """Count the jobs in *found* by where they run and what they wait for; *name* is their title."""
    dids_by_key = _index_sets(demand)
    by_site: dict[Site, int] = {}
    beside = elsewhere = 0
    for group in found.jobs.running:
        count, dids = len(group.started_at), dids_by_key.get(group.key, ())
        if group.site:
            by_site[group.site] = by_site.get(group.site, 0) + count
        if group.site and dids:
            has_all = not _missing(dids, group.site, snapshot)
            beside, elsewhere = beside + count * has_all, elsewhere + count * (not has_all)
    idle: Counter[str] = Counter()
    for jobs in found.jobs.idle:
        idle[jobs.key or ""] += jobs.job_count
    unknown_count = sum(idle.pop(key) for key in [*idle] if key not in dids_by_key)
    sets = [
        WaitingSet(key, count, dids_by_key[key], *_find_best_site(dids_by_key[key], snapshot))
        for key, count in sorted(idle.items())
    ]
    waiting = tuple(each for each in sets if each.missing_dids)
    return RunProgress(
        name,
        found.as_of,
        sum(len(group.started_at) for group in found.jobs.running),
        beside,
        elsewhere,
        sum(each.job_count for each in sets if not each.missing_dids),
        unknown_count,
        waiting,
        _find_ready_time(waiting, snapshot),
        tuple(sorted(by_site.items(), key=lambda each: (-each[1], each[0]))),
        found.held_count,
    )


def _index_sets(demand: Demand) -> dict[str | None, tuple[Did, ...]]:
    """Return the datasets of *demand* by the key of their jobs."""
    return {entry.key: entry.dids for entry in demand.entries if entry.key is not None}


def _missing(dids: Sequence[Did], site: Site, snapshot: Snapshot) -> tuple[Did, ...]:
    facts = snapshot.sites[site].facts if site in snapshot.sites else {}
    return tuple(did for did in dids if did not in facts or facts[did].state is not DatasetState.AVAILABLE)


def _find_best_site(dids: Sequence[Did], snapshot: Snapshot) -> tuple[Site | None, tuple[Did, ...]]:
    """Return the site that lacks the fewest of *dids*, and these datasets."""
    lacking = {site: _missing(dids, site, snapshot) for site in sorted(snapshot.sites)}
    best = min(lacking, key=lambda site: len(lacking[site]), default=None)
    return best, tuple(dids) if best is None else lacking[best]


def _find_ready_time(waiting: Sequence[WaitingSet], snapshot: Snapshot) -> datetime | None:
    """Return when the last of the missing datasets is expected; None if one of these times is unknown."""
    times = []
    for did in (did for each in waiting for did in each.missing_dids):
        facts = [each.facts[did] for each in snapshot.sites.values() if did in each.facts]
        known = [fact.provenance.ready_at for fact in facts if fact.provenance.ready_at]
        if not known:
            return None
        times.append(min(known))
    return max(times, default=None)
