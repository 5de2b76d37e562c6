"""The answers of ``hydrator why``: what pool, daemon and catalogues say of a job or of datasets."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from hydrator import wiring
from hydrator.cli.options import parse_dids
from hydrator.cli.output import tables as show
from hydrator.cli.output.printing import json_value, print_problems
from hydrator.cli.output.progress import show_progress
from hydrator.cli.output.rows import StateView
from hydrator.config import Settings, load
from hydrator.diagnostics.why.explain import explain_before_submit
from hydrator.diagnostics.why.explanation import JobExplanation
from hydrator.diagnostics.why.nowhere import explain_no_complete_site
from hydrator.diagnostics.why.pool_facts import HERE_ATTRIBUTE, JobFacts, fact_expressions, parse_slot_groups
from hydrator.diagnostics.why.query import (
    JOB_PATTERN,
    StagingExplainer,
    WhyPoolClient,
    WhyQuery,
    WhyResult,
    ask_job,
    datasets_over_budget,
)
from hydrator.diagnostics.why.render import COLUMNS, RenderedAnswer, render_answer
from hydrator.domain.ads.classad import classad_string
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import HERE
from hydrator.domain.errors import CatalogueError, ConfigError, StateError
from hydrator.domain.model import (
    DaemonKnowledge,
    Did,
    Site,
    SiteFacts,
    Snapshot,
    Survey,
    Unseen,
)
from hydrator.domain.ports import Catalogue
from hydrator.domain.text import comma_separated
from hydrator.reconcile.snapshot.memory import CatalogueMemory
from hydrator.reconcile.snapshot.merge import apply_survey, build_snapshot
from hydrator.staging.overview import REPORT_NAME, StagingOverview, explain_for_job, overview_from_row
from hydrator.state.store import Store
from hydrator.submit.nearest_names import (
    MAX_SEARCHED,
    add_similar_names,
    find_absent_dids,
    similar_name_patterns,
)
from hydrator.wiring import (
    build_condor_client,
    pool_policy,
    reconcile_policy,
    system_clock,
)


def print_answers(
    what: Sequence[str], config: Path, site: str | None, schedd: str | None, *, as_json: bool
) -> bool:
    """Explain the job or the datasets *what*; return True if each job would match now, runs, or has run.

    Raises:
        ConfigError: *what* is neither a job nor datasets, or *schedd* is given with datasets.
    """
    settings = load(config)
    job, dids = parse_words(what, site, settings.daemon.default_scope)
    if dids and schedd:
        raise ConfigError(["--schedd applies to a job, not to datasets"])
    with (
        closing(build_condor_client(settings.htcondor)) as client,
        show_progress("asking the pool", as_json=as_json),
    ):
        query = _build_query(settings, client)
        if job:
            result = ask_job(query, *job, schedd)
        else:
            result = WhyResult((_explain_datasets(settings, query, dids, Site(site) if site else None),))
    print_result(result, query, as_json=as_json)
    return all(answer.could_run for answer in result.answers)


def _build_query(settings: Settings, client: WhyPoolClient) -> WhyQuery:
    now = system_clock()
    knowledge, knowledge_error = _load_daemon_knowledge(settings, now)
    return WhyQuery(
        client,
        settings.sites.slot_attributes,
        knowledge,
        settings.daemon.default_scope,
        now,
        knowledge_error,
        settings.publish.never,
        lambda dids, key: wiring.fetch_daemon_knowledge(settings, dids, now, key),
        _build_name_search(settings),
        _build_staging_explainer(settings, now),
        can_offer_run_anywhere=True,
    )


def _build_staging_explainer(settings: Settings, now: datetime) -> StagingExplainer:
    """Return a function that explains requests of data, from the daemon's state, else over HTTP."""
    if staging := _load_staging(settings):
        return lambda dids, _: explain_for_job(staging, dids, now)
    return lambda _, key: wiring.fetch_staging(settings, key) if key else ()


_MAX_LOOKED_UP = 20
"""Maximum of similar names whose sites are looked up."""


# --- before submitting --------------------------------------------------------------------------------


def parse_words(
    what: Sequence[str], site: str | None, default_scope: str | None
) -> tuple[tuple[int, int | None] | None, list[Did]]:
    """Return the job, as cluster and process, or the datasets that a user typed.

    Raises:
        ConfigError: *what* is neither, or has a job beside other words or beside *site*.
    """
    jobs = [job for text in what if (job := JOB_PATTERN.match(text))]
    if jobs and (len(what) > 1 or site is not None):
        text = jobs[0][0]
        raise ConfigError(
            [f"{text} is a job: give one job alone and without --site; a dataset {text} needs its scope"]
        )
    if jobs:
        cluster, proc = jobs[0].groups()
        return (int(cluster), None if proc is None else int(proc)), []
    return None, sorted(parse_dids(what, default_scope, "a job (123 or 123.4), nor a dataset"))


def _explain_datasets(
    settings: Settings, query: WhyQuery, dids: Sequence[Did], site: Site | None
) -> JobExplanation:
    """Explain where a job that requires *dids* could run."""
    return explain_dids(
        replace(query, knowledge=_gather_knowledge(settings, query.knowledge, frozenset(dids), query.now)),
        dids,
        site,
        max_age=int(pool_policy(settings).max_age.total_seconds()),
    )


def _gather_knowledge(
    settings: Settings,
    knowledge: DaemonKnowledge | None,
    dids: frozenset[Did],
    now: datetime,
) -> DaemonKnowledge:
    """Return the daemon's knowledge, with catalogue answers about datasets that the daemon does not poll."""
    knowledge_now = (
        knowledge or wiring.fetch_daemon_knowledge(settings, dids, now) or DaemonKnowledge(now, Snapshot({}))
    )
    if new := dids - knowledge_now.demanded_dids:
        with _open_catalogues(settings) as catalogues:
            if catalogues:
                knowledge_now = with_catalogue_answers(
                    knowledge_now, catalogues, new, max_age=settings.daemon.max_age
                )
    return _build_name_search(settings)(knowledge_now, dids)


def gather_knowledge(settings: Settings, dids: frozenset[Did], now: datetime) -> DaemonKnowledge:
    """Return what the daemon and the catalogues know of *dids*."""
    state_knowledge, _ = _load_daemon_knowledge(settings, now)
    return _gather_knowledge(settings, state_knowledge, dids, now)


def explain_groups_without_site(
    knowledge: DaemonKnowledge, groups: Mapping[str, Collection[Did]]
) -> dict[str, str]:
    """Return, by group, why no site has all datasets of the group now; leave out a group if a site has all.

    *groups* has the datasets of each job, or node of a DAG.
    """
    texts = {group: explain_no_complete_site(knowledge, frozenset(dids)) for group, dids in groups.items()}
    return {group: text for group, text in texts.items() if text}


def explain_dids(query: WhyQuery, dids: Sequence[Did], site: Site | None, *, max_age: int) -> JobExplanation:
    """Explain an imaginary job that requires only *dids*; ignore facts older than *max_age* (s).

    Raises:
        ConfigError: no slot and no catalogue has *site*.
    """
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
    known_sites = {group.site for group in groups} | (
        query.knowledge.snapshot.sites.keys() if query.knowledge else set()
    )
    if site is not None and site not in known_sites:
        sites = comma_separated(sorted(known_sites)) or "none"
        raise ConfigError([f"--site {site}: no slot and no catalogue has this site; known sites: {sites}"])
    answer = explain_before_submit(job, groups, query.knowledge, now=query.now, only_site=site)
    return replace(answer, staging=query.explain_staging(dids, key) if query.explain_staging else ())


def _build_name_search(settings: Settings) -> "NearNameSearch":
    return NearNameSearch(lambda: _open_catalogues(settings), partial(_look_up, settings))


def _look_up(settings: Settings, knowledge: DaemonKnowledge, dids: frozenset[Did]) -> DaemonKnowledge:
    """Return *knowledge* with the sites of *dids*, from the catalogues, else from the daemon over HTTP."""
    with _open_catalogues(settings) as catalogues:
        if catalogues:
            return with_catalogue_answers(knowledge, catalogues, dids, max_age=settings.daemon.max_age)
    if fetched := wiring.fetch_daemon_knowledge(settings, dids, knowledge.now):
        return replace(knowledge, snapshot=_merge_snapshots(knowledge.snapshot, fetched.snapshot))
    return knowledge


class NearNameSearch:
    """A search for names similar to a name that no catalogue has, and for the sites that have them.

    The search runs once for each absent name.

    Args:
        catalogues: opens the catalogues for one search and closes them after the search.
        look_up: adds the sites of datasets to the knowledge.
    """

    def __init__(
        self,
        catalogues: Callable[[], AbstractContextManager[Sequence[Catalogue]]],
        look_up: Callable[[DaemonKnowledge, frozenset[Did]], DaemonKnowledge],
    ) -> None:
        self._catalogues = catalogues
        self._look_up = look_up
        self._near_names: dict[Did, frozenset[Did]] = {}

    def __call__(self, knowledge: DaemonKnowledge, dids: frozenset[Did]) -> DaemonKnowledge:
        """Return *knowledge* with similar names, and their sites, for *dids* that no catalogue has."""
        absent = [did for did in find_absent_dids(knowledge, dids) if did not in knowledge.similar_names]
        new = [did for did in absent if did not in self._near_names][
            : max(0, MAX_SEARCHED - len(self._near_names))
        ]
        if new:
            names = self._search_catalogues(new)
            self._near_names.update(dict.fromkeys(new, names))
        found = frozenset[Did]().union(*(self._near_names.get(did, ()) for did in absent))
        return self._add_sites(add_similar_names(knowledge, absent, found), dids)

    def _add_sites(self, knowledge: DaemonKnowledge, dids: frozenset[Did]) -> DaemonKnowledge:
        """Add the sites of the names that exist in place of *dids*, where the daemon does not know them."""
        in_place_of = {**knowledge.similar_names, **knowledge.snapshot.misspelt_dids}
        names = frozenset(name for did in dids for name in in_place_of.get(did, ()))
        known = knowledge.demanded_dids | knowledge.queried_dids
        unknown = sorted(names - known)[:_MAX_LOOKED_UP]
        return self._look_up(knowledge, frozenset(unknown)) if unknown else knowledge

    def _search_catalogues(self, dids: Sequence[Did]) -> frozenset[Did]:
        """Return the names in the catalogues that resemble *dids*; skip a catalogue that fails."""
        names: set[Did] = set()
        with self._catalogues() as catalogues:
            for catalogue in catalogues:
                with suppress(CatalogueError):
                    names |= catalogue.find(similar_name_patterns(dids))
        return frozenset(names)


@contextmanager
def _open_catalogues(settings: Settings) -> Iterator[Sequence[Catalogue]]:
    with closing(wiring.assemble(settings, system_clock)) as parts:
        yield parts.catalogues


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
    sites: dict[Site, SiteFacts] = {}
    for site in sorted(first.sites.keys() | second.sites.keys()):
        site_facts = [facts for facts in (first.sites.get(site), second.sites.get(site)) if facts]
        all_facts = {did: fact for facts in site_facts for did, fact in facts.facts.items()}
        sites[site] = SiteFacts(site_facts[0].as_of, all_facts)
    return Snapshot(
        sites,
        {**first.unseen_reasons, **second.unseen_reasons},
        (*first.case_collisions, *second.case_collisions),
        {**first.bytes_total, **second.bytes_total},
        {**first.misspelt_dids, **second.misspelt_dids},
    )


def _load_daemon_knowledge(settings: Settings, now: datetime) -> tuple[DaemonKnowledge | None, str | None]:
    """Return the knowledge in the daemon's state; if the state is unreadable, return None and the reason."""
    policy = reconcile_policy(settings)
    try:
        with Store.open_to_read(settings.daemon.state_dir) as store:
            view = StateView.from_store(store, policy, now=now)
    except StateError as error:
        if settings.submit.daemon_url:
            return None, None  # the caller queries the daemon over HTTP later, when the datasets are known
        return None, f"cannot read the daemon's state, so this answer uses the slot ads only: {error}"
    omitted_dids = datasets_over_budget(view.snapshot, view.demand, policy.budget)
    held_reasons = view.change_texts_by_site
    return DaemonKnowledge(
        now,
        view.snapshot,
        view.demand.dids,
        dids_without_room=omitted_dids,
        held_reasons=held_reasons,
        openings=view.openings.openings if view.openings else None,
        no_openings_reason=view.openings.none_reason if view.openings else None,
        withheld_keys=frozenset(view.demand.withheld_keys),
    ), None


def _load_staging(settings: Settings) -> StagingOverview | None:
    """Return what the daemon saved about its requests of data; None without staging or a readable state."""
    with suppress(StateError), Store.open_to_read(settings.daemon.state_dir) as store:
        return overview_from_row(store.load_report(REPORT_NAME))
    return None


# --- printing -----------------------------------------------------------------------------------------


def print_result(result: WhyResult, query: WhyQuery, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(json_value(result), indent=2))
    else:
        for number, answer in enumerate(result.answers):
            if number:
                print()
            _print_answer(render_answer(answer))
        if result.summary.jobs:
            print(f"\n{result.summary.text}")
    schedd_problems = [
        f"schedd {name} did not answer: {reason}" for name, reason in result.unreachable_schedds.items()
    ]
    print_problems(*schedd_problems, query.knowledge_error)


def _print_answer(rendered_answer: RenderedAnswer) -> None:
    print("\n".join(rendered_answer.lines))
    if rendered_answer.rows:
        show.print_table(COLUMNS, rendered_answer.rows)
    if rendered_answer.remedy:
        print(rendered_answer.remedy)
