"""The state of staging: the table survives, and the switch and commands are files."""

import pytest

from hydrator.domain.staging_ports import RefusalKind, RequestState, StagingKind
from hydrator.staging.table import Decision, Request, StagingCommand, Table
from hydrator.state.command_files import TABLE_REPORT, StagingFiles
from hydrator.state.store import Store
from tests.factories import CAM, L1, L2, NOON, RAL

OPEN = Request(
    L1, CAM, "rucio", StagingKind.STAGE, 10**12, "b", NOON, 1_296_000, "CAM_DISK", RAL, "ann", "rule",
    RequestState.MOVING, 9, 3, NOON, NOON, True, True, NOON, 3600, NOON, NOON, 7, "7.0", NOON, NOON, NOON,
    True, "why", "locked", "problem", RefusalKind.QUOTA, NOON, None, "text",
)  # fmt: skip
ENDED = Request(L2, CAM, "rucio", StagingKind.PIN, 1, "c", NOON, 1, ended_at=NOON)


def test_the_table_is_the_same_after_a_restart(tmp_path):
    table = Table((OPEN,), (ENDED,), {"b": Decision("approve", NOON)})
    with Store.open_to_write(tmp_path) as store:
        assert store.load_report(TABLE_REPORT, Table) is None
        store.save_reports({TABLE_REPORT: table})
    with Store.open_to_read(tmp_path) as store:
        assert store.load_report(TABLE_REPORT, Table) == table


def test_a_table_that_cannot_be_decoded_counts_as_lost(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save_reports({TABLE_REPORT: {"requests": [{"did": 7}]}})
        assert store.load_report(TABLE_REPORT, Table) is None


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
