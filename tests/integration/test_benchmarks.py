"""Small runs of the benchmarks, from start to end."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import soak
from benchmarks.__main__ import NAMES, main
from benchmarks.record import update_readme
from testbed.rucio import server_python
from tests.parts import NO_RABBITMQ, NO_RUCIO, needs
from tests.rucio_fixtures import needs_postgres

pytestmark = [pytest.mark.slow, pytest.mark.pool, pytest.mark.timeout(900)]

RUCIO = ("rucio_clients", "rucio_polls", "rucio_sweeps")
STAGING = "staging"
EVENTS = "freshness_rucio"
FIELDS = {
    *("name", "date", "command", "quick", "machine", "versions", "load_average", "how", "figures", "raw"),
}


@pytest.mark.parametrize("name", sorted(set(NAMES) - {*RUCIO, EVENTS, STAGING}))
def test_quick_run_writes_finite_figures_and_a_table(name: str, htcondor_release: str, tmp_path, monkeypatch):
    monkeypatch.setenv("HYDRATOR_TEST_HTCONDOR", htcondor_release)
    leaves_figures(name, tmp_path)


@pytest.mark.rucio
@pytest.mark.parametrize("name", RUCIO)
def test_quick_run_against_rucio_writes_figures(name, tmp_path):
    with needs_postgres():
        leaves_figures(name, tmp_path)


@pytest.mark.rucio
def test_quick_run_of_freshness_with_a_real_rucio_writes_figures(
    htcondor_release: str, tmp_path, monkeypatch
):
    monkeypatch.setenv("HYDRATOR_TEST_HTCONDOR", htcondor_release)
    with needs(NO_RUCIO):
        server_python()
    with needs(NO_RABBITMQ):
        leaves_figures(EVENTS, tmp_path)


@pytest.mark.rucio
def test_quick_run_of_staging_writes_figures(htcondor_release: str, tmp_path, monkeypatch):
    monkeypatch.setenv("HYDRATOR_TEST_HTCONDOR", htcondor_release)
    with needs(NO_RUCIO):
        server_python()
    leaves_figures(STAGING, tmp_path)


def leaves_figures(name: str, tmp_path: Path) -> None:
    assert main([name, "--quick", "--results", str(tmp_path)]) == 0
    text = (tmp_path / f"{name}.json").read_text("utf-8")
    document = json.loads(text)
    assert set(document) == FIELDS
    assert (document["name"], document["quick"]) == (name, True)
    assert document["command"] == f"python -m benchmarks {name} --quick"
    assert document["figures"]
    for figure in document["figures"]:
        assert math.isfinite(figure["value"]), figure
        assert figure["value"] >= 0, figure
        if figure["goal"] is not None:
            assert figure["met"] is (figure["value"] <= figure["goal"])
    assert document["raw"]
    assert str(Path.cwd()) not in text, "a path of this machine"
    readme = tmp_path / "README.md"
    readme.write_text(
        "before\n<!-- figures: written by python -m benchmarks -->\n<!-- end of figures -->\nafter\n", "utf-8"
    )
    update_readme(tmp_path, readme)
    table = readme.read_text("utf-8")
    assert table.startswith("before\n")
    assert table.endswith("\nafter\n")
    assert all(figure["name"] in table for figure in document["figures"])


def test_unknown_benchmark_name_is_rejected(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["nonsense"])
    assert "no benchmark nonsense: choose from " in capsys.readouterr().err


def test_soak_writes_its_measurements_and_a_plot(htcondor_release: str, tmp_path, monkeypatch):
    monkeypatch.setenv("HYDRATOR_TEST_HTCONDOR", htcondor_release)
    soak.main(["--minutes", "0.5", "--results", str(tmp_path)])  # too short to judge growth by
    document = json.loads((tmp_path / "soak.json").read_text("utf-8"))
    assert set(document) == FIELDS
    assert document["raw"]["samples"]
    assert {what for _, what in document["raw"]["faults"]} == {
        *("tear", "restart_collector", "kill_child", "reload")
    }
    assert document["raw"]["wrong"] == []
    assert ET.parse(tmp_path / "soak.svg").getroot().tag.endswith("svg")


def test_memory_growth_is_computed_within_each_life_of_a_process():
    grows = [
        (float(t), 10.0 + t / 3600, life)
        for life, begin in (("a", 0), ("b", 900))
        for t in range(begin, begin + 600, 60)
    ]
    restarted = [(seconds, value - (5 if life == "b" else 0), life) for seconds, value, life in grows]
    assert soak.slope(grows) == pytest.approx(1.0)
    assert soak.slope(restarted) == pytest.approx(1.0)
    assert soak.slope([(0.0, 3.0, 0)]) == 0.0
