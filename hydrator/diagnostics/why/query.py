"""Explain one job: query the job's schedd and the pool's slots, and build the explanation.

``hydrator why`` and the daemon's page use this module, so both give the same answer.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from hydrator.diagnostics.daemon_probe import ScheddProbe
from hydrator.diagnostics.schedd_budget import ScheddBudget, parse_budget
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import DaemonKnowledge, Demand, Did, Site, Snapshot, to_unix
from hydrator.domain.text import format_duration, matches_any
from hydrator.reconcile.ads.site_ads import Budget, dids_without_room, draft_site_ads

from .explain import explain
from .explanation import JobExplanation
from .pool_facts import (
    HERE_ATTRIBUTE,
    JobFacts,
    JobStatus,
    fact_expressions,
    parse_job,
    parse_slot_groups,
    parse_string_literal,
    with_requests,
)
from .schedd_facts import ScheddFacts, can_free_jobs, fetch_schedd_facts
from .sets.start_record import START_ATTRIBUTE, parse_start_record, start_text
from .summary import JobSummary, summarize_jobs

JOB_PATTERN = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,10}))?\Z")
"""The number of a job (``12.0``), or of a cluster for all its jobs (``12``), as a user types it."""


StagingExplainer = Callable[[Sequence[Did], str | None], tuple[str, ...]]
"""Returns sentences about the daemon's requests for the given datasets of one job with the given key."""


class WhyPoolClient(ScheddProbe, Protocol):
    """The queries to the pool; CondorClient implements them."""

    def schedds(self) -> list[dict[str, Any]]: ...
    def jobs(self, schedd: str, cluster: int, proc: int | None = None) -> list[dict[str, Any]]: ...
    def find_ended_job(self, schedd: str, cluster: int, proc: int | None = None) -> dict[str, Any] | None: ...
    def evaluate_match(
        self,
        job: Mapping[str, str],
        facts: Sequence[str],
        site_attributes: Sequence[str],
        *,
        atomic_attributes: Sequence[str] = (),
        flock: Sequence[str] = (),
    ) -> dict[str, Any]: ...
    def count_uploads(self, schedd: str, user: str, least_bytes: int) -> int: ...


@dataclass(frozen=True, slots=True)
class WhyQuery:
    """Inputs of a query; ``knowledge_error`` is the reason why ``knowledge`` is None."""

    pool: WhyPoolClient
    site_attributes: Sequence[str]
    knowledge: DaemonKnowledge | None
    default_scope: str | None
    now: datetime
    knowledge_error: str | None = None
    never: tuple[str, ...] = ()
    """Patterns of the datasets that are never published."""
    fetch_knowledge: Callable[[frozenset[Did], str | None], DaemonKnowledge | None] | None = None
    """Fetches the daemon's knowledge of the given datasets, and of the set with the given key, over HTTP.

    Called if ``knowledge`` is None.
    """
    add_similar_names: Callable[[DaemonKnowledge, frozenset[Did]], DaemonKnowledge] | None = None
    """Adds similar names that exist, for each given dataset that no catalogue has."""
    explain_staging: StagingExplainer | None = None
    can_offer_run_anywhere: bool = False
    """True if the answer may propose `hydrator run-anywhere`; the schedd must allow it too."""


@dataclass(frozen=True, slots=True)
class WhyResult:
    """The answers of ``hydrator why``.

    Attributes:
        answers: one for each kind of jobs.
        unreachable_schedds: schedds that did not answer, with the reason.
        summary: summary of the cluster's jobs that have no answer of their own in ``answers``.
    """

    answers: tuple[JobExplanation, ...]
    unreachable_schedds: Mapping[str, str] = field(default_factory=dict)
    summary: JobSummary = field(default_factory=JobSummary)


def ask_job(query: WhyQuery, cluster: int, proc: int | None, schedd: str | None) -> WhyResult:
    """Find a job at its schedd, and evaluate the match of the job with every slot.

    Equal jobs of a cluster share one answer.

    Raises:
        ConfigError: several schedds have a job with this number.
        PoolError: no schedd has the job, or the query of the pool failed.
    """
    names = [schedd] if schedd else [str(ad["Name"]) for ad in query.pool.schedds()]
    queued: dict[str, list[dict[str, Any]]] = {}
    unreachable: dict[str, str] = {}
    for name in names:
        try:
            if rows := query.pool.jobs(name, cluster, proc):
                queued[name] = rows
        except PoolError as error:
            unreachable[name] = error.reason
    job_number = f"{cluster}" if proc is None else f"{cluster}.{proc}"
    if len(queued) > 1:
        raise ConfigError([f"job {job_number} is at {', '.join(queued)}: choose one with --schedd"])
    if not queued:
        return WhyResult((_explain_ended_job(query, names, cluster, proc, unreachable),), unreachable)
    ((name, rows),) = queued.items()
    brief_rows = [row for row in rows if row.get("brief")]
    other_jobs = [parse_job(row["ad"], row["procs"], name, query.default_scope) for row in brief_rows]
    answers = tuple(_explain_queued_job(query, name, row) for row in rows if not row.get("brief"))
    return WhyResult(answers, unreachable, summarize_jobs(other_jobs, _knowledge_for(query, other_jobs)))


def _knowledge_for(
    query: WhyQuery, jobs: Sequence[JobFacts], key: str | None = None
) -> DaemonKnowledge | None:
    """Return the daemon's knowledge of the datasets of *jobs* and of the set *key*.

    Fetch it if ``query.knowledge`` is None.
    """
    wanted_dids = frozenset(did for job in jobs for did in job.datasets)
    knowledge = (
        query.fetch_knowledge(wanted_dids, key)
        if query.knowledge is None and query.fetch_knowledge and wanted_dids
        else query.knowledge
    )
    return (
        query.add_similar_names(knowledge, wanted_dids)
        if knowledge and query.add_similar_names
        else knowledge
    )


def _explain_queued_job(query: WhyQuery, schedd: str, row: Mapping[str, Any]) -> JobExplanation:
    job = parse_job(row["ad"], row["procs"], schedd, query.default_scope)
    unpublished = tuple(did for did in job.datasets if matches_any(did, query.never))
    withheld = query.knowledge.withheld_keys if query.knowledge else frozenset()
    job = replace(job, never_published=unpublished, has_withheld_key=job.key in withheld)
    if job.status not in {None, JobStatus.IDLE, JobStatus.HELD}:
        return explain(job, (), None, now=query.now)
    facts = fetch_schedd_facts(query.pool, schedd)
    flock = facts.pools_of(parse_string_literal(_attribute_text(row["ad"], "FlockTo")))
    match_result = query.pool.evaluate_match(
        row["ad"],
        fact_expressions(job.datasets),
        query.site_attributes,
        atomic_attributes=[HERE_ATTRIBUTE],
        flock=flock,
    )
    groups = parse_slot_groups(match_result, job.datasets)
    job = replace(
        with_requests(job, match_result),
        max_uploads=facts.max_uploads,
        uploads=_count_uploads(query, schedd, row["ad"], facts),
        budget=_fetch_budget(query, schedd),
        can_free=query.can_offer_run_anywhere
        and job.is_transformed
        and can_free_jobs(query.pool, schedd, facts),
    )
    answer = explain(job, groups, _knowledge_for(query, [job], job.key), now=query.now)
    notes = [
        f"pool {pool}, to which the job's schedd flocks, did not answer: {why}"
        for pool, why in (match_result.get("unreachable_pools") or {}).items()
    ]
    staging = query.explain_staging(job.datasets, job.key) if query.explain_staging else ()
    return replace(answer, notes=(*answer.notes, *notes), staging=staging)


def _attribute_text(ad: Mapping[str, str], name: str) -> str | None:
    """Return the text of the attribute *name* in *ad*; attribute names ignore letter case."""
    return next((text for key, text in ad.items() if key.lower() == name.lower()), None)


def _count_uploads(query: WhyQuery, schedd: str, ad: Mapping[str, str], facts: ScheddFacts) -> int:
    """Return how many jobs of the job's user send input files now; 0 if the schedd has no limit for this."""
    user = parse_string_literal(_attribute_text(ad, "User"))
    if facts.max_uploads is None or user is None:
        return 0
    try:
        return query.pool.count_uploads(schedd, user, facts.queued_bytes)
    except PoolError:
        return 0


def _fetch_budget(query: WhyQuery, schedd: str) -> ScheddBudget | None:
    """Return the budget of *schedd* by its ad; None if the collector does not have the figures."""
    try:
        ads = query.pool.schedds()
    except PoolError:
        return None
    return next((parse_budget(ad) for ad in ads if ad.get("Name") == schedd), None)


def _explain_ended_job(
    query: WhyQuery, names: Iterable[str], cluster: int, proc: int | None, unreachable_schedds: dict[str, str]
) -> JobExplanation:
    """Find a job that left its queue: search the schedds' histories, and return how the job ended."""
    for name in names:
        if name in unreachable_schedds:
            continue
        try:
            ad = query.pool.find_ended_job(name, cluster, proc)
        except PoolError as error:
            unreachable_schedds[name] = f"the query of the schedd's history failed: {error.reason}"
            continue
        if ad:
            return _history_answer(ad, name, query.now)
    job_number = f"{cluster}" if proc is None else f"{cluster}.{proc}"
    failures = [f"{name} did not answer: {reason}" for name, reason in unreachable_schedds.items()]
    where = "no schedd that answered has the job" if failures else "no schedd has the job"
    raise PoolError(f"job {job_number}", "; ".join([f"{where}, in its queue or its history", *failures]))


def _history_answer(ad: Mapping[str, Any], schedd: str, now: datetime) -> JobExplanation:
    is_completed = ad["JobStatus"] == JobStatus.COMPLETED
    since = ad["EnteredCurrentStatus"]
    when = f" {format_duration(to_unix(now) - since)} ago" if isinstance(since, int) else ""
    if is_completed:
        host = ad["LastRemoteHost"]
        verdict = f"it completed{when}" + (f", at {host}" if host else "")
    else:
        reason = ad["RemoveReason"]
        verdict = f"it was removed{when}" + (f": {reason}" if reason else "")
    status = JobStatus.COMPLETED if is_completed else JobStatus.REMOVED
    start = parse_start_record(ad.get(START_ATTRIBUTE))
    job = JobFacts(f"{ad['ClusterId']}.{ad['ProcId']}", schedd, 1, status, start=start)
    started = start_text(start)
    return JobExplanation(job, verdict, (), could_run=is_completed, notes=(started,) if started else ())


def datasets_over_budget(snapshot: Snapshot, demand: Demand, budget: Budget) -> Mapping[Site, frozenset[Did]]:
    """Return for each site the datasets that the size budget leaves out of the site's ad."""
    return dids_without_room(draft_site_ads(snapshot, demand, budget=budget))
