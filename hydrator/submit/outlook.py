"""Outlook at submission: the start of jobs by the daemon's estimates, and jobs that no site fits. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, Estimates, SetEstimate
from hydrator.domain.model import Did, Site
from hydrator.domain.text import format_bytes, format_count, format_duration, shorten_list


@dataclass(frozen=True, slots=True)
class JobsOfSet:
    """Jobs to submit that read the same datasets; ``word`` says what is counted: job or node.

    ``node`` is the name of a DAG's node, empty for jobs of a submit file.
    """

    dids: tuple[Did, ...]
    count: int = 1
    word: str = "job"
    node: str = ""

    @property
    def identity(self) -> str:
        """A text that no other jobs of the submission have: the name of the node, or the datasets."""
        return self.node or ",".join(self.dids)


@dataclass(frozen=True, slots=True)
class _Start:
    """The best start of a job: after ``seconds`` at its data, or reading from ``source``."""

    seconds: int
    source: Site | None = None
    missing_bytes: int = 0


def describe_starts(
    jobs: Sequence[JobsOfSet], estimates: Estimates | None, now: datetime, mode: str | None = None
) -> str:
    """Return one line: how many jobs start beside their data now, read from elsewhere, or wait.

    *mode* is DataLocality of the jobs; None for the pool's default, auto. Jobs of no other mode start
    elsewhere because reading ends sooner. The estimates are those of one more job of a set, so of several
    jobs of a set with a free slot it is certain for one that it starts now. Return an empty text if no job
    has valid estimates; only sets that queued jobs need have estimates.
    """
    if estimates is None or now >= estimates.valid_until:
        return ""
    starts = [(each, _find_start(each.dids, estimates, mode)) for each in jobs]
    known = [(each, start) for each, start in starts if start is not None]
    if not known:
        return ""
    beside = [each for each, start in known if start.source is None and not start.seconds]
    reading = [(each, start) for each, start in known if start.source is not None]
    waiting = [(each, start) for each, start in known if start.source is None and start.seconds]
    total, word = sum(each.count for each in jobs), jobs[0].word
    parts = []
    if beside:
        parts.append(f"{_count_sure(beside, total, word)} can start beside the data now")
    for each, start in reading[:_MAX_PARTS]:
        amount = format_bytes(start.missing_bytes) if start.missing_bytes else "the missing data"
        seconds = format_duration(start.seconds)
        parts.append(
            f"{format_count(each.count, word)} would read {amount} from {start.source}, about {seconds}"
        )
    if waiting:
        number = sum(each.count for each, _ in waiting)
        seconds = format_duration(max(start.seconds for _, start in waiting))
        parts.append(f"{format_count(number, word)} would wait up to {seconds} for a slot beside the data")
    if len(reading) > _MAX_PARTS:
        parts.append(
            f"{format_count(len(reading) - _MAX_PARTS, 'more set')} of datasets would be read from elsewhere"
        )
    return "; ".join(parts)


def _count_sure(beside: Sequence[JobsOfSet], total: int, word: str) -> str:
    if total == 1:
        return f"the {word}"
    at_least = "" if all(each.count == 1 for each in beside) else "at least "
    return f"{at_least}{len(beside)} of {format_count(total, word)}"


_MAX_PARTS = 3


def _find_start(dids: Collection[Did], estimates: Estimates, mode: str | None) -> _Start | None:
    """Return the best start of a job in *mode*; None without estimates for its set."""
    key = set_key(dids)
    found = {site: each.by_key[key] for site, each in estimates.sites.items() if key in each.by_key}
    if not found:
        return None
    cheaper = {
        site: one for site, one in found.items() if _is_cheaper(one, estimates.sites[site].own_queue_seconds)
    }
    if cheaper and mode in {None, "auto"}:
        best = min(cheaper.values(), key=lambda one: one.read_seconds or 0)
        return _Start(best.read_seconds or 0, best.source or Site("other sites"), best.missing_bytes)
    queue = min(one.queue_seconds for one in found.values())
    return None if queue >= NO_QUEUE_SECONDS else _Start(queue)


def _is_cheaper(estimate: SetEstimate, own_queue_seconds: int) -> bool:
    read = estimate.read_seconds
    return read is not None and read > 0 and read + own_queue_seconds < estimate.queue_seconds


def describe_jobs_without_site(
    jobs: Sequence[JobsOfSet], reasons: Mapping[str, str], mode: str | None
) -> str:
    """Return one line on the jobs whose datasets no site has together, with advice; empty if there are none.

    Args:
        jobs: all jobs to submit.
        reasons: by the identity of jobs, why no site has all their datasets now.
        mode: DataLocality of the jobs; None for the pool's default.
    """
    names_by_reason: dict[str, list[str]] = {}
    for each in jobs:
        if reason := reasons.get(each.identity):
            names_by_reason.setdefault(reason, []).append(each.node)
    if not names_by_reason:
        return ""
    sentences = [
        f"node{'s' * (len(names) > 1)} {shorten_list(names)}: {reason}" if any(names) else reason
        for reason, names in names_by_reason.items()
    ]
    text = shorten_list(sentences, "; ")
    total = sum(each.count for each in jobs)
    if total > 1 and not any(each.node for each in jobs):
        number = sum(each.count for each in jobs if each.identity in reasons)
        text = f"{number} of {format_count(total, 'job')}: {text}"
    if mode == "require":
        text += "; with DataLocality = require a job waits until one site has all its data: consider auto"
    return text
