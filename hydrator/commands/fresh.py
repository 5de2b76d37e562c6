"""Files that a command writes for its user: always fresh ones, never through a link that somebody planted."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def write_fresh(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Put a new file with *content* in the place of *path*, with *mode* as far as the umask lets it.

    The file is made under a name that did not exist and then renamed: a link at *path*, and what it
    points to, is replaced or left alone, but not written to.

    Raises:
        OSError: it cannot be written; nothing of it is left then.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode & ~_umask())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def own_folder(folder: Path) -> str:
    """Make *folder* where it is not there yet; return why files of a job are not safe in it, else nothing.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if folder.stat().st_mode & stat.S_IWOTH:
        return "others can write into it, and could change the job before it is submitted"
    return ""


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
