"""Command files: operators' commands in ``state_dir/orders``, executed in the daemon's next cycle.

Nobody can change a published ad over HTTP. Only users who may write into the state directory can give
commands. A command contains the state that the operator saw. If the state has changed since then, the
command has no effect.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any, Final

from hydrator.domain.errors import StateError
from hydrator.domain.files import replace_file
from hydrator.domain.model import Site, parse_did
from hydrator.reconcile.state import Approve, PendingCommands

FOLDER_NAME: Final = "orders"
MAX_COMMAND_BYTES: Final = 64 * 2**20
"""Maximum bytes of one command file: enough for the names of 100,000 datasets."""


class CommandQueue:
    """The queue of commands that operators wrote into a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER_NAME

    def prepare(self) -> None:
        """Create the folder as the daemon's user, so that the daemon may remove commands from the folder.

        Raises:
            StateError: the daemon cannot create the folder.
        """
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{self._folder}: {error.strerror}; the daemon must be able to write into this folder"
            ) from error

    def submit(self, command: Approve) -> None:
        """Write *command* into the folder; the daemon executes it in the next cycle.

        Raises:
            StateError: no daemon has created the folder yet, or this user may not write into the folder.
        """
        try:
            name = f"{self._next_number():06}-{secrets.token_hex(4)}.json"
            replace_file(self._folder / name, json.dumps(_encode_command(command)).encode(), mode=0o644)
        except FileNotFoundError as error:
            raise StateError(
                f"{self._folder} does not exist: no daemon has run with this state_dir yet"
            ) from error
        except OSError as error:
            raise StateError(
                f"{self._folder}: {error.strerror}; give commands as the daemon's user or as root"
            ) from error

    def read_pending(self) -> PendingCommands:
        """Return the commands in the order in which operators gave them; do not remove their files."""
        if not os.access(self._folder, os.F_OK, effective_ids=True):
            return PendingCommands()  # the folder is missing, or this user may not see it
        if not os.access(self._folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            return PendingCommands(problem=f"{self._folder} is not writable: the daemon executes no commands")
        orders: list[tuple[Path, Approve]] = []
        refused: list[tuple[Path, str]] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                orders.append((path, _decode_command(path)))
            except (
                OSError,
                ValueError,
                TypeError,
                KeyError,
                AttributeError,
                RecursionError,
                OverflowError,
            ) as error:
                refused.append((path, f"is not a command ({error})"))
        return PendingCommands(tuple(orders), tuple(refused))

    def remove_processed(self, pending: PendingCommands) -> None:
        """Remove commands that were executed, and rename invalid files.

        Raises:
            StateError: a file cannot be removed, so the daemon would execute its command again.
        """
        try:
            for path, _ in pending.commands:
                path.unlink(missing_ok=True)
            for path, _ in pending.invalid_files:
                path.rename(path.with_suffix(".refused"))
        except OSError as error:
            raise StateError(
                f"{self._folder}: {error.strerror}; "
                "the daemon executes the commands in this folder in every cycle"
            ) from error

    def _next_number(self) -> int:
        numbers = [path.name.split("-")[0] for path in self._folder.glob("*.json")]
        return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _encode_command(command: Approve) -> dict[str, Any]:
    return {"site": command.site, "datasets": sorted(command.datasets)}


def _decode_command(path: Path) -> Approve:
    if path.is_symlink() or path.stat().st_size > MAX_COMMAND_BYTES:
        raise ValueError("the file is too large, or a symbolic link")
    body: Any = json.loads(path.read_bytes())
    if not isinstance(body["site"], str):
        raise TypeError("the site of the command is not a text")
    return Approve(Site(body["site"]), frozenset(parse_did(did) for did in body["datasets"]))
