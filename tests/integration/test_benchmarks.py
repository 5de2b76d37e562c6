"""The benchmarks run from start to end and measure something, small."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES, main
from benchmarks.record import update_readme

pytestmark = [pytest.mark.slow, pytest.mark.pool, pytest.mark.timeout(300)]

FIELDS = {
    *("name", "date", "command", "quick", "machine", "versions", "load_average", "how", "figures", "raw"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_leaves_figures_that_are_finite_and_a_table(
    name: str, htcondor_release: str, tmp_path, monkeypatch
):
    monkeypatch.setenv("HYDRATOR_TEST_HTCONDOR", htcondor_release)
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


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["nonsense"])
    assert "no benchmark nonsense: choose from core" in capsys.readouterr().err
