"""Simulation: the events of a pool in virtual time, from the first submission to the end of the last job.

The model is deterministic: equal workload, policy, rules and seed give an equal result. It reads no clock.
Not in the model: memory and disk of slots, preemption, staging, failures, and writing of results.
"""

import heapq
import math
import random
from array import array
from collections import deque
from collections.abc import Iterable, Sequence

from .estimates import ModelEstimates
from .expressions import ExpressionEvaluator
from .lines import AdBatch, JobLine, ReadTurn, SiteRanking, SiteState, SlotClaim, UserState, begin_claim
from .links import build_link
from .matching import MatchTable
from .model import PolicyChoice, PoolRules, ReplayRun, Workload
from .negotiation import Match, ReadTurns, negotiate, update_priorities
from .transfers import Transfers

_NEVER = math.inf
_IDLE_PUBLICATIONS = 2
"""With ads so many daemon cycles after the last event, the waiting jobs match nothing until a wait ends."""


def run_replay(
    workload: Workload, policy: PolicyChoice, rules: PoolRules, evaluator: ExpressionEvaluator, seed: int = 0
) -> ReplayRun:
    """Run *workload* with *policy*.

    Args:
        workload: the jobs and the sites.
        policy: the mode of all jobs with data; with ``is_recorded``, each job has its own.
        rules: the pool's rules.
        evaluator: evaluates the pool's expressions.
        seed: draws among machines that the jobs rank equally.
    """
    return PoolModel(workload, policy, rules, evaluator, seed).run()


class PoolModel:
    """One run of the model."""

    def __init__(
        self,
        workload: Workload,
        policy: PolicyChoice,
        rules: PoolRules,
        evaluator: ExpressionEvaluator,
        seed: int,
    ) -> None:
        self._workload, self._policy, self._rules, self._seed = workload, policy, rules, seed
        self._random = random.Random(seed)  # noqa: S311 - draws among equal machines
        self._sites = _build_sites(workload)
        self._table = MatchTable(workload, policy, rules, evaluator)
        self._users = list(self._table.lines.users.values())
        self._estimates = _build_estimates(self._sites, self._table.lines.lines, rules, workload)
        self._groups = {line.group.index: line.group for line in self._table.lines.lines if not line.is_free}
        self._fixed_rows: dict[int, tuple[int, ...]] = {}
        self._events: list[tuple[float, int]] = []
        self._transfers = Transfers(self._sites, workload.classes, workload.compute_seconds, self._events)
        self._claims: dict[int, SlotClaim] = {}
        self._turns = ReadTurns(rules.turns.readers if rules.turns else 0)
        count = workload.job_count
        self._started, self._ended = array("d", bytes(8 * count)), array("d", bytes(8 * count))
        self._site_of, self._machine_of = array("i", [-1]) * count, array("i", [-1]) * count
        self._waiting_count = 0
        self._now = self._negotiated_at = 0.0
        self._next_cycle, self._last_cycle, self._next_ads = 0.0, -_NEVER, 0.0
        self._deliveries: deque[tuple[float, AdBatch]] = deque()
        self._changed_at = 0.0

    def run(self) -> ReplayRun:
        """Run all events and return the result."""
        submitted, count = self._workload.submitted, self._workload.job_count
        events, next_job = self._events, 0
        while True:
            next_submission = submitted[next_job] if next_job < count else _NEVER
            soon = min(next_submission, events[0][0]) if events else next_submission
            if not self._waiting_count:
                if soon == _NEVER:
                    break
                if soon < next_submission:
                    self._handle(*heapq.heappop(events))
                    continue
                self._skip_idle_cycles(soon)
            next_ads = min(self._next_ads, self._deliveries[0][0]) if self._deliveries else self._next_ads
            if next_ads <= soon and next_ads <= self._next_cycle:
                self._advance_ads(next_ads)
            elif soon <= self._next_cycle:
                if next_submission == soon:
                    self._submit(next_job, soon)
                    next_job += 1
                else:
                    self._handle(*heapq.heappop(events))
            elif not self._run_cycle(has_events=soon < _NEVER):
                break
        return self._build_result()

    def _skip_idle_cycles(self, until: float) -> None:
        """Leave out the cycles before the submission at *until*: without waiting jobs they have no effect.

        The slots then have the ads of the daemon's last cycle.
        """
        rules = self._rules
        self._next_cycle = _next_multiple(self._next_cycle, until, rules.cycle_seconds)
        self._last_cycle = max(self._last_cycle, self._next_cycle - rules.cycle_seconds)
        if self._next_ads <= until:
            skipped = math.floor((until - self._next_ads) / rules.publish_seconds)
            self._now = self._next_ads + skipped * rules.publish_seconds
            self._next_ads = self._now + rules.publish_seconds
            self._deliveries.clear()
            self._table.ads = self._build_ads()

    def _advance_ads(self, now: float) -> None:
        """Deliver the ads that reach the slots at *now*, or else run the daemon's cycle of that time."""
        self._now = now
        if self._deliveries and self._deliveries[0][0] <= now:
            self._table.ads = self._deliveries.popleft()[1]
        else:
            self._next_ads = now + self._rules.publish_seconds
            self._deliveries.append((now + self._rules.delivery_seconds, self._build_ads()))

    def _run_cycle(self, *, has_events: bool) -> bool:
        """Run the negotiation cycle that is next; return False if no waiting job can ever start."""
        rules = self._rules
        self._now = self._last_cycle = self._next_cycle
        self._next_cycle += rules.cycle_seconds
        self._negotiate()
        idle_seconds = self._table.ads.published_at - self._changed_at
        if not has_events and not self._events and idle_seconds > _IDLE_PUBLICATIONS * rules.publish_seconds:
            release_at = _find_next_release(self._users, self._table, self._now)
            if release_at == _NEVER:
                return False
            self._next_cycle = _next_multiple(self._next_cycle, release_at, rules.cycle_seconds)
            self._next_ads = _next_multiple(self._next_ads, self._next_cycle, rules.publish_seconds)
            self._changed_at = self._next_ads
        return True

    def _build_result(self) -> ReplayRun:
        links = {site.site.name: site.link.busy_seconds for site in self._sites if site.link}
        return ReplayRun(
            self._workload,
            self._policy,
            self._seed,
            self._started,
            self._ended,
            self._site_of,
            self._transfers.bytes_moved,
            self._table.verdicts.evaluation_count,
            links,
            self._machine_of,
            {site.site.name: site.link.bytes_read for site in self._sites if site.link},
        )

    def _submit(self, job: int, now: float) -> None:
        """Add *job* to the queue; the schedd then asks the negotiator for a cycle."""
        self._now = self._changed_at = now
        line = self._table.lines.line_of_class[self._workload.class_of[job]]
        if not line.waiting:
            line.user.lines.append(line)
        line.waiting.append(job)
        self._waiting_count += 1
        self._table.sets.add(job)
        soonest = max(now, self._last_cycle + self._rules.cycle_delay_seconds)
        self._next_cycle = min(self._next_cycle, soonest)

    def _handle(self, now: float, number: int) -> None:
        """Handle an event: the job *number* ends, or a read ends at the site -1 - *number*."""
        self._now = self._changed_at = now
        if number >= 0:
            self._end_job(number)
        else:
            self._transfers.end_read(-1 - number, now)

    def _end_job(self, job: int) -> None:
        """End *job*; its claim takes the user's next job that matches, or ends."""
        now, claim = self._now, self._claims.pop(job)
        self._ended[job] = now
        if self._estimates and claim.run:
            line = self._table.lines.line_of_class[self._workload.class_of[job]]
            self._estimates.end_run(claim.run, line, claim.site, now - self._started[job])
        if claim.user.lines and now < claim.began_at + self._rules.claim_worklife_seconds:
            rank = claim.rank if self._rules.is_claim_kept_by_rank else -_NEVER
            site = claim.site.index
            next_line = self._table.find_line(
                claim.user,
                site,
                claim.ads,
                claim.cores,
                rank,
                now,
                takes=lambda turn: self._turns.takes_next(claim, turn, now),
            )
            if next_line and self._table.look_up(next_line, next_line.waiting[0], site, now).may_start:
                self._start(next_line.take_first(), claim, self._rules.gap_seconds)
                return
        self._turns.end_claim(claim)
        claim.end()

    def _build_ads(self) -> AdBatch:
        """Return the ads of all sites that the daemon publishes now, with the sets of all jobs so far."""
        now, rules = self._now, self._rules
        are_sets_new = self._table.sets.publish(now)
        if self._estimates is None:
            return AdBatch(now, now + rules.max_age_seconds, rows=self._fixed_rows)
        groups = self._groups
        if not rules.is_published_beforehand:
            groups = {
                line.group.index: line.group
                for user in self._users
                for line in user.lines
                if not line.is_free
            }
        return self._estimates.publish(now, self._users, groups.values(), are_sets_new=are_sets_new)

    def _negotiate(self) -> None:
        rules = self._rules
        update_priorities(self._users, self._now - self._negotiated_at, rules.priority_half_life_seconds)
        self._negotiated_at = self._now
        if not self._waiting_count or not any(site.free_cores for site in self._sites):
            return
        matches = negotiate(self._users, self._sites, self, self._turns, self._now, self._random)
        for match in matches:
            claim = begin_claim(match.line, match.site, match.machine, self._table.ads, self._now, match.rank)
            self._turns.begin_claim(claim)
            claim.turn = match.turn
            self._start(match.job, claim, 0.0)
        for match in matches if rules.has_leftovers else ():
            self._use_leftovers(match)

    def _use_leftovers(self, match: Match) -> None:
        """Let the schedd start the user's next jobs on the free cores of a matched machine."""
        site, machine, user, ads, now = match.site, match.machine, match.line.user, self._table.ads, self._now
        while cores := site.free_cores.get(machine):
            line = self._table.find_line(
                user,
                site.index,
                ads,
                cores,
                -_NEVER,
                now,
                takes=lambda _: False,  # the machine has just started a job
            )
            if line is None:
                return
            rank = self._table.look_up(line, line.waiting[0], site.index, now).rank
            claim = begin_claim(line, site, machine, ads, now, rank)
            self._turns.begin_claim(claim)
            self._start(line.take_first(), claim, 0.0)

    def rank_sites(self, line: JobLine, job: int) -> SiteRanking:
        """See :class:`hydrator.diagnostics.replay.negotiation.SlotLookup`."""
        return self._table.rank_sites(line, job, self._now)

    def find_turn(self, line: JobLine, job: int, site: int) -> ReadTurn | None:
        """See :class:`hydrator.diagnostics.replay.negotiation.SlotLookup`."""
        return self._table.find_turn(line, job, site, self._table.ads, self._now)

    def _start(self, job: int, claim: SlotClaim, delay: float) -> None:
        self._waiting_count -= 1
        self._started[job] = self._now + delay
        self._site_of[job], self._machine_of[job] = claim.site.index, claim.machine
        self._claims[job] = claim
        if self._estimates:
            line = self._table.lines.line_of_class[self._workload.class_of[job]]
            claim.run = self._estimates.begin_run(line, claim.site, self._now)
        self._transfers.begin(job, self._workload.class_of[job], claim.site, self._now, delay)


def _find_next_release(users: Iterable[UserState], table: MatchTable, now: float) -> float:
    """Return the next end of the wait of a waiting job; infinity if no wait ends."""
    ends = [
        end
        for user in users
        for job, line in user.first_jobs()
        if not line.is_free and (end := table.release_at(line, job)) > now
    ]
    return min(ends, default=_NEVER)


def _build_sites(workload: Workload) -> list[SiteState]:
    return [
        SiteState(
            index,
            site,
            build_link(site),
            dict.fromkeys(range(site.machine_count), site.machine_cores),
            site.cores,
        )
        for index, site in enumerate(workload.sites)
    ]


def _next_multiple(planned: float, soon: float, interval: float) -> float:
    """Return *planned*, or the first time of the same schedule that is not before *soon*."""
    if planned >= soon or soon == _NEVER:
        return planned
    return planned + math.ceil((soon - planned) / interval) * interval


def _build_estimates(
    sites: Sequence[SiteState], lines: Sequence[JobLine], rules: PoolRules, workload: Workload
) -> ModelEstimates | None:
    """Return the daemon's estimates; None in a pool without data locality, or if no rate is known.

    Jobs of mode require, and no others, do not depend on estimates.
    """
    is_used = any(line.is_ranked and (line.is_free or line.policy.mode != "require") for line in lines)
    names = [site.site.name for site in sites]
    has_rate = any(site.site.rate_to(name) for site in sites for name in names if name != site.site.name)
    if not (is_used and has_rate and rules.estimates.is_enabled):
        return None
    if rules.has_learned_runs:
        return ModelEstimates(sites, rules, _mean_run(workload))
    return ModelEstimates(sites, rules, rules.estimates.default_run.total_seconds())


def _mean_run(workload: Workload) -> float:
    """Return the mean computing time of the jobs, which the daemon knows from earlier jobs."""
    runs = workload.compute_seconds
    return max(1e-3, math.fsum(runs) / len(runs)) if runs else 1.0
