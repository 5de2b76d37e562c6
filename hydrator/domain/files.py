"""Files: replace a file in one step, and detect that a file has changed."""

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

TEMPORARY_PREFIX: Final = ".hydrator-"
TEMPORARY_SUFFIX: Final = ".tmp"


def replace_file(
    path: Path,
    content: bytes,
    *,
    mode: int = 0o600,
    owner: tuple[int, int] | None = None,
    modified_ns: int | None = None,
    should_flush_folder: bool = True,
) -> None:
    """Write *content* to *path* in one step: a reader sees the old file or the new one, also after a crash.

    The new file is written beside the old one, flushed to disk and renamed. After a failure the old
    file is unchanged and no temporary file is left; only a killed process can leave ``.hydrator-*.tmp``.

    Args:
        path: the file to create or replace; a symbolic link is replaced, not followed.
        content: all bytes of the file.
        mode: the permissions of the file, whatever the umask is.
        owner: user and group id of the file; None for those of this process.
        modified_ns: the modification time of the file in Unix ns; None for the time of the write.
        should_flush_folder: False if the caller writes several files. The caller then calls
            :func:`flush_folder` after the last file.

    Raises:
        OSError: the file cannot be written or renamed.
    """
    descriptor, name = tempfile.mkstemp(TEMPORARY_SUFFIX, TEMPORARY_PREFIX, path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            _write_and_flush(file, content, modified_ns)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if should_flush_folder:
        flush_folder(path.parent)


def _write_and_flush(file: BinaryIO, content: bytes, modified_ns: int | None) -> None:
    file.write(content)
    file.flush()
    if modified_ns is not None:
        os.utime(file.fileno(), ns=(modified_ns, modified_ns))
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the file names in *folder* to disk. Ignore the error of a file system that cannot do this."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


MAX_INPUT_BYTES: Final = 64 * 1024 * 1024
"""The largest submit file, DAG, parset or list of datasets that a command reads."""


def read_limited(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of *path*, which may be a pipe; wait for the writer of a pipe only if there is one.

    Raises:
        OSError: the file cannot be read, or is larger than *max_bytes*: ``/dev/zero`` has no end.
    """
    return _read(path, max_bytes, may_be_pipe=True)[0]


def read_regular(path: Path, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """Return the bytes and the status of *path*; do not wait for the writer of a pipe.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is larger than *max_bytes*.
    """
    return _read(path, max_bytes, may_be_pipe=False)


def _read(path: Path, max_bytes: int, *, may_be_pipe: bool) -> tuple[bytes, os.stat_result]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not may_be_pipe and not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        os.set_blocking(descriptor, True)  # O_NONBLOCK above is for open, which waits for a writer
        content = file.read(max_bytes + 1)
        if not content and stat.S_ISFIFO(status.st_mode):
            raise OSError(errno.EPIPE, "it is a pipe, and no program writes to it")
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"the file is larger than {max_bytes} bytes")
    return content, status


def file_signature(status: os.stat_result) -> tuple[int, ...]:
    """Return device, inode, size, mtime and ctime (ns) of a file: a changed file has other values."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class WatchedFiles:
    """Files that the caller reads again when one of them has changed, appeared or vanished."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._signatures = self._read_signatures()

    def have_changed(self) -> bool:
        """Return whether a file changed since the last call, or since this object was made.

        Call this before you read the files: the next call then finds a change that happens while you read.
        """
        previous, self._signatures = self._signatures, self._read_signatures()
        return previous != self._signatures

    def _read_signatures(self) -> list[tuple[int, ...] | None]:
        return [_signature_or_none(file) for file in self._files]


def _signature_or_none(file: Path) -> tuple[int, ...] | None:
    try:
        return file_signature(file.stat())
    except OSError:
        return None
