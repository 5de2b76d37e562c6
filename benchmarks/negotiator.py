"""Cost of the attributes for a negotiator and a collector: 2,000 slots, 100 demanded datasets of 100,000."""

import json
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from hydrator import startd_cron
from hydrator.config import Settings
from hydrator.domain.model import Site, SiteAd, from_unix
from hydrator.submit.pool_config import negotiator_config, schedd_config, startd_config
from testbed.pool import Pool, SiteSpec

from .material import SITES, busy_site_ads, dids
from .measure import cpu_with_children, find_daemon, memory, wait
from .record import Figure, Result, Spread, round_samples

CYCLE_GOAL, MEMORY_GOAL = 1.1, 1.2
AUTOCLUSTERS = 20
DATASETS = 100
PHASES = ("Phase1", "Phase2", "Phase3", "Prefetch", "Phase4")
FAST = """
NEGOTIATOR_INTERVAL = 3
NEGOTIATOR_MIN_INTERVAL = 3
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_UPDATE_AFTER_CYCLE = True
NEGOTIATOR_UPDATE_INTERVAL = 3600
"""
PATIENT = """
UPDATE_INTERVAL = 3600
# else the master kills a negotiator that was stopped for an hour, while the other pools had their cycles
NOT_RESPONDING_TIMEOUT = 86400
"""


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the compared pools.

    ``ours``: its slots carry the attributes; ``jobs``: requirements of its jobs; ``without``: an omitted
    attribute; ``parentheses``: True if each list and record is in parentheses, None for the hook's format.
    """

    name: str
    ours: bool
    jobs: str
    without: str = ""
    parentheses: bool | None = None


PLAIN, AGAIN, OURS, MEMBER, BARE, ENCLOSED, LEAN = ARMS = (
    Arm("without us", ours=False, jobs="site"),
    Arm("without us, again", ours=False, jobs="site"),
    Arm("with us", ours=True, jobs="ours"),
    Arm("with us, member()", ours=True, jobs="member"),
    Arm("with us, lists and records bare", ours=True, jobs="ours", parentheses=False),
    Arm("with us, lists and records in parentheses", ours=True, jobs="ours", parentheses=True),
    Arm(
        "with us, the same, no AvailableDatasets", True, "ours", without="AvailableDatasets", parentheses=True
    ),
)


class Running:
    """The pool of one arm. Its negotiator is stopped (SIGSTOP) except in measured cycles."""

    def __init__(self, arm: Arm, pool: Pool, slots: int, ads: Mapping[Site, SiteAd]) -> None:
        self.arm = arm
        self.cpu: dict[str, list[float]] = {name: [] for name in ("cycle", *PHASES)}
        self.collector_cpu = 0.0
        self.memory: dict[str, float] = {}
        self._pool = pool
        self.memory["collector, empty"] = memory(self._pid("collector"))
        text = slot_ads(real_slot_ad(pool), arm, range(slots), ads)
        self.ad_bytes = len(text) / slots
        for _ in range(3):  # as in a pool that has run for a while: every ad has been replaced
            pool.run("condor_advertise", "-multiple", "UPDATE_STARTD_AD", input=text, timeout=300)
        pool.wait(lambda: len(pool.slots("Name")) == slots + 1, "all slot ads in the collector")
        pool.submit(submission(arm))
        pool.wait(
            lambda: pool.logs("negotiator").count("no match found") >= AUTOCLUSTERS, "a cycle with all jobs"
        )
        pool.wait(lambda: self._ad()["LastNegotiationCycleRejections0"] == AUTOCLUSTERS, "its ad")
        os.kill(self._pid("negotiator"), signal.SIGSTOP)

    def cycle(self) -> None:
        """Let the negotiator run one cycle, and record its own measure of the cost."""
        before = self._ad()
        collector = self._pid("collector")
        used = cpu_with_children(collector)
        os.kill(self._pid("negotiator"), signal.SIGCONT)
        number = "LastNegotiationCycleTime0"
        wait(
            lambda: bool(self._ad()[number] > before[number]),
            f"a cycle of the pool {self.arm.name}",
            step=0.2,
        )
        os.kill(self._pid("negotiator"), signal.SIGSTOP)
        self.collector_cpu += cpu_with_children(collector) - used
        ad = self._ad()
        if ad["LastNegotiationCycleRejections0"] != AUTOCLUSTERS:
            raise AssertionError(
                f"a cycle rejected {ad['LastNegotiationCycleRejections0']} of {AUTOCLUSTERS}"
            )
        phases = {phase: float(ad[f"LastNegotiationCycle{phase}CpuTime0"]) for phase in PHASES}
        for phase, seconds in phases.items():
            self.cpu[phase].append(seconds)
        self.cpu["cycle"].append(sum(phases.values()))  # LastNegotiationCycleCpuTime0 is phase 1 only (25.14)

    def weigh(self) -> None:
        """Record the memory of both daemons."""
        self.memory["collector"] = memory(self._pid("collector"))
        self.memory["negotiator"] = memory(self._pid("negotiator"))

    def _pid(self, name: str) -> int:
        return find_daemon(self._pool.pids(name))

    def _ad(self) -> dict[str, Any]:
        output = self._pool.run("condor_status", "-negotiator", "-json").stdout
        ads: list[dict[str, Any]] = json.loads(output)
        return ads[0]


def start(stack: ExitStack, arm: Arm, slots: int) -> Running:
    """Start a pool with *slots* slot ads, one of them with a startd, and the jobs of *arm*."""
    extra = {"all": PATIENT, "negotiator": FAST, "schedd": ""}
    if arm.jobs in _CLAUSES:
        extra["schedd"] += clause_at_the_end(_CLAUSES[arm.jobs])
    if arm.ours:
        extra["schedd"] += schedd_config(Settings())
        extra["startd"] = startd_config()
        extra["negotiator"] += negotiator_config()
    pool = stack.enter_context(
        Pool.start(os.environ.get("HYDRATOR_TEST_HTCONDOR"), [SiteSpec(SITES[0], cpus=8)], extra)
    )
    ads = busy_site_ads(DATASETS, from_unix(time.time())).ads
    running = Running(arm, pool, slots, ads)
    print(f"   {arm.name}: {slots} slot ads of {running.ad_bytes:,.0f} bytes", file=sys.stderr)
    return running


def real_slot_ad(pool: Pool) -> str:
    """Return the ad of the only slot in *pool*, without the attributes that a collector adds."""
    real = pool.run("condor_status", "-long").stdout.strip()
    return re.sub(
        r"(?m)^(LastHeardFrom|Authenticat\w+|UpdatesHistory|UpdatesTotal|UpdatesLost) = .*\n", "", real
    )


def slot_ads(real: str, arm: Arm, numbers: Iterable[int], ads: Mapping[Site, SiteAd]) -> str:
    """Build an ad for each of *numbers* as text: *real* with another name and address."""
    port = re.search(r"(?m)^MyAddress = .*?:(\d+)", real)
    assert port
    texts = []
    for number in numbers:
        site = SITES[number % len(SITES)]
        text = real.replace(port[1], str(10_000 + number % 50_000))
        text = re.sub(r"(?m)^Name = .*$", f'Name = "slot1@glidein_{number}@wn{number:04}.example.org"', text)
        text = re.sub(r"(?m)^Machine = .*$", f'Machine = "wn{number:04}.example.org"', text)
        text = re.sub(r"(?m)^GLIDEIN_Site = .*$", f'GLIDEIN_Site = "{site}"', text)
        text += "\nClassAdLifetime = 100000\n"
        if arm.ours:
            text += our_lines(arm, ads[site])
        texts.append(text)
    return "\n".join(texts)


def our_lines(arm: Arm, ad: SiteAd) -> str:
    """Return the lines that the hook adds to a slot's ad."""
    read = startd_cron.read_ad(ad.text.encode("ascii"), ad.site, int(time.time()))
    printed = startd_cron.locality_block(read, is_update=False).decode("ascii").splitlines()
    lines = []
    for name, _, literal in (line.partition(" = ") for line in printed if " = " in line):
        bare = literal[1:-1] if literal.startswith("(") else literal
        value = literal if arm.parentheses is None else f"({bare})" if arm.parentheses else bare
        if name != arm.without:
            lines.append(f"{name} = {value if bare[0] in '[{' else literal}\n")
    return "".join(lines)


def submission(arm: Arm) -> str:
    """Build 20 jobs, an autocluster each, that match nothing: they require an unknown site,
    or two datasets of which every site has the first and is only staging the second.
    """
    names = dids(DATASETS)
    there = [did for place, did in enumerate(names) if place % 5]
    staging = [did for place, did in enumerate(names) if place % 5 == 0]
    pairs = [
        (there[(7 * number) % len(there)], staging[number % len(staging)]) for number in range(AUTOCLUSTERS)
    ]
    rows = [
        f"Nowhere{number}, -" if arm.jobs == "site" else ", ".join(pair) for number, pair in enumerate(pairs)
    ]
    asks = '+RequiredDatasets = {"$(a)", "$(b)"}\n+DataLocality = "require"'
    if arm.jobs in _CLAUSES:
        asks = '+WantA = "$(a)"\n+WantB = "$(b)"'
    lines = ["executable = /bin/true", "request_cpus = 1", "request_memory = 10", "request_disk = 1", asks]
    return "\n".join([*lines, "queue a,b from (", *rows, ")", ""])


_CLAUSES = {
    "site": 'TARGET.GLIDEIN_Site =?= "$(MY.WantA)"',
    "member": 'member("$(MY.WantA)", TARGET.AvailableDatasets)'
    ' && member("$(MY.WantB)", TARGET.AvailableDatasets)',
}
"""Requirements of jobs without the job transform."""


def clause_at_the_end(clause: str) -> str:
    """Build a transform with *clause* in the place of the shipped one, after condor_submit's: && stops at the
    first part that is false, so a clause at the front would spare the rest.
    """
    return f"""
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) BenchmarkClause
JOB_TRANSFORM_BenchmarkClause @=end
   REQUIREMENTS WantA isnt undefined
   SET Requirements ($(MY.Requirements)) && ({clause})
@end
"""


def run(quick: bool = False) -> Result:
    """Compare the arms, cycle by cycle in turn."""
    slots, rounds = (200, 2) if quick else (2000, 20)
    chosen = (PLAIN, OURS, MEMBER) if quick else ARMS
    with ExitStack() as stack:
        arms = {arm: start(stack, arm, slots) for arm in chosen}
        for number in range(rounds):
            for running in list(arms.values())[:: 1 if number % 2 else -1]:
                running.cycle()
        for running in arms.values():
            running.weigh()
        version = next(iter(arms.values()))._pool.version
    raw = {
        arm.name: {
            "ad_bytes": round(running.ad_bytes),
            "cpu_seconds": {name: round_samples(samples, 5) for name, samples in running.cpu.items()},
            "collector_cpu_seconds": round(running.collector_cpu, 2),
            "pss_mib": {name: round(value, 1) for name, value in running.memory.items()},
        }
        for arm, running in arms.items()
    }
    how = " ".join(HOW.split()).format(slots=slots, rounds=rounds)
    return Result("negotiator", tuple(figures(arms, rounds)), how, raw, {"HTCondor": version})


def figures(arms: Mapping[Arm, Running], rounds: int) -> list[Figure]:
    """Return ratios to the pool without the attributes, round by round, with the values behind them."""

    def ratio(arm: Arm, what: str) -> Spread:
        pairs = zip(arms[arm].cpu[what], arms[PLAIN].cpu[what], strict=True)
        return Spread.of([ours / plain for ours, plain in pairs])

    compared = [arm for arm in arms if arm is not PLAIN]
    all_figures = []
    for what, title in (("cycle", "whole cycle"), ("Phase4", "phase 4 (matching)")):
        for arm in compared:
            spread = ratio(arm, what)
            note = f"{spread.least:.2f} to {spread.most:.2f} in {rounds} rounds"
            goal = CYCLE_GOAL if arm is OURS and what == "cycle" else None
            all_figures.append(Figure(f"{title}, {arm.name}", spread.p50, "times", goal, note))
    for arm in compared:
        heavier = arms[arm].memory["collector"] / arms[PLAIN].memory["collector"]
        goal = MEMORY_GOAL if arm is OURS else None
        all_figures.append(Figure(f"collector's memory, {arm.name}", heavier, "times", goal))
    for arm in (arm for arm in arms if arm is not AGAIN):
        running = arms[arm]
        cost = {name: statistics.median(samples) * 1000 for name, samples in running.cpu.items()}
        memory_note = f"{running.ad_bytes:,.0f} bytes of text a slot ad"
        all_figures += [
            Figure(f"CPU of a cycle, {arm.name}", cost["cycle"], "ms"),
            Figure(f"CPU of phase 1 (reading ads), {arm.name}", cost["Phase1"], "ms"),
            Figure(f"CPU of phase 4 (matching), {arm.name}", cost["Phase4"], "ms"),
            Figure(f"collector's CPU for a cycle, {arm.name}", running.collector_cpu / rounds * 1000, "ms"),
            Figure(
                f"collector's memory (PSS), {arm.name}", running.memory["collector"], "MiB", note=memory_note
            ),
        ]
    return all_figures


HOW = """\
{slots} ads of partitionable slots at 20 sites (copies of a real startd's ad, with names, addresses and
sites of their own; a glidein's ad is larger by its GLIDEIN attributes, so these ratios are the worst
case) are sent three times to a real collector by condor_advertise. In the pools with attributes each slot
has the hook's output for 100 demanded datasets, all known at every site, a fifth of them staging: of a
catalogue of 100,000 only those are in ads, so its size does not matter. 20 idle jobs, an autocluster
each, match no slot. Without the attributes they require an unknown site; with them, every site has the
first of their two datasets and is only staging the second. All these clauses are at the same place in
Requirements. The pools run side by side. Their negotiators are stopped (SIGSTOP) except in one cycle each
in turn, {rounds} rounds, in reversed order every other round. A cycle's cost is the sum of the CPU
seconds of its phases in the negotiator's own ad (LastNegotiationCyclePhaseNCpuTime0;
LastNegotiationCycleCpuTime0 is phase 1 alone on 25.14.1); a ratio is the median of the rounds' ratios.
`without us, again` repeats the first pool and shows the noise. Memory is PSS after all rounds, each
collector started for this. Bare or in parentheses: in parentheses a list or record is an expression,
which HTCondor's ClassAd cache (ENABLE_CLASSAD_CACHING, on by default) stores once for all slots with the
same text, that is, once a site; a bare one is copied for every slot. The collector's CPU includes its
forked query workers."""

__all__ = ["run"]
