"""The pages of docs/: links lead somewhere, commands that need nothing else run, the reference has it all."""

import os
import re
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest

from hydrator import desired, openapi, poolconfig
from hydrator.config import Settings
from scripts import docs
from tests.command_tree import COMMANDS, options
from tests.factories import ad

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n.*?^\1```$", re.DOTALL | re.MULTILINE)
_RUNNABLE = re.compile(r"^( *)```sh runnable\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its fenced blocks and its code."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text("utf-8")))


@cache
def anchors(page: Path) -> set[str]:
    """What a link to a heading of *page* may say, as GitHub and Sphinx make it."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {each.strip().replace(" ", "-") for each in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page):
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
    """Every command of ours on *page*, in running text and in code."""
    text = page.read_text("utf-8")
    found = re.findall(r"^[ $]*hydrator ([a-z].*)$", text, re.MULTILINE)
    found += re.findall(r"`hydrator ([a-z][^`\n]*)`", text)
    return [re.split(r" #| \\?[|>&] |;| -- ", each)[0].strip() for each in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_on_a_page_is_one_and_has_its_options(page):
    for line in typed(page):
        words = line.split()
        path = " ".join(words[: 2 if words[0] in GROUPS and len(words) > 1 else 1])
        assert path in COMMANDS.keys() | GROUPS, line
        if path in COMMANDS:
            used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert used <= options(path) | {"--help"}, line


def test_pages_do_have_commands():
    assert sum(len(typed(page)) for page in PAGES) > 50


def blocks() -> list[tuple[str, str]]:
    return [(page.name, text) for page in PAGES for _, text in _RUNNABLE.findall(page.read_text("utf-8"))]


def test_there_are_commands_to_run():
    assert {name for name, _ in blocks()} >= {"add-a-catalogue.md", "tutorial.md", "upgrade.md", "remove.md"}


@pytest.mark.parametrize("number", range(len(blocks())))
def test_commands_that_need_nothing_outside_this_project_run_as_they_stand(number, tmp_path):
    """Fenced blocks marked ``sh runnable``; in a list they stand indented."""
    name, text = blocks()[number]
    script = textwrap.dedent(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.stderr}{done.stdout[-3000:]}"


def test_the_reference_has_every_key_of_the_configuration():
    text = docs.configuration()
    schema = Settings.model_json_schema()
    keys = {key for table in schema["$defs"].values() for key in table.get("properties", {})}
    assert len(keys) > 100
    missing = {key for key in keys if f"| `{key}` |" not in text}
    assert {key for key in missing if not re.search(rf"[\[.]{key}\]", text)} == set(), "nor a section"
    for section in schema["properties"]:
        assert f"[{section}" in text


def test_the_reference_has_every_attribute_and_no_other():
    made = {name for name, _ in ad("lofar:L1").lines}
    optional = {"DatasetFractions", "DatasetAsOf", "DataLocalityTruncated", "DataLocalityTrust"}
    assert made <= docs.ON_SLOTS.keys() <= made | optional
    fixed = {*poolconfig.IMMUTABLE, *poolconfig.PROTECTED}
    assert docs.ON_JOBS.keys() == {*fixed, desired.ASKS, desired.KEPT}


def test_the_reference_has_every_metric_route_and_command():
    told = docs.metrics()
    for family in docs.registry().collect():
        assert f"`{family.name}" in told
    assert [path for path in openapi.document()["paths"] if f" {path}`" not in docs.http()] == []
    commands = docs.command_line()
    for words in ("run", "once", "check", "report", "submit rapthor", "token new", "rollback"):
        assert f"## `hydrator {words}`" in commands
    assert "`--since`" in commands


def test_a_cell_of_a_table_breaks_no_table():
    assert docs.table(("a",), [("x|y\nz",)]) == "| a |\n|---|\n| x\\|y z |\n"


def test_the_source_is_whole_and_every_page_is_in_the_tree(tmp_path):
    docs.prepare(tmp_path / "source")
    index = (tmp_path / "source" / "index.md").read_text("utf-8")
    tree = index.rpartition("```{toctree}")[2].splitlines()
    pages = {
        page.relative_to(tmp_path / "source").with_suffix("") for page in (tmp_path / "source").rglob("*.md")
    }
    assert {str(page) for page in pages} - set(tree) == {"index"}
    assert not re.search(r"\]\(\.\./", (tmp_path / "source" / "trust.md").read_text("utf-8"))
