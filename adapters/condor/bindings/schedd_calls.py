"""Calls to schedds, in the child process: queries of queues and histories, and edits of queued jobs.

:class:`LoadCalls` reads a queue: by one query its jobs in groups, by another those that run or have reports.
:class:`TransferCalls` reads finished transfers.

The data clause of a job's Requirements refers to the job's attribute ``DataLocalityHere``. So the sites that
match the rest of a job are those with a slot that matches the job if this attribute is true.

Observed on HTCondor 23.9.6 and 25.14.1: the schedd's epoch history has one ``INPUT`` record for each run of a
job whose input a transfer plugin fetched, written when the transfer ends, and one ``EPOCH`` record at the end
of the run. The ``INPUT`` record of 25.14 has ``User``, ``Owner`` and ``RemoteHost``; that of 23.9 has none of
them. The attributes in ``TRANSFER_JOB_ATTRS`` of the schedd's configuration are in it on both releases; on
23.9 they replace ``ClusterId`` and ``ProcId``, unless the operator extends the default.
HTCondor 23.9 writes no epoch history unless ``JOB_EPOCH_HISTORY`` is set.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from hydrator.domain.ads import contract, dataset_sets

from .library import (
    MAX_MISS_CHARS,
    MAX_MISSES_OF_JOB,
    RESOURCES,
    Ad,
    Bindings,
    CallError,
    expression_text,
    is_number,
    job_order,
    read_plain,
    read_strings,
    read_text,
)

IDLE, REMOVED, COMPLETED, HELD = 1, 3, 4, 5  # JobStatus
RUNNING = frozenset({2, 6, 7})
"""JobStatus of jobs that occupy a slot: they run, transfer their output, or are suspended."""
QUEUED_JOBS = "JobStatus =!= 3 && JobStatus =!= 4"
"""Jobs that are neither removed nor completed."""
UNPLACED_UNIVERSES = frozenset({7, 9, 12})
"""Universes of jobs that no negotiator places: scheduler, grid and local."""
NEGOTIATED_JOBS = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12"
MISSES_ATTRIBUTE = "ChirpDataLocalityMisses"
READS_ATTRIBUTE = "ChirpDataLocalityReads"
FACTORIES = (
    f"ProcId is undefined && JobMaterializeDigestFile isnt undefined && {QUEUED_JOBS}"
    " && (TotalSubmitProcs > JobMaterializeNextProcId) =!= false"
    f' && unparse({contract.REQUIRED_DATASETS}) != ""'
)
"""Late-materialization factories of jobs with datasets, some of which are not jobs yet."""
SINGLE_JOBS = (
    f"ProcId isnt undefined && (((JobStatus == 2 || JobStatus == 6 || JobStatus == 7) && {NEGOTIATED_JOBS})"
    f' || unparse({MISSES_ATTRIBUTE}) != "" || unparse({READS_ATTRIBUTE}) != "") || {FACTORIES}'
)
"""Jobs that run or have reports, and factories.

A user wrote what stands in ``unparse``. A schedd before 25.13.2 that evaluates ``+X = false ? {} : X`` hangs.
"""
REQUESTS = tuple(f"Request{name}" for name in RESOURCES)
IDLE_ATTRIBUTES = (contract.KEY, contract.WORKFLOW_RUN, contract.LANE, contract.MODE, *REQUESTS)
GROUP_ATTRIBUTES = (
    *(contract.REQUIRED_DATASETS, *IDLE_ATTRIBUTES),
    *("User", "AutoClusterId", "JobStatus", "JobUniverse"),
)
MAX_REPORTS_OF_USER = 200
"""Jobs with reports of one user in one answer."""
MAX_REPORTS = 5000
MAX_READS_OF_JOB = 10
MAX_READ_CHARS = 300
MAX_OFFER_LENGTH = 100
MAX_RUN_LENGTH = 200
"""A longer name of a run does not count."""
RUNNING_ATTRIBUTES = (
    *(contract.KEY, "User", contract.WORKFLOW_RUN, contract.START_RECORD),
    *("JobCurrentStartDate", "RemoteHost", "ServerTime"),
)
"""ServerTime is the time of the schedd's clock, which it adds to each ad of an answer."""
SINGLE_ATTRIBUTES = (
    *(*RUNNING_ATTRIBUTES, "ProcId", "JobStatus", "JobUniverse"),
    *("GlobalJobId", MISSES_ATTRIBUTE, READS_ATTRIBUTE),
)
MAX_CLOCK_ERROR = 5
"""A clock that differs by less (s) is right: ServerTime has whole seconds, and clocks are never exact."""
_Queued = tuple[tuple[str, ...], str | None, bool]


class LoadCalls(Bindings):
    """Queries of the jobs in a queue."""

    def read_queue(self, schedd: str, site_attributes: Sequence[str]) -> Ad:
        """Return the queue of *schedd*, by one query of groups and one of the jobs that run or have reports.

        GroupBy returns one ad, with a JobCount, for each combination of the projected attributes. So no
        attribute with a time of each job may be among them. The constraint of a query with GroupBy can use
        only these attributes.

        Returns:
            ``queued``: datasets, number of jobs, DataLocalityKey (None if it is not a string), and whether it
            is that of their cluster, of all jobs but the removed and completed ones. ``idle``: rows with the
            fields of ``IdleJobs``, without jobs that have no key. ``needs``: alike idle or held jobs with
            datasets and a key: the index ``queued`` of their datasets, ``user``, ``job_count``, ``example``
            (the id of the oldest) and ``is_held``.
            ``running``: rows with the fields of ``RunningJobs`` and ``user``. ``site`` is the first of
            *site_attributes* that the schedd recorded of the job's slot (SYSTEM_JOB_MACHINE_ATTRS). Without
            it, ``slot`` is the name of the slot, for a dynamic slot the name of the partitionable one.
            ``reports``: see :class:`hydrator.domain.ports.ScheddQueue`. ``clock_ahead``: the seconds by which
            the schedd's clock, which gives the starts, is ahead of this machine's.
        """
        queue, options = self.schedd(schedd), self.htcondor.QueryOpt
        groups = queue.query("true", list(GROUP_ATTRIBUTES), opts=options.GroupBy)
        machine_attributes = _machine_attributes(site_attributes)
        begun_at = time.time()
        names = [*SINGLE_ATTRIBUTES, *machine_attributes]
        ads = queue.query(SINGLE_JOBS, names, opts=options.IncludeClusterAd)
        clock_ahead = find_clock_error(
            read_plain(ads[0], "ServerTime") if ads else None, begun_at, time.time()
        )
        jobs = [ad for ad in ads if "ProcId" in ad]
        running: dict[tuple[Any, ...], list[int]] = {}
        for ad in jobs:
            if self.scalar(ad, "JobStatus") in RUNNING and self._is_placed(ad):
                self._add_start(running, ad, machine_attributes)
        factories = self._find_factories(queue, groups, [ad for ad in ads if "ProcId" not in ad])
        return {
            **self._count_groups(schedd, groups, factories),
            "running": _running_rows(running),
            "reports": self._select_reports(jobs),
            "clock_ahead": clock_ahead,
        }

    def _find_factories(self, queue: Any, groups: Iterable[Any], factories: Sequence[Any]) -> list[_Queued]:
        """Return the datasets and key of *factories*, which lack the datasets.

        The items of a factory that are not jobs yet have only its cluster ad, with the datasets of the first
        item. It counts as one job, even if many items are not jobs yet. A factory has the datasets of a job
        with its key, if the key is of this list; if there is none, one more query has its own.
        """
        keys = {read_key(ad) for ad in factories}
        ads = {
            key: ad
            for ad in groups
            if (key := read_key(ad)) and key in keys and dataset_sets.fits(key, self._names(ad))
        }
        found = [ads.get(read_key(ad) or "") for ad in factories]
        if None in found:
            attributes = [contract.REQUIRED_DATASETS, contract.KEY]
            found = queue.query(FACTORIES, attributes, opts=self.htcondor.QueryOpt.IncludeClusterAd)
        return [(self._read_required_datasets(ad), read_key(ad), False) for ad in found]

    def _count_groups(self, schedd: str, groups: Iterable[Any], factories: Iterable[_Queued]) -> Ad:
        queued: Counter[_Queued] = Counter(factories)
        idle: dict[tuple[Any, ...], int] = {}
        needs: dict[tuple[Any, ...], Ad] = {}
        for ad in groups:
            status, key, count = self.scalar(ad, "JobStatus"), read_key(ad), self.scalar(ad, "JobCount") or 1
            if status in {REMOVED, COMPLETED}:
                continue
            datasets: _Queued = (), key, False
            if contract.REQUIRED_DATASETS in ad:
                is_of_cluster = dataset_sets.is_of_cluster(key, schedd, self._first_id(ad))
                datasets = self._read_required_datasets(ad), key, is_of_cluster
                queued[datasets] += count
            if key is None or status not in {IDLE, HELD} or not self._is_placed(ad):
                continue
            if status == IDLE:
                self._count(idle, ad)
            if self._names(ad):
                user, is_held = read_text(ad, "User") or "", status == HELD
                row = {"queued": datasets, "user": user, "job_count": 0, "example": "", "is_held": is_held}
                row = needs.setdefault((key, user, read_plain(ad, "AutoClusterId"), status), row)
                row["job_count"] += count
                ids = filter(None, (row["example"], self._first_id(ad)))
                row["example"] = min(ids, key=job_order, default="")
        places = {group: place for place, group in enumerate(queued)}
        return {
            "queued": [(names, count, *key) for (names, *key), count in queued.items()],
            "idle": _idle_rows(idle.items()),
            "needs": [{**row, "queued": places[row["queued"]]} for row in needs.values()],
        }

    def read_cluster_jobs(
        self, schedd: str, cluster: int, site_attributes: Sequence[str], max_jobs: int
    ) -> Ad:
        """Return the jobs of *cluster*, *max_jobs* at most: ``idle`` and ``running`` rows, ``held_count``.

        The rows are as those of :meth:`read_queue`. ``is_complete`` says that *max_jobs* left out no job.
        """
        queue = self.schedd(schedd)
        machine_attributes = _machine_attributes(site_attributes)
        attributes = [*IDLE_ATTRIBUTES, *RUNNING_ATTRIBUTES, "JobStatus", *machine_attributes]
        jobs = f"ClusterId == {cluster} && {QUEUED_JOBS} && {NEGOTIATED_JOBS}"
        ads = queue.query(jobs, attributes, limit=max_jobs + 1)
        idle: dict[tuple[Any, ...], int] = {}
        running: dict[tuple[Any, ...], list[int]] = {}
        held_count = 0
        for ad in ads[:max_jobs]:
            status = self.scalar(ad, "JobStatus")
            if status == IDLE:
                self._count(idle, ad)
            elif status == HELD:
                held_count += 1
            else:
                self._add_start(running, ad, machine_attributes)
        return {
            "idle": _idle_rows(idle.items()),
            "running": _running_rows(running),
            "held_count": held_count,
            "is_complete": len(ads) <= max_jobs,
        }

    def _is_placed(self, ad: Any) -> bool:
        return self.scalar(ad, "JobUniverse") not in UNPLACED_UNIVERSES

    def _first_id(self, ad: Any) -> str:
        """Return the id of the first job of a group, whose JobIds are as ``1.0 ... 3.1``."""
        found = re.match(r"\d+\.\d+", str(self.scalar(ad, "JobIds")))
        return found[0] if found else ""

    def _count(self, rows: dict[tuple[Any, ...], int], ad: Any) -> None:
        group = (read_key(ad), _run_of(ad), *self._needs(ad))
        rows[group] = rows.get(group, 0) + (self.scalar(ad, "JobCount") or 1)

    def _add_start(
        self,
        rows: dict[tuple[Any, ...], list[int]],
        ad: Any,
        machine_attributes: Sequence[str],
    ) -> None:
        started_at = read_plain(ad, "JobCurrentStartDate")
        if not is_number(started_at):
            return
        site = _recorded_site(ad, machine_attributes)
        slot = _slot_of(read_plain(ad, "RemoteHost"))
        offer = read_text(ad, contract.START_RECORD, MAX_OFFER_LENGTH)
        user = read_text(ad, "User") or ""
        group = read_key(ad), user, _run_of(ad), offer, site, None if site else slot
        rows.setdefault(group, []).append(int(started_at))

    def _needs(self, ad: Any) -> tuple[Any, ...]:
        """Return lane, mode and request of an idle job; a request that is not a number is 0."""
        lane = read_plain(ad, contract.LANE)
        requests = (read_plain(ad, name) for name in REQUESTS)
        return (
            int(lane) if is_number(lane) and lane > 0 else 0,
            read_plain(ad, contract.MODE) == "auto",
            tuple(float(value) if is_number(value) and value > 0 else 0.0 for value in requests),
        )

    def _select_reports(self, jobs: Iterable[Any]) -> list[Ad]:
        """Return the reports of *jobs*, with as many of each user as MAX_REPORTS_OF_USER.

        Those of the jobs that started last come first: jobs that run for long keep their reports.
        """
        counts: Counter[str] = Counter()
        rows: list[Ad] = []
        starts = [(read_plain(ad, "JobCurrentStartDate"), ad) for ad in jobs]
        for _, ad in sorted(starts, key=lambda pair: -pair[0] if is_number(pair[0]) else 0):
            if MISSES_ATTRIBUTE in ad or READS_ATTRIBUTE in ad:
                counts[user := read_text(ad, "User") or ""] += 1
                if counts[user] <= MAX_REPORTS_OF_USER and len(rows) < MAX_REPORTS:
                    rows.append(self._report_row(ad))
        return rows

    def _report_row(self, ad: Any) -> Ad:
        """Return the reports of a job, which its owner may have written, within limits."""
        misses = read_strings(ad, MISSES_ATTRIBUTE)[:MAX_MISSES_OF_JOB]
        reads = read_strings(ad, READS_ATTRIBUTE)[:MAX_READS_OF_JOB]
        return {
            "GlobalJobId": self.scalar(ad, "GlobalJobId"),
            "User": read_text(ad, "User") or "",
            "misses": [text[:MAX_MISS_CHARS] for text in misses],
            "reads": [text[:MAX_READ_CHARS] for text in reads],
        }

    def _names(self, ad: Any) -> tuple[str, ...]:
        """Return the strings of RequiredDatasets; nothing for any other value, which no slot can satisfy."""
        value = read_plain(ad, contract.REQUIRED_DATASETS)
        return tuple(value) if isinstance(value, list) else ()

    def _read_required_datasets(self, ad: Any) -> tuple[str, ...]:
        """Return the strings of RequiredDatasets; for any other value, one text that is not a valid DID.

        The literal ``undefined``, which a default for all jobs of a schedd may be, is as no list.
        """
        if names := self._names(ad):
            return names
        text = expression_text(ad, "RequiredDatasets")
        return () if text.lower() == "undefined" else (f"RequiredDatasets = {text}",)


def _run_of(ad: Any) -> str | None:
    return read_text(ad, contract.WORKFLOW_RUN, MAX_RUN_LENGTH) or None


def read_key(ad: Any) -> str | None:
    """Return the value of DataLocalityKey; None if it is not a literal string."""
    key = read_plain(ad, contract.KEY)
    return key[:MAX_KEY_CHARS] if isinstance(key, str) else None


def read_start(ad: Any, schedd: str) -> Ad:
    """Return ``start``, ``asked``, ``key`` and ``is_of_cluster`` of a job at *schedd*: see
    :meth:`adapters.condor.bindings.client.CondorClient.outcomes`.
    """
    key = read_key(ad)
    return {
        "start": read_plain(ad, contract.START_RECORD),
        "asked": read_plain(ad, contract.START),
        "key": key,
        "is_of_cluster": dataset_sets.is_of_cluster(key, schedd, str(read_plain(ad, "ClusterId"))),
    }


def _machine_attributes(site_attributes: Sequence[str]) -> list[str]:
    """Return the job attributes in which a schedd records *site_attributes* of the job's slot."""
    return [f"MachineAttr{name}0" for name in site_attributes]


def _recorded_site(ad: Any, machine_attributes: Iterable[str]) -> str | None:
    return contract.first_site(read_text(ad, name) for name in machine_attributes)


def _idle_rows(counts: Iterable[tuple[tuple[Any, ...], int]]) -> list[Ad]:
    names = ("key", "run", "lane", "is_auto", "request")
    return [{**dict(zip(names, group, strict=True)), "job_count": jobs} for group, jobs in counts]


def _running_rows(starts_by_group: Mapping[tuple[Any, ...], list[int]]) -> list[Ad]:
    names = ("key", "user", "run", "offer", "site", "slot")
    return [
        {**dict(zip(names, group, strict=True)), "started_at": sorted(starts)}
        for group, starts in starts_by_group.items()
    ]


def find_clock_error(schedd_time: object, begun_at: float, ended_at: float) -> int:
    """Return the seconds by which a schedd's clock is ahead of this machine's; 0 if it is about right.

    They are whole tens, so that the starts of jobs stay the same from one query to the next.

    Args:
        schedd_time: ServerTime of an ad of the answer; any other value than a number is unknown.
        begun_at, ended_at: the time of this machine before and after the query.
    """
    if not is_number(schedd_time):
        return 0
    error = max(schedd_time - ended_at, 0.0) or min(schedd_time - begun_at, 0.0)
    return int(round(error, -1)) if abs(error) > MAX_CLOCK_ERROR else 0


def _slot_of(remote_host: object) -> str | None:
    """Return the slot in a job's RemoteHost; for ``slot1_3@host`` the partitionable ``slot1@host``."""
    if not isinstance(remote_host, str):
        return None
    slot, at, host = remote_host.partition("@")
    parent, _, number = slot.rpartition("_")
    return f"{parent if parent and number.isdigit() else slot}{at}{host}"


EDITS_AT_ONCE = 1000
MAX_COMPLETED_IN_QUEUE_SECONDS = 11 * 86_400
"""Seconds that a completed job may stay in the queue before it is history: 10 days, if it was spooled."""
MAX_KEY_CHARS = 1 + dataset_sets.MAX_KEY_CHARS
"""Characters of a DataLocalityKey that are read: a longer one stays too long."""
START_ATTRIBUTES = ("ClusterId", contract.KEY, contract.START, contract.START_RECORD)
OUTCOME_ATTRIBUTES = (
    *("GlobalJobId", "JobStatus", "QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus"),
)


_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_BARE_NUMBER = re.compile(r"(?:^|\|\||&&)[\s(!-]*(\d[\w.+]*)[\s)]*(?:\|\||&&|$)")
"""A number where a condition must be, such as 179 in ``ClusterId == 178 || 179``."""
_ATTRIBUTE = re.compile(r"\b(?!(?:true|false|undefined|error|is|isnt)\b)[a-z_]\w*\b(?! *\()", re.IGNORECASE)


class ScheddCalls(LoadCalls):
    """Queries of the pool's schedds, and edits of their jobs."""

    def schedds(self) -> list[Ad]:
        """Return name, version and counts of jobs of the schedds that the collector lists, by name."""
        counts = ("TotalIdleJobs", "TotalRunningJobs", "MaxJobsRunning")
        ads = self.query_scalars("Schedd", ("Name", "Machine", "CondorVersion", *counts))
        return sorted((ad for ad in ads if ad["Name"]), key=lambda ad: str(ad["Name"]))

    # queued jobs

    def run_anywhere(self, schedd: str, constraint: str | None) -> int | None:
        """Set DataLocalityHere of queued jobs to true, and check the result; return the number of jobs.

        Return None if no queued job matches *constraint*; None as the constraint is every job.
        The check is a query, because a 23.9 schedd reports success even if it rejects an edit. Users can
        write both attributes: see SINGLE_JOBS.
        """
        selection = "true" if constraint is None else self._read_constraint(constraint)
        queue = self.schedd(schedd)
        selected = f"({selection}) && {QUEUED_JOBS}"
        withheld = (
            f'{selected} && unparse({contract.TRANSFORMED}) == "true" && unparse({contract.HERE}) != "true"'
        )
        jobs = _query_ids(queue, withheld)
        if not jobs and not queue.query(selected, ["ClusterId"], limit=1):
            return None
        for start in range(0, len(jobs), EDITS_AT_ONCE):
            self._edit(queue, jobs[start : start + EDITS_AT_ONCE], contract.HERE, "true")
        remaining = set(_query_ids(queue, withheld)) if jobs else set()
        if rejected := [job for job in jobs if job in remaining]:
            raise CallError(
                "denied",
                f"it rejected the edit of {len(rejected)} of {len(jobs)} jobs (the first is {rejected[0]})",
            )
        return len(jobs)

    def _edit(self, queue: Any, ids: Sequence[str], attribute: str, literal: str) -> None:
        """Edit jobs by id. Omit jobs that left the queue, because they would make the transaction fail."""
        try:
            queue.edit(list(ids), attribute, literal)
        except self.htcondor.HTCondorException as failure:
            queued = set(_query_ids(queue, QUEUED_JOBS))
            remaining = [job for job in ids if job in queued]
            if len(remaining) == len(ids):
                if match := re.search(r"commit transaction: *(.+)", str(failure)):
                    raise CallError("denied", match[1].strip()) from failure
                raise
            if remaining:
                queue.edit(remaining, attribute, literal)

    def _read_constraint(self, constraint: str) -> str:
        """Return *constraint* as the bindings read it, but a value that is a number selects no job.

        Raises:
            CallError: the constraint is no expression, it or one side of an ``||`` is true or false for all
                jobs alike, or it has a bare number as a condition, which is true for all jobs.
        """
        expression = self.parse_expression(constraint, "the constraint")
        scoped = [name.split(".") for name in self.classad.ClassAd().externalRefs(expression) if name]
        bare = [names[1:] if names[0].lower() == "my" else names for names in scoped]
        text = _STRING.sub('""', str(expression))
        if number := _BARE_NUMBER.search(text):
            advice = f"write ClusterId == {number[1]} for a job"
            raise CallError("usage", f"the constraint has a bare {number[1]}, true for all jobs: {advice}")
        has_attribute = any(names and names[0].lower() != "target" for names in bare)
        if not has_attribute or not all(map(_ATTRIBUTE.search, text.split("||"))):
            advice = "name a job (123 or 123.4), an attribute (ClusterId == 123), or --all"
            raise CallError("usage", f"the constraint {constraint[:200]} asks nothing of a job: {advice}")
        return f"({expression}) =?= true"

    # ended jobs

    def outcomes(
        self,
        schedd: str,
        since: int,
        site_attributes: Sequence[str],
        *,
        after_job_id: str | None = None,
        max_jobs: int,
        ended_before: int | None = None,
    ) -> list[Ad]:
        """Return jobs that ended from *since* until before *ended_before* (Unix s), *max_jobs* at most.

        Without *ended_before* also those whose end is not a time, so that they can be counted.

        The job that left the queue last comes first. The history is in the order in which jobs left the
        queue, and the schedd reads it backwards. The schedd stops at the job *after_job_id* (a GlobalJobId),
        or at a job that ended more than MAX_COMPLETED_IN_QUEUE_SECONDS before *since*: older entries have
        no job that ended after *since*.

        Returns:
            ``GlobalJobId``, ``JobStatus``, ``QDate``, ``JobStartDate``, ``JobCurrentStartDate`` and
            ``EnteredCurrentStatus`` (as in the job ad: any scalar or None), ``site`` (the first of
            *site_attributes* that is recorded; None without one), ``datasets`` (None if the job names none),
            ``key``, and whether it ``is_of_cluster``, ``asked`` (DataLocalityStart) and ``start``
            (MATCH_EXP_DataLocalityStart; any literal, or None), ``User``, ``misses`` and ``reads``.
        """
        queue = self.schedd(schedd)
        machine_attributes = _machine_attributes(site_attributes)
        attributes = [
            *OUTCOME_ATTRIBUTES,
            "User",
            contract.REQUIRED_DATASETS,
            *START_ATTRIBUTES,
            MISSES_ATTRIBUTE,
            READS_ATTRIBUTE,
            *machine_attributes,
        ]
        stop = _has_ended_before(since - MAX_COMPLETED_IN_QUEUE_SECONDS)
        if after_job_id is not None:
            stop = f"GlobalJobId =?= {self.classad.quote(after_job_id)} || {stop}"
        has_ended = f"EnteredCurrentStatus >= {since}"
        if ended_before is None:
            has_ended = f"(({has_ended}) =!= false || EnteredCurrentStatus <= 0)"
        else:
            has_ended = f"{has_ended} && EnteredCurrentStatus < {ended_before}"
        ads = queue.history(f"{NEGOTIATED_JOBS} && {has_ended}", attributes, max_jobs, since=stop)
        return [self._outcome_row(ad, schedd, machine_attributes) for ad in ads]

    def _outcome_row(self, ad: Any, schedd: str, machine_attributes: Sequence[str]) -> Ad:
        return {
            **self.scalars(ad, OUTCOME_ATTRIBUTES),
            "site": _recorded_site(ad, machine_attributes),
            "datasets": list(self._read_required_datasets(ad)) if contract.REQUIRED_DATASETS in ad else None,
            **read_start(ad, schedd),
            **self._report_row(ad),
        }


def _has_ended_before(time: int) -> str:
    """Return the condition that a job ended, and so was submitted, before *time* (Unix s).

    A query of the history ends at such a job. The owner can edit EnteredCurrentStatus of a completed job in
    the queue (tried on 25.14.1), and with the end alone one such job hid all older ones.
    """
    return f"(EnteredCurrentStatus < {time} && QDate < {time})"


def _query_ids(queue: Any, constraint: str) -> list[str]:
    """Return the ids of the jobs that match *constraint*."""
    return [f"{ad['ClusterId']}.{ad['ProcId']}" for ad in queue.query(constraint, ["ClusterId", "ProcId"])]


MIN_BYTES = 100_000_000
"""Smallest file whose transfer is returned; smaller ones measure delays, not the link."""
MAX_RECORDS = 10_000
"""Records of the epoch history that one call reads, the newest."""
_RUN = ("ClusterId", "ProcId", "NumShadowStarts")
_CEDAR = "CedarSizeBytesLastRun"


class TransferCalls(Bindings):
    """Queries of finished transfers."""

    def read_transfer_records(self, schedd: str, since: int, site_attributes: Sequence[str]) -> list[Ad]:
        """Return the records of input transfers and of ended runs that are newer than *since* (Unix s).

        They are of JOB_EPOCH_HISTORY. A row of ``kind`` ``INPUT`` has ``run``, the run of a job, and its
        ``files``; one of ``kind`` ``EPOCH`` comes at the end of the run. ``site`` is the first of
        *site_attributes* that the schedd recorded, ``user`` the job's owner. ``run``, ``site`` and ``user``
        are None if the record lacks them. Each file has ``host``, ``bytes``, ``seconds`` and ``ended_at``.
        """
        machine_attributes = _machine_attributes(site_attributes)
        ads = self.schedd(schedd).jobEpochHistory(
            "true",
            [
                *_RUN, "EpochAdType", "EpochWriteDate", "User", "InputPluginResultList", "TransferInputStats",
                "TransferInStarted", "TransferInFinished", *machine_attributes,
            ],
            MAX_RECORDS,
            since=f"EpochWriteDate < {since}",
            ad_type=["INPUT", "EPOCH"],
        )  # fmt: skip
        return [self._transfer_row(ad, machine_attributes) for ad in ads]

    def _transfer_row(self, ad: Any, machine_attributes: Sequence[str]) -> Ad:
        scalar = self.scalar
        is_input = "InputPluginResultList" in ad  # 23.9 omits EpochAdType
        files = list(_read_results(ad)) if is_input else self._read_schedd_transfer(ad)
        run = [scalar(ad, name) for name in _RUN]
        return {
            "kind": "INPUT" if is_input else "EPOCH",
            "run": None if None in run else ".".join(map(str, run)),
            "site": _recorded_site(ad, machine_attributes),
            "user": user if isinstance(user := scalar(ad, "User"), str) else None,
            "files": files,
        }

    def _read_schedd_transfer(self, ad: Any) -> list[Ad]:
        """Return the transfer from the schedd (``host`` is None), if no plugin took part in it."""
        sizes: dict[str, Any] = {}
        with suppress(Exception):
            stats = dict(ad.eval("TransferInputStats").items())
            sizes = {name: size for name, size in stats.items() if name.endswith("SizeBytesLastRun")}
        begin, end = self.scalar(ad, "TransferInStarted"), self.scalar(ad, "TransferInFinished")
        if list(sizes) != [_CEDAR] or not (is_number(begin) and is_number(end)):
            return []
        row = _file_row(None, sizes[_CEDAR], end - begin, end)
        return [row] if row else []


def _read_results(ad: Any) -> Iterator[Ad]:
    """Yield the successful downloads in an ``INPUT`` record; the plugin may be the job owner's own."""
    results: Any = None
    with suppress(Exception):
        results = ad.eval("InputPluginResultList")
    for result in results if isinstance(results, list) else []:
        with suppress(Exception):
            row = _read_result(dict(result.items()))
            if row:
                yield row


def _read_result(result: Mapping[str, Any]) -> Ad | None:
    if result.get("TransferSuccess") is not True or result.get("TransferType") not in {None, "download"}:
        return None
    begin, end = result.get("TransferStartTime"), result.get("TransferEndTime")
    if not (is_number(begin) and is_number(end)):
        return None
    host = _find_host(result)
    return _file_row(host, result.get("TransferTotalBytes"), _find_seconds(result, end - begin), end)


def _find_seconds(result: Mapping[str, Any], span: float) -> float:
    """Return the seconds of a transfer.

    Start and end are whole seconds. The curl plugin also has the exact time, as ``ConnectionTimeSeconds``;
    for other plugins this is the time to connect. Without the exact time a span below 2 s is useless.
    """
    exact = result.get("ConnectionTimeSeconds")
    is_curl = str(result.get("TransferProtocol")).lower() in {"http", "https", "ftp"}
    if is_curl and is_number(exact) and span - 1 <= exact <= span + 1:
        return exact
    return span if span >= 2 else 0.0


def _find_host(result: Mapping[str, Any]) -> str:
    """Return the host that sent the data: of the cache that had them, else of the server."""
    details = dict(result.get("DeveloperData") or {})
    is_cached = str(details.get("HttpCacheHitOrMiss")).upper() == "HIT"
    cache = details.get("HttpCacheHost") if is_cached else None
    names = (cache, details.get("Endpoint"), result.get("TransferUrl"))
    named = next((name for name in names if isinstance(name, str) and name), "")
    address = named[:MAX_READ_CHARS]
    return urlsplit(address if "//" in address else f"//{address}").hostname or ""


def _file_row(host: str | None, size: object, seconds: float, ended_at: float) -> Ad | None:
    if not is_number(size) or size < MIN_BYTES or seconds <= 0:
        return None
    return {"host": host, "bytes": int(size), "seconds": float(seconds), "ended_at": float(ended_at)}
