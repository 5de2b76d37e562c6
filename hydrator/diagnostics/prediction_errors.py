"""Errors of the estimates: how far predicted and real seconds of ended jobs differ."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.estimates import TransferOrigin, TransferSample
from hydrator.domain.model import to_unix
from hydrator.domain.untrusted import valid_number, valid_time
from hydrator.reconcile.estimates.predictions import EndedRun, EstimateKind

from .outcomes import EndedJob, median, quantile

REPORT_NAME: Final = "estimate_errors"
"""The name of the errors in the state, for ``Store.load_report``."""
MAX_COMPARED_JOBS: Final = 1_000
"""Jobs of each kind whose predicted and real seconds count, the newest."""


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """The factor, 1 or more, between predicted and real seconds of ended jobs; 2: twice or half as long.

    Attributes:
        samples: compared jobs, of each kind at most the last 1,000.
        median: median of the factor; null: no sample.
        p90: 0.9 quantile of the factor; null: no sample.
    """

    samples: int = 0
    median: float | None = None
    p90: float | None = None


class ErrorFactors:
    """The factors between predicted and real seconds of the last jobs, by kind, each with its time."""

    def __init__(self) -> None:
        self._by_kind: dict[EstimateKind, deque[tuple[datetime, float]]] = {
            kind: deque(maxlen=MAX_COMPARED_JOBS) for kind in EstimateKind
        }

    def add(self, factors: Iterable[tuple[EstimateKind, float]], now: datetime) -> bool:
        """Add the factors of jobs that ended shortly before *now*; return True if there are any."""
        has_any = False
        for kind, factor in factors:
            self._by_kind[kind].append((now, factor))
            has_any = True
        return has_any

    def by_kind(self, since: datetime | None = None) -> Mapping[EstimateKind, list[float]]:
        """Return the factors by kind, all or those that were counted since *since*."""
        return {
            kind: [factor for at, factor in pairs if since is None or at >= since]
            for kind, pairs in self._by_kind.items()
        }

    def summarize(self, since: datetime) -> Mapping[EstimateKind, ErrorSummary]:
        """Return the errors of jobs that were counted since *since*, by kind."""
        return {
            kind: ErrorSummary(len(factors), median(factors), quantile(factors, 0.9))
            for kind, each in self.by_kind(since).items()
            for factors in (sorted(each),)
        }

    def to_rows(self) -> dict[str, Any]:
        """Return the factors in JSON values: by kind a list of the time (Unix s) and the factor."""
        return {
            kind.value: [[to_unix(at), round(factor, 3)] for at, factor in pairs]
            for kind, pairs in self._by_kind.items()
        }

    @classmethod
    def of_rows(cls, rows: Mapping[str, Any]) -> "ErrorFactors":
        """Return the factors in *rows*; a row that another version of the daemon wrote is left out."""
        made = cls()
        for kind in EstimateKind:
            listed = rows.get(kind.value)
            for row in listed if isinstance(listed, list) else ():
                if isinstance(row, list) and len(row) == 2:
                    at, factor = valid_time(row[0]), valid_number(row[1])
                    if at is not None and factor is not None and factor >= 1:
                        made.add([(kind, float(factor))], at)
        return made


def find_runs(jobs: Iterable[EndedJob], samples: Iterable[TransferSample]) -> Iterator[EndedRun]:
    """Yield the runs of those of *jobs* that name datasets, have a known site, and started only once.

    *samples* have the reads that job wrappers measured.
    """
    reads: defaultdict[tuple[str, str], float] = defaultdict(float)
    for sample in samples:
        if sample.origin is TransferOrigin.WRAPPER:
            reads[sample.job, sample.destination] += sample.seconds
    for job in jobs:
        if job.datasets is None or job.site is None or job.wait_time is None or job.submitted_at is None:
            continue
        if job.first_started_at is None or job.last_started_at != job.first_started_at:
            continue
        submitted_at, started_at = to_unix(job.submitted_at), to_unix(job.first_started_at)
        read_seconds = reads.get((job.job_id or "", job.site))
        yield EndedRun(set_key(job.datasets), job.site, submitted_at, started_at, read_seconds)
