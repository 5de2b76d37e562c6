"""Printing of results and of errors."""

import sys
from collections.abc import Callable
from typing import Any

from hydrator.domain.redaction import escape_unprintable

_MAX_PROBLEM_CHARS = 4000


def print_result(as_json: bool, value: object, print_text: Callable[[], None]) -> None:
    """Print *value* as JSON if *as_json*; otherwise call *print_text*, which prints a text for people."""
    if as_json:
        print_json(value)
    else:
        print_text()


def print_json(value: object) -> None:
    """Print *value*, an object or a list of objects of one type; times are RFC 3339 texts in UTC."""
    from pydantic import TypeAdapter

    from hydrator.domain.units import TEXT_TIMES

    kind: Any = type(value)
    if isinstance(value, list | tuple) and value:
        kind = list[type(value[0])]  # type: ignore[misc]  # a type of the running program
        value = list(value)
    text = TypeAdapter[Any](kind).dump_json(value, indent=2, ensure_ascii=True, context=TEXT_TIMES)
    print(text.decode())


def print_problems(*problems: str | None) -> None:
    """Print each problem on its own line on stderr; skip empty problems.

    A problem may repeat what a user typed, so its line ends are escaped, and a very long one is cut.
    """
    for problem in filter(None, problems):
        line = escape_unprintable(problem)
        cut = "…" if len(line) > _MAX_PROBLEM_CHARS else ""
        print(f"hydrator: {line[:_MAX_PROBLEM_CHARS]}{cut}", file=sys.stderr)
