"""Command stager: a command of the operator makes the requests; see the port ``Stager``.

The command is a list of words, run without a shell, once for each call. It reads one JSON object from its
standard input and writes JSON objects, one a line, to its standard output. It has three actions: ``list``,
``request`` and ``cancel``. Its exit status says what happened:

=====  ==============================================================================================
0      done; the output is complete
3      refused: nothing happened; the last line of the standard error is the reason
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
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO

from adapters.untrusted_text import Record, decode_row, is_text, quote_excerpt
from hydrator.domain.errors import BadDid, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.redaction import sanitize
from hydrator.domain.staging_ports import (
    ExistingRule,
    RequestState,
    StagingAnswer,
    StagingFailed,
    StagingKind,
    StagingOrder,
    StagingPermissions,
    StagingQuery,
    StagingRefused,
)
from hydrator.domain.untrusted import MAX_CLASSAD_INTEGER, valid_integer, valid_number, valid_time

VERSION = 1
_MAX_TEXT_CHARS = 500
_STATES = {state.name.lower(): state for state in RequestState}


class BadLine(ValueError):
    """A line that the command may not write; the message quotes it."""


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
                text = quote_excerpt(line.decode("utf-8", "replace"))
                raise BadLine(f"a line is not JSON: {text}") from error
            if not isinstance(row, dict):
                raise BadLine(f"a line is not a JSON object: {quote_excerpt(row)}")
            yield row


def parse_answer(output: bytes) -> StagingAnswer:
    """Return the answer of the action ``list``: lines about rules, sizes of datasets, and space of sites.

    Raises:
        BadLine: a line is unreadable.
    """
    rules: list[ExistingRule] = []
    sizes: dict[Did, int] = {}
    spaces: dict[Site, int | str] = {}
    for row in iter_lines(output):
        if "rule" in row:
            rules.append(_parse_rule(row))
        elif "did" in row:
            sizes[_did(row)] = _number(row, "bytes") or 0
        elif "free_bytes" in row:
            free = valid_integer(row["free_bytes"], MAX_CLASSAD_INTEGER)
            odd = f"the command reports free_bytes = {quote_excerpt(row['free_bytes'])}"
            spaces[Site(_text(row, "site"))] = odd if free is None else free
        else:
            raise BadLine(f"a line needs rule, did or free_bytes: {quote_excerpt(row)}")
    return StagingAnswer(tuple(rules), {did: size for did, size in sizes.items() if size}, spaces)


def _parse_rule(row: Record) -> ExistingRule:
    state = _STATES.get(str(row.get("state")))
    if state is None:
        raise BadLine(f"the state {quote_excerpt(row.get('state'))} is not one of {', '.join(_STATES)}")
    is_ours, kind = row.get("ours") is True, row.get("kind", "stage")
    if kind not in list(StagingKind):
        raise BadLine(f"kind must be pin or stage, not {quote_excerpt(kind)}")
    expires_at = _moment(row, "expires_at")
    if is_ours and expires_at is None:
        raise BadLine(f"a rule of ours needs expires_at: {quote_excerpt(row)}")
    return ExistingRule(
        _text(row, "rule"), _did(row), Site(_text(row, "site")), str(row.get("storage") or ""),
        str(row.get("account") or ""), state, is_ours, StagingKind(kind), state is RequestState.DONE,
        expires_at, _moment(row, "stuck_since"), _number(row, "files_done") or 0, _number(row, "files"),
        _number(row, "bytes"), sanitize(str(row.get("reason") or ""), _MAX_TEXT_CHARS),
    )  # fmt: skip


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

    @property
    def reason(self) -> str:
        return self.problem or self.error or f"exit status {self.status}"


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
            return CommandResult(None, problem=f"{words[0]} cannot be run: {error}")
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


_EXIT_DONE, _EXIT_REFUSED = 0, 3


class CommandStager:
    """A Stager called *name* that runs the command *words*; one run at a time.

    Args:
        name: the name of the catalogue.
        words: the command and its arguments.
        call_limit: the time limit of one run that requests or cancels.
        read_limit: the time limit of one run that lists.
        max_bytes: the limit on the output of one run.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        *,
        call_limit: timedelta = timedelta(seconds=20),
        read_limit: timedelta = timedelta(seconds=60),
        max_bytes: int = 16_000_000,
    ) -> None:
        self.name = name
        self._words, self._max_bytes = words, max_bytes
        self._call_limit, self._read_limit = call_limit, read_limit

    def close(self) -> None:
        """Do nothing: a run ends at its time limit."""

    def list(self, query: StagingQuery) -> StagingAnswer:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        result = self._run(
            "list",
            self._read_limit,
            dids=sorted(query.dids),
            sites=sorted(query.sites),
            spaces=sorted(query.spaces),
            rules=sorted(query.rules),
            all=query.lists_all,
        )
        if result.status != _EXIT_DONE:
            raise CatalogueUnreachable(self.name, f"the action list: {result.reason}")
        try:
            return parse_answer(result.output)
        except BadLine as error:
            raise CatalogueGarbled(self.name, f"the action list: {error}") from None

    def request(self, order: StagingOrder) -> str:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        output = self._change(
            "request",
            kind=order.kind.value,
            site=order.site,
            did=order.did,
            bytes=order.bytes,
            lifetime_seconds=max(1, round(order.lifetime.total_seconds())),
            storage=order.storage,
            source=order.source,
            rule=order.rule,
        )
        try:
            (row,) = iter_lines(output)
            return _text(row, "rule")
        except ValueError as error:  # not one line, or an unreadable one
            raise StagingFailed(self.name, f"the action request: {error}") from None

    def cancel(self, rule: str) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        self._change("cancel", rule=rule)

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.staging_ports.Stager`; nothing is known before a call."""
        return StagingPermissions()

    def _change(self, action: str, **values: object) -> bytes:
        """Run *action*; return its output.

        Raises:
            StagingError: the command did not do it, or perhaps did.
        """
        result = self._run(action, self._call_limit, **values)
        if result.status == _EXIT_REFUSED:
            raise StagingRefused(self.name, result.reason)
        if result.status != _EXIT_DONE:
            raise StagingFailed(self.name, f"the action {action}: {result.reason}")
        return result.output

    def _run(self, action: str, limit: timedelta, **values: object) -> CommandResult:
        text = json.dumps({"version": VERSION, "action": action, **values}, sort_keys=True)
        return run_command(self._words, text.encode() + b"\n", limit, self._max_bytes)
