"""Command stager: a command of the operator makes the requests; see the port ``Stager``.

It runs in a worker, which limits the time, memory and output of the command, and ends it with the daemon.

The command is a list of words, run without a shell, once for each call. It reads one JSON object from its
standard input and writes JSON objects, one a line, to its standard output. It has three actions: ``list``,
``request`` and ``cancel``. Its exit status says what happened:

=====  ==============================================================================================
0      done; the output is complete
3      refused: nothing happened; the last line of the standard error is the reason
other  unknown: the command may have done something; so is the end of the worker, or an unreadable line
=====  ==============================================================================================
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import IO, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import from_json

from adapters.remote import MAX_ANSWER_BYTES
from adapters.untrusted_text import Record, is_text, quote_excerpt
from adapters.worker import kill_commands
from hydrator.domain.errors import CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.redaction import sanitize
from hydrator.domain.staging_ports import (
    ExistingRule,
    RequestState,
    StagingAnswer,
    StagingError,
    StagingFailed,
    StagingKind,
    StagingOrder,
    StagingPermissions,
    StagingQuery,
    StagingRefused,
)
from hydrator.domain.text import list_problems
from hydrator.domain.untrusted import MAX_CLASSAD_INTEGER, valid_integer, valid_time

VERSION = 1
_MAX_TEXT_CHARS = 500
_STATES = {state.name.lower(): state for state in RequestState}
_EXIT_REFUSED = 3
_ERROR_BYTES = 2000
_MAX_OUTPUT_BYTES = MAX_ANSWER_BYTES // 4  # the answer is up to three times as long as these lines
"""Some 75,000 rules of 220 bytes, for which the worker takes 140 MB; the shortest lines take 240 MB."""


class BadLine(ValueError):
    """A line that the command may not write; the message quotes it."""


# -- the lines that the command writes


def _require_text(text: str) -> str:
    if not is_text(text):
        raise ValueError("must be a text of printable characters")
    return text


def _read_state(word: object) -> RequestState:
    state = _STATES.get(str(word))
    if state is None:
        raise ValueError(f"must be one of {', '.join(_STATES)}")
    return state


def _read_time(value: object) -> datetime | None:
    moment = valid_time(value)
    if moment is None and value is not None:
        raise ValueError("must be a time in Unix seconds")
    return moment


_Text = Annotated[str, Field(max_length=_MAX_TEXT_CHARS), AfterValidator(_require_text)]
_Words = Annotated[str, BeforeValidator(lambda words: sanitize(str(words or ""), _MAX_TEXT_CHARS))]
_Did = Annotated[str, AfterValidator(parse_did)]
_Count = Annotated[int, Field(ge=0, le=MAX_CLASSAD_INTEGER, strict=True)]
_Moment = Annotated[datetime | None, BeforeValidator(_read_time)]


class _RuleId(BaseModel):
    """The line about a request, and the beginning of one about a rule."""

    id: _Text = Field(alias="rule")


class _Rule(_RuleId):
    """A line about a rule; the fields are those of :class:`ExistingRule`."""

    did: _Did
    site: _Text
    storage: _Words = ""
    account: _Words = ""
    state: Annotated[RequestState, BeforeValidator(_read_state)]
    is_ours: bool = Field(False, alias="ours", strict=True)
    kind: StagingKind = StagingKind.STAGE
    expires_at: _Moment = None
    stuck_since: _Moment = None
    files_done: _Count = 0
    files: _Count | None = None
    bytes: _Count | None = None
    reason: _Words = ""

    @model_validator(mode="after")
    def _check_end(self) -> "_Rule":
        if self.is_ours and self.expires_at is None:
            raise ValueError("a rule of ours needs expires_at")
        return self


class _Size(BaseModel):
    """A line about the size of a dataset."""

    did: _Did
    bytes: _Count | None = None


class _Space(BaseModel):
    """A line about a site; an odd number of free bytes is a reason of its own site."""

    site: _Text
    free_bytes: Any


_Line = TypeVar("_Line", bound=BaseModel)


def _parse(form: type[_Line], row: Record) -> _Line:
    try:
        return form.model_validate(row)
    except ValidationError as error:
        raise BadLine(f"{list_problems(error)[0]}: {quote_excerpt(row)}") from None


def iter_lines(output: bytes) -> Iterator[Record]:
    """Yield the JSON objects of *output*, one for each line that is not empty.

    Raises:
        BadLine: a line is not a JSON object.
    """
    for line in output.splitlines():
        if line.strip():
            try:
                row = from_json(line)
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
    rules: dict[tuple[str, str], ExistingRule] = {}  # a broken command may repeat its lines without end
    sizes: dict[Did, int] = {}
    spaces: dict[Site, int | str] = {}
    for row in iter_lines(output):
        if "rule" in row:
            rule = _parse(_Rule, row)
            is_whole = rule.state is RequestState.DONE
            rules[rule.id, rule.site] = ExistingRule(**dict(rule), is_whole=is_whole)
        elif "did" in row:
            size = _parse(_Size, row)
            sizes[Did(size.did)] = size.bytes or 0
        elif "free_bytes" in row:
            space = _parse(_Space, row)
            free = valid_integer(space.free_bytes, MAX_CLASSAD_INTEGER)
            odd = f"the command reports free_bytes = {quote_excerpt(space.free_bytes)}"
            spaces[Site(space.site)] = odd if free is None else free
        else:
            raise BadLine(f"a line needs rule, did or free_bytes: {quote_excerpt(row)}")
    return StagingAnswer(tuple(rules.values()), {did: size for did, size in sizes.items() if size}, spaces)


def _read(stream: IO[bytes]) -> bytes:
    """Return what a command writes to *stream*; kill the command if this is too much."""
    output = stream.read(_MAX_OUTPUT_BYTES + 1)
    if len(output) > _MAX_OUTPUT_BYTES:
        kill_commands()
    return output


class CommandStager:
    """A Stager called *name*, the name of the catalogue, that runs the command *words*."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name = name
        self._words = words

    def close(self) -> None:
        """Do nothing: each call ends its command."""

    def list(self, query: StagingQuery) -> StagingAnswer:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        try:
            output = self._run(
                "list",
                dids=sorted(query.dids),
                sites=sorted(query.sites),
                spaces=sorted(query.spaces),
                rules=sorted(query.rules),
                all=query.lists_all,
            )
            return parse_answer(output)
        except StagingError as error:
            raise CatalogueUnreachable(self.name, error.reason) from None
        except BadLine as error:
            raise CatalogueGarbled(self.name, f"the action list: {error}") from None

    def request(self, order: StagingOrder) -> str:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        output = self._run(
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
            return _parse(_RuleId, row).id
        except ValueError as error:  # not one line, or an unreadable one
            raise StagingFailed(self.name, f"the action request: {error}") from None

    def cancel(self, rule: str) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        self._run("cancel", rule=rule)

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.staging_ports.Stager`; nothing is known before a call."""
        return StagingPermissions()

    def _run(self, action: str, **values: object) -> bytes:
        """Run the command for *action*; return its output.

        Raises:
            StagingRefused: the command refused the action.
            StagingFailed: it did not start, wrote too much, or ended with another status.
        """
        given = json.dumps({"version": VERSION, "action": action, **values}, sort_keys=True)
        try:
            with tempfile.TemporaryFile() as file:  # no pipe, which blocks the writer until it is read
                file.write(given.encode() + b"\n")
                file.seek(0)
                process = subprocess.Popen(
                    self._words, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
        except (OSError, ValueError) as failure:
            raise StagingFailed(self.name, f"{self._words[0]} cannot be run: {failure}") from None
        with process, ThreadPoolExecutor() as threads:
            output, errors = threads.map(_read, (process.stdout, process.stderr))
        if max(len(output), len(errors)) > _MAX_OUTPUT_BYTES:
            reason = f"the command wrote more than {_MAX_OUTPUT_BYTES // 2**20} MiB, and was killed"
            raise StagingFailed(self.name, f"the action {action}: {reason}")
        if process.returncode == 0:
            return output
        lines = errors[-_ERROR_BYTES:].decode("utf-8", "replace").split("\n")
        last = next(
            (line.strip() for line in reversed(lines) if line.strip()), f"exit status {process.returncode}"
        )
        if process.returncode == _EXIT_REFUSED:
            raise StagingRefused(self.name, last)
        raise StagingFailed(self.name, f"the action {action}: {last}")
