"""Jobs of the simulated pool: where they start, by their own expressions, and the laws about it.

The negotiator, a schedd that reuses a claim, and START evaluate the same clause, on different copies of the
slot's ad: the collector's, the one that the schedd claimed, and the slot's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did, Site, to_unix
from hydrator.submit.expressions import KEYED_HERE, Mode

if TYPE_CHECKING:
    from tests.simulation.world import Hook, World

CYCLE_SECONDS: Final = 60.0
"""Interval of the negotiator; the schedd looks after its claims at the same times."""
JOBS_MAX_AGE: Final = 600
"""Age in seconds up to which the jobs trust a fact, less than the daemon's."""
STARTS_WITHIN_SECONDS: Final = 420.0
"""Within this time after the ads are the truth, a job that may start at a free slot has started."""
LATE_SECONDS: Final = 240.0
"""From the end of an age to the start of a job: a hook's period, and two cycles of the negotiator."""


@dataclass(eq=False)
class Job:
    """A job: ``any_after`` is in Unix seconds; a job without datasets has no clause."""

    dids: tuple[Did, ...]
    mode: Mode
    submitted_at: float
    wait_seconds: int
    run_seconds: float
    any_after: int = 0
    started_at: float | None = None
    site: Site | None = None


@dataclass(eq=False)
class Slot:
    """A slot; without a hook its ad has nothing of us. ``claimed`` is its ad when it was claimed."""

    site: Site
    hook: "Hook | None"
    busy_until: float = 0.0
    claimed: Mapping[str, str] | None = None

    @property
    def shown(self) -> Mapping[str, str]:
        """Return the attributes of the slot now."""
        return self.hook.shown if self.hook else {}


class Matcher:
    """What alone knows the texts of the expressions: whether a job may start at a slot."""

    def __init__(self) -> None:
        self._clauses = {
            mode: ExprTree(text.replace("time()", "MY.Now")) for mode, text in KEYED_HERE.items()
        }

    def may_start(self, job: Job, attributes: Mapping[str, str], now: int) -> bool:
        """Return whether the clause of *job* is true at a slot with *attributes* at *now* (Unix s)."""
        if not job.dids:
            return True
        ad = ClassAd(
            {
                "DataLocalityKey": str(set_key(job.dids)),
                "DataLocalityMaxAge": JOBS_MAX_AGE,
                "DataLocalityAnyAfter": job.any_after,
                "Now": now,
            }
        )
        return self._clauses[job.mode].eval(ad, _as_ad(tuple(attributes.items()))) is True


@lru_cache(500)
def _as_ad(attributes: tuple[tuple[str, str], ...]) -> ClassAd:
    return ClassAd("[" + ";".join(f"{name}={literal}" for name, literal in attributes) + "]")


@dataclass(eq=False)
class Pool:
    """The jobs and slots of a run."""

    world: "World"
    jobs: list[Job]
    slots: list[Slot]
    matcher: Matcher = field(default_factory=Matcher)

    def run_forever(self) -> None:
        """Negotiate at each interval."""
        while True:
            self.world.loop.sleep(CYCLE_SECONDS)
            self._cycle()

    def _cycle(self) -> None:
        world = self.world
        now, wall = world.loop.now, to_unix(world.clock())
        waiting = [job for job in self.jobs if job.started_at is None and job.submitted_at <= now]
        for job in waiting:
            job.any_after = job.any_after or wall + job.wait_seconds
        for slot in self.slots:
            if slot.busy_until > now:
                continue
            seen = slot.shown if slot.claimed is None else slot.claimed
            job = next((one for one in waiting if self.matcher.may_start(one, seen, wall)), None)
            if job is None or not self.matcher.may_start(job, slot.shown, wall):
                if job is not None:
                    world.laws.happened("START refused what the claim's old ad allowed")
                slot.claimed = None
                continue
            if slot.claimed is not None:
                world.laws.happened("a job started on a reused claim")
            slot.claimed, slot.busy_until = seen, now + job.run_seconds
            job.started_at, job.site = now, slot.site
            waiting.remove(job)
            self._check_start(job, wall)

    def _check_start(self, job: Job, wall: int) -> None:
        """A job goes where its data is, or where its mode allows (the contract; decisions 6, 14)."""
        world, site = self.world, job.site
        if not job.dids or site is None:
            return
        is_time_over = job.mode != "require" and wall >= job.any_after
        if is_time_over:
            if any(world.truth.share(did, site) != 1 for did in job.dids):
                world.laws.happened("a job started without its data because its time was over")
            return
        ages = {did: world.laws.age_of_report(did, site, 0) for did in job.dids}
        old = {did: age for did, age in ages.items() if age > JOBS_MAX_AGE + LATE_SECONDS}
        if old and job.mode != "auto":
            did, age = max(old.items(), key=lambda one: one[1])
            world.laws.add("jobs", f"a job ({job.mode}) started at {site}; {did} was there {age:.0f} s ago")
        elif not old:
            world.laws.happened(f"a job ({job.mode}) started beside its data")

    def check_end(self) -> None:
        """Nothing waits for ever: at the end each job that may run has started (decisions 6, 15)."""
        world = self.world
        now, wall = world.loop.now, to_unix(world.clock())
        is_free = {slot.site for slot in self.slots if slot.busy_until <= now and slot.hook}
        named = {dids for queue in world.truth.queues.values() for dids in queue}
        for job in self.jobs:
            if job.started_at is not None or now - job.submitted_at < STARTS_WITHIN_SECONDS:
                continue
            home = {site for site in is_free if all(world.truth.share(did, site) == 1 for did in job.dids)}
            if not job.dids:
                world.laws.add("jobs", "a job without datasets has not started")
            elif wall > job.any_after + STARTS_WITHIN_SECONDS and (
                job.mode == "wait" or (job.mode == "auto" and world.is_daemon_gone)
            ):
                world.laws.add("jobs", f"a job ({job.mode}) waits although its time is over")
            elif home and job.dids in named and not world.is_daemon_gone and not world.configuration:
                where = ", ".join(sorted(home))
                world.laws.add("jobs", f"a job ({job.mode}) waits, although {where} has its data and room")
