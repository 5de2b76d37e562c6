"""Files are replaced in one step, and a changed file has another signature."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hydrator.domain.files import WatchedFiles, read_limited, read_regular, replace_file
from testbed.files import umask


def test_replace_file_creates_a_file_with_its_mode_whatever_the_umask(tmp_path):
    with umask(0o077):
        replace_file(tmp_path / "new", b"a", mode=0o644)
    assert (tmp_path / "new").read_bytes() == b"a"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644


def test_replace_file_leaves_a_reader_of_the_old_file_with_the_old_content(tmp_path):
    path = tmp_path / "file"
    replace_file(path, b"old")
    with path.open("rb") as reader:
        replace_file(path, b"new", modified_ns=5_000_000_000)
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mtime_ns == 5_000_000_000


def test_replace_file_replaces_a_symbolic_link_and_not_its_target(tmp_path):
    (tmp_path / "target").write_bytes(b"target")
    (tmp_path / "link").symlink_to("target")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"target"
    assert not (tmp_path / "link").is_symlink()


def test_replace_file_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "full").touch()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "folder", b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"longer"),
        lambda path: path.chmod(0o640),
        lambda path: replace_file(path, b"one"),
        lambda path: os.utime(path, ns=(1, 1)),
    ],
    ids=["content", "mode", "replaced", "time"],
)
def test_watched_files_notice_a_change_once(tmp_path, change):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    watched = WatchedFiles(path, tmp_path / "absent")
    assert not watched.have_changed()
    change(path)
    assert [watched.have_changed(), watched.have_changed()] == [True, False]
    path.unlink()
    assert [watched.have_changed(), watched.have_changed()] == [True, False]


def test_file_without_end_is_refused():
    with pytest.raises(OSError, match="larger than 1000 bytes"):
        read_limited(Path("/dev/zero"), 1000)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(Path("/dev/zero"), 1000)


def test_file_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert (read_limited(path, 4), read_regular(path, 4)[0]) == (b"1234", b"1234")
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_limited(path, 3)
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_regular(path, 3)


def test_pipe_without_a_writer_is_refused_without_a_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / "pipe", 3)
    with pytest.raises(OSError, match="no program writes to it"):
        read_limited(tmp_path / "pipe", 3)


@pytest.mark.outside
def test_pipe_is_read_to_the_end_of_its_writer():
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            pipe.write(b"one")
            pipe.write(b" two")

    with os.fdopen(reading), ThreadPoolExecutor() as threads:
        threads.submit(write)
        assert read_limited(Path(f"/dev/fd/{reading}"), 9) == b"one two"
