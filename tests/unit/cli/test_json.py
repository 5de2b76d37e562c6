"""Times in the documents of ``--json``: one form in all commands."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from hydrator.domain.bugs import WorkerBug
from hydrator.domain.model import Did, Site
from hydrator.domain.units import UnixTime
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause
from hydrator.reconcile.state import ReconcileState
from hydrator.staging.overview import StagingOverview
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from scripts.docs import JSON
from tests.command_line import run_hydrator
from tests.factories import ad

UK = Site("UK")

TIME_NAME = re.compile(r"(?!left_out_at)(.*_)?(as_of|at|since|until|any_after)")
TIME = re.compile(r"2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?Z")


def parts_of(annotation: Any) -> Iterator[Any]:
    """Return *annotation* and all types in it."""
    yield annotation
    if annotation != UnixTime:
        for part in get_args(annotation):
            yield from parts_of(part)


def number_fields(shape: Any, seen: set[type]) -> Iterator[str]:
    """Return the fields of *shape*, and of the objects in it, that are times by name, but not by type."""
    for kind in parts_of(shape):
        if not is_dataclass(kind) or kind in seen:
            continue
        seen.add(kind)
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            parts = [*parts_of(hints[field.name])]
            if TIME_NAME.fullmatch(field.name) and not {datetime, UnixTime} & {*parts}:
                yield f"{kind.__name__}.{field.name}"
            yield from number_fields(hints[field.name], seen)


@pytest.mark.parametrize("command", [*JSON, "the last step of staging"])
def test_each_time_of_a_document_has_the_type_of_times(command):
    assert [*number_fields(JSON.get(command, StagingOverview), set())] == []


def times_in(document: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from times_in(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from times_in(value, name)
    elif TIME_NAME.fullmatch(name) and document is not None:
        yield name, document


def write_config(folder: Path) -> Path:
    (folder / "catalogue.toml").write_text('sites = ["UK"]\n[datasets."t:a"]\nsites.UK = "available"\n')
    file = folder / "config.toml"
    file.write_text(
        '[daemon]\nstate_dir = "state"\n[[catalogue]]\ntype = "file"\npath = "catalogue.toml"\n'
        '[demand]\nask_schedds = false\npins = ["t:a"]\n[publish.collector]\nenabled = false\n'
        '[publish.file]\nenabled = true\ndirectory = "ads"\n[network]\ndefault_gbit_per_second = 1\n'
    )
    return file


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    file = write_config(tmp_path_factory.mktemp("installation"))
    run_hydrator("once", "-c", file)
    return file


COMMANDS = ("once", "plan", "status", "sites", "sites UK", "datasets", "datasets --why", "datasets t:b")


@pytest.mark.outside
@pytest.mark.parametrize("command", [*COMMANDS, "network", "staging list"])
def test_times_are_texts_in_utc(command, config):
    done = run_hydrator(*command.split(), "--json", "-c", config)
    found = [*times_in(json.loads(done.stdout))]
    assert done.returncode == 0
    assert [each for each in found if not TIME.fullmatch(str(each[1]))] == []
    assert found or command in {"datasets t:b", "network", "plan", "staging list"}


@pytest.mark.parametrize("command", ["once", "plan"])
def test_bug_is_logged_without_values_and_never_in_the_document(command, tmp_path, monkeypatch):
    def read(self, dids):
        password = "s3cret-of-a-variable"
        raise KeyError(len(password))

    monkeypatch.setattr("adapters.catalogue_client.WorkerCatalogue.read", read)
    done = run_hydrator(command, "--json", "-c", write_config(tmp_path))
    assert done.returncode == 1
    json.loads(done.stdout)
    said = done.stderr.decode()
    assert "catalogue file failed: this is a bug" in said
    assert "KeyError" in said
    assert "s3cret" not in said


def test_once_keeps_a_held_loss_of_a_state_that_is_dated_in_the_future(tmp_path):
    config, ahead = write_config(tmp_path), system_clock() + timedelta(hours=1)
    loss = HeldLoss(ahead, ahead, {Did("t:a"): 0}, 1, HoldCause.SITE)
    with Store.open_to_write(tmp_path / "state") as store:
        store.save(ReconcileState(ads={UK: ad(site=UK, at=ahead)}, held_losses={UK: loss}))
    (tmp_path / "catalogue.toml").write_text('sites = ["UK"]')
    done = run_hydrator("once", "-c", config)
    assert "state lost: it is dated 3" in done.stderr.decode()
    with Store.open_to_read(tmp_path / "state") as store:
        assert store.load().held_losses[UK].cause is HoldCause.CLOCK


def test_command_that_meets_a_bug_of_a_plugin_names_its_maker(tmp_path, monkeypatch):
    def meet(*_, **__):
        raise WorkerBug("KeyError at mine/plug.py:7", '  File "mine/plug.py", line 7', "the plugin mine")

    monkeypatch.setattr("hydrator.cli.commands.run._run_cycle", meet)
    done = run_hydrator("plan", "-c", write_config(tmp_path))
    assert (done.returncode, done.stdout) == (1, b"")
    frames, sentence = done.stderr.decode().splitlines()
    assert frames == '  File "mine/plug.py", line 7'
    assert sentence.startswith(
        "hydrator: bug: KeyError at mine/plug.py:7; please report it, with its traceback"
    )
    assert sentence.endswith("to the maker of the plugin mine")
