"""Calls for the load of a pool, in the child process: idle and running jobs of a schedd, in groups."""
# ruff: noqa: ANN401  (the bindings have no types)

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from adapters.condor.bindings.library import Bindings
from adapters.condor.bindings.values import Ad, is_number

IDLE = 1  # JobStatus
NEGOTIATED_JOBS = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12"
"""Jobs that a negotiator places: not scheduler, grid and local universe."""
RUNNING_JOBS = f"(JobStatus =?= 2 || JobStatus =?= 6 || JobStatus =?= 7) && {NEGOTIATED_JOBS}"
"""Jobs that occupy a slot: they run, transfer their output, or are suspended."""
NAMES_WITHOUT_KEY = "DataLocalityKey is undefined && RequiredDatasets isnt undefined"
JOB_ATTRIBUTES = ("DataLocalityKey", "User", "RequestCpus", "DataLocalityExpectedSeconds", "RapthorRun")
GROUP_FIELDS = ("key", "datasets", "user", "cpus", "expected_seconds", "run")
MAX_RUN_LENGTH = 200
"""A longer name of a run does not count."""
RUNNING_ATTRIBUTES = ("JobCurrentStartDate", "RemoteHost")
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
        return [{**dict(zip(GROUP_FIELDS, group, strict=True)), "job_count": jobs} for group, jobs in known]

    def read_running_jobs(self, schedd: str, site_attributes: Sequence[str]) -> list[Ad]:
        """Return the running jobs of *schedd* in groups; each row has the fields of ``RunningJobs``.

        ``site`` is the first of *site_attributes* that the schedd recorded of the job's slot
        (SYSTEM_JOB_MACHINE_ATTRS). Without it, ``slot`` is the name of the slot, for a dynamic slot the name
        of the partitionable one.
        """
        queue = self.schedd(schedd)
        machine_attributes = [f"MachineAttr{name}0" for name in site_attributes]
        attributes = [*JOB_ATTRIBUTES, *RUNNING_ATTRIBUTES, *machine_attributes]
        rows: dict[tuple[Any, ...], list[int]] = {}
        for ad in queue.query(f"{RUNNING_JOBS} && ({NAMES_WITHOUT_KEY}) =!= true", attributes):
            self._add_start(rows, ad, (), machine_attributes)
        for ad in queue.query(f"{RUNNING_JOBS} && {NAMES_WITHOUT_KEY}", [*attributes, "RequiredDatasets"]):
            self._add_start(rows, ad, self._names(ad), machine_attributes)
        names = (*GROUP_FIELDS, "site", "slot")
        return [
            {**dict(zip(names, group, strict=True)), "started_at": sorted(starts)}
            for group, starts in rows.items()
        ]

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
    ) -> None:
        started_at = self._value(ad, "JobCurrentStartDate")
        if not is_number(started_at):
            return
        sites = (self._value(ad, name) for name in machine_attributes)
        site = next((value for value in sites if isinstance(value, str) and value), None)
        slot = None if site else _slot_of(self._value(ad, "RemoteHost"))
        rows.setdefault((*self._group(ad, datasets), site, slot), []).append(int(started_at))

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


def _slot_of(remote_host: object) -> str | None:
    """Return the slot in a job's RemoteHost; for ``slot1_3@host`` the partitionable ``slot1@host``."""
    if not isinstance(remote_host, str):
        return None
    slot, at, host = remote_host.partition("@")
    parent, _, number = slot.rpartition("_")
    return f"{parent if parent and number.isdigit() else slot}{at}{host}"
