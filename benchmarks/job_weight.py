"""Weight of queued jobs in a schedd: 2,000 held jobs of 50 datasets each, in the forms that jobs can have."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import hash_key
from hydrator.submit.pool_config import schedd_config
from testbed.pool import Pool, SiteSpec

from .measure import cpu_with_children, find_daemon, memory
from .record import Figure, Result

KEYED_GOAL, KEYED_AD_GOAL = 1.3, 2000
UNIT_SEPARATOR = "\x1f"
"""condor_submit splits an item at it instead of at commas; not on 23.9."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One form of the jobs: its ``configuration`` of the schedd, and the attributes that the jobs carry."""

    name: str
    configuration: str = ""
    lists: bool = True
    keys: bool = False


PLAIN = Arm("no attribute of ours", lists=False)
LIST = Arm("the list of names alone")
WRAPPED = Arm(
    "the list, and one clause more in Requirements",
    """
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) BenchmarkClause
JOB_TRANSFORM_BenchmarkClause @=end
   SET Requirements ($(MY.Requirements)) && MY.BenchmarkClause
@end
""",
)
KEYED = Arm("keyed, by hydrator submit", schedd_config(Settings()), keys=True)
PLAINLY = Arm("plain", schedd_config(Settings()))
ARMS = (PLAIN, LIST, WRAPPED, KEYED, PLAINLY)
ROUNDS = {LIST: 5, KEYED: 5, PLAINLY: 5}
"""Each form is weighed once, and those of the goals in turn so many times; medians count."""


def submission(arm: Arm, jobs: int, datasets: int) -> str:
    """Build *jobs* held jobs of *datasets* datasets each; no two jobs have the same datasets."""
    lines = ["executable = /bin/true", "request_cpus = 1", "request_memory = 10", "request_disk = 1"]
    lines += ["hold = true"]
    if arm.lists:
        lines.append("+RequiredDatasets = $(list)")
    if arm.keys:
        lines += ['+DataLocalityKey = "$(key)"', '+DataLocalityKeyFor = "$(names)"']
    rows = []
    for job in range(jobs):
        names = [f"lofar:L{667_000 + job}_SAP000_SB{number:03}_uv" for number in range(datasets)]
        listed = "{" + ",".join(f'"{name}"' for name in names) + "}"
        key = (hash_key(names), ",".join(names)) if arm.keys else ()
        rows.append(UNIT_SEPARATOR.join((*key, listed)))
    variables = "key,names,list" if arm.keys else "list"
    return "\n".join([*lines, f"queue {variables} from (", *rows, ")", ""])


def weigh(arm: Arm, jobs: int, datasets: int) -> tuple[dict[str, float], str]:
    """Submit the jobs to a new schedd; return its growth and the time, and HTCondor's version."""
    extra = {"schedd": arm.configuration}
    release = os.environ.get("HYDRATOR_TEST_HTCONDOR")
    with Pool.start(release, [SiteSpec("UK", cpus=1)], extra) as pool:
        # a schedd keeps the memory of a transaction, twice the list, for the next one: so it has had one
        text = submission(arm, jobs, datasets)
        pool.run("condor_submit", "-terse", "-", user="alice", input=text, timeout=600)
        schedd = find_daemon(pool.pids("schedd"))
        log = next(Path(pool.home).rglob("job_queue.log"))
        before = memory(schedd, "Rss"), log.stat().st_size
        busy, begun = cpu_with_children(schedd), time.monotonic()
        submitted = pool.run("condor_submit", "-terse", "-", user="alice", input=text, timeout=600).stdout
        cluster = int(submitted.partition(".")[0])
        seconds = time.monotonic() - begun
        ad = pool.run("condor_q", f"{cluster}.0", "-long").stdout
        sample = {
            "schedd_mib": memory(schedd, "Rss") - before[0],
            "submit_seconds": seconds,
            "schedd_cpu_seconds": cpu_with_children(schedd) - busy,
            "ad_bytes": len(ad.strip()),
            "job_queue_mb": (log.stat().st_size - before[1]) / 1e6,
        }
        return sample, pool.version


def run(quick: bool = False) -> Result:
    """Weigh all forms, each in a pool of its own."""
    jobs, datasets = (100, 10) if quick else (2000, 50)
    rounds: dict[Arm, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    version = ""
    for number in range(1 if quick else max(ROUNDS.values())):
        for arm in ARMS:
            if number < ROUNDS.get(arm, 1):
                sample, version = weigh(arm, jobs, datasets)
                rounds[arm].append(sample)
    samples = {
        arm: {name: median(sample[name] for sample in several) for name in several[0]}
        for arm, several in rounds.items()
    }
    raw: Mapping[str, Any] = {arm.name: several for arm, several in rounds.items()}
    how = " ".join(HOW.split()).format(jobs=jobs, datasets=datasets)
    return Result("job_weight", tuple(figures(samples, jobs)), how, raw, {"HTCondor": version})


def figures(samples: Mapping[Arm, Mapping[str, float]], jobs: int) -> Sequence[Figure]:
    """Return the comparisons that have a goal, then the weight of every form."""
    listed, keyed, plainly = (samples[arm] for arm in (LIST, KEYED, PLAINLY))
    compared = [
        Figure("keyed jobs: schedd memory", keyed["schedd_mib"] / listed["schedd_mib"], "times", KEYED_GOAL),
        Figure(
            "keyed jobs: condor_submit",
            keyed["submit_seconds"] / listed["submit_seconds"],
            "times",
            KEYED_GOAL,
        ),
        Figure("keyed jobs: ad", keyed["ad_bytes"] - listed["ad_bytes"], "bytes more", KEYED_AD_GOAL),
        Figure(
            "plain jobs: schedd memory", plainly["schedd_mib"] / listed["schedd_mib"], "times", KEYED_GOAL
        ),
        Figure("plain jobs: ad", plainly["ad_bytes"] - listed["ad_bytes"], "bytes more", KEYED_AD_GOAL),
    ]
    for arm, sample in samples.items():
        compared += [
            Figure(f"schedd memory a job, {arm.name}", sample["schedd_mib"] * 1024 / jobs, "kB"),
            Figure(f"condor_submit of {jobs:,} jobs, {arm.name}", sample["submit_seconds"], "s"),
            Figure(f"schedd's CPU, {arm.name}", sample["schedd_cpu_seconds"], "s"),
            Figure(f"ad of a job, {arm.name}", sample["ad_bytes"], "bytes"),
            Figure(f"job_queue.log, {arm.name}", sample["job_queue_mb"], "MB"),
        ]
    return compared


HOW = """\
{jobs} held jobs, each with {datasets} other datasets (names of 30 characters), submitted by one
condor_submit to a schedd of its own for each form, which has as many of them already. Memory is the growth
of the schedd's resident memory, CPU is that of the schedd. Keyed jobs carry the list and what
`hydrator submit filter` adds. Plain jobs carry the list alone. Both are compared with jobs that carry the
list and no configuration of ours. condor_submit stores Requirements once for all jobs of a submission, with
the clause of the configuration; a transform stores them in each job, as one form shows. The list alone, the
keyed jobs and the plain jobs are weighed five times in turn, and the medians count. The pool configuration
has its defaults."""

__all__ = ["run"]
