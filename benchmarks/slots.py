"""What 200,000 slots at 20 sites cost a collector: a real one with as many as this machine holds."""

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
"""Twice what a collector keeps of a slot."""
BATCH = 2_000
LONG = "UPDATE_INTERVAL = 3600\n"


def steps(arm: Arm, counts: Sequence[int]) -> tuple[list[dict[str, float]], str]:
    """By number of slot ads: the collector's memory, and its CPU for taking each ad once more."""
    started = Pool.start(
        os.environ.get("HYDRATOR_TEST_HTCONDOR"),
        [SiteSpec(SITES[0], cpus=1)],
        {"all": LONG, "startd": startd_config({})},
    )
    found = []
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
            found.append({"slots": count, "mib": memory(collector, "Rss"), "cpu_seconds": spent})
        return found, pool.version


def most() -> int:
    """How many slots this machine's memory holds, half of what is free; SLOTS at most."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(SLOTS, free // 2 // SLOT_BYTES)


def line(found: Sequence[dict[str, float]], what: str) -> tuple[float, float, float]:
    """What none and each slot cost, by least squares, and how far the worst is from the line (0 to 1)."""
    slots, values = [one["slots"] for one in found], [one[what] for one in found]
    slope, first = statistics.linear_regression(slots, values)
    worst = max(abs(first + slope * n - v) / v for n, v in zip(slots, values, strict=True))
    return first, slope, worst


def run(quick: bool = False) -> Result:
    """With us and without, each in a pool of its own."""
    held = most()
    counts = (100, 200, 400) if quick else (held // 8, held // 4, held // 2, held)
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
Copies of a real startd's ad at 20 sites, with names and addresses of their own, sent to a real collector by
condor_advertise, twice for each count; with us each carries what the hook prints for {DATASETS} datasets.
Memory is what the collector has resident after the second time, CPU its own for taking all ads that time.
The line is the least-squares one through all counts, as many as half of the free memory holds; what it says
of {SLOTS:,} slots is an extrapolation where fewer were measured. No slot runs a job."""
"""What was done."""
