"""Write new files for the user of a command, and never replace a file or follow a link."""

import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path


def write_new_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Create the file *path* with *content*, and with *mode* limited by the umask; sync the file to disk.

    Raises:
        FileExistsError: the name exists already, even as a broken link.
        OSError: the file cannot be written; no part of the file remains.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)
        with suppress(OSError):
            path.unlink()
        raise


def make_new_folder(parent: Path, stem: str, ending: str, fill: Callable[[Path], None]) -> Path:
    """Make a folder with a new name in *parent*, and return its path; *fill* writes the files of the folder.

    The name is ``STEM + ENDING``. If that name is taken, the name is ``STEM-2 + ENDING``, and so on. Two
    processes never get the same name.

    Raises:
        OSError: a folder or file cannot be made; no part of the new folder remains.
    """
    missing = [each for each in (parent, *parent.parents) if not each.exists()]
    folder: Path | None = None
    try:
        parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = _make_free_folder(parent, stem, ending)
        fill(folder)
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        for each in missing:
            with suppress(OSError):
                each.rmdir()
        raise
    return folder


def _make_free_folder(parent: Path, stem: str, ending: str) -> Path:
    """Make the folder with the first free name."""
    for number in count(1):
        folder = parent / (f"{stem}{ending}" if number == 1 else f"{stem}-{number}{ending}")
        with suppress(FileExistsError):
            folder.mkdir(mode=0o755)
            return folder
    raise AssertionError("itertools.count never ends")


def unsafe_folder_reason(folder: Path) -> str:
    """Return the reason why files of a job are not safe below *folder*; empty if they are safe."""
    mode = folder.stat().st_mode if folder.exists() else 0
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return "other users can write into this folder, and could change the job before its submission"
    return ""


def run_to_completion(argv: Sequence[str], folder: Path | None = None) -> int:
    """Run *argv* and return its exit status, negative for a signal.

    Ctrl-C does not end this function: the terminal also sends Ctrl-C to the program, which handles it.
    If this function killed the program during a submission, it would be unknown whether a job exists.

    Raises:
        OSError: the program cannot be started.
    """
    process = subprocess.Popen(argv, cwd=folder)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def write_new_files(texts: Mapping[Path, bytes]) -> list[Path] | None:
    """Write *texts* to files and return the new files; return None if a file exists with other content.

    Raises:
        OSError: a file cannot be written; no new file remains.
    """
    written: list[Path] = []
    try:
        for path, text in texts.items():
            if not _has_content(path, text):
                write_new_file(path, text)
                written.append(path)
    except BaseException as error:
        remove_files(written)
        if isinstance(error, FileExistsError):
            return None
        raise
    return written


def remove_files(paths: Sequence[Path]) -> None:
    """Remove those of *paths* that exist."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _has_content(path: Path, content: bytes) -> bool:
    """Return whether *path* is a file, not a link to one, with *content*."""
    try:
        status = path.lstat()
        return (
            stat.S_ISREG(status.st_mode) and status.st_size == len(content) and path.read_bytes() == content
        )
    except OSError:
        return False


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Wait until no other hydrator command works in *folder*; go on if the folder cannot be locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):  # NFS does not lock folders
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
