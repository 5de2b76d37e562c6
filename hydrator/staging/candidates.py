"""Candidates: the sets of datasets that queued jobs wait for and that no site has, in a fair order. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.model import DatasetState, Did, Site
from hydrator.domain.text import format_duration

from .needs import LiveNeed, LiveNeeds
from .policy import StagingPolicy
from .view import DataView


@dataclass(frozen=True, slots=True)
class Candidate:
    """Datasets that idle jobs wait for, and the sites that match the rest of these jobs.

    ``user`` is the owner of the oldest job, for whom the request counts. ``matching_sites`` match all these
    jobs, or the oldest if no site matches all.
    """

    dids: tuple[Did, ...]
    user: str
    job_count: int
    queued_since: datetime
    example: str
    matching_sites: frozenset[Site]
    schedds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Jobs for whose data nothing is requested now.

    Attributes:
        dids: datasets of the jobs.
        user: owner of the oldest job.
        job_count: these jobs.
        example: one of them.
        reason: reason in one sentence.
        site: site that was considered; null: none.
        is_waiting: the data is there or on its way, or it is too early; false: a limit or a missing fact
            prevents it.
    """

    dids: tuple[Did, ...]
    user: str
    job_count: int
    example: str
    reason: str
    site: Site | None = None
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class CandidateList:
    """The candidates in the order in which they are served, and the jobs that are none."""

    candidates: tuple[Candidate, ...] = ()
    not_asked: tuple[NotAsked, ...] = field(default=())


def find_candidates(view: DataView, needs: LiveNeeds, policy: StagingPolicy, now: datetime) -> CandidateList:
    """Find the sets of datasets to request: round robin over users, the oldest job of each user first.

    Only idle jobs of schedds that answered in this step count, and only if nothing but data is missing.
    """
    groups: dict[tuple[Did, ...], list[LiveNeed]] = {}
    refused: list[NotAsked] = []
    for need in needs.current_needs:
        if need.jobs.is_running or need.jobs.is_data_missing is False:
            continue
        reason, is_waiting = _explain_exclusion(need, view, policy, now)
        if reason:
            refused.append(_refuse(need, reason, is_waiting=is_waiting))
        else:
            groups.setdefault(need.dids, []).append(need)
    candidates = [_merge(dids, group) for dids, group in groups.items()]
    return CandidateList(tuple(order_fairly(candidates)), tuple(refused))


def order_fairly(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return *candidates* in turns of the users: the oldest of each user, then the second oldest of each."""
    turns: Counter[str] = Counter()
    ordered = []
    for one in sorted(candidates, key=lambda each: (each.queued_since, each.dids)):
        ordered.append((turns[one.user], one.queued_since, one.dids, one))
        turns[one.user] += 1
    return [one for *_, one in sorted(ordered, key=lambda row: row[:3])]


def _explain_exclusion(
    need: LiveNeed, view: DataView, policy: StagingPolicy, now: datetime
) -> tuple[str | None, bool]:
    """Return why nothing is asked for *need*, and whether time alone helps; (None, False) for a candidate."""
    jobs = need.jobs
    if view.problem:
        return view.problem, False
    if jobs.is_data_missing is None or jobs.matching_sites is None:
        return "it is unknown whether the jobs wait for anything but data", False
    if unseen := next((why for did in need.dids if (why := view.unseen_reason(did))), None):
        return unseen, False
    if site := _find_site(need, view, DatasetState.AVAILABLE):
        return f"the data is complete at {site}", True
    if site := _find_site(need, view, DatasetState.AVAILABLE, DatasetState.STAGING):
        return f"the data is on its way to {site}", True
    waited = now - jobs.queued_since
    if waited < policy.times.wait:
        left = format_duration((policy.times.wait - waited).total_seconds())
        return f"the jobs have waited for {format_duration(waited.total_seconds())}; asked in {left}", True
    return None, False


def _find_site(need: LiveNeed, view: DataView, *states: DatasetState) -> Site | None:
    """Return a site where each dataset of *need* has one of *states*."""
    return next(
        (site for site in sorted(view.facts) if all(view.state(did, site) in states for did in need.dids)),
        None,
    )


def _refuse(need: LiveNeed, reason: str, *, is_waiting: bool) -> NotAsked:
    jobs = need.jobs
    return NotAsked(need.dids, need.user, jobs.job_count, jobs.example, reason, is_waiting=is_waiting)


def _merge(dids: tuple[Did, ...], group: list[LiveNeed]) -> Candidate:
    oldest = min(group, key=lambda need: (need.jobs.queued_since, need.schedd, need.jobs.example))
    sites = [need.jobs.matching_sites or frozenset() for need in group]
    common = frozenset[Site].intersection(*sites)
    return Candidate(
        dids,
        oldest.user,
        sum(need.jobs.job_count for need in group),
        oldest.jobs.queued_since,
        oldest.jobs.example,
        common or oldest.jobs.matching_sites or frozenset(),
        frozenset(need.schedd for need in group),
    )
