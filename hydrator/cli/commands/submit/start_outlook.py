"""Outlook of jobs before their submission: jobs that no site fits, and their prospect."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hydrator.cli.commands.submit.dataset_options import DatasetOptions, ExitWithMessage
from hydrator.cli.options import EXIT_NO_MATCH_NOW
from hydrator.cli.output.progress import show_progress

if TYPE_CHECKING:
    from hydrator.config import Settings
    from hydrator.domain.model import DaemonKnowledge, Did
    from hydrator.submit.outlook import JobsOfSet


def print_outlook(
    options: DatasetOptions, jobs: "Sequence[JobsOfSet]", *, should_refuse: bool, mode: str | None = None
) -> None:
    """Print one line on the jobs that no site can start now, and one line on the start of the others.

    Args:
        options: the options, with the jobs' datasets.
        jobs: the jobs by their datasets, or the nodes of a DAG.
        should_refuse: exit if no site has all data of a job now.
        mode: DataLocality of the jobs; None for the pool's default.
    """
    from hydrator.submit.outlook import describe_jobs_without_site

    if options.settings is None or not jobs or not options.dids:
        return
    knowledge = _gather_knowledge(options.settings, frozenset(options.dids))
    text = describe_jobs_without_site(jobs, _reasons(knowledge, jobs), mode)
    if text and should_refuse:
        raise ExitWithMessage(f"{text}; nothing was submitted", EXIT_NO_MATCH_NOW)
    starts = describe_expected_starts(options.settings, jobs, mode=mode)
    for line in filter(None, (*_describe_unanswered(knowledge, options.dids), text, starts)):
        print(f"hydrator: {line}", file=sys.stderr)


def _gather_knowledge(settings: "Settings", dids: "frozenset[Did]") -> "DaemonKnowledge | None":
    """Return what the daemon and the catalogues know of the datasets; None if they cannot be queried."""
    from hydrator.cli.commands.why_answers import gather_knowledge
    from hydrator.domain.errors import HydratorError
    from hydrator.wiring import system_clock

    try:
        with show_progress("asking the daemon and the catalogues"):
            return gather_knowledge(settings, dids, system_clock())
    except HydratorError as error:  # a failed query must not prevent the submission
        print(f"hydrator: cannot find out which sites have the data: {error}", file=sys.stderr)
        return None


def _describe_unanswered(knowledge: "DaemonKnowledge | None", dids: "Iterable[Did]") -> list[str]:
    """Return one line for each reason why daemon or catalogues did not say where some of *dids* are."""
    from hydrator.domain.text import shorten_list

    by_reason: dict[str, list[Did]] = {}
    for did in sorted(dids):
        if knowledge and (reason := knowledge.snapshot.unseen_reasons.get(did)):
            by_reason.setdefault(reason, []).append(did)
    return [
        f"nobody answered where {shorten_list(found)} {'is' if len(found) == 1 else 'are'}: {reason}"
        for reason, found in by_reason.items()
    ]


def _reasons(knowledge: "DaemonKnowledge | None", jobs: "Sequence[JobsOfSet]") -> dict[str, str]:
    """Return, by the name of each set of jobs, why no site has all its datasets now."""
    from hydrator.diagnostics.why.nowhere import explain_no_complete_site

    groups = {each.identity: each.dids for each in jobs if each.dids} if knowledge else {}
    texts = {
        name: explain_no_complete_site(knowledge, frozenset(dids))
        for name, dids in groups.items()
        if knowledge
    }
    return {name: text for name, text in texts.items() if text}


def describe_expected_starts(
    settings: "Settings", jobs: "Sequence[JobsOfSet]", *, mode: str | None = None
) -> str:
    """Return one line on the start of *jobs* by the daemon's openings; empty if no jobs wait for their sets.

    Args:
        settings: the configuration, with the state and the address of the daemon.
        jobs: the jobs by their datasets.
        mode: DataLocality of the jobs; None for the pool's default.
    """
    from hydrator.domain.errors import HydratorError
    from hydrator.submit.outlook import describe_starts
    from hydrator.wiring import fetch_openings, system_clock

    now = system_clock()
    known_jobs = sorted((each for each in jobs if each.dids), key=lambda each: -each.count)
    try:
        with show_progress("asking the daemon about waiting jobs"):
            openings = fetch_openings(settings, {each.dids for each in known_jobs}, now)
    except HydratorError:  # only for information
        return ""
    return describe_starts(known_jobs, openings, now, mode)
