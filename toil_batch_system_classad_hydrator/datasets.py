"""Datasets of a step or an operation: find the DIDs of its inputs.

The name of an input is the last part of its path. The module looks for the DID of a name first in
``[submit]`` names of the configuration, then in ``[submit]`` patterns, then in the datasets of the run, by
the rules of hydrator/submit/dataset_names. The result leaves out inputs without a DID, such as the output of
an earlier step.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from hydrator.domain.ads.classad import list_literal, string_literal
from hydrator.domain.errors import BadDid
from hydrator.domain.model import parse_did
from hydrator.submit.dataset_names.lookup import (
    CompiledPattern,
    base_name,
    compile_pattern,
    fitting_dids,
    look_up_configured,
    split_paths,
    strip_tar,
)


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

    def find_did(self, name: str, run_dids: Sequence[str] = (), path: str = "") -> str | None:
        """Return the DID of a dataset's *name* or path by the rules, else from *run_dids*; else None.

        Of several datasets of the run with that name it is the one whose folders are most like those of the
        *path*, or of *name*.
        """
        did = look_up_configured(name, self.names, self.patterns)
        if did is None:
            content = strip_tar(base_name(name))
            alike = [did for did in run_dids if strip_tar(base_name(did.partition(":")[2])) == content]
            return next(iter(fitting_dids(path or name, alike)), None)
        try:
            return parse_did(did, self.default_scope)
        except BadDid:
            return None


def find_required_dids(inputs: Any, rules: NamingRules, run_dids: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    """Return the datasets that a step with these CWL *inputs* reads.

    If *run_dids* is not empty, the result has only datasets of the run, because an output file may have the
    name of another dataset.
    """
    dids = set(_find_dids(inputs, rules, run_dids))
    return tuple(sorted(dids & set(run_dids) if run_dids else dids))


def _find_dids(inputs: Any, rules: NamingRules, run_dids: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the DIDs of all CWL files and directories in *inputs*, at any depth.

    A directory that is not a dataset may have datasets in its ``listing``. A text may be a path, or several;
    it counts if it names a dataset of the run.
    """
    if isinstance(inputs, str):
        found = {rules.find_did(text, run_dids) for text in (inputs, *split_paths(inputs))}
        yield from (did for did in run_dids if did in found)
    elif isinstance(inputs, Mapping) and inputs.get("class") in ("File", "Directory"):
        path = str(inputs.get("path") or inputs.get("location") or "")
        if did := rules.find_did(str(inputs.get("basename") or base_name(path)), run_dids, path):
            yield did
        else:
            yield from _find_dids(inputs.get("listing"), rules, run_dids)
        yield from _find_dids(inputs.get("secondaryFiles"), rules, run_dids)
    elif isinstance(inputs, Mapping | list | tuple):
        for value in inputs.values() if isinstance(inputs, Mapping) else inputs:
            yield from _find_dids(value, rules, run_dids)


def parse_did_list(text: str | None) -> tuple[str, ...]:
    """Parse a ClassAd list of strings; return its DIDs, sorted, without duplicates.

    Raises:
        DatasetsError: *text* is not a list of strings, or an item is not a DID.
    """
    if text is None or not text.strip():
        return ()
    try:
        items = json.loads(re.sub(r"\A\{(.*)\}\Z", r"[\1]", text.strip(), flags=re.DOTALL))
        return tuple(sorted({parse_did(item) for item in items}))
    except (ValueError, TypeError, BadDid):
        example = '{"scope:name","scope:name2"}'
        text = f"_CONDOR_RequiredDatasets must be a list such as {example}, not {text.strip()[:200]}"
        raise DatasetsError(text) from None


def format_did_list(dids: Iterable[str]) -> str:
    """Format *dids* as a ClassAd list of strings."""
    return list_literal(map(string_literal, dids))
