"""``hydrator report --experiment``: compare the active with the observe-only blocks of an experiment."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hydrator.cli.output.printing import print_result
from hydrator.diagnostics.counterfactual import Estimate
from hydrator.diagnostics.switchback import MEASURES, MIN_PAIRS, Arm, LeftOut, Switchback
from hydrator.domain.errors import StateError
from hydrator.domain.model import to_unix
from hydrator.domain.text import format_bytes, format_count, format_duration, format_signed
from hydrator.reconcile.publish.experiment import Experiment

if TYPE_CHECKING:
    from hydrator.config import Settings


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _points(share: float) -> str:
    return f"{share * 100:.1f} points"


def _signed_bytes(size: float) -> str:
    return format_signed(size, format_bytes)


def _signed_time(seconds: float) -> str:
    return format_signed(seconds, format_duration)


_MEASURES: dict[str, tuple[str, Callable[[float], str], Callable[[float], str]]] = {
    "share_of_jobs": ("jobs at their data", _percent, _points),
    "share_of_bytes": ("bytes at the job's site", _percent, _points),
    "bytes_moved_per_job": ("bytes moved for a job", format_bytes, _signed_bytes),
    "mean_wait": ("mean wait", format_duration, _signed_time),
    "p95_wait": ("wait of 95 % at most", format_duration, _signed_time),
}
_LEFT_OUT = {
    LeftOut.OUTSIDE: "they started before or after the experiment",
    LeftOut.DROPPED: "they started in the first part of a block",
    LeftOut.OTHER_AD: "the ad of their site did not follow the plan",
    LeftOut.LOST_AD: "the daemon has deleted the ad that their site had then",
    LeftOut.NO_AD: "their site, or its ad of that time, is unknown",
    LeftOut.NO_PAIR: "the other block of the pair has no job",
}


def load_experiment(settings: "Settings") -> Experiment:
    """Return the last experiment in the daemon's state.

    Raises:
        StateError: the state cannot be read, or no experiment has begun.
    """
    from hydrator.state.store import Store

    with Store.open_to_read(settings.daemon.state_dir) as store:
        experiment = store.load().experiment
    if experiment is None:
        raise StateError("no experiment has begun: set experiment.enabled = true")
    return experiment


def print_experiment(result: Switchback, experiment: Experiment, now: datetime, *, as_json: bool) -> None:
    rows = experiment_json(result, experiment, now)
    print_result(as_json, rows, lambda: _print_table(result, experiment, now))


def experiment_json(result: Switchback, experiment: Experiment, now: datetime) -> dict[str, Any]:
    """Return the report as JSON values; docs/how-to/operate/run/prove-it-on-your-pool.md explains it."""
    return {
        "version": 1,
        "since": to_unix(experiment.started_at),
        "until": to_unix(max(experiment.started_at, min(experiment.ends_at, now))),
        "pairs": result.pair_count,
        "active": _arm_row(result.active),
        "observed": _arm_row(result.observed),
        "differences": {name: _difference_row(result.differences.get(name)) for name in MEASURES},
        "left_out": {reason.value: result.left_out.get(reason, 0) for reason in LeftOut},
    }


def _arm_row(arm: Arm) -> dict[str, Any]:
    found = arm.measures()
    moved = found.get("bytes_moved_per_job")
    return {
        "jobs": arm.jobs,
        "bytes_moved": arm.bytes_elsewhere,
        **{name: found.get(name) for name in MEASURES},
        "bytes_moved_per_job": None if moved is None else round(moved),
    }


def _difference_row(one: Estimate | None) -> dict[str, Any] | None:
    return {"value": one.value, "low": one.low, "high": one.high} if one else None


def _print_table(result: Switchback, experiment: Experiment, now: datetime) -> None:
    from hydrator.cli.output import tables as show

    print(experiment.describe(now))
    if result.pair_count:
        active, observed = result.active.measures(), result.observed.measures()
        rows = [("jobs", str(result.active.jobs), str(result.observed.jobs), "")]
        rows += [
            (
                title,
                show_value(active[name]) if name in active else "",
                show_value(observed[name]) if name in observed else "",
                _describe(result.differences.get(name), show_change),
            )
            for name, (title, show_value, show_change) in _MEASURES.items()
        ]
        show.print_table(("", "active", "observe-only", "difference (95 %)"), rows)
    for line in _sentences(result):
        print(line)


def _describe(one: Estimate | None, show: Callable[[float], str]) -> str:
    if one is None:
        return ""
    value = show(one.value)
    if one.low is None or one.high is None:
        return value
    return f"{value} ({show(one.low)} to {show(one.high)})"


def _sentences(result: Switchback) -> Iterator[str]:
    yield f"{format_count(result.pair_count, 'pair')} of blocks have jobs in both blocks."
    if result.pair_count < MIN_PAIRS:
        yield f"An interval needs {MIN_PAIRS} such pairs."
    for reason, text in _LEFT_OUT.items():
        if count := result.left_out.get(reason):
            yield f"{format_count(count, 'job')} left out: {text}."
