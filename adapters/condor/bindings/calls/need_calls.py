"""Calls for the data that jobs need, in the child process: the jobs in groups, and the sites that match them.

The data clause of a job's Requirements refers to the job's attribute ``DataLocalityHere``. So the sites that
match the rest of a job are those with a slot that matches the job if this attribute is true.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adapters.condor.bindings.calls.load_calls import HELD, IDLE, UNPLACED_UNIVERSES, LoadCalls
from adapters.condor.bindings.calls.match_calls import MatchCalls
from adapters.condor.bindings.site_match import SiteMatcher
from adapters.condor.bindings.values import Ad, expression_text, is_number

GROUP_ATTRIBUTES = (
    "DataLocalityKey",
    "User",
    "AutoClusterId",
    "JobStatus",
    "JobUniverse",
    "EnteredCurrentStatus",
)
NOT_DYNAMIC = "DynamicSlot =!= true"
QUEUED = f"JobStatus =?= {IDLE} || JobStatus =?= {HELD}"


@dataclass(frozen=True, slots=True)
class QueuedGroup:
    """Alike idle or held jobs: those that match ``constraint``, of one user.

    ``since`` (Unix seconds) is the time since which the oldest has its ``status``; None if it is unknown.
    """

    constraint: str
    user: str
    status: int
    job_count: int = 0
    since: int | None = None


def order_in_turns(groups: Iterable[QueuedGroup]) -> list[QueuedGroup]:
    """Return *groups* in turns of the users: the oldest of each user, then the second oldest of each.

    So no user's groups take the places of all others, as in the order in which data is requested.
    """
    turns: Counter[tuple[str, int]] = Counter()
    ordered = []
    for one in sorted(groups, key=lambda group: (_age_key(group), group.constraint)):
        ordered.append((turns[one.user, one.status], _age_key(one), one.constraint, one))
        turns[one.user, one.status] += 1
    return [one for *_, one in sorted(ordered, key=lambda row: row[:3])]


def _age_key(group: QueuedGroup) -> float:
    return math.inf if group.since is None else group.since


class NeedCalls(LoadCalls, MatchCalls):
    """Queries of jobs with datasets, and evaluations of the sites that match them."""

    def read_data_needs(self, schedd: str, site_attributes: Sequence[str], max_groups: int) -> Ad:
        """Return ``idle`` and ``running`` jobs of *schedd* with datasets, in rows of alike jobs.

        The idle rows include held jobs (``is_held``): they need their data, but do not wait for it.
        An idle row has ``datasets``, ``user``, ``job_count``, ``example`` (the id of its oldest job),
        ``since`` (Unix seconds, of this job) and ``ad``: the texts of the expressions of this job. Beyond
        *max_groups* rows of idle jobs, in turns of the users, ``ad`` is None. A running row has ``datasets``,
        ``user``, ``started_at``, and ``site`` or ``slot`` as in :meth:`read_running_jobs`.
        """
        queue = self.schedd(schedd)
        groups = order_in_turns(self._queued_groups(queue))
        evaluated = set([group for group in groups if group.status == IDLE][:max_groups])
        rows = (self._oldest_job(queue, group, has_ad=group in evaluated) for group in groups)
        idle = [row for row in rows if row]
        names: dict[str, tuple[str, ...]] = {}
        running = []
        for row in self.read_running_jobs(schedd, site_attributes):
            datasets = tuple(row["datasets"])
            if row["key"] is not None:
                if row["key"] not in names:
                    names[row["key"]] = self._datasets_of_key(queue, row["key"])
                datasets = names[row["key"]]
            if datasets:
                running.append({**row, "datasets": datasets})
        return {"idle": idle, "running": running}

    def evaluate_sites(self, jobs: Sequence[Mapping[str, str]], site_attributes: Sequence[str]) -> list[Ad]:
        """Return, for each of *jobs* (texts of expressions), ``sites`` and ``matches_now``.

        ``sites`` are those with a slot that would match if the data were there and the slot were empty.
        ``matches_now`` says whether a slot matches as the data is now.
        """
        matches = [SiteMatcher(self.classad, self._build_job_ad(job), site_attributes) for job in jobs]
        attributes = set().union(*(match.slot_attributes for match in matches))
        query = self._build_slot_query(self.collector_addresses() or [""])
        pairs = self._fetch_match_slots(
            lambda names, constraint: query(names, f"({constraint}) && {NOT_DYNAMIC}"),
            attributes,
            site_attributes,
        )
        return [match.evaluate_slots(pairs) for match in matches]

    def _queued_groups(self, queue: Any) -> list[QueuedGroup]:
        """Return the groups of alike idle or held jobs with datasets.

        GroupBy returns one ad for each combination of the projected attributes, so one for each second in
        which jobs of a group became idle; the lists of datasets are read only for jobs without a key.
        """
        options = self.htcondor.QueryOpt.GroupBy
        quote = self.classad.quote
        groups: dict[str, QueuedGroup] = {}
        has_unkeyed_jobs = False
        ads = queue.query(QUEUED, list(GROUP_ATTRIBUTES), opts=options)
        for ad, status in self._select_queued(ads):
            key = self._value(ad, "DataLocalityKey")
            if isinstance(key, str):
                self._add(groups, f"DataLocalityKey =?= {quote(key)}", ad, status)
            has_unkeyed_jobs = has_unkeyed_jobs or not isinstance(key, str)
        if has_unkeyed_jobs:
            ads = queue.query(QUEUED, [*GROUP_ATTRIBUTES, "RequiredDatasets"], opts=options)
            for ad, status in self._select_queued(ads):
                names = self._names(ad)
                if names and not isinstance(self._value(ad, "DataLocalityKey"), str):
                    joined = f'join(",", RequiredDatasets) =?= {quote(",".join(names))}'
                    self._add(groups, f"isString(DataLocalityKey) =!= true && {joined}", ad, status)
        return list(groups.values())

    def _add(self, groups: dict[str, QueuedGroup], data: str, ad: Any, status: int) -> None:
        """Add the jobs of *ad*, which match the constraint *data*, to their group."""
        constraint = f"{data} && {self._alike(ad, status)}"
        user, since = self._value(ad, "User"), self._value(ad, "EnteredCurrentStatus")
        one = groups.get(constraint) or QueuedGroup(constraint, user if isinstance(user, str) else "", status)
        times = [at for at in (one.since, int(since) if is_number(since) else None) if at is not None]
        groups[constraint] = replace(
            one, job_count=one.job_count + self._job_count(ad), since=min(times, default=None)
        )

    def _select_queued(self, groups: Iterable[Any]) -> Iterator[tuple[Any, int]]:
        """Yield the ads of idle and held jobs that a negotiator places, each with its JobStatus."""
        for ad in groups:
            status = self.scalar(ad, "JobStatus")
            if status in {IDLE, HELD} and self.scalar(ad, "JobUniverse") not in UNPLACED_UNIVERSES:
                yield ad, int(status)

    def _alike(self, ad: Any, status: int) -> str:
        """Return a constraint for the jobs with *status* and the user and the autocluster of *ad*."""
        user, cluster = self._value(ad, "User"), self._value(ad, "AutoClusterId")
        terms = [f"JobStatus =?= {status}"]
        terms += [f"JobUniverse =!= {each}" for each in sorted(UNPLACED_UNIVERSES)]
        terms.append(f"User =?= {self.classad.quote(user)}" if isinstance(user, str) else "User is undefined")
        is_known = type(cluster) is int
        terms.append(f"AutoClusterId =?= {cluster}" if is_known else "AutoClusterId is undefined")
        return " && ".join(terms)

    def _job_count(self, ad: Any) -> int:
        count = self.scalar(ad, "JobCount")
        return count if type(count) is int and count > 0 else 1

    def _oldest_job(self, queue: Any, group: QueuedGroup, *, has_ad: bool) -> Ad | None:
        """Return the row of *group*, with its oldest job; None if the last of its jobs has just gone."""
        oldest = f"{group.constraint} && EnteredCurrentStatus =?= {group.since}"
        constraints = [group.constraint] if group.since is None else [oldest, group.constraint]
        ad = next((ads[0] for each in constraints if (ads := queue.query(each, [], limit=1))), None)
        if ad is None or not (names := self._names(ad)):
            return None
        since = self._value(ad, "EnteredCurrentStatus")
        return {
            "datasets": names,
            "user": group.user,
            "job_count": group.job_count,
            "example": f"{self.scalar(ad, 'ClusterId')}.{self.scalar(ad, 'ProcId')}",
            "since": int(since) if is_number(since) else None,
            "is_held": group.status == HELD,
            "ad": {name: expression_text(ad, name) for name in ad} if has_ad else None,
        }

    def _datasets_of_key(self, queue: Any, key: str) -> tuple[str, ...]:
        constraint = f"DataLocalityKey =?= {self.classad.quote(key)}"
        ads = queue.query(constraint, ["RequiredDatasets"], limit=1)
        return self._names(ads[0]) if ads else ()
