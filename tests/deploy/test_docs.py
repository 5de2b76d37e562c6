"""The documentation, as ``make docs`` builds it: without a warning, and with nothing from outside."""

import os
import re
import shutil
from pathlib import Path

import pytest

from hydrator import __version__
from testbed.processes import run_program
from tests.pages import blocks

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


DEPENDENCIES = f"""
folder=$(echo "$(dirname "$(command -v hydrator)")"/../lib/python3*/site-packages)
echo {Path(pytest.__file__).parents[1]} > "$folder/all.pth"
"""


@pytest.mark.parametrize("block", blocks("sh install"), ids=lambda block: block.page)
def test_commands_that_install_the_program_run_in_a_checkout(block, tmp_path):
    """The folders of root are elsewhere, and the dependencies those of this environment: all take minutes."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".*", "dist", "build", "tests"))
    text = re.sub(r"/(?=(?:opt|etc)/)", f"{tmp_path}/", block.text)
    text = text.replace("pip install ", "pip install --no-deps ")
    (tmp_path / "opt").mkdir()
    if "venv" not in text:  # the page names an environment that is there
        text = f"python3 -m venv {tmp_path}/own; PATH={tmp_path}/own/bin:$PATH; {text}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = ["bash", "-euc", f"{text}\n{DEPENDENCIES}\nhydrator --version"]
    done = run_program(command, cwd=checkout, env={**kept, "HOME": str(tmp_path)})
    assert (done.stdout.splitlines() or [""])[-1] == __version__, done.stderr
    assert "does not provide the extra" not in done.stdout + done.stderr
