"""Bodies of ``POST /v1/locality`` and ``POST /v1/locality/set``: checks and limits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, parse_did

from ...responses import HttpError
from .models import MAX_LOCALITY_DATASETS, LocalityQuery, SetLocalityQuery

MAX_LOCALITY_BYTES: Final = 6 * 2**20
"""Largest body of a request, in bytes: room for 10,000 names of MAX_DID_CHARS characters, and 1,000 sites."""


@dataclass(frozen=True, slots=True)
class LocalityRequest:
    """A question about datasets, sorted and each once; an empty ``sites`` means all sites.

    ``cpus`` are the cores of one more job. A page has at most ``limit`` datasets. ``facts`` are the client's
    facts about datasets that the daemon does not poll: the bytes of each, and its shares on disk by site.
    """

    dids: tuple[Did, ...]
    sites: frozenset[Site] = frozenset()
    cpus: int = 1
    limit: int = MAX_LOCALITY_DATASETS
    after: Did | None = None
    facts: Mapping[Did, tuple[int, Mapping[Site, float]]] = field(default_factory=dict)

    @property
    def dids_of_page(self) -> tuple[Did, ...]:
        """Return the datasets after ``after``, of this page and of the next pages."""
        after = self.after
        return self.dids if after is None else tuple(did for did in self.dids if did > after)


def parse_locality_body(body: bytes, *, is_set: bool) -> LocalityRequest:
    """Parse the JSON text *body*; *is_set* if its datasets are one set, which has no pages.

    Raises:
        HttpError: 400, with one sentence about the first problem.
    """
    try:
        fields = _adapter(is_set=is_set).validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise HttpError(400, "bad body", _describe(first)) from error
    return LocalityRequest(
        tuple(sorted({_parse_name(text) for text in fields["datasets"]})),
        frozenset(map(Site, fields.get("sites", ()))),
        fields.get("cpus", 1),
        fields.get("limit", MAX_LOCALITY_DATASETS),
        _parse_name(fields["after"]) if "after" in fields else None,
        {
            _parse_name(name): (each["bytes"], {Site(site): share for site, share in each["sites"].items()})
            for name, each in fields.get("facts", {}).items()
        },
    )


@cache
def _adapter(*, is_set: bool) -> TypeAdapter[Any]:
    return TypeAdapter(SetLocalityQuery if is_set else LocalityQuery)


def _parse_name(text: str) -> Did:
    try:
        return parse_did(text)
    except BadDid as error:
        raise HttpError(400, "bad DID", str(error)) from error


def _describe(problem: Mapping[str, Any]) -> str:
    """Return one sentence about a problem that pydantic found."""
    place = ".".join(map(str, problem["loc"]))
    if problem["type"] == "json_invalid":
        return f'send one JSON object, such as {{"datasets": ["scope:name"]}}: {problem["msg"]}'
    if problem["type"] == "string_pattern_mismatch" or problem["type"] == "string_too_long":
        detail = _describe_name(problem["input"])
        if detail and problem["loc"][0] in {"datasets", "after"}:
            return f"{place}: {detail}"
    if problem["type"] == "missing":
        return f'the body has no "{place}": send {{"datasets": ["scope:name"]}}'
    if problem["type"] == "extra_forbidden":
        return f"the body has an unknown key {place[:100]!r}; {_list_keys(('datasets', 'sites', 'cpus'))}"
    return f"{place or 'body'}: {problem['msg']}"


def _describe_name(text: object) -> str:
    try:
        parse_did(str(text))
    except BadDid as error:
        return str(error)
    return ""


def _list_keys(keys: Iterable[str]) -> str:
    return f"the keys are {', '.join(keys)}; for pages also limit and after"
