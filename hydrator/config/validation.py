"""Problems of a configuration: one sentence each, with its key."""

import difflib
import re
from collections import Counter
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from hydrator.domain.errors import BadDid
from hydrator.domain.model import parse_did
from hydrator.domain.text import shorten

from .catalogues import DmapiSource, FileSource, RucioSource
from .settings import Settings

_SECRET_KEY = re.compile(r"(?i)(password|token|key|secret|client_secret|private_key|tls_key|passphrase)")
_NO_SECRETS = (
    "a secret is not allowed in the configuration: write it to a file that only the daemon may read,"
    " and set {}_file to the path of that file"
)


_PYTHON_TYPE = re.compile(r" (?:for|of) <class '[\w.]+'>")
"""The name of a type in pydantic's messages about invalid paths."""


def describe_problem(detail: ErrorDetails) -> str:
    """Return a sentence about a problem that pydantic found, with the key as it is written in the file."""
    loc = list(detail["loc"])
    # pydantic inserts the catalogue's type (catalogue, 0, rucio, url), which is not a key in the file
    place = loc[:2] + loc[3:] if loc[0] == "catalogue" and len(loc) > 2 else loc
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    if detail["type"] == "extra_forbidden":
        secret = _SECRET_KEY.fullmatch(str(loc[-1]))
        return (
            f"{key}: {_NO_SECRETS.format(secret[1])}" if secret else f"{key}: unknown key{_suggest_key(loc)}"
        )
    if key == "catalogue" and isinstance(detail["input"], dict):
        return "catalogue: [catalogue] has single brackets; write [[catalogue]] with double brackets"
    message = _PYTHON_TYPE.sub("", detail["msg"].removeprefix("Value error, "))
    given = detail.get("input")
    if detail["type"] == "catalogue_type" and isinstance(given, dict):
        from .plugins import installed_types

        given = given.get("type")
        message += f"; installed: {', '.join(sorted(installed_types())) or 'none'}"
    shown = f" (it is {shorten(_as_toml(given))})" if isinstance(given, str | int | float | bool) else ""
    return f"{key}: {message[0].lower()}{message[1:]}{shown}"


def _as_toml(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _suggest_key(location: list[str | int]) -> str:
    model: Any = Settings
    if location[0] == "catalogue":
        model, location = (
            {"file": FileSource, "rucio": RucioSource, "dmapi": DmapiSource}.get(str(location[2])),
            location[3:],
        )
    for part in location[:-1]:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(part)
            model = field.annotation if field else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return ""
    near = difflib.get_close_matches(str(location[-1]), model.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(model.model_fields)}"


def cross_checks(settings: Settings) -> list[str]:
    """Return the problems of sections that do not fit together."""
    problems = []
    if not settings.catalogue and not settings.submit.daemon_url:
        problems.append(
            "catalogue: none configured; where jobs are submitted, add daemon_url, the daemon's address, to"
            ' [submit]; for the daemon add [[catalogue]] with type = "file" or "rucio"'
        )
    names = Counter(one.name for one in settings.catalogue)
    problems += [
        f"catalogue: the name {name!r} is used {count} times; give each a unique name"
        for name, count in sorted(names.items())
        if count > 1
    ]
    for number, pin in enumerate(settings.demand.pins):
        try:
            parse_did(pin, settings.daemon.default_scope)
        except BadDid as bad:
            problems.append(f"demand.pins[{number}]: {bad}")
    publish, staging = settings.publish, settings.staging
    has_publisher = publish.collector.enabled or publish.file.enabled or publish.http.enabled
    if not (has_publisher or publish.sites_file or publish.slot_merge):
        problems.append(
            "publish: no publisher is enabled; set enabled = true in publish.collector,"
            " publish.file or publish.http"
        )
    unknown = staging.catalogues.keys() - names
    problems += [f"staging.catalogues.{name}: no [[catalogue]] has this name" for name in sorted(unknown)]
    if staging.mode != "off" and not (staging.catalogues and staging.sites):
        problems.append(
            "staging.mode: nothing is switched on; add [staging.catalogues.NAME] and [staging.sites.NAME]"
        )
    if staging.mode != "off" and not settings.demand.ask_schedds:
        problems.append("staging.mode: the daemon must read the jobs' needs; set demand.ask_schedds = true")
    return problems
