"""Problems that the daemon itself knows: one list for ``check``, ``status`` and the page. Pure.

``hydrator check`` often runs as another user than the daemon. For example, root can read a token that the
daemon's user cannot read. So the check also reports what the daemon found.
"""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from hydrator.diagnostics.check.findings import Finding, Level, failure, warning
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.domain.model import to_unix
from hydrator.domain.text import format_count, format_duration, format_time, shorten_list
from hydrator.reconcile.demand import WRONG_KEY_TODO, describe_wrong_keys
from hydrator.reconcile.view import CycleView, DatasetView, SiteView

if TYPE_CHECKING:  # few installations stage data
    from hydrator.diagnostics.overview.saved import Status
    from hydrator.staging.overview import StagingOverview

LAST_CYCLE = "last cycle"
"""The subject of what failed in the last cycle, and may work now."""
_CHECK = "hydrator check"
_CHECK_SERVICE_TODO = (
    "run systemctl status hydrator, or kubectl get pods, unless a timer runs `hydrator once`; the daemon's"
    " log has the reason"
)
_SKEW_SECONDS = 60


def hung_after_seconds(poll_seconds: float) -> float:
    """Return the seconds without a cycle after which a daemon counts as hung: two poll intervals and 60 s."""
    return 2 * poll_seconds + 60


def silence_reason(
    last_cycle_at: int | None, owner: str | None, now: datetime, max_silence_seconds: float
) -> str | None:
    """Return the reason why the daemon counts as stopped or hung; None if the daemon works.

    Args:
        last_cycle_at: start of the daemon's last cycle, Unix s; None before the first cycle.
        owner: the process that holds the lock of the daemon's state; None without such a process.
        now: current time.
        max_silence_seconds: largest age of the last cycle.
    """
    age = None if last_cycle_at is None else to_unix(now) - last_cycle_at
    ago = (
        "no cycle has ended yet"
        if age is None
        else f"the last cycle was {format_duration(age)} ago"
        if age >= -_SKEW_SECONDS
        else f"the last cycle is {format_duration(-age)} in the future: the clock was set back"
    )
    if owner is None:
        return f"no daemon runs here; {ago}"
    if age is not None and not -_SKEW_SECONDS <= age <= max_silence_seconds:
        return f"process {owner} holds the lock of the state but completes no cycle; {ago}"
    return None


def find_problems(status: "Status", now: datetime) -> Iterator[Finding]:
    """Yield everything in *status* that needs a person, the most urgent first."""
    if status.daemon_problem:
        yield warning("daemon", status.daemon_problem, _CHECK_SERVICE_TODO, "systemctl status hydrator")
    if refused := status.reload:
        ago = format_duration(to_unix(now) - refused.at)
        text = f"the daemon refused the configuration on disk {ago} ago, and uses the one before it"
        yield warning("configuration", f"{text}: {'; '.join(refused.problems)}", command=_CHECK)
    cycle = status.cycle
    yield from _find_failures(cycle, now) if cycle else ()
    for credential in sorted(status.credentials, key=lambda each: each.expires_at):
        if credential.is_renewal_due(now):
            yield examine_credential(credential, now)
    yield from _find_site_problems(cycle.sites) if cycle else ()
    yield from _find_refused_content(cycle) if cycle else ()
    yield from _find_staging_problems(status.staging) if status.staging else ()


def examine_credential(one: Credential, now: datetime) -> Finding:
    """Return whether a token or certificate is valid, due for renewal, or has ended."""
    is_due = one.is_renewal_due(now)
    level = Level.FAIL if one.expires_at <= now else Level.WARN if is_due else Level.OK
    message = f"{one.name} {one.expiry_text(now)}"
    return Finding(level, one.name, message, one.todo if level is not Level.OK else "")


def _find_failures(cycle: CycleView, now: datetime) -> Iterator[Finding]:
    """Yield what failed in the cycle: its parts, the saving of the state, ads that are not shown."""
    for part in cycle.parts:
        if part.error:
            age = to_unix(now) - (part.failing_since or to_unix(now))
            since = f" for {format_duration(age)}" if age >= 1 else ""
            todo = f"if hydrator check finds nothing wrong with the {part.kind}, run it as the daemon's user"
            message = f"{part.kind} {part.name} fails{since}: {part.error}"
            yield failure(LAST_CYCLE, message, todo, _CHECK, part.name)
    if cycle.save_error:
        yield failure(LAST_CYCLE, cycle.save_error, "the daemon tries it again in each cycle", _CHECK)
    for publisher in cycle.publishers:
        if publisher.not_read_back and not publisher.error:
            sites = ", ".join(publisher.not_read_back)
            text = f"publisher {publisher.name} accepted these ads and does not show them: {sites}"
            todo = "the next cycle sends these ads again; if this persists, find other writers of the ads"
            yield warning(LAST_CYCLE, text, todo, _CHECK)


def _find_site_problems(sites: Sequence[SiteView]) -> Iterator[Finding]:
    """Yield the held losses, then the ads that have no room for all demanded datasets."""
    for one in sites:
        if one.loss:
            command = f"hydrator approve {shlex.quote(one.site)}"
            todo = f"repair the catalogue, or run {command}: docs/operators/troubleshooting.md"
            message = f"a change at {one.site} is held: {one.held}"
            yield warning(f"site {one.site}", message, todo, command, site=one.site, loss=one.loss)
    for one in sites:
        if left_out := one.left_out:
            datasets = format_count(left_out.datasets, "demanded dataset")
            jobs = format_count(left_out.jobs, "job")
            message = f"the ad of {one.site} has no room for {datasets} of {jobs}, such as {left_out.example}"
            todo = "make room by fewer pins or patterns"
            yield warning(f"site {one.site}", message, todo, "hydrator status", site=one.site)


def _find_refused_content(view: CycleView) -> Iterator[Finding]:
    """Yield findings for datasets, keys of sets and ads that the daemon does not publish or accept."""
    if misspelt := view.demand.misspelt:
        names = [f"{did} (there {', '.join(spellings)})" for did, spellings in misspelt.items()]
        message = f"demanded names that a catalogue has only in another letter case: {shorten_list(names)}"
        todo = "submit the jobs again, or correct the pin, with the catalogue's spelling"
        yield warning("letter case", message, todo)
    if clashes := [", ".join(clash) for clash in view.demand.clashes]:
        message = (
            f"not advertised, because these names differ only in letter case: {shorten_list(clashes, '; ')}"
        )
        yield warning("letter case", message, "rename one of these datasets in the catalogue")
    if wrong_keys := view.demand.wrong_keys:
        yield warning("keys", describe_wrong_keys(wrong_keys), f"submit them again, {WRONG_KEY_TODO}")
    for publisher in view.publishers:
        if publisher.rival:
            todo = "stop one of the two daemons: docs/operators/monitoring.md#hydratorrival"
            yield failure("daemon", f"publisher {publisher.name}: {publisher.rival}", todo)
        for name, why in publisher.rejected.items():
            message = f"publisher {publisher.name} shows an ad that the daemon does not accept, {name}: {why}"
            yield warning(
                "daemon", message, "find the program that wrote this ad: docs/operators/security.md"
            )


def _find_staging_problems(staging: "StagingOverview") -> Iterator[Finding]:
    """Yield why staging requests nothing, or less, and the requests that wait for a person."""
    if staging.stop_reason and staging.mode != "off":
        message = f"nothing is requested or renewed: {staging.stop_reason}"
        yield warning("staging", message, command="hydrator staging resume")
    for part, reason in sorted(staging.problems.items()):
        yield warning("staging", f"staging, {part}: {reason}", command="hydrator staging list")
    for planned in staging.planned:
        if planned.mode == "approve":
            text = f"a request waits for a person: {planned.description}"
            yield warning("staging", text, command=f"hydrator staging approve {planned.first.batch}")
    stuck = [row for row in staging.requests if row.is_stuck]
    if stuck:
        text = (
            f"{format_count(len(stuck), 'request')} of data stuck, such as {stuck[0].did} at {stuck[0].site}"
        )
        message = f"{text}: {stuck[0].reason or stuck[0].status}"
        yield warning("staging", message, command="hydrator staging list")


def describe_dataset(row: DatasetView, now: datetime) -> str:
    """Return one sentence on a dataset that no ad lists by its name, or no job demands; else none."""
    names = ", ".join(row.clashes_with)
    if row.kept_until is not None:
        return f"no job names it any more; kept until {format_time(row.kept_until, now)}"
    if row.misspelt:
        return f"no catalogue has this name; names with other letter case exist: {names}"
    if names:
        return f"not advertised: the name of another dataset differs only in letter case: {names}"
    if row.unseen:
        return f"no catalogue answered: {row.unseen}"
    if not row.demanded:
        return "no job, pin or pattern names this dataset, so the daemon does not poll it"
    if not row.sites:
        similar = f"; {row.similar_names[0]} exists" if row.similar_names else ""
        return f"no catalogue has this dataset: check the spelling{similar}"
    return f"no space in the ad of {shorten_list(row.left_out_at)}" if row.left_out_at else ""
