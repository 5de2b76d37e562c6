"""Metrics of staging: requests of data, their bytes and limits. Labels are never datasets or users."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge

from hydrator.domain.model import Site, to_unix
from hydrator.domain.staging_ports import RefusalKind, StagingKind
from hydrator.staging.ledger import StagingTotals
from hydrator.staging.overview import PlannedRow, StagingOverview

_REQUEST_OUTCOMES = ("asked", "joined", "pinned", "renewed", "cancelled", "failed", "ended")


class StagingMetrics:
    """Metrics of the last step of staging; the counters begin at 0 with each start of the daemon."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._build_counters(registry)
        self._build_gauges(registry)
        self._recorded = StagingTotals()
        self._count(StagingTotals())

    def _build_counters(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "hydrator_staging_requests",
            "Requests of data, by outcome: asked, joined (a rule of another account serves the jobs), pinned,"
            " renewed, cancelled, failed or ended.",
            ["outcome"],
            registry=registry,
        )
        self._refusals = Counter(
            "hydrator_staging_refusals",
            "Requests of data that the catalogue refused or that failed, by kind: permission, quota, closed…",
            ["kind"],
            registry=registry,
        )
        self._bytes = Counter(
            "hydrator_staging_bytes",
            "Bytes that were asked for, by outcome: asked, staged (complete on disk) or unused (they ended"
            " before any job used them).",
            ["outcome"],
            registry=registry,
        )

    def _build_gauges(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"hydrator_staging_{name}", text, labels, registry=registry)

        self._step_at = gauge("step_timestamp_seconds", "Time of the last step of staging.")
        self._stopped = gauge("stopped", "1 if staging asks for nothing: the operator stopped it.")
        self._problems = gauge("problems", "Catalogues and parts of staging that fail now.")
        self._open = gauge("open_requests", "Requests of data that have not ended.", "site", "kind")
        self._in_flight = gauge("in_flight_bytes", "Bytes on their way because of requests.", "site")
        self._stuck = gauge("stuck_requests", "Requests that are stuck for longer than a day.", "site")
        self._planned = gauge(
            "planned_bytes",
            "Bytes that staging would ask for or pin, by reason for which it does not: mode (propose), or"
            " approval (a request waits for a person).",
            "site",
            "reason",
        )
        self._unserved_jobs = gauge(
            "unserved_jobs", "Jobs for whose data nothing is asked, because of a limit or a missing fact."
        )
        self._limits = gauge(
            "limit_used_ratio",
            "Share of a limit that is taken; of several sites or users the largest.",
            "limit",
        )

    def begin(self, totals: StagingTotals) -> None:
        """Count only what comes after *totals*, which the state had when the daemon started."""
        self._recorded = totals

    def record(self, overview: StagingOverview) -> None:
        """Record one step of staging; any thread may call this."""
        self._count(overview.totals)
        self._step_at.set(to_unix(overview.as_of))
        self._stopped.set(overview.stop_reason is not None)
        self._problems.set(len(overview.problems))
        self._unserved_jobs.set(sum(row.job_count for row in overview.not_asked if not row.is_waiting))
        self._set_requests(overview)
        self._set_plans(overview)
        self._set_limits(overview)

    def _count(self, totals: StagingTotals) -> None:
        """Count what is new since the last call; a smaller total, after the state was replaced, adds 0."""
        before, self._recorded = self._recorded, totals
        for name in _REQUEST_OUTCOMES:
            self._requests.labels(name).inc(max(0, getattr(totals, name) - getattr(before, name)))
        for name in ("asked", "staged", "unused"):
            new = getattr(totals, f"{name}_bytes") - getattr(before, f"{name}_bytes")
            self._bytes.labels(name).inc(max(0, new))
        for kind in RefusalKind:
            self._refusals.labels(kind.value).inc(
                max(0, totals.refused.get(kind, 0) - before.refused.get(kind, 0))
            )

    def _set_requests(self, overview: StagingOverview) -> None:
        self._open.clear()
        self._stuck.clear()
        self._in_flight.clear()
        counts = Tally((row.site, row.kind) for row in overview.requests)
        stuck = Tally(row.site for row in overview.requests if row.is_stuck)
        in_flight = overview.in_flight_bytes
        for site in {row.site for row in overview.requests}:
            for kind in StagingKind:
                self._open.labels(site, kind.value).set(counts[site, kind])
            self._stuck.labels(site).set(stuck[site])
            self._in_flight.labels(site).set(in_flight.get(site, 0))

    def _set_plans(self, overview: StagingOverview) -> None:
        self._planned.clear()
        sums: Tally[tuple[Site, str]] = Tally()
        for row in overview.planned:
            sums[row.site, _find_reason(row)] += row.bytes
        for (site, reason), size in sums.items():
            self._planned.labels(site, reason).set(size)

    def _set_limits(self, overview: StagingOverview) -> None:
        self._limits.clear()
        shares: dict[str, float] = {}
        for row in overview.limits:
            share = row.used / row.limit if row.limit else float(row.used > 0)
            shares[row.name] = max(share, shares.get(row.name, 0.0))
        for name, share in shares.items():
            self._limits.labels(name).set(share)


def _find_reason(row: PlannedRow) -> str:
    return "approval" if row.needs_approval else "mode"
