"""``hydrator why JOB`` and ``hydrator why [--site X] DID…``.

Exit status: 0 it would match now (or runs, or has run); 3 it would not; 1 we could not find out, 2 wrong
usage or configuration. So a script can tell "not now" from "not known".
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from ..crowd import Crowd, crowd
from ..errors import BadDid, CatalogueError, ConfigError, PoolError, StateError
from ..judged import HERE, Job, JobStatus, facts_wanted, groups_from, job_from, with_requests
from ..missing import Beliefs
from ..model import Did, Site, SiteFacts, Snapshot, Survey, Unseen, parse_did, unix
from ..ports import Catalogue
from ..private import Privacy
from ..why import Answer, AtSite, explain, foresee
from ..words import span

NOT_NOW = 3
_JOB = re.compile(r"(\d{1,10})(?:\.(\d{1,10}))?\Z")


class Pool(Protocol):
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
    ) -> dict[str, Any]: ...


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


@dataclass(frozen=True, slots=True)
class Found:
    """The answers, and by schedd why it could not be asked."""

    answers: tuple[Answer, ...]
    unasked: Mapping[str, str] = field(default_factory=dict)
    crowd: Crowd = field(default_factory=Crowd)
    """The kinds of jobs beyond those that have an answer of their own."""


def why(
    what: Annotated[
        list[str],
        typer.Argument(help="A job, as 123 or 123.4; or datasets, as scope:name.", metavar="JOB|DID…"),
    ],
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="HYDRATOR_CONFIG", help="The daemon's configuration.")
    ] = Path("/etc/classad-hydrator/config.toml"),
    site: Annotated[
        str | None, typer.Option(help="For datasets: this site alone; default: every site.")
    ] = None,
    schedd: Annotated[str | None, typer.Option(help="For a job: its schedd; default: all are asked.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Say why a job is idle, site by site, and what would unlock it; or where jobs with these data could run.

    Exits 0 when it would match now (or runs, or has run), 3 when not, 1 when that could not be found out.
    """
    from ..config import load
    from ..exchange import exchanged
    from ..wiring import condor_client, privacy, system_clock

    settings = load(config)
    job = _JOB.match(what[0]) if len(what) == 1 and site is None else None
    dids = [] if job else _dids(what, settings.daemon.default_scope)
    if dids and schedd:
        raise ConfigError(["--schedd goes with a job, not with datasets"])
    names = exchanged(frozenset(dids), settings)
    now = system_clock()
    beliefs, unread = _beliefs(settings, now)
    client = condor_client(settings)
    try:
        asked = Asked(
            client,
            settings.sites.slot_attributes,
            beliefs,
            settings.daemon.default_scope,
            now,
            unread,
            privacy(settings),
            lambda dids: _from_the_daemon(settings, dids, now),
        )
        if job:
            found = ask_job(asked, int(job[1]), None if job[2] is None else int(job[2]), schedd)
        else:
            found = Found((_before_submitting(settings, asked, names, Site(site) if site else None),))
    finally:
        client.close()
    _say(found, asked, as_json=as_json)
    if not all(answer.could_run for answer in found.answers):
        raise typer.Exit(NOT_NOW)


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
    return asked.learn(wanted) if asked.beliefs is None and asked.learn and wanted else asked.beliefs


def _judged(asked: Asked, schedd: str, row: Mapping[str, Any]) -> Answer:
    job = job_from(row["ad"], row["procs"], schedd, asked.default_scope)
    job = replace(job, private=tuple(asked.privacy.hidden(job.datasets)))
    if job.status not in {None, JobStatus.IDLE, JobStatus.HELD}:
        return explain(job, (), None, now=asked.now)
    judged = asked.pool.judge(row["ad"], facts_wanted(job.datasets), asked.site_attributes, whole=[HERE])
    groups = groups_from(judged, job.datasets)
    return explain(with_requests(job, judged), groups, _beliefs_for(asked, [job]), now=asked.now)


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


# --- before submitting --------------------------------------------------------------------------------


def _dids(texts: Sequence[str], default_scope: str | None) -> list[Did]:
    """The DIDs, sorted.

    Raises:
        ConfigError: with every text that is none.
    """
    found, problems = set(), []
    for text in texts:
        try:
            found.add(parse_did(text, default_scope))
        except BadDid as bad:
            problems.append(str(bad))
    if problems:
        raise ConfigError(problems)
    return sorted(found)


def _before_submitting(
    settings: Any,  # noqa: ANN401
    asked: Asked,
    names: Mapping[Did, Did],
    site: Site | None,
) -> Answer:
    """What the pool and the catalogues say of datasets; *names* has, by DID, what the pool calls them."""
    from ..exchange import Exchanged
    from ..wiring import assemble, pool_policy, system_clock, witnesses

    dids = sorted(names.values())
    beliefs = asked.beliefs or Beliefs(asked.now, Snapshot({}))
    if new := frozenset(dids) - beliefs.demanded:
        parts, daemon = assemble(settings, system_clock), witnesses(settings)
        known = [Exchanged(catalogue, names) for catalogue in parts.catalogues]
        try:
            beliefs = with_news(beliefs, [*known, *daemon], new, bound=settings.daemon.bound)
        finally:
            parts.close()
            for witness in daemon:
                witness.close()
    return ask_dids(
        replace(asked, beliefs=beliefs),
        dids,
        site,
        max_age=int(pool_policy(settings).max_age.total_seconds()),
    )


def ask_dids(asked: Asked, dids: Sequence[Did], site: Site | None, *, max_age: int) -> Answer:
    """Judge a job that requires *dids* and nothing else; facts older than *max_age* (s) do not count."""
    from ..poolconfig import here_expression

    ad = {
        "JobUniverse": "5",
        "DataLocalityMaxAge": str(max_age),
        HERE: here_expression(dids, "require"),
        "Requirements": f"MY.{HERE}",
    }
    judged = asked.pool.judge(ad, facts_wanted(dids), asked.site_attributes, whole=[HERE])
    job = Job("", "", 1, None, tuple(dids), max_age=max_age)
    return foresee(job, groups_from(judged, dids), asked.beliefs, now=asked.now, only=site)


def _from_the_daemon(settings: Any, dids: frozenset[Did], now: datetime) -> Beliefs | None:  # noqa: ANN401
    """What the daemon says over HTTP of *dids*; None where [submit] does not say where it answers."""
    from ..wiring import witnesses

    daemon = witnesses(settings)
    if not daemon:
        return None
    try:
        return with_news(Beliefs(now, Snapshot({}), dids), daemon, dids, bound=settings.daemon.bound)
    finally:
        for witness in daemon:
            witness.close()


def with_news(
    beliefs: Beliefs,
    catalogues: Iterable[Catalogue],
    dids: frozenset[Did],
    *,
    bound: Any,  # noqa: ANN401
) -> Beliefs:
    """The same, with what the catalogues say now of datasets that nobody asked for yet."""
    from ..snapshot import Memory, remember, snapshot

    memories = {}
    for catalogue in catalogues:
        answer: Survey | Unseen
        try:
            answer = catalogue.read(dids)
        except CatalogueError as error:
            answer = Unseen(error.reason)
        memories[catalogue.name] = remember(Memory(), answer, dids, now=beliefs.now)
    news = snapshot(memories, dids, now=beliefs.now, bound=bound)
    return replace(beliefs, snapshot=_merged(beliefs.snapshot, news), asked=beliefs.asked | dids)


def _merged(old: Snapshot, new: Snapshot) -> Snapshot:
    sites: dict[Site, SiteFacts] = {}
    for site in sorted(old.sites.keys() | new.sites.keys()):
        both = [facts for facts in (old.sites.get(site), new.sites.get(site)) if facts]
        known = {did: fact for facts in both for did, fact in facts.facts.items()}
        sites[site] = SiteFacts(both[0].as_of, known)
    return Snapshot(
        sites,
        {**old.unseen, **new.unseen},
        (*old.clashes, *new.clashes),
        {**old.bytes_total, **new.bytes_total},
    )


def _beliefs(settings: Any, now: datetime) -> tuple[Beliefs | None, str | None]:  # noqa: ANN401
    """What the daemon's state says; None and why when it cannot be read from here."""
    from ..ads import drafts
    from ..show import Known
    from ..store import Store
    from ..wiring import rules

    by = rules(settings)
    try:
        with Store.open_to_read(settings.daemon.state_dir) as store:
            known = Known.of(store, by, now=now)
    except StateError as error:
        if settings.submit.daemon_url:
            return None, None  # it is asked over HTTP, once the datasets are known
        return None, f"what the daemon knows is not told here, the slots alone speak: {error}"
    left_out = {
        site: frozenset(did for want in draft.left_out for did in want.dids)
        for site, draft in drafts(known.snapshot, known.demand, budget=by.budget).items()
        if draft.left_out
    }
    return Beliefs(now, known.snapshot, known.demand.dids, left_out=left_out), None


# --- printing -----------------------------------------------------------------------------------------


def _say(found: Found, asked: Asked, *, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {
                    "answers": [row(answer) for answer in found.answers],
                    "more": _plain(asdict(found.crowd)),
                    "unasked": dict(found.unasked),
                },
                indent=2,
            )
        )
    else:
        for number, answer in enumerate(found.answers):
            if number:
                print()
            _print(answer)
        if found.crowd.jobs:
            print(f"\n{found.crowd.text}")
    for name, reason in found.unasked.items():
        print(f"hydrator: schedd {name} could not be asked: {reason}", file=sys.stderr)
    if asked.unread:
        print(f"hydrator: {asked.unread}", file=sys.stderr)


def row(answer: Answer) -> dict[str, Any]:
    """An answer for programs: the fields of the classes in hydrator/why.py, statuses by name."""
    return dict(_plain(asdict(answer)))


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.name.lower() if isinstance(value, IntEnum) else value


def _print(answer: Answer) -> None:
    from .. import show

    job = answer.job
    head = f"job {job.name}: " if job.name else ""
    alike = f" (and {job.alike - 1} like it)" if job.alike > 1 else ""
    lines = [f"{head}{answer.verdict}{alike}"]
    lines += [answer.wait] if answer.wait else []
    lines += [*answer.notes, *([answer.funnel] if answer.funnel and answer.sites else [])]
    print("\n".join(lines))
    if answer.sites:
        show.print_table(("site", "slots", "match", "why not"), list(_rows(answer.sites)))
    if answer.way_out:
        print(f"soonest: {answer.way_out}")


def _rows(sites: Sequence[AtSite]) -> Iterable[tuple[str, str, str, str]]:
    for at in sites:
        head: tuple[str, str, str] = (at.site, str(at.slots), str(at.matching))
        for reason in at.reasons:
            some = f" ({reason.slots} of {at.slots} slots)" if 0 < reason.slots < at.slots else ""
            yield (*head, f"{'data: ' if reason.ours else ''}{reason.text}{some}")
            head = ("", "", "")
        if not at.reasons:
            yield (*head, "")
