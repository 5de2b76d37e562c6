"""Calls to schedds, in the child process: queries of queues and histories, and edits of queued jobs.

:class:`LoadCalls` counts idle and running jobs in groups. :class:`NeedCalls` groups the jobs that need data.
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

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from hydrator.domain.ads import contract, dataset_sets

from .library import (
    NOT_DYNAMIC_SLOT,
    Ad,
    Bindings,
    CallError,
    choose_misses_fairly,
    expression_text,
    is_number,
    read_plain,
    read_strings,
)
from .match_calls import MatchCalls, SiteMatcher

IDLE, HELD = 1, 5  # JobStatus
QUEUED_JOBS = "JobStatus =!= 3 && JobStatus =!= 4"
"""Jobs that are neither removed nor completed."""
NEGOTIATED_JOBS = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12"
"""Jobs that a negotiator places: not scheduler, grid and local universe."""
RUNNING_JOBS = f"(JobStatus =?= 2 || JobStatus =?= 6 || JobStatus =?= 7) && {NEGOTIATED_JOBS}"
"""Jobs that occupy a slot: they run, transfer their output, or are suspended."""
REQUESTS = ("RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs")
IDLE_ATTRIBUTES = (contract.KEY, contract.WORKFLOW_RUN, contract.LANE, contract.MODE, *REQUESTS)
MAX_OFFER_LENGTH = 100
MAX_RUN_LENGTH = 200
"""A longer name of a run does not count."""
RUNNING_ATTRIBUTES = (
    *(contract.KEY, "User", contract.WORKFLOW_RUN, contract.START_RECORD),
    *("JobCurrentStartDate", "RemoteHost", "ServerTime"),
)
"""ServerTime is the time of the schedd's clock, which it adds to each ad of an answer."""
MAX_CLOCK_ERROR = 5
"""A clock that differs by less (s) is right: ServerTime has whole seconds, and clocks are never exact."""
UNPLACED_UNIVERSES = frozenset({7, 9, 12})


class LoadCalls(Bindings):
    """Queries of the jobs that wait for slots or use them."""

    def read_idle_jobs(self, schedd: str) -> list[Ad]:
        """Return the idle jobs of *schedd* in groups; each row has the fields of ``IdleJobs``.

        The query uses GroupBy: see :meth:`ScheddCalls.count_queued_datasets`. Omit jobs without a key.
        """
        queue = self.schedd(schedd)
        attributes = [*IDLE_ATTRIBUTES, "JobStatus", "JobUniverse"]
        rows: dict[tuple[Any, ...], int] = {}
        for ad in self._waiting(queue.query("true", attributes, opts=self.htcondor.QueryOpt.GroupBy)):
            self._count(rows, ad)
        return _idle_rows((group, jobs) for group, jobs in rows.items() if group[0] is not None)

    def read_running_jobs(self, schedd: str, site_attributes: Sequence[str]) -> list[Ad]:
        """Return the running jobs of *schedd* in groups; each row has the fields of ``RunningJobs``.

        ``site`` is the first of *site_attributes* that the schedd recorded of the job's slot
        (SYSTEM_JOB_MACHINE_ATTRS). Without it, ``slot`` is the name of the slot, for a dynamic slot the name
        of the partitionable one. ``clock_ahead`` has the seconds by which the schedd's clock, which gives the
        starts, is ahead of this machine's.
        """
        queue = self.schedd(schedd)
        machine_attributes = _machine_attributes(site_attributes)
        attributes = [*RUNNING_ATTRIBUTES, *machine_attributes]
        rows: dict[tuple[Any, ...], list[int]] = {}
        begun_at = time.time()
        ads = queue.query(RUNNING_JOBS, attributes)
        ended_at = time.time()
        schedd_time = self._value(ads[0], "ServerTime") if ads else None
        clock_ahead = find_clock_error(schedd_time, begun_at, ended_at)
        for ad in ads:
            self._add_start(rows, ad, machine_attributes)
        return [{**row, "clock_ahead": clock_ahead} for row in _running_rows(rows)]

    def read_cluster_jobs(
        self, schedd: str, cluster: int, site_attributes: Sequence[str], max_jobs: int
    ) -> Ad:
        """Return the jobs of *cluster*, *max_jobs* at most: ``idle`` and ``running`` rows, ``held_count``.

        The rows have the fields of :meth:`read_idle_jobs` and :meth:`read_running_jobs`. ``is_complete``
        says that *max_jobs* left out no job.
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

    def _waiting(self, groups: Iterable[Any]) -> Iterable[Any]:
        return (
            ad
            for ad in groups
            if self.scalar(ad, "JobStatus") == IDLE
            and self.scalar(ad, "JobUniverse") not in UNPLACED_UNIVERSES
        )

    def _count(self, rows: dict[tuple[Any, ...], int], ad: Any) -> None:
        group = (read_key(ad), self._run(ad), *self._needs(ad))
        rows[group] = rows.get(group, 0) + (self.scalar(ad, "JobCount") or 1)

    def _add_start(
        self,
        rows: dict[tuple[Any, ...], list[int]],
        ad: Any,
        machine_attributes: Sequence[str],
    ) -> None:
        started_at = self._value(ad, "JobCurrentStartDate")
        if not is_number(started_at):
            return
        sites = (self._value(ad, name) for name in machine_attributes)
        site = next((value for value in sites if isinstance(value, str) and value), None)
        slot = _slot_of(self._value(ad, "RemoteHost"))
        offer = read_plain(ad, contract.START_RECORD)
        offer = offer if isinstance(offer, str) and len(offer) <= MAX_OFFER_LENGTH else None
        user = self._value(ad, "User")
        user = user if isinstance(user, str) else ""
        group = read_key(ad), user, self._run(ad), offer, site, None if site else slot
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

    @staticmethod
    def _run(ad: Any) -> str | None:
        run = read_plain(ad, contract.WORKFLOW_RUN)
        return run if isinstance(run, str) and 0 < len(run) <= MAX_RUN_LENGTH else None

    def _names(self, ad: Any) -> tuple[str, ...]:
        """Return the strings of RequiredDatasets; nothing for any other value, which no slot can satisfy."""
        value = read_plain(ad, contract.REQUIRED_DATASETS)
        return tuple(value) if isinstance(value, list) else ()

    @staticmethod
    def _value(ad: Any, name: str) -> Any:
        with suppress(Exception):
            return ad.eval(name)
        return None


def read_key(ad: Any) -> str | None:
    """Return the value of DataLocalityKey; None if it is not a literal string."""
    key = read_plain(ad, contract.KEY)
    return key[:MAX_KEY_CHARS] if isinstance(key, str) else None


def _machine_attributes(site_attributes: Sequence[str]) -> list[str]:
    """Return the job attributes in which a schedd records *site_attributes* of the job's slot."""
    return [f"MachineAttr{name}0" for name in site_attributes]


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


REMOVED, COMPLETED = 3, 4  # JobStatus
EDITS_AT_ONCE = 1000
MISSES_ATTRIBUTE = "ChirpDataLocalityMisses"
MAX_MISSES = 1000
"""Misses in one answer of a schedd; each user gets a fair share."""
MAX_ENDED_JOBS = 20_000
"""Ended jobs with misses or with reports that one call reads."""
MAX_COMPLETED_IN_QUEUE_SECONDS = 11 * 86_400
"""Seconds that a completed job may stay in the queue before it is history: 10 days, if it was spooled."""
MAX_KEY_CHARS = 1 + dataset_sets.MAX_KEY_CHARS
"""Characters of a DataLocalityKey that are read: a longer one stays too long."""
OUTCOME_ATTRIBUTES = (
    *("GlobalJobId", "JobStatus", "QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus"),
)


_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_BARE_NUMBER = re.compile(r"(?:^|\|\||&&)[\s(!]*(\d[\w.+]*)[\s)]*(?:\|\||&&|$)")
"""A number where a condition must be, such as 179 in ``ClusterId == 178 || 179``."""


class ScheddCalls(LoadCalls):
    """Queries of the pool's schedds, and edits of their jobs."""

    def schedds(self) -> list[Ad]:
        """Return name, machine and version of every schedd that the collector lists."""
        counts = ("TotalIdleJobs", "TotalRunningJobs", "MaxJobsRunning")
        return self.query_scalars("Schedd", ("Name", "Machine", "CondorVersion", *counts))

    # queued jobs

    def count_queued_datasets(self, schedd: str) -> list[tuple[list[str], int, str | None]]:
        """Count jobs by RequiredDatasets and DataLocalityKey; omit removed and completed jobs.

        The key is None if it is not a string.

        GroupBy returns one ad, with a JobCount, for each combination of the projected attributes. The
        constraint of a query with GroupBy can use only these attributes. The constraint does not test
        RequiredDatasets: "isnt undefined" would exclude a list that refers to a missing attribute.

        For items of a late-materialization factory that are not jobs yet, the queue has only the factory's
        cluster ad, with the RequiredDatasets of the first item. This ad counts as one job, even if many
        items are not jobs yet.
        """
        queue = self.schedd(schedd)
        options = self.htcondor.QueryOpt
        counts: dict[tuple[tuple[str, ...], str | None], int] = {}

        def add(ads: Iterable[Any], count_jobs: Callable[[Any], int]) -> None:
            for ad in ads:
                if contract.REQUIRED_DATASETS in ad:
                    jobs = (self._read_required_datasets(ad), read_key(ad))
                    counts[jobs] = counts.get(jobs, 0) + count_jobs(ad)

        grouped = [contract.REQUIRED_DATASETS, contract.KEY, "JobStatus"]
        groups = queue.query("true", grouped, opts=options.GroupBy)
        scalar = self.scalar
        live = (ad for ad in groups if scalar(ad, "JobStatus") not in {REMOVED, COMPLETED})
        add(live, lambda ad: scalar(ad, "JobCount") or 1)
        factories = queue.query(
            "ProcId is undefined && JobMaterializeDigestFile isnt undefined "
            f"&& {QUEUED_JOBS} "
            "&& (TotalSubmitProcs > JobMaterializeNextProcId) =!= false",
            [contract.REQUIRED_DATASETS, contract.KEY],
            opts=options.IncludeClusterAd,
        )
        add(factories, lambda _: 1)
        ordered = sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] or ""))
        return [(list(datasets), jobs, key) for (datasets, key), jobs in ordered if jobs]

    def read_constraint_names(self, constraint: str) -> list[str]:
        """Return the attributes of jobs that *constraint* refers to; refuse it as the edits do."""
        return self._read_constraint(constraint)[1]

    def has_queued_job(self, schedd: str, constraint: str) -> bool:
        """Return True if a queued job matches *constraint*."""
        selection = self._select_jobs(constraint)
        queue = self.schedd(schedd)
        return bool(queue.query(f"({selection}) && {QUEUED_JOBS}", ["ClusterId"], limit=1))

    def run_anywhere(self, schedd: str, constraint: str | None) -> int:
        """Set DataLocalityHere of queued jobs to true, and check the result; return the number of jobs.

        The check is a query, because a 23.9 schedd reports success even if it rejects an edit.
        """
        selection = self._select_jobs(constraint)
        queue = self.schedd(schedd)
        withheld = (
            f"({selection}) && DataLocalityTransformed =?= true && DataLocalityHere =!= true && {QUEUED_JOBS}"
        )
        jobs = _query_ids(queue, withheld)
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

    def _select_jobs(self, constraint: str | None) -> str:
        """Return *constraint* as the bindings read it, for a query; None is every job."""
        return "true" if constraint is None else self._read_constraint(constraint)[0]

    def _read_constraint(self, constraint: str) -> tuple[str, list[str]]:
        """Return *constraint* as the bindings read it, and the attributes of jobs that it refers to.

        Raises:
            CallError: the constraint is no expression, is true or false for all jobs alike, or has a bare
                number as a condition, which is true for all jobs.
        """
        expression = self.parse_expression(constraint, "the constraint")
        scoped = [name.split(".") for name in self.classad.ClassAd().externalRefs(expression) if name]
        bare = [names[1:] if names[0].lower() == "my" else names for names in scoped]
        first = {names[0].lower(): names[0] for names in bare if names and names[0].lower() != "target"}
        if not first:
            advice = "name a job (123 or 123.4), an attribute (ClusterId == 123), or --all"
            raise CallError("usage", f"the constraint {constraint[:200]} asks nothing of a job: {advice}")
        if number := _BARE_NUMBER.search(_STRING.sub('""', str(expression))):
            advice = f"write ClusterId == {number[1]} for a job"
            raise CallError("usage", f"the constraint has a bare {number[1]}, true for all jobs: {advice}")
        return str(expression), sorted(first.values())

    # ended jobs

    def query_misses(self, schedd: str, since: int) -> list[list[str]]:
        """Return misses of jobs in the queue, and of ended jobs in the history after *since* (Unix s)."""
        queue = self.schedd(schedd)
        constraint = f"{MISSES_ATTRIBUTE} isnt undefined"
        ads = list(queue.query(constraint, [MISSES_ATTRIBUTE, "User"]))
        ads += queue.history(
            constraint, [MISSES_ATTRIBUTE, "User"], MAX_ENDED_JOBS, since=_has_ended_before(since)
        )
        scalar = self.scalar
        reports = ((str(scalar(ad, "User")), read_strings(ad, MISSES_ATTRIBUTE)) for ad in ads)
        return choose_misses_fairly(reports, MAX_MISSES)

    def outcomes(
        self,
        schedd: str,
        since: int,
        after_job_id: str | None,
        max_jobs: int,
        site_attributes: Sequence[str],
        ended_before: int | None = None,
    ) -> list[Ad]:
        """Return jobs that ended from *since* until before *ended_before* (Unix s).

        Without *ended_before* also those whose end is not a time, so that they can be counted.

        The job that left the queue last comes first. The history is in the order in which jobs left the
        queue, and the schedd reads it backwards. The schedd stops at the job *after_job_id* (a GlobalJobId),
        or at a job that ended more than MAX_COMPLETED_IN_QUEUE_SECONDS before *since*: older entries have
        no job that ended after *since*.
        """
        queue = self.schedd(schedd)
        machine_attributes = _machine_attributes(site_attributes)
        attributes = [
            *OUTCOME_ATTRIBUTES,
            contract.REQUIRED_DATASETS,
            contract.START_RECORD,
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
        return [self._outcome_row(ad, machine_attributes) for ad in ads]

    def last_ended(self, schedd: str) -> str | None:
        """Return the GlobalJobId of the job that left the queue last."""
        for ad in self.schedd(schedd).history("true", ["GlobalJobId"], 1):
            job_id = self.scalar(ad, "GlobalJobId")
            return job_id if isinstance(job_id, str) else None
        return None

    def _outcome_row(self, ad: Any, machine_attributes: Sequence[str]) -> Ad:
        scalar = self.scalar
        site = next((name for name in machine_attributes if isinstance(scalar(ad, name), str)), None)
        return {
            **self.scalars(ad, OUTCOME_ATTRIBUTES),
            "site": scalar(ad, site) if site else None,
            "datasets": list(self._read_required_datasets(ad)) if contract.REQUIRED_DATASETS in ad else None,
            "start": scalar(ad, contract.START_RECORD),
            "misses": read_strings(ad, MISSES_ATTRIBUTE),
            "reads": _read_reads(ad),
        }

    def _read_required_datasets(self, ad: Any) -> tuple[str, ...]:
        """Return the strings of RequiredDatasets; for any other value, one text that is not a valid DID.

        The literal ``undefined``, which a default for all jobs of a schedd may be, is as no list.
        """
        with suppress(Exception):
            if names := self._names(ad):
                return names
        text = expression_text(ad, "RequiredDatasets")
        return () if text.lower() == "undefined" else (f"RequiredDatasets = {text}",)


def _has_ended_before(time: int) -> str:
    """Return the condition that a job ended, and so was submitted, before *time* (Unix s).

    A query of the history ends at such a job. The owner can edit EnteredCurrentStatus of a completed job in
    the queue (tried on 25.14.1), and with the end alone one such job hid all older ones.
    """
    return f"(EnteredCurrentStatus < {time} && QDate < {time})"


def _query_ids(queue: Any, constraint: str) -> list[str]:
    """Return the ids of the jobs that match *constraint*."""
    return [f"{ad['ClusterId']}.{ad['ProcId']}" for ad in queue.query(constraint, ["ClusterId", "ProcId"])]


READS_ATTRIBUTE = "ChirpDataLocalityReads"
MIN_BYTES = 100_000_000
"""Smallest file whose transfer is returned; smaller ones measure delays, not the link."""
MAX_REPORTS_OF_USER = 200
"""Jobs with reports of one user in one answer."""
MAX_REPORTS = 5000
MAX_READS_OF_JOB = 10
MAX_READ_CHARS = 300
MAX_RECORDS = 10_000
"""Records of the epoch history that one call reads, the newest."""
_RUN = ("ClusterId", "ProcId", "NumShadowStarts")
_CEDAR = "CedarSizeBytesLastRun"


def _read_reads(ad: Any) -> list[str]:
    """Return the reads in the ad of a job, which its owner may have written, within limits."""
    return [text[:MAX_READ_CHARS] for text in read_strings(ad, READS_ATTRIBUTE)[:MAX_READS_OF_JOB]]


class TransferCalls(Bindings):
    """Queries of finished transfers."""

    def read_rate_reports(self, schedd: str, since: int) -> list[Ad]:
        """Return the jobs with reports: those in the queue, and those that ended after *since*."""
        queue, scalar = self.schedd(schedd), self.scalar
        constraint = f"{READS_ATTRIBUTE} isnt undefined"
        attributes = [READS_ATTRIBUTE, "User", "GlobalJobId"]
        ads = list(queue.query(constraint, attributes))
        ads += queue.history(constraint, attributes, MAX_ENDED_JOBS, since=_has_ended_before(since))
        rows: list[Ad] = []
        counts: dict[str, int] = {}
        for ad in ads:
            user = str(scalar(ad, "User"))
            counts[user] = counts.get(user, 0) + 1
            if counts[user] > MAX_REPORTS_OF_USER or len(rows) == MAX_REPORTS:
                continue
            rows.append({"user": user, "job": str(scalar(ad, "GlobalJobId")), "reads": _read_reads(ad)})
        return rows

    def read_transfer_records(self, schedd: str, since: int, site_attributes: Sequence[str]) -> list[Ad]:
        """Return the records of input transfers and of ended runs that are newer than *since* (Unix s)."""
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
        site = next((scalar(ad, name) for name in machine_attributes if scalar(ad, name)), None)
        is_input = "InputPluginResultList" in ad  # 23.9 omits EpochAdType
        files = list(_read_results(ad)) if is_input else self._read_schedd_transfer(ad)
        run = [scalar(ad, name) for name in _RUN]
        return {
            "kind": "INPUT" if is_input else "EPOCH",
            "run": None if None in run else ".".join(map(str, run)),
            "site": site if isinstance(site, str) else None,
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


GROUP_ATTRIBUTES = (
    contract.KEY,
    "User",
    "AutoClusterId",
    "JobStatus",
    "JobUniverse",
    "EnteredCurrentStatus",
)
QUEUED = f"JobStatus =?= {IDLE} || JobStatus =?= {HELD}"


@dataclass(frozen=True, slots=True)
class QueuedGroup:
    """Alike idle or held jobs: those that match ``constraint``, of one user.

    ``since`` (Unix seconds) is the time since which the oldest has its ``status``; None if it is unknown.
    """

    constraint: str
    user: str
    status: int
    job_count: int = 0
    since: int | None = None


def order_in_turns(groups: Iterable[QueuedGroup]) -> list[QueuedGroup]:
    """Return *groups* in turns of the users: the oldest of each user, then the second oldest of each.

    So no user's groups take the places of all others, as in the order in which data is requested.
    """
    turns: Counter[tuple[str, int]] = Counter()
    ordered = []
    for one in sorted(groups, key=lambda group: (_age_key(group), group.constraint)):
        ordered.append((turns[one.user, one.status], _age_key(one), one.constraint, one))
        turns[one.user, one.status] += 1
    return [one for *_, one in sorted(ordered, key=lambda row: row[:3])]


def _age_key(group: QueuedGroup) -> float:
    return math.inf if group.since is None else group.since


class NeedCalls(LoadCalls, MatchCalls):
    """Queries of jobs with datasets, and evaluations of the sites that match them."""

    def read_data_needs(self, schedd: str, site_attributes: Sequence[str], max_groups: int) -> Ad:
        """Return ``idle`` and ``running`` jobs of *schedd* with datasets, in rows of alike jobs.

        The idle rows include held jobs (``is_held``): they need their data, but do not wait for it.
        An idle row has ``datasets``, ``user``, ``job_count``, ``example`` (the id of its oldest job),
        ``since`` (Unix seconds, of this job) and ``ad``: the texts of the expressions of this job. Beyond
        *max_groups* rows of idle jobs, in turns of the users, ``ad`` is None. A running row has ``datasets``,
        ``user``, ``started_at``, and ``site`` or ``slot`` as in :meth:`read_running_jobs`.
        """
        queue = self.schedd(schedd)
        groups = order_in_turns(self._queued_groups(queue))
        evaluated = set([group for group in groups if group.status == IDLE][:max_groups])
        rows = (self._oldest_job(queue, group, has_ad=group in evaluated) for group in groups)
        idle = [row for row in rows if row]
        names: dict[str, tuple[str, ...]] = {}
        running = []
        for row in self.read_running_jobs(schedd, site_attributes):
            if (key := row["key"]) is None:
                continue
            if key not in names:
                names[key] = self._datasets_of_key(queue, key)
            if names[key]:
                running.append({**row, "datasets": names[key]})
        return {"idle": idle, "running": running}

    def evaluate_sites(self, jobs: Sequence[Mapping[str, str]], site_attributes: Sequence[str]) -> list[Ad]:
        """Return, for each of *jobs* (texts of expressions), ``sites`` and ``matches_now``.

        ``sites`` are those with a slot that would match if the data were there and the slot were empty.
        ``matches_now`` says whether a slot matches as the data is now.
        """
        matches = [SiteMatcher(self.classad, self._build_job_ad(job), site_attributes) for job in jobs]
        attributes = set().union(*(match.slot_attributes for match in matches))
        query = self._build_slot_query(self.collector_addresses() or [""])
        pairs = self._fetch_match_slots(
            lambda names, constraint: query(names, f"({constraint}) && {NOT_DYNAMIC_SLOT}"),
            attributes,
            site_attributes,
        )
        return [match.evaluate_slots(pairs) for match in matches]

    def _queued_groups(self, queue: Any) -> list[QueuedGroup]:
        """Return the groups of alike idle or held jobs with datasets.

        GroupBy returns one ad for each combination of the projected attributes, so one for each second in
        which jobs of a group became idle.
        """
        groups: dict[str, QueuedGroup] = {}
        ads = queue.query(QUEUED, list(GROUP_ATTRIBUTES), opts=self.htcondor.QueryOpt.GroupBy)
        for ad, status in self._select_queued(ads):
            if (key := read_key(ad)) is not None:
                self._add(groups, f"DataLocalityKey =?= {self.classad.quote(key)}", ad, status)
        return list(groups.values())

    def _add(self, groups: dict[str, QueuedGroup], data: str, ad: Any, status: int) -> None:
        """Add the jobs of *ad*, which match the constraint *data*, to their group."""
        constraint = f"{data} && {self._alike(ad, status)}"
        user, since = self._value(ad, "User"), self._value(ad, "EnteredCurrentStatus")
        one = groups.get(constraint) or QueuedGroup(constraint, user if isinstance(user, str) else "", status)
        times = [at for at in (one.since, int(since) if is_number(since) else None) if at is not None]
        groups[constraint] = replace(
            one, job_count=one.job_count + self._job_count(ad), since=min(times, default=None)
        )

    def _select_queued(self, groups: Iterable[Any]) -> Iterator[tuple[Any, int]]:
        """Yield the ads of idle and held jobs that a negotiator places, each with its JobStatus."""
        for ad in groups:
            status = self.scalar(ad, "JobStatus")
            if status in {IDLE, HELD} and self.scalar(ad, "JobUniverse") not in UNPLACED_UNIVERSES:
                yield ad, int(status)

    def _alike(self, ad: Any, status: int) -> str:
        """Return a constraint for the jobs with *status* and the user and the autocluster of *ad*."""
        user, cluster = self._value(ad, "User"), self._value(ad, "AutoClusterId")
        terms = [f"JobStatus =?= {status}"]
        terms += [f"JobUniverse =!= {each}" for each in sorted(UNPLACED_UNIVERSES)]
        terms.append(f"User =?= {self.classad.quote(user)}" if isinstance(user, str) else "User is undefined")
        is_known = type(cluster) is int
        terms.append(f"AutoClusterId =?= {cluster}" if is_known else "AutoClusterId is undefined")
        return " && ".join(terms)

    def _job_count(self, ad: Any) -> int:
        count = self.scalar(ad, "JobCount")
        return count if type(count) is int and count > 0 else 1

    def _oldest_job(self, queue: Any, group: QueuedGroup, *, has_ad: bool) -> Ad | None:
        """Return the row of *group*, with its oldest job; None if the last of its jobs has just gone."""
        oldest = f"{group.constraint} && EnteredCurrentStatus =?= {group.since}"
        constraints = [group.constraint] if group.since is None else [oldest, group.constraint]
        ad = next((ads[0] for each in constraints if (ads := queue.query(each, [], limit=1))), None)
        if ad is None or not (names := self._names(ad)):
            return None
        since = self._value(ad, "EnteredCurrentStatus")
        return {
            "datasets": names,
            "user": group.user,
            "job_count": group.job_count,
            "example": f"{self.scalar(ad, 'ClusterId')}.{self.scalar(ad, 'ProcId')}",
            "since": int(since) if is_number(since) else None,
            "is_held": group.status == HELD,
            "ad": {name: expression_text(ad, name) for name in ad} if has_ad else None,
        }

    def _datasets_of_key(self, queue: Any, key: str) -> tuple[str, ...]:
        constraint = f"DataLocalityKey =?= {self.classad.quote(key)}"
        ads = queue.query(constraint, [contract.REQUIRED_DATASETS], limit=1)
        return self._names(ads[0]) if ads else ()
