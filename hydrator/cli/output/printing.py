"""Printing of results and of errors."""

import json
import sys
from collections.abc import Callable


def print_result(as_json: bool, value: object, print_text: Callable[[], None]) -> None:
    """Print *value* as JSON if *as_json*; otherwise call *print_text*, which prints a text for people."""
    if as_json:
        print(json.dumps(value, indent=2))
    else:
        print_text()


def print_problems(*problems: str | None) -> None:
    """Print each problem on its own line on stderr; skip empty problems."""
    for problem in problems:
        if problem:
            print(f"hydrator: {problem}", file=sys.stderr)
