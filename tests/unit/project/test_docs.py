"""The pages of docs/: links have targets, commands run, and the reference is complete."""

import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from hydrator.config import Settings, load
from hydrator.config.plugins import ENTRY_POINT_GROUP
from hydrator.diagnostics.why.sets.start_record import START_ATTRIBUTE
from hydrator.domain.ads.contract import OBSERVE_ATTRIBUTE, SET_ATTRIBUTES
from hydrator.domain.errors import ConfigError
from hydrator.reconcile.desired_sites import decide as desired
from hydrator.server.api import openapi
from hydrator.submit import pool_config as poolconfig
from scripts import counts, docs
from testbed import debs
from tests.command_tree import COMMANDS, options
from tests.deploy.page_world import RECORD, hash_sources
from tests.factories import ad
from tests.pages import CHART, HOMES, PAGES, ROOT, blocks, homeless

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n.*?^\1```$", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """Return a page without its fenced blocks and its code."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text("utf-8")))


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of *page*, as GitHub and Sphinx make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {each.strip().replace(" ", "-") for each in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_has_a_target(page):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


GROUPS = {path.split()[0] for path in COMMANDS if " " in path}


def typed(page: Path) -> list[str]:
    """Yield every hydrator command on *page*, in running text and in code."""
    text = page.read_text("utf-8")
    found = re.findall(r"^[ $]*hydrator ([a-z].*)$", text, re.MULTILINE)
    found += re.findall(r"`hydrator ([a-z][^`\n]*)`", text)
    return [re.split(r" #| \\?[|>&] |;| -- ", each)[0].strip() for each in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_on_a_page_exists_with_its_options(page):
    for line in typed(page):
        words = line.split()
        path = " ".join(words[: 2 if words[0] in GROUPS and len(words) > 1 else 1])
        assert path in COMMANDS.keys() | GROUPS, line
        if path in COMMANDS:
            used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert used <= options(path) | {"--help"}, line


def test_pages_have_commands():
    assert sum(len(typed(page)) for page in PAGES) > 50


RUNNABLE = blocks("sh runnable")
PROMISED = {
    page.name: re.findall(r"You should see `(\d+ passed, \d+ skipped)`", page.read_text("utf-8"))
    for page in PAGES
}
"""By page, the results of pytest that it promises."""


def test_there_are_commands_to_run():
    assert {block.page for block in RUNNABLE} >= {
        "add-a-catalogue.md",
        "list-in-a-file.md",
        "tutorial.md",
        "upgrade.md",
        "remove.md",
    }


@pytest.mark.parametrize("block", RUNNABLE, ids=str)
def test_commands_of_pages_without_outside_needs_run_unchanged(block, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block}: {done.stderr}{done.stdout[-3000:]}"
    for seen in PROMISED[block.page] if "pytest" in block.text else ():
        assert seen in done.stdout


def test_the_first_day_of_a_developer_promises_what_the_example_prints():
    assert PROMISED["add-a-catalogue.md"] == PROMISED["developer.md"] != []


@pytest.mark.parametrize("block", blocks("sh checkout"), ids=str)
def test_commands_for_a_checkout_run_unchanged(block):
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block}: {done.stderr}{done.stdout[-3000:]}"


FOR_DEVELOPERS = ("how-to/develop/", "first-day/developer.md")
NAMED_TEST = re.compile(r"\btests/|\btest_\w+\.py")


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not str(page.relative_to(ROOT / "docs")).startswith(FOR_DEVELOPERS)
        and page.name != "reliability.md"
    ],
    ids=lambda page: page.name,
)
def test_page_for_operators_and_submitters_names_no_test(page):
    """Tests are listed on docs/explanation/reliability.md."""
    assert NAMED_TEST.findall(page.read_text("utf-8")) == []


def test_no_folder_of_the_docs_has_too_many_entries():
    entries = {folder: len(list(folder.iterdir())) for folder in (ROOT / "docs").rglob("*/")}
    assert len(entries) > 10
    assert {folder: count for folder, count in entries.items() if count > counts.FOLDER_ENTRIES} == {}


def test_the_reference_has_every_key_of_the_configuration():
    text = docs.configuration()
    schema = Settings.model_json_schema()
    keys = {key for table in schema["$defs"].values() for key in table.get("properties", {})}
    assert len(keys) > 100
    missing = {key for key in keys if f"| `{key}` |" not in text}
    assert {key for key in missing if not re.search(rf"[\[.]{key}\]", text)} == set(), "nor a section"
    for section in schema["properties"]:
        assert f"[{section}" in text


def test_reference_lists_exactly_the_existing_attributes():
    made = {name for name, _ in ad("lofar:L1").attributes}
    optional = {*SET_ATTRIBUTES, "DataLocalityEstimatesUntil", OBSERVE_ATTRIBUTE}
    assert made <= docs.ON_SLOTS.keys() <= made | optional
    fixed = {*poolconfig.IMMUTABLE_ATTRIBUTES, *poolconfig.PROTECTED_ATTRIBUTES}
    assert docs.ON_JOBS.keys() == {
        *fixed,
        desired.ASKS_ATTRIBUTE,
        desired.SAVED_ATTRIBUTE,
        START_ATTRIBUTE,
    }


def test_attributes_page_in_the_repository_equals_the_generated_one():
    # else: python scripts/docs.py --attributes
    assert (ROOT / "docs" / "reference" / "attributes.md").read_text("utf-8") == docs.attributes()


@pytest.mark.parametrize("page", docs.REFERENCE)
def test_page_of_the_reference_in_the_repository_equals_the_generated_one(page):
    # else: python scripts/docs.py --reference
    assert (docs.GENERATED / f"{page}.md").read_text("utf-8") == docs.REFERENCE[page]()


def test_folder_of_the_generated_reference_has_no_other_page():
    assert {page.stem for page in docs.GENERATED.iterdir()} == docs.REFERENCE.keys()


def test_setting_with_a_unit_and_a_bound_shows_both():
    text = docs.configuration()
    assert "| `poll_seconds` | number | s | > 0, ≤ 604800 | `30` |" in text
    assert "| `gbit_per_second` | number | 10^9 bit/s |" in text
    assert "| `max_age_hours` | number | h | > 0.25, ≤ 168 |" in text


def test_attribute_of_time_or_size_has_its_unit():
    for name, (kind, _) in {**docs.ON_SLOTS, **docs.ON_JOBS, **docs.ON_RUNS}.items():
        if re.search(r"AsOf$|After$|Max(Wait|Age)$|Bytes$", name):
            assert re.search(r"\bs$|bytes$", kind), name


def test_the_reference_has_every_metric_route_and_command():
    told = docs.metrics()
    for family in docs.registry().collect():
        assert f"`{family.name}" in told
    http = docs.http()
    assert [path for path in openapi.build_openapi()["paths"] if f" {path}`" not in http] == []
    assert "| `GET /v1/sites` | read |" in http
    assert "| `GET /v2/sites/{site}/ad` | site |" in http
    assert "| `POST /v1/events` | event |" in http
    assert "| `GET /healthz` | none |" in http
    commands = docs.command_line()
    for words in ("run", "once", "check", "report", "submit rapthor", "token new", "rollback"):
        assert f"## `hydrator {words}`" in commands
    assert "`--since`" in commands


def test_table_cell_escapes_pipes_and_line_ends():
    assert docs.table(("a",), [("x|y\nz",)]) == "| a |\n|---|\n| x\\|y z |\n"


def test_docs_source_is_complete_and_every_page_is_in_the_tree(tmp_path):
    docs.prepare(tmp_path / "source")
    index = (tmp_path / "source" / "index.md").read_text("utf-8")
    tree = index.rpartition("```{toctree}")[2].splitlines()
    pages = {
        page.relative_to(tmp_path / "source").with_suffix("") for page in (tmp_path / "source").rglob("*.md")
    }
    assert {str(page) for page in pages} - set(tree) == {"index"}
    for page in (tmp_path / "source").rglob("*.md"):
        for target in re.findall(r"\]\((\.\./[^)#\s]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


# --- pictures

PICTURES = sorted((ROOT / "docs" / "pictures").rglob("*.svg"))
EXPLANATIONS = ("estimates", "staging", "slot-merge", "trust")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_picture_is_on_a_page(picture):
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert f"{picture.relative_to(ROOT / 'docs')}" in text


def test_pictures_of_the_page_were_made_with_its_present_templates():
    # else: HYDRATOR_SCREENSHOTS=docs/pictures python -m pytest -n0 tests/deploy/test_page.py -k photographed
    pictures = {picture.stem for picture in RECORD.parent.glob("page-*.png")}
    assert json.loads(RECORD.read_text("utf-8")) == dict.fromkeys(pictures, hash_sources())


@pytest.mark.parametrize(
    "name", ["data-flow", "states", "auto", "whole", *(f"explanation/{name}" for name in EXPLANATIONS)]
)
def test_drawing_has_a_title_and_colours_for_light_and_dark(name):
    text = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text("utf-8")
    labels = re.search(r'aria-labelledby="(\w+) (\w+)"', text)
    assert re.search(rf'<title id="{labels[1]}">\w', text)
    assert re.search(rf'<desc id="{labels[2]}">\w', text)
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("HTTP", "")


# --- every block has a home


@pytest.mark.parametrize("page", [*PAGES, CHART], ids=lambda page: page.name)
def test_every_code_block_of_a_page_names_its_test(page):
    assert homeless(page.read_text("utf-8")) == [], f"write one of {sorted(HOMES)} behind the fence"


def test_code_block_without_a_test_is_found():
    text = (
        "```\nfirst\n```\n\n    second\n    line\n\n```sh elsewhere\nthird\n```\n\n```toml\nfine = 1\n```\n"
    )
    assert homeless(text) == ["first", "third", "second"]


def test_every_named_test_of_a_code_block_exists():
    assert {block.words for block in blocks()} == HOMES.keys()
    files = {name for home in HOMES.values() for name in re.findall(r"tests/\w+/\w+\.py", home)}
    assert [name for name in files if not (ROOT / name).is_file()] == []


CATALOGUE = '[[catalogue]]\ntype = "file"\npath = "datasets.json"\n'


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_configuration_of_a_page_is_accepted_by_the_daemon(block, tmp_path):
    text = block.text if "[[catalogue]]" in block.text else f"{CATALOGUE}{block.text}"
    (tmp_path / "config.toml").write_text(text)
    load(tmp_path / "config.toml")


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_wrong_configuration_of_a_page_is_found(block, tmp_path):
    text = block.text if "[[catalogue]]" in block.text else f"{CATALOGUE}{block.text}"
    (tmp_path / "config.toml").write_text(re.sub(r"^(\w+) = ", r"\1x = ", text, flags=re.MULTILINE))
    with pytest.raises(ConfigError):
        load(tmp_path / "config.toml")


def test_entry_point_of_a_plugin_is_in_the_searched_group():
    [block] = blocks("toml pyproject")
    [(group, entries)] = tomllib.loads(block.text)["project"]["entry-points"].items()
    assert group == ENTRY_POINT_GROUP
    assert entries


def test_frontend_policy_reads_the_file_of_the_page(tmp_path):
    [block] = blocks("json")
    file = tmp_path / "sites_by_dataset.json"
    later = re.sub(r"\b1763\d{6}\b", lambda time: str(int(time[0]) + 3_000_000_000), block.text)
    file.write_text(later)  # its times are long past
    text = (
        "import locality_policy as policy\n"
        "job, at = {'RequiredDatasetsCSV': 'lofar:L1'}, lambda site: {'attrs': {'GLIDEIN_Site': site}}\n"
        "print(policy.match(job, at('UK')), policy.match(job, at('AU')))\n"
    )
    env = {**os.environ, "HYDRATOR_SITES_BY_DATASET": str(file)}
    place = ROOT / "deploy" / "glideinwms"
    command = [sys.executable, "-B", "-c", text]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_journalctl_search_of_the_page_finds_log_events(tmp_path):
    """journalctl is a stand-in that prints a daemon's own log."""
    [block] = blocks("sh logs")
    jq, environment = debs.program("jq", "jq", "usr/bin")
    (tmp_path / "journalctl").write_text("#!/bin/sh\ncat log\n")
    (tmp_path / "journalctl").chmod(0o755)
    lines = [
        {"event": "cycle", "level": "warning", "cycle": 1042, "why": "held"},
        {"event": "x", "level": "info"},
    ]
    (tmp_path / "log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = os.pathsep.join([str(tmp_path), str(jq.parent), os.environ["PATH"]])
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    env = {**os.environ, **environment, "PATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in found] == ["cycle", "cycle"]
    assert found[1] == lines[0]


@pytest.mark.parametrize("block", blocks("sh install"), ids=str)
def test_page_installs_this_checkout_with_an_existing_extra(block):
    """No package index has the project, so pages install the checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    known = {".", *(f".[{extra}]" for extra in project["optional-dependencies"])}
    asked = {word.strip("'") for word in re.findall(r"pip install (\S+)", block.text)}
    assert asked
    assert asked <= known


@pytest.mark.parametrize("block", blocks("sh demo"), ids=str)
def test_makefile_has_the_targets_of_the_pages(block):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make ([\w-]+)", block.text, re.MULTILINE)) <= targets


def test_files_in_kubernetes_commands_of_pages_exist():
    text = "\n".join(block.text for block in blocks("sh kubernetes"))
    named = re.findall(r"deploy/[\w./-]+", text)
    assert {Path(name).name for name in named} == {"Containerfile", "classad-hydrator"}
    assert [name for name in named if not (ROOT / name).exists()] == []


SHELL = [block for block in blocks() if block.words.startswith("sh ")]


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_command_of_a_page_is_complete_shell(block):
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_allow_lists_on_pages_equal_the_lines_that_check_advises():
    """A line with the daemon's identity alone would lock out the pool's own daemons."""
    text = "\n".join(block.text for block in blocks("text condor"))
    lines = re.findall(r"^(\w+)\.ALLOW_(\w+) = .* (\S+)$", text, re.MULTILINE)
    assert {level for _, level, _ in lines} == {"READ", "DAEMON", "WRITE", "NEGOTIATOR"}
    for daemon, level, identity in lines:
        assert poolconfig.allow_line(daemon, level, identity) in text.splitlines()


def test_no_shipped_text_replaces_an_allow_list_of_a_daemon():
    files = [path for path in [*(ROOT / "deploy").rglob("*"), *PAGES, CHART] if path.is_file()]
    found = [
        line.strip()
        for path in files
        for line in path.read_text("utf-8", "replace").splitlines()
        if re.search(r"\w\.(?:ALLOW|DENY)_\w+ *= ", line)
    ]
    assert len(found) > 5
    assert [line for line in found if not re.match(r"(\w+\.\w+) = \$\(\1:\$\(\w+\)\) ", line)] == []
