"""``make demo``: every job runs where its data is, any other fails the demo, and nothing is left over."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import processes
from testbed.demo import Run, Submitted, Timeline, judge
from testbed.demo_recording import read_recording
from testbed.patience import PATIENCE

ROOT = Path(__file__).parents[2]
SITES = ("UK", "AU", "NL")
ON_A_POOL = [pytest.mark.pool, pytest.mark.slow, pytest.mark.timeout(900)]


def on_a_pool(test):
    for mark in ON_A_POOL:
        test = mark(test)
    return test


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testbed.demo", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=850)


def rows(output: str) -> dict[str, list[str]]:
    """Return the cells of each job's row, by its name; of a job in both tables those of the last one."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in output.splitlines():
        cells = [cell.strip() for cell in re.split("[│|]", line)[1:-1]]
        if len(cells) != 5:
            continue
        if re.match(r"\d+: ", cells[0]):
            name = cells[0].partition(": ")[2]
            found[name] = cells[1:]
        elif name:
            found[name] = [f"{old} {more}".strip() for old, more in zip(found[name], cells[1:], strict=True)]
    return found


def headlines(lines: list[str]) -> list[str]:
    """Return the lines outside tables, without numbers, from the start of the pool on."""
    texts = [
        re.sub(r"\d+(\.\d+)*", "N", " ".join(line.split()))
        for line in lines
        if line.strip() and not re.search("[│╭├╰@]", line)
    ]
    begin = next(place for place, text in enumerate(texts) if "starting a pool" in text)
    return texts[begin:]


@on_a_pool
@pytest.mark.parametrize(
    "catalogue",
    ["file", pytest.param("rucio", marks=pytest.mark.rucio), pytest.param("dmapi", id="dmapi-stand-in")],
)
def test_every_job_runs_where_its_data_is(htcondor_release, catalogue, request):
    if catalogue == "rucio":
        request.getfixturevalue("rucio_server")  # says why where there can be none
    done = demo("--catalogue", catalogue, "--release", htcondor_release)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    shown = rows(done.stdout)
    ran = {name: cells[2] for name, cells in shown.items()}
    assert ran["burst, largest slot x 6"] == "UK x 6"
    assert ran["two datasets"] == "AU"
    assert ran["after it left NL x 3"] == "AU x 3"
    assert ran["needs both, in one place"] == "UK"
    assert {cells[3] for cells in shown.values()} == {"ok", "ok: may run anywhere"}
    assert "ok: waits for its data" in done.stdout
    assert done.stdout.count("condor_status -print-format locality.cpf") == 2
    if catalogue == "file":
        recorded = read_recording()
        advice = "the README shows another text: run python -m testbed.demo_recording"
        assert headlines(recorded) == headlines(done.stdout.splitlines()), advice
        assert rows("\n".join(recorded)).keys() == shown.keys(), advice


@on_a_pool
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_interrupted_demo_leaves_nothing_behind(htcondor_release, how):
    command = [sys.executable, "-m", "testbed.demo", "--release", htcondor_release]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        lines = []
        for line in running.stdout:
            lines.append(line)
            if "jobs submitted" in line:
                break
        folders = run_folders(running.pid)
        assert folders, "".join(lines)
        if how == "Ctrl-C":
            os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all of its group
        else:
            running.send_signal(signal.SIGTERM)
        rest = running.stdout.read()
        assert running.wait(120) == 130
    assert rest.splitlines()[-1] == "stopped; nothing is left running"
    assert "Traceback" not in rest
    deadline = time.monotonic() + 10 * PATIENCE  # the keeper's own end
    while run_folders(running.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert run_folders(running.pid) == set()
    assert not any(folder.exists() for folder in folders)


def run_folders(pid: int) -> set[Path]:
    """Return the run folders of the pool that process *pid* started, from all processes' command lines."""
    of_pool = rf"(/[^\0]*/pool-{pid}-[0-9a-f]{{4}})"
    return {
        Path(folder)
        for command in processes.each("cmdline").values()
        for folder in re.findall(of_pool, command)
    }


@pytest.mark.parametrize("release", ["path", "8.8"])
def test_demo_without_a_pool_ends_with_one_sentence(release):
    empty = {**os.environ, "PATH": "/nonexistent"}
    command = [sys.executable, "-m", "testbed.demo", "--release", release]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120, env=empty
    )
    assert done.returncode == 1
    assert done.stderr.startswith("no demo here: ")
    assert len(done.stderr.splitlines()) == 1


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


# the recording in the README
