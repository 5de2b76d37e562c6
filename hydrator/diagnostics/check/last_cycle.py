"""Findings from the daemon's last cycle, in addition to the examinations of ``hydrator check``.

The check often runs as another user than the daemon. For example, root can read a token that the
daemon's user cannot read. So the check also reports the failures of the daemon itself.
"""

from collections.abc import Iterator
from datetime import datetime

from hydrator.diagnostics.check.findings import Finding, failure, ok, warning
from hydrator.domain.model import to_unix
from hydrator.domain.text import format_duration
from hydrator.reconcile.demand import WRONG_KEY_TODO, describe_wrong_key
from hydrator.reconcile.view import CycleView

_CHECK_SERVICE_TODO = "run systemctl status hydrator, or kubectl get pods; the daemon's log has the reason"

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


def check_last_cycle(
    view: CycleView | None, now: datetime, max_silence_seconds: float, owner: str | None
) -> Iterator[Finding]:
    """Yield findings from the *view* of the daemon's last cycle; none before the first cycle.

    Args:
        view: the last document that the daemon saved.
        now: time of the check.
        max_silence_seconds: if the last cycle is older, the daemon counts as hung.
        owner: the process that holds the lock of the daemon's state; None without such a process.
    """
    if view is None:
        return
    if problem := silence_reason(view.at, owner, now, max_silence_seconds):
        timer = "" if owner else "; this is normal if a timer runs `hydrator once`"
        yield warning("daemon", problem, f"{_CHECK_SERVICE_TODO}{timer}")
        return
    ago = format_duration(to_unix(now) - view.at)
    failures = [*_check_parts(view, ago), *_check_publishers(view, ago)]
    yield from [*failures, *check_content(view)]
    if not failures:
        yield ok("daemon", f"its last cycle was {ago} ago")


def _check_parts(view: CycleView, ago: str) -> Iterator[Finding]:
    """Yield a finding for each catalogue and publisher that failed in the cycle."""
    for part in view.parts:
        if part.error:
            kind = part.kind
            message = f"in its last cycle, {ago} ago, {kind} {part.name} failed: {part.error}"
            todo = f"if this check finds nothing wrong with the {kind}, run the check as the daemon's user"
            yield failure("daemon", message, todo, part.name)


def _check_publishers(view: CycleView, ago: str) -> Iterator[Finding]:
    """Yield findings for publishers that accept an ad but do not show it."""
    for one in view.publishers:
        if one.not_read_back and not one.error:
            message = (
                f"in its last cycle, {ago} ago, publisher {one.name} accepted"
                f" these ads and does not show them: {', '.join(one.not_read_back)}"
            )
            todo = "the next cycle sends these ads again; if this persists, find other writers of the ads"
            yield warning("daemon", message, todo)


def check_content(view: CycleView) -> Iterator[Finding]:
    """Yield findings for datasets, keys of sets and ads that the daemon does not publish or accept.

    ``hydrator status`` shows them too.
    """
    for did, spellings in view.demand.misspelt.items():
        message = (
            f"no catalogue has the demanded dataset {did}, but one has the name in another letter case:"
            f" {', '.join(spellings)}"
        )
        todo = "submit the jobs again, or correct the pin, with the catalogue's spelling"
        yield warning("letter case", message, todo)
    for clash in view.demand.clashes:
        message = f"not advertised, because these names differ only in letter case: {', '.join(clash)}"
        yield warning("letter case", message, "rename one of these datasets in the catalogue")
    for key, jobs in view.demand.wrong_keys.items():
        yield warning("keys", describe_wrong_key(key, jobs), f"submit them again, {WRONG_KEY_TODO}")
    for publisher in view.publishers:
        if publisher.rival:
            todo = "stop one of the two daemons: docs/operators/monitoring.md#hydratorrival"
            yield failure("daemon", f"publisher {publisher.name}: {publisher.rival}", todo)
        for name, why in publisher.rejected.items():
            message = f"publisher {publisher.name} shows an ad that the daemon does not accept, {name}: {why}"
            todo = "find the program that wrote this ad: docs/operators/security.md"
            yield warning("daemon", message, todo)
