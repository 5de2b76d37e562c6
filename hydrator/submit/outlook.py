"""Outlook at submission: the prospect of jobs by the daemon's openings, and jobs that no site fits. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Openings, describe_outlook
from hydrator.domain.model import Did, to_unix
from hydrator.domain.text import format_count, group_pairs, shorten_list


@dataclass(frozen=True, slots=True)
class JobsOfSet:
    """Jobs to submit that read the same datasets; ``word`` says what is counted: job or node.

    ``node`` is the name of a DAG's node, empty for jobs of a submit file.
    """

    dids: tuple[Did, ...]
    count: int = 1
    word: str = "job"
    node: str = ""


def describe_starts(
    jobs: Sequence[JobsOfSet], made: Openings | None, now: datetime, mode: str | None = None
) -> str:
    """Return one line on the prospect of jobs whose set other jobs wait for; empty if there are none.

    *mode* is DataLocality of the jobs; None for the pool's default, auto. Jobs of no other mode start away
    from their data because their set is open.
    """
    if made is None or to_unix(now) >= made.open_until or mode not in {None, "auto"}:
        return ""
    outlooks = [(each, describe_outlook(set_key(each.dids), made, is_queued=False)) for each in jobs]
    parts = [f"{format_count(each.count, each.word)}: {text}" for each, text in outlooks if text]
    return shorten_list(parts, "; ")


def describe_jobs_without_site(
    jobs: Sequence[JobsOfSet], reasons: Mapping[tuple[Did, ...], str], mode: str | None
) -> str:
    """Return one line on the jobs whose datasets no site has together, with advice; empty if there are none.

    Args:
        jobs: all jobs to submit.
        reasons: by their datasets, why no site has all of them now.
        mode: DataLocality of the jobs; None for the pool's default.
    """
    names_by_reason = group_pairs((reason, each.node) for each in jobs if (reason := reasons.get(each.dids)))
    if not names_by_reason:
        return ""
    sentences = [
        f"node{'s' * (len(names) > 1)} {shorten_list(names)}: {reason}" if any(names) else reason
        for reason, names in names_by_reason.items()
    ]
    text = shorten_list(sentences, "; ")
    total = sum(each.count for each in jobs)
    if total > 1 and not any(each.node for each in jobs):
        number = sum(each.count for each in jobs if reasons.get(each.dids))
        text = f"{number} of {format_count(total, 'job')}: {text}"
    if mode == "require":
        text += "; with DataLocality = require a job waits until one site has all its data: consider auto"
    return text
