"""Printing of results and of errors."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any


def print_result(as_json: bool, value: object, print_text: Callable[[], None]) -> None:
    """Print *value* as JSON if *as_json*; otherwise call *print_text*, which prints a text for people."""
    if as_json:
        print(json.dumps(json_value(value), indent=2))
    else:
        print_text()


def json_value(value: Any) -> Any:  # noqa: ANN401
    """Return *value* in JSON values: a dataclass by its fields, a time in Unix s, an IntEnum by its name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: json_value(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.name.lower() if isinstance(value, IntEnum) else value


def print_problems(*problems: str | None) -> None:
    """Print each problem on its own line on stderr; skip empty problems."""
    for problem in problems:
        if problem:
            print(f"hydrator: {problem}", file=sys.stderr)
