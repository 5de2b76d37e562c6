"""Suites of `make test` and CI: every test runs, and none runs twice."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import MARKS_OF_SUITES, pytest_ignore_collect
from tests.order import SECONDS, seconds
from tests.parts import MISSED, NO_HELM, UNAVAILABLE, needs

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
CI = (ROOT / ".ci" / "run").read_text("utf-8")


def recipe(target: str) -> str:
    [found] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return found


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_make_test_and_make_test_slow_together_run_every_test_once():
    assert recipe("test") == '\t$(PYTEST) $(PARALLEL) -m "not slow" $(PYTEST_ARGS)\n'
    assert recipe("test-slow") == "\t$(PYTEST) $(PARALLEL) -m slow $(PYTEST_ARGS)\n"


def test_ci_runs_both_suites_once_and_checks_the_report():
    phases = re.findall(r"\bphase (\w+) (make \S+|\S+ -m pytest)", CI)
    assert phases == [
        ("older", ".venv/bin/python -m pytest"),
        ("slow", "make test-slow"),
        ("setup", "make setup"),
        ("test", "make test"),
    ]
    assert 'wait "$beside" || status=1\n' in CI
    assert '-m testbed.what_ran "$reports" test older slow || status=1\n' in CI


def test_files_that_ci_runs_on_one_release_exist():
    [names] = re.findall(r"^for name in (.*); do$", CI, re.MULTILINE)
    missing = [name for name in names.split() if not (ROOT / f"tests/integration/test_{name}.py").exists()]
    assert (missing, len(names.split()) > 5) == ([], True)


@pytest.mark.parametrize("suite", MARKS_OF_SUITES)
def test_suites_of_a_mark_skip_only_files_without_it(suite):
    """Marks are written in the file of a test: no other file has one to give."""
    mark, config = MARKS_OF_SUITES[suite], SimpleNamespace(option=SimpleNamespace(markexpr=suite))
    texts = {file: file.read_text("utf-8") for file in (ROOT / "tests").rglob("*.py")}
    with_mark = {module(file) for file, text in texts.items() if mark in text} - {"tests.conftest"}
    assert len(with_mark) > 10
    for file, text in texts.items():
        if file.match("test_*.py"):
            assert pytest_ignore_collect(file, config) is (None if mark in text else True)
        names = re.findall(r"^from (tests\.[\w.]+|\.\w+) import", text, re.MULTILINE)
        imported = {f"{module(file.parent)}{name}" if name[0] == "." else name for name in names}
        assert mark in text or not with_mark & imported, file
    config.option.markexpr = "not slow"
    assert pytest_ignore_collect(ROOT / "tests" / "unit" / "test_startd_cron.py", config) is None


def test_suites_named_by_their_mark_are_those_of_make_and_ci():
    assert "-m slow $(PYTEST_ARGS)" in recipe("test-slow")
    assert '-m "pool and not slow"' in CI
    assert list(MARKS_OF_SUITES) == ["slow", "pool and not slow"]


def test_no_process_of_the_suites_compiles_modules_that_are_compiled():
    assert "\nunexport PYTHONDONTWRITEBYTECODE\n" in MAKEFILE
    assert "\nunset PYTHONDONTWRITEBYTECODE " in CI


def test_only_the_docs_tests_of_tests_deploy_are_slow():
    files = (ROOT / "tests" / "deploy").glob("test_*.py")
    assert [file.name for file in files if "mark.slow" in file.read_text("utf-8")] == ["test_docs.py"]


def test_workers_take_test_files_in_the_order_of_order_py():
    # xdist's own puts files with few tests last, among them those that boot a system for three tests
    ordered = "--dist loadfile --no-loadscope-reorder"
    assert [text.count(ordered) for text in (MAKEFILE, CI)] == [1, 1]
    # make test-fast has no test that takes long
    assert [text.count("--dist loadfile") for text in (recipe("test-fast"), MAKEFILE, CI)] == [1, 2, 1]


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
