"""The gate holds its tests to one process, and to few examples."""

import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from testbed.processes import run_program

pytestmark = pytest.mark.outside

TESTS = """
import os, socket, subprocess, threading, time
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

def start(): subprocess.run(["true"])

@pytest.fixture(scope="module")
def module(): start()

@pytest.fixture
def function(): start()

@pytest.fixture
def late():
    yield
    start()

def test_process(): start()
def test_system(): os.system("true")
def test_fork(): os.fork() or os._exit(0)
def test_exec(): os.execv("/bin/true", ["true"])
def test_connect(): socket.socket().connect(("127.0.0.1", 9))
def test_bind(): socket.socket(socket.AF_UNIX).bind("here")
def test_resolver(): socket.getaddrinfo("nowhere.invalid", 1)
def test_thread(): threading.Thread(target=print, name="idle").start()
def test_sleep(): time.sleep(0.001)
def test_module_1(module): pass
def test_module_2(module): pass
def test_function(function): pass
def test_late(late): pass
def test_pure(): socket.socketpair()
def test_poll(): threading.Thread(target=print, name="catalogue rucio").start()

def test_handled():
    with suppress(BaseException):
        start()

@pytest.mark.outside
def test_outside(): start()

@pytest.mark.pool
def test_pool(): start()

@pytest.mark.rucio
def test_rucio(): start()

@pytest.mark.slow
def test_slow(): start()

drawn = []

@given(st.integers())
@settings(max_examples=40)
def test_random(number): drawn.append(number)

def test_examples(record_property): record_property("drawn", f"{len(drawn)} {drawn}")
"""
EVENTS = {
    "process": "starts a process (subprocess.Popen('true'",
    "system": "starts a process (os.system",
    "fork": "starts a process (os.fork",
    "exec": "starts a process (os.exec",
    "connect": "opens a socket (socket.connect",
    "bind": "opens a socket (socket.bind",
    "resolver": "asks the resolver (socket.getaddrinfo",
    "thread": "starts a thread (idle)",
    "sleep": "sleeps (0.001 s)",
    **dict.fromkeys(("module_1", "module_2", "function", "late", "handled"), "starts a process"),
}


def results(folder: Path, *options: str) -> tuple[dict[str, str], str]:
    """Run TESTS; return the failures by folder and test, and the examples that the last test saw."""
    for name in ("properties", "contracts", "gate", "unit"):
        file = folder / f"tests/{name}/test_sample.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            TESTS if name == "unit" else "import subprocess\ndef test_it(): subprocess.run(['true'])\n"
        )
    marks = "".join(f"\n    {mark}: a mark" for mark in ("outside", "pool", "rucio", "slow"))
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = --import-mode=importlib\nmarkers ={marks}\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "pytest", "-p", "tests.inside", "--junitxml=report.xml", *options]
    if "--gate" not in options:
        command += ["--deselect", "tests/unit/test_sample.py::test_exec"]  # it would end pytest
    done = run_program(command, cwd=folder, env=environment)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    failed, drawn = {}, ""
    for case in ET.parse(folder / "report.xml").iter("testcase"):
        name = f"{case.get('classname', '').split('.')[1]} {case.get('name', '').removeprefix('test_')}"
        for found in (*case.findall("failure"), *case.findall("error")):
            failed[name] = f"{found.get('message')} {found.text}"
        for found in case.iter("property"):
            drawn = found.get("value", "")
    return failed, drawn


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    return results(tmp_path_factory.mktemp("gate"), "--gate")


def test_unmarked_test_fails_and_names_the_event(gate):
    failed, _ = gate
    for name, event in EVENTS.items():
        assert f"a test of the gate {event}" in failed[f"unit {name}"], name
        assert ": mark it outside" in failed[f"unit {name}"], name


def test_marked_and_pure_tests_and_other_folders_are_free(gate):
    failed, _ = gate
    held = {"properties it", "contracts it", *(f"unit {name}" for name in EVENTS)}
    assert failed.keys() == held


def test_random_tests_have_25_examples_that_never_change(gate, tmp_path):
    _, drawn = gate
    assert drawn.startswith("25 ")
    _, again = results(tmp_path, "--gate", "-k", "random or examples")
    assert again == drawn


def test_areas_hold_no_test_and_have_all_examples(tmp_path):
    failed, drawn = results(tmp_path)
    assert failed.keys() <= {"unit connect", "unit resolver"}  # the machine answers neither
    assert drawn.startswith("40 ")
