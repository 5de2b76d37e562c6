"""``make playground``: docs/try.md, and the pages of the installation, typed as printed, page after page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.processes import run_program
from tests.pages import blocks

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]


def typed(words: str, pages: tuple[str, ...], *options: str) -> subprocess.CompletedProcess[str]:
    """Type the blocks with *words* of *pages*, in this order, into one shell of the playground."""
    printed = [block.text for page in pages for block in blocks(words) if block.page == page]
    assert {block.page for block in blocks(words)} == set(pages)
    command = [sys.executable, "-m", "testbed.playground", *options]
    return run_program(command, cwd=ROOT, input="".join(printed), timeout=800)


def failures(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("status ")]


def without_numbers(line: str) -> str:
    """Return *line* with the same text for any number, and without the width of columns."""
    return " ".join(re.sub(r"\d+", "0", line).split())


def test_jobs_of_the_first_page_start_beside_their_data(htcondor_release):
    done = typed("sh playground", ("try.md",), "--release", htcondor_release)
    assert done.returncode == 0, done.stderr + done.stdout
    lines = done.stdout.splitlines()
    for said in (
        "lofar:L1 is read at UK",
        "lofar:L2 is read at AU",
        "lofar:L3 is read at NL",
        "lofar:L4 is read at NL",
    ):
        assert said in lines, done.stderr + done.stdout
    assert "soonest: lofar:L4 arrives (STAGING) (then the job matches at NL)" in lines, done.stdout
    assert "soonest: ask for 4 cores or less (then the job matches at AU)" in lines, done.stdout
    # the jobs have no slot, as the pages say
    assert failures(done) == ["status 3: hydrator why 2", "status 3: hydrator why $job"]
    assert "nothing is left running" in done.stderr


def test_first_job_of_an_operator_starts_beside_its_data(htcondor_release):
    done = typed("sh bare", ("install.md", "glideins.md", "pool.md"), "--bare", "--release", htcondor_release)
    assert done.returncode == 0, done.stderr + done.stdout
    lines = done.stdout.splitlines()
    assert "lofar:L1 is read at UK" in lines, done.stderr + done.stdout
    assert any(line.startswith("AvailableDatasets = ") and "lofar:L1" in line for line in lines)
    assert any(line.endswith(" UK hook") for line in lines)
    shown = [
        line
        for block in blocks("text output")
        if block.page == "install.md"
        for line in block.text.splitlines()
    ]
    printed = {without_numbers(line) for line in lines}
    assert [line for line in shown if without_numbers(line) not in printed] == [], done.stdout
    assert failures(done) == []
    assert "nothing is left running" in done.stderr
