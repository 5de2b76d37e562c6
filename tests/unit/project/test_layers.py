"""The tree of HOUSE_STYLE.md holds: who may import whom, and that the core asks nobody anything."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYPROJECT = ROOT / "pyproject.toml"
PURE = ["model", "ports", "errors", "demand", "snapshot", "ads", "plan", "breaker", "history", "records"]
ASKS = {
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


def test_the_import_contracts_hold():
    # a process of its own: the linter switches off every logger it meets
    linter = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    done = subprocess.run([*linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_module_of_the_core_is_under_the_contract_of_purity():
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    (pure,) = [contract for contract in contracts if contract["name"] == "the core is pure"]
    assert {f"hydrator.{module}" for module in PURE} <= set(pure["source_modules"])


@pytest.mark.parametrize("module", [*PURE, "cycle"])
def test_the_core_reads_no_clock_no_file_and_no_environment(module):
    tree = ast.parse((ROOT / "hydrator" / f"{module}.py").read_text())
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0}
    assert not called & ASKS
    assert not imported & {"time", "os", "random", "logging", "socket", "pathlib", "subprocess"}
