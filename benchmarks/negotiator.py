"""What our attributes cost a pool's negotiator and collector: 2,000 slots, 100 demanded datasets of 100,000."""

import json
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hydrator.model import Site, SiteAd
from testbed.pool import DOMAIN, Pool, SiteSpec

from .material import SITES, busy_site_ads
from .record import Figure, Result, Spread, rounded

CYCLE_GOAL, MEMORY_GOAL = 1.1, 1.2
AUTOCLUSTERS = 20
TICKS = os.sysconf("SC_CLK_TCK")
PHASES = {
    "cycle": "LastNegotiationCycleCpuTime0",
    "phase 1": "LastNegotiationCyclePhase1CpuTime0",
    "phase 2": "LastNegotiationCyclePhase2CpuTime0",
    "phase 3": "LastNegotiationCyclePhase3CpuTime0",
    "phase 4": "LastNegotiationCyclePhase4CpuTime0",
    "prefetch": "LastNegotiationCyclePrefetchCpuTime0",
}
"""CPU seconds of the negotiator's last cycle, as its own ad tells them."""

FAST = """
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_MIN_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_UPDATE_AFTER_CYCLE = True
NEGOTIATOR_UPDATE_INTERVAL = 3600
SCHEDD_INTERVAL = 3600
UPDATE_INTERVAL = 3600
MASTER_UPDATE_INTERVAL = 3600
"""


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the pools that are compared: what its slots advertise, what its jobs ask for."""

    name: str
    ours: bool
    without_list: bool = False
    jobs: str = "site"


ARMS = (
    Arm("without us", ours=False),
    Arm("without us, again", ours=False),
    Arm("with us", ours=True, jobs="ours"),
    Arm("with us, member()", ours=True, jobs="member"),
    Arm("with us, no AvailableDatasets", ours=True, without_list=True, jobs="ours"),
)


class Running:
    """The pool of one arm; its negotiator is stopped (SIGSTOP) but for the cycles that are measured."""

    def __init__(self, arm: Arm, pool: Pool, slots: int, ads: Mapping[Site, SiteAd]) -> None:
        self.arm = arm
        self.cpu: dict[str, list[float]] = {name: [] for name in (*PHASES, "whole", "collector")}
        self.memory: dict[str, list[float]] = {"collector": [], "negotiator": []}
        self._pool = pool
        self._negotiator = pool.pids("negotiator")[0]
        self._collector = pool.pids("collector")[0]
        text = slot_ads(pool, arm, slots, ads)
        self.ad_bytes = len(text) / slots
        for _ in range(3):  # as in a pool that has run for a while: every ad has been replaced
            pool.run("condor_advertise", "-multiple", "UPDATE_STARTD_AD", input=text, timeout=300)
        pool.wait(lambda: self._slots() == slots + 1, 120, "all slot ads in the collector")
        submit(pool, arm)
        pool.wait(lambda: self._rejected() >= AUTOCLUSTERS, 60, "a cycle that rejects every job")
        self._stop()

    def cycle(self) -> None:
        """Let the negotiator run one cycle, and note what that cost."""
        before = self._finished()
        used = cpu(self._negotiator), cpu(self._collector)
        os.kill(self._negotiator, signal.SIGCONT)
        try:
            wait(lambda: self._finished() > before, f"a cycle of the pool {self.arm.name}")
            # the sending of its own ad belongs to it as little as what it does between cycles
            self.cpu["whole"].append(cpu(self._negotiator) - used[0])
            seen = self._seen()
            wait(lambda: self._seen() > seen or self._fresh(), "the negotiator's ad")
        finally:
            self._stop()
        ad = self._ad()
        for name, attribute in PHASES.items():
            self.cpu[name].append(float(ad[attribute]))
        self.cpu["collector"].append(cpu(self._collector) - used[1])
        self.memory["collector"].append(pss(self._collector))
        self.memory["negotiator"].append(pss(self._negotiator))
