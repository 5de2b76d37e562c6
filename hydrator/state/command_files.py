"""Command files: operators' commands in folders of ``state_dir``, executed in the daemon's next step.

Nobody can change a published ad over HTTP. Only users who may write into the state directory can give
commands. A command to publish contains the state that the operator saw. If the state has changed since then,
the command has no effect. Staging also has a switch, which stops all asking. It is a file, so it works at
once, also while the daemon is not running, and it survives a restart.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Generic

from pydantic import AfterValidator, TypeAdapter, ValidationError

from hydrator.domain.errors import StateError
from hydrator.domain.files import replace_file
from hydrator.domain.model import parse_did
from hydrator.domain.redaction import sanitize
from hydrator.reconcile.state import Approve, CommandT, PendingCommands
from hydrator.staging.table import StagingCommand

MAX_COMMAND_BYTES: Final = 64 * 2**20
"""Maximum bytes of one command file: enough for the names of 100,000 datasets."""
_WRITE_ADVICE: Final = "give commands as the daemon's user or as root"


class CommandFolder(Generic[CommandT]):
    """A folder with one file for each command that the daemon has not executed yet.

    ``COMMAND`` reads and writes a file; it raises ValueError if the content is not a command.
    """

    FOLDER_NAME: ClassVar[str]
    COMMAND: ClassVar[TypeAdapter[Any]]

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / self.FOLDER_NAME

    def prepare(self) -> None:
        """Create the folder as the daemon's user, so that the daemon may remove commands from the folder.

        Raises:
            StateError: the daemon cannot create the folder.
        """
        with self._explaining("the daemon must be able to write into this folder"):
            self._folder.mkdir(exist_ok=True)

    def submit(self, command: CommandT) -> None:
        """Write *command* into the folder; the daemon executes it in its next step.

        Raises:
            StateError: no daemon has created the folder yet, or this user may not write into the folder.
        """
        content = self.COMMAND.dump_json(command)
        self._write(f"{self._next_number():06}-{secrets.token_hex(4)}.json", content)

    def read_pending(self) -> PendingCommands[CommandT]:
        """Return the commands in the order in which operators gave them; do not remove their files."""
        if not os.access(self._folder, os.F_OK, effective_ids=True):
            return PendingCommands()  # the folder is missing, or this user may not see it
        if not os.access(self._folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            return PendingCommands(problem=f"{self._folder} is not writable: the daemon executes no commands")
        commands: list[tuple[Path, CommandT]] = []
        refused: list[tuple[Path, str]] = []
        for path in sorted(path for path in self._folder.iterdir() if path.suffix == ".json"):
            try:
                commands.append((path, self.COMMAND.validate_json(_read_file(path))))
            except ValidationError as error:
                refused.append((path, f"is not a command ({error.errors()[0]['msg']})"))
            except (OSError, ValueError) as error:
                refused.append((path, f"is not a command ({error})"))
        return PendingCommands(tuple(commands), tuple(refused))

    def remove_processed(self, pending: PendingCommands[CommandT]) -> None:
        """Remove commands that were executed, and rename invalid files.

        Raises:
            StateError: a file cannot be removed, so the daemon would execute its command again.
        """
        with self._explaining("the daemon executes the commands in this folder again and again"):
            for path, _ in pending.commands:
                path.unlink(missing_ok=True)
            for path, _ in pending.invalid_files:
                path.rename(path.with_suffix(".refused"))

    def _write(self, name: str, content: bytes) -> None:
        with self._explaining(_WRITE_ADVICE):
            try:
                replace_file(self._folder / name, content, mode=0o644)
            except FileNotFoundError as error:
                raise StateError(f"{self._folder} does not exist: no daemon has created it yet") from error

    @contextmanager
    def _explaining(self, advice: str) -> Iterator[None]:
        """Make an OSError of the ``with`` block a StateError with *advice*."""
        try:
            yield
        except OSError as error:
            raise StateError(f"{self._folder}: {error.strerror}; {advice}") from error

    def _next_number(self) -> int:
        numbers = [path.name.split("-")[0] for path in self._folder.glob("*.json")]
        return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _check_dids(command: Approve) -> Approve:
    for did in command.datasets:
        parse_did(did)
    return command


class CommandQueue(CommandFolder[Approve]):
    """The approvals of held losses, in ``state_dir/orders``."""

    FOLDER_NAME = "orders"
    COMMAND = TypeAdapter(Annotated[Approve, AfterValidator(_check_dids)])


def _read_file(path: Path) -> bytes:
    if path.is_symlink() or path.stat().st_size > MAX_COMMAND_BYTES:
        raise ValueError("the file is too large, or a symbolic link")
    return path.read_bytes()


TABLE_REPORT: Final = "staging table"
"""The name of the table in the state. If it is lost, the catalogues' lists of rules replace it: staging reads
them before it asks for anything."""
STOP_FILE: Final = "stopped"
_STOPPED: Final = "stopped by the operator; `hydrator staging resume` ends this"


class StagingFiles(CommandFolder[StagingCommand]):
    """The switch and the commands in a state directory; see :class:`StagingControl` for the daemon's side."""

    FOLDER_NAME = "staging"
    COMMAND = TypeAdapter(StagingCommand)

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
        with self._explaining(_WRITE_ADVICE):
            (self._folder / STOP_FILE).unlink(missing_ok=True)
