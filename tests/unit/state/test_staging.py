"""The state of staging: the ledger survives, and the switch and commands are files."""

import sqlite3
from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.domain.errors import StateError
from hydrator.domain.staging_ports import RefusalKind, RequestState, StagingKind
from hydrator.staging.commands import StagingCommand
from hydrator.staging.ledger import (
    Approval,
    AskedBatch,
    EndedEntry,
    EntryState,
    FailureRecord,
    Ledger,
    LedgerEntry,
    StagingTotals,
)
from hydrator.state.staging import StagingFiles
from hydrator.state.store import Store
from tests.factories import CAM, L1, L2, NOON, RAL

ENTRY = LedgerEntry(
    "t1", "b", "rucio", StagingKind.STAGE, CAM, L1, 10**12, None, EntryState.OPEN, NOON, timedelta(days=3),
    "ann", RAL, "CAM_DISK", "rule", RequestState.MOVING, False, 3, 4, NOON, NOON, "why", NOON, NOON,
    NOON, frozenset({"ap1"}), 7, True, NOON, "problem",
)  # fmt: skip
LEDGER = Ledger(
    {"t1": ENTRY, "t2": replace(ENTRY, tag="t2", did=L2, files=9, source=None, expires_at=None)},
    {(L1, CAM): FailureRecord(2, NOON, NOON, RefusalKind.QUOTA, "full", True, True)},
    {CAM: (NOON,)},
    {"rucio": "no permission"},
    {RAL: NOON},
    (AskedBatch("b", NOON, 5),),
    {"b": Approval("b", NOON, True)},
    {(L1, RAL): "carl rule9"},
    StagingTotals(1, 2, 3, refused={"quota": 4}),
    (EndedEntry("t0", "rucio", StagingKind.PIN, CAM, L1, 1, NOON, NOON, True, False, "over"),),
)


def test_the_ledger_is_the_same_after_a_restart(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        assert store.staging_ledger.load() == Ledger()
        store.staging_ledger.save(LEDGER)
    with Store.open_to_write(tmp_path) as store:
        assert store.staging_ledger.load() == LEDGER
        store.staging_ledger.save(replace(LEDGER, entries={"t1": ENTRY}, failures={}))
        store.staging_ledger.save(replace(LEDGER, entries={"t1": replace(ENTRY, handle="x")}, failures={}))
    with Store.open_to_read(tmp_path) as store:
        ledger = store.staging_ledger.load()
        assert ledger == replace(LEDGER, entries={"t1": replace(ENTRY, handle="x")}, failures={})


def test_a_row_that_cannot_be_decoded_is_skipped(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.staging_ledger.save(LEDGER)
    with sqlite3.connect(tmp_path / "state.sqlite") as db:
        db.execute("update staging set body = '{' where key = 't1'")
    with Store.open_to_write(tmp_path) as store:
        assert store.staging_ledger.load().entries.keys() == {"t2"}


def test_a_failed_save_does_not_hide_rows_from_the_next(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.staging_ledger.save(LEDGER)
        store._db.execute("pragma busy_timeout = 10")
        with sqlite3.connect(tmp_path / "state.sqlite") as other:
            other.execute("begin immediate")
            with pytest.raises(StateError):
                store.staging_ledger.save(Ledger())
        store.staging_ledger.save(Ledger())
        assert store.staging_ledger.load() == Ledger()


def commands(files: StagingFiles) -> list[StagingCommand]:
    return [command for _, command in files.read_pending().commands]


@pytest.fixture
def files(tmp_path):
    files = StagingFiles(tmp_path)
    files.prepare()
    return files


def test_the_switch_survives_and_is_seen_at_once(files, tmp_path):
    assert files.stop_reason is None
    StagingFiles(tmp_path).stop("too many\x1b[2J requests")
    assert "stopped by the operator" in files.stop_reason
    assert "too many" in files.stop_reason
    assert "\x1b" not in files.stop_reason
    StagingFiles(tmp_path).resume()
    assert files.stop_reason is None
    assert commands(files) == [StagingCommand("resume")]


def test_a_switch_that_cannot_be_read_counts_as_stopped(files, tmp_path):
    (tmp_path / "staging" / "stopped").mkdir()
    assert "cannot be read" in files.stop_reason


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"command": "rm", "target": ""}',
        b'{"command": "approve", "target": 3}',
        b"1" * 20_000,
    ],
)
def test_a_file_that_is_not_a_command_is_reported_and_set_aside(files, tmp_path, content):
    (tmp_path / "staging" / "000001-x.json").write_bytes(content)
    given = [StagingCommand("approve", "abc"), StagingCommand("reject", "d"), StagingCommand("cancel", "e")]
    for command in given:
        files.submit(command)
    assert commands(files) == given
    pending = files.read_pending()
    assert "000001-x.json: is not a command" in pending.problems[0]
    files.remove_processed(pending)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["000001-x.refused"]
