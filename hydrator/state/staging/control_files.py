"""Control files of staging, in ``state_dir/staging``: the switch that stops all asking, and commands.

Only users who may write into the state directory can give commands. The switch is a file, so it works at
once, also while the daemon is not running, and it survives a restart.
"""

import json
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, get_args

from hydrator.domain.errors import StateError
from hydrator.domain.files import replace_file
from hydrator.domain.redaction import sanitize
from hydrator.staging.commands import CommandName, StagingCommand

FOLDER_NAME: Final = "staging"
STOP_FILE: Final = "stopped"
MAX_FILE_BYTES: Final = 10_000
_STOPPED: Final = "stopped by the operator; `hydrator staging resume` ends this"


class StagingFiles:
    """The switch and the commands in a state directory; see :class:`StagingControl` for the daemon's side."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER_NAME
        self._read_files: tuple[Path, ...] = ()

    def prepare(self) -> None:
        """Create the folder as the daemon's user.

        Raises:
            StateError: the daemon cannot create the folder, or cannot write into it.
        """
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{self._folder}: {error.strerror}; the daemon must be able to write into this folder"
            ) from error

    # the switch

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
        self._write(self._folder / STOP_FILE, reason.encode())

    def resume(self) -> None:
        """End the stop, and let the daemon forget earlier failures.

        Raises:
            StateError: this user may not write into the folder.
        """
        self.submit(StagingCommand("resume"))
        try:
            (self._folder / STOP_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise self._state_error(error) from error

    # commands

    def submit(self, command: StagingCommand) -> None:
        """Write *command* into the folder; the daemon executes it in its next step.

        Raises:
            StateError: no daemon has created the folder yet, or this user may not write into it.
        """
        body = json.dumps({"command": command.name, "target": command.target}).encode()
        self._write(self._folder / f"{self._next_number():06}-{secrets.token_hex(4)}.json", body)

    def read_commands(self) -> tuple[StagingCommand, ...]:
        """Return the commands in the order in which operators gave them; do not remove their files."""
        commands = []
        files = []
        with suppress(OSError):
            files = sorted(self._folder.glob("*.json"))
        for path in files:
            with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
                commands.append(_decode(path))
        self._read_files = tuple(files)
        return tuple(commands)

    def remove_commands(self) -> None:
        """Remove the files that :meth:`read_commands` read last, also those that are not commands.

        Raises:
            StateError: a file cannot be removed, so its command would be executed again.
        """
        try:
            for path in self._read_files:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise self._state_error(error) from error

    def _write(self, path: Path, content: bytes) -> None:
        try:
            replace_file(path, content, mode=0o644)
        except FileNotFoundError as error:
            raise StateError(
                f"{self._folder} does not exist: no daemon has run with staging and this state_dir yet"
            ) from error
        except OSError as error:
            raise self._state_error(error) from error

    def _state_error(self, error: OSError) -> StateError:
        return StateError(f"{self._folder}: {error.strerror}; give commands as the daemon's user or as root")

    def _next_number(self) -> int:
        numbers = [path.name.split("-")[0] for path in self._folder.glob("*.json")]
        return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _decode(path: Path) -> StagingCommand:
    if path.is_symlink() or path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError("the file is too large, or a symbolic link")
    body: Any = json.loads(path.read_bytes())
    name, target = body["command"], body["target"]
    if name not in get_args(CommandName) or not isinstance(target, str) or len(target) > 200:
        raise ValueError("the file is not a command")
    return StagingCommand(name, target)
