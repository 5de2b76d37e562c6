"""Printing of results and of errors."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def print_result(as_json: bool, value: Mapping[str, Any] | Sequence[Any], table: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(value, indent=2))
    else:
        table()


def print_problems(*problems: str | None) -> None:
    for reason in problems:
        if reason:
            print(f"hydrator: {reason}", file=sys.stderr)
