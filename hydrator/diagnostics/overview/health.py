"""Overall health of the running daemon: what needs an operator, each with the command to run. Pure."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from hydrator.diagnostics.credential_expiry import Credential
from hydrator.domain.model import Did, Site
from hydrator.domain.text import format_count, format_duration
from hydrator.reconcile.snapshot.removal_guard import HeldLoss
from hydrator.staging.overview import StagingOverview

from .parts import PartStatus

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

    ``site`` is the site that it is about, if any. If ``is_held_loss``, the guard holds a loss there.
    """

    subject: str
    text: str
    command: str
    site: Site | None = None
    is_held_loss: bool = False


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """The values from which the health follows; the fields of ``ServerState`` describe most of them.

    Attributes:
        waiting_reason: why the daemon publishes nothing at present; None if it publishes.
        reload_problems: why the daemon does not use the configuration on disk.
        credentials: the tokens and certificates that the daemon presents.
    """

    now: datetime
    hang_reason: str | None = None
    waiting_reason: str | None = None
    parts: Sequence[PartStatus] = ()
    troubles: Sequence[str] = ()
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    held_losses: Mapping[Site, HeldLoss] = field(default_factory=dict)
    omitted_dids: Mapping[Site, AbstractSet[Did]] = field(default_factory=dict)
    reload_problems: Sequence[str] = ()
    staging: StagingOverview | None = None
    credentials: Sequence[Credential] = ()


@dataclass(frozen=True, slots=True)
class OverallHealth:
    """The health: ``needs`` is empty if all is well."""

    status: HealthStatus
    summary: str
    needs: tuple[Need, ...] = ()


def assess_health(facts: HealthFacts) -> OverallHealth:
    """Return the health; the most urgent needs come first."""
    needs = (
        *_find_daemon_needs(facts),
        *_find_part_needs(facts),
        *_find_credential_needs(facts.credentials, facts.now),
        *_find_site_needs(facts),
        *(_find_staging_needs(facts.staging, facts.waiting_reason) if facts.staging else ()),
    )
    if needs:
        verb = "needs" if len(needs) == 1 else "need"
        return OverallHealth(HealthStatus.ATTENTION, f"{format_count(len(needs), 'thing')} {verb} you", needs)
    if facts.waiting_reason:
        return OverallHealth(HealthStatus.WAITING, facts.waiting_reason)
    return OverallHealth(HealthStatus.WELL, "all is well")


def _find_daemon_needs(facts: HealthFacts) -> Iterator[Need]:
    if facts.hang_reason:
        yield Need("daemon", f"the daemon hangs: {facts.hang_reason}", SERVICE_COMMAND)
    if facts.reload_problems:
        text = f"the configuration on disk is not in use: {'; '.join(facts.reload_problems)}"
        yield Need("configuration", text, CHECK_COMMAND)


def _find_part_needs(facts: HealthFacts) -> Iterator[Need]:
    """Yield a need for each part that fails, and for each failure of the last cycle that has no part."""
    sentences = set()
    for part in facts.parts:
        if part.error:
            subject = f"{part.kind} {part.name}"
            sentences.add(f"{subject}: {part.error}")
            age = facts.now - (part.failing_since or facts.now)
            since = f" for {format_duration(age.total_seconds())}" if age.total_seconds() >= 1 else ""
            yield Need(subject, f"{subject} fails{since}: {part.error}", CHECK_COMMAND)
    for trouble in facts.troubles:
        if trouble not in sentences:
            yield Need("last cycle", trouble, CHECK_COMMAND)


def _find_credential_needs(credentials: Sequence[Credential], now: datetime) -> Iterator[Need]:
    """Yield a need for each credential that ended or ends soon; the one that ends first comes first."""
    for one in sorted(credentials, key=lambda each: each.expires_at):
        if one.is_renewal_due(now):
            text = f"{one.name} {one.expiry_text(now)}; {one.todo}"
            yield Need(f"credential {one.name}", text, CHECK_COMMAND)


def _find_site_needs(facts: HealthFacts) -> Iterator[Need]:
    for site in sorted(facts.held_losses):
        command = f"hydrator approve {shlex.quote(site)}"
        text = f"a change at {site} is held: {facts.held_reasons[site]}"
        yield Need(f"site {site}", text, command, site, is_held_loss=True)
    for site, dids in sorted(facts.omitted_dids.items()):
        if dids:
            text = f"the ad of {site} has no room for {format_count(len(dids), 'wanted dataset')}"
            yield Need(f"site {site}", text, STATUS_COMMAND, site)


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
