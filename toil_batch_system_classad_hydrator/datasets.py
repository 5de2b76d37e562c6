"""From the inputs of a step or an operation to the datasets it reads.

A name is the last part of a path, without a trailing ``/``. It becomes a DID by the configuration's
``[submit]`` names, then its patterns; else it is one of the run's own datasets if it is called the same.
What has no DID, such as what an earlier step has written, is left out.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import unquote, urlsplit

_DID = re.compile(r"[A-Za-z0-9._/@=+~-]+:[A-Za-z0-9._:/@=+~-]+")


class DatasetsError(ValueError):
    """A configuration or a list that cannot be read; the text says what, where and what to do."""


@dataclass(frozen=True)
class NamingRules:
    """How names become DIDs."""

    names: Mapping[str, str] = field(default_factory=dict)
    patterns: tuple[tuple[re.Pattern[str], str], ...] = ()
    default_scope: str | None = None
    private_patterns: tuple[str, ...] = ()
    """Patterns of DIDs that must not stand in a job's ad."""

    @classmethod
    def load(cls, file: str | None) -> Self:
        """From the ``[submit]`` section of *file*, a configuration in TOML; None is none.

        Raises:
            DatasetsWrong: the file cannot be read, or a pattern is no regular expression.
        """
        if not file:
            return cls()
        try:
            settings = tomllib.loads(Path(file).read_text("utf-8"))
            submit = settings.get("submit", {})
            patterns = tuple((re.compile(rule["match"]), rule["did"]) for rule in submit.get("patterns", []))
            scope = settings.get("daemon", {}).get("default_scope")
            private = tuple(str(pattern) for pattern in settings.get("private", {}).get("patterns", []))
            return cls(dict(submit.get("names", {})), patterns, scope, private)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, re.error) as wrong:
            raise DatasetsError(f"{file} (HYDRATOR_CONFIG): [submit] cannot be read: {wrong}") from wrong

    def is_private(self, did: str) -> bool:
        """Is *did* that of a private dataset, which the pool knows by an opaque name only?"""
        return any(fnmatchcase(did.lower(), pattern.lower()) for pattern in self.private_patterns)

    def find_did(self, name: str, run_dids: Iterable[str] = ()) -> str | None:
        """The DID of the dataset called *name*, or None."""
        did = self._apply_rules(name)
        if did is None:
            return next(
                (did for did in run_dids if did.partition(":")[2] in {name, name.removesuffix(".tar")}), None
            )
        if ":" not in did and self.default_scope:
            did = f"{self.default_scope}:{did}"
        return did if _DID.fullmatch(did) else None

    def _apply_rules(self, name: str) -> str | None:
        if name in self.names:
            return self.names[name]
        for pattern, did in self.patterns:
            if found := pattern.fullmatch(name):
                return found.expand(did)
        return None


def find_required_dids(inputs: Any, rules: NamingRules, run_dids: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    """Return the datasets that something with these CWL *inputs* reads; none where they name none.

    Where the *run* says what it reads, an input cannot add to it: a product that happens to be called
    like a dataset is none, and a text counts if its last part is the name of one. Which opaque name a
    private input has is not known here: it stands for all of the run.
    """
    own = {did for name in file_names(inputs) if (did := rules.find_did(name, run_dids))}
    named = {did for name in text_base_names(inputs) if (did := rules.find_did(name, run_dids))}
    own |= {did for did in named if did in run_dids or rules.is_private(did)}
    if any(rules.is_private(did) for did in own):
        return run_dids
    if run_dids:
        own &= set(run_dids)
    return tuple(sorted(own))


def file_names(inputs: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """The names of all CWL files and directories in *inputs*, however deep."""
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
    """Yield the last part of each text in *inputs* that is no part of a file: it may be a path."""
    if isinstance(inputs, str):
        yield PurePosixPath(inputs).name
    elif isinstance(inputs, Mapping) and inputs.get("class") not in {"File", "Directory"}:
        for value in inputs.values():
            yield from text_base_names(value)
    elif isinstance(inputs, (list, tuple)):
        for value in inputs:
            yield from text_base_names(value)


def parse_did_list(text: str | None) -> tuple[str, ...]:
    """The DIDs of a ClassAd list of strings, sorted, each once.

    Raises:
        DatasetsWrong: it is no such list, or an item is no DID.
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
    """A ClassAd list of strings."""
    return "{" + ",".join(f'"{did}"' for did in dids) + "}"
