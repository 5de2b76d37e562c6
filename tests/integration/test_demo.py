"""``make demo``: every job runs where its data is, and any other fails the demo."""

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.demo import Run, Submitted, Timeline, judge
from testbed.processes import run_program

ROOT = Path(__file__).parents[2]
SITES = ("UK", "AU", "NL")


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testbed.demo", *options]
    return run_program(command, cwd=ROOT, timeout=850)


@pytest.mark.pool
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "catalogue",
    ["file", pytest.param("rucio", marks=pytest.mark.rucio), pytest.param("dmapi", id="dmapi-stand-in")],
)
def test_every_job_runs_where_its_data_is(htcondor_release, catalogue, request):
    if catalogue == "rucio":
        request.getfixturevalue("rucio_server")  # says why where there can be none
    done = demo("--catalogue", catalogue, "--release", htcondor_release)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 18 jobs ran where all their data was" in done.stdout


class SettableCatalogue:
    """A catalogue with the answers that a test gives it."""

    def __init__(self) -> None:
        self.content: dict[str, frozenset[str]] = {}

    def available(self) -> dict[str, frozenset[str]]:
        return dict(self.content)


def timeline(*moments: tuple[int, dict[str, set[str]]]) -> Timeline:
    catalogue, clock = SettableCatalogue(), iter([moment for moment, _ in moments])
    line = Timeline(catalogue, lambda: next(clock))
    for _, datasets in moments:
        line.change(
            lambda datasets=datasets: catalogue.content.update({d: frozenset(s) for d, s in datasets.items()})
        )
    return line


def verdict(
    line: Timeline, *runs: tuple[str, int], wants=("a:1",), waits: bool = False, starts: int = 1
) -> str:
    job = Submitted("job", 1, tuple(wants), max(len(runs), 1), waits)
    return judge(job, [Run(site, at, starts) for site, at in runs], line, SITES).text


def test_run_is_checked_against_the_data_at_its_start():
    line = timeline((100, {"a:1": {"UK"}}), (200, {"a:1": {"UK", "AU"}}), (300, {"a:1": {"AU"}}))
    assert verdict(line, ("UK", 150), ("AU", 200), ("UK", 299)) == "ok"
    assert verdict(line, ("AU", 199)) == "WRONG: ran at AU, allowed UK"
    assert verdict(line, ("UK", 300)) == "WRONG: ran at UK, allowed AU"


def test_all_datasets_must_be_at_the_site():
    line = timeline((100, {"a:1": {"UK", "AU"}, "a:2": {"AU", "NL"}}))
    assert verdict(line, ("AU", 100), wants=("a:1", "a:2")) == "ok"
    assert verdict(line, ("UK", 100), wants=("a:1", "a:2")) == "WRONG: ran at UK, allowed AU"
    assert verdict(line, ("NL", 100), wants=()) == "ok: may run anywhere"
    assert verdict(line, ("UK", 100), wants=("a:3",)) == "WRONG: ran at UK, allowed nowhere"


def test_job_that_did_not_run_is_right_only_if_it_had_to_wait():
    line = timeline((100, {"a:1": {"UK"}}))
    assert verdict(line) == "WRONG: did not run"
    assert verdict(line, waits=True).startswith("ok")


def test_job_that_started_twice_is_not_checked_for_its_first_start():
    line = timeline((100, {"a:1": {"UK"}}))
    assert verdict(line, ("UK", 150), starts=2).startswith("WRONG: started 2 times")
