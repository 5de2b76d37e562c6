"""Validation of the ``--json`` output of a command against its schema."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema

from hydrator.cli.output.json_schema import SCHEMAS, JsonSchema, find_schema

COMMANDS = {name.split(" -")[0] for name in SCHEMAS}


def conforms(words: Sequence[str], printed: str) -> Any:  # noqa: ANN401 - JSON
    """Parse *printed*, the output of the command *words*; check it against the schema. Nothing for no output.

    Raises:
        AssertionError: it has another form; the text has the place.
    """
    if not printed:
        return None
    typed = [str(word) for word in words]
    command = next(name for name in (" ".join(typed[:2]), typed[0]) if name in COMMANDS)
    value = json.loads(printed)
    if wrong := list(problems(find_schema(command, typed), value)):
        raise AssertionError(f"hydrator {command} --json: {'; '.join(wrong)}")
    return value


def problems(shape: JsonSchema, value: object) -> Iterator[str]:
    """Return the problems of *value*, each with its place."""
    for error in jsonschema.Draft202012Validator(shape).iter_errors(value):
        yield f"{error.json_path}: {error.message}"[:300]
