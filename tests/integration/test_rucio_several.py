"""Several virtual organisations of one real Rucio server, and a second server: each is a catalogue."""

import json
import subprocess
from dataclasses import replace

import pytest

from testbed.loaded_cli import run_hydrator
from testbed.rucio import RucioServer

pytestmark = [pytest.mark.rucio, pytest.mark.slow, pytest.mark.timeout(300)]

DID = "several:L1"


@pytest.fixture(scope="module")
def vos(tmp_path_factory, rucio_server):
    """Start a server for two virtual organisations that use the same names for different datasets.

    For ``ska`` half of the dataset is at CAM and the rest in transfer; for ``lof`` it is another one,
    complete at RAL.
    """
    with RucioServer.start(tmp_path_factory.mktemp("vos") / "server", several_vos=True) as server:
        dataset = ("add_dataset", {"did": DID, "rse": "ORIGIN"})
        server.seed(
            ("in_vo", {"vo": "ska"}),
            ("add_scope", {"scope": "several"}),
            ("add_rse", {"rse": "ORIGIN"}),
            ("add_rse", {"rse": "DISK", "attributes": {"site": "CAM"}}),
            dataset,
            ("replicate", {"did": DID, "rse": "DISK"}),
            ("transferred", {"did": DID, "rse": "DISK", "files": 2}),
            ("in_vo", {"vo": "lof"}),
            ("add_scope", {"scope": "several"}),
            ("add_rse", {"rse": "ORIGIN"}),
            ("add_rse", {"rse": "DISK", "attributes": {"site": "RAL"}}),
            dataset,
            ("place", {"did": DID, "rse": "DISK"}),
            ("replicate", {"did": DID, "rse": "DISK"}),
            ("abacus", {}),
        )
        yield server


@pytest.fixture(scope="module")
def single(rucio_server):
    """Return the shared server, with a part of the same dataset at CAM and all of it at a third site."""
    rucio_server.seed(
        ("add_scope", {"scope": "several"}),
        ("add_rse", {"rse": "SEVERAL-ORIGIN"}),
        ("add_rse", {"rse": "SEVERAL-CAM", "attributes": {"site": "CAM"}}),
        ("add_rse", {"rse": "SEVERAL-OSO", "attributes": {"site": "OSO"}}),
        ("add_dataset", {"did": DID, "rse": "SEVERAL-ORIGIN"}),
        ("place", {"did": DID, "rse": "SEVERAL-CAM", "files": 3}),
        ("place", {"did": DID, "rse": "SEVERAL-OSO"}),
        ("abacus", {}),
    )
    return rucio_server


@pytest.fixture
def told(tmp_path):
    """Run one cycle with these catalogues; return the dataset's state by site, and each catalogue's state."""

    def run(
        *, fails: bool = False, **catalogues: tuple[RucioServer, str | None]
    ) -> tuple[dict[str, str], list[dict]]:
        sections = ""
        for name, (server, vo) in catalogues.items():
            (tmp_path / name).write_text(server.password)
            (tmp_path / name).chmod(0o600)
            sections += (
                f'[[catalogue]]\ntype = "rucio"\nname = "{name}"\nurl = "{server.url}"\n'
                f'account = "root"\nusername = "{server.username}"\npassword_file = "{name}"\n'
            ) + (f'vo = "{vo}"\n' if vo else "")
        config = tmp_path / "config.toml"
        config.write_text(
            '[daemon]\nstate_dir = "state"\n[publish.collector]\nenabled = false\n[publish.http]\n'
            f'enabled = false\n[publish.file]\ndirectory = "ads"\n[demand]\nask_schedds = false\n'
            f'pins = ["{DID}"]\n{sections}'
        )
        done = hydrator("once", "-c", config)
        assert done.returncode == int(fails), done.stdout + done.stderr
        words = json.loads(hydrator("datasets", "-c", config, "--why", "--json", DID).stdout)
        (shown,) = json.loads(hydrator("datasets", "-c", config, "--json", DID).stdout)
        return {site: fact["state"] for site, fact in shown["sites"].items()}, words

    return run


def hydrator(*words) -> subprocess.CompletedProcess[str]:
    return run_hydrator([*map(str, words)])


def test_virtual_organisation_reports_only_its_own_datasets(told, vos):
    assert told(ska=(vos, "ska"))[0] == {"CAM": "STAGING"}


def test_several_are_catalogues_of_their_own_and_of_what_they_say_the_best_counts(told, vos, single):
    states, words = told(ska=(vos, "ska"), lof=(vos, "lof"), other=(single, None))
    assert states == {"CAM": "STAGING", "OSO": "AVAILABLE", "RAL": "AVAILABLE"}
    at_cam = {row["catalogue"]: (row["state"], row["fraction"]) for row in words if row["site"] == "CAM"}
    assert at_cam == {"ska": ("STAGING", 0.5), "other": ("PARTIAL", 0.75)}


def test_one_that_denies_us_leaves_what_it_said_and_what_the_others_say(told, vos, single):
    states = {"CAM": "STAGING", "OSO": "AVAILABLE"}
    assert told(ska=(vos, "ska"), other=(single, None))[0] == states
    shown, words = told(fails=True, ska=(vos, "ska"), other=(replace(single, password="not this one"), None))
    assert shown == states
    assert "CannotAuthenticate" in str([row["unseen"] for row in words if row["catalogue"] == "other"])
