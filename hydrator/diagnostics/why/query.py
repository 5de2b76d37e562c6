"""Explain one job: query the job's schedd and the pool's slots, and build the explanation.

``hydrator why`` and the daemon's page use this module, so both give the same answer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from hydrator.diagnostics.schedd_budget import MATCH_LIMITS_EFFECT
from hydrator.diagnostics.start_record import has_own_record, parse_start_record, start_text
from hydrator.domain.ads.dataset_sets import hash_key, is_cluster_key
from hydrator.domain.daemon_probe import DaemonProbe
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import DaemonKnowledge, Did, to_unix
from hydrator.domain.text import format_count, format_duration, matches_any

from .explain import explain
from .explanation import JobExplanation
from .pool_facts import (
    HERE_ATTRIBUTE,
    STATUSES,
    JobFacts,
    JobStatus,
    fact_expressions,
    parse_job,
    parse_slot_groups,
    parse_string_literal,
    with_requests,
)
from .schedd_facts import ScheddFacts, fetch_schedd_facts

_JOB_NUMBER = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,10}))?\Z")


def parse_job_number(text: str) -> tuple[int, int | None] | None:
    """Return cluster and proc of a job, ``12.0``, or of a cluster, ``12``, whose proc is None.

    Return None if *text* is not such a number.
    """
    match = _JOB_NUMBER.match(text)
    return (int(match[1]), None if match[2] is None else int(match[2])) if match else None


StagingExplainer = Callable[[Sequence[Did], str | None], tuple[str, ...]]
"""Returns sentences about the daemon's requests for the given datasets of one job with the given key."""
KnowledgeGetter = Callable[[frozenset[Did], frozenset[str]], DaemonKnowledge | None]
"""Returns what the daemon knows of the given datasets and of the sets with the given keys."""


class WhyPoolClient(DaemonProbe, Protocol):
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


@dataclass(frozen=True, slots=True)
class WhyQuery:
    """Inputs of a query."""

    pool: WhyPoolClient
    site_attributes: Sequence[str]
    get_knowledge: KnowledgeGetter
    default_scope: str | None
    now: datetime
    never: tuple[str, ...] = ()
    """Patterns of the datasets that are never published."""
    explain_staging: StagingExplainer | None = None


@dataclass(frozen=True, slots=True)
class WhyResult:
    """The answers of ``hydrator why``.

    Attributes:
        answers: one for each kind of jobs.
        unreachable_schedds: schedds that did not answer, with the reason.
        others: one line about the cluster's jobs that have no answer in ``answers``; empty if there are none.
    """

    answers: tuple[JobExplanation, ...]
    unreachable_schedds: Mapping[str, str] = field(default_factory=dict)
    others: str = ""

    @property
    def failures(self) -> list[str]:
        """Return a sentence for each schedd that did not answer."""
        return [f"schedd {name} did not answer: {why}" for name, why in self.unreachable_schedds.items()]


def ask_job(query: WhyQuery, cluster: int, proc: int | None, schedd: str | None) -> WhyResult:
    """Find a job at its schedd, and evaluate the match of the job with every slot.

    Equal jobs of a cluster share one answer.

    Raises:
        ConfigError: several schedds have a job with this number.
        PoolError: no schedd has the job, or the query of the pool failed.
    """
    ads = {str(ad["Name"]): ad for ad in query.pool.schedds()}
    names = [schedd] if schedd else list(ads)
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
        answer = _explain_ended_job(query, names, cluster, proc, unreachable)
        return WhyResult((answer,), unreachable)
    ((name, rows),) = queued.items()
    full = [row for row in rows if "ad" in row]
    jobs = [(row, parse_job(row["ad"], row["procs"], name, query.default_scope)) for row in full]
    known = [job for _, job in jobs if _is_known_to_daemon(job)]
    dids = frozenset(did for job in known for did in job.datasets)
    keys = frozenset(job.key for job in known if job.key)
    knowledge = query.get_knowledge(dids, keys) if known else None
    facts = fetch_schedd_facts(query.pool, name, ads.get(name, {}))
    answers = tuple(_explain(query, row["ad"], job, facts, knowledge) for row, job in jobs)
    others = _describe_others([row["procs"] for row in rows if "ad" not in row], cluster)
    return WhyResult(answers, unreachable, others)


def _describe_others(kinds: Sequence[Sequence[int]], cluster: int) -> str:
    """Return one line about further kinds of jobs of *cluster*, by their numbers; empty if there are none."""
    if not kinds:
        return ""
    jobs = format_count(sum(map(len, kinds)), "job")
    more = format_count(len(kinds), "more kind")
    return f"and {more} of the cluster's jobs, {jobs}; for one of them: hydrator why {cluster}.{kinds[0][0]}"


def _is_known_to_daemon(job: JobFacts) -> bool:
    """Return True if the daemon's answer counts for *job*: it waits, or may have the key of others."""
    return bool(job.datasets) and (job.can_wait or (job.key is not None and is_cluster_key(job.key)))


def _explain(
    query: WhyQuery,
    ad: Mapping[str, str],
    job: JobFacts,
    facts: ScheddFacts,
    knowledge: DaemonKnowledge | None,
) -> JobExplanation:
    """Explain the queued *job*, whose attributes are the texts in *ad*."""
    private = knowledge.private_dids if knowledge else ()
    job = replace(
        job,
        never_published=tuple(did for did in job.datasets if did in private or matches_any(did, query.never)),
        has_foreign_key=_has_foreign_key(job, knowledge),
    )
    if not job.can_wait:
        return explain(job, (), None, now=query.now)
    flock_to = next((text for name, text in ad.items() if name.lower() == "flockto"), None)
    match_result = query.pool.evaluate_match(
        ad,
        fact_expressions(job.datasets),
        query.site_attributes,
        atomic_attributes=[HERE_ATTRIBUTE],
        flock=facts.pools_of(parse_string_literal(flock_to)),
    )
    job = replace(with_requests(job, match_result), budget=facts.budget)
    answer = explain(job, parse_slot_groups(match_result, job.datasets), knowledge, now=query.now)
    notes = [
        f"pool {pool}, to which the job's schedd flocks, did not answer: {why}"
        for pool, why in (match_result.get("unreachable_pools") or {}).items()
    ]
    if facts.has_match_limits and answer.matching_sites and job.status is JobStatus.IDLE:
        notes.append(f"the job's schedd may request no slot for its user: {MATCH_LIMITS_EFFECT}")
    staging = query.explain_staging(job.datasets, job.key) if query.explain_staging else ()
    return replace(answer, notes=(*answer.notes, *notes), staging=staging)


def _has_foreign_key(job: JobFacts, knowledge: DaemonKnowledge | None) -> bool:
    lists = knowledge.lists_of_wrong_keys if knowledge else {}
    return job.key is not None and job.key in lists and lists[job.key] != hash_key(job.datasets)


def _explain_ended_job(
    query: WhyQuery, names: Sequence[str], cluster: int, proc: int | None, unreachable_schedds: dict[str, str]
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
    if not names:
        raise PoolError(f"job {job_number}", "the collector lists no schedd")
    failures = [f"{name} did not answer: {reason}" for name, reason in unreachable_schedds.items()]
    where = "no schedd that answered has the job" if failures else "no schedd has the job"
    raise PoolError(f"job {job_number}", "; ".join([f"{where}, in its queue or its history", *failures]))


def _history_answer(ad: Mapping[str, Any], schedd: str, now: datetime) -> JobExplanation:
    is_completed = STATUSES.get(ad["JobStatus"]) is JobStatus.COMPLETED
    since = ad["EnteredCurrentStatus"]
    when = f" {format_duration(to_unix(now) - since)} ago" if isinstance(since, int) else ""
    if is_completed:
        host = ad["LastRemoteHost"]
        verdict = f"it completed{when}" + (f", at {host}" if host else "")
    else:
        reason = ad["RemoveReason"]
        verdict = f"it was removed{when}" + (f": {reason}" if reason else "")
    status = JobStatus.COMPLETED if is_completed else JobStatus.REMOVED
    start = parse_start_record(ad["start"], ad["asked"]) if has_own_record(ad) else None
    job = JobFacts(f"{ad['ClusterId']}.{ad['ProcId']}", schedd, 1, status, start=start)
    started = start_text(start)
    return JobExplanation(job, verdict, (), could_run=is_completed, notes=(started,) if started else ())
