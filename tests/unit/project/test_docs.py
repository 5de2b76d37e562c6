"""The pages of docs/: links have targets, commands run, and the reference is complete."""

import doctest
import logging
import os
import re
import sys
import tomllib
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
import structlog

from hydrator.config import load
from hydrator.config.plugins import ENTRY_POINT_GROUP
from hydrator.daemon.logs import configure_logs
from hydrator.diagnostics.start_record import START_ATTRIBUTE
from hydrator.domain.ads import contract
from hydrator.submit import pool_config as poolconfig
from scripts import docs
from testbed.files import write_program
from testbed.processes import run_program
from tests.command_tree import COMMANDS, options
from tests.factories import ad
from tests.pages import CHART, PAGES, ROOT, blocks

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


RUNNABLE, CHECKOUT = blocks("sh runnable"), blocks("sh checkout")


@pytest.mark.outside
@pytest.mark.parametrize("block", RUNNABLE + CHECKOUT, ids=str)
def test_commands_of_pages_without_outside_needs_run_unchanged(block, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    env, place = {**os.environ, "PATH": path}, ROOT if block in CHECKOUT else tmp_path
    done = run_program(command, cwd=place, env=env)
    assert done.returncode == 0, f"{block}: {done.stderr}{done.stdout[-3000:]}"


WITH_EXAMPLES = [
    path for path in (ROOT / "hydrator").rglob("*.py") if "\n    >>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("path", sorted(WITH_EXAMPLES), ids=lambda path: path.name)
def test_examples_in_docstrings_are_true(path):
    failed, attempted = doctest.testmod(import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)))
    assert failed == 0 < attempted


ELSEWHERE = {
    "sh demo": "make, after apt-get: test_demo.py, test_playground.py and test_packages.py do what it does",
    "sh kubernetes": "helm and kubectl need a cluster; test_helm.py renders the chart",
    "sh toil": "test_toil.py gives these options to toil-cwl-runner",
    "text picture": "no command",
    "yaml values": "test_helm.py finds it by its page",
}
"""The blocks that no test takes from the page, and why."""


def test_every_block_is_used_by_a_test():
    tests = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    text = "".join([*tests, *re.findall(r"blocks\(.*", Path(__file__).read_text("utf-8"))])
    assert {block.words for block in blocks() if f'"{block.words}"' not in text} == ELSEWHERE.keys()


@pytest.mark.outside
def test_links_of_the_alerts_can_lead_to_a_web_server(tmp_path):
    [block] = blocks("sh alerts")
    alerts = tmp_path / "alerts.yml"
    alerts.write_text((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8"))
    count = alerts.read_text().count("/operators/monitoring.md#")
    assert run_program(["sh", "-euc", block.text], cwd=tmp_path).returncode == 0
    assert alerts.read_text().count("https://docs.example.org/operators/monitoring.html#") == count > 5
    assert "file://" not in alerts.read_text()


@pytest.mark.outside
def test_commands_for_the_log_find_problems_and_a_cycle(tmp_path):
    [block] = blocks("sh logs")
    log = StringIO()
    before = structlog.get_config()
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        configure_logs("info", log)
        for number, write in ((1041, "info"), (1042, "info"), (1043, "warning"), (1044, "error")):
            getattr(structlog.get_logger("hydrator"), write)("cycle", cycle=number, why="x")
    finally:
        structlog.configure(**before)
        logging.root.handlers[:], logging.root.level = handlers, level
    (tmp_path / "log").write_text(log.getvalue())
    write_program(tmp_path / "journalctl", f"#!/bin/sh\ncat {tmp_path}/log\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run_program(["sh", "-euc", block.text], env=env)
    assert re.findall(r'"cycle": ([0-9]+)', done.stdout) == ["1043", "1044", "1042"]


def test_entry_point_of_the_page_is_the_one_that_the_daemon_looks_for():
    [block], [written] = blocks("toml pyproject"), [one.text for one in RUNNABLE if "my_package" in one.text]
    [(group, points)] = tomllib.loads(block.text)["project"]["entry-points"].items()
    [module, function] = points["mine"].split(":")
    assert group == ENTRY_POINT_GROUP
    assert f"cat > {module.replace('.', '/')}.py" in written
    assert f"def {function}(name, options, clock)" in written


def test_reference_lists_exactly_the_existing_attributes():
    made = {name for name, _ in ad("lofar:L1").attributes}
    optional = {*contract.OPENING_ATTRIBUTES}
    assert made <= {*contract.ON_SLOTS} <= made | optional
    text = poolconfig.schedd_config(poolconfig.Settings(jobs={"glideinwms": True}))
    written = set(re.findall(r"\b(?:EVAL)?SET ((?:RequiredD|DataL)\w+)", text))
    written |= {*poolconfig.IMMUTABLE_ATTRIBUTES, *poolconfig.PROTECTED_ATTRIBUTES, START_ATTRIBUTE}
    of_users = {contract.KEY_FOR, contract.EXPECTED_SECONDS, contract.MAX_WAIT}
    assert {*contract.ON_JOBS} == written - {poolconfig.REFUSED} | of_users


def test_attributes_page_in_the_repository_equals_the_generated_one():
    # else: python scripts/docs.py --attributes
    assert (ROOT / "docs" / "reference" / "attributes.md").read_text("utf-8") == docs.attributes()


@pytest.mark.parametrize("page", docs.REFERENCE)
def test_page_of_the_reference_in_the_repository_equals_the_generated_one(page):
    # else: python scripts/docs.py --reference
    assert (docs.REFERENCE_PAGES / f"{page}.md").read_text("utf-8") == docs.REFERENCE[page]()


CATALOGUE = '[[catalogue]]\ntype = "file"\npath = "datasets.json"\n'


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_configuration_of_a_page_is_accepted_by_the_daemon(block, tmp_path):
    text = block.text if "[[catalogue]]" in block.text else f"{CATALOGUE}{block.text}"
    (tmp_path / "config.toml").write_text(text)
    load(tmp_path / "config.toml")


def test_allow_lists_on_pages_equal_the_lines_that_check_advises():
    """A line with the daemon's identity alone would lock out the pool's own daemons."""
    text = "\n".join(block.text for block in blocks("text condor"))
    lines = re.findall(r"^(\w+)\.ALLOW_(\w+) = .* (\S+)$", text, re.MULTILINE)
    assert {level for _, level, _ in lines} == {"READ", "DAEMON", "NEGOTIATOR"}
    for daemon, level, identity in lines:
        assert "\n".join(poolconfig.allow_lines(daemon, level, identity)) in text


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
