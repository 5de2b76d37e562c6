"""Every command that asks the pool, a catalogue or a daemon, or reads much, shows its progress."""

import ast
import importlib
import inspect
from functools import cache
from importlib.util import resolve_name

import pytest

from hydrator.cli.output.progress import show_progress
from tests.command_tree import COMMANDS

SLOW = {
    "check": "asks every daemon of the pool and every catalogue",
    "init": "asks the pool and the catalogue",
    "once": "asks schedds and catalogues",
    "plan": "asks schedds and catalogues",
    "run-anywhere": "edits the queues of all schedds",
    "report": "reads the histories of the schedds",
    "submit filter": "asks the daemon, or the catalogues",
    "submit pool-config": "reads the configuration of the pool",
    "submit rapthor": "asks the catalogues for each run",
    "submit wrap": "asks the daemon, or the catalogues",
    "why": "asks the whole pool",
}
QUICK = {
    "approve": "writes a command file",
    "datasets": "reads the last report",
    "hook": "prints a file",
    "network": "reads the last report",
    "run": "is the daemon",
    "sites": "reads the last report",
    "staging approve": "writes a command file",
    "staging cancel": "writes a command file",
    "staging list": "reads the last report",
    "staging reject": "writes a command file",
    "staging resume": "writes a command file",
    "staging stop": "writes a command file",
    "status": "reads the last report",
    "submit toil-shim": "prints a file",
    "submit wrapper": "prints a file",
    "token new": "writes a file",
    "token list": "reads a file",
    "token revoke": "writes a file",
}


@cache
def _read(module: str) -> tuple[dict[str, ast.AST], dict[str, tuple[str, str]]]:
    """Return the definitions of *module*, and what it imports from the command line, by name."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    imports = {
        name.asname or name.name: (home, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (home := resolve_name("." * node.level + (node.module or ""), module.rpartition(".")[0]))
        if home.startswith("hydrator.cli")
        for name in node.names
    }
    return definitions, imports


def uses_progress(module: str, name: str, seen: set[tuple[str, str]] | None = None) -> bool:
    """Return whether *name* of *module*, or a function of the command line that it uses, shows progress."""
    seen = set() if seen is None else seen
    if (module, name) in seen:
        return False
    seen.add((module, name))
    definitions, imports = _read(module)
    for node in ast.walk(definitions.get(name, ast.Module([], []))):
        if not isinstance(node, ast.Name):
            continue
        home, used = imports.get(node.id, (module, node.id))
        if used == show_progress.__name__ or uses_progress(home, used, seen):
            return True
    return False


def _shows_progress(path: str) -> bool:
    command = inspect.unwrap(COMMANDS[path].callback)
    function = inspect.getclosurevars(command).nonlocals.get("run", command)  # made by command_of
    return uses_progress(function.__module__, function.__name__)


def test_each_command_is_known_as_slow_or_as_quick():
    assert SLOW.keys() | QUICK.keys() == COMMANDS.keys()
    assert SLOW.keys() & QUICK.keys() == set()


@pytest.mark.parametrize("path", SLOW)
def test_slow_command_shows_its_progress(path):
    assert _shows_progress(path), SLOW[path]


@pytest.mark.parametrize("path", sorted(QUICK.keys() - {"run"}))
def test_the_search_for_progress_finds_none_in_quick_commands(path):
    assert not _shows_progress(path)
