"""Parts that the commands of ``hydrator submit`` share: errors, and the outlook of jobs."""

from collections.abc import Iterable, Sequence

import typer

from hydrator.cli.commands.why import gather_knowledge
from hydrator.cli.options import EXIT_NO_MATCH_NOW
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings
from hydrator.diagnostics.why.nowhere import explain_no_complete_site
from hydrator.domain.errors import HydratorError
from hydrator.domain.model import DaemonKnowledge, Did
from hydrator.domain.text import group_pairs, shorten_list
from hydrator.submit.outlook import JobsOfSet, describe_jobs_without_site, describe_starts
from hydrator.wiring import system_clock
from hydrator.wiring.catalogues import fetch_openings


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
    if settings is None or not jobs or not dids:
        return
    knowledge = _gather_knowledge(settings, frozenset(dids))
    reasons = {
        dids: explain_no_complete_site(knowledge, frozenset(dids))
        for dids in {each.dids for each in jobs}
        if dids and knowledge
    }
    text = describe_jobs_without_site(jobs, reasons, mode)
    if text and should_refuse:
        exit_on_problems([f"{text}; nothing was submitted"], EXIT_NO_MATCH_NOW)
    starts = describe_expected_starts(settings, jobs, mode=mode)
    print_problems(*_describe_unanswered(knowledge, dids), text, starts)


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
