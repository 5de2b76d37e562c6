"""Every command of ours, for tests that look at all of them."""

from collections.abc import Iterator
from typing import Any

import typer

from hydrator.cli.app import app


def walk_commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every visible command with its path, such as ``submit wrap``."""
    for name, command in group.commands.items():
        path = f"{prefix}{name}"
        if hasattr(command, "commands"):
            yield from walk_commands(command, f"{path} ")
        elif not command.hidden:
            yield path, command


TREE = typer.main.get_command(app)
COMMANDS: dict[str, Any] = dict(walk_commands(TREE))


def options(path: str) -> set[str]:
    """Return the spellings of all options and arguments of the command at *path*."""
    return {name for each in COMMANDS[path].params for name in (*each.opts, *each.secondary_opts)}
