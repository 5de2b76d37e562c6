"""docs/explanation/reliability.md names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "explanation" / "reliability.md").read_text("utf-8")


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))))
def test_every_file_that_the_reliability_page_names_exists(file):
    assert (ROOT / file).is_file()


def test_every_test_that_the_reliability_page_names_exists():
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", file.read_text("utf-8"))
    }
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 20
    assert named - defined == set()
