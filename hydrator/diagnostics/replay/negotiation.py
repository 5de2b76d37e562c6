"""Negotiation cycles of the model: the users in the order of their priority, one match for each machine."""

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from hydrator.domain.model import Site

from .expressions import READER_CLAIM_SECONDS, READER_PAUSE_SECONDS
from .lines import JobLine, ReadTurn, SiteRanking, SiteState, SlotClaim, UserState

_MIN_PRIORITY = 0.5
"""HTCondor's best user priority, of a user without any use."""


@dataclass(frozen=True, slots=True)
class Match:
    """A waiting job that gets a claim on one machine; ``turn`` is its read limit, if it has one."""

    job: int
    line: JobLine
    site: SiteState
    machine: int
    rank: float
    turn: ReadTurn | None = None


class SlotLookup(Protocol):
    """The matches of a job, on the present ads of the sites."""

    def rank_sites(self, line: JobLine, job: int) -> SiteRanking:
        """Return the sites whose slots *job*, the first of *line*, matches, best rank first."""

    def find_turn(self, line: JobLine, job: int, site: int) -> ReadTurn | None:
        """Return the read limit of *job*, the first of *line*, at the index *site*; None without one."""


class ReadTurns:
    """The concurrency limits of jobs that begin to read, as negotiator, schedds and startds apply them.

    A limit counts the claims whose first job began to read in its turn. The rules for claims and for other
    cores of a machine are those of HTCondor 24.10 and later.

    Args:
        readers: the pool's DATALOCALITY_READERS.
    """

    def __init__(self, readers: int) -> None:
        self._limit = 100 * readers
        self._weights: dict[tuple[Site, int, int], int] = {}
        self._last_starts: dict[tuple[int, int], float] = {}

    def has_room(self, turn: ReadTurn) -> bool:
        """Return True if one more job may begin to read in *turn*."""
        return self._weights.get(turn[:3], 0) + turn.weight <= self._limit

    def is_open(self, site: int, machine: int, now: float) -> bool:
        """Return True if *machine* takes a job that begins to read: no job has just got a slot of it."""
        last = self._last_starts.get((site, machine))
        return last is None or now - last >= READER_PAUSE_SECONDS

    def takes_next(self, claim: SlotClaim, turn: ReadTurn | None, now: float) -> bool:
        """Return True if the schedd gives *claim* to a job with the read limit *turn*."""
        return turn is None or (turn == claim.turn and now - claim.began_at < READER_CLAIM_SECONDS)

    def add(self, turn: ReadTurn | None) -> None:
        """Count a match with the read limit *turn*."""
        if turn is not None:
            self._weights[turn[:3]] = self._weights.get(turn[:3], 0) + turn.weight

    def begin_claim(self, claim: SlotClaim) -> None:
        """Remember the time when *claim* begins on its machine."""
        self._last_starts[claim.site.index, claim.machine] = claim.began_at

    def end_claim(self, claim: SlotClaim) -> None:
        """Stop counting the read limit of *claim*."""
        if claim.turn is not None:
            left = self._weights.pop(claim.turn[:3]) - claim.turn.weight
            if left:
                self._weights[claim.turn[:3]] = left


def update_priorities(users: Sequence[UserState], elapsed_seconds: float, half_life_seconds: float) -> None:
    """Let each user's priority approach his cores in use, with the half-life of past use."""
    weight = 0.5 ** (elapsed_seconds / half_life_seconds)
    for user in users:
        user.priority = max(_MIN_PRIORITY, user.priority * weight + user.cores_in_use * (1 - weight))


def negotiate(
    users: Sequence[UserState],
    sites: Sequence[SiteState],
    slots: SlotLookup,
    turns: ReadTurns,
    now: float,
    random_: random.Random,
) -> list[Match]:
    """Match waiting jobs with free machines, and take the matched jobs from their lines.

    A user first gets cores up to his share of the pool, and then what the others leave. Each machine gets
    one match in a cycle, as for partitionable slots. Of machines with equal rank, one is drawn. A job that
    would begin to read matches only while its turn has room.
    """
    total = sum(site.site.cores for site in sites)
    cycle = _NegotiationCycle(sites, slots, turns, now, random_)
    waiting = sorted((user for user in users if user.lines), key=lambda user: (user.priority, user.name))
    weight = sum(1 / user.priority for user in waiting)
    matches: list[Match] = []
    for has_limit in (True, False) if len(waiting) > 1 else (False,):
        for user in waiting:
            if not cycle.open_machines:
                return matches
            used = user.cores_in_use + cycle.matched_cores.get(user.name, 0)
            share = total / user.priority / weight - used
            matches += cycle.match_user(user, share if has_limit else float("inf"))
    return matches


class _NegotiationCycle:
    """One cycle of the negotiator.

    Attributes:
        open_machines: the machines without a match, by site.
        matched_cores: the cores of the matches, by user.
    """

    def __init__(
        self,
        sites: Sequence[SiteState],
        slots: SlotLookup,
        turns: ReadTurns,
        now: float,
        random_: random.Random,
    ) -> None:
        self._sites, self._slots, self._turns, self._now, self._random = sites, slots, turns, now, random_
        self.open_machines = {site.index: list(site.free_cores) for site in sites if site.free_cores}
        self.matched_cores: dict[str, int] = {}
        self._unmatched: set[int] = set()
        """The ids of lines whose first job matches nothing. In this cycle it never will: slots only leave."""

    def match_user(self, user: UserState, limit: float) -> Iterator[Match]:
        """Yield the matches of *user*, in the order of the queue, while the cores are below *limit*."""
        if limit <= 0:
            return
        unmatched, cores = self._unmatched, 0
        heads = [(line.waiting[0], line) for line in user.lines if id(line) not in unmatched]
        heapq.heapify(heads)
        while heads and self.open_machines and cores < limit:
            job, line = heapq.heappop(heads)
            match = self._find_match(job, line)
            if match is None:
                unmatched.add(id(line))  # no later job of the line matches either
                continue
            line.waiting.popleft()
            if line.waiting:
                heapq.heappush(heads, (line.waiting[0], line))
            else:
                user.lines.remove(line)
            machines = self.open_machines[match.site.index]
            machines.remove(match.machine)
            if not machines:
                del self.open_machines[match.site.index]
            cores += line.cores
            self.matched_cores[user.name] = self.matched_cores.get(user.name, 0) + line.cores
            self._turns.add(match.turn)
            yield match

    def _find_match(self, job: int, line: JobLine) -> Match | None:
        """Return the match of *job* with the machine that has the best rank; None if no machine matches."""
        for rank, sites in self._slots.rank_sites(line, job):
            choices: list[tuple[int, list[int], ReadTurn | None]] = []
            for index in sites:
                if machines := self.open_machines.get(index):
                    turn = self._slots.find_turn(line, job, index)
                    if fitting := self._find_machines(line, self._sites[index], machines, turn):
                        choices.append((index, fitting, turn))
            if not choices:
                continue
            place = int(self._random.random() * sum(len(fitting) for _, fitting, _ in choices))
            for index, fitting, turn in choices:
                if place < len(fitting):
                    return Match(job, line, self._sites[index], fitting[place], rank, turn)
                place -= len(fitting)
        return None

    def _find_machines(
        self, line: JobLine, site: SiteState, machines: list[int], turn: ReadTurn | None
    ) -> list[int]:
        """Return those of *machines* that can take the first job of *line*, whose read limit is *turn*."""
        if turn is not None:
            if not self._turns.has_room(turn):
                return []
            machines = [one for one in machines if self._turns.is_open(site.index, one, self._now)]
        if line.cores > 1:
            machines = [one for one in machines if site.free_cores[one] >= line.cores]
        return machines
