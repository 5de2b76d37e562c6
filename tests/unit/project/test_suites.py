"""Suites of `make test` and CI: every test runs, and none runs twice."""

import re
from pathlib import Path

import pytest

from tests.order import SECONDS, seconds
from tests.parts import MISSED, NO_HELM, UNAVAILABLE, needs

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
CI = (ROOT / ".ci" / "run").read_text("utf-8")


def recipe(target: str) -> str:
    [found] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return found


def test_make_test_and_make_test_slow_together_run_every_test_once():
    assert recipe("test") == '\t$(PYTEST) $(PARALLEL) -m "not slow" $(PYTEST_ARGS)\n'
    assert recipe("test-slow") == "\t$(PYTEST) $(PARALLEL) -m slow $(PYTEST_ARGS)\n"


def test_ci_runs_both_suites_once_and_checks_the_report():
    assert re.findall(r"^phase (\w+) make (\S+)$", CI, re.MULTILINE) == [
        ("setup", "setup"), ("test", "test"), ("slow", "test-slow"),
    ]  # fmt: skip
    assert '-m testbed.what_ran "$reports" test older slow\n' in CI


def test_only_the_docs_tests_of_tests_deploy_are_slow():
    files = (ROOT / "tests" / "deploy").glob("test_*.py")
    assert [file.name for file in files if "mark.slow" in file.read_text("utf-8")] == ["test_docs.py"]


def test_workers_take_test_files_in_the_order_of_order_py():
    # xdist's own puts files with few tests last, among them those that boot a system for three tests
    for text in (MAKEFILE, CI):
        assert "--dist loadfile --no-loadscope-reorder" in text
        assert text.count("--dist loadfile") - text.count("-n 2 --dist loadfile") == 1


def test_every_file_of_order_py_exists():
    assert [name for name in SECONDS if not (ROOT / name).is_file()] == []
    assert seconds("tests/deploy/test_container.py::test_x[1]") > 30
    assert seconds("tests/unit/domain/test_model.py::test_x") == 0


@pytest.mark.parametrize("unavailable", UNAVAILABLE)
@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_tool_fails_in_ci_and_is_skipped_elsewhere(monkeypatch, unavailable, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=f"{NO_HELM}.*no index"), needs(NO_HELM):
        raise unavailable("no index")
    assert NO_HELM in MISSED
