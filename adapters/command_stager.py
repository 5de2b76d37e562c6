"""Command stager: a command of the operator makes the requests; see the port ``Stager``.

The command is a list of words, run without a shell, once for each call. It reads one JSON object from its
standard input and writes JSON objects, one a line, to its standard output (see below). Its exit status
says what happened:

=====  ==============================================================================================
0      done; the output is complete
3      refused: nothing happened; the last line of the standard error is the reason
4      the command does not support this action; nothing happened
75     not possible now: nothing happened; the last line of the standard error is the reason
other  unknown: the command may have done something; the same holds after a timeout or an unreadable line
=====  ==============================================================================================
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, Any, TypeVar

from adapters.untrusted_text import Record, decode_row, is_text, quote_excerpt
from hydrator.domain.errors import BadDid, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.ports import Clock
from hydrator.domain.redaction import sanitize
from hydrator.domain.staging_ports import (
    ExistingRule,
    OwnRequest,
    RefusalKind,
    RequestProgress,
    RequestState,
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
from hydrator.domain.untrusted import MAX_CLASSAD_INTEGER, valid_integer, valid_number, valid_time

VERSION = 1
_MAX_TEXT_CHARS = 500
_STATES = {state.name.lower(): state for state in RequestState}
_REFUSAL_KINDS = {kind.name.lower(): kind for kind in RefusalKind}


class BadLine(ValueError):
    """A line that the command may not write; the message quotes it."""


def encode_request(action: str, **values: object) -> bytes:
    """Return the standard input of the command: one JSON object in one line."""
    return json.dumps({"version": VERSION, "action": action, **values}, sort_keys=True).encode() + b"\n"


def order_record(order: StagingOrder) -> dict[str, object]:
    """Return *order* as a JSON object; the lifetime is in whole seconds."""
    return {
        "tag": order.tag,
        "batch": order.batch,
        "kind": order.kind.value,
        "site": order.site,
        "did": order.did,
        "bytes": order.bytes,
        "lifetime_seconds": max(1, round(order.lifetime.total_seconds())),
        "storage": order.storage,
        "source": order.source,
    }


def request_record(request: OwnRequest) -> dict[str, object]:
    """Return *request* as a JSON object."""
    return {
        "tag": request.tag,
        "handle": request.handle,
        "kind": request.kind.value,
        "site": request.site,
        "did": request.did,
    }


def iter_lines(output: bytes) -> Iterator[Record]:
    """Yield the JSON objects of *output*, one for each line that is not empty.

    Raises:
        BadLine: a line is not a JSON object.
    """
    for line in output.splitlines():
        if line.strip():
            try:
                row = decode_row(line)
            except ValueError as error:
                raise BadLine(
                    f"a line is not JSON: {quote_excerpt(line.decode('utf-8', 'replace'))}"
                ) from error
            if not isinstance(row, dict):
                raise BadLine(f"a line is not a JSON object: {quote_excerpt(row)}")
            yield row


def parse_results(
    output: bytes, orders: Mapping[str, StagingOrder], name: str
) -> dict[str, OwnRequest | StagingError]:
    """Return the result of each order by tag, from lines with ``handle``, ``refused`` or ``unavailable``.

    Raises:
        BadLine: a line is unreadable, or about an order that was not sent.
    """
    results: dict[str, OwnRequest | StagingError] = {}
    for row in iter_lines(output):
        tag = _text(row, "tag")
        order = orders.get(tag)
        if order is None or tag in results:
            raise BadLine(f"a result for the tag {quote_excerpt(tag)}, which was not sent, or the second one")
        if row.get("refused") is not None:
            kind = _REFUSAL_KINDS.get(str(row.get("kind")), RefusalKind.OTHER)
            results[tag] = StagingRefused(name, sanitize(str(row["refused"]), _MAX_TEXT_CHARS), kind)
        elif row.get("unavailable") is not None:
            reason = sanitize(str(row["unavailable"]), _MAX_TEXT_CHARS)
            results[tag] = StagingUnavailable(name, reason)
        else:
            results[tag] = OwnRequest(tag, _text(row, "handle"), order.kind, order.site, order.did)
    return results


def parse_progress(output: bytes) -> dict[str, RequestProgress]:
    """Return the progress of requests by tag.

    Raises:
        BadLine: a line is unreadable.
    """
    found: dict[str, RequestProgress] = {}
    for row in iter_lines(output):
        kind = row.get("kind")
        if kind not in list(StagingKind):
            raise BadLine(f"kind must be pin or stage, not {quote_excerpt(kind)}")
        request = OwnRequest(
            _text(row, "tag"), _text(row, "handle"), StagingKind(kind), Site(_text(row, "site")), _did(row)
        )
        found[request.tag] = RequestProgress(
            request,
            _state(row),
            _number(row, "files_done") or 0,
            _number(row, "files_total"),
            _number(row, "bytes_done"),
            _number(row, "bytes_total"),
            _moment(row, "expires_at"),
            _moment(row, "ready_at"),
            sanitize(str(row.get("reason") or ""), _MAX_TEXT_CHARS),
        )
    return found


def parse_rules(output: bytes) -> list[ExistingRule]:
    """Return the rules and requests of all accounts.

    Raises:
        BadLine: a line is unreadable.
    """
    return [
        ExistingRule(
            _did(row),
            Site(_text(row, "site")),
            str(row.get("storage") or ""),
            _state(row),
            str(row.get("account") or ""),
            _text(row, "handle"),
            str(row.get("tag") or ""),
            _moment(row, "expires_at"),
            _moment(row, "ready_at"),
        )
        for row in iter_lines(output)
    ]


def parse_sizes(output: bytes) -> dict[Did, StagingSize]:
    """Return the sizes by DID; a size of 0 is unknown.

    Raises:
        BadLine: a line is unreadable.
    """
    sizes = {_did(row): (_number(row, "bytes"), _number(row, "files")) for row in iter_lines(output)}
    return {did: StagingSize(size, files) for did, (size, files) in sizes.items() if size}


def parse_spaces(output: bytes, now: datetime) -> dict[Site, SiteSpace]:
    """Return the space by site; it is from *now* unless the line has its time.

    Raises:
        BadLine: a line is unreadable.
    """
    spaces: dict[Site, SiteSpace] = {}
    for row in iter_lines(output):
        free, total = _number(row, "free_bytes"), _number(row, "total_bytes")
        if free is None or total is None:
            raise BadLine(f"a line has no free_bytes or total_bytes: {quote_excerpt(row)}")
        spaces[Site(_text(row, "site"))] = SiteSpace(free, total, min(now, _moment(row, "as_of") or now))
    return spaces


def parse_permissions(output: bytes) -> StagingPermissions:
    """Return the permissions of the first line; without a line nothing is known.

    Raises:
        BadLine: the line is unreadable.
    """
    row: Record = next(iter_lines(output), {})
    notes = row.get("notes") or []
    if not isinstance(notes, list):
        raise BadLine(f"notes must be a list of texts, not {quote_excerpt(notes)}")
    known: dict[str, Any] = {
        key: row[key] if isinstance(row.get(key), bool) else None
        for key in ("can_ask", "can_renew", "can_cancel")
    }
    return StagingPermissions(
        **known, notes=tuple(sanitize(str(note), _MAX_TEXT_CHARS) for note in notes[:20])
    )


def _text(row: Record, key: str) -> str:
    value = row.get(key)
    if not is_text(value) or len(str(value)) > _MAX_TEXT_CHARS:
        raise BadLine(f"a line needs a text as {key}: {quote_excerpt(row)}")
    return str(value)


def _did(row: Record) -> Did:
    try:
        return parse_did(_text(row, "did"))
    except BadDid as error:
        raise BadLine(str(error)) from None


def _state(row: Record) -> RequestState:
    state = _STATES.get(str(row.get("state")))
    if state is None:
        raise BadLine(f"the state {quote_excerpt(row.get('state'))} is not one of {', '.join(_STATES)}")
    return state


def _number(row: Record, key: str) -> int | None:
    value = row.get(key)
    if value is not None and valid_integer(value, MAX_CLASSAD_INTEGER) is None:
        raise BadLine(f"{key} must be a whole number, not {quote_excerpt(value)}")
    return value


def _moment(row: Record, key: str) -> datetime | None:
    value = row.get(key)
    if value is None:
        return None
    moment = valid_time(value) if valid_number(value) is not None else None
    if moment is None:
        raise BadLine(f"{key} must be a time in Unix seconds, not {quote_excerpt(value)}")
    return moment


_CHUNK_BYTES = 65_536
_ERROR_BYTES = 2000


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of one run.

    *status* is None if the command did not start, was killed at its time limit, or wrote too much; *problem*
    then says which. *error* is the end of its standard error.
    """

    status: int | None
    output: bytes = b""
    error: str = ""
    problem: str = ""
    has_started: bool = True


def run_command(words: Sequence[str], given: bytes, limit: timedelta, max_bytes: int) -> CommandResult:
    """Run *words* with *given* as standard input; after *limit*, kill its process group."""
    with tempfile.TemporaryFile() as standard_input:
        standard_input.write(given)
        standard_input.seek(0)
        try:
            process = subprocess.Popen(
                words,
                stdin=standard_input,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return CommandResult(None, problem=f"{words[0]} cannot be run: {error}", has_started=False)
        with process:
            try:
                return _collect(process, time.monotonic() + limit.total_seconds(), limit, max_bytes)
            finally:
                _kill(process)


def _collect(
    process: subprocess.Popen[bytes], deadline_at: float, limit: timedelta, max_bytes: int
) -> CommandResult:
    """Read both outputs to their ends, and wait for the end of *process*."""
    output, error = bytearray(), bytearray()
    streams = {_require(process.stdout): output, _require(process.stderr): error}
    try:
        _read_to_end(streams, deadline_at, max_bytes)
        status = process.wait(max(0.0, deadline_at - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        problem = f"the command took longer than {limit.total_seconds():g} s"
        return CommandResult(None, error=_last_line(error), problem=problem)
    except OverflowError:
        problem = f"the command wrote more than {max_bytes} bytes"
        return CommandResult(None, error=_last_line(error), problem=problem)
    return CommandResult(status, bytes(output), _last_line(error))


def _read_to_end(streams: Mapping[IO[bytes], bytearray], deadline_at: float, max_bytes: int) -> None:
    """Read all *streams* at the same time, each into its buffer.

    Raises:
        TimeoutError: they did not end before *deadline_at*, a monotonic time.
        OverflowError: one has more than *max_bytes*.
    """
    with selectors.DefaultSelector() as selector:
        for stream, buffer in streams.items():
            selector.register(stream, selectors.EVENT_READ, buffer)
        while selector.get_map():
            seconds_left = deadline_at - time.monotonic()
            if seconds_left <= 0:
                raise TimeoutError
            for key, _ in selector.select(seconds_left):
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
                if len(key.data) > max_bytes:
                    raise OverflowError


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of *process* if it still runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _require(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the process has no pipe")
    return stream


def _last_line(error: bytearray) -> str:
    """Return the last line of a standard error that is not empty."""
    text = error[-_ERROR_BYTES:].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


EXIT_DONE, EXIT_REFUSED, EXIT_UNSUPPORTED, EXIT_UNAVAILABLE = 0, 3, 4, 75
T = TypeVar("T")


class CommandStager:
    """A Stager called *name* that runs the command *words*; one run at a time.

    Args:
        name: the name of the catalogue.
        words: the command and its arguments.
        clock: the present time.
        call_limit: the time limit of one run that asks, renews or cancels.
        read_limit: the time limit of any other run.
        max_bytes: the limit on the output of one run.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        clock: Clock,
        *,
        call_limit: timedelta = timedelta(seconds=20),
        read_limit: timedelta = timedelta(seconds=60),
        max_bytes: int = 16_000_000,
    ) -> None:
        self.name = name
        self._words, self._max_bytes = words, max_bytes
        self._call_limit, self._read_limit = call_limit, read_limit
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """Do nothing: a run ends at its time limit."""

    # -- actions that change requests

    def ask(self, orders: Sequence[StagingOrder]) -> Mapping[str, OwnRequest | StagingError]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        by_tag = {order.tag: order for order in orders}
        output = self._change("ask", orders=[order_record(order) for order in orders])
        try:
            return parse_results(output, by_tag, self.name)
        except BadLine as error:
            raise StagingOutcomeUnknown(self.name, f"the action ask: {error}") from None

    def renew(self, request: OwnRequest, lifetime: timedelta) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        seconds = max(1, round(lifetime.total_seconds()))
        self._change("renew", request=request_record(request), lifetime_seconds=seconds)

    def cancel(self, request: OwnRequest) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        self._change("cancel", request=request_record(request))

    def _change(self, action: str, **values: object) -> bytes:
        """Run *action*; return its output.

        Raises:
            StagingError: the command did not do it, or perhaps did.
        """
        result = self._run(action, self._call_limit, values)
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
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        output = self._read("look", tags=sorted(tags), prefix=prefix)
        if output is None:
            raise CatalogueUnreachable(self.name, "the command does not support the action look")
        found = self._parse("look", output, parse_progress)
        return {tag: progress for tag, progress in found.items() if tag in tags or tag.startswith(prefix)}

    def find_rules(self, dids: AbstractSet[Did], sites: AbstractSet[Site]) -> Sequence[ExistingRule]:
        """See :class:`hydrator.domain.staging_ports.Stager`; without support, only we make requests."""
        if not dids or not sites:
            return ()
        output = self._read("find", dids=sorted(dids), sites=sorted(sites))
        rules = self._parse("find", output or b"", parse_rules)
        return [rule for rule in rules if rule.did in dids and rule.site in sites]

    def measure(self, dids: AbstractSet[Did]) -> Mapping[Did, StagingSize]:
        """See :class:`hydrator.domain.staging_ports.Stager`; without support, no size is known."""
        if not dids:
            return {}
        output = self._read("measure", dids=sorted(dids))
        sizes = self._parse("measure", output or b"", parse_sizes)
        return {did: size for did, size in sizes.items() if did in dids}

    def read_space(self, sites: AbstractSet[Site]) -> Mapping[Site, SiteSpace]:
        """See :class:`hydrator.domain.staging_ports.Stager`; without support, no space is known."""
        if not sites:
            return {}
        output = self._read("space", sites=sorted(sites))
        now = self._clock()
        spaces = self._parse("space", output or b"", lambda text: parse_spaces(text, now))
        return {site: space for site, space in spaces.items() if site in sites}

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.staging_ports.Stager`; without support, nothing is known."""
        return self._parse("check", self._read("check") or b"", parse_permissions)

    def _read(self, action: str, **values: object) -> bytes | None:
        """Run *action*; return its output, or None if the command does not support the action.

        Raises:
            CatalogueError: the command did not do it.
        """
        result = self._run(action, self._read_limit, values)
        if result.status == EXIT_UNSUPPORTED:
            return None
        if result.status != EXIT_DONE:
            reason = result.problem or result.error or f"exit status {result.status}"
            raise CatalogueUnreachable(self.name, f"the action {action}: {reason}")
        return result.output

    def _parse(self, action: str, output: bytes, parse: Callable[[bytes], T]) -> T:
        try:
            return parse(output)
        except BadLine as error:
            raise CatalogueGarbled(self.name, f"the action {action}: {error}") from None

    def _run(self, action: str, limit: timedelta, values: Mapping[str, object]) -> CommandResult:
        if not self._one_at_a_time.acquire(timeout=limit.total_seconds()):
            problem = "another run of the command has not ended"
            return CommandResult(None, problem=problem, has_started=False)
        try:
            given = encode_request(action, **values)
            return run_command(self._words, given, limit, self._max_bytes)
        finally:
            self._one_at_a_time.release()
