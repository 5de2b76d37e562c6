"""The documentation, as ``make docs`` builds it: without a warning, and with nothing from outside."""

import re
from pathlib import Path

import pytest

from testbed.processes import run_program

ROOT = Path(__file__).parents[2]
HTML = ROOT / "dist" / "docs" / "html"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first run installs Sphinx


@pytest.fixture(scope="module")
def built() -> Path:
    done = run_program(["make", "docs"], cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return HTML


def test_docs_build_without_a_warning_and_have_all_pages(built):
    pages = {page.stem for page in (ROOT / "docs").rglob("*.md")}
    assert {page.stem for page in built.rglob("*.html")} >= pages
    assert "hydrator_cycles_total" in (built / "reference" / "metrics.html").read_text("utf-8")


def test_docs_load_nothing_from_other_servers(built):
    asked = [
        (page.name, url)
        for page in built.rglob("*.html")
        for url in re.findall(
            r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"((?:https?:)?//[^\"]+)", page.read_text("utf-8")
        )
    ]
    assert asked == []
    sheets = [sheet.read_text("utf-8") for sheet in built.rglob("*.css")]
    assert [url for sheet in sheets for url in re.findall(r"url\([\"']?(?:https?:)?//[^)]+", sheet)] == []
