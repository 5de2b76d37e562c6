"""The switch and the commands of staging are files."""

import pytest

from hydrator.staging.table import StagingCommand
from hydrator.state.command_files import StagingFiles


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


@pytest.mark.parametrize("content", [b"", b'{"name": "rm"}', b'{"name": "approve", "targets": 3}'])
def test_a_file_that_is_not_a_command_is_reported_and_set_aside(files, tmp_path, content):
    (tmp_path / "staging" / "000001-x.json").write_bytes(content)
    given = [
        StagingCommand("approve", ("a", "b")),
        StagingCommand("reject", ("d",)),
        StagingCommand("cancel", ("e",)),
    ]
    for command in given:
        files.submit(command)
    assert commands(files) == given
    pending = files.read_pending()
    assert "000001-x.json: is not a command" in pending.problems[0]
    files.remove_processed(pending)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["000001-x.refused"]
