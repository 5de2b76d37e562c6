"""Commands of the operator to staging, and their effect on the ledger. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import RefusalKind
from hydrator.reconcile.state import PendingCommands

from .ledger import Approval, FailureRecord, Ledger, LedgerEntry
from .policy import StagingPolicy
from .upkeep import Cancellation

CommandName = Literal["approve", "reject", "cancel", "resume"]
BY_OPERATOR = "cancelled by the operator"


@dataclass(frozen=True, slots=True)
class StagingCommand:
    """One command. ``target`` is the id of a request (batch) or a tag; empty for resume.

    *approve* and *reject* answer a request that waits for a person. *cancel* ends requests of ours, and
    nothing is asked again for their datasets and sites before *resume*. *resume* also forgets all failures
    and rejections.
    """

    name: CommandName
    target: str = ""


class StagingControl(Protocol):
    """The operator's switch and commands, as the daemon reads them."""

    @property
    def stop_reason(self) -> str | None:
        """Return why all asking and renewing is stopped; None if it is not. The switch is read each time."""

    def read_pending(self) -> PendingCommands[StagingCommand]:
        """Return the commands that are not executed yet, first to last; do not remove them."""

    def remove_processed(self, pending: PendingCommands[StagingCommand]) -> None:
        """Remove the commands *pending*, and set aside the files that are not commands.

        Raises:
            StateError: a command cannot be removed, and would be executed again.
        """


def apply_commands(
    ledger: Ledger, commands: Iterable[StagingCommand], now: datetime, policy: StagingPolicy
) -> tuple[Ledger, tuple[Cancellation, ...]]:
    """Return *ledger* after *commands*, and the cancellations to make."""
    cancellations: dict[str, Cancellation] = {}
    for command in commands:
        if command.name == "resume":
            granted = {name: one for name, one in ledger.approvals.items() if one.is_granted}
            ledger = replace(ledger, failures={}, site_failures={}, halts={}, approvals=granted)
        elif command.name == "cancel":
            entries = [one for one in ledger.entries.values() if command.target in {one.tag, one.batch}]
            cancellations |= {one.tag: Cancellation(one.tag, BY_OPERATOR) for one in entries}
            ledger = replace(ledger, failures={**ledger.failures, **_block(entries, now, policy)})
        elif command.target:
            approval = Approval(command.target, now, is_granted=command.name == "approve")
            ledger = replace(ledger, approvals={**ledger.approvals, command.target: approval})
    return ledger, tuple(cancellations.values())


def _block(
    entries: Iterable[LedgerEntry], now: datetime, policy: StagingPolicy
) -> dict[tuple[Did, Site], FailureRecord]:
    attempts, retry = policy.times.max_attempts, policy.times.retry
    return {
        (one.did, one.site): FailureRecord(
            attempts, now, now + retry, RefusalKind.OTHER, BY_OPERATOR, is_final=True, is_everywhere=True
        )
        for one in entries
    }
