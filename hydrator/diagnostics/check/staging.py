"""Examinations of staging: the permissions of the daemon's account at each catalogue."""

from collections.abc import Iterator

from hydrator.domain.staging_ports import Stager, StagingPermissions

from .findings import Finding, Level, advice, ok

_PAGE = "docs/operators/staging.md"
_WORDS = {True: "yes", False: "no", None: "not known"}


def check_stager(stager: Stager, *, is_asking: bool) -> Iterator[Finding]:
    """Probe the permissions at one catalogue, and say what follows where one is missing.

    Without the permission to make requests nothing can be staged or pinned: a failure if the mode is request
    (*is_asking*), else a warning. Without the others, requests end too early or too late: a warning.

    Raises:
        CatalogueError: the catalogue gave no answer.
    """
    subject, found = f"staging {stager.name}", stager.probe_permissions()
    calls = (("request", found.can_ask), ("renew", found.can_renew), ("cancel", found.can_cancel))
    summary = "this account may " + ", ".join(f"{name}: {_WORDS[value]}" for name, value in calls)
    values = [value for _, value in calls]
    if all(values):
        yield ok(subject, summary)
        return
    message = f"{summary}: {'; '.join(_explain(found))}"
    if False not in values:
        yield advice(subject, message, "the first request shows it; see hydrator staging list")
    else:
        level = Level.FAIL if is_asking and found.can_ask is False else Level.WARN
        yield Finding(level, subject, message, f"give the account the missing permissions: {_PAGE}")


def _explain(found: StagingPermissions) -> Iterator[str]:
    """Yield what follows from each permission that is missing or not known."""
    yield from found.notes
    if found.can_ask is False:
        yield "without requests, the daemon pins and stages nothing here"
    if found.can_renew is False:
        yield "without renewal, a request ends by its lifetime even if jobs still need the data"
    if found.can_cancel is False:
        yield "without cancelling, a request that no job needs stays until its lifetime ends"
    if None in (found.can_ask, found.can_renew, found.can_cancel):
        yield "the catalogue does not show a permission before it is used"
