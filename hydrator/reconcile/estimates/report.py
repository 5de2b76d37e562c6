"""Saved form of the estimates: rows in JSON values, for ``why``, status and HTTP, also after a restart.

``{"at": 1763900000, "until": 1763900600, "none": null, "sites": {"UK": {"own": 64, "queue": {…}, "rates":
{"DE": {…}}, "sets": {"lofar:@L1": {"read": 256, "queue": 1024, "source": "DE", …}}}}}``. Keys of a
set without a value are left out. Sets that are whole at a site have ``read`` 0 there.

The run times of ended jobs are a report of their own, because they change more rarely: ``{"samples": [["key",
"lofar:@L1", "beside", [312.5, 298.0]], …]}``.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import Estimates, JobQueue, Rate, SetEstimate, SiteEstimates
from hydrator.domain.model import Site, from_unix, to_unix

from .estimate import Estimation
from .run_times import MAX_GROUPS, MAX_RUN_SECONDS, MAX_SAMPLES, PLACES, RunGroup, RunHistory

REPORT_NAME: Final = "estimates"
RUN_TIMES_NAME: Final = "run_times"
"""The names of the reports in the state, for ``Store.load_report``."""
SAVE_INTERVAL: Final = timedelta(minutes=1)
"""Estimates that stay the same are saved again after this time, with their new age.

New run times are saved after this time, so a daemon that is killed forgets the last minute.
"""


class ReportStore(Protocol):
    """The part of the state that keeps reports."""

    def save_report(self, key: str, body: Mapping[str, Any]) -> None:
        """Save *body* as the report named *key*."""


@dataclass(frozen=True, slots=True)
class SavedEstimates:
    """The estimates of the cycle at ``at``, read back from their saved form.

    Without estimates, ``estimates`` is None and ``none_reason`` says why.
    """

    at: datetime
    estimates: Estimates | None
    none_reason: str | None = None


class EstimatesSaver:
    """A writer of the estimates to the state: when they change, and from time to time with their new age.

    It also writes the run times of ended jobs.
    """

    def __init__(self) -> None:
        self._saved: Estimation | None = None
        self._saved_at: datetime | None = None
        self._run_times: Mapping[RunGroup, tuple[float, ...]] = {}
        self._run_times_at: datetime | None = None

    def save(self, store: ReportStore, estimation: Estimation, now: datetime) -> None:
        """Save *estimation* of the cycle at *now*, unless the saved one has the same content and is new."""
        self._save_run_times(store, estimation, now)
        saved, saved_at = self._saved, self._saved_at
        is_new = saved_at is not None and timedelta() <= now - saved_at < SAVE_INTERVAL
        if saved and is_new and _content(saved) == _content(estimation):
            return
        rows = estimates_to_rows(estimation.estimates, estimation.none_reason, now)
        store.save_report(REPORT_NAME, rows)
        self._saved, self._saved_at = estimation, now

    def _save_run_times(self, store: ReportStore, estimation: Estimation, now: datetime) -> None:
        samples, saved_at = estimation.history.samples, self._run_times_at
        is_new = saved_at is not None and timedelta() <= now - saved_at < SAVE_INTERVAL
        if not samples or is_new or samples == self._run_times:
            return
        store.save_report(RUN_TIMES_NAME, run_times_to_rows(estimation))
        self._run_times, self._run_times_at = samples, now


def load_estimation(load_report: Callable[[str], Mapping[str, Any]]) -> Estimation:
    """Return what the reports in the state have of the estimation before a restart.

    Args:
        load_report: returns a report by its name, empty if there is none.
    """
    history = parse_run_times(load_report(RUN_TIMES_NAME))
    saved = parse_estimates(load_report(REPORT_NAME))
    return (
        Estimation(saved.estimates, saved.none_reason, history=history)
        if saved
        else Estimation(history=history)
    )


def run_times_to_rows(estimation: Estimation) -> dict[str, Any]:
    """Return the run times of ended jobs in JSON values, without those of sets that no job needs now.

    A job can name a dataset that is never published. Then its key has this name, and the demand has not.
    The name of a run may also contain it. So runs are left out, too.
    """
    sets = estimation.holdings.sets if estimation.holdings else {}
    return {
        "samples": [
            [*group, [round(seconds, 1) for seconds in run_seconds]]
            for group, run_seconds in estimation.history.samples.items()
            if group[0] != "run" and (group[0] != "key" or SetKey(group[1]) in sets)
        ]
    }


def parse_run_times(rows: Mapping[str, Any]) -> RunHistory:
    """Return the run times in *rows*, without rows that cannot be decoded."""
    samples: dict[RunGroup, tuple[float, ...]] = {}
    saved = rows.get("samples")
    for row in saved[-MAX_GROUPS:] if isinstance(saved, list) else ():
        try:
            kind, name, place, run_seconds = row
            is_valid = kind in {"key", "user", "pool"} and isinstance(name, str) and place in PLACES
            if is_valid and run_seconds and all(map(_is_run_time, run_seconds)):
                samples[kind, name, place] = tuple(map(float, run_seconds[-MAX_SAMPLES:]))
        except (TypeError, ValueError):
            continue
    return RunHistory(samples)


def _is_run_time(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and 0 <= value <= MAX_RUN_SECONDS


def _content(estimation: Estimation) -> object:
    return estimation.none_reason, estimation.estimates and estimation.estimates.sites


def estimates_to_rows(estimates: Estimates | None, none_reason: str | None, at: datetime) -> dict[str, Any]:
    """Return *estimates* of the cycle at *at* in JSON values; *none_reason* says why there are none."""
    return {
        "at": to_unix(at),
        "until": to_unix(estimates.valid_until) if estimates else None,
        "none": none_reason,
        "sites": {site: _site_row(each) for site, each in estimates.sites.items()} if estimates else {},
    }


def parse_estimates(rows: Mapping[str, Any]) -> SavedEstimates | None:
    """Return the estimates in *rows*; None without rows, or if another version of the daemon wrote them."""
    try:
        until = rows["until"]
        sites = {Site(name): _parse_site(row) for name, row in rows["sites"].items()}
        estimates = Estimates(from_unix(until), sites) if until is not None else None
        return SavedEstimates(from_unix(rows["at"]), estimates, rows["none"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _site_row(site: SiteEstimates) -> dict[str, Any]:
    queue = site.queue
    return {
        "own": site.own_queue_seconds,
        "queue": {
            "idle_jobs": round(queue.idle_jobs, 1),
            "free_cpus": queue.free_cpus,
            "total_cpus": queue.total_cpus,
            "run_seconds": round(queue.run_seconds, 1),
        },
        "rates": {
            each.source: _rate_row(each.rate) for each in site.by_key.values() if each.rate and each.source
        },
        "sets": {key: set_estimate_row(each) for key, each in site.by_key.items()},
    }


def set_estimate_row(estimate: SetEstimate) -> dict[str, Any]:
    """Return one estimate in JSON values, without empty fields; ``read`` is None if the source is closed."""
    row = {
        "source": estimate.source,
        "lone": None if estimate.lone_read_seconds is None else round(estimate.lone_read_seconds, 1),
        "readers": estimate.source_readers,
        "missing_bytes": estimate.missing_bytes,
        "queue_site": estimate.queue_site,
        "ready_at": to_unix(estimate.ready_at) if estimate.ready_at else None,
    }
    known = {name: value for name, value in row.items() if value}
    return {"read": estimate.read_seconds, "queue": estimate.queue_seconds, **known}


def _rate_row(rate: Rate) -> dict[str, Any]:
    at = to_unix(rate.measured_at) if rate.measured_at else None
    return {
        "bytes_per_second": rate.bytes_per_second,
        "origin": rate.origin,
        "measured_at": at,
        "samples": rate.samples,
    }


def _parse_site(row: Mapping[str, Any]) -> SiteEstimates:
    rates = {source: _parse_rate(rate) for source, rate in row["rates"].items()}
    return SiteEstimates(
        {SetKey(key): _parse_set(each, rates) for key, each in row["sets"].items()},
        row["own"],
        JobQueue(**row["queue"]),
    )


def _parse_set(row: Mapping[str, Any], rates: Mapping[str, Rate]) -> SetEstimate:
    ready_at = row.get("ready_at")
    return SetEstimate(
        read_seconds=row["read"],
        queue_seconds=row["queue"],
        source=row.get("source"),
        lone_read_seconds=row.get("lone"),
        source_readers=row.get("readers", 0),
        missing_bytes=row.get("missing_bytes", 0),
        rate=rates.get(row.get("source", "")),
        queue_site=row.get("queue_site"),
        ready_at=from_unix(ready_at) if ready_at else None,
    )


def _parse_rate(row: Mapping[str, Any]) -> Rate:
    at = row["measured_at"]
    return Rate(row["bytes_per_second"], row["origin"], from_unix(at) if at else None, row["samples"])
