"""Calls for the load of a pool, in the child process: idle and running jobs of a schedd, in groups."""
# ruff: noqa: ANN401  (the bindings have no types)

import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from adapters.condor.bindings.library import Bindings
from adapters.condor.bindings.values import Ad, is_number

IDLE, HELD = 1, 5  # JobStatus
QUEUED_JOBS = "JobStatus =!= 3 && JobStatus =!= 4"
"""Jobs that are neither removed nor completed."""
NEGOTIATED_JOBS = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12"
"""Jobs that a negotiator places: not scheduler, grid and local universe."""
RUNNING_JOBS = f"(JobStatus =?= 2 || JobStatus =?= 6 || JobStatus =?= 7) && {NEGOTIATED_JOBS}"
"""Jobs that occupy a slot: they run, transfer their output, or are suspended."""
NAMES_WITHOUT_KEY = "DataLocalityKey is undefined && RequiredDatasets isnt undefined"
JOB_ATTRIBUTES = ("DataLocalityKey", "User", "RequestCpus", "DataLocalityExpectedSeconds", "RapthorRun")
GROUP_FIELDS = ("key", "datasets", "user", "cpus", "expected_seconds", "run")
MAX_RUN_LENGTH = 200
"""A longer name of a run does not count."""
RUNNING_ATTRIBUTES = ("JobCurrentStartDate", "RemoteHost", "ServerTime")
"""ServerTime is the time of the schedd's clock, which it adds to each ad of an answer."""
MAX_CLOCK_ERROR = 5
"""A clock that differs by less (s) is right: ServerTime has whole seconds, and clocks are never exact."""
UNPLACED_UNIVERSES = frozenset({7, 9, 12})


class LoadCalls(Bindings):
    """Queries of the jobs that wait for slots or use them."""

    def read_idle_jobs(self, schedd: str) -> list[Ad]:
        """Return the idle jobs of *schedd* in groups; each row has the fields of ``IdleJobs``.

        The queries use GroupBy: see :meth:`ScheddCalls.count_queued_datasets`. The lists of datasets are
        read only for jobs without a key. Omit jobs that name no datasets.
        """
        queue = self.schedd(schedd)
        group_by = self.htcondor.QueryOpt.GroupBy
        attributes = [*JOB_ATTRIBUTES, "JobStatus", "JobUniverse"]
        rows: dict[tuple[Any, ...], int] = {}
        has_unkeyed_jobs = False
        for ad in self._waiting(queue.query("true", attributes, opts=group_by)):
            has_unkeyed_jobs = has_unkeyed_jobs or "DataLocalityKey" not in ad
            self._count(rows, ad, ())
        if has_unkeyed_jobs:
            unkeyed = queue.query("true", [*attributes, "RequiredDatasets"], opts=group_by)
            for ad in self._waiting(unkeyed):
                if "DataLocalityKey" not in ad:
                    self._count(rows, ad, self._names(ad))
        known = ((group, jobs) for group, jobs in rows.items() if group[0] is not None or group[1])
        return _idle_rows(known)

    def read_running_jobs(
        self, schedd: str, site_attributes: Sequence[str], leaving_slots: Iterable[str] = ()
    ) -> list[Ad]:
        """Return the running jobs of *schedd* in groups; each row has the fields of ``RunningJobs``.

        ``site`` is the first of *site_attributes* that the schedd recorded of the job's slot
        (SYSTEM_JOB_MACHINE_ATTRS). Without it, ``slot`` is the name of the slot, for a dynamic slot the name
        of the partitionable one. ``is_leaving`` says that the slot is one of *leaving_slots*.
        ``clock_ahead`` has the seconds by which the schedd's clock, which gives the starts, is ahead of
        this machine's.
        """
        leaving = frozenset(leaving_slots)
        queue = self.schedd(schedd)
        machine_attributes = [f"MachineAttr{name}0" for name in site_attributes]
        attributes = [*JOB_ATTRIBUTES, *RUNNING_ATTRIBUTES, *machine_attributes]
        rows: dict[tuple[Any, ...], list[int]] = {}
        begun_at = time.time()
        ads = queue.query(f"{RUNNING_JOBS} && ({NAMES_WITHOUT_KEY}) =!= true", attributes)
        ended_at = time.time()
        schedd_time = self._value(ads[0], "ServerTime") if ads else None
        clock_ahead = find_clock_error(schedd_time, begun_at, ended_at)
        for ad in ads:
            self._add_start(rows, ad, (), machine_attributes, leaving)
        for ad in queue.query(f"{RUNNING_JOBS} && {NAMES_WITHOUT_KEY}", [*attributes, "RequiredDatasets"]):
            self._add_start(rows, ad, self._names(ad), machine_attributes, leaving)
        return [{**row, "clock_ahead": clock_ahead} for row in _running_rows(rows)]

    def read_cluster_jobs(
        self, schedd: str, cluster: int, site_attributes: Sequence[str], max_jobs: int
    ) -> Ad:
        """Return the jobs of *cluster*, *max_jobs* at most: ``idle`` and ``running`` rows, ``held_count``.

        The rows have the fields of :meth:`read_idle_jobs` and :meth:`read_running_jobs`. ``is_complete``
        says that *max_jobs* left out no job.
        """
        queue = self.schedd(schedd)
        machine_attributes = [f"MachineAttr{name}0" for name in site_attributes]
        attributes = [*JOB_ATTRIBUTES, *RUNNING_ATTRIBUTES, "JobStatus", *machine_attributes]
        jobs = f"ClusterId == {cluster} && {QUEUED_JOBS} && {NEGOTIATED_JOBS}"
        keyed = queue.query(f"{jobs} && ({NAMES_WITHOUT_KEY}) =!= true", attributes, limit=max_jobs)
        named = [*attributes, "RequiredDatasets"]
        unkeyed = queue.query(f"{jobs} && {NAMES_WITHOUT_KEY}", named, limit=max_jobs)
        ads: list[tuple[Any, tuple[str, ...]]] = [(ad, ()) for ad in keyed]
        ads += [(ad, self._names(ad)) for ad in unkeyed]
        idle: dict[tuple[Any, ...], int] = {}
        running: dict[tuple[Any, ...], list[int]] = {}
        held_count = 0
        for ad, datasets in ads[:max_jobs]:
            status = self.scalar(ad, "JobStatus")
            if status == IDLE:
                self._count(idle, ad, datasets)
            elif status == HELD:
                held_count += 1
            else:
                self._add_start(running, ad, datasets, machine_attributes)
        return {
            "idle": _idle_rows(idle.items()),
            "running": _running_rows(running),
            "held_count": held_count,
            "is_complete": len(ads) < max_jobs,
        }

    def _waiting(self, groups: Iterable[Any]) -> Iterable[Any]:
        return (
            ad
            for ad in groups
            if self.scalar(ad, "JobStatus") == IDLE
            and self.scalar(ad, "JobUniverse") not in UNPLACED_UNIVERSES
        )

    def _count(self, rows: dict[tuple[Any, ...], int], ad: Any, datasets: tuple[str, ...]) -> None:
        group = self._group(ad, datasets)
        rows[group] = rows.get(group, 0) + (self.scalar(ad, "JobCount") or 1)

    def _add_start(
        self,
        rows: dict[tuple[Any, ...], list[int]],
        ad: Any,
        datasets: tuple[str, ...],
        machine_attributes: Sequence[str],
        leaving: AbstractSet[str] = frozenset(),
    ) -> None:
        started_at = self._value(ad, "JobCurrentStartDate")
        if not is_number(started_at):
            return
        sites = (self._value(ad, name) for name in machine_attributes)
        site = next((value for value in sites if isinstance(value, str) and value), None)
        slot = _slot_of(self._value(ad, "RemoteHost"))
        place = site, None if site else slot, slot in leaving
        rows.setdefault((*self._group(ad, datasets), *place), []).append(int(started_at))

    def _group(self, ad: Any, datasets: tuple[str, ...]) -> tuple[Any, ...]:
        key, user = self._value(ad, "DataLocalityKey"), self._value(ad, "User")
        cpus, expected = self._value(ad, "RequestCpus"), self._value(ad, "DataLocalityExpectedSeconds")
        run = self._value(ad, "RapthorRun")
        return (
            key if isinstance(key, str) else None,
            datasets,
            user if isinstance(user, str) else "",
            float(cpus) if is_number(cpus) and cpus > 0 else 1.0,
            int(expected) if is_number(expected) and expected > 0 else None,
            run if isinstance(run, str) and 0 < len(run) <= MAX_RUN_LENGTH else None,
        )

    def _names(self, ad: Any) -> tuple[str, ...]:
        """Return the strings of RequiredDatasets; nothing for any other value, which no slot can satisfy."""
        value = self._value(ad, "RequiredDatasets")
        if isinstance(value, list):
            tree = self.classad.ExprTree
            items = [item.eval(ad) if isinstance(item, tree) else item for item in value]
            if all(isinstance(item, str) for item in items):
                return tuple(items)
        return ()

    @staticmethod
    def _value(ad: Any, name: str) -> Any:
        with suppress(Exception):
            return ad.eval(name)
        return None


def _idle_rows(counts: Iterable[tuple[tuple[Any, ...], int]]) -> list[Ad]:
    return [{**dict(zip(GROUP_FIELDS, group, strict=True)), "job_count": jobs} for group, jobs in counts]


def _running_rows(starts_by_group: Mapping[tuple[Any, ...], list[int]]) -> list[Ad]:
    names = (*GROUP_FIELDS, "site", "slot", "is_leaving")
    return [
        {**dict(zip(names, group, strict=True)), "started_at": sorted(starts)}
        for group, starts in starts_by_group.items()
    ]


def find_clock_error(schedd_time: object, begun_at: float, ended_at: float) -> int:
    """Return the seconds by which a schedd's clock is ahead of this machine's; 0 if it is about right.

    Args:
        schedd_time: ServerTime of an ad of the answer; any other value than a number is unknown.
        begun_at, ended_at: the time of this machine before and after the query.
    """
    if not is_number(schedd_time):
        return 0
    error = max(schedd_time - ended_at, 0.0) or min(schedd_time - begun_at, 0.0)
    return round(error) if abs(error) > MAX_CLOCK_ERROR else 0


def _slot_of(remote_host: object) -> str | None:
    """Return the slot in a job's RemoteHost; for ``slot1_3@host`` the partitionable ``slot1@host``."""
    if not isinstance(remote_host, str):
        return None
    slot, at, host = remote_host.partition("@")
    parent, _, number = slot.rpartition("_")
    return f"{parent if parent and number.isdigit() else slot}{at}{host}"
