"""PanDA's own code asks a running daemon where data is, through the class of contrib/."""

import json
import os
from pathlib import Path

import pytest

from testbed import neighbours
from testbed.patience import wait_for
from testbed.processes import run_program
from tests.pages import blocks
from tests.parts import needs

HERE = Path(__file__).parent
CONTRIB = HERE.parents[1] / "contrib"
MINUTES = 15 * 60

pytestmark = pytest.mark.timeout(MINUTES)


@pytest.fixture
def daemon(daemon):
    daemon.catalogue(
        {
            "lofar:L1": {"CAM": "available", "RAL": "staging"},
            "lofar:L2": {"CAM": "available", "RAL": "available"},
            "lofar:L3": {"CAM": "nearline"},
        }
    )
    daemon.start()
    wait_for(lambda: '"lofar:L2"' in daemon.ad("RAL"), "the datasets")
    return daemon


@pytest.fixture(scope="module")
def panda() -> tuple[Path, str]:
    with needs("PanDA"):
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
    done = run_program(words, env=environ, timeout=300)
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
    wait_for(lambda: "lofar:L1" not in daemon.ad("CAM"), "the data to move")
    wait_for(lambda: '"lofar:L1"' in daemon.ad("RAL"), "the data to arrive")
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
