"""``hydrator why JOB`` and ``hydrator why DID…``.

Exit status: 0 the job would match now, runs, or has run; 3 the job would not match now; 1 unknown;
2 wrong usage or configuration. So a script can distinguish "not now" from "unknown".
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated

import typer

from hydrator.cli.options import (
    DEFAULT_CONFIG_PATH,
    EXIT_NO_MATCH_NOW,
    ConfigOption,
    JsonOption,
    parse_dids,
    read_typed,
)
from hydrator.cli.output.plain_table import print_table
from hydrator.cli.output.printing import print_problems, print_result
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings, load
from hydrator.diagnostics.overview.facts import load_facts
from hydrator.diagnostics.overview.saved import load_staging
from hydrator.diagnostics.why.explain import explain_before_submit
from hydrator.diagnostics.why.explanation import JobExplanation
from hydrator.diagnostics.why.nowhere import add_similar_names, find_absent_dids
from hydrator.diagnostics.why.pool_facts import HERE_ATTRIBUTE, JobFacts, fact_expressions, parse_slot_groups
from hydrator.diagnostics.why.query import (
    StagingExplainer,
    WhyQuery,
    WhyResult,
    ask_job,
    parse_job_number,
)
from hydrator.diagnostics.why.render import COLUMNS, RenderedAnswer, render_result
from hydrator.domain.ads.classad import classad_string
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import HERE
from hydrator.domain.errors import CatalogueError, ConfigError, StateError
from hydrator.domain.model import (
    DaemonKnowledge,
    Did,
    SiteFacts,
    Snapshot,
    Survey,
    Unseen,
    add_time,
)
from hydrator.domain.ports import Catalogue
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey, build_snapshot
from hydrator.state.store import Store
from hydrator.submit.dataset_names.search import find_dids
from hydrator.submit.nearest_names import MAX_SEARCHED, similar_name_patterns
from hydrator.wiring import system_clock
from hydrator.wiring.catalogues import build_catalogues, fetch_daemon_knowledge, fetch_staging
from hydrator.wiring.condor import build_condor_client
from hydrator.wiring.secrets import register_secrets


def why(
    what: Annotated[
        list[str],
        typer.Argument(help="A job, as 123 or 123.4; or datasets, as scope:name.", metavar="JOB|DID…"),
    ],
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    schedd: Annotated[
        str | None,
        typer.Option(help="For a job: its schedd; default: all schedds are queried.", callback=read_typed),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a job is idle, or where a job with DIDs could run.

    The answer has the reasons at each site, and what would help.
    Exits 0 if the job would match now, runs, or has run; 3 if it would not match now; 1 if this is unknown.
    """
    settings, now = load(config), system_clock()
    job, dids = parse_words(what, settings.daemon.default_scope)
    if dids and schedd:
        raise ConfigError(["--schedd applies to a job, not to datasets"])
    with (
        closing(build_condor_client(settings.htcondor)) as client,
        show_progress("asking the pool"),
    ):
        known, problem = _load_daemon_knowledge(settings, now)

        def get_knowledge(wanted: frozenset[Did], keys: frozenset[str]) -> DaemonKnowledge | None:
            knowledge = known or fetch_daemon_knowledge(settings, wanted, now, keys)
            return _add_similar_names(settings, knowledge, wanted) if knowledge else None

        query = WhyQuery(
            client,
            settings.sites.slot_attributes,
            get_knowledge if job else lambda wanted, _: _query_catalogues(settings, known, wanted, now),
            settings.daemon.default_scope,
            now,
            settings.publish.never,
            _build_staging_explainer(settings, now),
        )
        max_age = int(settings.daemon.job_max_age.total_seconds())
        result = (
            ask_job(query, *job, schedd) if job else WhyResult((explain_dids(query, dids, max_age=max_age),))
        )
    print_result(as_json, result, lambda: print_rendered(render_result(result)))
    print_problems(*result.failures, problem)
    if not all(answer.could_run for answer in result.answers):
        raise typer.Exit(EXIT_NO_MATCH_NOW)


def print_rendered(answers: Sequence[RenderedAnswer]) -> None:
    for number, answer in enumerate(answers):
        print(*([""] if number else []), *answer.lines, sep="\n")
        if answer.rows:
            print_table(COLUMNS, answer.rows)
        if answer.remedy:
            print(answer.remedy)


def _build_staging_explainer(settings: Settings, now: datetime) -> StagingExplainer:
    """Return a function that explains requests of data, from the daemon's state, else over HTTP."""
    with suppress(StateError), Store.open_to_read(settings.daemon.state_dir) as store:
        if overview := load_staging(store):
            from hydrator.staging.overview import explain_for_job

            return lambda dids, _: explain_for_job(overview, dids, now)
    return lambda _, key: fetch_staging(settings, key) if key else ()


# --- before submitting --------------------------------------------------------------------------------


def parse_words(
    what: Sequence[str], default_scope: str | None
) -> tuple[tuple[int, int | None] | None, list[Did]]:
    """Return the job, as cluster and process, or the datasets that a user typed.

    Raises:
        ConfigError: *what* is neither, or has a job beside other words.
    """
    jobs = {text: job for text in what if (job := parse_job_number(text))}
    for text, job in jobs.items():
        if len(what) == 1:
            return job, []
        raise ConfigError([f"{text} is a job: give one job alone; a dataset {text} needs its scope"])
    return None, sorted(parse_dids(what, default_scope, "a job (123 or 123.4), nor a dataset"))


def _query_catalogues(
    settings: Settings, known: DaemonKnowledge | None, dids: frozenset[Did], now: datetime
) -> DaemonKnowledge:
    """Return *known*, or the daemon's answer, with catalogue answers about datasets that it does not poll."""
    knowledge = known or fetch_daemon_knowledge(settings, dids, now) or DaemonKnowledge(now, Snapshot({}))
    if new := dids - knowledge.demanded_dids:
        with _open_catalogues(settings) as catalogues:
            if catalogues:
                knowledge = with_catalogue_answers(
                    knowledge, catalogues, new, max_age=settings.daemon.max_age
                )
    return _add_similar_names(settings, knowledge, dids)


def gather_knowledge(settings: Settings, dids: frozenset[Did], now: datetime) -> DaemonKnowledge:
    """Return what the daemon and the catalogues know of *dids*."""
    return _query_catalogues(settings, _load_daemon_knowledge(settings, now)[0], dids, now)


def explain_dids(query: WhyQuery, dids: Sequence[Did], *, max_age: int) -> JobExplanation:
    """Explain an imaginary job that requires only *dids*; ignore facts older than *max_age* (s)."""
    key = set_key(dids)
    ad = {
        "JobUniverse": "5",
        "DataLocalityKey": classad_string(key),
        "DataLocalityMaxAge": str(max_age),
        HERE_ATTRIBUTE: HERE["require"],
        "Requirements": f"MY.{HERE_ATTRIBUTE}",
    }
    match_result = query.pool.evaluate_match(
        ad, fact_expressions(dids), query.site_attributes, atomic_attributes=[HERE_ATTRIBUTE]
    )
    job = JobFacts("", "", 1, None, tuple(dids), key=key, max_age_seconds=max_age)
    groups = parse_slot_groups(match_result, dids)
    knowledge = query.get_knowledge(frozenset(dids), frozenset())
    answer = explain_before_submit(job, groups, knowledge, now=query.now)
    return replace(answer, staging=query.explain_staging(dids, key) if query.explain_staging else ())


_MAX_LOOKED_UP = 20
"""Maximum of similar names whose sites are looked up."""


def _add_similar_names(
    settings: Settings, knowledge: DaemonKnowledge, dids: frozenset[Did]
) -> DaemonKnowledge:
    """Return *knowledge* with similar names for those of *dids* that no catalogue has, and with their sites.

    The sites come from the catalogues, else from the daemon over HTTP; a catalogue that fails is skipped.
    """
    absent = [did for did in find_absent_dids(knowledge, dids) if did not in knowledge.similar_names]
    unknown = _unknown_names(knowledge, dids)
    if absent or unknown:
        with _open_catalogues(settings) as catalogues:
            patterns = similar_name_patterns(absent[:MAX_SEARCHED])
            found, _ = find_dids(catalogues if absent else (), patterns)
            knowledge = add_similar_names(knowledge, absent, found)
            unknown = _unknown_names(knowledge, dids)
            if unknown and catalogues:
                return with_catalogue_answers(knowledge, catalogues, unknown, max_age=settings.daemon.max_age)
    if unknown and (fetched := fetch_daemon_knowledge(settings, unknown, knowledge.now)):
        return replace(knowledge, snapshot=_merge_snapshots(knowledge.snapshot, fetched.snapshot))
    return knowledge


def _unknown_names(knowledge: DaemonKnowledge, dids: frozenset[Did]) -> frozenset[Did]:
    """Return the names that are similar to one of *dids*, and whose sites are not known."""
    in_place_of = {**knowledge.similar_names, **knowledge.snapshot.misspelt_dids}
    names = {name for did in dids for name in in_place_of.get(did, ())}
    return frozenset(sorted(names - knowledge.demanded_dids - knowledge.queried_dids)[:_MAX_LOOKED_UP])


@contextmanager
def _open_catalogues(settings: Settings) -> Iterator[Sequence[Catalogue]]:
    register_secrets(settings)
    with ExitStack() as stack:
        yield [stack.enter_context(closing(one)) for one in build_catalogues(settings)]


def with_catalogue_answers(
    knowledge: DaemonKnowledge,
    catalogues: Iterable[Catalogue],
    dids: frozenset[Did],
    *,
    max_age: timedelta,
) -> DaemonKnowledge:
    """Query the catalogues about *dids*, which the daemon does not poll; add the answers to *knowledge*."""
    memories = {}
    for catalogue in catalogues:
        answer: Survey | Unseen
        try:
            answer = catalogue.read(dids)
        except CatalogueError as error:
            answer = Unseen(error.reason)
        memories[catalogue.name] = apply_survey(CatalogueMemory(), answer, dids, now=knowledge.now)
    snapshot = build_snapshot(memories, dids, now=knowledge.now, max_age=max_age)
    return replace(
        knowledge,
        snapshot=_merge_snapshots(knowledge.snapshot, snapshot),
        queried_dids=knowledge.queried_dids | dids,
    )


def _merge_snapshots(first: Snapshot, second: Snapshot) -> Snapshot:
    """Return one snapshot; where both have a dataset at a site, *second* decides."""
    sites = {**second.sites, **first.sites}
    for site in first.sites.keys() & second.sites.keys():
        asked = {
            did: add_time(fact, second.sites[site].as_of) for did, fact in second.sites[site].facts.items()
        }
        sites[site] = SiteFacts(first.sites[site].as_of, {**first.sites[site].facts, **asked})
    return Snapshot(
        dict(sorted(sites.items())),
        {**first.unseen_reasons, **second.unseen_reasons},
        (*first.case_collisions, *second.case_collisions),
        {**first.bytes_total, **second.bytes_total},
        {**first.misspelt_dids, **second.misspelt_dids},
    )


def _load_daemon_knowledge(settings: Settings, now: datetime) -> tuple[DaemonKnowledge | None, str | None]:
    """Return the knowledge in the daemon's state; if the state is unreadable, return None and the reason."""
    try:
        with Store.open_to_read(settings.daemon.state_dir) as store:
            return load_facts(store, settings, now).knowledge, None
    except StateError as error:
        if settings.submit.daemon_url:
            return None, None  # the caller queries the daemon over HTTP later, when the datasets are known
        return None, f"cannot read the daemon's state, so this answer uses the slot ads only: {error}"
