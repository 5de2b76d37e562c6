"""Control files of staging, in ``state_dir/staging``: the switch that stops all asking, and commands.
The switch is a file, so it works at once, also while the daemon is not running, and it survives a restart.
"""

from typing import Any, Final, get_args

from hydrator.domain.redaction import sanitize
from hydrator.staging.table import CommandName, StagingCommand

from .command_files import CommandFolder

TABLE_REPORT: Final = "staging table"
"""The name of the table in the state. If it is lost, the catalogues' lists of rules replace it: staging reads
them before it asks for anything."""
STOP_FILE: Final = "stopped"
_STOPPED: Final = "stopped by the operator; `hydrator staging resume` ends this"


class StagingFiles(CommandFolder[StagingCommand]):
    """The switch and the commands in a state directory; see :class:`StagingControl` for the daemon's side."""

    FOLDER_NAME = "staging"

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
        try:
            (self._folder / STOP_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise self._write_error(error) from error

    def _encode(self, command: StagingCommand) -> dict[str, Any]:
        return {"command": command.name, "target": command.target}

    def _decode(self, body: Any) -> StagingCommand:  # noqa: ANN401
        name, target = body["command"], body["target"]
        if name not in get_args(CommandName) or not isinstance(target, str) or len(target) > 200:
            raise ValueError("unknown command or target")
        return StagingCommand(name, target)
