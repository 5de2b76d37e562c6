"""``hydrator why JOB`` and ``hydrator why [--site X] DID…``.

Exit status: 0 it would match now (or runs, or has run); 3 it would not; 1 we could not find out, 2 wrong
usage or configuration. So a script can tell "not now" from "not known".
"""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from enum import IntEnum
from typing import Annotated, Any

import typer

from hydrator.cli.options import DEFAULT_CONFIG, NOT_NOW, Config
from hydrator.cli.output.progress import working
from hydrator.diagnostics.why.explain import Answer, foresee
from hydrator.diagnostics.why.pool_facts import HERE, Job, facts_wanted, groups_from
from hydrator.diagnostics.why.query import (
    COLUMNS,
    JOB,
    Asked,
    Found,
    Telling,
    ask_job,
    left_out,
    telling,
)
from hydrator.domain.beliefs import Beliefs
from hydrator.domain.errors import BadDid, CatalogueError, ConfigError, StateError
from hydrator.domain.model import (
    Did,
    Site,
    SiteFacts,
    Snapshot,
    Survey,
    Unseen,
    parse_did,
    unix,
)
from hydrator.domain.ports import Catalogue


def why(
    what: Annotated[
        list[str],
        typer.Argument(help="A job, as 123 or 123.4; or datasets, as scope:name.", metavar="JOB|DID…"),
    ],
    config: Config = DEFAULT_CONFIG,
    site: Annotated[
        str | None, typer.Option(help="For datasets: this site alone; default: every site.")
    ] = None,
    schedd: Annotated[str | None, typer.Option(help="For a job: its schedd; default: all are asked.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Say why a job is idle, site by site, and what would unlock it; or where jobs with these data could run.

    Exits 0 when it would match now (or runs, or has run), 3 when not, 1 when that could not be found out.
    """
    from hydrator.config import load
    from hydrator.privacy.exchange import exchanged
    from hydrator.wiring import condor_client, daemon_beliefs, privacy, system_clock

    settings = load(config)
    job = JOB.match(what[0]) if len(what) == 1 and site is None else None
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
            lambda dids: daemon_beliefs(settings, dids.difference(privacy(settings).hidden(dids)), now),
            NearNames(lambda: _catalogues(settings)),
            releases=True,
        )
        with working("asking the pool"):
            if job:
                found = ask_job(asked, int(job[1]), None if job[2] is None else int(job[2]), schedd)
            else:
                found = Found((_before_submitting(settings, asked, names, Site(site) if site else None),))
    finally:
        client.close()
    _say(found, asked, as_json=as_json)
    if not all(answer.could_run for answer in found.answers):
        raise typer.Exit(NOT_NOW)


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
            problems.append(f"{bad.text[:300]!r} is neither a job (123 or 123.4) nor a dataset: {bad.reason}")
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
    from hydrator.wiring import pool_policy

    dids = sorted(names.values())
    return ask_dids(
        replace(asked, beliefs=_foreknown(settings, asked.beliefs, names, asked.now)),
        dids,
        site,
        max_age=int(pool_policy(settings).max_age.total_seconds()),
    )


def _foreknown(
    settings: Any,  # noqa: ANN401
    beliefs: Beliefs | None,
    names: Mapping[Did, Did],
    now: datetime,
) -> Beliefs:
    """What the daemon and the catalogues say of datasets that no job named yet; *names* as above."""
    from hydrator.privacy.exchange import Exchanged
    from hydrator.wiring import daemon_beliefs

    wanted = frozenset(names.values())
    known = beliefs or daemon_beliefs(settings, wanted, now) or Beliefs(now, Snapshot({}))
    with _catalogues(settings) as catalogues:
        if catalogues and (new := wanted - known.demanded):
            told = [Exchanged(catalogue, names) for catalogue in catalogues]
            known = with_news(known, told, new, bound=settings.daemon.bound)
    return NearNames(lambda: _catalogues(settings))(known, wanted)


def nowhere_now(
    settings: Any,  # noqa: ANN401
    names: Mapping[Did, Did],
    groups: Mapping[str, Collection[Did]],
) -> dict[str, str]:
    """Say of which *groups* of datasets no site has all now, and why; the others are left out.

    Args:
        settings: whom to ask.
        names: by DID, what the pool calls it.
        groups: the datasets of each job, or node of a DAG, under the names that the pool calls them by.
    """
    from hydrator.diagnostics.why.nowhere import nowhere_text
    from hydrator.wiring import system_clock

    now = system_clock()
    beliefs, _ = _beliefs(settings, now)
    known = _foreknown(settings, beliefs, names, now)
    found = {group: nowhere_text(known, frozenset(dids)) for group, dids in groups.items()}
    return {group: text for group, text in found.items() if text}


def ask_dids(asked: Asked, dids: Sequence[Did], site: Site | None, *, max_age: int) -> Answer:
    """Judge a job that requires *dids* and nothing else; facts older than *max_age* (s) do not count."""
    from hydrator.reconcile.ads.site_ads import quoted
    from hydrator.submit.pool_config import here_expression, spelled_expression

    ad = {
        "JobUniverse": "5",
        "DataLocalityMaxAge": str(max_age),
        "DataLocalitySpelled": spelled_expression(dids, quoted(",".join(dids))),
        HERE: here_expression(dids, "require"),
        "Requirements": f"MY.{HERE}",
    }
    judged = asked.pool.judge(ad, facts_wanted(dids), asked.site_attributes, whole=[HERE])
    job = Job("", "", 1, None, tuple(dids), max_age=max_age)
    return foresee(job, groups_from(judged, dids), asked.beliefs, now=asked.now, only=site)


class NearNames:
    """Looks for names that look like those that exist nowhere, in the catalogues too; once for each name.

    Args:
        catalogues: makes the catalogues; called when the first such name comes. They are closed after use.
    """

    def __init__(self, catalogues: Callable[[], AbstractContextManager[Sequence[Catalogue]]]) -> None:
        self._catalogues = catalogues
        self._listed: dict[Did, frozenset[Did]] = {}

    def __call__(self, beliefs: Beliefs, dids: frozenset[Did]) -> Beliefs:
        """Return *beliefs* with what looks like those of *dids* that exist nowhere."""
        from hydrator.submit.nearest_names import MOST_ASKED, nowhere, with_near

        lost = [did for did in nowhere(beliefs, dids) if did not in beliefs.near]
        new = [did for did in lost if did not in self._listed][: max(0, MOST_ASKED - len(self._listed))]
        if new:
            found = self._found(new)
            self._listed.update(dict.fromkeys(new, found))
        return with_near(beliefs, lost, frozenset().union(*(self._listed.get(did, ()) for did in lost)))

    def _found(self, dids: Sequence[Did]) -> frozenset[Did]:
        """What the catalogues list under names that begin alike; one that cannot say lists nothing."""
        from hydrator.submit.nearest_names import patterns_near

        found: set[Did] = set()
        with self._catalogues() as catalogues:
            for catalogue in catalogues:
                with suppress(CatalogueError):
                    found |= catalogue.find(patterns_near(dids))
        return frozenset(found)


@contextmanager
def _catalogues(settings: Any) -> Iterator[Sequence[Catalogue]]:  # noqa: ANN401
    from hydrator.wiring import assemble, system_clock

    parts = assemble(settings, system_clock)
    try:
        yield parts.catalogues
    finally:
        parts.close()


def with_news(
    beliefs: Beliefs,
    catalogues: Iterable[Catalogue],
    dids: frozenset[Did],
    *,
    bound: Any,  # noqa: ANN401
) -> Beliefs:
    """The same, with what the catalogues say now of datasets that nobody asked for yet."""
    from hydrator.reconcile.snapshot.update import Memory, remember, snapshot

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
        {**old.misspelt, **new.misspelt},
    )


def _beliefs(settings: Any, now: datetime) -> tuple[Beliefs | None, str | None]:  # noqa: ANN401
    """What the daemon's state says; None and why when it cannot be read from here."""
    from hydrator.cli.output.tables import Known
    from hydrator.state.store import Store
    from hydrator.wiring import rules

    by = rules(settings)
    try:
        with Store.open_to_read(settings.daemon.state_dir) as store:
            known = Known.of(store, by, now=now)
    except StateError as error:
        if settings.submit.daemon_url:
            return None, None  # it is asked over HTTP, once the datasets are known
        return None, f"what the daemon knows is not told here, the slots alone speak: {error}"
    no_room = left_out(known.snapshot, known.demand, by.budget)
    held = known.changes_held
    return Beliefs(now, known.snapshot, known.demand.dids, left_out=no_room, held=held), None


# --- printing -----------------------------------------------------------------------------------------


def _say(found: Found, asked: Asked, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows(found), indent=2))
    else:
        for number, answer in enumerate(found.answers):
            if number:
                print()
            _print(telling(answer))
        if found.crowd.jobs:
            print(f"\n{found.crowd.text}")
    for name, reason in found.unasked.items():
        print(f"hydrator: schedd {name} could not be asked: {reason}", file=sys.stderr)
    if asked.unread:
        print(f"hydrator: {asked.unread}", file=sys.stderr)


def rows(found: Found) -> dict[str, Any]:
    """All that was found, for programs."""
    return {
        "answers": [row(answer) for answer in found.answers],
        "more": _plain(asdict(found.crowd)),
        "unasked": dict(found.unasked),
    }


def row(answer: Answer) -> dict[str, Any]:
    """An answer for programs: the fields of the classes in hydrator/diagnostics/why/explain.py, statuses by name."""
    return dict(_plain(asdict(answer)))


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return unix(value)
    return value.name.lower() if isinstance(value, IntEnum) else value


def _print(telling: Telling) -> None:
    from hydrator.cli.output import tables as show

    print("\n".join(telling.lines))
    if telling.rows:
        show.print_table(COLUMNS, telling.rows)
    if telling.soonest:
        print(telling.soonest)
