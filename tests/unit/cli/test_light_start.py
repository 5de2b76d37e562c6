"""Modules that a command loads before it runs: a command line that loads the daemon is slow on each call."""

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest
import typer

from hydrator.cli.app import app
from hydrator.domain.model import QueuedJobs, ScheddDemand
from hydrator.reconcile.demand import DemandMemory, update_demand_memory
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store
from tests.factories import L1, NOON, holding, memory, replica

pytestmark = pytest.mark.outside

DAEMON = ("apscheduler", "htcondor2", "httpx", "hydrator.daemon", "hydrator.server", "jinja2", "rucio")
DAEMON += ("prometheus_client", "pydantic_settings", "stamina", "starlette", "uvicorn")
CORE = ("hydrator.domain.ports", "hydrator.reconcile.evaluate", "hydrator.reconcile.pacer")
CORE += ("hydrator.reconcile.result", "hydrator.staging")
TREE = typer.main.get_command(app)
HEAVY = ("adapters", "asyncio", "httpx", "hydrator.config", "hydrator.diagnostics", "hydrator.reconcile")
HEAVY += ("hydrator.staging", "hydrator.wiring", "importlib.metadata", "pydantic", "rich", "sqlite3")
HEAVY += ("structlog",)


def loaded(*statements: str) -> list[str]:
    code = "\n".join(("import json, sys", *statements, "print(json.dumps(sorted(sys.modules)))"))
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])


def loaded_parts(modules: Iterable[str], *names: str) -> list[str]:
    """Return those of *modules* that are one of the packages *names*, or in one of them."""
    return [
        module for module in sorted(modules) if f"{module}.".startswith(tuple(f"{one}." for one in names))
    ]


def heavy(modules: Iterable[str]) -> list[str]:
    return [name for name in modules if name.startswith(HEAVY)]


def run(*words: str) -> set[str]:
    """Return the modules that ``hydrator`` with *words* loads, beyond those of Python itself."""
    call = f"sys.argv[1:] = {list(words)}"
    imports = "from contextlib import suppress; from hydrator.cli import main"
    return {*loaded(call, imports, "with suppress(SystemExit): main()")} - {*loaded()}


@pytest.mark.parametrize(("words", "most"), [(["hook"], 10), (["--help"], 160)], ids=str)
def test_frequent_call_loads_few_modules(words, most):
    modules = run(*words)
    assert heavy(modules) == []
    assert len(modules) <= most


@pytest.mark.parametrize("words", [["--version"], ["hook"]], ids=str)
def test_answers_without_typer(words):
    assert [name for name in run(*words) if name.startswith("typer")] == []


@pytest.mark.parametrize("words", [["--help"], ["submit", "--help"]], ids=str)
def test_help_of_a_group_loads_no_command(words):
    assert [name for name in run(*words) if name.startswith("hydrator.cli.commands.")] == []


@pytest.mark.parametrize("group", [TREE, TREE.commands["submit"]], ids=["hydrator", "submit"])
def test_help_of_a_group_is_that_of_its_commands(group):
    helps = {name: command.help.partition("\n\n")[0] for name, command in group.commands.items()}
    assert {name: group.help_of(name) for name in helps} == {
        name: " ".join(text.split()) for name, text in helps.items()
    }


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The configuration of a daemon that saved a state in which a job wants a dataset."""
    folder = tmp_path_factory.mktemp("state")
    file = folder / "config.toml"
    file.write_text(
        f'[daemon]\nstate_dir = "{folder}/state"\n'
        '[[catalogue]]\ntype = "file"\nname = "list"\npath = "list.json"\n'
    )
    queue = ScheddDemand(NOON, (QueuedJobs((L1,), 1),))
    wanted = update_demand_memory(DemandMemory(), {"schedd": queue}, default_scope=None, now=NOON)
    with Store.open_to_write(folder / "state") as store:
        store.save(ReconcileState(memories={"list": memory(holding(replica()))}, demand=wanted))
    return f"{file}"


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("status", ["hydrator.reconcile.site_ads"]),
        ("sites", ["hydrator.reconcile.site_ads"]),
        ("datasets", []),
    ],
)
def test_command_that_reads_the_state_loads_no_part_of_the_daemon(command, unneeded, config):
    modules = run(command, "--json", "-c", config)
    assert "hydrator.state.store" in modules
    assert loaded_parts(modules, *DAEMON, *CORE, *unneeded, "adapters", "asyncio", "structlog") == []


def test_defaults_of_the_settings_build_no_checks():
    code = "from hydrator.config.fields import Section; from hydrator.config import Settings; "
    code += "print([one.__name__ for one in Section.__subclasses__() if one.__pydantic_complete__])"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=300)
    assert done.stdout.decode().strip() == "[]"


def test_why_loads_neither_cycle_nor_http_client_for_a_dataset_that_the_daemon_polls(config):
    cycle = ("evaluate", "pacer", "pacing", "publish", "reconciler", "result")
    modules = run("why", "--json", L1, "-c", config)
    assert "adapters.condor" in modules
    assert (
        loaded_parts(
            modules,
            *DAEMON,
            *(f"hydrator.reconcile.{name}" for name in cycle),
            "hydrator.staging",
            "structlog",
        )
        == []
    )


def test_child_of_the_bindings_loads_neither_daemon_nor_version():
    own = ("hydrator.config", "hydrator.diagnostics", "hydrator.wiring", "importlib.metadata", "structlog")
    own += ("adapters.condor.bindings.client", "dataclasses", "hydrator.domain.model")
    modules = loaded("import adapters.condor.bindings.child")
    assert [name for name in modules if name.startswith(own)] == []
