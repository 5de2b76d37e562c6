"""Page of one run, of the jobs that need one set of datasets, or of a cluster: how far they are."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hydrator.diagnostics.overview.runs import RunProgress
from hydrator.domain.ads.openings import Openings, describe_outlook
from hydrator.domain.model import Unseen
from hydrator.domain.ports import ClusterJobs
from hydrator.server.limits import RateLimiter
from hydrator.server.responses import busy_error

from .html import PageContext, build_bar, render_page

CLUSTER_PATTERN: Final = re.compile(r"[0-9]{1,10}\Z")
ClusterReader = Callable[[int, str | None], Mapping[str, ClusterJobs | Unseen]]
"""Reads the jobs of a cluster, at all schedds or at one; returns schedds with jobs and silent ones."""
_KEEP_SECONDS: Final = 5.0
_MAX_KEPT: Final = 100
_QUESTIONS_PER_SECOND: Final = 0.5
_MAX_BURST: Final = 10
_BUSY: Final = "the daemon asks the schedds about other clusters"


@dataclass(eq=False)
class ClusterQuestions:
    """Questions about clusters: one at a time, and few, because the schedds answer each of them.

    Attributes:
        read: reads a cluster.
        monotonic: seconds that never go back.
    """

    read: ClusterReader
    monotonic: Callable[[], float] = time.monotonic
    _answers: OrderedDict[tuple[int, str | None], tuple[float, Mapping[str, ClusterJobs | Unseen]]] = field(
        init=False, default_factory=OrderedDict
    )
    _limiter: RateLimiter = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._limiter = RateLimiter(_QUESTIONS_PER_SECOND, _MAX_BURST, self.monotonic)

    def ask(self, cluster: int, schedd: str | None) -> Mapping[str, ClusterJobs | Unseen]:
        """Return the schedds with jobs of *cluster*, and the silent ones; an answer is kept for some seconds.

        Raises:
            HttpError: the daemon asks about another cluster, or there were too many questions.
            PoolError: the collector did not list the schedds.
        """
        if not self._lock.acquire(blocking=False):
            raise busy_error(_BUSY, _KEEP_SECONDS)
        try:
            known = self._answers.get((cluster, schedd))
            if known and self.monotonic() < known[0]:
                return known[1]
            if wait_seconds := self._limiter.take("schedds"):
                raise busy_error(_BUSY, wait_seconds)
            answer = self.read(cluster, schedd)
            self._answers.pop((cluster, schedd), None)
            self._answers[cluster, schedd] = (self.monotonic() + _KEEP_SECONDS, answer)
            if len(self._answers) > _MAX_KEPT:
                self._answers.popitem(last=False)
            return answer
        finally:
            self._lock.release()


def render_run_page(
    progress: RunProgress,
    openings: Openings | None,
    *,
    note: str = "",
    kind: str = "Run",
    context: PageContext | None = None,
) -> str:
    """Render the page of *progress*; *note* is a sentence that limits what it says."""
    elsewhere_count = progress.running_count - progress.beside_count
    idle_count = progress.job_count - progress.running_count
    bar = build_bar({"bar": progress.beside_count, "move": elsewhere_count, "rest": idle_count})
    rows = [(each, describe_outlook(each.key, openings) if openings else "") for each in progress.waiting]
    return render_page(
        "run.html",
        f"{kind} {progress.name}",
        context=context,
        now=progress.as_of,
        progress=progress,
        rows=rows,
        note=note,
        bar=bar,
    )
