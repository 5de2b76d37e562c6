"""Source of ``make docs``: the pages of docs/, and the reference that is made from the code.

python scripts/docs.py FOLDER | --reference | --attributes

FOLDER gets a complete source for Sphinx. ``--reference`` writes the pages of docs/reference that are made
from the code, ``--attributes`` only the page of attributes. A test fails if one of them is not current.
The map of the code changes with every docstring, so only FOLDER gets it.
"""

import ast
import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

import click
import typer.main
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.routing import Route
from typing_extensions import is_typeddict

from hydrator import __version__
from hydrator.cli.app import app
from hydrator.cli.commands.report import Report
from hydrator.cli.commands.token import TokenRow
from hydrator.cli.output.network import Network
from hydrator.cli.output.staging import StagingList
from hydrator.config import DmapiSource, FileSource, RucioSource, Settings
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.check.findings import Finding
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.overview.facts import DatasetSource
from hydrator.diagnostics.overview.saved import Reload, Status
from hydrator.diagnostics.why.query import WhyResult
from hydrator.domain.ads import contract
from hydrator.domain.ads.contract import ON_JOBS, ON_RUNS, ON_SLOTS, ON_SLOTS_ONLY
from hydrator.reconcile.state import DatasetChange
from hydrator.reconcile.view import (
    ActionView,
    CatalogueView,
    CycleView,
    DatasetView,
    DemandView,
    FactView,
    HeldLossView,
    LeftOutView,
    PacingView,
    PublisherView,
    ReadBackView,
    SiteView,
)
from hydrator.server.app import Sources, build_app
from hydrator.server.middleware import AuthMiddleware, HttpMetrics, build_cut_counter
from hydrator.submit import pool_config as poolconfig
from hydrator.submit.rapthor.outlook import Outlook

ROOT = Path(__file__).parents[1]
MADE = "*Made from the code by `python scripts/docs.py --reference`.*"

ATTRIBUTES_MADE = "*Made from the code by `python scripts/docs.py --attributes`.*"


SETS_OF_DATASETS = """\
### Sets of datasets

A job asks about one *set*: all datasets that it names. So it looks up one entry, however many these are:
`TARGET.DataLocalitySets[MY.DataLocalityKey] >= 1.0`.

| datasets of the job | key | at a site with half the bytes of L1, and all of L2 |
|---|---|---|
| `lofar:L1` | `lofar:@L1` | `0.5` |
| `lofar:L1`, `lofar:L2`, of the same size | `lofar:@L1,lofar:@L2` | `0.75` |

Names in a ClassAd ignore letter case, so the key has an `@` before each capital letter, `@` and `~`.
The ad has room for 60,000 bytes a line and 240,000 in all: sets first, the most demanded ones before the
others, then `DatasetStates`.
"""


def cell(text: object) -> str:
    """Return *text* for a cell of a table: on one line, with its bars escaped."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [" | ".join(head), "|".join(["---"] * len(head))]
    return "\n".join([*lines, *(" | ".join(map(cell, row)).rstrip() for row in rows)]) + "\n"


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def attributes() -> str:
    """Return the page of the attributes of slots, site ads and jobs."""

    body = ast.parse(inspect.getsource(contract)).body
    texts = {
        getattr(contract, name.target.id): text.value.value
        for name, text in pairwise(body)
        if isinstance(name, ast.AnnAssign) and isinstance(name.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }

    def rows(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        for name in names:
            kind, _, meaning = str(texts[name]).partition(": ")
            yield code(name), kind, meaning

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
    if origin is list:
        return "list"
    words = {"str": "text", "int": "number", "float": "number", "bool": "true or false", "Path": "path"}
    return words.get(getattr(annotation, "__name__", ""), "table")


def value_of(field: FieldInfo) -> str:
    """Return the default of a setting, with the other choices if there are any; without one, its type."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    value = None if field.is_required() else field.get_default(call_default_factory=True)
    if value is None or (isinstance(value, list | dict | tuple) and not value):
        shown = ", ".join(map(code, choices)) or kind_of(field.annotation)
        return f"{shown}, required" if field.is_required() else shown
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    rest = f" ({', '.join(code(one) for one in choices if one != value)})" if choices else ""
    return code(text or (f'"{value}"' if isinstance(value, str | Path) and not choices else value)) + rest


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
    "directory": "folder of the ad files, one for each site",
    "disk_gb": "disk that a job requests",
    "enabled": "false: the daemon ignores this section",
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
        MADE + " A setting without a default shows its type. Relative paths start at the file's folder.\n"
        "The environment has precedence: `HYDRATOR_DAEMON__POLL_SECONDS=10` sets `[daemon] poll_seconds`.\n",
    ]
    for heading, model in sections():
        rows = [
            (code(key), value_of(field), field.description or COMMON_KEYS[key])
            for key, field in model.model_fields.items()
            if not section_of(field.annotation)
        ]
        parts += [f"## `{heading}`\n"]
        parts += [table(("key", "default", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def registry() -> CollectorRegistry:
    """Return a registry with all metrics of the daemon."""
    made = CollectorRegistry()
    Metrics(made, __version__)
    HttpMetrics(made, [Route("/", lambda _: None)])
    build_cut_counter(made)
    return made


def metrics() -> str:
    """Return the page of all metrics, with labels and help."""
    rows = [
        (code(name), ", ".join(getattr(made, "_labelnames", ())), one.documentation)
        for made in registry()._collector_to_names
        for one in made.collect()
        if (name := f"{one.name}_total" if one.type == "counter" else one.name).startswith("hydrator_")
    ]
    more = (
        "`GET /metrics` also has the usual `process_…` of the daemon. [Alerts](../operators/monitoring.md).\n"
    )
    return "\n".join(["# Metrics\n", MADE + " " + more, table(("metric", "labels", "meaning"), rows)])


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


USUAL_OPTIONS = {"--config", "--json", "--help"}


def command_line() -> str:
    """Return the page of all commands with their options, and of the JSON that they print."""
    rows = [
        (code(" ".join([*words, *_arguments_of(one)])), _first_sentence(one.help), _options_of(one))
        for words, one in commands(typer.main.get_command(app), ("hydrator",))
    ]
    return "\n".join(
        [
            "# Commands\n",
            MADE + " `--help` has the meaning of each option, and examples.\n"
            "Configuration: `-c FILE`, else `$HYDRATOR_CONFIG`, else `/etc/classad-hydrator/config.toml`.\n",
            "| exit status | meaning |\n|---|---|",
            "| 0 | done; for `why`: the job would match now, runs, or has run |",
            "| 1 | failed, in whole or in part; for `check`: a finding is a failure |",
            "| 2 | wrong usage or configuration, all problems are listed; or a state that cannot be read |",
            "| 3 | for `why`: the job would match no slot now; `--refuse-nowhere`: no site has all data |\n",
            table(("command", "effect", "options"), rows),
            "## JSON\n",
            (
                "`--json` prints one document on stdout; sentences for people go to stderr.\n"
                "Times are UTC as `2026-11-21T12:00:00Z` (RFC 3339), sizes bytes, unknown values `null`.\n"
                "A new version may add keys.\n"
            ),
            table(
                ("command", "keys"),
                ((code(f"hydrator {name}"), keys_of(shape)) for name, shape in JSON.items()),
            ),
            table(("entry", "keys"), ((code(name), keys_of(shape)) for name, shape in ENTRIES.items())),
        ]
    )


def _arguments_of(command: click.Command) -> list[str]:
    found = [one for one in command.params if one.param_type_name == "argument"]
    return [str(getattr(one, "metavar", None) or str(one.name).upper()) for one in found]


def _options_of(command: click.Command) -> str:
    names = [one.opts[0] for one in command.params if one.param_type_name == "option"]
    return ", ".join(map(code, [name for name in names if name not in USUAL_OPTIONS]))


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split()).split(". ")[0].rstrip(".")


def keys_of(shape: Any) -> str:  # noqa: ANN401 - any annotation
    """Return the keys of a JSON document; for a list, those of its entries."""
    origin, inner = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return keys_of(inner[0])
    if origin is list:
        return f"a list: {keys_of(inner[0])}"
    if is_typeddict(shape):
        return ", ".join(map(code, shape.__annotations__))
    return ", ".join(code(each.name) for each in fields(shape)) if is_dataclass(shape) else "by name"


def http() -> str:
    """Return the page of all HTTP routes, with the token that each needs."""
    app = build_app(Sources(_no_state), CollectorRegistry())
    routes = [route for route in app.routes if isinstance(route, Route)]
    listed = (
        (code(route.path.replace(":path", "")), _role_of(route), _purpose_of(route)) for route in routes
    )
    return "\n".join(
        [
            "# HTTP\n",
            MADE
            + " All are GET. If the server requires tokens, a route needs one with its role; `read` covers"
            " `site`: [security](../operators/security.md#over-http).\n",
            table(("route", "role", "answer"), listed),
        ]
    )


def _role_of(route: Route) -> str:
    return route.app.required_role.value if isinstance(route.app, AuthMiddleware) else "none"


def _purpose_of(route: Route) -> str:
    return (route.endpoint.__doc__ or "").strip().splitlines()[0].removeprefix("Return ")


def _no_state() -> NoReturn:
    raise AssertionError("nobody sends a request to this app")


JSON: Mapping[str, Any] = {
    "once": CycleView,
    "plan": list[ActionView],
    "status": Status,
    "sites": list[SiteView],
    "datasets": list[DatasetView],
    "datasets --why": list[DatasetSource],
    "network": Network,
    "check": list[Finding],
    "why": WhyResult,
    "report": Report,
    "submit rapthor --dry-run": Outlook,
    "token list": list[TokenRow],
    "staging list": StagingList,
}
"""The type of the output by command, with the option that changes the output, if any."""
ENTRIES: Mapping[str, Any] = {
    "catalogues": CatalogueView,
    "publishers": PublisherView,
    "demand": DemandView,
    "pacing": PacingView,
    "loss": HeldLossView,
    "left_out": LeftOutView,
    "read_back": ReadBackView,
    "changes": DatasetChange,
    "sites of a dataset": FactView,
    "credentials": Credential,
    "reload": Reload,
}
"""The types of the entries in these outputs, by their key."""


REFERENCE = {
    "configuration": configuration,
    "metrics": metrics,
    "commands": command_line,
    "http": http,
}
"""By page of docs/reference, the function that builds it."""
REFERENCE_PAGES = ROOT / "docs" / "reference"


def write_reference() -> None:
    """Write the pages of docs/reference that are made from the code."""
    write_attributes()
    for name, made in REFERENCE.items():
        (REFERENCE_PAGES / f"{name}.md").write_text(made(), "utf-8")


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
