"""``hydrator report``: did jobs find their data, and what did waiting for it cost?"""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from hydrator.cli.options import DEFAULT_CONFIG, Config, Json
from hydrator.cli.output.progress import working
from hydrator.diagnostics.outcomes import (
    Found,
    Shown,
    Tallied,
    Tally,
    ended_job,
    median,
    quantile,
    tally,
)
from hydrator.domain.model import Unseen, unix
from hydrator.domain.ports import Ended
from hydrator.domain.text import count, data_size, span

from .history import moment

WAIT = (
    "Wait is from submission to the first start. What data adds is the median of jobs that name datasets\n"
    "less the median of those that name none: other jobs in the same time, so a hint and no proof."
)


def report(
    since: Annotated[
        str, typer.Option(help="Jobs that ended since: 90m, 6h, 7d, or 2026-11-21T12:00:00Z.")
    ] = "7d",
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Print whether jobs found their data at their site, from the schedds' histories; 1: a schedd is silent.

    Run it where the daemon's state is: what a site had is looked up in what was decided (hydrator history).
    """
    from hydrator.config import load
    from hydrator.reconcile.snapshot.update import sizes_of
    from hydrator.state.store import Store
    from hydrator.wiring import history_of, system_clock

    settings, now = load(config), system_clock()
    oldest = moment(since, now)
    with Store.open_to_read(settings.daemon.state_dir) as store:
        shown, sizes = Shown(store.history()), sizes_of(store.load().memories)
    history = history_of(settings, system_clock)
    try:
        with working("asking the schedds for their histories"):
            answers = history.ended(oldest)
    finally:
        history.close()
    rows = [row for answer in answers.values() if isinstance(answer, Ended) for row in answer.jobs]
    found = tally((ended_job(row, settings.daemon.default_scope) for row in rows), shown, sizes)
    if as_json:
        print(json.dumps(as_rows(found, answers, oldest, now), indent=2))
    else:
        _print(found, oldest, now)
    troubles = list(_troubles(answers))
    for trouble in troubles:
        print(f"hydrator: {trouble}", file=sys.stderr)
    if troubles:
        raise typer.Exit(1)


def as_rows(
    found: Tallied, answers: Mapping[str, Ended | Unseen], oldest: datetime, now: datetime
) -> dict[str, Any]:
    """The report for programs; docs/report.md says what its keys mean."""
    return {
        "version": 1,
        "since": unix(oldest),
        "until": unix(now),
        **_tally_row(found.total),
        "never_started": found.never_started,
        "datasets_without_size": found.unsized,
        "missed_datasets": found.missed_datasets,
        "wait_seconds": {
            "named": _wait_row(found.waits),
            "unnamed": _wait_row(found.other_waits),
            "added": found.added,
        },
        "sites": [{"site": site, **_tally_row(one)} for site, one in found.sites.items()],
        "schedds": [
            {
                "schedd": schedd,
                "jobs": len(answer.jobs) if isinstance(answer, Ended) else None,
                "whole": isinstance(answer, Ended) and answer.whole,
                "failure": answer.reason if isinstance(answer, Unseen) else None,
            }
            for schedd, answer in sorted(answers.items())
        ],
    }


def _tally_row(one: Tally) -> dict[str, Any]:
    return {
        "jobs": {found.value: one.found[found] for found in Found},
        "share_of_jobs": one.share,
        "bytes_at_site": one.bytes_here,
        "bytes_elsewhere": one.bytes_elsewhere,
        "share_of_bytes": one.share_of_bytes,
        "jobs_that_missed": one.missed,
    }


def _wait_row(waits: Sequence[float]) -> dict[str, Any]:
    return {"jobs": len(waits), "median": median(waits), "p90": quantile(waits, 0.9)}


def _print(found: Tallied, oldest: datetime, now: datetime) -> None:
    from hydrator.cli.output import tables as show

    total = found.total
    started = sum(total.found.values())
    if not started:
        when, others = f"{oldest:%Y-%m-%d %H:%M} UTC", len(found.other_waits)
        print(f"No job that named datasets ran and ended since {when}; {others} others did.")
        return
    columns = ("site", "jobs", "all there", "some", "none", "not known", "bytes there", "elsewhere", "missed")
    rows = [(site, *_cells(one)) for site, one in found.sites.items()]
    show.print_table(columns, [*rows, ("all", *_cells(total))])
    print()
    for line in _sentences(found, started, oldest, now):
        print(line)


def _cells(one: Tally) -> tuple[str, ...]:
    counts = [str(one.found[found]) for found in (Found.SOME, Found.NONE, Found.UNKNOWN)]
    return (
        str(sum(one.found.values())),
        f"{one.found[Found.ALL]}{_percent(one.share)}",
        *counts,
        f"{data_size(one.bytes_here)}{_percent(one.share_of_bytes)}",
        data_size(one.bytes_elsewhere),
        str(one.missed),
    )


def _sentences(found: Tallied, started: int, oldest: datetime, now: datetime) -> list[str]:
    total = found.total
    within = span((now - oldest).total_seconds())
    never = found.never_started
    told = [
        f"{count(started, 'job')} that named datasets ran and ended in {within}; {never} more never started."
    ]
    if unknown := total.found[Found.UNKNOWN]:
        told.append(
            f"Of {unknown} it is not known: their schedd did not record the site (hydrator submit\n"
            "pool-config), or what the site had then is not kept."
        )
    if found.unsized:
        told.append(f"The size of {found.unsized} of their datasets is not known; they count in no bytes.")
    if missed := found.missed_datasets:
        them = count(missed, "dataset")
        told.append(f"{count(total.missed, 'job')} did not find {them} where they were sent.")
    one, other = median(found.waits), median(found.other_waits)
    if one is not None and other is not None:
        added = f"{'-' if one < other else ''}{span(abs(one - other))}"
        most = span(quantile(found.waits, 0.9) or 0)
        told.append(
            f"They waited {span(one)} (median; 90 % at most {most}), "
            f"jobs that name none {span(other)}: data added {added}."
        )
        told.append(WAIT)
    return told


def _percent(share: float | None) -> str:
    return "" if share is None else f" ({int(share * 100)} %)"


def _troubles(answers: Mapping[str, Ended | Unseen]) -> list[str]:
    if not answers:
        return ["the collector knows no schedd, so there is no history to look at"]
    silent = [f"schedd {name}: {one.reason}" for name, one in answers.items() if isinstance(one, Unseen)]
    cut = [
        f"schedd {name}: only the last {len(one.jobs)} jobs were looked at; ask for a shorter --since"
        for name, one in answers.items()
        if isinstance(one, Ended) and not one.whole
    ]
    return silent + cut
