"""Negotiation cycles of the model: the users in the order of their priority, one match for each machine."""

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from .lines import JobLine, MatchVerdict, SiteState, UserState

_MIN_PRIORITY = 0.5
"""HTCondor's best user priority, of a user without any use."""


@dataclass(frozen=True, slots=True)
class Match:
    """A waiting job that gets a claim on one machine."""

    job: int
    line: JobLine
    site: SiteState
    machine: int
    rank: float


class VerdictLookup(Protocol):
    """The verdict of a job at a site, on the site's present ad."""

    def __call__(self, line: JobLine, job: int, site: SiteState) -> MatchVerdict:
        """Return the verdict of *job*, the first of *line*, at *site*."""


def update_priorities(users: Sequence[UserState], elapsed_seconds: float, half_life_seconds: float) -> None:
    """Let each user's priority approach his cores in use, with the half-life of past use."""
    weight = 0.5 ** (elapsed_seconds / half_life_seconds)
    for user in users:
        user.priority = max(_MIN_PRIORITY, user.priority * weight + user.cores_in_use * (1 - weight))


def negotiate(
    users: Sequence[UserState], sites: Sequence[SiteState], look_up: VerdictLookup, random_: random.Random
) -> list[Match]:
    """Match waiting jobs with free machines, and take the matched jobs from their lines.

    A user first gets cores up to his share of the pool, and then what the others leave. Each machine gets
    one match in a cycle, as for partitionable slots. Of machines with equal rank, one is drawn.
    """
    total = sum(site.site.cores for site in sites)
    open_machines = {site.index: list(site.free_cores) for site in sites if site.free_cores}
    waiting = sorted((user for user in users if user.lines), key=lambda user: (user.priority, user.name))
    weight = sum(1 / user.priority for user in waiting)
    matches: list[Match] = []
    for has_limit in (True, False) if len(waiting) > 1 else (False,):
        for user in waiting:
            if not open_machines:
                return matches
            share = total / user.priority / weight - user.cores_in_use - _count_matched_cores(matches, user)
            limit = share if has_limit else float("inf")
            matches += _match_user(user, limit, open_machines, sites, look_up, random_)
    return matches


def _count_matched_cores(matches: Sequence[Match], user: UserState) -> int:
    return sum(match.line.cores for match in matches if match.line.user is user)


def _match_user(
    user: UserState,
    limit: float,
    open_machines: dict[int, list[int]],
    sites: Sequence[SiteState],
    look_up: VerdictLookup,
    random_: random.Random,
) -> Iterator[Match]:
    """Yield the matches of *user*, job by job in the order of the queue, while cores are below *limit*."""
    heads = list(user.first_jobs())
    heapq.heapify(heads)
    cores = 0
    while heads and open_machines and cores < limit:
        job, line = heapq.heappop(heads)
        best = _best_site(job, line, open_machines, sites, look_up, random_)
        if best is None:
            continue  # no later job of the line matches either
        site, machine, rank = best
        line.waiting.popleft()
        if line.waiting:
            heapq.heappush(heads, (line.waiting[0], line))
        else:
            user.lines.remove(line)
        machines = open_machines[site.index]
        machines.remove(machine)
        if not machines:
            del open_machines[site.index]
        cores += line.cores
        yield Match(job, line, site, machine, rank)


def _best_site(
    job: int,
    line: JobLine,
    open_machines: dict[int, list[int]],
    sites: Sequence[SiteState],
    look_up: VerdictLookup,
    random_: random.Random,
) -> tuple[SiteState, int, float] | None:
    """Return the machine with the best rank for *job*, its site and the rank; None without a match."""
    best_rank, total = 0.0, 0
    choices: list[tuple[SiteState, list[int]]] = []
    for index, machines in open_machines.items():
        site = sites[index]
        verdict = look_up(line, job, site)
        if not verdict.matches or (choices and verdict.rank < best_rank):
            continue
        fitting = machines
        if line.cores > 1:
            fitting = [one for one in machines if site.free_cores[one] >= line.cores]
        if not fitting:
            continue
        if not choices or verdict.rank > best_rank:
            best_rank, choices, total = verdict.rank, [], 0
        choices.append((site, fitting))
        total += len(fitting)
    if not choices:
        return None
    place = int(random_.random() * total)
    for site, fitting in choices:
        if place < len(fitting):
            return site, fitting[place], best_rank
        place -= len(fitting)
    raise AssertionError("a place below the total is in one of the choices")
