"""Options that many commands share."""

import inspect
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from hydrator.domain.model import Did

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

RefuseOption = Annotated[
    bool,
    typer.Option(
        "--refuse-nowhere",
        help="If no site has all data of a job now, submit nothing and exit with status 3.",
    ),
]


def number_option(kind: type[int] | type[float], least: float, most: float, unit: str, help_text: str) -> Any:  # noqa: ANN401 - as typer.Option
    """Build an option for a number of *unit*, which may be empty, from *least* to *most*.

    Typer's own messages about numbers would be those of Pydantic.
    """

    def parse(value: str | float) -> float:
        with suppress(ValueError):
            number = kind(value)
            if least <= number <= most:  # nan is not
                return number
        whole, of_unit = "whole " if kind is int else "", f" of {unit}" if unit else ""
        raise typer.BadParameter(f"give a {whole}number{of_unit} from {least} to {most}, not {value!r:.100}")

    return typer.Option(parser=parse, metavar=unit.upper() or "NUMBER", help=help_text)


def read_typed(text: str | None) -> str | None:
    """Return *text* as its user typed it: in a locale without its letters it has their bytes, ``\\udcc3``.

    Raises:
        ConfigError: its bytes are not UTF-8, so no site, schedd or job has it.
    """
    try:
        return text and os.fsencode(text).decode()
    except UnicodeError:
        from hydrator.domain.errors import ConfigError

        raise ConfigError([f"{text!r} is not UTF-8 text"]) from None


def parse_dids(texts: Iterable[str], default_scope: str | None, wanted: str = "a DID") -> "list[Did]":
    """Parse the DIDs that a user typed, in their order; a DID of another spelling counts once.

    Raises:
        ConfigError: lists every text that is not a DID; *wanted* says what it should be.
    """
    from hydrator.domain.errors import BadDid, ConfigError
    from hydrator.domain.model import parse_did

    dids: dict[Did, None] = {}
    problems = []
    for text in texts:
        try:
            dids[parse_did(text, default_scope)] = None
        except BadDid as bad:
            problems.append(f"{bad.text[:300]!r} is not {wanted}: {bad.reason}")
    if problems:
        raise ConfigError(problems)
    return list(dids)


def command_of(options: type[_Options], run: Callable[[_Options], None]) -> Callable[..., None]:
    """Build a command from *run*; the parameters of the command are the fields of the dataclass *options*."""

    def command(**values: Any) -> None:  # noqa: ANN401 - the fields have different types
        run(options(**values))

    command.__signature__ = inspect.signature(options)  # type: ignore[attr-defined]
    command.__doc__ = run.__doc__
    command.__name__ = run.__name__
    return command
