"""State of staging: the ledger in the database, and the operator's switch and commands as files.

Table of the ledger of staging: one row for each request, written in one transaction before each call.

Control files of staging, in ``state_dir/staging``: the switch that stops all asking, and commands.

The switch is a file, so it works at once, also while the daemon is not running, and it survives a restart.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar, get_args

from pydantic import TypeAdapter

from hydrator.domain.model import Did, Site
from hydrator.domain.redaction import sanitize
from hydrator.staging.commands import CommandName, StagingCommand
from hydrator.staging.ledger import (
    Approval,
    AskedBatch,
    EndedEntry,
    FailureRecord,
    Ledger,
    LedgerEntry,
    StagingTotals,
)

from .command_files import CommandFolder
from .rows import DECODE_ERRORS

SCHEMA: Final = """
create table if not exists staging (kind text, key text, body text, primary key (kind, key)) without rowid;
"""
_Rows = dict[tuple[str, str], str]
_T = TypeVar("_T")

_ENTRY = TypeAdapter(LedgerEntry)
_FAILURE = TypeAdapter(tuple[Did, Site, FailureRecord])
_SITE_FAILURES = TypeAdapter(tuple[datetime, ...])
_HALT = TypeAdapter(str)
_TAPE = TypeAdapter(datetime)
_APPROVAL = TypeAdapter(Approval)
_JOINED = TypeAdapter(tuple[Did, Site, str])
_BATCHES = TypeAdapter(tuple[AskedBatch, ...])
_ENDED = TypeAdapter(tuple[EndedEntry, ...])
_TOTALS = TypeAdapter(StagingTotals)


class LedgerTable:
    """The table in a state; a save writes only the rows that changed.

    A row that cannot be decoded is skipped: the catalogue's list of our requests replaces it, because
    staging reads this list before each plan.

    Args:
        connection: the database of the state.
        transaction: begins a transaction of this thread; it raises StateError if the database fails.
    """

    def __init__(
        self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = connection
        self._transaction = transaction
        self._saved: _Rows | None = None

    def save(self, ledger: Ledger) -> None:
        """Replace the stored ledger by *ledger*; when this returns, it is on disk.

        Raises:
            StateError: the state cannot be written.
        """
        rows = dict(_encode(ledger))
        with self._transaction():
            saved = self._read_rows() if self._saved is None else self._saved
            self._saved = None
            gone = [key for key in saved if key not in rows]
            self._db.executemany("delete from staging where kind = ? and key = ?", gone)
            changed = [(*key, body) for key, body in rows.items() if saved.get(key) != body]
            self._db.executemany("insert or replace into staging values (?, ?, ?)", changed)
        self._saved = rows

    def load(self) -> Ledger:
        """Return the stored ledger; an empty one if there is none.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            rows = self._read_rows()
        return self._decode(rows)

    def _read_rows(self) -> _Rows:
        return {(kind, key): body for kind, key, body in self._db.execute("select * from staging")}

    def _decode(self, rows: _Rows) -> Ledger:
        failures = self._decode_kind(rows, "failure", _FAILURE)
        joined = self._decode_kind(rows, "joined", _JOINED)
        ledger = Ledger(
            entries=dict(self._decode_kind(rows, "entry", _ENTRY)),
            failures={(did, site): failure for _, (did, site, failure) in failures},
            site_failures={
                Site(key): times for key, times in self._decode_kind(rows, "site_failures", _SITE_FAILURES)
            },
            halts=dict(self._decode_kind(rows, "halt", _HALT)),
            tape_asked_at={Site(key): at for key, at in self._decode_kind(rows, "tape", _TAPE)},
            approvals=dict(self._decode_kind(rows, "approval", _APPROVAL)),
            joined={(did, site): rule for _, (did, site, rule) in joined},
        )
        for _, batches in self._decode_kind(rows, "batches", _BATCHES):
            ledger = replace(ledger, batches=batches)
        for _, ended in self._decode_kind(rows, "ended", _ENDED):
            ledger = replace(ledger, ended=ended)
        for _, totals in self._decode_kind(rows, "totals", _TOTALS):
            ledger = replace(ledger, totals=totals)
        return ledger

    def _decode_kind(self, rows: _Rows, kind: str, adapter: "TypeAdapter[_T]") -> Iterator[tuple[str, _T]]:
        for (row_kind, key), body in rows.items():
            if row_kind != kind:
                continue
            with contextlib.suppress(*DECODE_ERRORS):
                yield key, adapter.validate_json(body)


def _encode(ledger: Ledger) -> Iterator[tuple[tuple[str, str], str]]:
    yield from _encode_all("entry", ledger.entries.items(), _ENTRY)
    failures = [(_key(*pair), (*pair, failure)) for pair, failure in ledger.failures.items()]
    yield from _encode_all("failure", failures, _FAILURE)
    yield from _encode_all("site_failures", ledger.site_failures.items(), _SITE_FAILURES)
    yield from _encode_all("halt", ledger.halts.items(), _HALT)
    yield from _encode_all("tape", ledger.tape_asked_at.items(), _TAPE)
    yield from _encode_all("approval", ledger.approvals.items(), _APPROVAL)
    joined = [(_key(*pair), (*pair, rule)) for pair, rule in ledger.joined.items()]
    yield from _encode_all("joined", joined, _JOINED)
    yield from _encode_all("batches", [("", ledger.batches)], _BATCHES)
    yield from _encode_all("ended", [("", ledger.ended)], _ENDED)
    yield from _encode_all("totals", [("", ledger.totals)], _TOTALS)


def _encode_all(
    kind: str, items: Iterable[tuple[str, Any]] | Mapping[str, Any], adapter: "TypeAdapter[Any]"
) -> Iterator[tuple[tuple[str, str], str]]:
    pairs = items.items() if isinstance(items, Mapping) else items
    for key, value in pairs:
        yield (kind, str(key)), adapter.dump_json(value).decode()


def _key(did: Did, site: Site) -> str:
    return json.dumps([did, site])


STOP_FILE: Final = "stopped"
_STOPPED: Final = "stopped by the operator; `hydrator staging resume` ends this"


class StagingFiles(CommandFolder[StagingCommand]):
    """The switch and the commands in a state directory; see :class:`StagingControl` for the daemon's side."""

    FOLDER_NAME = "staging"

    @property
    def stop_reason(self) -> str | None:
        """Return why staging is stopped; None if it is not.

        If the folder cannot be read, staging counts as stopped: the switch may be there.
        """
        try:
            with (self._folder / STOP_FILE).open(encoding="utf-8", errors="replace") as file:
                reason = sanitize(file.read(200).strip())
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"the switch {self._folder / STOP_FILE} cannot be read: {error.strerror}"
        return f"{_STOPPED} ({reason})" if reason else _STOPPED

    def stop(self, reason: str = "") -> None:
        """Stop all asking and renewing at once; nothing is deleted. *reason* is shown to everybody.

        Raises:
            StateError: no daemon has created the folder yet, or this user may not write into it.
        """
        self._write(STOP_FILE, reason.encode())

    def resume(self) -> None:
        """End the stop, and let the daemon forget earlier failures.

        Raises:
            StateError: this user may not write into the folder.
        """
        self.submit(StagingCommand("resume"))
        try:
            (self._folder / STOP_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise self._write_error(error) from error

    def _encode(self, command: StagingCommand) -> dict[str, Any]:
        return {"command": command.name, "target": command.target}

    def _decode(self, body: Any) -> StagingCommand:  # noqa: ANN401
        name, target = body["command"], body["target"]
        if name not in get_args(CommandName) or not isinstance(target, str) or len(target) > 200:
            raise ValueError("unknown command or target")
        return StagingCommand(name, target)
