"""Calls to schedds, in the child process: queries of queues and histories, and edits of queued jobs."""
# ruff: noqa: ANN401  (the bindings have no types)

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from adapters.condor.bindings.library import Bindings, CallError
from adapters.condor.bindings.values import Ad, choose_misses_fairly, expression_text, read_strings

REMOVED, COMPLETED = 3, 4  # JobStatus
QUEUED_CONSTRAINT = "JobStatus =!= 3 && JobStatus =!= 4"
EDITS_AT_ONCE = 1000
MISSES_ATTRIBUTE = "ChirpDataLocalityMisses"
MAX_MISSES = 1000
"""Misses in one answer of a schedd; each user gets a fair share."""
MAX_ENDED_JOBS = 20_000
"""Ended jobs with misses that one call reads."""
NEGOTIATED_UNIVERSES = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12"
"""Jobs that a negotiator places: not scheduler, grid and local universe."""
MAX_COMPLETED_IN_QUEUE_SECONDS = 11 * 86_400
"""Seconds that a completed job may stay in the queue before it is history: 10 days, if it was spooled."""
MAX_KEY_CHARS = 1001
"""Characters of a DataLocalityKey that are read: a key of a dataset has 1000 at most."""
OUTCOME_ATTRIBUTES = (
    *("GlobalJobId", "QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus"),
)


_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_BARE_NUMBER = re.compile(r"(?:^|\|\||&&)[\s(!]*(\d[\w.+]*)[\s)]*(?:\|\||&&|$)")
"""A number where a condition must be, such as 179 in ``ClusterId == 178 || 179``."""


class ScheddCalls(Bindings):
    """Queries of the pool's schedds, and edits of their jobs."""

    def schedds(self) -> list[Ad]:
        """Return name, machine and version of every schedd that the collector lists."""
        return self.query_scalars("Schedd", ("Name", "Machine", "CondorVersion"))

    def has_user_record(self, schedd: str, user: str) -> bool:
        """Return True if the schedd has a user record of *user*; a queue super user needs this record."""
        constraint = f"User =?= {self.classad.quote(user)}"
        return bool(self.schedd(schedd).queryUserAds(constraint, ["User"]))

    # queued jobs

    def count_queued_datasets(self, schedd: str) -> list[tuple[list[str], int, str | None]]:
        """Count jobs by RequiredDatasets and DataLocalityKey; omit removed and completed jobs.

        The key is None if it is not a string.

        GroupBy returns one ad, with a JobCount, for each combination of the projected attributes. The
        constraint of a query with GroupBy can use only these attributes. The constraint does not test
        RequiredDatasets: "isnt undefined" would exclude a list that refers to a missing attribute.

        For items of a late-materialization factory that are not jobs yet, the queue has only the factory's
        cluster ad, with the RequiredDatasets of the first item. This ad counts as one job, even if many
        items are not jobs yet.
        """
        queue = self.schedd(schedd)
        options = self.htcondor.QueryOpt
        counts: dict[tuple[tuple[str, ...], str | None], int] = {}

        def add(ads: Iterable[Any], count_jobs: Callable[[Any], int]) -> None:
            for ad in ads:
                if "RequiredDatasets" in ad:
                    jobs = (self._read_required_datasets(ad), self._read_key(ad))
                    counts[jobs] = counts.get(jobs, 0) + count_jobs(ad)

        grouped = ["RequiredDatasets", "DataLocalityKey", "JobStatus"]
        groups = queue.query("true", grouped, opts=options.GroupBy)
        scalar = self.scalar
        live = (ad for ad in groups if scalar(ad, "JobStatus") not in {REMOVED, COMPLETED})
        add(live, lambda ad: scalar(ad, "JobCount") or 1)
        factories = queue.query(
            "ProcId is undefined && JobMaterializeDigestFile isnt undefined "
            f"&& {QUEUED_CONSTRAINT} "
            "&& (TotalSubmitProcs > JobMaterializeNextProcId) =!= false",
            ["RequiredDatasets", "DataLocalityKey"],
            opts=options.IncludeClusterAd,
        )
        add(factories, lambda _: 1)
        ordered = sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] or ""))
        return [(list(datasets), jobs, key) for (datasets, key), jobs in ordered if jobs]

    def read_constraint_names(self, constraint: str) -> list[str]:
        """Return the attributes of jobs that *constraint* refers to; refuse it as the edits do."""
        return self._read_constraint(constraint)[1]

    def has_queued_job(self, schedd: str, constraint: str) -> bool:
        """Return True if a queued job matches *constraint*."""
        selection = self._select_jobs(constraint)
        queue = self.schedd(schedd)
        return bool(queue.query(f"({selection}) && {QUEUED_CONSTRAINT}", ["ClusterId"], limit=1))

    def run_anywhere(self, schedd: str, constraint: str | None) -> int:
        """Set DataLocalityHere of queued jobs to true, and check the result; return the number of jobs.

        The check is a query, because a 23.9 schedd reports success even if it rejects an edit.
        """
        selection = self._select_jobs(constraint)
        queue = self.schedd(schedd)
        withheld = (
            f"({selection}) && DataLocalityTransformed =?= true && DataLocalityHere =!= true "
            f"&& {QUEUED_CONSTRAINT}"
        )
        jobs = _query_ids(queue, withheld)
        for start in range(0, len(jobs), EDITS_AT_ONCE):
            self._edit(queue, jobs[start : start + EDITS_AT_ONCE], "DataLocalityHere", "true")
        remaining = set(_query_ids(queue, withheld)) if jobs else set()
        if rejected := [job for job in jobs if job in remaining]:
            raise CallError(
                "denied",
                f"it rejected the edit of {len(rejected)} of {len(jobs)} jobs (the first is {rejected[0]})",
            )
        return len(jobs)

    def _edit(self, queue: Any, ids: Sequence[str], attribute: str, literal: str) -> None:
        """Edit jobs by id. Omit jobs that left the queue, because they would make the transaction fail."""
        try:
            queue.edit(list(ids), attribute, literal)
        except self.htcondor.HTCondorException as failure:
            queued = set(_query_ids(queue, QUEUED_CONSTRAINT))
            remaining = [job for job in ids if job in queued]
            if len(remaining) == len(ids):
                if match := re.search(r"commit transaction: *(.+)", str(failure)):
                    raise CallError("denied", match[1].strip()) from failure
                raise
            if remaining:
                queue.edit(remaining, attribute, literal)

    def _select_jobs(self, constraint: str | None) -> str:
        """Return *constraint* as the bindings read it, for a query; None is every job."""
        return "true" if constraint is None else self._read_constraint(constraint)[0]

    def _read_constraint(self, constraint: str) -> tuple[str, list[str]]:
        """Return *constraint* as the bindings read it, and the attributes of jobs that it refers to.

        Raises:
            CallError: the constraint is no expression, is true or false for all jobs alike, or has a bare
                number as a condition, which is true for all jobs.
        """
        expression = self.parse_expression(constraint, "the constraint")
        scoped = [name.split(".") for name in self.classad.ClassAd().externalRefs(expression) if name]
        bare = [names[1:] if names[0].lower() == "my" else names for names in scoped]
        first = {names[0].lower(): names[0] for names in bare if names and names[0].lower() != "target"}
        if not first:
            advice = "name a job (123 or 123.4), an attribute (ClusterId == 123), or --all"
            raise CallError("usage", f"the constraint {constraint[:200]} asks nothing of a job: {advice}")
        if number := _BARE_NUMBER.search(_STRING.sub('""', str(expression))):
            advice = f"write ClusterId == {number[1]} for a job"
            raise CallError("usage", f"the constraint has a bare {number[1]}, true for all jobs: {advice}")
        return str(expression), sorted(first.values())

    # ended jobs

    def query_misses(self, schedd: str, since: int) -> list[list[str]]:
        """Return misses of jobs in the queue, and of ended jobs in the history after *since* (Unix s)."""
        queue = self.schedd(schedd)
        constraint = f"{MISSES_ATTRIBUTE} isnt undefined"
        ads = list(queue.query(constraint, [MISSES_ATTRIBUTE, "User"]))
        stop = f"EnteredCurrentStatus < {since}"
        ads += queue.history(constraint, [MISSES_ATTRIBUTE, "User"], MAX_ENDED_JOBS, since=stop)
        scalar = self.scalar
        reports = ((str(scalar(ad, "User")), read_strings(ad, MISSES_ATTRIBUTE)) for ad in ads)
        return choose_misses_fairly(reports, MAX_MISSES)

    def outcomes(
        self,
        schedd: str,
        since: int,
        after_job_id: str | None,
        max_jobs: int,
        site_attributes: Sequence[str],
        ended_before: int | None = None,
    ) -> list[Ad]:
        """Return jobs that ended from *since* until before *ended_before* (Unix s).

        The job that left the queue last comes first.

        The history is in the order in which jobs left the queue, and the schedd reads it backwards. The
        schedd stops at the job *after_job_id* (a GlobalJobId), or at a job that ended more than
        MAX_COMPLETED_IN_QUEUE_SECONDS before *since*: older entries have no job that ended after *since*.
        """
        queue = self.schedd(schedd)
        machine_attributes = [f"MachineAttr{name}0" for name in site_attributes]
        attributes = [
            *OUTCOME_ATTRIBUTES,
            "RequiredDatasets",
            "RequiredBytes",
            MISSES_ATTRIBUTE,
            *machine_attributes,
        ]
        stop = f"EnteredCurrentStatus < {since - MAX_COMPLETED_IN_QUEUE_SECONDS}"
        if after_job_id is not None:
            stop = f"GlobalJobId =?= {self.classad.quote(after_job_id)} || {stop}"
        constraint = f"{NEGOTIATED_UNIVERSES} && EnteredCurrentStatus >= {since}"
        if ended_before is not None:
            constraint = f"{constraint} && EnteredCurrentStatus < {ended_before}"
        ads = queue.history(constraint, attributes, max_jobs, since=stop)
        return [self._outcome_row(ad, machine_attributes) for ad in ads]

    def last_ended(self, schedd: str) -> str | None:
        """Return the GlobalJobId of the job that left the queue last."""
        for ad in self.schedd(schedd).history("true", ["GlobalJobId"], 1):
            job_id = self.scalar(ad, "GlobalJobId")
            return job_id if isinstance(job_id, str) else None
        return None

    def _outcome_row(self, ad: Any, machine_attributes: Sequence[str]) -> Ad:
        scalar = self.scalar
        site = next((name for name in machine_attributes if isinstance(scalar(ad, name), str)), None)
        return {
            **self.scalars(ad, OUTCOME_ATTRIBUTES),
            "site": scalar(ad, site) if site else None,
            "datasets": list(self._read_required_datasets(ad)) if "RequiredDatasets" in ad else None,
            "bytes": _input_sizes(ad),
            "misses": read_strings(ad, MISSES_ATTRIBUTE),
        }

    def _read_key(self, ad: Any) -> str | None:
        """Return the value of DataLocalityKey; None if it is not a string."""
        with suppress(Exception):
            key = ad.eval("DataLocalityKey")
            return key[:MAX_KEY_CHARS] if isinstance(key, str) else None
        return None

    def _read_required_datasets(self, ad: Any) -> tuple[str, ...]:
        """Return the strings of RequiredDatasets; for any other value, one text that is not a valid DID."""
        with suppress(Exception):
            value = ad.eval("RequiredDatasets")
            if isinstance(value, list):
                tree = self.classad.ExprTree
                items = [item.eval(ad) if isinstance(item, tree) else item for item in value]
                if items and all(isinstance(item, str) for item in items):
                    return tuple(items)
        return (f"RequiredDatasets = {expression_text(ad, 'RequiredDatasets')}",)


def _query_ids(queue: Any, constraint: str) -> list[str]:
    """Return the ids of the jobs that match *constraint*."""
    return [f"{ad['ClusterId']}.{ad['ProcId']}" for ad in queue.query(constraint, ["ClusterId", "ProcId"])]


def _input_sizes(ad: Any) -> dict[str, int]:
    """Return the entries of RequiredBytes that are whole numbers."""
    with suppress(Exception):
        sizes = ad.eval("RequiredBytes")
        return {name: size for name, size in sizes.items() if type(size) is int}
    return {}
