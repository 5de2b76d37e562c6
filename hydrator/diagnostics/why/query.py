"""A question about one job: its schedd and the slots are asked, and the answer becomes words.

Used by ``hydrator why`` and by the page of the daemon, so that both say the same.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from hydrator.domain.beliefs import Beliefs
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import Demand, Did, Site, Snapshot, unix
from hydrator.domain.text import span
from hydrator.privacy.pseudonyms import Privacy
from hydrator.reconcile.ads.site_ads import Budget, drafts, no_room

from .explain import Answer, AtSite, explain
from .pool_facts import (
    HERE,
    Job,
    JobStatus,
    facts_wanted,
    groups_from,
    job_from,
    string,
    with_requests,
)
from .schedd_facts import ScheddFacts, Schedds, may_release, schedd_facts
from .summary import Crowd, crowd

COLUMNS = ("site", "slots", "match", "why not")
JOB = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,10}))?\Z")
"""A job, or all of a cluster, as people write it."""


class Pool(Schedds, Protocol):
    """What is asked of the pool; CondorClient keeps it."""

    def schedds(self) -> list[dict[str, Any]]: ...
    def jobs(self, schedd: str, cluster: int, proc: int | None = None) -> list[dict[str, Any]]: ...
    def ended(self, schedd: str, cluster: int, proc: int | None = None) -> dict[str, Any] | None: ...
    def judge(
        self,
        job: Mapping[str, str],
        facts: Sequence[str],
        site_attributes: Sequence[str],
        *,
        whole: Sequence[str] = (),
        constraint: str = "true",
        flock: Sequence[str] = (),
    ) -> dict[str, Any]: ...
    def uploads(self, schedd: str, user: str, least_bytes: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """Everything a question needs; ``unread`` is why ``beliefs`` are missing."""

    pool: Pool
    site_attributes: Sequence[str]
    beliefs: Beliefs | None
    default_scope: str | None
    now: datetime
    unread: str | None = None
    privacy: Privacy = field(default_factory=Privacy)
    learn: Callable[[frozenset[Did]], Beliefs | None] | None = None
    """Asks somebody else where the daemon's state cannot be read."""
    near: Callable[[Beliefs, frozenset[Did]], Beliefs] | None = None
    """Adds names that look like those that exist nowhere."""
    releases: bool = False
    """May whoever asks be offered `hydrator release`, where the schedd would let us do it?"""


@dataclass(frozen=True, slots=True)
class Found:
    """The answers, and by schedd why it could not be asked."""

    answers: tuple[Answer, ...]
    unasked: Mapping[str, str] = field(default_factory=dict)
    crowd: Crowd = field(default_factory=Crowd)
    """The kinds of jobs beyond those that have an answer of their own."""


def ask_job(asked: Asked, cluster: int, proc: int | None, schedd: str | None) -> Found:
    """Find the job at its schedd and judge it against every slot; alike jobs of a cluster have one answer.

    Raises:
        ConfigError: several schedds have a job of this number.
        PoolError: no schedd has it, or the pool could not be asked.
    """
    names = [schedd] if schedd else [str(ad["Name"]) for ad in asked.pool.schedds()]
    queued: dict[str, list[dict[str, Any]]] = {}
    unasked: dict[str, str] = {}
    for name in names:
        try:
            if rows := asked.pool.jobs(name, cluster, proc):
                queued[name] = rows
        except PoolError as error:
            unasked[name] = error.reason
    wanted = f"{cluster}" if proc is None else f"{cluster}.{proc}"
    if len(queued) > 1:
        raise ConfigError([f"job {wanted} is at {', '.join(queued)}: choose one with --schedd"])
    if not queued:
        return Found((_ended(asked, names, cluster, proc, unasked),), unasked)
    ((name, rows),) = queued.items()
    briefly = [row for row in rows if row.get("brief")]
    rest = [job_from(row["ad"], row["procs"], name, asked.default_scope) for row in briefly]
    answers = tuple(_judged(asked, name, row) for row in rows if not row.get("brief"))
    return Found(answers, unasked, crowd(rest, _beliefs_for(asked, rest)))


def _beliefs_for(asked: Asked, jobs: Sequence[Job]) -> Beliefs | None:
    """What the daemon holds true of the datasets of *jobs*: from its state, else asked over HTTP."""
    wanted = frozenset(did for job in jobs for did in job.datasets)
    beliefs = asked.learn(wanted) if asked.beliefs is None and asked.learn and wanted else asked.beliefs
    return asked.near(beliefs, wanted) if beliefs and asked.near else beliefs


def _judged(asked: Asked, schedd: str, row: Mapping[str, Any]) -> Answer:
    job = job_from(row["ad"], row["procs"], schedd, asked.default_scope)
    job = replace(job, private=tuple(asked.privacy.hidden(job.datasets)))
    if job.status not in {None, JobStatus.IDLE, JobStatus.HELD}:
        return explain(job, (), None, now=asked.now)
    facts = schedd_facts(asked.pool, schedd)
    flock = facts.pools_of(string(_text(row["ad"], "FlockTo")))
    judged = asked.pool.judge(
        row["ad"], facts_wanted(job.datasets), asked.site_attributes, whole=[HERE], flock=flock
    )
    groups = groups_from(judged, job.datasets)
    job = replace(
        with_requests(job, judged),
        most_uploads=facts.most_uploads,
        uploads=_uploads(asked, schedd, row["ad"], facts),
        may_release=asked.releases and job.transformed and may_release(asked.pool, schedd, facts),
    )
    answer = explain(job, groups, _beliefs_for(asked, [job]), now=asked.now)
    notes = [
        f"pool {pool}, to which its schedd flocks, could not be asked: {why}"
        for pool, why in (judged.get("unasked") or {}).items()
    ]
    return replace(answer, notes=(*answer.notes, *notes))


def _text(ad: Mapping[str, str], name: str) -> str | None:
    """Return the text of an attribute; ads ignore letter case."""
    return next((text for key, text in ad.items() if key.lower() == name.lower()), None)


def _uploads(asked: Asked, schedd: str, ad: Mapping[str, str], facts: ScheddFacts) -> int:
    """Return how many jobs of the job's user send their input now, where the schedd limits that."""
    user = string(_text(ad, "User"))
    if facts.most_uploads is None or user is None:
        return 0
    try:
        return asked.pool.uploads(schedd, user, facts.queued_bytes)
    except PoolError:
        return 0


def _ended(
    asked: Asked, names: Iterable[str], cluster: int, proc: int | None, unasked: dict[str, str]
) -> Answer:
    """What the histories say of a job that is in no queue."""
    for name in names:
        if name in unasked:
            continue
        try:
            ad = asked.pool.ended(name, cluster, proc)
        except PoolError as error:
            unasked[name] = f"its history: {error.reason}"
            continue
        if ad:
            return _history_answer(ad, name, asked.now)
    wanted = f"{cluster}" if proc is None else f"{cluster}.{proc}"
    failed = [f"{name} could not be asked: {reason}" for name, reason in unasked.items()]
    where = "no schedd that answered has it" if failed else "no schedd has it"
    raise PoolError(f"job {wanted}", "; ".join([f"{where}, in its queue or its history", *failed]))


def _history_answer(ad: Mapping[str, Any], schedd: str, now: datetime) -> Answer:
    completed = ad["JobStatus"] == JobStatus.COMPLETED
    since = ad["EnteredCurrentStatus"]
    when = f" {span(unix(now) - since)} ago" if isinstance(since, int) else ""
    if completed:
        host = ad["LastRemoteHost"]
        verdict = f"it completed{when}" + (f", at {host}" if host else "")
    else:
        reason = ad["RemoveReason"]
        verdict = f"it was removed{when}" + (f": {reason}" if reason else "")
    status = JobStatus.COMPLETED if completed else JobStatus.REMOVED
    job = Job(f"{ad['ClusterId']}.{ad['ProcId']}", schedd, 1, status)
    return Answer(job, verdict, (), could_run=completed)


def left_out(snapshot: Snapshot, demand: Demand, budget: Budget) -> Mapping[Site, frozenset[Did]]:
    """By site, the datasets that its ad has no room for."""
    return no_room(drafts(snapshot, demand, budget=budget))


# --- in words ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Telling:
    """An answer for people: sentences, a row of ``COLUMNS`` for every reason, and the soonest way out."""

    lines: tuple[str, ...]
    rows: tuple[tuple[str, str, str, str], ...] = ()
    soonest: str = ""


def telling(answer: Answer, hide: Callable[[str], str] = str) -> Telling:
    """*answer* in words, each looked through by *hide*."""
    job = answer.job
    head = f"job {job.name}: " if job.name else ""
    alike = f" (and {job.alike - 1} like it)" if job.alike > 1 else ""
    lines = [f"{head}{answer.verdict}{alike}"]
    lines += [answer.wait] if answer.wait else []
    lines += [*answer.notes, *([answer.funnel] if answer.funnel and answer.sites else [])]
    return Telling(
        tuple(map(hide, lines)),
        tuple((hide(site), slots, match, hide(why)) for site, slots, match, why in _rows(answer.sites)),
        hide(f"soonest: {answer.way_out}") if answer.way_out else "",
    )


def _rows(sites: Sequence[AtSite]) -> Iterable[tuple[str, str, str, str]]:
    for at in sites:
        head: tuple[str, str, str] = (at.where, str(at.slots), str(at.matching))
        for reason in at.reasons:
            some = f" ({reason.slots} of {at.slots} slots)" if 0 < reason.slots < at.slots else ""
            yield (*head, f"{'data: ' if reason.ours else ''}{reason.text}{some}")
            head = ("", "", "")
        if at.held:
            advice = "hydrator status says more: docs/when-a-change-is-held.md"
            yield (*head, f"data: a change of this site is held: {at.held}; {advice}")
        elif not at.reasons:
            yield (*head, "")


def tellings(found: Found, hide: Callable[[str], str] = str) -> list[Telling]:
    """All that was found, in words."""
    told = [telling(answer, hide) for answer in found.answers]
    if found.crowd.jobs:
        told.append(Telling((hide(found.crowd.text),)))
    unasked = [f"schedd {name} could not be asked: {why}" for name, why in found.unasked.items()]
    return [*told, *([Telling(tuple(map(hide, unasked)))] if unasked else [])]
