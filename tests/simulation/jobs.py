"""Jobs of the simulated pool: where they start, by their own expressions, and the laws about it.

The negotiator, a schedd that reuses a claim, and START evaluate the same clause, on different copies of the
slot's ad: the collector's, the one that the schedd claimed, and the slot's own. What the clause may say is
read from the contract here, from the ad's values, and not from the texts of the expressions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import HERE, SLOT_EXPRESSIONS, Mode
from hydrator.domain.model import Did, Site, to_unix
from hydrator.submit.pool_config import START_CLAUSE
from tests.simulation.laws import WITHHELD_SECONDS

if TYPE_CHECKING:
    from tests.simulation.world import Hook, World

CYCLE_SECONDS: Final = 60.0
"""Interval of the negotiator; the schedd looks after its claims at the same times."""
JOBS_MAX_AGE: Final = 420
"""Age in seconds up to which the jobs trust a fact, less than the daemon's."""
STARTS_WITHIN_SECONDS: Final = 420.0
"""Within this time after the ads are the truth, a job that may start at a free slot has started."""
LATE_SECONDS: Final = 10.0
"""From the moment at which a catalogue was asked to the time that an ad gives for the fact, and a small
step of the clock."""


def _in_virtual_time(text: str) -> ExprTree:
    return ExprTree(text.replace("time()", "MY.Now"))


@dataclass(eq=False)
class Job:
    """A job: ``any_after`` is in Unix seconds; a job without datasets has no clause.

    ``site`` is where the job has started.
    """

    dids: tuple[Did, ...]
    mode: Mode
    submitted_at: float
    wait_seconds: int
    run_seconds: float
    any_after: int = 0
    started_at: float | None = None
    site: Site | None = None

    @cached_property
    def key(self) -> str:
        """Return the key of the job's datasets."""
        return str(set_key(self.dids))

    @cached_property
    def _ad(self) -> ClassAd:
        here = _in_virtual_time(HERE[self.mode])
        ad = {"DataLocalityKey": self.key, "DataLocalityMaxAge": JOBS_MAX_AGE, "DataLocalityHere": here}
        return ClassAd({**ad, "DataLocalityAnyAfter": self.any_after})

    def at(self, now: int) -> ClassAd:
        """Return the job's ad at the time *now* (Unix s)."""
        self._ad["Now"] = now
        return self._ad

    def is_time_over(self, now: int) -> bool:
        """Return True if the job may go anywhere by now."""
        return self.mode != "require" and now >= self.any_after


@dataclass(eq=False)
class SlotAd:
    """What a hook printed into a slot's ad: the text of each attribute, and its value."""

    literals: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _ad(self) -> ClassAd:
        ad = ClassAd("[" + ";".join(f"{name}={text}" for name, text in self.literals.items()) + "]")
        if self.literals:
            for name, text in SLOT_EXPRESSIONS.items():
                ad[name] = _in_virtual_time(text)
        ad["START"] = ExprTree(START_CLAUSE)
        return ad

    def at(self, now: int) -> ClassAd:
        """Return the ad at the time *now* (Unix s)."""
        self._ad["Now"] = now
        return self._ad

    def share(self, job: "Job", now: int) -> float | None:
        """Return the share of the job's bytes here, as a job may believe it; None if nothing is known."""
        share = self.values.get("DataLocalitySets", {}).get(job.key)
        as_of = self.values.get("DataLocalitySetsAsOf", {}).get(job.key, self.values.get("DataLocalityAsOf"))
        return share if as_of is not None and now - as_of < JOBS_MAX_AGE else None

    def is_open(self, job: "Job", now: int) -> bool:
        """Return True if the daemon lets the job start here by reading from elsewhere."""
        return self.is_paced(now) and job.key in self.values.get("DataLocalityOpen", {})

    def is_paced(self, now: int) -> bool:
        """Return True if the daemon paces the reads here."""
        return now < self.values.get("DataLocalityOpenUntil", 0)

    def lets_start(self, job: "Job", now: int) -> bool:
        """Return True if the job may start here (the contract; decisions 6, 15)."""
        if self.share(job, now) == 1:
            return True
        if job.mode == "require" or (job.mode == "wait" and not job.is_time_over(now)):
            return False
        is_left_to_pacing = self.is_paced(now) and job.key in self.values.get("DataLocalitySets", {})
        is_over = job.is_time_over(now) and not (job.mode == "auto" and is_left_to_pacing)
        return is_over or (job.mode == "auto" and self.is_open(job, now))


@dataclass(eq=False)
class Slot:
    """A slot; without a hook its ad has nothing of us. ``claimed`` is its ad when it was claimed.

    A slot that ``takes_jobs`` not is too small for them, broken, or near its end.
    """

    site: Site
    hook: "Hook | None"
    busy_until: float = 0.0
    claimed: SlotAd | None = None
    takes_jobs: bool = True

    @property
    def shown(self) -> SlotAd:
        """Return the slot's ad now."""
        return self.hook.shown if self.hook else SlotAd()

    @property
    def collected(self) -> SlotAd:
        """Return the collector's copy of the slot's ad."""
        return self.hook.collected if self.hook else SlotAd()


_CLAUSE, _START = ExprTree("MY.DataLocalityHere"), ExprTree("MY.START")


def is_matched(job: Job, slot: SlotAd, now: int) -> bool:
    """Return the value of the job's clause at *slot*, as the negotiator and the schedd see it."""
    return not job.dids or _CLAUSE.eval(job.at(now), slot.at(now)) is True


def is_accepted(job: Job, slot: SlotAd, now: int) -> bool:
    """Return the value of the slot's START for *job*."""
    return not job.dids or _START.eval(slot.at(now), job.at(now)) is True


@dataclass(eq=False)
class Pool:
    """The jobs and slots of a run."""

    world: "World"
    jobs: list[Job]
    slots: list[Slot]

    def run_forever(self) -> None:
        """Negotiate at each interval."""
        while True:
            self.world.loop.sleep(CYCLE_SECONDS)
            self._cycle()

    def _cycle(self) -> None:
        now, wall = self.world.loop.now, to_unix(self.world.clock())
        waiting = [job for job in self.jobs if job.started_at is None and job.submitted_at <= now]
        for job in waiting:
            job.any_after = job.any_after or wall + job.wait_seconds
        for slot in self.slots:
            if slot.busy_until > now or not slot.takes_jobs:
                continue
            seen = slot.claimed or slot.collected
            for one in waiting:
                if one.dids:
                    self._check_clause(one, seen, wall)
            job = next((one for one in waiting if is_matched(one, seen, wall)), None)
            if job and is_accepted(job, slot.shown, wall):
                waiting.remove(job)
                self._start(job, slot, wall)
                continue
            if job:
                self.world.laws.happened("START refused what another copy of the slot's ad allowed")
            slot.claimed = None

    def _start(self, job: Job, slot: Slot, wall: int) -> None:
        now, laws = self.world.loop.now, self.world.laws
        if slot.claimed:
            laws.happened("a job started on a reused claim")
        slot.claimed = slot.claimed or slot.shown  # the schedd gets the startd's own ad with the claim
        job.started_at, job.site, slot.busy_until = now, slot.site, now + job.run_seconds
        if job.dids:
            self._check_start(job, slot, wall)

    def _check_clause(self, job: Job, slot: SlotAd, wall: int) -> None:
        """A job matches beside its data, and else as its mode allows (the contract; decisions 6, 15)."""
        share, is_so = slot.share(job, wall), is_matched(job, slot, wall)
        if is_so != slot.lets_start(job, wall):
            what = f"a job ({job.mode}) at a slot whose ad shows {share} of its data"
            self.world.laws.add("jobs", f"{what} {'matches' if is_so else 'does not match'}")

    def _check_start(self, job: Job, slot: Slot, wall: int) -> None:
        """A job starts where the slot's own ad allows it, and its data was there lately (decisions 6, 14)."""
        laws, site, share = self.world.laws, slot.site, slot.shown.share(job, wall)
        if not slot.shown.lets_start(job, wall):
            laws.add("jobs", f"a job ({job.mode}) started at {site}, whose slot shows {share} of its data")
        if share != 1:
            if slot.shown.is_open(job, wall):
                laws.happened("a job started away from its data because its set was open")
            elif any(self.world.truth.share(did, site) != 1 for did in job.dids):
                laws.happened("a job started without its data because its time was over")
            return
        laws.happened(f"a job ({job.mode}) started beside its data")
        # the ad may have a report from before the clock was set back and forward again
        ages = (
            (min(laws.age_of_report(did, site, 0), laws.seconds_since_report(did, site)), did)
            for did in job.dids
        )
        age, did = max(ages)
        late = WITHHELD_SECONDS if laws.was_set_back else 0.0  # an ad from the future counts as fresh
        if age > JOBS_MAX_AGE + LATE_SECONDS + late:
            laws.add("jobs", f"a job ({job.mode}) started at {site}; {did} was there {age:.0f} s ago")

    def check_end(self) -> None:
        """Nothing waits for ever: at the end each job that may run has started (decisions 6, 15)."""
        world = self.world
        now, wall = world.loop.now, to_unix(world.clock())
        is_free = {
            slot.site for slot in self.slots if slot.busy_until <= now and slot.hook and slot.takes_jobs
        }
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
