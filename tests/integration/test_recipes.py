"""Examples of docs/users/tools.md: alice runs each tool on a pool."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from testbed import recipes
from testbed.files import write_program
from tests.located import Located, configured, record
from tests.pages import blocks
from tests.parts import needs
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
def python(shared_located: Located) -> Path:
    """A Python that the pool's users and jobs can run, with the tools and this project."""
    usr = shared_located.pool.shared / "tools" / "usr"
    with needs("dask-jobqueue or Snakemake"):
        (installed,) = recipes.python().parents[1].glob("lib/python3*/site-packages")
    copy_python(sys.executable, usr.parent)
    (library,) = usr.glob("lib/python3*")
    packages = Path(shutil.copytree(installed, library / "site-packages"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", packages, ROOT], check=True)
    program = usr / "bin" / "python3"
    libraries, real = usr / "lib", usr / "bin" / library.name
    write_program(program, f'#!/bin/bash\nLD_LIBRARY_PATH={libraries} exec -a {program} {real} "$@"\n')
    return program


class Desk:
    """A folder of alice's, from which she runs tools; the jobs of this test."""

    def __init__(self, located: Located, python: Path, name: str) -> None:
        self.pool, self.python = located.pool, python
        self.folder = located.pool.user_home("alice") / name
        self.folder.mkdir()
        self.folder.chmod(0o777)
        before = [*self.pool.jobs("true", "ClusterId"), *self.pool.history("true", "ClusterId")]
        self._first = max((int(job["ClusterId"]) for job in before), default=0) + 1

    def run(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.pool.run(*words, user="alice", cwd=self.folder, env=LOOPBACK, timeout=300, check=check)

    def write(self, name: str, text: str) -> None:
        write_program(self.folder / name, text)

    def jobs(self, count: int, *attributes: str) -> list[dict]:
        """Wait for *count* jobs, also ended ones, but not DAGMan's own; return them by their numbers."""
        mine = f"JobUniverse == 5 && ClusterId >= {self._first}"
        named = ("ClusterId", "ProcId", "RequiredDatasets", *attributes)

        def found() -> dict[tuple[int, int], dict]:
            ads = [*self.pool.jobs(mine, *named), *self.pool.history(mine, *named)]
            return {(ad["ClusterId"], ad["ProcId"]): ad for ad in ads}

        self.pool.wait(lambda: len(found()) == count, f"{count} jobs")
        return [ad for _, ad in sorted(found().items())]

    def datasets(self, count: int) -> list[list[str]]:
        return [sorted(job.get("RequiredDatasets", [])) for job in self.jobs(count)]


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
    """Case S35 of cases/submit.md."""
    located.advertise({"NL": keyed({L1, L2})})
    desk.write("cluster.py", printed("python dask") + WORKERS)
    assert json.loads(desk.run(desk.python, "cluster.py").stdout) == ['"NL"', '"NL"']


def test_snakemake_runs_each_job_beside_its_data(located, desk):
    """The plugin submits, follows the log of the jobs, and takes their files. Case S31 of cases/submit.md."""
    calibrator = Did("lofar:calibrator")
    located.advertise({"AU": keyed({L1, calibrator}), "NL": keyed({L2, calibrator})})
    desk.write("Snakefile", printed("python snakemake"))
    desk.write("flag.sh", f"#!/bin/sh\n{SITE}\n")
    program, *words = printed("sh snakemake").split()
    desk.run(desk.python, "-m", program, *words)
    assert (desk.folder / "flagged/L1.txt").read_text() == '"AU"\n'
    assert (desk.folder / "flagged/L2.txt").read_text() == '"NL"\n'
    assert sorted(desk.datasets(2)) == [[L1, calibrator], [L2, calibrator]]


SUBMIT_ROWS = """
few, many = ["lofar:L1"], [f"lofar:L{number}" for number in range(100)]
each = [
    {},
    job_attributes(few),
    job_attributes(many, mode="require"),
    job_attributes(few, mode="wait", max_wait_seconds=7200, expected_seconds=60),
]
rows = [{"arguments": "#", **row} for row in each]
for more in ({}, {"max_materialize": "9"}, attributes):
    for ordered in (rows, rows[::-1]):
        submit = htcondor2.Submit({"executable": "/bin/true", "hold": "true", **more})
        htcondor2.Schedd().submit(submit, itemdata=item_rows(ordered))
"""


def test_bindings_submit_rows_that_keep_what_they_have(located, desk):
    """Also in another order, with late materialization, and with the attributes in the description.

    Case S14 of cases/submit.md.
    """
    desk.write("rows.py", printed("python bindings") + SUBMIT_ROWS)
    desk.run(desk.python, "rows.py")
    many = sorted(f"lofar:L{number}" for number in range(100))
    rows = [
        [None, None, None, None, None],
        [[L1], "auto", None, True, set_key([L1])],
        [many, "require", None, True, set_key(map(Did, many))],
        [[L1], "wait", 60, True, set_key([L1])],
    ]
    names = ("DataLocality", "DataLocalityExpectedSeconds", "DataLocalityTransformed", "DataLocalityKey")
    found = [[job.get(name) for name in ("RequiredDatasets", *names)] for job in desk.jobs(24, *names)]
    assert found == [*rows, *rows[::-1]] * 3


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
    """Case S34 of cases/submit.md."""
    desk.write("map.py", printed("python htmap") + FOLLOW)
    done = desk.run(desk.python, "-W", "ignore", "map.py")
    assert desk.datasets(4) == [[L1], [L1], [L1], [L2]]
    assert done.stdout.count("JobBatchName") == 2
