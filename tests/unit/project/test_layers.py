"""The tree of HOUSE_STYLE.md: imports point down, and the pure part reads no clock, file or environment."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYPROJECT = ROOT / "pyproject.toml"
EDGES = {
    "hydrator/domain/bugs.py",  # logs bugs
    "hydrator/domain/files.py",  # replaces files
    "hydrator/domain/text.py",  # finds the folder of the documentation
    "hydrator/reconcile/publish/overrides.py",  # has the paths of command files
}
PURE = sorted(
    {
        str(path.relative_to(ROOT))
        for folder in ("domain", "reconcile")
        for path in (ROOT / "hydrator" / folder).rglob("*.py")
    }
    - EDGES
)
QUERIES = {
    "now",
    "utcnow",
    "today",
    "localtime",
    "perf_counter",
    "monotonic",
    "getenv",
    "environ",
    "print",
    "open",
}
IMPURE = {"time", "os", "random", "logging", "socket", "pathlib", "subprocess"}


def test_the_import_contracts_hold():
    # a process of its own: the linter switches off every logger it meets
    linter = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    done = subprocess.run([*linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_package_has_a_place_in_the_layers():
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    packages = {f"hydrator.{path.parent.name}" for path in (ROOT / "hydrator").glob("*/__init__.py")}
    assert set(layers) == packages | {"hydrator.startd_cron"}


@pytest.mark.parametrize("module", PURE)
def test_pure_module_reads_no_clock_no_file_and_no_environment(module):
    tree = ast.parse((ROOT / module).read_text())
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0}
    assert not called & QUERIES
    assert not imported & IMPURE
