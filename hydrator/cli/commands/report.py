"""``hydrator report``: the way in which ended jobs started, and how long they waited and ran."""

import re
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.plain_table import print_table
from hydrator.cli.output.printing import print_problems, print_result
from hydrator.cli.output.progress import show_progress
from hydrator.config import load
from hydrator.diagnostics.outcomes import (
    Outcomes,
    Quantiles,
    ScheddHistory,
    Start,
    StartCounts,
    parse_histories,
    summarize,
)
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import from_unix
from hydrator.domain.text import format_bytes, format_count, format_duration, format_percent, shorten_list
from hydrator.wiring import system_clock
from hydrator.wiring.condor import build_job_history

_UNITS: Final = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_SHOWN_SETS: Final = 10
_COUNTS: Final = ("jobs", "beside its data", "by reading", "no answer", "read from elsewhere", "missed")
_STARTS: Final = {
    Start.LOCAL: "beside its data",
    Start.READ: "by reading",
    Start.UNKNOWN: "no answer",
    Start.NO_DATASETS: "names no datasets",
}


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of jobs in a period.

    Attributes:
        since: start of the period in which the jobs ended.
        until: end of that period.
        outcomes: the results.
        schedds: queried schedds.
        left_out: jobs that are left out, because their times are impossible (a start before the submission,
            after the end or in the future, or a value that is not a time), or because the schedd did not
            write the record of their start, or their key is of other datasets.
    """

    since: datetime
    until: datetime
    outcomes: Outcomes
    schedds: tuple[ScheddHistory, ...]
    left_out: int = 0


def report(
    since: Annotated[
        str,
        typer.Option(
            help="Only jobs that ended since this time: 90m, 6h or 7d ago, or 2026-11-21T12:00:00Z."
        ),
    ] = "7d",
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Report whether jobs started beside their data.

    The command reads the jobs' own records from the histories of the schedds. Exits 1 if one is incomplete.
    """
    now = system_clock()
    oldest = parse_since(since, now)
    settings = load(config)
    with (
        show_progress("querying the histories of the schedds", has_steps=True) as bar,
        closing(build_job_history(settings, system_clock, bar)) as history,
    ):
        answers = history.read_ended_jobs(oldest)
    batch = parse_histories(answers, settings.daemon.default_scope, now)
    made = Report(oldest, now, summarize(batch.jobs), batch.schedds, batch.left_out)
    print_result(as_json, made, lambda: print_report(made))
    problems = find_problems(batch.schedds)
    print_problems(*problems)
    if problems:
        raise typer.Exit(1)


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time in *text*: ``6h`` means 6 hours before *now*; a date and time must have a time zone."""
    if match := re.fullmatch(r"([0-9]{1,5})\s*(s|m|min|h|d)", text.strip()):
        return max(now - timedelta(**{_UNITS[match[2]]: int(match[1])}), from_unix(0))
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo and from_unix(0) <= moment <= now:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    formats = "give a time span like 90m, 6h or 2d, or a time in the past like 2026-11-21T12:00:00Z"
    raise ConfigError([f"--since {text!r:.100}: {formats}"])


def find_problems(schedds: tuple[ScheddHistory, ...]) -> list[str]:
    """Return a sentence for each schedd whose history is incomplete."""
    if not schedds:
        return ["the collector lists no schedd, so no history can be read"]
    return [
        f"schedd {one.schedd}: {one.failure}"
        if one.failure
        else f"schedd {one.schedd}: only the last {one.jobs} jobs were read; use a shorter --since"
        for one in schedds
        if not one.is_complete
    ]


def print_report(made: Report) -> None:
    """Print *made* for people."""
    outcomes = made.outcomes
    if made.left_out:
        print(
            f"{format_count(made.left_out, 'job')} left out: the times cannot be, the schedd did not write"
            " the record of the\nstart, or the key is of other datasets.\n"
        )
    if not outcomes.total.job_count:
        others = format_count(outcomes.waits[Start.NO_DATASETS].jobs, "job")
        when = f"{made.since:%Y-%m-%d %H:%M} UTC"
        print(f"No job that names datasets started and ended since {when}; {others} without datasets did.")
        return
    sites = [(site, *_count_cells(counts)) for site, counts in outcomes.sites.items()]
    print_table(("site", *_COUNTS), [*sites, ("all", *_count_cells(outcomes.total))])
    print()
    columns = ("start", "wait: median", "90 %", "99 %", "run: median", "90 %", "99 %")
    times = (outcomes.waits, outcomes.runs)
    print_table(
        columns,
        [(_STARTS[start], *(cell for each in times for cell in _time_cells(each[start]))) for start in Start],
    )
    print()
    sets = list(outcomes.sets.items())[:_SHOWN_SETS]
    print_table(
        ("datasets", *_COUNTS),
        [(shorten_list(names.split(", "), limit=1), *_count_cells(counts)) for names, counts in sets],
    )
    print()
    _print_sentences(made)


def _count_cells(counts: StartCounts) -> tuple[str, ...]:
    share = format_percent(counts.local / counts.job_count) if counts.job_count else ""
    return (
        str(counts.job_count),
        f"{counts.local}{share and f' ({share.strip()})'}",
        str(counts.read),
        str(counts.unknown),
        format_bytes(counts.read_bytes),
        str(counts.jobs_with_misses),
    )


def _time_cells(quantiles: Quantiles) -> tuple[str, ...]:
    each = (quantiles.median, quantiles.p90, quantiles.p99)
    return tuple("-" if seconds is None else format_duration(seconds) for seconds in each)


def _print_sentences(made: Report) -> None:
    outcomes, total = made.outcomes, made.outcomes.total
    within = format_duration((made.until - made.since).total_seconds())
    started = f"{format_count(total.job_count, 'job')} with datasets started and ended in {within}"
    print(f"{started}; {outcomes.never_started} more never started.")
    if total.unknown:
        print(
            f"{format_count(total.unknown, 'job')} started without an answer: at a slot without the hook or"
            " with an old answer,\nor when the wait was over."
        )
    if outcomes.missed_datasets:
        jobs, datasets = total.jobs_with_misses, format_count(outcomes.missed_datasets, "dataset")
        print(f"{format_count(jobs, 'job')} could not read {datasets} that the slot listed.")
