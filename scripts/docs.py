"""Source of ``make docs``: the pages of docs/, and the reference that is made from the code.

python scripts/docs.py FOLDER | --reference | --attributes

FOLDER gets a complete source for Sphinx. ``--reference`` writes the pages of docs/reference that are made
from the code, ``--attributes`` only the page of attributes. A test fails if one of them is not current.
The map of the code changes with every docstring, so only FOLDER gets it.
"""

import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, NotRequired, Union, get_args, get_origin, get_type_hints

import click
import typer.main
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.routing import Route
from typing_extensions import is_typeddict

from hydrator import __version__
from hydrator.cli.app import app
from hydrator.cli.commands.outcomes.job_report import Report
from hydrator.cli.commands.token import TokenRow
from hydrator.cli.output.json_models.cycle import ActionJson, OnceJson
from hydrator.cli.output.json_models.facts import (
    DatasetJson,
    DatasetSourceJson,
    SiteJson,
)
from hydrator.cli.output.json_models.status import StatusJson
from hydrator.cli.output.network import Network
from hydrator.cli.output.staging import StagingAnswer, StagingList
from hydrator.config import DmapiSource, FileSource, RucioSource, Settings
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.metrics.staging import StagingMetrics
from hydrator.diagnostics.check.findings import Finding
from hydrator.diagnostics.units import BySchedd, BySite, Title
from hydrator.diagnostics.why.query import WhyResult
from hydrator.domain.ads.contract import ON_JOBS, ON_RUNS, ON_SLOTS, ON_SLOTS_ONLY
from hydrator.server.api import models
from hydrator.server.app import build_app
from hydrator.server.metrics import HttpMetrics, build_cut_counter
from hydrator.server.middleware import AuthMiddleware
from hydrator.submit import pool_config as poolconfig
from hydrator.submit.rapthor.outlook import Outlook

ROOT = Path(__file__).parents[1]
MADE = "*Made from the code by `python scripts/docs.py --reference`.*"

ATTRIBUTES_MADE = "*Made from the code by `python scripts/docs.py --attributes`.*"


SETS_OF_DATASETS = """\
### Sets of datasets

A job asks about one *set*: all datasets that it needs. The daemon knows the sets that queued jobs name, and the datasets of pins and patterns. So a job
looks up one entry, however many datasets it needs: `TARGET.DataLocalitySets[MY.DataLocalityKey] >= 1.0`.

The key of one dataset is its name with an `@` before each capital letter (and `@!` for `@`), because names in a ClassAd ignore letter case. The
key of several datasets is `s` and 20 letters of a hash. If jobs with several datasets have no key (`DataLocalityKey`), or a key that is not
that of their datasets, each of these datasets also has its own entry.

| datasets of the jobs | key | at a site with half the bytes of L1, and L2 |
|---|---|---|
| `lofar:L1` | `lofar:@L1` | `DataLocalitySets = ['lofar:@L1'=0.5]` |
| `lofar:L1`, `lofar:L2` of the same size | `spjzzwjzb7ivn4emvyemc` | `DataLocalitySets = [spjzzwjzb7ivn4emvyemc=0.75]` |

Another example: L1 is complete at UK and half at CAM. All of CAM's slots are free, UK's slots have work for 20 minutes.

| attribute of CAM's ad | example | meaning |
|---|---|---|
| `DataLocalitySets` | `['lofar:@L1'=0.5]` | half of L1 is at CAM |
| `DataLocalitySetsAsOf` | `['lofar:@L1'=1795420800]` | the daemon read this at 2026-11-23 08:00 UTC, and newer facts about other datasets later |
| `DataLocalityReadSeconds` | `['lofar:@L1'=240]` | a job at CAM could have read the other half after 4 min |
| `DataLocalityReadFrom` | `['lofar:@L1'="UK"]` | from UK |
| `DataLocalityQueueSeconds` | `['lofar:@L1'=1200]` | at UK the job would start after 20 min |
| `DataLocalityOwnQueueSeconds` | `0` | no job whose data is at CAM is waiting |
| `DataLocalityEstimatesUntil` | `1795423200` | jobs use the estimates until 08:40 UTC |

Room in the ad (60,000 bytes a line, 240,000 in all) is for sets first: those of which the site has data, then those of which it has nothing, each time the most demanded first.
Then come the `DatasetStates`, the most demanded datasets first, until the ad is full. An ad holds 1000 sets with all their
entries.
"""  # noqa: E501


def cell(text: object) -> str:
    """Return *text* for a cell of a table: on one line, with its bars escaped."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in rows)]) + "\n"


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def attributes() -> str:
    """Return the page of the attributes of slots, site ads and jobs."""

    def rows(meanings: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
        return ((code(name), kind, meaning) for name, (kind, meaning) in meanings.items())

    head = ("attribute", "type", "meaning")
    return "\n".join(
        [
            "# Attributes\n",
            ATTRIBUTES_MADE + " If one of these names or its meaning changes, `DataLocalityVersion` grows.\n",
            "## On slots, and on site ads\n",
            table(head, rows(ON_SLOTS)),
            SETS_OF_DATASETS,
            "Only slots have these:\n",
            table(head, rows(ON_SLOTS_ONLY)),
            'Only site ads have `MyType` (string): "DataLocality".\n',
            "## On jobs\n",
            table(head, rows(ON_JOBS)),
            "## On jobs that `hydrator submit` makes\n",
            table(head, rows(ON_RUNS)),
            (
                "Users cannot change these attributes of a queued job: "
                f"{', '.join(map(code, poolconfig.IMMUTABLE_ATTRIBUTES))}.\n"
            ),
        ]
    )


def kind_of(annotation: Any) -> str:  # noqa: ANN401
    """Return a type in words."""
    if get_origin(annotation) is Annotated:
        return kind_of(get_args(annotation)[0])
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in {Union, UnionType}:
        return " or ".join(kind_of(arg) for arg in args if arg is not NoneType)
    if origin is Literal:
        return ", ".join(f'"{arg}"' for arg in args)
    if origin is list:
        return f"list of {kind_of(args[0])}"
    if origin is dict:
        return "table"
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Path": "path"}
    return words.get(getattr(annotation, "__name__", ""), "table")


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value = field.get_default(call_default_factory=True)
    if value is None or (isinstance(value, list | dict) and not value):
        return ""
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    return code(text or (f'"{value}"' if isinstance(value, str | Path) else value))


COMMON_KEYS = {
    "account": "account at the catalogue",
    "ad_bytes": "largest size of a site's ad; the daemon leaves out what does not fit",
    "audience": "audience of the requested token",
    "auth": "how the daemon logs in",
    "auth_url": "URL of the server that issues tokens; default: url",
    "ca_cert": "file with the certificate authorities of the server, in place of the system's",
    "client_id": "the daemon's client id at the identity provider",
    "client_secret_file": "file with the secret of client_id",
    "cpus": "cores that a job requests",
    "destination": "site that reads",
    "directory": "folder of the ad files, one for each site",
    "disk_gb": "disk that a job requests",
    "enabled": "false: the daemon ignores this section",
    "format": "form of a line of the log; auto: text on a terminal, otherwise json",
    "gbit_per_second": "rate of the link",
    "host": "host name or address",
    "level": "the least severe log lines that are written",
    "lifetime_seconds": "the collector forgets an ad that was not sent again for this long",
    "line_bytes": "largest size of one line of the hook's output; HTCondor cuts off longer lines",
    "memory_gb": "memory that a job requests",
    "name": "name of this catalogue in logs, metrics and output",
    "password_file": "file with the password of username",
    "path": "the file",
    "port": "port number",
    "scope": "scope of the requested token",
    "site": "name of the site, as in the slots",
    "source": "site that the data is read from",
    "timeout_seconds": "time limit of one call",
    "tls": "true: the connection is encrypted",
    "token_file": "file with a token, which another program renews",
    "type": "kind of the catalogue",
    "url": "URL of the server",
    "username": "user name, for a login by password",
    "vo": "virtual organisation, at a server that has several",
}
"""Meaning of keys that have no description of their own: they mean the same in each section."""

UNITS = {
    "gbit_per_second": "10^9 bit/s",
    "seconds": "s",
    "minutes": "min",
    "hours": "h",
    "days": "d",
    "bytes": "bytes",
    "kb": "10^3 bytes",
    "mb": "10^6 bytes",
    "gb": "10^9 bytes",
    "tb": "10^12 bytes",
    "per_second": "per s",
}
"""By the end of a key, the unit of its value."""


def unit_of(key: str) -> str:
    """Return the unit of the value of *key*, empty for a value without one."""
    return next((unit for end, unit in UNITS.items() if f"_{key}".endswith(f"_{end}")), "")


def bounds_of(annotation: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield the bounds in the types of a union, such as ``Seconds | None``."""
    if get_origin(annotation) is Annotated:
        for each in get_args(annotation)[1:]:
            yield from getattr(each, "metadata", [each])
    elif get_origin(annotation) in {Union, UnionType}:
        for each in get_args(annotation):
            yield from bounds_of(each)


def range_of(field: FieldInfo) -> str:
    """Return the smallest and the largest allowed value, or the allowed lengths of a text."""
    bounds = [*field.metadata, *bounds_of(field.annotation)]
    found = {
        name: value
        for bound in bounds
        for name in ("gt", "ge", "lt", "le", "min_length", "max_length")
        if (value := getattr(bound, name, None)) is not None
    }
    signs = {"gt": "> ", "ge": "≥ ", "lt": "< ", "le": "≤ "}
    words = [f"{sign}{found[name]:g}" for name, sign in signs.items() if name in found]
    noun = "characters" if field.annotation is str else "entries"
    words += [f"at least {found['min_length']} {noun}"] if "min_length" in found else []
    words += [f"at most {found['max_length']} {noun}"] if "max_length" in found else []
    return ", ".join(words)


def section_of(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401
    """Return the section under a key, also of a list of sections; None for a plain value."""
    if get_origin(annotation) is list:
        return section_of(get_args(annotation)[0])
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every table of the configuration with its TOML heading."""

    def below(name: str, model: type[BaseModel], *, several: bool) -> Iterator[tuple[str, type[BaseModel]]]:
        yield (f"[[{name}]]" if several else f"[{name}]"), model
        for key, field in model.model_fields.items():
            if inner := section_of(field.annotation):
                yield from below(f"{name}.{key}", inner, several=get_origin(field.annotation) is list)
            is_table = get_origin(field.annotation) is dict
            if is_table and (inner := section_of(get_args(field.annotation)[1])):
                yield from below(f"{name}.{key}.NAME", inner, several=False)

    for key, field in Settings.model_fields.items():
        if key == "catalogue":
            for source in (FileSource, RucioSource, DmapiSource):
                (kind,) = get_args(source.model_fields["type"].annotation)
                yield f'[[catalogue]] type = "{kind}"', source
        elif inner := section_of(field.annotation):
            yield from below(key, inner, several=get_origin(field.annotation) is list)


def configuration() -> str:
    """Return the page of all keys, by section."""
    parts = [
        "# Configuration\n",
        MADE
        + " `config.example.toml` shows every key in its place. Relative paths start at the file's folder."
        " The environment has precedence: `HYDRATOR_DAEMON__POLL_SECONDS=10` sets `[daemon] poll_seconds`.\n",
    ]
    for heading, model in sections():
        doc = (model.__doc__ or "").strip().splitlines()[0]
        rows = [
            (
                code(key),
                kind_of(field.annotation),
                unit_of(key),
                range_of(field),
                default_of(field),
                field.description or COMMON_KEYS[key],
            )
            for key, field in model.model_fields.items()
            if not section_of(field.annotation)
        ]
        parts += [
            f"## `{heading}`\n",
            f"{doc}\n",
            table(("key", "type", "unit", "range", "default", "meaning"), rows) if rows else "",
        ]
    return "\n".join(parts)


def registry() -> CollectorRegistry:
    """Return a registry with all metrics of the daemon."""
    made = CollectorRegistry()
    Metrics(made, __version__)
    HttpMetrics(made, [Route("/", lambda _: None)])
    build_cut_counter(made)
    StagingMetrics(made)
    return made


def metrics() -> str:
    """Return the page of all metrics, with type and help."""
    rows = [
        (code(f"{one.name}_total" if one.type == "counter" else one.name), one.type, one.documentation)
        for one in registry().collect()
    ]
    more = "Labels, alerts and what to do when one fires: [metrics and alerts](../metrics.md).\n"
    return "\n".join(["# Metrics\n", MADE + " " + more, table(("metric", "type", "meaning"), rows)])


def commands(
    command: click.Command, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name in sorted(inner):
        yield from commands(inner[name], (*words, name))


def command_line() -> str:
    """Return the page of all commands with their arguments and options."""
    parts = [
        "# Commands\n",
        MADE + " Exit status: 0 done, 1 failed, 2 wrong usage or configuration. `--json` is for programs.\n",
    ]
    for words, command in commands(typer.main.get_command(app), ("hydrator",)):
        rows = [
            (code(_usage(one)), _describe_option(one))
            for one in command.params
            if not getattr(one, "hidden", False)
        ]
        parts += [f"## `{' '.join(words)}`\n", f"{' '.join((command.help or '').split())}\n"]
        parts += [table(("argument or option", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def _usage(parameter: Any) -> str:  # noqa: ANN401 - click's, or typer's own copy of it
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _describe_option(parameter: Any) -> str:  # noqa: ANN401
    default = parameter.default
    shown = default not in (None, False, True, ()) and isinstance(default, str | int | float | Path)
    return (parameter.help or "") + (f" Default: `{default}`." if shown else "")


def http() -> str:
    """Return the page of all HTTP routes with their roles, and of the keys of their answers."""
    app = build_app(_no_state, CollectorRegistry())
    routes = [route for route in app.routes if isinstance(route, Route)]
    listed = (
        (code(f"{_method_of(route)} {route.path.replace(':path', '')}"), _role_of(route), _purpose_of(route))
        for route in routes
    )
    return "\n".join(
        [
            "# HTTP\n",
            MADE + "\n",
            "## Routes and roles\n",
            (
                "If the server requires tokens, a route needs a token with its role. The role `read` also"
                " covers `site`: [security](../security.md#over-http).\n"
            ),
            table(("route", "role", "purpose"), listed),
            "## Answers\n",
            *key_tables(*HTTP_ANSWERS),
        ]
    )


HTTP_ANSWERS = (
    models.Sites, models.Datasets, models.Sets, models.Health, models.Ready,
    models.Error,
)  # fmt: skip


def _method_of(route: Route) -> str:
    return "POST" if "POST" in (route.methods or ()) else "GET"


def _role_of(route: Route) -> str:
    return route.app.required_role.value if isinstance(route.app, AuthMiddleware) else "none"


def _purpose_of(route: Route) -> str:
    return (route.endpoint.__doc__ or "").strip().splitlines()[0]


def _no_state() -> NoReturn:
    raise AssertionError("nobody sends a request to this app")


def key_tables(*roots: Any) -> Iterator[str]:  # noqa: ANN401 - any annotation
    """Yield a table of keys for each class in the annotations *roots*, and for the classes of their keys."""
    for one in keyed_classes(*roots):
        first, meanings = key_meanings(one)
        yield f"### `{one.__name__}`\n"
        yield f"{first}\n"
        hints = get_type_hints(one, include_extras=True)
        yield table(
            ("key", "type", "meaning"), [(code(k), words_of(hints[k]), m) for k, m in meanings.items()]
        )


def keyed_classes(*roots: Any) -> list[type]:  # noqa: ANN401
    """Return the classes in the annotations *roots*, and those of their keys, each once."""
    seen: dict[type, None] = {}
    for root in roots:
        _collect_classes(root, seen)
    return list(seen)


def key_meanings(one: type) -> tuple[str, dict[str, str]]:
    """Return the first line of a class's docstring, and the meaning of each key in its ``Attributes:``."""
    meanings: dict[str, str] = {}
    for base in (*getattr(one, "__orig_bases__", ()), *one.__bases__):
        if is_keyed(base):
            meanings |= key_meanings(base)[1]
    first, _, rest = inspect.cleandoc(one.__doc__ or "").partition("\n")
    for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", rest, re.MULTILINE):
        meanings[name] = " ".join(text.split())
    return first, meanings


def is_keyed(annotation: Any) -> bool:  # noqa: ANN401
    """Return whether *annotation* is a class whose fields are the keys of a JSON object."""
    return isinstance(annotation, type) and (is_typeddict(annotation) or is_dataclass(annotation))


def _collect_classes(annotation: Any, seen: dict[type, None]) -> None:  # noqa: ANN401
    if is_keyed(annotation):
        if annotation not in seen:
            seen[annotation] = None
            for each in get_type_hints(annotation, include_extras=True).values():
                _collect_classes(each, seen)
    elif get_origin(annotation) is not Literal:
        for each in get_args(annotation):
            _collect_classes(each, seen)


def words_of(annotation: Any) -> str:  # noqa: ANN401
    """Return the type of a key in words, such as ``list of text``."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        titles = [each.text for each in inner[1:] if isinstance(each, Title)]
        if get_origin(inner[0]) is dict:
            return f"{words_of(get_args(inner[0])[1])} by {titles[0]}"
        return titles[0] if titles else words_of(inner[0])
    if origin is NotRequired:
        return f"{words_of(inner[0])}, or left out"
    if origin in {Union, UnionType}:
        return ", or ".join(words_of(each) for each in inner)
    if origin is Literal:
        return ", ".join(str(each).lower() if isinstance(each, bool) else str(each) for each in inner)
    if origin in {list, tuple, frozenset, Sequence}:
        return f"list of {words_of(inner[0])}"
    if origin in {dict, Mapping}:
        return f"{words_of(inner[1])} by name"
    if is_keyed(annotation):
        return code(annotation.__name__)
    words = {
        int: "whole number",
        float: "number",
        bool: "true or false",
        datetime: "Unix s",
        NoneType: "null",
    }
    return words.get(annotation, "any value" if annotation is Any else "text")


def json_answers() -> str:
    """Return the page of all keys of the ``--json`` output."""
    listed = ((code(f"hydrator {name}"), words_of(shape)) for name, shape in JSON_ANSWERS.items())
    return "\n".join(
        [
            "# JSON\n",
            MADE + " The output of `--json`. Times are in Unix s. A new version may add keys.\n",
            table(("command", "output"), listed),
            "## Keys\n",
            *key_tables(*JSON_ANSWERS.values()),
        ]
    )


JSON_ANSWERS: Mapping[str, Any] = {
    "once": OnceJson,
    "plan": list[ActionJson],
    "status": StatusJson,
    "sites": list[SiteJson],
    "datasets": list[DatasetJson],
    "datasets --why": list[DatasetSourceJson],
    "network": Network,
    "approve": BySite[int],
    "check": list[Finding],
    "why": WhyResult,
    "report": Report,
    "run-anywhere": BySchedd[int],
    "submit rapthor --dry-run": Outlook,
    "submit rapthor --as ad": Annotated[dict[str, Any], Title("ATTRIBUTE")],
    "token list": list[TokenRow],
    "staging list": StagingList,
    **dict.fromkeys(
        (f"staging {name}" for name in ("approve", "reject", "cancel", "stop", "resume")), StagingAnswer
    ),
}
"""The type of the output by command, with the option that changes the output, if any."""


REFERENCE = {
    "configuration": configuration,
    "metrics": metrics,
    "commands": command_line,
    "json": json_answers,
    "http": http,
}
"""By page of docs/reference/generated, the function that builds it."""
GENERATED = ROOT / "docs" / "reference" / "generated"


def write_reference() -> None:
    """Write the pages of docs/reference that are made from the code."""
    write_attributes()
    GENERATED.mkdir(exist_ok=True)
    for name, made in REFERENCE.items():
        (GENERATED / f"{name}.md").write_text(made(), "utf-8")


def write_attributes() -> None:
    """Write the page of attributes."""
    (ROOT / "docs" / "reference" / "attributes.md").write_text(attributes(), "utf-8")


CONF = """\
project = "classad-hydrator"
author = "the classad-hydrator authors"
release = "{version}"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_theme_options = {{"show_powered_by": False, "description": "Data locality for HTCondor"}}
html_copy_source = False
html_use_index = False
"""


def keep_links_inside(text: str, page: Path) -> str:
    """Return *text* of *page* (a path below docs/) with links to files outside docs/ as plain names.

    Those files are not beside the built pages.
    """

    def replace(match: re.Match[str]) -> str:
        target = os.path.normpath(page.parent / match[2].partition("#")[0])
        return f"{match[1]} (`{target.removeprefix('../')}`)" if target.startswith("..") else match[0]

    return re.sub(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)", replace, text)


def prepare(folder: Path) -> None:
    """Write the source for Sphinx into *folder*; replace the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("docs.*", "_*"))
    pages = []
    for page in sorted(folder.rglob("*.md")):
        path = page.relative_to(folder)
        page.write_text(keep_links_inside(page.read_text("utf-8"), path), "utf-8")
        if path.stem != "index":
            pages.append(str(path.with_suffix("")))
    index = folder / "index.md"
    listed = [page for page in re.findall(r"\]\(([\w/-]+)\.md\)", index.read_text("utf-8")) if page in pages]
    order = [*dict.fromkeys([*listed, *pages])]
    tree = "\n".join(["", "```{toctree}", ":hidden:", ":maxdepth: 1", "", *order, "```", ""])
    index.write_text(index.read_text("utf-8") + tree, "utf-8")
    (folder / "conf.py").write_text(CONF.format(version=__version__), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: docs.py FOLDER | --reference | --attributes")
    if sys.argv[1] == "--attributes":
        write_attributes()
    elif sys.argv[1] == "--reference":
        write_reference()
    elif sys.argv[1].startswith("-"):
        sys.exit("usage: docs.py FOLDER | --reference | --attributes")
    else:
        prepare(Path(sys.argv[1]))
