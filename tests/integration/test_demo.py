"""``make demo``: every job runs where its data is, and any other fails the demo."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITES = ("UK", "AU", "NL")


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


@pytest.mark.pool
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("catalogue", ["file", pytest.param("rucio", marks=pytest.mark.rucio)])
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
