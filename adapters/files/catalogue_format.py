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
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from adapters.did_matching import group_by_lower_case
from adapters.untrusted_text import Record
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Replica, ReplicaState, Site, parse_did
from hydrator.domain.text import format_count, shorten_list
from hydrator.domain.untrusted import moment_in_utc, valid_time

STATE_BY_WORD: Final[Mapping[str, ReplicaState]] = {
    "available": ReplicaState.COMPLETE,
    "staging": ReplicaState.INCOMING,
    "partial": ReplicaState.PARTIAL,
    "nearline": ReplicaState.ON_TAPE,
    "stuck": ReplicaState.STUCK,
    "unavailable": ReplicaState.UNAVAILABLE,
}
MAX_PROBLEMS_SHOWN: Final = 10


class DatasetEntry(NamedTuple):
    """One dataset of the file."""

    replicas: tuple[Replica, ...]
    bytes_total: int | None


class ParsedFile(NamedTuple):
    """Content of a valid file."""

    as_of: datetime | None
    sites: frozenset[Site]
    has_site_list: bool
    datasets: Mapping[Did, DatasetEntry]
    case_groups: Mapping[str, frozenset[Did]]


def parse_file(suffix: str, data: bytes, default_scope: str | None) -> ParsedFile:
    """Parse *data* as TOML or JSON, by the *suffix*; names without a scope get *default_scope*.

    Raises:
        ValueError: the file is not valid; the message has all problems, each with its key.
    """
    try:
        document = _decode(suffix, data)
    except (ValueError, RecursionError) as exc:
        raise ValueError(_describe_error(exc)) from exc
    parser = _FileParser(default_scope)
    contents = parser.parse(document)
    if parser.problems:
        listed = shorten_list(parser.problems, "; ", limit=MAX_PROBLEMS_SHOWN)
        raise ValueError(f"{format_count(len(parser.problems), 'problem')}: {listed}")
    return contents


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


class _FileParser:
    """A parser of the decoded file; ``problems`` collects everything that is wrong in the file."""

    def __init__(self, default_scope: str | None) -> None:
        self.problems: list[str] = []
        self._default_scope = default_scope
        self._sites: frozenset[Site] | None = None
        """The sites that the file lists; None without a list."""

    def parse(self, document: Record) -> ParsedFile:
        self._check_keys(document, ("as_of", "sites", "count", "datasets"), "")
        as_of = self._parse_as_of(document["as_of"]) if "as_of" in document else None
        if "sites" in document:
            self._sites = self._parse_sites(document["sites"])
        datasets = self._parse_datasets(document)
        named_sites = {replica.site for entry in datasets.values() for replica in entry.replicas}
        return ParsedFile(
            as_of,
            frozenset(named_sites if self._sites is None else self._sites),
            self._sites is not None,
            datasets,
            group_by_lower_case(datasets),
        )

    def _add_problem(self, key: str, problem: str) -> None:
        self.problems.append(f"{key}: {problem}")

    def _check_keys(self, table: Record, allowed_keys: tuple[str, ...], key_prefix: str) -> None:
        for key in table:
            if key not in allowed_keys:
                self._add_problem(key_prefix + key[:200], f"unknown key; use {', '.join(allowed_keys)}")

    def _parse_as_of(self, value: object) -> datetime | None:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                self._add_problem("as_of", f"{str(value)[:50]!r} is not a time like 2026-11-21T02:00:00Z")
                return None
        if isinstance(value, datetime) and value.tzinfo is None:
            self._add_problem("as_of", f"{value.isoformat()} has no time zone (UTC ends in Z)")
            return None
        moment = moment_in_utc(value) if isinstance(value, datetime) else valid_time(value)
        if moment is None:
            example = "2026-11-21T02:00:00Z, or Unix seconds, from 1970 to the year 9999"
            self._add_problem("as_of", f"must be a time like {example}")
        return moment

    def _parse_sites(self, value: object) -> frozenset[Site] | None:
        if not isinstance(value, list):
            self._add_problem("sites", 'must be a list of names, like ["UK", "AU"]')
            return None
        names = [
            Site(name) for name in value if isinstance(name, str) and self._check_site_name(name, "sites")
        ]
        if len(names) < sum(isinstance(name, str) for name in value):
            return None
        if len(names) < len(value):
            self._add_problem("sites", "must be a list of names only")
            return None
        for name in sorted({name for name in names if names.count(name) > 1}):
            self._add_problem("sites", f"{name!r} is given twice")
        return frozenset(names)

    def _check_site_name(self, name: str, key: str) -> bool:
        if name and name == name.strip() and name.isprintable() and len(name) <= 255:
            return True
        self._add_problem(key, f"{name[:50]!r} cannot be the name of a site")
        return False

    def _parse_datasets(self, document: Record) -> dict[Did, DatasetEntry]:
        tables = document.get("datasets")
        if not isinstance(tables, dict):
            missing = "missing; for a catalogue without datasets, write an empty [datasets]"
            self._add_problem("datasets", missing if tables is None else "not a table")
            return {}
        self._check_count(document, len(tables))
        datasets: dict[Did, DatasetEntry] = {}
        for key, table in tables.items():
            key_path = f'datasets."{key[:200]}"'
            did = self._parse_did(key, key_path)
            entry = self._parse_dataset(did, table, key_path)
            if did is None or entry is None:
                continue
            if did in datasets:
                self._add_problem(key_path, f"{did} is given twice, with its scope and without")
            datasets[did] = entry
        return datasets

    def _check_count(self, document: Record, actual_count: int) -> None:
        count = document.get("count", actual_count)
        if not _is_whole_number(count):
            self._add_problem("count", "must be a whole number, 0 or more")
        elif count != actual_count:
            self._add_problem(
                "count",
                f"is {count}, but the file has {actual_count} datasets: "
                "the file is truncated or count is outdated",
            )

    def _parse_did(self, key: str, key_path: str) -> Did | None:
        try:
            return parse_did(key, self._default_scope)
        except BadDid as exc:
            self._add_problem(key_path, exc.reason)
            return None

    def _parse_dataset(self, did: Did | None, table: object, key: str) -> DatasetEntry | None:
        if not isinstance(table, dict):
            self._add_problem(key, "must be a table with bytes and sites")
            return None
        if not table.keys() <= {"bytes", "sites"}:
            self._check_keys(table, ("bytes", "sites"), f"{key}.")
        bytes_total = table.get("bytes")
        if bytes_total is not None and not _is_whole_number(bytes_total):
            self._add_problem(f"{key}.bytes", "must be a whole number, 0 or more")
            bytes_total = None
        states = table.get("sites", {})
        if not isinstance(states, dict):
            self._add_problem(f"{key}.sites", 'must be a table of sites, like sites.UK = "available"')
            states = {}
        replicas = self._parse_replicas(did, states, key)
        return DatasetEntry(tuple(replicas), bytes_total)

    def _parse_replicas(self, did: Did | None, states_by_site: Record, key_prefix: str) -> Iterable[Replica]:
        for name, value in sorted(states_by_site.items()):
            key = f"{key_prefix}.sites.{name[:200]}"
            if self._sites is None:
                is_valid = self._check_site_name(name, key)
            else:
                is_valid = name in self._sites
                if not is_valid:
                    self._add_problem(key, f"{name[:50]!r} is missing in the list sites of this file")
            states = self._parse_states(value, key)
            if is_valid and did is not None:
                yield from (Replica(did, Site(name), *state) for state in states)

    def _parse_states(self, value: object, key: str) -> list[tuple[ReplicaState, float | None]]:
        """Parse one state, or a list of states: one state for each storage element of a site."""
        values = value if isinstance(value, list) else [value]
        if not values:
            self._add_problem(key, "the list of states is empty; omit the site")
        return [state for state in (self._parse_state(one, key) for one in values) if state]

    def _parse_state(self, value: object, key: str) -> tuple[ReplicaState, float | None] | None:
        """Parse a state and its fraction; *value* is a word (the state), or a table with both."""
        table = {"state": value} if isinstance(value, str) else value
        if not isinstance(table, dict):
            self._add_problem(key, 'must be a state, or a table like { state = "staging", fraction = 0.5 }')
            return None
        if not table.keys() <= {"state", "fraction"}:
            self._check_keys(table, ("state", "fraction"), f"{key}.")
        word = table.get("state")
        state = STATE_BY_WORD.get(word) if isinstance(word, str) else None
        if state is None:
            problem = "is missing" if word is None else f"{str(word)[:50]!r} is not a state"
            self._add_problem(f"{key}.state", f"{problem}; use {', '.join(STATE_BY_WORD)}")
            return None
        fraction = table.get("fraction")
        if fraction is None:
            return state, None
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            self._add_problem(f"{key}.fraction", "must be a number from 0 to 1")
            return None
        if state is ReplicaState.COMPLETE and fraction != 1:
            self._add_problem(
                f"{key}.fraction", "an available dataset is complete: omit fraction, or use the state partial"
            )
            return None
        return state, float(fraction)


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
