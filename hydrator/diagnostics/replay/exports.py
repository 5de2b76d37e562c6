"""Exports of a replayed workload: the Standard Workload Format (SWF 2.2), and WfCommons' WfFormat 1.5.

SWF: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html, 18 columns, -1 for an unknown value.
WfFormat: https://github.com/wfcommons/WfFormat, wfcommons-schema.json. Pure: runs in, text out.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from hydrator.domain.model import from_unix

from .model import ReplayRun

WFFORMAT_VERSION = "1.5"
_NOT_IN_ID = re.compile(r"[^0-9a-zA-Z_./:-]")


def swf_lines(run: ReplayRun, version: str) -> Iterator[str]:
    """Yield the lines of *run* in SWF, in the order of submission.

    The partition is the number of the job's site, and the application the number of its class of jobs. The
    requested time is the computing time without reads. A job that never started has the status 5.

    Args:
        run: the run to export.
        version: the version of classad-hydrator.
    """
    workload = run.workload
    users = {name: number for number, name in enumerate(dict.fromkeys(c.user for c in workload.classes), 1)}
    yield "; Version: 2.2"
    yield "; Computer: a pool of HTCondor"
    yield f"; Conversion: hydrator replay {version}"
    yield f"; Information: policy {run.policy.name}, seed {run.seed}; replayed, not observed"
    yield f"; MaxJobs: {workload.job_count}"
    yield f"; MaxRecords: {workload.job_count}"
    yield "; Preemption: No"
    yield f"; UnixStartTime: {workload.begin_unix}"
    yield "; TimeZoneString: UTC"
    yield f"; MaxNodes: {sum(site.machine_count for site in workload.sites)}"
    yield f"; MaxProcs: {sum(site.cores for site in workload.sites)}"
    yield f"; MaxPartitions: {len(workload.sites)}"
    for number, site in enumerate(workload.sites, 1):
        yield f"; Partition: {number} {site.name}, {site.cores} cores"
    for job in range(workload.job_count):
        one = workload.classes[workload.class_of[job]]
        has_run = run.site_of[job] >= 0
        wait = round(run.started[job] - workload.submitted[job]) if has_run else -1
        wall = round(run.ended[job] - run.started[job]) if has_run else -1
        submitted, requested = round(workload.submitted[job]), round(workload.compute_seconds[job])
        numbers = (
            *(job + 1, submitted, wait, wall, one.cores if has_run else -1, -1, -1),
            *(one.cores, requested, -1, 1 if has_run else 5, users[one.user], -1),
            *(workload.class_of[job] + 1, -1, run.site_of[job] + 1 if has_run else -1, -1, -1),
        )
        yield " ".join(map(str, numbers))


def wfformat(run: ReplayRun, version: str) -> dict[str, Any]:
    """Return *run* as a workflow without dependencies, with the jobs that started as tasks.

    Args:
        run: the run to export.
        version: the version of classad-hydrator.

    Raises:
        ValueError: no job started; WfFormat needs a task.
    """
    workload = run.workload
    jobs = [job for job, site in enumerate(run.site_of) if site >= 0]
    if not jobs:
        raise ValueError("no job started, and WfFormat needs at least one task")
    sizes = {
        escape_id(data.name): data.byte_count for one in workload.classes for data in one.inputs if data.name
    }
    return {
        "name": f"hydrator-replay-{run.policy.name.replace(':', '-')}",
        "description": f"Jobs of a replay, policy {run.policy.name}, seed {run.seed}; replayed, not observed",
        "createdAt": _time_text(workload.begin_unix),
        "schemaVersion": WFFORMAT_VERSION,
        "runtimeSystem": {"name": "classad-hydrator replay", "version": version},
        "workflow": {
            "specification": {
                "tasks": [_specification(run, job) for job in jobs],
                "files": [{"id": name, "sizeInBytes": size} for name, size in sorted(sizes.items())],
            },
            "execution": {
                "makespanInSeconds": round(run.makespan_seconds, 3),
                "executedAt": _time_text(workload.begin_unix),
                "tasks": [_execution(run, job) for job in jobs],
                "machines": [
                    {"nodeName": escape_id(site.name), "cpu": {"coreCount": max(1, site.cores)}}
                    for site in workload.sites
                ],
            },
        },
    }


def escape_id(name: str) -> str:
    """Return *name* as an id of WfFormat: ``#`` and the code, as ``#40``, for each other character."""
    return _NOT_IN_ID.sub(lambda found: f"#{ord(found[0]):x}", name)


def _specification(run: ReplayRun, job: int) -> dict[str, Any]:
    one = run.workload.classes[run.workload.class_of[job]]
    names = [escape_id(data.name) for data in one.inputs if data.name]
    return {
        "name": f"job{job + 1}",
        "id": f"job{job + 1}",
        "parents": [],
        "children": [],
        "inputFiles": names,
    }


def _execution(run: ReplayRun, job: int) -> dict[str, Any]:
    workload = run.workload
    one, site = workload.classes[workload.class_of[job]], workload.sites[run.site_of[job]]
    return {
        "id": f"job{job + 1}",
        "runtimeInSeconds": round(run.ended[job] - run.started[job], 3),
        "executedAt": _time_text(workload.begin_unix + run.started[job]),
        "coreCount": one.cores,
        "readBytes": one.byte_count,
        "machines": [escape_id(site.name)],
    }


def _time_text(unix: float) -> str:
    moment: datetime = from_unix(unix)
    return moment.isoformat()
