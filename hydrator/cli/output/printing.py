"""Printing of results and of errors."""

import sys
from collections.abc import Callable


def print_result(as_json: bool, value: object, print_text: Callable[[], None]) -> None:
    """Print *value* as JSON if *as_json*; otherwise call *print_text*, which prints a text for people."""
    if as_json:
        print_json(value)
    else:
        print_text()


def print_json(value: object) -> None:
    """Print *value*, which may have dataclasses; times and durations are numbers of seconds."""
    from pydantic_core import to_json

    text = to_json(value, indent=2, ensure_ascii=True, temporal_mode="seconds", timedelta_mode="float")
    print(text.decode())


def print_problems(*problems: str | None) -> None:
    """Print each problem on its own line on stderr; skip empty problems."""
    for problem in problems:
        if problem:
            print(f"hydrator: {problem}", file=sys.stderr)
