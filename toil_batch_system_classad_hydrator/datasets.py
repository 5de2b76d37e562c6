"""Datasets of a step or an operation: find the DIDs of its inputs.

The name of an input is the last part of its path, without a trailing ``/``. The module looks for the DID of a
name first in ``[submit]`` names of the configuration, then in ``[submit]`` patterns, then in the datasets of
the run. The result leaves out inputs without a DID, such as the output of an earlier step.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from hydrator.submit.dataset_names.lookup import (
    CompiledPattern,
    compile_pattern,
    look_up_configured,
    strip_tar,
)

_DID = re.compile(r"[A-Za-z0-9._/@=+~-]+:[A-Za-z0-9._:/@=+~-]+")


class DatasetsError(ValueError):
    """The configuration, a list of datasets or a step's inputs cannot be read; the text says which."""


@contextmanager
def read_settings(file: str | None) -> Iterator[dict[str, Any]]:
    """Yield the content of *file*, a configuration in TOML; an empty mapping if *file* is None.

    Raises:
        DatasetsError: the file cannot be read, or the ``with`` block raises an error for one of its values.
    """
    try:
        yield tomllib.loads(Path(file).read_text("utf-8")) if file else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, re.error) as error:
        raise DatasetsError(f"{file} (HYDRATOR_CONFIG): [submit] cannot be read: {error}") from error


@dataclass(frozen=True)
class NamingRules:
    """The rules that turn names into DIDs."""

    names: Mapping[str, str] = field(default_factory=dict)
    patterns: tuple[CompiledPattern, ...] = ()
    default_scope: str | None = None

    @classmethod
    def load(cls, file: str | None) -> Self:
        """Load the rules from *file*, a configuration in TOML; no rules if *file* is None.

        Raises:
            DatasetsError: the file cannot be read, or a pattern cannot be used.
        """
        with read_settings(file) as settings:
            submit = settings.get("submit", {})
            patterns = tuple(
                compile_pattern(rule["match"], rule["did"]) for rule in submit.get("patterns", [])
            )
            names = {name.rstrip("/"): did for name, did in submit.get("names", {}).items()}
            return cls(names, patterns, settings.get("daemon", {}).get("default_scope"))

    def find_did(self, name: str, run_dids: Iterable[str] = ()) -> str | None:
        """Return the DID of the dataset *name* by the rules, else from *run_dids*; else None."""
        did = look_up_configured(name, self.names, self.patterns)
        if did is None:
            return next((did for did in run_dids if did.partition(":")[2] in {name, strip_tar(name)}), None)
        if ":" not in did and self.default_scope:
            did = f"{self.default_scope}:{did}"
        return did if _DID.fullmatch(did) else None


def find_required_dids(inputs: Any, rules: NamingRules, run_dids: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    """Return the datasets that a step with these CWL *inputs* reads.

    If *run_dids* is not empty, the result has only datasets of the run, because an output file may have the
    name of another dataset. A text input counts as a path if its last part is the name of a dataset of the
    run.
    """
    dids = {did for name in file_names(inputs) if (did := rules.find_did(name, run_dids))}
    by_text = {did for name in text_base_names(inputs) if (did := rules.find_did(name, run_dids))}
    dids |= {did for did in by_text if did in run_dids}
    if run_dids:
        dids &= set(run_dids)
    return tuple(sorted(dids))


def file_names(inputs: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the names of all CWL files and directories in *inputs*, at any depth."""
    if isinstance(inputs, Mapping):
        if inputs.get("class") in {"File", "Directory"}:
            place = inputs.get("path") or inputs.get("location") or ""
            yield str(inputs.get("basename") or unquote(PurePosixPath(urlsplit(str(place)).path).name))
        else:
            for value in inputs.values():
                yield from file_names(value)
    elif isinstance(inputs, (list, tuple)):
        for value in inputs:
            yield from file_names(value)


def text_base_names(inputs: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the last part of each text in *inputs* outside CWL files, because the text may be a path."""
    if isinstance(inputs, str):
        yield PurePosixPath(inputs).name
    elif isinstance(inputs, Mapping) and inputs.get("class") not in {"File", "Directory"}:
        for value in inputs.values():
            yield from text_base_names(value)
    elif isinstance(inputs, (list, tuple)):
        for value in inputs:
            yield from text_base_names(value)


def parse_did_list(text: str | None) -> tuple[str, ...]:
    """Parse a ClassAd list of strings; return its DIDs, sorted, without duplicates.

    Raises:
        DatasetsError: *text* is not a list of strings, or an item is not a DID.
    """
    if text is None or not text.strip():
        return ()
    inner = re.fullmatch(r"\s*\{(.*)\}\s*", text, re.DOTALL)
    try:
        items = json.loads(f"[{inner[1]}]") if inner else [None]
    except ValueError:
        items = [None]
    if not all(isinstance(item, str) and _DID.fullmatch(item) for item in items):
        raise DatasetsError(
            '_CONDOR_RequiredDatasets must be a list such as {"scope:name","scope:name2"}, '
            f"not {text.strip()[:200]}"
        )
    return tuple(sorted(set(items)))


def format_did_list(dids: Iterable[str]) -> str:
    """Format *dids* as a ClassAd list of strings."""
    return "{" + ",".join(f'"{did}"' for did in dids) + "}"
