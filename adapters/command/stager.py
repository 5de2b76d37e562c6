"""Command stager: a command of the operator makes the requests; see the port ``Stager``.

The command is a list of words, run without a shell, once for each call. It reads one JSON object from its
standard input and writes JSON objects, one a line, to its standard output (:mod:`.messages`). Its exit status
says what happened:

=====  ==============================================================================================
0      done; the output is complete
3      refused: nothing happened; the last line of the standard error is the reason
4      the command does not support this action; nothing happened
75     not possible now: nothing happened; the last line of the standard error is the reason
other  unknown: the command may have done something; the same holds after a timeout or an unreadable line
=====  ==============================================================================================
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from hydrator.domain.errors import CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Site
from hydrator.domain.ports import Clock
from hydrator.domain.ports.staging import (
    ExistingRule,
    OwnRequest,
    RefusalKind,
    RequestProgress,
    SiteSpace,
    StagingError,
    StagingKind,
    StagingOrder,
    StagingOutcomeUnknown,
    StagingPermissions,
    StagingRefused,
    StagingSize,
    StagingUnavailable,
)

from . import messages
from .runner import CommandResult, run_command

EXIT_DONE, EXIT_REFUSED, EXIT_UNSUPPORTED, EXIT_UNAVAILABLE = 0, 3, 4, 75
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """An operator's command that makes requests.

    Args:
        words: the command and its arguments.
        call_limit: the time limit of one run that asks, renews or cancels.
        read_limit: the time limit of any other run.
        kinds: the kinds of requests that it accepts.
        max_bytes: the limit on the output of one run.
    """

    words: tuple[str, ...]
    call_limit: timedelta = timedelta(seconds=20)
    read_limit: timedelta = timedelta(seconds=60)
    kinds: frozenset[StagingKind] = frozenset(StagingKind)
    max_bytes: int = 16_000_000


class CommandStager:
    """A Stager called *name* that runs *command*; one run at a time."""

    def __init__(self, name: str, command: CommandOptions, clock: Clock) -> None:
        self.name = name
        self.kinds = command.kinds
        self._command = command
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """Do nothing: a run ends at its time limit."""

    # -- actions that change requests

    def ask(self, orders: Sequence[StagingOrder]) -> Mapping[str, OwnRequest | StagingError]:
        """See :class:`hydrator.domain.ports.staging.Stager`."""
        by_tag = {order.tag: order for order in orders}
        output = self._change("ask", orders=[messages.order_record(order) for order in orders])
        try:
            return messages.parse_results(output, by_tag, self.name)
        except messages.BadLine as error:
            raise StagingOutcomeUnknown(self.name, f"the action ask: {error}") from None

    def renew(self, request: OwnRequest, lifetime: timedelta) -> None:
        """See :class:`hydrator.domain.ports.staging.Stager`."""
        seconds = max(1, round(lifetime.total_seconds()))
        self._change("renew", request=messages.request_record(request), lifetime_seconds=seconds)

    def cancel(self, request: OwnRequest) -> None:
        """See :class:`hydrator.domain.ports.staging.Stager`."""
        self._change("cancel", request=messages.request_record(request))

    def _change(self, action: str, **values: object) -> bytes:
        """Run *action*; return its output.

        Raises:
            StagingError: the command did not do it, or perhaps did.
        """
        result = self._run(action, self._command.call_limit, values)
        reason = result.problem or result.error or f"exit status {result.status}"
        if result.status == EXIT_DONE:
            return result.output
        if result.status == EXIT_REFUSED:
            raise StagingRefused(self.name, reason, RefusalKind.OTHER)
        if result.status == EXIT_UNSUPPORTED:
            raise StagingRefused(self.name, f"the command does not support the action {action}")
        if result.status == EXIT_UNAVAILABLE or not result.has_started:
            raise StagingUnavailable(self.name, reason)
        raise StagingOutcomeUnknown(self.name, f"the action {action}: {reason}")

    # -- actions that read

    def look(self, tags: AbstractSet[str], prefix: str) -> Mapping[str, RequestProgress]:
        """See :class:`hydrator.domain.ports.staging.Stager`."""
        output = self._read("look", tags=sorted(tags), prefix=prefix)
        if output is None:
            raise CatalogueUnreachable(self.name, "the command does not support the action look")
        found = self._parse("look", output, messages.parse_progress)
        return {tag: progress for tag, progress in found.items() if tag in tags or tag.startswith(prefix)}

    def find_rules(self, dids: AbstractSet[Did], sites: AbstractSet[Site]) -> Sequence[ExistingRule]:
        """See :class:`hydrator.domain.ports.staging.Stager`; without support, only we make requests."""
        if not dids or not sites:
            return ()
        output = self._read("find", dids=sorted(dids), sites=sorted(sites))
        rules = self._parse("find", output or b"", messages.parse_rules)
        return [rule for rule in rules if rule.did in dids and rule.site in sites]

    def measure(self, dids: AbstractSet[Did]) -> Mapping[Did, StagingSize]:
        """See :class:`hydrator.domain.ports.staging.Stager`; without support, no size is known."""
        if not dids:
            return {}
        output = self._read("measure", dids=sorted(dids))
        sizes = self._parse("measure", output or b"", messages.parse_sizes)
        return {did: size for did, size in sizes.items() if did in dids}

    def read_space(self, sites: AbstractSet[Site]) -> Mapping[Site, SiteSpace]:
        """See :class:`hydrator.domain.ports.staging.Stager`; without support, no space is known."""
        if not sites:
            return {}
        output = self._read("space", sites=sorted(sites))
        now = self._clock()
        spaces = self._parse("space", output or b"", lambda text: messages.parse_spaces(text, now))
        return {site: space for site, space in spaces.items() if site in sites}

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.ports.staging.Stager`; without support, nothing is known."""
        return self._parse("check", self._read("check") or b"", messages.parse_permissions)

    def _read(self, action: str, **values: object) -> bytes | None:
        """Run *action*; return its output, or None if the command does not support the action.

        Raises:
            CatalogueError: the command did not do it.
        """
        result = self._run(action, self._command.read_limit, values)
        if result.status == EXIT_UNSUPPORTED:
            return None
        if result.status != EXIT_DONE:
            reason = result.problem or result.error or f"exit status {result.status}"
            raise CatalogueUnreachable(self.name, f"the action {action}: {reason}")
        return result.output

    def _parse(self, action: str, output: bytes, parse: Callable[[bytes], T]) -> T:
        try:
            return parse(output)
        except messages.BadLine as error:
            raise CatalogueGarbled(self.name, f"the action {action}: {error}") from None

    def _run(self, action: str, limit: timedelta, values: Mapping[str, object]) -> CommandResult:
        if not self._one_at_a_time.acquire(timeout=limit.total_seconds()):
            problem = "another run of the command has not ended"
            return CommandResult(None, problem=problem, has_started=False)
        try:
            given = messages.encode_request(action, **values)
            return run_command(self._command.words, given, limit, self._command.max_bytes)
        finally:
            self._one_at_a_time.release()
