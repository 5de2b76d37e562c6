"""Overview of staging: the values that the command line, ``why``, the page and the metrics show. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from hydrator.config import Settings
from hydrator.config.staging import to_bytes
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import StagingKind
from hydrator.domain.text import format_duration, format_time, matches_any

from .plan import Batch, NotAsked, Plan
from .table import HALTED_STATES, STUCK_AFTER, Request, Table
from .view import DataView

_MAX_ENDED = 200


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit of which something is taken.

    Attributes:
        name: its name.
        subject: its site; empty: all together.
        used: bytes or requests that are taken.
        limit: bytes or requests that are allowed.
    """

    name: str
    subject: str
    used: int
    limit: int

    @property
    def is_reached(self) -> bool:
        """Return whether 95 % of the limit or more are taken."""
        return self.used >= 0.95 * self.limit


@dataclass(frozen=True, slots=True)
class StagingOverview:
    """The result of the last step of staging at ``as_of``.

    Attributes:
        as_of: time of the step.
        mode: highest mode of any catalogue and site: off, propose or request.
        stop_reason: reason why nothing was requested or renewed in this step; null: it was not stopped.
        problems: catalogues, schedds and parts that failed, with one sentence. With "state" the table could
            not be read or saved, so that no call was made.
        requests: requests that have not ended.
        planned: requests that are proposed, or that wait for a person.
        not_asked: jobs for whose data nothing is requested, with the reason.
        joined: rules of others that serve the jobs, by dataset and site.
        limits: limits of which something is taken.
        ended: the last requests that ended, oldest first.
    """

    as_of: datetime
    mode: str
    stop_reason: str | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    requests: tuple[Request, ...] = ()
    planned: tuple[Batch, ...] = ()
    not_asked: tuple[NotAsked, ...] = ()
    joined: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[LimitRow, ...] = ()
    ended: tuple[Request, ...] = ()

    @property
    def in_flight_bytes(self) -> dict[Site, int]:
        """Return the bytes in flight by site."""
        return {Site(row.subject): row.used for row in self.limits if row.subject and row.used}


def build_overview(
    table: Table, settings: Settings, now: datetime, plan: Plan, view: DataView
) -> StagingOverview:
    """Build the overview of *table* and of this step's *plan*, without names that are never published.

    *view* says when data on its way is expected.
    """

    def is_shown(*dids: Did) -> bool:
        return not any(matches_any(did, settings.publish.never) for did in dids)

    def describe(one: Request) -> Request:
        is_stuck = one.stuck_since is not None and now - one.stuck_since >= STUCK_AFTER
        fact = view.facts.get(one.site, {}).get(one.did)
        one = replace(one, is_stuck=is_stuck, ready_at=fact.provenance.ready_at if fact else None)
        too_short = one.explain_lifetime(settings.expiry_margin(one.catalogue))
        return replace(one, description=_describe(one, now, too_short))

    taken, limits = table.taken, settings.staging.limits
    site_bytes = to_bytes(limits.site_tb)
    totals = (
        LimitRow("total_tb", "", taken[None], to_bytes(limits.total_tb)),
        LimitRow("hour_requests", "", table.count_last_hour(now), limits.hour_requests),
    )
    requests = sorted(table.requests, key=lambda one: (one.asked_at, one.did, one.site))
    sites = (LimitRow("site_tb", site, taken[site], site_bytes) for site in sorted(filter(None, taken)))
    return StagingOverview(
        now,
        settings.staging.highest_mode,
        requests=tuple(describe(one) for one in requests if is_shown(one.did)),
        planned=tuple(one for one in plan.shown if is_shown(*(each.did for each in one.requests))),
        not_asked=tuple(row for row in plan.not_asked if is_shown(*row.dids)),
        joined={f"{did} at {site}": by for (did, site), by in sorted(plan.joined.items()) if is_shown(did)},
        limits=(*totals, *sites),
        ended=tuple(describe(one) for one in table.ended[-_MAX_ENDED:] if is_shown(one.did)),
    )


def explain_for_job(overview: StagingOverview, dids: Sequence[Did], now: datetime) -> tuple[str, ...]:
    """Return one sentence for each request, planned request or refusal that concerns a job with *dids*."""
    wanted = frozenset(dids)
    rows = [f"{row.did}: {row.description}" for row in overview.requests if row.did in wanted]
    rows += [row.description for row in overview.planned if any(one.did in wanted for one in row.requests)]
    rows += [
        f"not asked: {one.reason}"
        for one in overview.not_asked
        if frozenset(one.dids) == wanted and not (rows and one.is_waiting)
    ]
    if rows and overview.stop_reason:
        age = format_duration((now - overview.as_of).total_seconds())
        rows.append(f"{overview.stop_reason} (as of {age} ago)")
    return tuple(rows)


def _describe(one: Request, now: datetime, too_short: str) -> str:
    """Return one sentence: ``asked 14:02 UTC at CAM, request …, 812 of 1,000 files, ready about 15:10 …``."""
    verb = "pinned" if one.kind is StagingKind.PIN else "asked"
    parts = [f"{verb} {format_time(one.asked_at.timestamp(), now)} at {one.site}"]
    parts.append(f"request {one.rule}" if one.rule else "no answer yet, so it is repeated")
    if one.is_complete and one.kind is StagingKind.STAGE:
        parts.append("complete")
    elif one.is_in_flight and one.files:
        parts.append(f"{one.files_done:,} of {one.files:,} files")
    if one.cancelled_at or one.state in HALTED_STATES:
        parts.append(one.status)
    elif one.is_stuck and one.stuck_since:
        parts.append(f"no file has arrived for {format_duration((now - one.stuck_since).total_seconds())}")
    parts += filter(None, (one.reason, one.problem, too_short))
    if one.ready_at:
        parts.append(f"ready about {format_time(one.ready_at.timestamp(), now)}")
    if one.expires_at:
        words = "ends" if one.expires_at > now else "its lifetime ended"
        parts.append(f"{words} {format_time(one.expires_at.timestamp(), now)}")
    if one.blocked:
        parts.append(f"the catalogue keeps it after its end: {one.blocked}")
    jobs = "1 job needs" if one.job_count == 1 else f"{one.job_count} jobs need"
    return ", ".join([*parts, f"{jobs} it"])
