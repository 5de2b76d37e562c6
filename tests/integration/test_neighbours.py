"""PanDA's and DIRAC's own code asks a running daemon where data is, through the adapters of contrib/."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import neighbours
from testbed.installation import wait_for
from tests.integration.test_daemon import Running
from tests.pages import blocks
from tests.parts import NO_DIRAC, NO_PANDA, needs

HERE = Path(__file__).parent
CONTRIB = HERE.parents[1] / "contrib"
MINUTES = 15 * 60

pytestmark = pytest.mark.timeout(MINUTES)


@pytest.fixture
def daemon(tmp_path):
    running = Running(tmp_path)
    running.catalogue(
        {
            "lofar:L1": {"CAM": "available", "RAL": "staging"},
            "lofar:L2": {"CAM": "available", "RAL": "available"},
            "lofar:L3": {"CAM": "nearline"},
        }
    )
    running.start()
    wait_for(lambda: '"lofar:L2"' in running.ad("RAL"), 20, "the datasets")
    yield running
    running.end()


# --- PanDA


@pytest.fixture(scope="module")
def panda() -> tuple[Path, str]:
    with needs(NO_PANDA):
        return neighbours.panda_python()


COMMON = """\
[logger]
logdir = {log}
loghost = 127.0.0.1
loghost_new = 127.0.0.1
monport-apache = 9
monport-apache_new = 9
method = GET
method_new = POST
encoding = url
encoding_new = json
monurlprefix = /
nemitters = 1
"""


def ask_panda(panda, daemon, dataset: str, **more) -> dict:
    """Return what PanDA's DDM interface and job broker say of two sites, whose storage is CAM and RAL."""
    python, path = panda
    home = daemon.folder / "panda"
    etc, log = home / "etc" / "panda", home / "log"
    etc.mkdir(parents=True, exist_ok=True)
    log.mkdir(exist_ok=True)
    (etc / "panda_common.cfg").write_text(COMMON.format(log=log))
    (block,) = blocks("text panda")
    (etc / "panda_jedi.cfg").write_text(f"[master]\n{block.text}")
    (etc / "panda_server.cfg").write_text(f"[server]\ndisable_file_dispatch = True\nlogdir = {log}\n")
    (home / "sites.json").write_text(
        json.dumps({"CAM_DATADISK": "CAM", "CAM_TAPE": "CAM", "QUEUE_RAL": "RAL"})
    )
    question = {
        "dataset": dataset,
        "files": 2,
        "sites": {"QUEUE_CAM": ["CAM_DATADISK"], "QUEUE_RAL": ["RAL_DATADISK"]},
        **more,
    }
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PANDA_HOME": str(home),
        **dict.fromkeys(("PANDA_URL", "PANDA_API_URL"), "http://127.0.0.1:9"),
        **dict.fromkeys(("PANDA_URL_SSL", "PANDA_API_URL_SSL"), "https://127.0.0.1:9"),
        "PYTHONPATH": f"{CONTRIB}{os.pathsep}{path}",
        "HYDRATOR_URL": f"http://127.0.0.1:{daemon.port}",
        "HYDRATOR_SITE_MAP": str(home / "sites.json"),
        "HYDRATOR_DEFAULT_SCOPE": "lofar",
    }
    words = [str(python), "-W", "ignore", str(HERE / "panda_broker.py"), json.dumps(question)]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (answer,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    return dict(json.loads(answer.removeprefix("ANSWER ")))


def test_pandas_job_broker_sends_a_job_only_where_the_daemon_has_its_data(panda, daemon):
    answer = ask_panda(panda, daemon, "lofar:L1", broker=True)
    assert answer["files"] == {
        "QUEUE_CAM": {"localdisk": ["file0", "file1"], "all": ["file0", "file1"]},
        "QUEUE_RAL": {},
    }
    assert (answer["status"], answer["candidates"]) == (0, {"QUEUE_CAM": [0, 1]})
    daemon.catalogue({"lofar:L1": {"RAL": "available"}})
    wait_for(lambda: "lofar:L1" not in daemon.ad("CAM"), 20, "the data to move")
    wait_for(lambda: '"lofar:L1"' in daemon.ad("RAL"), 20, "the data to arrive")
    assert ask_panda(panda, daemon, "L1", broker=True)["candidates"] == {"QUEUE_RAL": [0, 1]}


def test_panda_lists_replicas_by_endpoint(panda, daemon):
    answer = ask_panda(panda, daemon, "lofar:L1", elements=["lofar:L1", "lofar:L2"])
    replicas = {endpoint: (one["found"], one["total"]) for endpoint, (one,) in answer["replicas"].items()}
    assert replicas == {"CAM_DATADISK": (1, 1), "CAM_TAPE": (1, 1), "QUEUE_RAL": (0, 1)}
    assert answer["by_dataset"]["lofar:L1"] == answer["replicas"]
    listed = {endpoint: (one["found"], one["total"]) for endpoint, (one,) in answer["listed"].items()}
    assert listed == {"CAM_DATADISK": (2, 2), "CAM_TAPE": (2, 2), "QUEUE_RAL": (1, 2)}
    assert sorted(answer["detailed"]) == ["lofar:L1", "lofar:L2"]
    assert set(answer["files"]["QUEUE_RAL"]) == set()  # one element is missing


def test_panda_gets_data_on_tape_as_tape(panda, daemon):
    assert ask_panda(panda, daemon, "lofar:L3")["files"]["QUEUE_CAM"]["localtape"] == ["file0", "file1"]


def test_panda_tries_again_later_when_the_daemon_does_not_poll_a_dataset(panda, daemon):
    refused = ask_panda(panda, daemon, "lofar:nowhere")["refused"]
    assert "the daemon does not poll lofar:nowhere: add it to demand.pins or demand.patterns" in refused


# --- DIRAC


@pytest.fixture(scope="module")
def dirac(tmp_path_factory) -> tuple[Path, Path]:
    """DIRAC's Python, and a folder with the extension and its entry point, as pip installs them."""
    with needs(NO_DIRAC):
        python = neighbours.dirac_python()
    folder = tmp_path_factory.mktemp("contrib")
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*words, "--target", str(folder), str(CONTRIB)], check=True, capture_output=True)
    return python, folder


def dirac_configuration(port: int, more: str) -> str:
    """The block of the page with the address and the sites of the test."""
    (block,) = blocks("text dirac")
    text = block.text
    for old, new in (
        ("https://hydrator.example.org:8471", f"http://127.0.0.1:{port}"),
        ("UK:UK-Disk, NL:NL-Disk", "CAM:CAM-Disk"),
        ("Status = Active", f"Status = Active\n{more}"),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def ask_dirac(dirac, daemon, *questions, more: str = "") -> list[dict]:
    python, folder = dirac
    file = daemon.folder / "dirac.cfg"
    file.write_text(dirac_configuration(daemon.port, more))
    environ = {"PATH": os.environ["PATH"], "HOME": str(daemon.folder), "PYTHONPATH": str(folder)}
    words = [str(python), "-W", "ignore", str(HERE / "dirac_catalogue.py"), str(file), json.dumps(questions)]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VALID True" in done.stdout, done.stdout + done.stderr
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    return [json.loads(line.removeprefix("ANSWER ")) for line in answers]


def test_dirac_finds_replicas_through_its_own_file_catalog(dirac, daemon):
    names = ["/lofar/L1", "/lofar/L2", "/lofar/nowhere"]
    usable, every, status, exists, locality = ask_dirac(
        dirac,
        daemon,
        ["getReplicas", names, {}],
        ["getReplicas", names, {"allStatus": True}],
        ["getReplicaStatus", {"/lofar/L1": "RAL", "/lofar/L2": "elsewhere"}, {}],
        ["exists", names, {}],
        ["getLocality", "/lofar/L1", {}],
    )
    failed = {"/lofar/nowhere": "the daemon does not poll this dataset"}
    assert usable["Value"]["Failed"] == failed
    assert usable["Value"]["Successful"] == {
        "/lofar/L1": {"CAM-Disk": "/lofar/L1"},
        "/lofar/L2": {"CAM-Disk": "/lofar/L2", "RAL": "/lofar/L2"},
    }
    assert sorted(every["Value"]["Successful"]["/lofar/L1"]) == ["CAM-Disk", "RAL"]
    assert status["Value"]["Successful"] == {"/lofar/L1": "STAGING"}
    assert status["Value"]["Failed"] == {"/lofar/L2": "No such replica: elsewhere"}
    assert exists["Value"]["Successful"] == {"/lofar/L1": True, "/lofar/L2": True}
    assert locality["Value"]["Successful"]["/lofar/L1"]["sites"][0]["age_seconds"] < MINUTES


def test_dirac_reports_a_daemon_that_does_not_answer(dirac, daemon):
    daemon.end()
    (answer,) = ask_dirac(dirac, daemon, ["getReplicas", ["/lofar/L1"], {}], more="Scope = lofar")
    assert answer["OK"] is False
    daemon.start()
    (answer,) = ask_dirac(dirac, daemon, ["getReplicas", ["/L1"], {}], more="Scope = lofar")
    assert list(answer["Value"]["Successful"]) == ["/L1"]
