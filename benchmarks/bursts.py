"""Bursts of jobs that only prefer their data: the sites where they run, by the negotiator's slot packing."""

import os
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta

from hydrator.submit.pool_config import PoolPolicy, negotiator_config, schedd_config
from testbed.debian import SUITES
from testbed.pool import Pool, SiteSpec

from .record import Figure, Result, round_samples

DATASETS = {"UK": "ska:a", "AU": "ska:b", "NL": "ska:c"}
"""The only dataset of each site."""
EACH = 10
"""Jobs for each dataset."""
CORES = 10
"""CPUs of each site: enough for all jobs whose data it has."""
FAR = 10**9
"""Seconds into the future: facts of this age are fresh as long as the benchmark runs."""
LEFTOVERS = "SCHEDD.CLAIM_PARTITIONABLE_LEFTOVERS = False\n"
"""The schedd requests the rest of a slot; the startds do not need this setting."""
DEPTH = "NEGOTIATOR_DEPTH_FIRST = True\n"


@dataclass(slots=True)
class Arm:
    """One way of packing: extra configuration, and whether jobs may leave their data at once."""

    name: str
    config: str = ""
    soft: bool = True
    beside: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def arms() -> list[Arm]:
    """Return the ways of packing; the first one is the baseline."""
    return [
        Arm("as HTCondor comes"),
        Arm("NEGOTIATOR_DEPTH_FIRST", DEPTH),
        Arm("CLAIM_PARTITIONABLE_LEFTOVERS = False", LEFTOVERS),
        Arm("both", DEPTH + LEFTOVERS),
        Arm("as HTCondor comes, jobs still settle", soft=False),
    ]


def site(name: str) -> SiteSpec:
    """Build a site whose slots advertise, like a hook, its own dataset."""
    names = "GLIDEIN_Site DataLocalitySets DataLocalityAsOf"
    attributes = {
        "STARTD_ATTRS": names,
        "DataLocalitySets": f"['{DATASETS[name]}' = 1.0]",
        "DataLocalityAsOf": str(int(time.time()) + FAR),
    }
    return SiteSpec(name, cpus=CORES, memory=128 * CORES, extra=attributes)


def start(stack: ExitStack, release: str, arm: Arm) -> Pool:
    """Start a pool that packs as *arm* says, with the printed configuration of a pool."""
    policy = PoolPolicy(default_mode="wait", rounding_floor=timedelta(seconds=1))
    extra = {
        "all": arm.config,
        "schedd": schedd_config(policy, {}),
        "negotiator": negotiator_config({}),
    }
    return stack.enter_context(Pool.start(release, [site(name) for name in DATASETS], extra))


def burst(pool: Pool, arm: Arm) -> tuple[int, float]:
    """Run one burst; return how many jobs ran beside their data, and the seconds until the last one ended."""
    wait = "+DataLocalityMaxWait = 0\n" if arm.soft else ""
    rows = "\n".join(DATASETS.values())
    items = "\n".join([rows] * EACH)
    cluster = pool.submit(
        "executable = /bin/sleep\narguments = 4\ntransfer_executable = False\nhold = True\n"
        "request_cpus = 1\nrequest_memory = 32\nrequest_disk = 1\n"
        f'+DataLocality = "prefer"\n+RequiredDatasets = {{"$(did)"}}\n{wait}queue did from (\n{items}\n)\n'
    )
    jobs = EACH * len(DATASETS)
    ad = pool.job(cluster, "DataLocalityAnyAfter") or {}
    if arm.soft:
        pool.wait(lambda: time.time() > int(ad["DataLocalityAnyAfter"]), 15, "the jobs to have settled")
    begun = time.monotonic()
    pool.run("condor_release", str(cluster))
    pool.wait(lambda: pool.done(cluster, jobs), 300, f"{jobs} jobs to end")
    seconds = time.monotonic() - begun
    history = pool.history(f"ClusterId == {cluster}", "RequiredDatasets", "LastRemoteHost")
    at_data = sum(
        [DATASETS[job["LastRemoteHost"].split("@")[1]]] == job["RequiredDatasets"] for job in history
    )
    return at_data, seconds


def releases() -> list[str]:
    """Return the releases that tests name, else all of the testbed."""
    return (os.environ.get("HYDRATOR_TEST_HTCONDOR") or ",".join(SUITES)).split(",")


def run(quick: bool = False) -> Result:
    """Compare the arms on each release; in each round all pools run a burst at the same time."""
    rounds = 1 if quick else 3
    raw, all_figures, versions = {}, [], {}
    for release in releases():
        compared = arms()[:2] if quick else arms()
        with ExitStack() as stack:
            pools = [(arm, start(stack, release, arm)) for arm in compared]
            for _ in range(rounds):
                with ThreadPoolExecutor(len(pools)) as threads:
                    done = threads.map(lambda pair: burst(pair[1], pair[0]), pools)
                    for (arm, _pool), (beside, seconds) in zip(pools, done, strict=True):
                        arm.beside.append(beside)
                        arm.seconds.append(seconds)
            version = pools[0][1].version
        versions[f"HTCondor {release}"] = version
        all_figures += figures(compared, version)
        raw[version] = {arm.name: samples(arm) for arm in compared}
    how = " ".join(HOW.split()).format(rounds=rounds, jobs=EACH * len(DATASETS))
    return Result("bursts", tuple(all_figures), how, raw, versions)


def samples(arm: Arm) -> Mapping[str, object]:
    """Return the samples of each round."""
    return {"beside": arm.beside, "seconds": round_samples(arm.seconds, 1)}


def figures(compared: list[Arm], version: str) -> list[Figure]:
    """Return for each arm the jobs beside their data, and the ratios of time to the first arm."""
    jobs = EACH * len(DATASETS)
    all_figures = []
    for arm in compared:
        beside, pairs = arm.beside, zip(arm.seconds, compared[0].seconds, strict=True)
        slower = statistics.median(ours / plain for ours, plain in pairs)
        note = (
            f"{min(beside)} to {max(beside)}; {statistics.median(arm.seconds):.0f} s until the last job"
            f" ended, {slower:.2f} times the first"
        )
        name = f"{version}, beside their data, {arm.name}"
        all_figures.append(Figure(name, statistics.median(beside), f"of {jobs}", note=note))
    return all_figures


HOW = """\
Three sites of ten cores have one dataset each, and {jobs} jobs of 4 s, ten for each dataset in turn,
prefer it; all are released at once. The pools have what `pool-config` prints for the schedd and the
negotiator, and differ in how slots are packed. In each of {rounds} rounds all pools of one release run a
burst at the same time, so that they share whatever the machine does; the ratios of their times say more
than the seconds. In all but the last arm the jobs may leave their data at once (DataLocalityMaxWait = 0),
as those of a real burst may after 10 minutes; in the last one they settle, as they do by default. The
negotiator's interval is 5 s instead of 60 s: what needs a cycle more costs a pool with the default up to
twelve times as much. Beside their data is counted from LastRemoteHost."""

__all__ = ["run"]
