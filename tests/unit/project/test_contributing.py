"""CONTRIBUTING.md: every path, target and command on it exists, and its example of a test passes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_every_path_of_the_page_exists():
    paths = {*re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", PAGE), *re.findall(r" (tests/\S+)", PAGE)}
    assert len(paths) > 30
    kept = sorted(path for path in paths if not path.startswith("dist/"))
    assert [path for path in kept if not (ROOT / path).exists()] == []


def test_the_makefile_has_every_target_of_the_page():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"^make ([\w-]+)|`make ([\w-]+)`", PAGE, re.MULTILINE))
    assert {first or second for first, second in named} <= targets


@pytest.mark.parametrize("word", re.findall(r"`git grep -n (\w+)`", PAGE))
def test_the_neighbour_to_follow_is_in_the_code(word):
    files = [path for path in (ROOT / "hydrator").rglob("*.py") if word in path.read_text("utf-8")]
    assert len(files) > 1


def test_the_command_for_one_test_selects_some():
    [(name, word)] = re.findall(r"pytest -q -n0 (\S+) -k (\w+)$", PAGE, re.MULTILINE)
    assert re.search(rf"def test_\w*{word}", (ROOT / name).read_text("utf-8"))


def test_the_example_of_a_test_passes(tmp_path):
    [example] = [text for words, text in BLOCKS if words == "python"]
    file = tmp_path / "test_example.py"
    file.write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, file]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
