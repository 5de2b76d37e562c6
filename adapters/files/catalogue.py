"""File catalogue: one TOML or JSON file, by its suffix; read again when it changes.

In TOML (the same shape in JSON, where ``as_of`` is a string)::

    as_of = 2026-11-21T02:00:00Z      # when the list was made; default: time of reading
    sites = ["UK", "AU", "NL"]        # all sites it covers; default: those named below
    count = 1                         # number of datasets below: shows a torn file
    [datasets."lofar:L1"]
    bytes = 123
    sites.UK = "available"            # available | staging | partial | nearline | stuck
    sites.AU = { state = "staging", fraction = 0.5 }
    sites.NL = ["nearline", { state = "partial", fraction = 0.1 }]    # two storage elements

Writers should replace the file (write a second file, then rename it). One that is
rewritten in place is rejected where that shows: it changes while it is read, it
does not parse, it is empty, or ``count`` is wrong.
"""

import hashlib
import json
import os
import stat
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from adapters.bounded_json import Bounds, check_size
from adapters.did_matching import case_variants, filter_by_patterns, group_by_lower_case
from hydrator.domain.errors import (
    BadDid,
    CatalogueDenied,
    CatalogueGarbled,
    CatalogueUnreachable,
)
from hydrator.domain.files import file_signature
from hydrator.domain.model import (
    Did,
    Replica,
    ReplicaState,
    Seen,
    Site,
    Survey,
    from_unix,
    parse_did,
)
from hydrator.domain.ports import Clock
from hydrator.domain.text import format_count, shorten_list

STATE_BY_WORD: Final[Mapping[str, ReplicaState]] = {
    "available": ReplicaState.COMPLETE,
    "staging": ReplicaState.INCOMING,
    "partial": ReplicaState.PARTIAL,
    "nearline": ReplicaState.ON_TAPE,
    "stuck": ReplicaState.STUCK,
}
CLOCK_SKEW: Final = timedelta(minutes=5)
"""``as_of`` may be ahead of the local clock by this much, and then counts as now."""

MAX_READS: Final = 3
"""Attempts to read a file that changes while it is read."""

SETTLE_SECONDS: Final = 2.0
"""Seconds after a change in which a further one may leave the file's times unchanged."""

MAX_PROBLEMS_SHOWN: Final = 10

BOUNDS: Final = Bounds(
    64_000_000, 2_000_000, bytes_setting="fixed: give two files", values_setting="fixed: give two files"
)
"""Limits of one file: some 250,000 datasets."""

DescriptorReader = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class _DatasetEntry:
    """One dataset of the file."""

    replicas: tuple[Replica, ...]
    bytes_total: int | None


@dataclass(frozen=True, slots=True)
class _ParsedFile:
    """Content of a valid file."""

    as_of: datetime | None
    sites: frozenset[Site]
    has_site_list: bool
    datasets: Mapping[Did, _DatasetEntry]
    case_groups: Mapping[str, frozenset[Did]]


@dataclass(frozen=True, slots=True)
class _CachedFile:
    """Content of the file, and the signature and digest that show a change of it."""

    signature: tuple[int, ...]
    is_settled: bool
    digest: bytes
    contents: _ParsedFile


def read_descriptor(descriptor: int) -> bytes:
    """Return all bytes of an open file."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


class FileCatalogue:
    """A catalogue in one file.

    Args:
        name: its name in the configuration.
        path: ends in ``.toml`` or ``.json``.
        clock: the time of readings from a file without ``as_of``.
        default_scope: for names in the file without a scope.
        read_all: reads an open file; a seam for tests.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        clock: Clock,
        default_scope: str | None = None,
        *,
        read_all: DescriptorReader = read_descriptor,
    ) -> None:
        self.name = name
        self._path = path
        self._clock = clock
        self._default_scope = default_scope
        self._read_all = read_all
        self._cache: _CachedFile | None = None
        self._known_sites: frozenset[Site] = frozenset()

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :class:`hydrator.domain.ports.Catalogue`.

        Raises:
            CatalogueUnreachable: the file is missing, or keeps changing while it is read.
            CatalogueDenied: the daemon may not read it.
            CatalogueGarbled: it is not valid; every problem with its key.
        """
        now = self._clock()
        contents = self._load()
        at = self._as_of(contents, now)
        if not contents.has_site_list:  # the file still covers a site whose last dataset was removed
            self._known_sites |= contents.sites
        return Survey(
            catalogue=self.name,
            started_at=at,
            sites=contents.sites if contents.has_site_list else self._known_sites,
            readings={did: _reading(did, at, contents) for did in sorted(dids)},
        )

    def verify(self, did: Did) -> Seen:
        """See :class:`hydrator.domain.ports.Auditor`; reads the file again."""
        self._cache = None
        now = self._clock()
        contents = self._load()
        return _reading(did, self._as_of(contents, now), contents)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :class:`hydrator.domain.ports.Catalogue`; raises like :meth:`read`."""
        return filter_by_patterns(self._load().datasets, patterns)

    def close(self) -> None:
        """Drop the cache; no file stays open between reads."""
        self._cache = None

    def _as_of(self, contents: _ParsedFile, now: datetime) -> datetime:
        """Return the time of the facts, never in the future, or they would expire too late."""
        if contents.as_of is None:
            return now
        if contents.as_of > now + CLOCK_SKEW:
            raise CatalogueGarbled(
                self.name,
                f"{self._path}: as_of: {contents.as_of.isoformat()} is in the future; "
                "give the time the list was made (UTC ends in Z)",
            )
        return min(contents.as_of, now)

    def _load(self) -> _ParsedFile:
        """Return the current content of the file, parsed only when its bytes changed."""
        try:
            cache = self._cache
            if (
                cache is not None
                and cache.is_settled
                and cache.signature == file_signature(self._path.stat())
            ):
                return cache.contents
            signature, data = self._read_unchanged()
        except PermissionError as exc:
            raise CatalogueDenied(
                self.name, f"{self._path}: {exc.strerror}; let uid {os.geteuid()} read it"
            ) from exc
        except OSError as exc:
            raise CatalogueUnreachable(self.name, f"{self._path}: {exc.strerror}") from exc
        digest = hashlib.blake2b(data).digest()
        is_same = cache is not None and cache.digest == digest
        contents = cache.contents if cache and is_same else self._parse_contents(data)
        self._cache = _CachedFile(signature, _is_settled(signature), digest, contents)
        return contents

    def _read_unchanged(self) -> tuple[tuple[int, ...], bytes]:
        """Read a file that does not change, and is not replaced, meanwhile.

        Raises:
            OSError: it cannot be opened or read.
            CatalogueUnreachable: it changed each time, or is not an ordinary file.
        """
        for _ in range(MAX_READS):
            # without O_NONBLOCK a pipe would block
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    raise CatalogueUnreachable(self.name, f"{self._path}: not an ordinary file")
                if before.st_size > BOUNDS.max_bytes:
                    raise CatalogueGarbled(self.name, f"{self._path}: {BOUNDS.too_many_bytes_error()}")
                data = self._read_all(descriptor)
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            # ignore ctime: renaming or unlinking the file changes it, but not the bytes
            is_whole = _bytes_signature(before) == _bytes_signature(after) and len(data) == after.st_size
            if is_whole and _bytes_signature(self._path.stat()) == _bytes_signature(after):
                return file_signature(before), data
        reason = f"{self._path}: it changed while it was read, {MAX_READS} times; replace it by a rename"
        raise CatalogueUnreachable(self.name, reason)

    def _parse_contents(self, data: bytes) -> _ParsedFile:
        """Parse *data*; raise CatalogueGarbled with all problems of the file, each with its key."""
        try:
            parsed = _parse(self._path, data)
        except (ValueError, RecursionError) as exc:
            raise CatalogueGarbled(self.name, f"{self._path}: {_parse_error_text(exc)}") from exc
        checker = _FileParser(self._default_scope)
        contents = checker.parse(parsed)
        if checker.problems:
            listed = shorten_list(checker.problems, "; ", limit=MAX_PROBLEMS_SHOWN)
            count = format_count(len(checker.problems), "problem")
            raise CatalogueGarbled(self.name, f"{self._path}: {count}: {listed}")
        return contents


def _reading(did: Did, at: datetime, contents: _ParsedFile) -> Seen:
    entry = contents.datasets.get(did)
    return Seen(
        as_of=at,
        replicas=entry.replicas if entry else (),
        bytes_total=entry.bytes_total if entry else None,
        case_variants=case_variants(did, contents.case_groups),
    )


def _bytes_signature(status: os.stat_result) -> tuple[int, ...]:
    """Return the signature without the ctime, which also changes when the file is renamed or unlinked."""
    return file_signature(status)[:4]


def _is_settled(signature: tuple[int, ...]) -> bool:
    """Return True if the times of the file are so old that any later change moves them."""
    newest = max(signature[3], signature[4]) / 1e9
    return 0 <= newest < time.time() - SETTLE_SECONDS


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    """Parse the file into a table; raise ValueError or RecursionError."""
    check_size(data, BOUNDS)
    if not data.strip():
        raise ValueError("it is empty; write an empty [datasets] for a catalogue without datasets")
    text = data.decode("utf-8-sig")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix != ".json":
        raise ValueError("its name must end in .toml or .json")
    parsed = json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    if not isinstance(parsed, dict):
        raise ValueError("its outermost value must be an object")  # noqa: TRY004 - garbled, not a bug
    return parsed


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; reject repeated keys, since it is unclear which one counts."""
    table = dict(pairs)
    if len(table) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {repeated[:100]!r} is given twice in one object")
    return table


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _parse_error_text(exc: Exception) -> str:
    if isinstance(exc, UnicodeDecodeError):
        return f"not UTF-8 at byte {exc.start}"
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    return f"cannot be read: {str(exc)[:300]}"


class _FileParser:
    """A parser of the file's table that collects all problems."""

    def __init__(self, default_scope: str | None) -> None:
        self.problems: list[str] = []
        self._default_scope = default_scope

    def parse(self, document: Mapping[str, Any]) -> _ParsedFile:
        self._check_keys(document, ("as_of", "sites", "count", "datasets"), "")
        as_of = self._parse_as_of(document["as_of"]) if "as_of" in document else None
        sites = self._parse_sites(document["sites"]) if "sites" in document else None
        datasets = self._parse_datasets(document, sites)
        named_sites = {replica.site for entry in datasets.values() for replica in entry.replicas}
        return _ParsedFile(
            as_of,
            frozenset(named_sites if sites is None else sites),
            sites is not None,
            datasets,
            group_by_lower_case(datasets),
        )

    def _add_problem(self, key: str, problem: str) -> None:
        self.problems.append(f"{key}: {problem}")

    def _check_keys(self, table: Mapping[str, Any], allowed_keys: tuple[str, ...], key_prefix: str) -> None:
        for key in table:
            if key not in allowed_keys:
                self._add_problem(key_prefix + key[:200], f"unknown; known here: {', '.join(allowed_keys)}")

    def _parse_as_of(self, value: object) -> datetime | None:
        if isinstance(value, str):
            text = value
            try:
                value = datetime.fromisoformat(text)
            except ValueError:
                self._add_problem("as_of", f"{text[:50]!r} is not a time like 2026-11-21T02:00:00Z")
                return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return from_unix(value)
            except (ValueError, OverflowError, OSError):
                self._add_problem("as_of", "out of range for Unix seconds")
                return None
        if not isinstance(value, datetime):
            self._add_problem("as_of", "must be a time like 2026-11-21T02:00:00Z, or Unix seconds")
            return None
        if value.tzinfo is None:
            self._add_problem("as_of", f"{value.isoformat()} has no time zone (UTC ends in Z)")
            return None
        return value.astimezone(UTC)

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

    def _parse_datasets(
        self, document: Mapping[str, Any], sites: frozenset[Site] | None
    ) -> dict[Did, _DatasetEntry]:
        tables = document.get("datasets")
        if not isinstance(tables, dict):
            missing = "missing; write an empty table for none, so that a torn file does not look empty"
            self._add_problem("datasets", missing if tables is None else "not a table")
            return {}
        self._check_count(document, len(tables))
        datasets: dict[Did, _DatasetEntry] = {}
        for key, table in tables.items():
            key_path = f'datasets."{key[:200]}"'
            did = self._parse_did(key, key_path)
            entry = self._parse_dataset(did, table, key_path, sites)
            if did is None or entry is None:
                continue
            if did in datasets:
                self._add_problem(key_path, f"{did} is given twice, with its scope and without")
            datasets[did] = entry
        return datasets

    def _check_count(self, document: Mapping[str, Any], actual_count: int) -> None:
        count = document.get("count", actual_count)
        if not _is_whole_number(count):
            self._add_problem("count", "must be a whole number, 0 or more")
        elif count != actual_count:
            self._add_problem(
                "count",
                f"is {count}, but the file has {actual_count} datasets: it is torn or the count is outdated",
            )

    def _parse_did(self, key: str, key_path: str) -> Did | None:
        try:
            return parse_did(key, self._default_scope)
        except BadDid as exc:
            self._add_problem(key_path, exc.reason)
            return None

    def _parse_dataset(
        self, did: Did | None, table: object, key: str, sites: frozenset[Site] | None
    ) -> _DatasetEntry | None:
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
        replicas = self._parse_replicas(did, states, key, sites)
        return _DatasetEntry(tuple(replicas), bytes_total)

    def _parse_replicas(
        self,
        did: Did | None,
        states_by_site: Mapping[str, Any],
        key_prefix: str,
        sites: frozenset[Site] | None,
    ) -> Iterable[Replica]:
        for name, value in sorted(states_by_site.items()):
            key = f"{key_prefix}.sites.{name[:200]}"
            if sites is None:
                is_valid = self._check_site_name(name, key)
            else:
                is_valid = name in sites
                if not is_valid:
                    self._add_problem(key, f"{name[:50]!r} is not among sites")
            states = self._parse_states(value, key)
            if is_valid and did is not None:
                yield from (Replica(did, Site(name), *state) for state in states)

    def _parse_states(self, value: object, key: str) -> list[tuple[ReplicaState, float | None]]:
        """Parse one state, or a list with one for each storage element of a site."""
        values = value if isinstance(value, list) else [value]
        if not values:
            self._add_problem(key, "the list is empty; leave the site out")
        return [state for state in (self._parse_state(one, key) for one in values) if state]

    def _parse_state(self, value: object, key: str) -> tuple[ReplicaState, float | None] | None:
        """Parse state and fraction, from a word or from a table of both."""
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
                f"{key}.fraction", "an available dataset is complete: leave it out, or use partial"
            )
            return None
        return state, float(fraction)


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
