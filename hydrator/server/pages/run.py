"""Page of one run, of the jobs that need one set of datasets, or of a cluster: how far they are."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hydrator.diagnostics.overview.runs import RunProgress
from hydrator.domain.ads.openings import Openings, describe_outlook
from hydrator.domain.model import Unseen
from hydrator.domain.ports import ClusterJobs
from hydrator.server.limits import TURN_WAIT_SECONDS, QuestionQueue

from .html import build_bar, render_page

CLUSTER_PATTERN: Final = re.compile(r"[0-9]{1,10}\Z")
ClusterReader = Callable[[int, str | None], Mapping[str, ClusterJobs | Unseen]]
"""Reads the jobs of a cluster, at all schedds or at one; returns schedds with jobs and silent ones."""
_KEEP_SECONDS: Final = 5.0
_MAX_KEPT: Final = 100
_MAX_BURST: Final = 10


@dataclass(eq=False)
class ClusterQuestions:
    """Questions about clusters, which the schedds answer; an answer is kept for some seconds.

    Attributes:
        read: reads a cluster.
        monotonic: seconds that never go back.
        wait_seconds: the longest wait for the questions of other clients.
    """

    read: ClusterReader
    monotonic: Callable[[], float] = time.monotonic
    wait_seconds: float = TURN_WAIT_SECONDS
    _answers: OrderedDict[tuple[int, str | None], tuple[float, Mapping[str, ClusterJobs | Unseen]]] = field(
        init=False, default_factory=OrderedDict
    )
    _queue: QuestionQueue = field(init=False)

    def __post_init__(self) -> None:
        busy = "the daemon asks the schedds about other clusters"
        self._queue = QuestionQueue(busy, _MAX_BURST, self.monotonic, self.wait_seconds)

    def ask(self, client: Hashable, cluster: int, schedd: str | None) -> Mapping[str, ClusterJobs | Unseen]:
        """Return the schedds with jobs of *cluster*, and the silent ones.

        Raises:
            HttpError: the questions of others take too long, or there were too many of this *client*.
            PoolError: the collector did not list the schedds.
        """
        until, answer = self._answers.get((cluster, schedd), (0.0, {}))
        if self.monotonic() < until:
            return answer
        return self._queue.ask(client, lambda: self._read(cluster, schedd))

    def _read(self, cluster: int, schedd: str | None) -> Mapping[str, ClusterJobs | Unseen]:
        """Ask the schedds, unless they answered while this question waited for its turn."""
        until, answer = self._answers.get((cluster, schedd), (0.0, {}))
        if self.monotonic() >= until:
            answer = self.read(cluster, schedd)
            self._answers.pop((cluster, schedd), None)
            self._answers[cluster, schedd] = (self.monotonic() + _KEEP_SECONDS, answer)
            if len(self._answers) > _MAX_KEPT:
                self._answers.popitem(last=False)
        return answer


def render_run_page(
    progress: RunProgress,
    openings: Openings | None,
    *,
    note: str = "",
    kind: str = "Run",
    version: str | None = None,
) -> str:
    """Render the page of *progress*; *note* is a sentence that limits what it says."""
    elsewhere_count = progress.running_count - progress.beside_count
    idle_count = progress.job_count - progress.running_count
    bar = build_bar({"bar": progress.beside_count, "move": elsewhere_count, "rest": idle_count})
    rows = [(each, describe_outlook(each.key, openings) if openings else "") for each in progress.waiting]
    return render_page(
        "run.html",
        f"{kind} {progress.name}",
        version=version,
        now=progress.as_of,
        progress=progress,
        rows=rows,
        note=note,
        bar=bar,
    )
