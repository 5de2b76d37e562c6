"""Overall health of the running daemon: what needs an operator, each with the command to run. Pure."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from hydrator.diagnostics.credential_expiry import Credential
from hydrator.domain.model import Site, to_unix
from hydrator.domain.text import format_count, format_duration
from hydrator.reconcile.view import CycleView, HeldLossView
from hydrator.staging.overview import StagingOverview

CHECK_COMMAND = "hydrator check"
STATUS_COMMAND = "hydrator status"
SERVICE_COMMAND = "systemctl status hydrator"


class HealthStatus(StrEnum):
    """The health in one word."""

    WELL = "well"
    ATTENTION = "attention"
    """Something needs a person."""
    WAITING = "waiting"
    """Nothing needs a person, but the daemon publishes nothing: it starts, or another daemon publishes."""


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that needs a person: its subject, one sentence, and the command to run.

    ``site`` is the site that it is about, if any; ``loss`` is the loss that the removal guard holds there.
    """

    subject: str
    text: str
    command: str
    site: Site | None = None
    loss: HeldLossView | None = None


@dataclass(frozen=True, slots=True)
class OverallHealth:
    """The health: ``needs`` is empty if all is well."""

    status: HealthStatus
    summary: str
    needs: tuple[Need, ...] = ()


def assess_health(
    now: datetime,
    cycle: CycleView | None,
    *,
    hang_reason: str | None = None,
    waiting_reason: str | None = None,
    reload_problems: Sequence[str] = (),
    staging: StagingOverview | None = None,
    credentials: Sequence[Credential] = (),
) -> OverallHealth:
    """Return the health; the most urgent needs come first.

    Args:
        now: the present time.
        cycle: the last cycle; None before the first.
        hang_reason: why the daemon hangs; None if it works.
        waiting_reason: why the daemon publishes nothing at present; None if it publishes.
        reload_problems: why the daemon does not use the configuration on disk.
        staging: the last step of staging.
        credentials: the tokens and certificates that the daemon presents.
    """
    needs = (
        *_find_daemon_needs(hang_reason, reload_problems),
        *(_find_part_needs(cycle, now) if cycle else ()),
        *_find_credential_needs(credentials, now),
        *(_find_site_needs(cycle) if cycle else ()),
        *(_find_staging_needs(staging, waiting_reason) if staging else ()),
    )
    if needs:
        verb = "needs" if len(needs) == 1 else "need"
        return OverallHealth(HealthStatus.ATTENTION, f"{format_count(len(needs), 'thing')} {verb} you", needs)
    if waiting_reason:
        return OverallHealth(HealthStatus.WAITING, waiting_reason)
    return OverallHealth(HealthStatus.WELL, "all is well")


def _find_daemon_needs(hang_reason: str | None, reload_problems: Sequence[str]) -> Iterator[Need]:
    if hang_reason:
        yield Need("daemon", f"the daemon hangs: {hang_reason}", SERVICE_COMMAND)
    if reload_problems:
        text = f"the configuration on disk is not in use: {'; '.join(reload_problems)}"
        yield Need("configuration", text, CHECK_COMMAND)


def _find_part_needs(cycle: CycleView, now: datetime) -> Iterator[Need]:
    """Yield a need for each part that fails, and for each failure of the cycle that has no part."""
    sentences = set()
    for part in cycle.parts:
        if part.error:
            subject = f"{part.kind} {part.name}"
            sentences.add(f"{subject}: {part.error}")
            age = to_unix(now) - (part.failing_since or to_unix(now))
            since = f" for {format_duration(age)}" if age >= 1 else ""
            yield Need(subject, f"{subject} fails{since}: {part.error}", CHECK_COMMAND)
    for failure in cycle.failures:
        if failure not in sentences:
            yield Need("last cycle", failure, CHECK_COMMAND)


def _find_credential_needs(credentials: Sequence[Credential], now: datetime) -> Iterator[Need]:
    """Yield a need for each credential that ended or ends soon; the one that ends first comes first."""
    for one in sorted(credentials, key=lambda each: each.expires_at):
        if one.is_renewal_due(now):
            text = f"{one.name} {one.expiry_text(now)}; {one.todo}"
            yield Need(f"credential {one.name}", text, CHECK_COMMAND)


def _find_site_needs(cycle: CycleView) -> Iterator[Need]:
    for one in cycle.sites:
        if one.loss:
            command = f"hydrator approve {shlex.quote(one.site)}"
            text = f"a change at {one.site} is held: {one.held}"
            yield Need(f"site {one.site}", text, command, one.site, one.loss)
    for one in cycle.sites:
        if one.left_out:
            datasets = format_count(one.left_out.datasets, "demanded dataset")
            text = f"the ad of {one.site} has no room for {datasets}"
            yield Need(f"site {one.site}", text, STATUS_COMMAND, one.site)


def _find_staging_needs(staging: StagingOverview, waiting_reason: str | None) -> Iterator[Need]:
    if staging.stop_reason and staging.mode != "off" and waiting_reason is None:
        yield Need("staging", f"nothing is requested: {staging.stop_reason}", "hydrator staging resume")
    for part, reason in sorted(staging.problems.items()):
        yield Need("staging", f"staging, {part}: {reason}", "hydrator staging list")
    for planned in staging.planned:
        if planned.mode == "approve":
            text = f"a request waits for a person: {planned.description}"
            yield Need("staging", text, f"hydrator staging approve {planned.first.batch}")
    stuck = [row for row in staging.requests if row.is_stuck]
    if stuck:
        example = f"{stuck[0].did} at {stuck[0].site}"
        text = f"{format_count(len(stuck), 'request')} of data stuck, such as {example}"
        yield Need("staging", f"{text}: {stuck[0].reason or stuck[0].status}", "hydrator staging list")
