"""Catalogue plugins in `hydrator once`, declared by entry points as in an installed package."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.outside

HYDRATOR = [sys.executable, "-m", "hydrator.cli"]
PLUGIN = """
from tests.memory import MemoryCatalogue
from hydrator.domain.model import Replica, ReplicaState, Site, parse_did

def catalogue(name, options, clock):
    if set(options) != {"holds"}:
        raise ValueError("say what it holds, and no more")
    held = Replica(parse_did(options["holds"]), Site("CAM"), ReplicaState.COMPLETE)
    return MemoryCatalogue(name, [held], clock=clock)

def hollow(name, options, clock):
    return object()
"""
POINTS = """[classad_hydrator.catalogues]
listed = their_catalogue:catalogue
hollow = their_catalogue:hollow
gone = no_such_module:catalogue
"""


@pytest.fixture
def once(tmp_path):
    """Runs a cycle with the keys of one [[catalogue]]; gives its exit status, its errors and CAM's ad."""
    package = tmp_path / "site-packages"
    described = package / "their_catalogue-1.0.dist-info"
    described.mkdir(parents=True)
    (package / "their_catalogue.py").write_text(PLUGIN)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: their-catalogue\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(POINTS)

    def run(keys: str):
        config = tmp_path / "config.toml"
        config.write_text(
            f"""
            [daemon]
            state_dir = "state"
            [[catalogue]]
            {keys}
            [demand]
            pins = ["lofar:L1.MS"]
            ask_schedds = false
            [publish.collector]
            enabled = false
            [publish.file]
            directory = "ads"
            [publish.http]
            enabled = false
            """
        )
        path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [*HYDRATOR, "once", "-c", config],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        ad = tmp_path / "ads" / "CAM.ad"
        return done.returncode, done.stdout + done.stderr, ad.read_text() if ad.exists() else ""

    return run


def test_an_installed_plugin_is_a_catalogue(once):
    status, said, ad = once('type = "listed"\nholds = "lofar:L1.MS"')
    assert status == 0, said
    assert 'AvailableDatasets = {"lofar:L1.MS"}' in ad.replace("{ ", "{").replace(" }", "}")


def test_a_folder_of_measurement_sets_is_one_without_a_plugin(once, tmp_path):
    (tmp_path / "data" / "L1.MS").mkdir(parents=True)
    status, said, ad = once(
        f'type = "directory"\nscope = "lofar"\nsettled_minutes = 0\nroots = {{ CAM = "{tmp_path / "data"}" }}'
    )
    assert status == 0, said
    assert "lofar:L1.MS" in ad


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('type = "listed"', "say what it holds, and no more"),
        ('type = "hollow"', "the catalogue has no method read and no method find and no method close"),
        ('type = "gone"', "No module named 'no_such_module'"),
        ('type = "unheard"', "or an installed plugin"),
        ('type = "directory"\nroots = { CAM = "/data" }', "catalogue directory: scope: Field required"),
        (
            'type = "directory"\nscope = "x"\nroots = { CAM = "data" }',
            "it must be an absolute path, which starts with /",
        ),
        ('type = "directory"\nscope = "x"\nroot = "/data"', "root: Extra inputs are not permitted"),
    ],
)
def test_plugin_error_is_one_sentence_and_exit_2(once, keys, told):
    status, said, _ = once(keys)
    assert status == 2, said
    assert told in said
