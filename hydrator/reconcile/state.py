"""State that one cycle passes to the next, the code that saves it, and commands for the next cycle.

The operator gives the commands: approve a held loss. With the state the changes of ads are saved: the
datasets that each generation added, removed or changed, and the reasons; ``result.py`` finds them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import StateError
from hydrator.domain.model import Did, Site, SiteAd, Unseen
from hydrator.domain.units import UnixTime
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.snapshot.merge import CatalogueMemory
from hydrator.reconcile.snapshot.removal_guard import HeldLoss


@dataclass(frozen=True, slots=True)
class Approve:
    """Let ``datasets`` leave the ad of the site, although the removal guard holds them."""

    site: Site
    datasets: frozenset[Did]


CommandT = TypeVar("CommandT")


@dataclass(frozen=True, slots=True)
class PendingCommands(Generic[CommandT]):
    """The commands that are not executed yet, each with its file; and invalid files, each with the reason."""

    commands: tuple[tuple[Path, CommandT], ...] = ()
    invalid_files: tuple[tuple[Path, str], ...] = ()
    problem: str | None = None

    @property
    def problems(self) -> list[str]:
        advice = "the daemon renames the file to *.refused"
        problems = [f"{path}: {why}; {advice}" for path, why in self.invalid_files]
        return [*problems, self.problem] if self.problem else problems


def approved_losses(pending: PendingCommands[Approve]) -> dict[Site, frozenset[Did]]:
    """Return, by site, the held datasets that the operator allows to leave the ad."""
    approved: dict[Site, frozenset[Did]] = {}
    for _, approval in pending.commands:
        approved[approval.site] = approved.get(approval.site, frozenset()) | approval.datasets
    return approved


MAX_CHANGES_PER_SITE: Final = 200
"""The last changes of a site's ad that are kept: with 10,000 datasets a cycle may change 2,000 of each ad."""


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """One change of a dataset in a site's ad.

    Attributes:
        at: time of the decision.
        did: the dataset.
        before: its state before; null: not listed.
        after: its state after; null: not listed.
        why: one sentence.
    """

    at: UnixTime
    did: Did
    before: str | None
    after: str | None
    why: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The changes that made a new generation of the ad of ``site``.

    ``decided_at`` is the time of the cycle. ``changes`` are at most MAX_CHANGES_PER_SITE; ``further_count``
    is the number of the others.
    """

    decided_at: datetime
    site: Site
    changes: tuple[DatasetChange, ...]
    further_count: int = 0

    @property
    def text(self) -> str:
        """Return a text with the numbers of added, removed and changed datasets: ``2 came, 1 left``."""
        came = sum(change.before is None for change in self.changes)
        left = sum(change.after is None for change in self.changes)
        other = len(self.changes) - came - left
        parts = [(came, "came"), (left, "left"), (other, "changed"), (self.further_count, "more")]
        counts = [f"{number} {word}" for number, word in parts if number]
        return ", ".join(counts) or "only ages or fractions changed"


@dataclass(frozen=True, slots=True)
class ReconcileState:
    """The complete state of the daemon between two cycles; a store keeps the state over a restart.

    ``pattern_matches`` has the datasets that match the patterns, by catalogue; a catalogue that has not been
    searched yet is missing.
    """

    memories: Mapping[str, CatalogueMemory] = field(default_factory=dict)
    demand: DemandMemory = field(default_factory=DemandMemory)
    pattern_matches: Mapping[str, frozenset[Did]] = field(default_factory=dict)
    ads: Mapping[Site, SiteAd] = field(default_factory=dict)
    held_losses: Mapping[Site, HeldLoss] = field(default_factory=dict)


class StateStore(Protocol):
    """A store that keeps the state over a restart. Each method may raise StateError."""

    def save(self, state: ReconcileState, changes: Sequence[HistoryEntry] = ()) -> None:
        """Save *state*, which replaces the saved one, and add the *changes* of ads; all of it or nothing."""

    def save_reports(self, reports: Mapping[str, object]) -> None:
        """Save *reports* by name, such as ``cycle``; all of them or none."""


class CommandSource(Protocol[CommandT]):
    """A queue of the operator's commands."""

    def read_pending(self) -> PendingCommands[CommandT]:
        """Return the commands that are not executed yet, first to last; do not remove them."""

    def remove_processed(self, pending: PendingCommands[CommandT]) -> None:
        """Remove the commands *pending*, and set aside the files that are not commands.

        Raises:
            StateError: a command cannot be removed, and would be executed again.
        """


class StateSaver:
    """An object that saves the results of cycles and reads the operator's commands.

    The methods return an error as a sentence and raise no error. So the daemon still publishes after an
    error; otherwise the published ads would expire.

    Args:
        store: the place that keeps the state; None if the state is not saved.
        commands: the queue of the operator's commands; None without a queue.
        bugs: counts and logs exceptions that no store should raise.
    """

    def __init__(
        self, store: StateStore | None, commands: CommandSource[Approve] | None, bugs: BugReporter
    ) -> None:
        self._store = store
        self._commands = commands
        self._bugs = bugs

    def write(self, write_to: Callable[[StateStore], None]) -> str | None:
        """Call *write_to* with the store; return the error as a sentence, or None."""
        return self._attempt("the state", partial(write_to, self._store)) if self._store else None

    def read_commands(self) -> PendingCommands[Approve]:
        """Return the commands that are not executed yet; ``problem`` has the error if reading failed."""
        if self._commands is None:
            return PendingCommands()
        pending = self._bugs.attempt("the reading of commands", self._commands.read_pending)
        return PendingCommands(problem=pending.reason) if isinstance(pending, Unseen) else pending

    def remove_commands(self, commands: PendingCommands[Approve]) -> str | None:
        """Remove executed commands; return the error as a sentence, or None.

        Call this method only after the effects of *commands* are on disk.
        """
        if self._commands is None:
            return None
        return self._attempt("the removal of commands", partial(self._commands.remove_processed, commands))

    def _attempt(self, part: str, work: Callable[[], None]) -> str | None:
        done = self._bugs.attempt(part, work, StateError, describe=str)
        return done.reason if isinstance(done, Unseen) else None
