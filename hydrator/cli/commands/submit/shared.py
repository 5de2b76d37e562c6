"""Parts that the commands of ``hydrator submit`` share: errors, and the outlook of jobs."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing

import typer

from hydrator.cli.commands.why import gather_knowledge
from hydrator.cli.options import EXIT_NO_MATCH_NOW
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings
from hydrator.diagnostics.why.nowhere import explain_no_complete_site
from hydrator.domain.errors import ConfigError, HydratorError
from hydrator.domain.model import DaemonKnowledge, Did
from hydrator.domain.text import did_you_mean, group_pairs, shorten_list
from hydrator.submit.dataset_names.search import find_unlisted, scope_prefixes
from hydrator.submit.outlook import JobsOfSet, describe_jobs_without_site, describe_starts
from hydrator.wiring import system_clock
from hydrator.wiring.catalogues import daemon_catalogues, fetch_openings


def exit_on_problems(problems: Sequence[str], status: int = 2) -> None:
    """Print all *problems* on stderr and exit with *status*; return if there are none."""
    print_problems(*problems)
    if problems:
        raise typer.Exit(status)


def print_outlook(
    settings: Settings | None,
    dids: Iterable[Did],
    jobs: Sequence[JobsOfSet],
    *,
    should_refuse: bool,
    mode: str | None = None,
) -> None:
    """Print one line on the jobs that no site can start now, and one line on the start of the others.

    Args:
        settings: the configuration; None without one.
        dids: the datasets of all jobs.
        jobs: the jobs by their datasets, or the nodes of a DAG.
        should_refuse: exit if no site has all data of a job now.
        mode: DataLocality of the jobs; None for the pool's default.
    """
    if settings is None and should_refuse:
        raise ConfigError(["--refuse-nowhere needs a configuration with [submit].daemon_url"])
    if settings is None or not jobs or not dids:
        return
    knowledge = _gather_knowledge(settings, frozenset(dids))
    new = _find_new(knowledge, dids)
    unseen = knowledge.snapshot.unseen_reasons if knowledge else dids
    unknown = {*new, *unseen} if should_refuse else new
    reasons = {each.dids: _explain_no_site(knowledge, each.dids, unknown) for each in jobs if each.dids}
    text = describe_jobs_without_site(jobs, reasons, mode)
    unlisted = describe_unlisted(_find_unlisted(settings, new))
    print_problems(*_describe_unanswered(knowledge, dids), *unlisted)
    if text and should_refuse:
        exit_on_problems([f"{text}; nothing was submitted"], EXIT_NO_MATCH_NOW)
    starts = describe_expected_starts(settings, jobs, mode=mode)
    print_problems(text, starts)


def _find_new(knowledge: DaemonKnowledge | None, dids: Iterable[Did]) -> set[Did]:
    """Return those of *dids* that no job has named to the daemon, and about which no catalogue was asked."""
    if knowledge is None:
        return set()
    asked = knowledge.demanded_dids | knowledge.queried_dids | knowledge.snapshot.unseen_reasons.keys()
    return set(dids) - asked


def _explain_no_site(knowledge: DaemonKnowledge | None, dids: Sequence[Did], unknown: Container[Did]) -> str:
    """Return why no site can start a job with *dids* now, as far as it is known; empty if a site can."""
    if found := knowledge and explain_no_complete_site(knowledge, frozenset(dids)):
        return found
    unsure = [did for did in dids if did in unknown]
    return f"it is not known yet which sites have {shorten_list(unsure)}" if unsure else ""


def _find_unlisted(settings: Settings, dids: Collection[Did]) -> Mapping[Did, Sequence[Did]]:
    """Return those of *dids* that the daemon's catalogues do not list, each with similar ones."""
    if settings.catalogue or not dids:
        return {}
    with ExitStack() as stack:
        daemon = [stack.enter_context(closing(one)) for one in daemon_catalogues(settings)]
        prefixes = scope_prefixes(settings.daemon.default_scope, is_daemon=True)
        return find_unlisted(dids, prefixes, daemon) if daemon else {}


def describe_unlisted(unlisted: Mapping[Did, Sequence[Did]]) -> list[str]:
    """Return one sentence on the datasets that no catalogue of the daemon lists, and one on similar ones."""
    if not unlisted:
        return []
    check = "a job waits for it: check the name, unless it is that of a single file or a private dataset"
    questions = [f"{did}: {did_you_mean(near)}" for did, near in unlisted.items() if near]
    return [f"no catalogue of the daemon lists {shorten_list(sorted(unlisted))}; {check}", *questions]


def _gather_knowledge(settings: Settings, dids: frozenset[Did]) -> DaemonKnowledge | None:
    """Return what the daemon and the catalogues know of the datasets; None if they cannot be queried."""
    try:
        with show_progress("asking the daemon and the catalogues"):
            return gather_knowledge(settings, dids, system_clock())
    except HydratorError as error:  # a failed query must not prevent the submission
        print_problems(f"cannot find out which sites have the data: {error}")
        return None


def _describe_unanswered(knowledge: DaemonKnowledge | None, dids: Iterable[Did]) -> list[str]:
    """Return one line for each reason why daemon or catalogues did not say where some of *dids* are."""
    reasons = knowledge.snapshot.unseen_reasons if knowledge else {}
    by_reason = group_pairs((reasons[did], did) for did in sorted(dids) if did in reasons)
    return [
        f"neither the daemon nor a catalogue answered where {shorten_list(found)}"
        f" {'is' if len(found) == 1 else 'are'}: {reason}"
        for reason, found in by_reason.items()
    ]


def describe_expected_starts(
    settings: Settings, jobs: Sequence[JobsOfSet], *, mode: str | None = None
) -> str:
    """Return one line on the start of *jobs* by the daemon's openings; empty if no jobs wait for their sets.

    Args:
        settings: the configuration, with the state and the address of the daemon.
        jobs: the jobs by their datasets.
        mode: DataLocality of the jobs; None for the pool's default.
    """
    now = system_clock()
    known_jobs = sorted((each for each in jobs if each.dids), key=lambda each: -each.count)
    try:
        with show_progress("asking the daemon about waiting jobs"):
            openings = fetch_openings(settings, {each.dids for each in known_jobs}, now)
    except HydratorError:  # only for information
        return ""
    return describe_starts(known_jobs, openings, now, mode)
