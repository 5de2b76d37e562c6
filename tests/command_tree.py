"""Every command of ours, for tests that look at all of them."""

from typing import Any

import typer

from hydrator.cli.app import app
from hydrator.cli.output.manpage import walk_commands

TREE = typer.main.get_command(app)
COMMANDS: dict[str, Any] = dict(walk_commands(TREE))


def options(path: str) -> set[str]:
    """Return the spellings of all options and arguments of the command at *path*."""
    return {name for each in COMMANDS[path].params for name in (*each.opts, *each.secondary_opts)}
