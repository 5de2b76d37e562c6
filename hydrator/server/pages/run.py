"""Page of one run, of the jobs that need one set of datasets, or of a cluster: how far they are."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from hydrator.diagnostics.overview.runs import RunProgress
from hydrator.domain.ads.openings import Openings, describe_outlook
from hydrator.domain.model import Unseen
from hydrator.domain.ports import ClusterJobs

from .html import build_bar, render_page

CLUSTER_PATTERN: Final = re.compile(r"[0-9]{1,10}\Z")
ClusterReader = Callable[[int, str | None], Mapping[str, ClusterJobs | Unseen]]
"""Reads the jobs of a cluster, at all schedds or at one; returns schedds with jobs and silent ones."""


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
