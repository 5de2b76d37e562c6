"""Records of jobs in the schedds' histories: ended jobs, transfers between sites, and reports of jobs.

``bindings/schedd_calls.py`` has the queries and the attributes that they read.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from hydrator.domain.model import Site, Unseen, to_unix
from hydrator.domain.network import TransferLogAnswer, TransferOrigin, TransferSample
from hydrator.domain.ports import Clock, EndedJobs, StepReporter, take_turns
from hydrator.domain.untrusted import valid_integer, valid_number, valid_time

from .bindings.client import CondorClient
from .bindings.library import MAX_MISS_CHARS, MAX_MISSES_OF_JOB, Ad
from .schedd_rounds import ScheddRounds

MAX_ENDED_JOBS = 20_000
"""Ended jobs in one answer of a schedd: some 10 MB."""
MAX_HISTORY_JOBS = 1_000_000
"""Ended jobs of one schedd that ``report`` reads, in answers of MAX_ENDED_JOBS."""
MAX_MISSES = 1000
"""Misses in one answer; each user gets a fair share."""
FIRST_PERIOD = timedelta(days=1)
"""Period before the daemon's start whose reports and transfers count."""
OVERLAP = timedelta(minutes=5)
"""Period that is read twice, since the schedd's clock may differ; a transfer read twice counts once."""


class ReportBuffer:
    """The reports of jobs since the last :meth:`take`: the newest of each job; safe from any thread.

    A row has ``GlobalJobId``, ``User``, ``misses`` and ``reads``. Of more than MAX_ENDED_JOBS jobs the first
    are dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], Mapping[str, Any]] = {}

    def add(self, reports: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        """Add the rows of *reports*, by schedd, that report something."""
        with self._lock:
            for schedd, rows in reports.items():
                self._rows |= {
                    (schedd, str(row["GlobalJobId"])): row for row in rows if row["misses"] or row["reads"]
                }
            while len(self._rows) > MAX_ENDED_JOBS:
                del self._rows[next(iter(self._rows))]

    def take(self) -> list[Mapping[str, Any]]:
        """Return the rows, and forget them."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return list(rows.values())


class BufferedMisses(ReportBuffer):
    """The misses that jobs reported."""

    def read_reports(self) -> Sequence[Sequence[str]]:
        """Return MAX_MISSES misses at most, with a fair share for each user, repeated ones last."""
        return choose_misses_fairly(((row["User"], row["misses"]) for row in self.take()), MAX_MISSES)


def choose_misses_fairly(reports: Iterable[tuple[str, Sequence[str]]], max_misses: int) -> list[list[str]]:
    """Choose *max_misses* misses, so that one user with many misses does not displace other users.

    The users take turns. The newest miss of each dataset and site comes first; older misses of the same
    dataset and site come last, if there is room.

    Args:
        reports: the user and the misses of each job; a miss is a text ``WHEN DID,DID,+N SITE``.
        max_misses: 1 or more.
    """
    texts = [(user, text[:MAX_MISS_CHARS]) for user, its in reports for text in its[:MAX_MISSES_OF_JOB]]
    newest: dict[tuple[str, str], tuple[str, str]] = {}
    repeats = []
    for user, text in sorted(texts, key=lambda row: _miss_time(row[1]), reverse=True):
        subject = user, text.partition(" ")[2]
        if subject in newest:
            repeats.append((user, text))
        else:
            newest[subject] = user, text
    chosen = [*take_turns(newest.values(), itemgetter(0)), *repeats]
    return [[text] for _, text in chosen[:max_misses]]


def _miss_time(text: str) -> int:
    digits = text.partition(" ")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 11 else 0


class WrapperReports(ReportBuffer):
    """A ``TransferLog`` of the rates that the job wrapper measured, from ChirpDataLocalityReads of jobs."""

    origin = TransferOrigin.WRAPPER

    def read_samples(self) -> TransferLogAnswer:
        """See :class:`hydrator.domain.network.TransferLog`."""
        samples = (
            parse_read(str(text), row["User"], row["GlobalJobId"])
            for row in self.take()
            for text in row["reads"]
        )
        return TransferLogAnswer(tuple(sample for sample in samples if sample))

    def close(self) -> None:
        """Do nothing: no connection is open."""


class HistoryRounds(ScheddRounds):
    """A reader of ended jobs: query each schedd's history, for at most *max_jobs* jobs at a time.

    For a period with more jobs it queries shorter periods, until it has *max_history_jobs* jobs.
    """

    def __init__(
        self,
        client: CondorClient,
        clock: Clock,
        site_attributes: Sequence[str],
        max_jobs: int = MAX_ENDED_JOBS,
        max_history_jobs: int = MAX_HISTORY_JOBS,
        reporter: StepReporter | None = None,
        buffers: Sequence[ReportBuffer] = (),
    ) -> None:
        super().__init__(client, reporter=reporter)
        self._buffers = buffers
        self._site_attributes = site_attributes
        self._max_jobs, self._max_history_jobs = max_jobs, max_history_jobs
        self._begin_at = clock()
        self._last_job_ids: dict[str, str | None] = {}

    def read_ended_jobs(self, ended_after: datetime) -> Mapping[str, EndedJobs | Unseen]:
        """Return, by schedd, the jobs that ended after *ended_after*.

        Raises:
            PoolError: the collector could not list the schedds.
        """
        return self.ask(lambda _, schedd: self._query_pages(schedd, ended_after))

    def read_newly_ended_jobs(self) -> Mapping[str, EndedJobs | Unseen]:
        """Return, by schedd, each job once that left the queue since the last query, or since the start.

        The next query also returns the jobs of a query that failed.

        Raises:
            PoolError: the collector could not list the schedds.
        """
        return self.ask(lambda _, schedd: self._read_newly_ended_at(schedd))

    def _query_pages(self, schedd: str, since: datetime) -> EndedJobs:
        """Return all jobs that ended after *since*, by periods of fewer than *max_jobs* jobs, newest first.

        Periods of the end do not overlap, because the history has the order in which jobs left the queue.
        """
        jobs: list[Mapping[str, Any]] = []
        before: datetime | None = None
        while True:
            page = self._query_outcomes(schedd, since, None, before)
            middle = None if page.is_complete else _find_median_end(page.jobs)
            if middle is None or middle <= since or (before and middle >= before):
                return EndedJobs((*jobs, *page.jobs), is_complete=page.is_complete)
            newer = self._query_outcomes(schedd, middle, None, before)
            jobs += newer.jobs
            before = middle
            if not newer.is_complete or len(jobs) >= self._max_history_jobs:
                return EndedJobs(tuple(jobs), is_complete=False)

    def _read_newly_ended_at(self, schedd: str) -> EndedJobs:
        """Return the jobs that ended since the last call; for the first call, since the daemon started.

        The first call reads a day, because jobs that ended before the start have reports, too.
        """
        last = self._last_job_ids.get(schedd)
        # the newest job of any age: if no job ended lately, each call would read the jobs of 11 days again
        is_first = schedd not in self._last_job_ids
        newest = self._client.outcomes(schedd, 0, (), max_jobs=1) if is_first else []
        ended = self._query_outcomes(schedd, self._begin_at - FIRST_PERIOD, last)
        for buffer in self._buffers:
            buffer.add({schedd: ended.jobs})
        self._last_job_ids.setdefault(schedd, None)
        if (known := ended.jobs or newest) and isinstance(job := known[0]["GlobalJobId"], str):
            self._last_job_ids[schedd] = job
        jobs = tuple(job for job in ended.jobs if not self._has_ended_before_start(job))
        return EndedJobs(jobs, is_complete=ended.is_complete or len(jobs) < len(ended.jobs))

    def _has_ended_before_start(self, job: Mapping[str, Any]) -> bool:
        ended_at = valid_time(job["EnteredCurrentStatus"] or None)
        return ended_at is not None and ended_at < self._begin_at

    def _query_outcomes(
        self, schedd: str, since: datetime, after_job_id: str | None, before: datetime | None = None
    ) -> EndedJobs:
        jobs = self._client.outcomes(
            schedd,
            to_unix(since),
            self._site_attributes,
            after_job_id=after_job_id,
            max_jobs=self._max_jobs,
            ended_before=to_unix(before) if before else None,
        )
        rows = tuple({**job, "read_bytes": _sum_reads(job)} for job in jobs)
        return EndedJobs(rows, is_complete=len(jobs) < self._max_jobs)


def _sum_reads(job: Ad) -> int:
    """Return the bytes that the wrapper of *job* read from other sites at the site where it ran last."""
    samples = (parse_read(str(text), "", "") for text in job.get("reads", ()))
    return sum(sample.bytes for sample in samples if sample and sample.destination == job.get("site"))


def _find_median_end(jobs: Sequence[Mapping[str, Any]]) -> datetime | None:
    """Return the median end of *jobs*, in whole seconds; None without a valid end."""
    ends = sorted(end for job in jobs if (end := valid_time(job.get("EnteredCurrentStatus") or None)))
    return ends[len(ends) // 2] if ends else None


MAX_WAITING_RUNS = 10_000
"""Runs whose transfers wait for the record with their site, at the end of the run."""

_MAX_DIGITS = 18


def parse_read(text: str, user: str, job: str) -> TransferSample | None:
    """Parse ``SOURCE:BYTES:SECONDS:WHEN:SITE``, which a job's owner may have invented; None if it is bad."""
    parts = text.split(":")
    if len(parts) != 5 or not all(part.isascii() and part.isprintable() for part in parts):
        return None
    source, size, seconds, when, site = parts
    if max(map(len, (size, seconds, when))) > _MAX_DIGITS:
        return None
    with suppress(ValueError):
        ended_at, span = valid_time(int(when)), valid_number(float(seconds))
        count = valid_integer(int(size))
        if count and span and span > 0 and ended_at and source.strip() and site.strip():
            origin = TransferOrigin.WRAPPER
            return TransferSample(Site(source), Site(site), count, span, ended_at, origin, user, job)
    return None


class TransferRecords(ScheddRounds):
    """A ``TransferLog`` of the schedds' JOB_EPOCH_HISTORY.

    A record without a site waits in memory for the record at the end of its run, which has the site.

    Args:
        site_attributes: slot attributes with a slot's site; the first that the schedd recorded counts.
        find_site: returns the site of a host, or None; a transfer from a host without a site is ignored.
    """

    origin = TransferOrigin.SCHEDD

    def __init__(
        self,
        client: CondorClient,
        clock: Clock,
        site_attributes: Sequence[str],
        find_site: Callable[[str], Site | None],
    ) -> None:
        super().__init__(client)
        self._clock = clock
        self._site_attributes = site_attributes
        self._find_site = find_site
        self._begin_at = clock() - FIRST_PERIOD
        self._answered_at: dict[str, datetime] = {}
        self._waiting: OrderedDict[str, Ad] = OrderedDict()

    def read_samples(self) -> TransferLogAnswer:
        """See :class:`hydrator.domain.network.TransferLog`."""
        answers = self.ask(self._query)
        samples: list[TransferSample] = []
        failures: dict[str, str] = {}
        for schedd, answer in answers.items():
            if isinstance(answer, Unseen):
                failures[schedd] = answer.reason
            else:
                samples += self._parse(schedd, answer)
        return TransferLogAnswer(samples, failures)

    def _query(self, client: CondorClient, schedd: str) -> Sequence[Ad]:
        now = self._clock()
        since = self._answered_at.get(schedd, self._begin_at) - OVERLAP
        rows = client.read_transfer_records(schedd, to_unix(since), self._site_attributes)
        self._answered_at[schedd] = now
        return rows

    def _parse(self, schedd: str, rows: Sequence[Ad]) -> Iterator[TransferSample]:
        ends = {row["run"]: row for row in rows if row["kind"] == "EPOCH" and row["run"]}
        for row in rows:
            if row["kind"] == "EPOCH":
                yield from self._samples(schedd, row, row)
                if waiting := self._waiting.pop(f"{schedd} {row['run']}", None):
                    yield from self._samples(schedd, waiting, row)
            elif row["site"] and row["user"]:
                yield from self._samples(schedd, row, row)
            elif end := ends.get(row["run"]):
                yield from self._samples(schedd, row, end)
            elif row["files"] and row["run"]:
                self._waiting[f"{schedd} {row['run']}"] = row
                if len(self._waiting) > MAX_WAITING_RUNS:
                    self._waiting.popitem(last=False)

    def _samples(self, schedd: str, row: Ad, end: Ad) -> Iterator[TransferSample]:
        """Yield the transfers in *row*, of the run whose site and user are in *row* or in *end*."""
        site, user = row["site"] or end["site"], row["user"] or end["user"] or ""
        for number, file in enumerate(row["files"] if site else ()):
            source = self._find_site(_host_of(schedd, file))
            ended_at = valid_time(file["ended_at"])
            if source and ended_at:
                job = f"{schedd} {row['run']} {number}"
                size, seconds = file["bytes"], file["seconds"]
                yield TransferSample(source, Site(site), size, seconds, ended_at, self.origin, user, job)


def _host_of(schedd: str, file: Mapping[str, Any]) -> str:
    """Return the host that sent *file*; files without a host came from the host of *schedd*."""
    return str(file["host"] or schedd.rpartition("@")[2])
