"""Findings of an examination, and the ports that the examinations need."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from hydrator.domain.daemon_probe import DaemonProbe
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    HydratorError,
    PoolDenied,
    PoolError,
)
from hydrator.domain.model import Site
from hydrator.domain.text import shorten_list
from hydrator.reconcile.view import HeldLossView

if TYPE_CHECKING:  # `hydrator status` needs findings without examinations
    from hydrator.domain.ports import Catalogue, PoolReader
    from hydrator.domain.staging_ports import Stager

MAX_NAMES = 5

_Arguments = ParamSpec("_Arguments")


class Level(StrEnum):
    """Severity of a finding: ``fail`` makes ``hydrator check`` exit with status 1."""

    OK = "ok"
    ADVICE = "advice"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one examination, with advice on a problem.

    Attributes:
        level: ok, advice, warn or fail.
        subject: the examined part.
        message: the finding in one sentence.
        todo: the advice; empty without one.
        command: the command that ends the problem or shows more of it; empty without one.
        failed_part: the catalogue or publisher that failed in the daemon's last cycle. If the check itself
            finds a failure of this part, :func:`examine` drops this finding as a duplicate.
        site: the site that it is about; null: none.
        loss: the loss that the removal guard holds there; null: none.
    """

    level: Level
    subject: str
    message: str
    todo: str = ""
    command: str = ""
    failed_part: str = ""
    site: Site | None = None
    loss: HeldLossView | None = None

    @property
    def advice(self) -> str:
        """Return the advice, or the command alone."""
        return self.todo or self.command


ok = partial(Finding, Level.OK)
advice = partial(Finding, Level.ADVICE)
warning = partial(Finding, Level.WARN)
failure = partial(Finding, Level.FAIL)


class CheckPoolClient(DaemonProbe, Protocol):
    """The queries to the pool that the examinations use."""

    def slots(self, attributes: Sequence[str], constraint: str = ...) -> list[dict[str, Any]]: ...
    def collectors(self) -> list[str]: ...
    def schedds(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class CheckInputs:
    """The parts of an installation that :func:`examine` examines."""

    catalogues: "Sequence[Catalogue]"
    pool: CheckPoolClient | None
    """The client of the pool's first collector that answers."""
    queues: "PoolReader | None"
    slot_attributes: Sequence[str]
    ad_folder: Path | None
    is_advertising: bool
    collectors: Mapping[str, CheckPoolClient] = field(default_factory=dict)
    """The client of each collector if there are several; the key is the subject of its findings."""
    sites_file: Path | None = None
    is_merging: bool = False
    merge_interval_seconds: float = 60
    """Seconds between two merges; a startd's update removes the merged attributes."""
    now: int = 0
    """Time of this check, Unix s."""
    daemon_findings: Sequence[Finding] = ()
    """Findings in the daemon's state, memory, rates and secrets, which need no other service."""
    stagers: "Sequence[Stager]" = ()
    """The catalogues that accept requests; none if staging is off."""
    asking_catalogues: frozenset[str] = frozenset()
    """Names of the catalogues at which the mode of staging is request."""


def run_guarded(
    subject: str,
    check: Callable[_Arguments, Iterable[Finding]],
    *args: _Arguments.args,
    **kwargs: _Arguments.kwargs,
) -> list[Finding]:
    """Return the findings of *check*; if *check* raises an error, return the error as a finding."""
    try:
        return list(check(*args, **kwargs))
    except HydratorError as error:
        return [failure(subject, str(error), _error_remedy(error))]


def _error_remedy(error: HydratorError) -> str:
    if isinstance(error, PoolDenied):
        return "authorize the daemon's identity, or give the daemon a valid token: docs/operators/security.md"
    if isinstance(error, PoolError):
        return "check that the HTCondor daemon runs; check htcondor.collector and htcondor.token_directory"
    if isinstance(error, CatalogueDenied):
        return "give the daemon credentials or file permissions that let it read the catalogue"
    if isinstance(error, CatalogueGarbled):
        return "find out what the catalogue answers or holds there: the daemon cannot read it"
    if isinstance(error, CatalogueError):
        return "check that the catalogue is there, and that the daemon's user reaches it from this host"
    return ""


def name_list(names: Iterable[str]) -> str:
    return shorten_list(sorted(names), limit=MAX_NAMES)
