"""What ``make docs`` builds from: the pages of docs/, and a reference that is made from the code each time.

python scripts/docs.py FOLDER

FOLDER gets a whole source for Sphinx. Nothing of the reference is kept, so it cannot be older than the code.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import typer.main
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.routing import Route

from hydrator import __version__
from hydrator.cli.app import app
from hydrator.cli.output import json_schema as shapes
from hydrator.config import DmapiSource, FileSource, RucioSource, Settings
from hydrator.daemon.background.desired_sites import DesiredSitesMetrics
from hydrator.daemon.event_listener import EventMetrics
from hydrator.daemon.metrics import Metrics
from hydrator.server.api import openapi
from hydrator.server.metrics import HttpMetrics, build_cut_counter
from hydrator.submit import pool_config as poolconfig
from scripts import architecture

ROOT = Path(__file__).parents[1]
MADE = "*Made from the code by `make docs`.*"

ON_SLOTS = {
    "AvailableDatasets": ("list of string", "DIDs (`scope:name`) complete on disk at the site; sorted"),
    "DatasetStates": (
        "nested ad, DID to string",
        "demanded datasets: `AVAILABLE`, `STAGING`, `PARTIAL`, `NEARLINE`, `STUCK`, `UNKNOWN`",
    ),
    "DatasetFractions": ("nested ad, DID to real", "the share on disk, where it is neither 0 nor 1"),
    "DatasetAsOf": (
        "nested ad, DID to Unix s",
        "when a fact was read, where that is before `DataLocalityAsOf`",
    ),
    "DataLocalitySite": ("string", "the site this ad speaks for"),
    "DataLocalityAsOf": (
        "integer, Unix s",
        "when the site was last read completely; never in the future",
    ),
    "DataLocalityGeneration": ("integer", "changes when, and only when, the content does; never goes back"),
    "DataLocalityTruncated": ("boolean", "the size budget left datasets out"),
    "DataLocalityTrust": ("real, 0 to 1", "the share of audited facts that were true"),
    "DataLocalityVersion": ("integer", "of this contract"),
}
"""By attribute of a site's ad, its type and meaning; a test compares the names with an ad that is made."""
ON_JOBS = {
    "RequiredDatasets": ("list of string", "DIDs that the job reads"),
    "RequiredBytes": ("nested ad, DID to integer, bytes", "sizes where known, to weigh the rank"),
    "RequiredDatasetsCSV": ("string", "the same list for GlideinWMS frontends"),
    "DataLocality": ("string", "`require`, `wait` or `prefer`"),
    "DataLocalityMaxWait": ("integer, s", "how long `wait` holds out, or `prefer` settles"),
    "DataLocalityAnyAfter": ("integer, Unix s", "what the transform makes of it: from then on, anywhere"),
    "DataLocalityMaxAge": ("integer, s", "facts older than this do not count"),
    "DataLocalityHere": (
        "expression",
        "the locality clause of Requirements; `hydrator release` makes it true",
    ),
    "DataLocalityRank": ("expression, 0 to 1", "the share of required bytes at the slot's site"),
    "DataLocalitySpelled": (
        "expression, boolean",
        "true beside a slot that spells the datasets with the job's letter case (`DatasetLetters`)",
    ),
    "DataLocalityTransformed": ("boolean", "the schedd's transform has been here"),
    "DataLocalityDesiredSites": ("boolean", "asks for `DESIRED_Sites`, where the pool has that on"),
    "DataLocalityDesiredSitesKept": (
        "nested ad",
        "the daemon's mark: what it wrote, and what stood there before",
    ),
}

ON_RUNS = {
    "RapthorRun": ("string", "jobs of one run, which keeps later steps where the first one wrote"),
    "DataLocalityPathSites": ("string", "the sites that have a path for all that a Rapthor run reads"),
    "GPUPreference": ("integer", "a GPU first, else many cores"),
}
"""On jobs that `hydrator submit` makes, besides."""
ATTRIBUTES_MADE = "*Made from the code by `python scripts/docs.py --attributes`.*"


def cell(text: object) -> str:
    """*text* in a cell of a table: one line, its bars told apart from the table's."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in rows)]) + "\n"


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def attributes() -> str:
    """On slots and site ads, and on jobs."""

    def rows(told: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
        return ((code(name), kind, meaning) for name, (kind, meaning) in told.items())

    head = ("attribute", "type", "meaning")
    return "\n".join(
        [
            "# Attributes\n",
            ATTRIBUTES_MADE + " These names are a contract: a change of one moves `DataLocalityVersion`.\n",
            "## On slots, and on site ads\n",
            table(head, rows(ON_SLOTS)),
            "On slots, `DataLocalityTrouble` (string): why the hook's last run failed, else undefined.\n",
            "On slots, `DatasetLetters` (string): the letters of the names in `DatasetStates`.\n",
            "Where letters differ in case only, the names too. So `lofar:l1` does not match `Lofar:L1`.\n",
            "On slots, `DataLocalityVia` (string): `hook` or `merge`.\n",
            'On site ads, `MyType` (string): "DataLocality".\n',
            "## On jobs\n",
            table(head, rows(ON_JOBS)),
            "## On jobs that `hydrator submit` makes\n",
            table(head, rows(ON_RUNS)),
            f"Nobody may edit on a queued job: {', '.join(map(code, poolconfig.IMMUTABLE_ATTRIBUTES))}.\n",
        ]
    )


def kind_of(annotation: Any) -> str:  # noqa: ANN401
    """A type in words."""
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
        return "*needed*"
    value = field.get_default(call_default_factory=True)
    if value is None or (isinstance(value, list | dict) and not value):
        return ""
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    return code(text or (f'"{value}"' if isinstance(value, str | Path) else value))


def section_of(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401
    """The section that a key holds, or a list of them."""
    if get_origin(annotation) is list:
        return section_of(get_args(annotation)[0])
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Every table of the configuration, with the heading that TOML has for it."""

    def below(name: str, model: type[BaseModel], *, several: bool) -> Iterator[tuple[str, type[BaseModel]]]:
        yield (f"[[{name}]]" if several else f"[{name}]"), model
        for key, field in model.model_fields.items():
            if inner := section_of(field.annotation):
                yield from below(f"{name}.{key}", inner, several=get_origin(field.annotation) is list)

    for key, field in Settings.model_fields.items():
        if key == "catalogue":
            for source in (FileSource, RucioSource, DmapiSource):
                (kind,) = get_args(source.model_fields["type"].annotation)
                yield f'[[catalogue]] type = "{kind}"', source
        elif inner := section_of(field.annotation):
            yield from below(key, inner, several=get_origin(field.annotation) is list)


def configuration() -> str:
    """Every key, by section."""
    parts = [
        "# Configuration\n",
        MADE + " `config.example.toml` shows every key in its place; paths count from the file's folder;"
        " `HYDRATOR_DAEMON__POLL_SECONDS=10` in the environment outranks `[daemon] poll_seconds`.\n",
    ]
    for heading, model in sections():
        doc = (model.__doc__ or "").strip().splitlines()[0]
        rows = [
            (code(key), kind_of(field.annotation), default_of(field), field.description or "")
            for key, field in model.model_fields.items()
            if not section_of(field.annotation)
        ]
        parts += [
            f"## `{heading}`\n",
            f"{doc}\n",
            table(("key", "type", "default", "meaning"), rows) if rows else "",
        ]
    return "\n".join(parts)


def registry() -> CollectorRegistry:
    """Everything that the daemon exports."""
    made = CollectorRegistry()
    Metrics(made, __version__)
    HttpMetrics(made, [Route("/", lambda _: None)])
    build_cut_counter(made)
    EventMetrics(made)
    DesiredSitesMetrics(made)
    return made


def metrics() -> str:
    """Every metric, with its type and help."""
    rows = [
        (code(f"{one.name}_total" if one.type == "counter" else one.name), one.type, one.documentation)
        for one in registry().collect()
    ]
    more = "Labels, alerts and what to do when one fires: [metrics and alerts](../metrics.md).\n"
    return "\n".join(["# Metrics\n", MADE + " " + more, table(("metric", "kind", "tells"), rows)])


def commands(
    command: click.Command, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, with the words that lead to it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name in sorted(inner):
        yield from commands(inner[name], (*words, name))


def command_line() -> str:
    """Every command with its arguments and options."""
    parts = [
        "# Commands\n",
        MADE + " Exit status: 0 done, 1 failed, 2 wrong usage or configuration. `--json` is for programs.\n",
    ]
    for words, command in commands(typer.main.get_command(app), ("hydrator",)):
        rows = [
            (code(_usage(one)), _told(one)) for one in command.params if not getattr(one, "hidden", False)
        ]
        parts += [f"## `{' '.join(words)}`\n", f"{' '.join((command.help or '').split())}\n"]
        parts += [table(("argument or option", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def _usage(parameter: Any) -> str:  # noqa: ANN401 - click's, or typer's own copy of it
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _told(parameter: Any) -> str:  # noqa: ANN401
    default = parameter.default
    shown = default not in (None, False, True, ()) and isinstance(default, str | int | float | Path)
    return (parameter.help or "") + (f" Default: `{default}`." if shown else "")


def http() -> str:
    """Every route, and what it may answer."""
    document = openapi.build_openapi()
    parts = [
        "# HTTP\n",
        MADE + " `GET /v1/openapi.json` is the same for programs; [security](../security.md): who may ask.\n",
    ]
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            if method == "head":
                continue
            parts += [f"## `{method.upper()} {path}`\n", f"{told['summary']}\n"]
            rows = [
                (status, _answer(document, answer)) for status, answer in sorted(told["responses"].items())
            ]
            asked = [
                (code(one["name"]), one["in"], one.get("description", ""))
                for one in told.get("parameters", [])
            ]
            parts += [table(("parameter", "in", "meaning"), asked)] if asked else []
            parts.append(table(("status", "meaning"), rows))
    return "\n".join(parts)


def _answer(document: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return str(answer.get("description", ""))


def json_shapes() -> str:
    """What every command prints with --json, key by key."""
    parts = [
        "# JSON\n",
        MADE
        + " What `--json` prints. Keys are a contract: they are added, never renamed or removed, without a"
        " word in the CHANGELOG. `a[].b` is a key of each object of a list, `a.SITE.b` one below a site's"
        " name.\n",
    ]
    for name, shape in shapes.SCHEMAS.items():
        rows = [(code(key), kind, meaning) for key, kind, meaning in shapes.walk_keys(shape)]
        parts += [f"## `hydrator {name}`\n", f"{shapes.type_text(shape).capitalize()}.\n"]
        parts += [table(("key", "type", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def code_map() -> str:
    """Return the map of the code, with its picture."""
    return architecture.markdown(picture=architecture.PICTURE)


REFERENCE = {
    "configuration": configuration,
    "metrics": metrics,
    "commands": command_line,
    "json": json_shapes,
    "http": http,
    "code": code_map,
}
"""By page of the reference, what makes it."""

CONF = """\
project = "classad-hydrator"
author = "the classad-hydrator authors"
release = "{version}"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_theme_options = {{"show_powered_by": False, "description": "Where the data is, for HTCondor"}}
html_copy_source = False
html_use_index = False
"""


def keep_links_inside(text: str, page: Path) -> str:
    """Return *text* of *page* (a path below docs/) with links to files outside docs/ as plain names.

    The built pages are read where those files are not.
    """

    def replace(match: re.Match[str]) -> str:
        target = os.path.normpath(page.parent / match[2].partition("#")[0])
        return f"{match[1]} (`{target.removeprefix('../')}`)" if target.startswith("..") else match[0]

    return re.sub(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)", replace, text)


def prepare(folder: Path) -> None:
    """Write the whole source into *folder*; replace what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("docs.*", "_*"))
    pages = []
    for page in sorted(folder.rglob("*.md")):
        path = page.relative_to(folder)
        page.write_text(keep_links_inside(page.read_text("utf-8"), path), "utf-8")
        if path.stem != "index":
            pages.append(str(path.with_suffix("")))
    made_folder = folder / "reference" / "generated"
    made_folder.mkdir()
    for name, made in REFERENCE.items():
        (made_folder / f"{name}.md").write_text(made(), "utf-8")
    (made_folder / architecture.PICTURE).write_text(architecture.cycle_picture(), "utf-8")
    index = folder / "index.md"
    listed = [page for page in re.findall(r"\]\(([\w/-]+)\.md\)", index.read_text("utf-8")) if page in pages]
    order = [*dict.fromkeys([*listed, *pages]), *(f"reference/generated/{name}" for name in REFERENCE)]
    tree = "\n".join(["", "```{toctree}", ":hidden:", ":maxdepth: 1", "", *order, "```", ""])
    index.write_text(index.read_text("utf-8") + tree, "utf-8")
    (folder / "conf.py").write_text(CONF.format(version=__version__), "utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--attributes":
        (ROOT / "docs" / "reference" / "attributes.md").write_text(attributes(), "utf-8")
    else:
        prepare(Path(sys.argv[1]))
