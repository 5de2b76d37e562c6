"""Options that many commands share."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

_Options = TypeVar("_Options")

DEFAULT_CONFIG_PATH = Path("/etc/classad-hydrator/config.toml")
EXIT_NO_MATCH_NOW = 3
"""The exit status where no site could start the job now."""

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="HYDRATOR_CONFIG", help="The daemon's configuration.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")
]


def command_of(options: type[_Options], run: Callable[[_Options], None]) -> Callable[..., None]:
    """Build a command from *run*; the parameters of the command are the fields of the dataclass *options*."""

    def command(**values: Any) -> None:  # noqa: ANN401 - the fields have different types
        run(options(**values))

    command.__signature__ = inspect.signature(options)  # type: ignore[attr-defined]
    command.__doc__ = run.__doc__
    command.__name__ = run.__name__
    return command
