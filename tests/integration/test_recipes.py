"""Examples of docs/how-to/submit/other-tools.md: alice runs each tool on a pool."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from testbed import recipes
from testbed.pool import Pool
from tests.located import Located, configured, record
from tests.pages import blocks
from tests.parts import NO_RECIPES, needs
from tests.pythons import copy_python

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
L1, L2 = Did("lofar:L1"), Did("lofar:L2")
LOOPBACK = {
    "DASK_JOBQUEUE__HTCONDOR__SCHEDULER_OPTIONS": '{"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}',
    "DASK_DISTRIBUTED__WORKER__DASHBOARD__LINK": "",
}
SITE = "sed -n 's/^GLIDEIN_Site = //p' $_CONDOR_MACHINE_AD"


@pytest.fixture(scope="module")
def shared_located(htcondor_release: str) -> Iterator[Located]:
    with Pool.start(htcondor_release) as pool:
        yield Located(pool)


@pytest.fixture(scope="module")
def python(shared_located: Located) -> Path:
    """A Python that the pool's users and jobs can run, with the tools and this project."""
    usr = shared_located.pool.shared / "tools" / "usr"
    with needs(NO_RECIPES):
        (installed,) = recipes.python().parents[1].glob("lib/python3*/site-packages")
    copy_python(sys.executable, usr.parent)
    (library,) = usr.glob("lib/python3*")
    packages = Path(shutil.copytree(installed, library / "site-packages"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", packages, ROOT], check=True)
    program = usr / "bin" / "python3"
    libraries, real = usr / "lib", usr / "bin" / library.name
    program.write_text(f'#!/bin/bash\nLD_LIBRARY_PATH={libraries} exec -a "$0" {real} "$@"\n')
    program.chmod(0o755)
    return program


class Desk:
    """A folder of alice's, from which she runs tools; the jobs of this test."""

    def __init__(self, located: Located, python: Path, name: str) -> None:
        self.pool, self.python = located.pool, python
        self.folder = located.pool.user_home("alice") / name
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self._first = 0
        self._first = max((int(job["ClusterId"]) for job in self.jobs()), default=0) + 1

    def run(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.pool.run(*words, user="alice", cwd=self.folder, env=LOOPBACK, timeout=300, check=check)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def jobs(self) -> list[dict]:
        """Return the test's jobs, also ended ones, but not DAGMan's own, in the order of their numbers."""
        mine = f"JobUniverse == 5 && ClusterId >= {self._first}"
        named = ("ClusterId", "ProcId", "RequiredDatasets", "LastRemoteHost")
        found = [*self.pool.jobs(mine, *named), *self.pool.history(mine, *named)]
        jobs = {(job["ClusterId"], job["ProcId"]): job for job in found}
        return [jobs[number] for number in sorted(jobs)]

    def datasets(self, count: int) -> list[list[str]]:
        """Wait for *count* jobs; return the datasets of each."""
        self.pool.wait(lambda: len(self.jobs()) == count, 60, f"{count} jobs")
        return [sorted(job.get("RequiredDatasets", [])) for job in self.jobs()]


@pytest.fixture
def located(shared_located: Located) -> Iterator[Located]:
    yield shared_located
    shared_located.clear()


@pytest.fixture
def desk(located: Located, python: Path, request: pytest.FixtureRequest) -> Desk:
    return Desk(located, python, re.sub(r"\W+", "-", request.node.name))


def printed(words: str) -> str:
    """Return the blocks of the page with these *words*, one after the other."""
    return "\n".join(block.text for block in blocks(words))


def keyed(*sets: set[Did]) -> str:
    return f"DataLocalitySets = {record({set_key(each): 1.0 for each in sets})}\n"


WORKERS = f"""
import json, subprocess
from distributed import Client

with Client(cluster) as client:
    client.wait_for_workers(2, timeout=120)
    print(json.dumps(list(client.run(subprocess.getoutput, {SITE!r}).values())))
cluster.close()
"""


def test_dask_workers_start_beside_their_data(located, desk):
    located.advertise({"NL": keyed({L1, L2})})
    desk.write("cluster.py", printed("python dask") + WORKERS)
    assert json.loads(desk.run(desk.python, "cluster.py").stdout) == ['"NL"', '"NL"']


def test_htcondor_command_submits_jobs_and_dags_unchanged(located, desk):
    (text,) = [block.text for block in blocks("text submit") if "executable = analyse.sh" in block.text]
    desk.write("analyse.sub", text.replace("analyse.sh", "/bin/true\nhold = true"))
    desk.write("analyses.dag", "JOB A analyse.sub\nJOB B analyse.sub\n")
    desk.run("htcondor", "job", "submit", "analyse.sub")
    desk.run("htcondor", "dag", "submit", "analyses.dag")
    assert desk.datasets(3) == [["lofar:L667526_SB001", "lofar:L667526_SB002"]] * 3


def test_htcondor_command_submits_a_set_of_jobs(located, desk):
    desk.write("flag.set", printed("text jobset").replace("flag.sh", "/bin/true\n    hold = true"))
    with configured(located, more={"schedd": "USE_JOBSETS = true\n"}):
        desk.run("htcondor", "jobset", "submit", "flag.set")
        assert desk.datasets(2) == [["lofar:C1", L1], ["lofar:C2", L2]]


FOLLOW = """
htmap.settings["DELIVERY_METHOD"] = "assume"
for options in (all_read_one, each_its_own):
    try:
        htmap.map(abs, [-1, -2], map_options=options).component_statuses
    except ValueError as error:
        print(error)
"""


def test_htmap_asks_for_datasets_and_cannot_follow_its_map(located, desk):
    desk.write("map.py", printed("python htmap") + FOLLOW)
    done = desk.run(desk.python, "-W", "ignore", "map.py")
    assert desk.datasets(4) == [[L1], [L1], [L1], [L2]]
    assert done.stdout.count("JobBatchName") == 2
