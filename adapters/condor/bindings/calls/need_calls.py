"""Calls for the data that jobs need, in the child process: the jobs in groups, and the sites that match them.

The data clause of a job's Requirements refers to the job's attribute ``DataLocalityHere``. So the sites that
match the rest of a job are those with a slot that matches the job if this attribute is true.
"""
# ruff: noqa: ANN401  (the bindings have no types)

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from adapters.condor.bindings.calls.load_calls import IDLE, UNPLACED_UNIVERSES, LoadCalls
from adapters.condor.bindings.calls.match_calls import MatchCalls
from adapters.condor.bindings.site_match import SiteMatcher
from adapters.condor.bindings.values import Ad, expression_text, is_number

GROUP_ATTRIBUTES = ("DataLocalityKey", "User", "AutoClusterId", "JobStatus", "JobUniverse")
NOT_DYNAMIC = "DynamicSlot =!= true"
HELD = 5  # JobStatus


class NeedCalls(LoadCalls, MatchCalls):
    """Queries of jobs with datasets, and evaluations of the sites that match them."""

    def read_data_needs(self, schedd: str, site_attributes: Sequence[str], max_groups: int) -> Ad:
        """Return ``idle`` and ``running`` jobs of *schedd* with datasets, in rows of alike jobs.

        The idle rows include held jobs (``is_held``): they need their data, but do not wait for it.
        An idle row has ``datasets``, ``user``, ``job_count``, ``example`` (a job id), ``since`` (Unix
        seconds) and ``ad``: the texts of the expressions of the first job. Beyond *max_groups* rows, the
        largest first, ``ad`` is None. A running row has ``datasets``, ``user``,
        ``started_at``, and ``site`` or ``slot`` as in :meth:`read_running_jobs`.
        """
        queue = self.schedd(schedd)
        groups = sorted(self._queued_groups(queue), key=lambda group: -group[1])
        idle = [
            row
            for number, (constraint, count, status) in enumerate(groups)
            for row in [self._first_job(queue, constraint, count, status, is_brief=number >= max_groups)]
            if row
        ]
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

    def _queued_groups(self, queue: Any) -> Iterator[tuple[str, int, int]]:
        """Yield each group of alike idle or held jobs with datasets: constraint, number of jobs, JobStatus.

        GroupBy returns one ad for each combination of the projected attributes; the lists of datasets are
        read only for jobs without a key.
        """
        options = self.htcondor.QueryOpt.GroupBy
        quote = self.classad.quote
        has_unkeyed_jobs = False
        for ad, status in self._select_queued(queue.query("true", list(GROUP_ATTRIBUTES), opts=options)):
            key = self._value(ad, "DataLocalityKey")
            if isinstance(key, str):
                alike = f"DataLocalityKey =?= {quote(key)} && {self._alike(ad, status)}"
                yield alike, self._job_count(ad), status
            has_unkeyed_jobs = has_unkeyed_jobs or not isinstance(key, str)
        if not has_unkeyed_jobs:
            return
        ads = queue.query("true", [*GROUP_ATTRIBUTES, "RequiredDatasets"], opts=options)
        for ad, status in self._select_queued(ads):
            names = self._names(ad)
            if names and not isinstance(self._value(ad, "DataLocalityKey"), str):
                joined = f'join(",", RequiredDatasets) =?= {quote(",".join(names))}'
                no_key = "isString(DataLocalityKey) =!= true"
                yield f"{no_key} && {joined} && {self._alike(ad, status)}", self._job_count(ad), status

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

    def _first_job(
        self, queue: Any, constraint: str, count: int, status: int, *, is_brief: bool
    ) -> Ad | None:
        """Return the row of the jobs that match *constraint*; None if the last of them has just gone."""
        ads = queue.query(constraint, [], limit=1)
        if not ads or not (names := self._names(ads[0])):
            return None
        ad = ads[0]
        user, since = self._value(ad, "User"), self._value(ad, "EnteredCurrentStatus")
        return {
            "datasets": names,
            "user": user if isinstance(user, str) else "",
            "job_count": count,
            "example": f"{self.scalar(ad, 'ClusterId')}.{self.scalar(ad, 'ProcId')}",
            "since": int(since) if is_number(since) else None,
            "is_held": status == HELD,
            "ad": None if is_brief or status == HELD else {name: expression_text(ad, name) for name in ad},
        }

    def _datasets_of_key(self, queue: Any, key: str) -> tuple[str, ...]:
        constraint = f"DataLocalityKey =?= {self.classad.quote(key)}"
        ads = queue.query(constraint, ["RequiredDatasets"], limit=1)
        return self._names(ads[0]) if ads else ()
