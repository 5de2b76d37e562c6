"""Random days of staging, each from one seed: 50 submitters, faults, and kills between any two steps.

``python -m tests.unit.staging.laws 0 2000`` runs 2000 seeds, and names those that break a law.
"""

import contextlib
import random
import sys
from datetime import timedelta

from hydrator.domain.model import DatasetState, Did, Unseen
from hydrator.domain.staging_ports import (
    RefusalKind,
    RequestState,
    StagingFailed,
    StagingKind,
    StagingRefused,
)
from hydrator.staging.table import StagingCommand, Table
from tests.factories import CAM, MINUTE
from tests.memory_stager import Fault
from tests.staging_world import DAY, SITES, TERABYTE, StagingWorld, need, policy, run

DATASETS = [Did(f"lofar:D{n}") for n in range(12)]
USERS = [f"user{n}@x" for n in range(50)]
SCHEDDS = ["ap1", "ap2"]
LIMITS = {"request_tb": 3, "site_tb": 5, "total_tb": 8, "hour_requests": 3, "floor_tb": 10, "approval_tb": 2}
SPACES = {site: (14 if site == CAM else 100) * TERABYTE for site in SITES}
FAILED = StagingFailed("rucio", "timeout")
REFUSED = [StagingRefused("rucio", "odd"), StagingRefused("rucio", "quota", RefusalKind.QUOTA)]
STEPS = 30


class Kill(BaseException):
    """The end of the process at this point."""


class Broken(AssertionError):
    """A law that a seed breaks."""


class Days:
    """The days of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = world = StagingWorld(policy(limits=LIMITS))
        world.stager.spaces = dict(SPACES)
        for did in DATASETS:
            world.add_dataset(did, self.random.choice([0.1, 0.4, 1.0, 2.5]))
        self.jobs = {schedd: [] for schedd in SCHEDDS}
        self.foreign = {}
        self.late = []  # calls without an answer that take effect later, each with the time
        self.asks = []  # time and batch of each new request
        self.approved = set()  # datasets and sites that a person ever approved
        self.before = Table()
        self.broken = []  # laws; the controller takes an error in a call for a bug of the catalogue
        self.kill_in = None
        self._hook()
        for schedd in SCHEDDS:
            self.share(schedd)

    # -- kills and spies

    def tick(self):
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                raise Kill

    def _hook(self):
        """Let each read, write and call be a moment at which the process may end."""
        stager, store = self.world.stager, self.world.store
        for name in ("list", "request", "cancel"):
            setattr(stager, name, self._with_ticks(getattr(stager, name), name))
        store.save = self._with_ticks(store.save, "save")
        self.world.control.remove_processed = self._with_ticks(self.world.control.remove_processed, "remove")

    def _with_ticks(self, call, name):
        def spied(*values):
            self.tick()
            is_call = name in {"list", "request", "cancel"}
            self.require(not (is_call and self.world.settings.mode == "off"), f"{name} in the mode off")
            if name == "request":
                self.check_order(values[0])
                if self.random.random() < self.lateness:
                    minutes = timedelta(minutes=self.random.choice([0, 9]))
                    self.late.append((self.world.clock.now + minutes, call, values))
                    raise FAILED
            result = call(*values)
            self.tick()
            return result

        return spied

    lateness = 0.0

    def check_order(self, order):
        world = self.world
        self.require(order.lifetime <= 15 * DAY, "a lifetime beyond the longest")
        self.require(order.rule not in self.foreign, f"the rule {order.rule} of others was renewed")
        row = next((one for one in world.store.table.requests if one.key == (order.did, order.site)), None)
        self.require(row is not None, f"{order.did} was asked for before the table had it")
        if order.rule or any(one.key == row.key for one in self.before.requests):
            return
        catalogue = world.catalogue
        is_unseen = (
            catalogue.is_broken or catalogue.unreachable_sites or order.did in catalogue.unseen_reasons
        )
        self.require(not is_unseen, f"{order.did} was asked for, and was not seen in this cycle")
        answers = [jobs for jobs in world.needs.values() if not isinstance(jobs, Unseen)]
        is_wanted = any(order.did in one.datasets for jobs in answers for one in jobs)
        self.require(is_wanted, f"{order.did} was asked for without live demand")
        if order.kind is StagingKind.STAGE:
            is_silent = len(answers) < len(world.needs)
            self.require(not is_silent, f"{order.did} was asked for while a schedd was silent")
            self.asks.append((world.clock.now, row.batch))
            batch = [one for one in world.store.table.requests if one.batch == row.batch]
            size = sum(one.bytes for one in batch)
            self.require(size <= 3 * TERABYTE, "more bytes than the limit of a request")
            is_approved = {one.key for one in batch} <= self.approved
            self.require(size <= 2 * TERABYTE or is_approved, f"{order.did} was asked for without approval")

    def require(self, is_kept, law):
        if not is_kept:
            self.broken.append(law)
            raise Broken(law)

    # -- what happens

    def share(self, schedd):
        self.world.queue(*self.jobs[schedd], schedd=schedd)

    def submit(self, count):
        for _ in range(count):
            schedd = self.random.choice(SCHEDDS)
            dids = self.random.sample(DATASETS, self.random.choice([1, 1, 2, 3]))
            since = self.world.clock.now - timedelta(minutes=self.random.choice([0, 20, 90]))
            sites = self.random.choice([SITES, SITES, (CAM,)])
            jobs = need(*sorted(dids), user=self.random.choice(USERS), queued_since=since, sites=sites)
            self.jobs[schedd].append(jobs)
            self.share(schedd)

    def happen(self):
        world, chance = self.world, self.random.random
        if chance() < 0.5:
            self.submit(self.random.choice([1, 3, 50]))
        for schedd in SCHEDDS:
            if chance() < 0.3:
                self.random.shuffle(self.jobs[schedd])
                del self.jobs[schedd][: self.random.choice([1, 60])]
            if chance() < 0.2:
                self.jobs[schedd].append(run(self.random.choice(DATASETS), site=self.random.choice(SITES)))
            self.share(schedd)
            if chance() < 0.15:
                world.needs[schedd] = Unseen("timeout")
        if chance() < 0.3:
            self.add_foreign_rule()
        if chance() < 0.2:
            key = self.random.choice(DATASETS), self.random.choice(SITES)
            world.disk.setdefault(key, (DatasetState.NEARLINE, None))
        self.break_parts()
        if chance() < 0.3:
            world.arrive()
        self.change_own_rule()
        self.command()
        world.has_cleaner = chance() < 0.8
        mode = "off" if chance() < 0.1 else "request"
        if mode != world.settings.mode:
            self.configure(mode)

    def configure(self, mode):
        self.world.settings = policy(mode, limits=LIMITS)
        self.world.restart()

    def break_parts(self):
        world, chance = self.world, self.random.random
        fault = self.random.choice(["catalogue", "site", "dataset", "none", "none", "none"])
        world.is_stale = chance() < 0.15
        world.catalogue.is_broken = fault == "catalogue"
        world.catalogue.unreachable_sites = frozenset({CAM} if fault == "site" else ())
        world.catalogue.unseen_reasons = (
            {self.random.choice(DATASETS): "timeout"} if fault == "dataset" else {}
        )
        for call in ("request", "cancel", "list"):
            world.stager.faults[call] = []
            if chance() < 0.2:
                errors = [FAILED, *REFUSED] if call != "list" else [FAILED]
                error = self.random.choice(errors)
                world.stager.faults[call] = [Fault(error, error is FAILED and chance() < 0.5)]
        self.lateness = self.random.choice([0.0, 0.0, 0.5])
        world.stager.disks = {site: f"{site}_DISK{self.random.choice('12')}" for site in SITES}

    def command(self):
        world = self.world
        if self.random.random() < 0.3:
            planned = world.overview.planned if world.overview else ()
            verb = self.random.choice(["approve", "approve", "reject", "cancel", "resume"])
            if verb == "resume" or not planned:
                world.control.commands.append(StagingCommand(verb))
                return
            row = self.random.choice(planned)
            if verb == "approve":
                self.approved |= {one.key for one in row.requests}
            world.answer(verb, row)

    def add_foreign_rule(self):
        did, site = self.random.choice(DATASETS), self.random.choice(SITES)
        hours = self.random.choice([None, 5, 100])
        state = self.random.choice([RequestState.DONE, RequestState.MOVING, RequestState.STUCK])
        ends = None if hours is None else self.world.clock.now + timedelta(hours=hours)
        rule = self.world.stager.add_rule(did, site, "carl", state=state, expires_at=ends)
        self.foreign[rule] = ends
        if state is RequestState.DONE:
            self.world.put(did, site)

    def change_own_rule(self):
        """Let one of our rules be stuck, fail, be denied, deleted or locked."""
        rules = self.world.stager.own_rules()
        if not rules or self.random.random() > 0.2:
            return
        rule = self.random.choice(rules).id
        how = self.random.choice(["stuck", "failed", "denied", "deleted", "locked", "free"])
        if how in {"stuck", "failed"} and not self.world.stager.rules[rule].is_whole:
            self.world.stager.set(rule, state=RequestState[how.upper()], is_whole=False)
        if how == "denied":
            del self.world.stager.rules[rule]
        elif how == "deleted":
            self.world.stager.delete(rule)
        elif how in {"locked", "free"}:
            self.world.stager.set(rule, blocked="it is locked" if how == "locked" else "")

    def step(self, after):
        """Let late calls take effect, make a step, and perhaps end the process in it."""
        late, self.late = self.late, []
        for effect_at, call, values in late:
            if effect_at > self.world.clock.now + after:
                self.late.append((effect_at, call, values))
                continue
            self.world.stager.faults["request"] = []
            with contextlib.suppress(StagingRefused):
                call(*values)
        self.before = self.world.store.table
        try:
            self.world.step(after)
        except Kill:
            self.kill_in = None
            if self.random.random() < 0.1 and not self.late:
                self.world.store.table, self.asks = Table(), []  # the state is lost, too
            self.world.restart()
        self.kill_in = None
        self.check()

    # -- the laws that always hold

    def check(self):
        if self.broken:
            raise Broken(self.broken[0])
        stager, now = self.world.stager, self.world.clock.now
        own = stager.own_rules()
        moving = [one for one in own if one.kind is StagingKind.STAGE and not one.is_whole]
        self.require(sum(one.bytes for one in own) <= 8 * TERABYTE, "more bytes than the limit of all")
        for site in SITES:
            coming = sum(one.bytes for one in moving if one.site == site)
            self.require(coming <= 5 * TERABYTE, f"more bytes than the limit on the way to {site}")
            self.require(SPACES[site] - coming >= 10 * TERABYTE, f"less free space than the floor at {site}")
        hour = {ask for ask in self.asks if now - ask[0] < timedelta(hours=1)}
        self.require(len(hour) <= 3, "more requests than the limit of an hour")
        alive = [one.did for one in moving if one.expires_at > now]
        self.require(len(alive) == len(set(alive)), "two rules of ours bring one dataset")
        for one in own:
            self.require(one.expires_at <= now + 15 * DAY, "a rule of ours that lives too long")
        for rule, ends in self.foreign.items():
            is_due = ends is not None and ends <= now
            listed = stager.rules.get(rule)
            self.require(listed.expires_at == ends if listed else is_due, "a rule of others was changed")

    # -- the truth at the end

    def settle(self):
        """End all faults; the jobs that are left get their data, and then nothing of ours is left."""
        world = self.world
        self.configure("request")
        for rule in world.stager.own_rules():
            state = RequestState.DONE if rule.is_whole else RequestState.MOVING
            world.stager.set(rule.id, blocked="", state=state)
        world.is_stale = world.catalogue.is_broken = False
        world.catalogue.unreachable_sites = frozenset()
        world.catalogue.unseen_reasons, world.has_cleaner, self.lateness = {}, True, 0.0
        world.stager.faults.clear()
        world.control.commands.append(StagingCommand("resume"))
        for rule in [one.id for one in world.stager.rules.values() if one.account == "carl"]:
            del world.stager.rules[rule]
        self.foreign.clear()
        small = [did for did in DATASETS if world.stager.sizes[did] <= TERABYTE]
        wanted = self.random.sample(small, min(2, len(small)))
        self.jobs = {"ap1": [need(did, queued_since=world.clock.now) for did in wanted], "ap2": []}
        for schedd in SCHEDDS:
            self.share(schedd)
        for _ in range(40):
            world.restart()  # so no hold of the removal guard lasts
            self.step(timedelta(hours=12))
            world.arrive()
        for did in wanted:
            at = [site for site in SITES if world.disk.get((did, site), ("",))[0] is DatasetState.AVAILABLE]
            self.require(at, f"{did} never came, though a job waits for it: {world.reasons}")
        self.jobs = {schedd: [] for schedd in SCHEDDS}
        for schedd in SCHEDDS:
            self.share(schedd)
        for after in (MINUTE, 2 * timedelta(hours=1), 15 * DAY, timedelta(hours=1)):
            self.step(after)
        self.require(not world.stager.own_rules(), "a rule of ours outlives its lifetime and Rucio's hour")


def run_seed(seed: int) -> None:
    """Run the days of *seed*.

    Raises:
        Broken: a law does not hold.
    """
    days = Days(seed)
    for _ in range(STEPS):
        days.happen()
        days.kill_in = days.random.randrange(12) if days.random.random() < 0.4 else None
        days.step(timedelta(minutes=days.random.choice([1, 1, 12, 61, 1500])))
    days.settle()


def main(first: int, count: int) -> int:
    broken = 0
    for seed in range(first, first + count):
        try:
            run_seed(seed)
        except Exception as error:  # noqa: BLE001 - each seed is reported
            broken += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(f"{count} seeds, {broken} broken")
    return broken > 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
