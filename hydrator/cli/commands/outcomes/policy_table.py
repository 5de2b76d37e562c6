"""Output of ``hydrator replay``: the table for people, and JSON."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from hydrator.diagnostics.replay.model import RECORDED
from hydrator.diagnostics.replay.statistics import MIN_UNITS, MeasuredValue, PolicyResult, UnitKind
from hydrator.domain.text import format_bytes, format_count, format_duration

from .policy_trial import ReplayTable


def replay_json(table: ReplayTable) -> dict[str, Any]:
    """Return the results as JSON values."""
    workload = table.workload
    return {
        "version": 1,
        "jobs": workload.job_count,
        "seeds": table.seed_count,
        "resampled": table.units,
        "sites": [
            {
                "site": site.name,
                "machines": site.machine_count,
                "cores": site.cores,
                "bytes_per_second": site.bytes_per_second,
                "rates_to": dict(site.rates_to),
            }
            for site in workload.sites
        ],
        "policies": [_result_row(result) for result in table.results],
        "history": _result_row(table.history) if table.history else None,
        "unknowns": list(workload.unknowns),
    }


def _result_row(result: PolicyResult) -> dict[str, Any]:
    row = asdict(result)
    return {"policy": row.pop("name"), **row}


def print_policy_table(table: ReplayTable) -> None:
    """Print the results of all policies, and below them what is not known."""
    from hydrator.cli.output import tables as show

    if not table.results:
        print("No job of this period has the times that a replay needs: nothing to replay.")
        return
    columns = ("policy", "jobs at data", "bytes at data", "bytes moved", "makespan", "mean wait", "95 % wait")
    rows = [_cells(result) for result in table.results]
    if table.history:
        rows.append(_cells(table.history))
    show.print_table(columns, rows)
    print()
    for line in _sentences(table):
        print(line)


def _cells(result: PolicyResult) -> tuple[str, ...]:
    return (
        result.name,
        _cell(result.share_of_jobs, _percent),
        _cell(result.share_of_bytes, _percent),
        _cell(result.bytes_moved, format_bytes),
        _cell(result.makespan_seconds, format_duration),
        _cell(result.wait_mean_seconds, format_duration),
        _cell(result.wait_p95_seconds, format_duration),
    )


def _cell(value: MeasuredValue, format_value: Callable[[float], str]) -> str:
    if value.value is None:
        return "not known"
    if value.low is None or value.high is None:
        return format_value(value.value)
    return f"{format_value(value.value)} ({format_value(value.low)} to {format_value(value.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


_RESAMPLED = "In brackets: 95 % intervals, from resampled"
_INTERVALS: Mapping[UnitKind, str] = {
    "seeds": f"{_RESAMPLED} seeds.",
    "days": f"{_RESAMPLED} days; the makespan has none.",
    "users": f"{_RESAMPLED} users; the makespan has none.",
    "none": f"No intervals: they need jobs of {MIN_UNITS} days or {MIN_UNITS} users.",
}


def _sentences(table: ReplayTable) -> list[str]:
    """Return the sentences below the table: the intervals, the model's error, and what is not known."""
    runs = (
        f"{format_count(table.workload.job_count, 'job')}, {format_count(table.seed_count, 'run')} a policy"
    )
    sentences = [f"{runs}. {_INTERVALS[table.units]}"]
    sentences += [
        f"{result.name}: {format_count(result.never_started, 'job')} never started."
        for result in table.results
        if result.never_started
    ]
    replayed = next((one for one in table.results if one.name == RECORDED.name), None)
    if replayed and table.history:
        shares = (replayed.share_of_jobs.value, table.history.share_of_jobs.value)
        if shares[0] is not None and shares[1] is not None:
            sentences.append(
                f"Check of the model: with the jobs' own modes, {_percent(shares[0])} of the jobs run at"
                f" their data in the model; in the history it was {_percent(shares[1])}."
            )
    if table.workload.unknowns:
        sentences.append("Not known:")
        sentences += [f"- {text}." for text in table.workload.unknowns]
    return sentences
