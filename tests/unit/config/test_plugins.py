"""Catalogue plugins in `hydrator once`, declared by entry points as in an installed package."""

import os
import sys

import pytest

from hydrator.config import parse
from hydrator.wiring.catalogues import build_catalogues
from testbed.processes import run_program
from tests.factories import L1

pytestmark = pytest.mark.outside

HYDRATOR = [sys.executable, "-m", "hydrator.cli"]
PLUGIN = """
from pathlib import Path
from tests.memory import MemoryCatalogue
from hydrator.domain.model import Provenance, Replica, DatasetState, Site, parse_did

def catalogue(name, options, clock):
    if set(options) != {"holds"}:
        raise ValueError("say what it holds, and no more")
    held = Replica(parse_did(options["holds"]), Site("CAM"), DatasetState.AVAILABLE)
    return MemoryCatalogue(name, [held], clock=clock)

def hollow(name, options, clock):
    return object()

def broken(name, options, clock):
    catalogue = MemoryCatalogue(name, [], clock=clock)
    catalogue.read = lambda dids: {}["a key"]
    return catalogue

def talkative(name, options, clock):
    told = Provenance(reason="you sent " + Path(options["our_pass_file"]).read_text() + "\\x1b")
    held = Replica(parse_did("lofar:L1"), Site("CAM"), DatasetState.STUCK, provenance=told)
    return MemoryCatalogue(name, [held], clock=clock)
"""
METADATA = """Metadata-Version: 2.1
Name: their-catalogue
Version: 1.0
Author-email: Ann <ann@example.org>
"""
POINTS = """[classad_hydrator.catalogues]
listed = their_catalogue:catalogue
broken = their_catalogue:broken
hollow = their_catalogue:hollow
talkative = their_catalogue:talkative
gone = no_such_module:catalogue
"""


@pytest.fixture
def package(tmp_path):
    """Return a folder like site-packages, with the plugins."""
    package = tmp_path / "site-packages"
    described = package / "their_catalogue-1.0.dist-info"
    described.mkdir(parents=True)
    (package / "their_catalogue.py").write_text(PLUGIN)
    (described / "METADATA").write_text(METADATA)
    (described / "entry_points.txt").write_text(POINTS)
    return package


@pytest.fixture
def once(tmp_path, package):
    """Runs a cycle with the keys of one [[catalogue]]; gives its exit status, its errors and CAM's ad."""

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
        done = run_program([*HYDRATOR, "once", "-c", config], env={**os.environ, "PYTHONPATH": path})
        assert "Traceback" not in done.stderr
        ad = tmp_path / "ads" / "CAM.ad"
        return done.returncode, done.stdout + done.stderr, ad.read_text() if ad.exists() else ""

    return run


def test_an_installed_plugin_is_a_catalogue(once):
    status, said, ad = once('type = "listed"\nholds = "lofar:L1.MS"')
    assert status == 0, said
    assert 'AvailableDatasets = {"lofar:L1.MS"}' in ad.replace("{ ", "{").replace(" }", "}")


def test_texts_of_a_plugin_show_no_secret_and_steer_no_terminal(package, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(package)
    monkeypatch.setenv("PYTHONPATH", f"{package}:{os.environ.get('PYTHONPATH', '')}")
    (tmp_path / "pass").touch(mode=0o600)
    (tmp_path / "pass").write_text("plugin-c4nary-0123456789")
    table = {"catalogue": [{"type": "talkative", "our_pass_file": str(tmp_path / "pass")}]}
    settings = parse(table, folder=tmp_path, origin="test")
    (catalogue,) = build_catalogues(settings)
    (replica,) = catalogue.read({L1}).readings[L1].replicas
    catalogue.close()
    assert replica.provenance.reason == "you sent [secret]\\x1b"


def test_a_folder_of_measurement_sets_is_one_without_a_plugin(once, tmp_path):
    (tmp_path / "data" / "L1.MS").mkdir(parents=True)
    status, said, ad = once(
        f'type = "directory"\nscope = "lofar"\nsettled_minutes = 0\nroots = {{ CAM = "{tmp_path / "data"}" }}'
    )
    assert status == 0, said
    assert "lofar:L1.MS" in ad


def test_bug_of_a_plugin_names_its_distribution_and_maker(once):
    status, said, _ = once('type = "broken"')
    assert status == 1, said
    reported = "please report it to the maker of the plugin broken of their-catalogue 1.0"
    assert f"{reported} (Ann <ann@example.org>)" in " ".join(said.split())


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('type = "listed"', "say what it holds, and no more"),
        ('type = "hollow"', "the catalogue has no method read and no method find and no method close"),
        ('type = "gone"', "No module named 'no_such_module'"),
        ('type = "unheard"', "or an installed plugin; installed: "),
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
