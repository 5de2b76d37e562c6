"""Cost of 200,000 slots at 20 sites for a collector: a real one, with as many as fit into memory."""

import os
import statistics
import time
from collections.abc import Sequence

from hydrator.domain.model import from_unix
from hydrator.submit.pool_config import startd_config
from testbed.pool import Pool, SiteSpec

from .material import SITES, busy_site_ads
from .measure import cpu_with_children, memory
from .negotiator import DATASETS, OURS, PLAIN, Arm, real_slot_ad, slot_ads
from .record import Figure, Result

SLOTS = 200_000
UPDATE_SECONDS = 300
SLOT_BYTES = 40 * 1024
"""Bytes a slot: twice those in a collector."""
BATCH = 2_000
LONG = "UPDATE_INTERVAL = 3600\n"


def steps(arm: Arm, counts: Sequence[int]) -> tuple[list[dict[str, float]], str]:
    """Measure the collector's memory, and its CPU for receiving each ad again, by number of slot ads."""
    started = Pool.start(
        os.environ.get("HYDRATOR_TEST_HTCONDOR"),
        [SiteSpec(SITES[0], cpus=1)],
        {"all": LONG, "startd": startd_config({})},
    )
    samples = []
    with started as pool:
        ads = busy_site_ads(DATASETS, from_unix(time.time())).ads
        collector = pool.pids("collector")[0]
        real = real_slot_ad(pool)
        for count in counts:
            for _ in range(2):  # the second time each ad replaces one, as in a pool that runs
                before = cpu_with_children(collector)
                for first in range(0, count, BATCH):
                    text = slot_ads(real, arm, range(first, min(first + BATCH, count)), ads)
                    pool.run("condor_advertise", "-multiple", "UPDATE_STARTD_AD", input=text, timeout=300)
                pool.wait(lambda: len(pool.slots("Name")) == count + 1, 120, "all slot ads")  # noqa: B023
            spent = cpu_with_children(collector) - before
            samples.append({"slots": count, "mib": memory(collector, "Rss"), "cpu_seconds": spent})
        return samples, pool.version


def max_slot_count() -> int:
    """Return the number of slots that fit into half of the free memory; SLOTS at most."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(SLOTS, free // 2 // SLOT_BYTES)


def line(samples: Sequence[dict[str, float]], what: str) -> tuple[float, float, float]:
    """Fit a line by least squares; return offset, slope, and the largest relative deviation (0 to 1)."""
    slots, values = [one["slots"] for one in samples], [one[what] for one in samples]
    slope, first = statistics.linear_regression(slots, values)
    worst = max(abs(first + slope * n - v) / v for n, v in zip(slots, values, strict=True))
    return first, slope, worst


def run(quick: bool = False) -> Result:
    """Compare slots with and without the attributes, each in a pool of its own."""
    max_slots = max_slot_count()
    counts = (100, 200, 400) if quick else (max_slots // 8, max_slots // 4, max_slots // 2, max_slots)
    figures, raw = [], {}
    for arm in (PLAIN, OURS):
        found, version = steps(arm, counts)
        raw[arm.name] = found
        first, slope, worst = line(found, "mib")
        fit = f"{first:.0f} MiB + {slope * 1024:.1f} KiB a slot; it misses no count by more than {worst:.0%}"
        cpu = found[-1]["cpu_seconds"] / found[-1]["slots"]
        figures += [
            Figure(f"collector, {counts[-1]:,} slots, measured, {arm.name}", found[-1]["mib"], "MiB"),
            Figure(
                f"collector, {SLOTS:,} slots, by the line, {arm.name}", first + slope * SLOTS, "MiB", note=fit
            ),
            Figure(
                f"collector's CPU, {SLOTS:,} slots that update each {UPDATE_SECONDS} s, {arm.name}",
                cpu * SLOTS / UPDATE_SECONDS,
                "cores",
                note=f"{cpu * 1e6:.0f} µs an update, with the queries that counted them",
            ),
        ]
    return Result("slots", tuple(figures), " ".join(HOW.split()), raw, {"HTCondor": version})


HOW = f"""\
Copies of a real startd's ad at 20 sites, with names and addresses of their own, sent to a real collector
by condor_advertise, twice for each count; with the attributes each has the hook's output for {DATASETS}
datasets. Memory is the collector's resident memory after the second time, CPU its own for receiving all
ads that time. The line is the least-squares fit through all counts, as many as half of the free memory
allows; its value for {SLOTS:,} slots is an extrapolation where fewer were measured. No slot runs a job."""
"""Description of the method in the result."""
