"""Printing of results and of errors."""

import json
import sys
from collections.abc import Callable


def print_result(as_json: bool, value: object, print_text: Callable[[], None]) -> None:
    """Print *value* as JSON, or else the text for people."""
    if as_json:
        print(json.dumps(value, indent=2))
    else:
        print_text()


def print_problems(*problems: str | None) -> None:
    """Print each problem on a line of its own on stderr; leave out empty ones."""
    for problem in problems:
        if problem:
            print(f"hydrator: {problem}", file=sys.stderr)
