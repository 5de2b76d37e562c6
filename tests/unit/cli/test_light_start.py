"""Modules that a command loads before it runs: a command line that loads the daemon is slow on each call."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.outside

HEAVY = ("adapters", "asyncio", "httpx", "hydrator.config", "hydrator.diagnostics", "hydrator.reconcile")
HEAVY += ("hydrator.staging", "hydrator.wiring", "importlib.metadata", "pydantic", "sqlite3", "structlog")


def loaded(*statements: str) -> list[str]:
    code = "\n".join(("import json, sys", *statements, "print(json.dumps(sorted(sys.modules)))"))
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])


def heavy(modules: list[str]) -> list[str]:
    return [name for name in modules if name.startswith(HEAVY)]


def test_command_line_loads_no_command_before_it_runs():
    assert heavy(loaded("import hydrator.cli")) == []


def test_hook_is_printed_without_the_daemon():
    assert heavy(loaded("from hydrator.cli.app import hook", "hook()")) == []


def test_child_of_the_bindings_loads_neither_daemon_nor_version():
    own = ("hydrator.config", "hydrator.diagnostics", "hydrator.wiring", "importlib.metadata", "structlog")
    modules = loaded("import adapters.condor.bindings.child")
    assert [name for name in modules if name.startswith(own)] == []
