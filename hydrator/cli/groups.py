"""Groups of commands whose help needs no Rich, and that import a command only when it is needed."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from .output.examples import epilog


class PlainGroup(TyperGroup):
    """A group whose help is written without Rich, whose import takes longer than all the rest."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - Typer's own
        super().__init__(**attributes | {"rich_markup_mode": None})

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - Typer exports no types
        """Write the name and the help of each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.help_of(name)) for name in self.commands])

    def help_of(self, name: str) -> str:
        """Return the first paragraph of the help of the command *name*."""
        return " ".join((self.commands[name].help or "").partition("\n\n")[0].split())


class LazyGroup(PlainGroup):
    """A group that imports the module of a command only when the command is needed."""

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """By command: the place of its function or group, as ``module:name``, and the start of its help."""
    prefix: ClassVar[str] = ""
    """The words of the group in front of a command, such as ``submit ``."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - Typer's own
        super().__init__(**attributes)
        self.commands = _LazyCommands(self.table, self.prefix)  # type: ignore[assignment] # no command is added later

    def help_of(self, name: str) -> str:
        """Return the first paragraph of the help of the command *name*, without the command."""
        return self.table[name][1]


class _LazyCommands(Mapping[str, Any]):
    """The commands of a group, each built when it is first needed."""

    def __init__(self, table: Mapping[str, tuple[str, str]], prefix: str) -> None:
        self._table = table
        self._prefix = prefix
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name not in self._built:
            module, _, attribute = self._table[name][0].partition(":")
            source = getattr(import_module(module, __package__), attribute)
            self._built[name] = _build_command(source, name, f"{self._prefix}{name}")
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _build_command(source: Any, name: str, path: str) -> Any:  # noqa: ANN401 - a function, or a Typer group
    """Build the command *name* with examples in its help, or in the help of each command of the group."""
    if isinstance(source, typer.Typer):
        for each in source.registered_commands:
            each.epilog = epilog(f"{path} {each.name or (each.callback.__name__ if each.callback else '')}")
        group = source
    else:
        group = typer.Typer(add_completion=False)
        group.command(name, epilog=epilog(path))(source)
    command = typer.main.get_command(group)
    command.name = name
    return command
