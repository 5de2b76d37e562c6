"""The report of ended jobs: which found their data at their site, and how long they waited."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from hydrator.cli.output import tables as show
from hydrator.cli.output.printing import print_result
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings, load
from hydrator.diagnostics.outcomes import (
    LocalityResult,
    OutcomeCounts,
    OutcomeSummary,
    has_possible_times,
    parse_ended_job,
    tally,
)
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Did, Unseen
from hydrator.domain.ports import EndedJobs
from hydrator.domain.text import format_bytes, format_count, format_duration
from hydrator.reconcile.history import AvailableSpans
from hydrator.reconcile.snapshot.merge import sizes_of
from hydrator.state.store import Store
from hydrator.wiring import build_job_history, system_clock

_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
WAIT_EXPLANATION = (
    "The wait is the time from submission to the first start. The added wait is the median wait of jobs\n"
    "that name datasets, minus the median wait of jobs that name none. It is only an indication, because\n"
    "the two medians are of different jobs."
)


def print_report(since: str, config: Path, *, as_json: bool) -> list[str]:
    """Print the report of the jobs that ended since *since*.

    Returns:
        the problems of the schedds' histories.
    """
    settings, now = load(config), system_clock()
    oldest = parse_since(since, now)
    answers = _read_histories(settings, oldest, as_json=as_json)
    rows = [row for answer in answers.values() if isinstance(answer, EndedJobs) for row in answer.jobs]
    possible = [row for row in rows if has_possible_times(row, now)]
    jobs = [parse_ended_job(row, settings.daemon.default_scope) for row in possible]
    known = _load_state(settings, frozenset[Did]().union(*(job.datasets or () for job in jobs)))
    with show_progress(f"comparing {format_count(len(jobs), 'job')} with the ads", as_json=as_json):
        outcomes = tally(jobs, known.spans, known.sizes)
    schedds = tuple(ScheddHistory.of(*each) for each in sorted(answers.items()))
    result = Report(oldest, now, outcomes, schedds, len(rows) - len(jobs))
    print_result(as_json, result, lambda: print_outcomes(result))
    return _schedd_problems(answers)


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time in *text*: ``6h`` means 6 hours before *now*; a date and time must have a time zone."""
    if match := re.fullmatch(r"(\d{1,5})\s*(s|m|min|h|d)", text.strip()):
        return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        formats = "give a time span like 90m, 6h or 2d, or a time like 2026-11-21T12:00:00Z"
        raise ConfigError([f"--since {text!r}: {formats}"])
    return moment


def _read_histories(
    settings: Settings, oldest: datetime, *, as_json: bool
) -> Mapping[str, EndedJobs | Unseen]:
    with (
        show_progress("querying the histories of the schedds", has_steps=True, as_json=as_json) as bar,
        closing(build_job_history(settings, system_clock, bar)) as history,
    ):
        return history.read_ended_jobs(oldest)


class _State(NamedTuple):
    spans: AvailableSpans
    sizes: Mapping[Did, int]


def _load_state(settings: Settings, dids: AbstractSet[Did]) -> _State:
    with Store.open_to_read(settings.daemon.state_dir) as store:
        return _State(
            store.site_history.load_spans(dids),
            sizes_of(store.load().memories),
        )


@dataclass(frozen=True, slots=True)
class ScheddHistory:
    """The history of one schedd.

    Attributes:
        schedd: its name.
        jobs: jobs in its history; null: it did not answer.
        is_complete: false: it did not answer, or its history has more jobs than one answer returns.
        failure: reason why it did not answer.
    """

    schedd: str
    jobs: int | None
    is_complete: bool
    failure: str | None

    @classmethod
    def of(cls, schedd: str, answer: EndedJobs | Unseen) -> "ScheddHistory":
        """Describe the *answer* of one schedd."""
        if isinstance(answer, Unseen):
            return cls(schedd, None, False, answer.reason)
        return cls(schedd, len(answer.jobs), answer.is_complete, None)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of jobs in a period.

    Attributes:
        since: start of the period in which the jobs ended.
        until: end of that period.
        outcomes: the results.
        schedds: queried schedds.
        impossible_jobs: jobs that are left out, because their times are impossible: a start before
            the submission, after the end or in the future, or a value that is not a time.
    """

    since: datetime
    until: datetime
    outcomes: OutcomeSummary
    schedds: tuple[ScheddHistory, ...]
    impossible_jobs: int = 0


def print_outcomes(report: Report) -> None:
    """Print *report* for people."""
    if left_out := report.impossible_jobs:
        print(f"{format_count(left_out, 'job')} left out, because their times in the history cannot be.\n")
    results, period_start, now = report.outcomes, report.since, report.until
    total = results.total
    started_count = sum(total.job_counts.values())
    if not started_count:
        when, others = f"{period_start:%Y-%m-%d %H:%M} UTC", results.other_waits.jobs
        print(f"No job that named datasets ran and ended since {when}; {others} jobs without datasets did.")
        return
    columns = ("site", "jobs", "all there", "some", "none", "not known", "bytes there", "elsewhere", "missed")
    rows = [(site, *_tally_cells(counts)) for site, counts in results.sites.items()]
    show.print_table(columns, [*rows, ("all", *_tally_cells(total))])
    print()
    for line in _summary_sentences(results, started_count, period_start, now):
        print(line)


def _tally_cells(summary: OutcomeCounts) -> tuple[str, ...]:
    counts = [
        str(summary.job_counts[result])
        for result in (LocalityResult.SOME, LocalityResult.NONE, LocalityResult.UNKNOWN)
    ]
    return (
        str(sum(summary.job_counts.values())),
        f"{summary.job_counts[LocalityResult.ALL]}{_format_percent(summary.share_of_jobs)}",
        *counts,
        f"{format_bytes(summary.bytes_at_site)}{_format_percent(summary.share_of_bytes)}",
        format_bytes(summary.bytes_elsewhere),
        str(summary.jobs_with_misses),
    )


def _summary_sentences(
    results: OutcomeSummary, started_count: int, period_start: datetime, now: datetime
) -> list[str]:
    total = results.total
    within = format_duration((now - period_start).total_seconds())
    unstarted_count = results.never_started
    started_text = f"{format_count(started_count, 'job')} that named datasets ran and ended in {within}"
    sentences = [f"{started_text}; {unstarted_count} more jobs with datasets never started."]
    if unknown := total.job_counts[LocalityResult.UNKNOWN]:
        sentences.append(
            f"The result of {unknown} of these jobs is unknown. Either the schedd did not record the site\n"
            "(hydrator pool-config), or the daemon's history does not have the site's ad of that time."
        )
    sentences += describe_lost_ads(results)
    if results.datasets_without_size:
        sentences.append(
            f"The size of {results.datasets_without_size} of the jobs' datasets is unknown; the bytes above"
            " exclude these datasets."
        )
    if missed_count := results.missed_datasets:
        datasets = format_count(missed_count, "dataset")
        sentences.append(
            f"{format_count(total.jobs_with_misses, 'job')} could not read {datasets} that the slot listed."
        )
    wait, other_wait = results.waits.median, results.other_waits.median
    if wait is not None and other_wait is not None:
        added_wait = f"{'-' if wait < other_wait else ''}{format_duration(abs(wait - other_wait))}"
        ninth_decile = format_duration(results.waits.p90 or 0)
        sentences.append(
            f"Jobs with datasets waited {format_duration(wait)} (median; 90 % at most {ninth_decile}), "
            f"jobs without datasets {format_duration(other_wait)} (median): added wait {added_wait}."
        )
        sentences.append(WAIT_EXPLANATION)
    return sentences


def describe_lost_ads(results: OutcomeSummary) -> list[str]:
    """Return a sentence for each site with jobs that started before the history of the site's ad."""
    return [
        f"{format_count(lost.job_count, 'job')} of unknown result started at {site} before"
        f" {lost.begin:%Y-%m-%d %H:%M} UTC: the daemon has\ndeleted older ads of {site}."
        for site, lost in results.lost_ads.items()
    ]


def _format_percent(share: float | None) -> str:
    return "" if share is None else f" ({int(share * 100)} %)"


def _schedd_problems(answers: Mapping[str, EndedJobs | Unseen]) -> list[str]:
    if not answers:
        return ["the collector lists no schedd, so no history can be read"]
    failures = [
        f"schedd {name}: {answer.reason}" for name, answer in answers.items() if isinstance(answer, Unseen)
    ]
    truncations = [
        f"schedd {name}: only the last {len(answer.jobs)} jobs were read; use a shorter --since"
        for name, answer in answers.items()
        if isinstance(answer, EndedJobs) and not answer.is_complete
    ]
    return failures + truncations
