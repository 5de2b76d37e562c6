"""The sqlite database: schema, locks, permissions and damaged files."""

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from hydrator.domain.errors import StateError, StateMissing, StateUnreadable

SCHEMA_VERSION = 1


_SCHEMA = f"""
begin;
create table if not exists part (name text primary key, body text) without rowid;
create table if not exists record (catalogue text, did text, body text, primary key (catalogue, did))
    without rowid;
create table if not exists report (key text primary key, body text) without rowid;
create table if not exists site_change (number integer primary key, site text, at real, did text, before text,
    after text, reason text);
create index if not exists site_change_site on site_change (site, number);
pragma user_version = {SCHEMA_VERSION};
commit;
"""
"""A transaction: a process that is killed during it leaves version 0, and readers find no state."""


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False)
    try:
        db.text_factory = bytes.decode  # its error is a ValueError, not an sqlite3.Error
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        _check_integrity(db, path)
        db.executescript(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Connect to the database at *path* for reading, also while a daemon writes it.

    Raises:
        StateMissing: the file does not exist yet, or is empty: its daemon was killed at its first start.
        StateUnreadable: the file cannot be read, or a newer version wrote it.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise StateUnreadable(f"{path} is not a file: move it away, or use another state_dir")
        # Without a -wal file no daemon is writing. SQLite would create the file, which some users may not do:
        # the option immutable prevents this.
        still = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
        if not os.access(path, os.R_OK, effective_ids=True):  # SQLite's error hides this reason
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # noqa: TRY301
    except FileNotFoundError as error:
        raise StateMissing(f"{path} does not exist: no daemon has run with this state_dir yet") from error
    except PermissionError as error:
        advice = "run this command as the daemon's user or as root"
        raise StateUnreadable(f"{path}: {error.strerror}; {advice}") from error
    except OSError as error:
        raise StateUnreadable(f"{path}: {error.strerror}; state_dir must be a folder") from error
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{still}", uri=True)
        try:
            db.text_factory = bytes.decode  # its error is a ValueError, not an sqlite3.Error
            _check_version(db, path, least=SCHEMA_VERSION)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        advice = "a daemon that starts renames a damaged state, and begins a new one"
        raise StateUnreadable(f"{path} is not a readable state ({error}); {advice}") from error
    return db


def _check_integrity(db: sqlite3.Connection, path: Path) -> None:
    if db.execute("pragma quick_check").fetchone() != ("ok",):
        raise sqlite3.DatabaseError("quick_check failed")
    _check_version(db, path)


def _check_version(db: sqlite3.Connection, path: Path, least: int = 0) -> None:
    version = db.execute("pragma user_version").fetchone()[0]
    if version < least:
        raise StateMissing(f"{path} is empty: no daemon has finished its start with this state_dir yet")
    if version > SCHEMA_VERSION:
        raise StateUnreadable(
            f"{path}: a newer classad-hydrator wrote it (schema {version}); "
            "use that version, or another state_dir"
        )


def lock_folder(folder: Path) -> int:
    path = folder / "lock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(
            f"state_dir {folder}: {error.strerror}; state_dir must be a folder that can be written"
        ) from error
    try:
        _acquire_lock(lock)
    except OSError as error:
        owner = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise StateError(
            f"state_dir {folder} is in use by another hydrator (process {owner}); "
            "stop it first, or use plan, status, sites or datasets, which only read the state"
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _acquire_lock(lock: int) -> None:
    """Lock the state, or raise OSError. Try 10 times: :func:`owner_of` may hold the lock for an instant."""
    for _ in range(10):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def replace_damaged(path: Path, error: Exception) -> tuple[sqlite3.Connection, str]:
    """Rename the damaged database at *path*, and create a new one; return it with a report for the log."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    restrict_permissions(path)
    return connect(path), f"{path} was damaged ({error}); it was renamed to {aside.name}"


@contextlib.contextmanager
def transaction(
    db: sqlite3.Connection, lock: AbstractContextManager[object], failure: type[StateError] = StateError
) -> Iterator[None]:
    """Run the ``with`` block in a transaction of *db*, while this thread holds *lock*.

    Threads share the connection, which can have only one transaction at a time.

    Raises:
        StateError: the database cannot be read or written; the error is a *failure*.
    """
    try:
        with lock, db:
            yield
    except (sqlite3.Error, ValueError) as error:  # ValueError: a row or a text that cannot be decoded
        raise failure(f"the state cannot be read or written: {error}") from error


def owner_of(folder: Path) -> str | None:
    """Return the id of the process that owns the state in *folder*; None if no daemon runs.

    The kernel releases the lock when the process ends, also after a crash. So a lock means that the process
    still runs.

    Raises:
        StateError: this user may not read the lock file.
    """
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(
            f"{folder / 'lock'}: {error.strerror}; run this command as the daemon's user or as root"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
    except OSError:  # a file system without locks: the owner is unknown
        return "unknown"
    else:
        return None
    finally:
        os.close(lock)


def restrict_permissions(path: Path) -> None:
    """Create the database at *path* if it is missing; let only the daemon's user read the database's files.

    SQLite creates the write-ahead log with the permissions of the database.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in (*path.parent.glob(f"{path.name}*"), path.with_name("lock")):
        with contextlib.suppress(
            PermissionError, FileNotFoundError
        ):  # another user's file in a shared folder
            file.chmod(0o600)
