"""Weight of queued jobs in a schedd: 2,000 held jobs of 50 datasets each, in the forms that jobs can have.

And their autoclusters: jobs that come one a second, half of them with data.
"""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import hash_key
from hydrator.domain.model import Did
from hydrator.submit.pool_config import schedd_config
from testbed.pool import Pool, SiteSpec

from .measure import cpu_with_children, find_daemon, memory
from .record import Figure, Result

RELEASES = ("25.14", "23.9")
KEYED_GOAL, KEYED_AD_GOAL = 1.3, 2000
SETS = 4
"""Sets of datasets of the jobs which are counted in autoclusters; each job has one by chance."""


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
COMPARED = (LIST, KEYED, PLAINLY)
ROUNDS = 3
"""Each form is weighed once, and those of the goals in turn so many times; medians count."""


def description(arm: Arm, names: Sequence[str], key: str) -> list[str]:
    """Return the lines of a job with the datasets *names*, in the form *arm*."""
    lines = []
    if arm.lists:
        lines.append("+RequiredDatasets = {" + ",".join(f'"{name}"' for name in names) + "}")
    if arm.keys:
        lines += [f'+DataLocalityKey = "{key}"', f'+DataLocalityKeyFor = "{",".join(names)}"']
    return lines


def names_of(observation: int | str, datasets: int) -> list[str]:
    return [f"lofar:L{observation}_SAP000_SB{band:03}_uv" for band in range(datasets)]


def key_of(observation: int, datasets: int) -> str:
    return hash_key([Did(name) for name in names_of(observation, datasets)])


def submission(arm: Arm, jobs: int, datasets: int) -> str:
    """Build *jobs* held jobs of *datasets* datasets each; no two jobs have the same datasets."""
    lines = ["executable = /bin/true", "request_cpus = 1", "request_memory = 10", "request_disk = 1"]
    lines += ["hold = true", *description(arm, names_of("$(observation)", datasets), "$(key)")]
    rows = [f"{number},{key_of(number, datasets)}" for number in range(667_000, 667_000 + jobs)]
    return "\n".join([*lines, "queue observation,key from (", *rows, ")", ""])


def weigh(release: str, arm: Arm, jobs: int, datasets: int) -> tuple[dict[str, float], str]:
    """Submit the jobs to a new schedd; return its growth and the time, and HTCondor's version."""
    extra = {"schedd": arm.configuration}
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


def count_autoclusters(release: str, arm: Arm, jobs: int, datasets: int) -> dict[str, int]:
    """Submit *jobs*, half of them with one of SETS; return their autoclusters and what makes them.

    They have the ends of waits of jobs that come one a second: the transform adds 2 s to the time for each
    job with data.
    ``pairs`` are the keys times the lanes that occur, ``ends`` the ends of waits.
    """
    later = arm.configuration.replace("(time() + ", "(time() + 2 * ProcId + ")
    assert arm is PLAIN or later != arm.configuration, "the text has no end of a wait"
    head = ["executable = /bin/true", "request_memory = 10 TB"]  # no slot has so much
    chosen = random.Random(1).choices(range(SETS), k=jobs // 2)
    rows = [f"{number},{key_of(number, datasets)}" for number in chosen]
    keyed = [*head, *description(arm, names_of("$(observation)", datasets), "$(key)")]
    with Pool.start(release, [SiteSpec("UK", cpus=1)], {"schedd": later}) as pool:
        for lines in (
            [*head, f"queue {jobs - len(rows)}"],
            [*keyed, "queue observation,key from (", *rows, ")"],
        ):
            text = "\n".join([*lines, ""])
            pool.run("condor_submit", "-terse", "-", user="alice", input=text, timeout=600)
        names = ("AutoClusterId", "DataLocalityKey", "DataLocalityLane", "DataLocalityAnyAfter")

        def clustered() -> list[dict[str, Any]]:
            ads = pool.jobs("true", *names)
            return ads if all("AutoClusterId" in ad for ad in ads) else []

        ads = pool.wait(clustered, "all jobs to be in autoclusters")
        with_key = [ad for ad in ads if "DataLocalityKey" in ad]
        return {
            "autoclusters": len({ad["AutoClusterId"] for ad in ads}),
            "pairs": len({(ad["DataLocalityKey"], ad["DataLocalityLane"]) for ad in with_key}),
            "ends": len({ad["DataLocalityAnyAfter"] for ad in with_key}),
        }


def run(quick: bool = False) -> Result:
    """Weigh all forms and count their autoclusters, each in a pool of its own."""
    jobs, datasets = (100, 10) if quick else (2000, 50)
    found: list[Figure] = []
    raw: dict[str, Any] = {}
    versions: dict[str, str] = {}
    for release in RELEASES:
        rounds: dict[Arm, list[dict[str, float]]] = {arm: [] for arm in ARMS}
        for number in range(1 if quick else ROUNDS):
            for arm in COMPARED if number else ARMS:
                sample, versions[release] = weigh(release, arm, jobs, datasets)
                rounds[arm].append(sample)
        clusters = {
            arm: count_autoclusters(release, arm, jobs, 2 if arm is PLAINLY else datasets)
            for arm in (PLAIN, KEYED, PLAINLY)
        }
        samples = {
            arm: {name: median(sample[name] for sample in several) for name in several[0]}
            for arm, several in rounds.items()
        }
        found += [
            replace(figure, name=f"{release}, {figure.name}")
            for figure in (*figures(samples, jobs), *cluster_figures(clusters, jobs))
        ]
        raw[release] = {arm.name: several for arm, several in rounds.items()}
        raw[release] |= {f"autoclusters, {arm.name}": counts for arm, counts in clusters.items()}
    how = " ".join(HOW.split()).format(jobs=jobs, datasets=datasets, sets=SETS)
    return Result("job_weight", tuple(found), how, raw, {"HTCondor": " and ".join(versions.values())})


def cluster_figures(clusters: Mapping[Arm, Mapping[str, int]], jobs: int) -> Sequence[Figure]:
    """Return the autoclusters of *jobs* jobs: as many as of a stock pool, and keys times lanes beyond it."""
    stock = clusters[PLAIN]["autoclusters"]
    return [
        Figure(
            f"autoclusters of {jobs} jobs, {arm.name}",
            counts["autoclusters"],
            "",
            None if arm is PLAIN else stock + counts["pairs"],
            "" if arm is PLAIN else f"{counts['pairs']} keys times lanes, {counts['ends']} ends of waits",
        )
        for arm, counts in clusters.items()
    ]


def figures(samples: Mapping[Arm, Mapping[str, float]], jobs: int) -> Sequence[Figure]:
    """Return the comparisons that have a goal, then the weight of every form."""
    listed = samples[LIST]
    compared = []
    for word, arm in (("keyed", KEYED), ("plain", PLAINLY)):
        one = samples[arm]
        memory_ratio, submit_ratio = (one[name] / listed[name] for name in ("schedd_mib", "submit_seconds"))
        more = one["ad_bytes"] - listed["ad_bytes"]
        compared += [
            Figure(f"{word} jobs: schedd memory", memory_ratio, "times", KEYED_GOAL),
            Figure(f"{word} jobs: condor_submit", submit_ratio, "times", KEYED_GOAL),
            Figure(f"{word} jobs: ad", more, "bytes more", KEYED_AD_GOAL),
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
keyed jobs and the plain jobs are weighed three times in turn, and the medians count. The pool configuration
has its defaults. Autoclusters are counted of {jobs} idle jobs, half of them with one of {sets} sets: without
configuration, keyed ({datasets} datasets) and plain (2 datasets). They are submitted at once, with the ends
of waits of jobs that come one a second: the transform adds 2 s to the time for each job with data. The goal
is as many as without configuration, and the keys times the lanes that occur."""

__all__ = ["run"]
