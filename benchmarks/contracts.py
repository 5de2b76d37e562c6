"""Cost of contract 2 beside contract 1 for a negotiator and a collector, on both releases of HTCondor."""

import os
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hydrator import startd_cron
from hydrator.domain.ads.contract import contract_1
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.estimates import Estimates, SetEstimate, SiteEstimates
from hydrator.domain.model import Demand, DemandEntry, Did, Origin, Replica, ReplicaState, Site, from_unix
from hydrator.reconcile.evaluate import ReconcilePolicy, evaluate
from hydrator.reconcile.state import ReconcileState
from hydrator.submit.pool_config import (
    START_CLAUSE,
    PoolPolicy,
    negotiator_config,
    schedd_config,
    startd_config,
)
from hydrator.submit.submit_files.keys import CLAUSE_LINES
from testbed.pool import Pool, SiteSpec

from .job_weight import FORMER
from .material import SITES, dids, survey
from .negotiator import AUTOCLUSTERS, FAST, Running
from .record import Figure, Result, Spread, round_samples

GOAL = 1.0
DATASETS, SETS, BANDS = 100, 1000, 244
RELEASES = ("25.14", "23.9")


@dataclass(frozen=True, slots=True)
class Arm:
    """A compared pool: its contract, and the sets of datasets that its slot ads and its jobs name.

    ``sets`` many sets of ``size`` datasets each are demanded; the jobs ask for the first of them.
    """

    name: str
    contract: int
    sets: int = DATASETS // 2
    size: int = 2


FORMER_ARM, AGAIN, SAME = (
    Arm("contract 1, 100 datasets", 1),
    Arm("contract 1, 100 datasets, again", 1),
    Arm("contract 2, 100 datasets", 2),
)


def many_sets(sets: int) -> Arm:
    """Return the pool of contract 2 with so many observations."""
    return Arm(f"contract 2, {sets:,} sets of {BANDS} sub-bands", 2, sets, BANDS)


def demanded_sets(arm: Arm) -> list[tuple[Did, ...]]:
    """Return the sets of *arm*: neighbours in the catalogue, as the sub-bands of an observation are."""
    names = dids(arm.sets * arm.size)
    return [tuple(sorted(names[first : first + arm.size])) for first in range(0, len(names), arm.size)]


def site_lines(arm: Arm, now: datetime) -> dict[Site, str]:
    """Return the lines of the hook of each site: of each set the first dataset is staging there.

    The ads are those of the first site, with the name of the other site.
    """
    sets = demanded_sets(arm)
    demand = Demand(tuple(DemandEntry(one, 1, Origin.JOB, now) for one in sets))
    first = {one[0] for one in sets}

    def replicas(did: Did) -> list[Replica]:
        if did in first:
            return [Replica(did, SITES[0], ReplicaState.INCOMING, 0.4)]
        return [Replica(did, SITES[0], ReplicaState.COMPLETE, 1.0)]

    answers = {"catalogue": survey(((did, replicas(did)) for one in sets for did in one), now)}
    seconds = {set_key(one): SetEstimate(1024, 512, SITES[1]) for one in sets}
    estimates = Estimates(now + timedelta(days=1), {SITES[0]: SiteEstimates(seconds, 512)})
    ad = evaluate(
        ReconcileState(),
        answers,
        demand,
        published_generations={},
        policy=ReconcilePolicy(),
        now=now,
        make_estimates=lambda _: estimates,
    ).ads[SITES[0]]
    text = contract_1(ad).text if arm.contract == 1 else ad.text
    return {site: _hook_lines(text.replace(f'"{SITES[0]}"', f'"{site}"'), site) for site in SITES}


def _hook_lines(text: str, site: Site) -> str:
    read = startd_cron.read_ad(text.encode("ascii"), site, int(time.time()))
    printed = startd_cron.locality_block(read, is_update=False).decode("ascii").splitlines()
    return "".join(f"{line}\n" for line in printed if " = " in line)


def submission(arm: Arm) -> str:
    """Build 20 jobs, an autocluster each, that match nothing: no site has all datasets of their sets.

    Jobs of contract 2 have mode auto, and reading takes longer than the queue.
    """
    lines = ["executable = /bin/true", "request_cpus = 1", "request_memory = 10", "request_disk = 1"]
    lines += ["+RequiredDatasets = $(list)"]
    if arm.contract == 1:
        lines += ['+DataLocality = "require"']
    else:
        lines += [
            '+DataLocality = "auto"',
            "+DataLocalityMaxWait = 86400",
            '+DataLocalityKey = "$(key)"',
            *CLAUSE_LINES,
        ]
    rows = [
        f"{set_key(one)}, {{" + ",".join(f'"{did}"' for did in one) + "}"
        for one in demanded_sets(arm)[:AUTOCLUSTERS]
    ]
    return "\n".join([*lines, "queue key,list from (", *rows, ")", ""])


def configuration(arm: Arm) -> dict[str, str]:
    """Return the pool's configuration of the contract of *arm*, with short negotiation cycles."""
    if arm.contract == 1:
        texts = {"schedd": FORMER.read_text("utf-8"), "startd": f"START = ($(START)) && {START_CLAUSE}\n"}
        return {"all": "UPDATE_INTERVAL = 3600\n", **texts, "negotiator": FAST}
    return {
        "all": "UPDATE_INTERVAL = 3600\n",
        "schedd": schedd_config(PoolPolicy(), {}),
        "startd": startd_config({}),
        "negotiator": FAST + negotiator_config({}),
    }


def measure(release: str | None, slots: int, rounds: int, sets: int) -> tuple[dict[Arm, Running], str]:
    """Compare the arms on one release, cycle by cycle in turn."""
    with ExitStack() as stack:
        arms: dict[Arm, Running] = {}
        for arm in (FORMER_ARM, AGAIN, SAME, many_sets(sets)):
            pool = stack.enter_context(Pool.start(release, [SiteSpec(SITES[0], cpus=8)], configuration(arm)))
            lines = site_lines(arm, from_unix(time.time()))
            arms[arm] = Running(arm.name, pool, slots, lines.__getitem__, submission(arm))
            print(f"   {arm.name}: slot ads of {arms[arm].ad_bytes:,.0f} bytes", file=sys.stderr)
        for number in range(rounds):
            for running in list(arms.values())[:: 1 if number % 2 else -1]:
                running.cycle()
        for running in arms.values():
            running.weigh()
        return arms, pool.version


def run(quick: bool = False) -> Result:
    """Compare the contracts on both releases; on the one of HYDRATOR_TEST_HTCONDOR alone if that is set."""
    slots, rounds, sets = (40, 2, AUTOCLUSTERS) if quick else (200, 10, SETS)
    chosen = os.environ.get("HYDRATOR_TEST_HTCONDOR")
    releases = (chosen,) if chosen or quick else RELEASES
    all_figures: list[Figure] = []
    raw: dict[str, Any] = {}
    versions = []
    for release in releases:
        arms, version = measure(release, slots, rounds, sets)
        versions.append(version)
        all_figures += figures(arms, version, rounds)
        raw[version] = {arm.name: samples(running) for arm, running in arms.items()}
    how = " ".join(HOW.split()).format(slots=slots, rounds=rounds)
    return Result("contracts", tuple(all_figures), how, raw, {"HTCondor": " and ".join(versions)})


def samples(running: Running) -> dict[str, Any]:
    """Return what was measured in one pool."""
    return {
        "ad_bytes": round(running.ad_bytes),
        "cpu_seconds": {name: round_samples(values, 5) for name, values in running.cpu.items()},
        "collector_cpu_seconds": round(running.collector_cpu, 2),
        "pss_mib": {name: round(value, 1) for name, value in running.memory.items()},
    }


def figures(arms: Mapping[Arm, Running], version: str, rounds: int) -> list[Figure]:
    """Return ratios to contract 1, round by round, and then the values behind them."""
    found = []
    others = [arm for arm in arms if arm is not FORMER_ARM]
    for what, title in (
        ("Phase4", "matching (phase 4)"),
        ("Phase1", "reading ads (phase 1)"),
        ("cycle", "whole cycle"),
    ):
        for arm in others:
            pairs = zip(arms[arm].cpu[what], arms[FORMER_ARM].cpu[what], strict=True)
            spread = Spread.of([ours / former for ours, former in pairs])
            goal = GOAL if what == "Phase4" and arm.contract == 2 else None
            note = f"{spread.least:.2f} to {spread.most:.2f} in {rounds} rounds"
            found.append(Figure(f"{version}: {title}, {arm.name}", spread.p50, "times", goal, note))
    for arm in (arm for arm in others if arm.contract == 2):
        ratio = arms[arm].ad_bytes / arms[FORMER_ARM].ad_bytes
        found.append(Figure(f"{version}: slot ad, {arm.name}", ratio, "times", GOAL))
        heavier = arms[arm].memory["collector"] / arms[FORMER_ARM].memory["collector"]
        found.append(Figure(f"{version}: collector's memory, {arm.name}", heavier, "times"))
    for arm, running in arms.items():
        cost = {name: statistics.median(values) * 1000 for name, values in running.cpu.items()}
        found += [
            Figure(f"{version}: CPU of matching, {arm.name}", cost["Phase4"], "ms"),
            Figure(f"{version}: CPU of a cycle, {arm.name}", cost["cycle"], "ms"),
            Figure(f"{version}: slot ad, {arm.name}", running.ad_bytes, "bytes"),
        ]
    return found


HOW = """\
{slots} ads of partitionable slots at 20 sites (copies of a real startd's ad) in a real collector, as in
the benchmark negotiator. Contract 1: the ads have what an older hook prints for 100 demanded datasets,
and 20 idle jobs of two datasets each have the former expressions (mode require). Contract 2: the ads have
what the hook prints, with estimates for each set, and 20 idle jobs with keys have mode auto. One pool has
the same 100 datasets, as 50 sets of two; the other has 1,000 sets of 244 sub-bands. No job matches: no site
has all datasets of a set, and reading takes longer than the queue. Each job is an autocluster. All pools of
one release run side by side, with their negotiators stopped (SIGSTOP) except in one cycle each in turn,
{rounds} rounds. A ratio is the median of the rounds' ratios of CPU seconds, which the negotiator itself
measures. `again` shows the noise. A slot ad counts as text; of lists and records in it the collector stores
one copy for each site (HTCondor's ClassAd cache)."""

__all__ = ["run"]
