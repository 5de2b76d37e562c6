"""File format of the file catalogue: parse TOML or JSON, and collect all problems of a file.

In TOML (the same shape in JSON, where ``as_of`` is a string)::

    as_of = 2026-11-21T02:00:00Z      # when the list was made; default: time of reading
    sites = ["UK", "AU", "NL"]        # all sites of the file; default: those named below
    count = 1                         # number of datasets below: detects a truncated file
    [datasets."lofar:L1"]
    bytes = 123
    sites.UK = "available"            # available | staging | partial | nearline | stuck
    sites.AU = { state = "staging", fraction = 0.5 }
    sites.NL = ["nearline", { state = "partial", fraction = 0.1 }]    # two storage elements

A program that writes the file should write a second file, then rename it. If a program
rewrites the file in place, the daemon may read a part of it. The daemon can detect this, and rejects the
file, if the file changes during the read, does not parse or is empty, or if ``count`` is wrong.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from adapters.did_matching import group_by_lower_case
from adapters.untrusted_text import Record
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.text import format_count, shorten_list
from hydrator.domain.untrusted import MAX_CLASSAD_INTEGER, moment_in_utc, valid_time

MAX_PROBLEMS_SHOWN: Final = 10


# -- the form of the decoded file


def _read_time(value: object) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("it is not a time like 2026-11-21T02:00:00Z") from None
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} has no time zone (UTC ends in Z)")
    moment = moment_in_utc(value) if isinstance(value, datetime) else valid_time(value)
    if moment is None:
        raise ValueError(
            "must be a time like 2026-11-21T02:00:00Z, or Unix seconds, from 1970 to the year 9999"
        )
    return moment


def _check_site_name(name: str) -> Site:
    if not (name and name == name.strip() and name.isprintable() and len(name) <= 255):
        raise ValueError("it cannot be the name of a site")
    return Site(name)


def _add_scope(name: str, info: ValidationInfo) -> Did:
    return parse_did(name, info.context)


def _check_fraction(state: "StateInFile") -> "StateInFile":
    if state.state == "available" and state.fraction not in (None, 1):
        raise ValueError("an available dataset is complete: omit fraction, or use the state partial")
    return state


_Count = Annotated[int, Field(ge=0, le=MAX_CLASSAD_INTEGER, strict=True)]
_SiteName = Annotated[Site, AfterValidator(_check_site_name)]
_KNOWN_KEYS_ONLY = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, config=_KNOWN_KEYS_ONLY)
class StateInFile:
    """The state of a dataset at one storage element: a DatasetState in lower case."""

    state: Literal["available", "staging", "partial", "nearline", "stuck", "unavailable"]
    fraction: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None


_OneState = Annotated[
    StateInFile,
    BeforeValidator(lambda value: {"state": value} if isinstance(value, str) else value),
    AfterValidator(_check_fraction),
]
_States = Annotated[
    list[_OneState],
    Field(min_length=1),
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
]
"""One state, or one for each storage element of the site; a state is a word, or a table with a fraction."""


@dataclass(frozen=True, slots=True, config=_KNOWN_KEYS_ONLY)
class DatasetInFile:
    """One dataset of the file."""

    bytes: _Count | None = None
    sites: dict[_SiteName, _States] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, config=_KNOWN_KEYS_ONLY)
class ParsedFile:
    """The content of a valid file."""

    as_of: Annotated[datetime, BeforeValidator(_read_time)] | None = None
    sites: list[_SiteName] | None = None
    count: _Count | None = None
    datasets: dict[Annotated[Did, AfterValidator(_add_scope)], DatasetInFile]

    @cached_property
    def all_sites(self) -> frozenset[Site]:
        """The sites of the file's list; without a list those of the datasets."""
        if self.sites is not None:
            return frozenset(self.sites)
        return frozenset(site for dataset in self.datasets.values() for site in dataset.sites)

    @cached_property
    def case_groups(self) -> Mapping[str, list[Did]]:
        """The datasets by their names in lower case."""
        return group_by_lower_case(self.datasets)


_FILE = TypeAdapter(ParsedFile)


def parse_file(suffix: str, data: bytes, default_scope: str | None) -> ParsedFile:
    """Parse *data* as TOML or JSON, by the *suffix*; names without a scope get *default_scope*.

    Raises:
        ValueError: the file is not valid; the message has all problems, each with its key.
    """
    try:
        document = _decode(suffix, data)
    except (ValueError, RecursionError) as exc:
        raise ValueError(_describe_error(exc)) from exc
    problems = [*_find_wrong_count(document)]
    try:
        file = _FILE.validate_python(document, context=default_scope)
        problems += _find_contradictions(document, file, default_scope)
    except ValidationError as error:
        problems += map(_describe_problem, error.errors(include_url=False))
    if problems:
        listed = shorten_list(problems, "; ", limit=MAX_PROBLEMS_SHOWN)
        raise ValueError(f"{format_count(len(problems), 'problem')}: {listed}")
    return file


def _decode(suffix: str, data: bytes) -> dict[str, Any]:
    """Decode the file into a table; raise ValueError or RecursionError."""
    if not data.strip():
        raise ValueError("the file is empty; if the catalogue has no datasets, write an empty [datasets]")
    text = data.decode("utf-8-sig")
    if suffix == ".toml":
        return tomllib.loads(text)
    if suffix != ".json":
        raise ValueError("the name of the file must end in .toml or .json")
    parsed = json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    if not isinstance(parsed, dict):
        raise ValueError("the outermost value must be an object")  # noqa: TRY004 - the data is wrong, not the code
    return parsed


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; reject a repeated key, because it is unclear which of its values is valid."""
    table = dict(pairs)
    if len(table) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {repeated[:100]!r} is given twice in one object")
    return table


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _describe_error(exc: Exception) -> str:
    if isinstance(exc, UnicodeDecodeError):
        return f"the file is not UTF-8 at byte {exc.start}"
    if isinstance(exc, RecursionError):
        return "the file is nested too deeply"
    return f"the file cannot be read: {str(exc)[:300]}"


_MESSAGES = {
    "missing": "is missing",
    "dict_type": "must be a table",
    "dataclass_type": "must be a table",
    "list_type": "must be a list",
    "too_short": "the list of states is empty",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
}
"""Sentences in place of those of pydantic, which name Python's types."""


def _describe_problem(detail: ErrorDetails) -> str:
    """Return a sentence about a problem that pydantic found, with the key as it is written in the file."""
    # pydantic adds the index in a list of states, and "[key]" where the key itself is wrong
    place = [part[:200] for part in detail["loc"] if isinstance(part, str) and part != "[key]"]
    if place[0] == "datasets" and len(place) > 1:
        place[1] = f'"{place[1]}"'
    message = _MESSAGES.get(detail["type"], detail["msg"].removeprefix("Value error, "))
    if detail["type"] == "unexpected_keyword_argument":
        form = {1: ParsedFile, 3: DatasetInFile}.get(len(place), StateInFile)
        message = f"unknown key; use {', '.join(form.__annotations__)}"
    given = detail["input"]
    shown = f" (it is {str(given)[:50]!r})" if isinstance(given, str | int | float) else ""
    return f"{'.'.join(place)}: {message[0].lower()}{message[1:]}{shown}"


def _find_wrong_count(document: Record) -> Iterator[str]:
    """Report a ``count`` that is not the number of datasets: the file may be truncated."""
    count, tables = document.get("count"), document.get("datasets")
    if type(count) is int and isinstance(tables, dict) and count != len(tables):
        yield (
            f"count: is {count}, but the file has {len(tables)} datasets: "
            "the file is truncated or count is outdated"
        )


def _find_contradictions(document: Record, file: ParsedFile, default_scope: str | None) -> Iterator[str]:
    """Report a dataset that is there with its scope and without, and a site that the list omits."""
    if len(file.datasets) < len(document["datasets"]):
        for did, count in Counter(parse_did(key, default_scope) for key in document["datasets"]).items():
            if count > 1:
                yield f'datasets."{did}": {did} is given twice, with its scope and without'
    for did, dataset in file.datasets.items():
        for site in dataset.sites.keys() - file.all_sites:
            yield f'datasets."{did}".sites.{site}: {site!r} is missing in the list sites of this file'
