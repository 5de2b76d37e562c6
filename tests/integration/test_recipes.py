"""Recipes of docs/how-to/submit/write-a-job.md, as printed, with the tools that they are for."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import recipes
from testbed.pool import Pool
from tests.desk import Desk
from tests.pages import blocks
from tests.parts import NO_RECIPES, needs

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

PAGE = "write-a-job.md"
LOOPBACK = {
    "DASK_JOBQUEUE__HTCONDOR__SCHEDULER_OPTIONS": '{"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}',
    "DASK_DISTRIBUTED__WORKER__DASHBOARD__LINK": "",
}


def recipe(begin: str) -> str:
    """Return the block of the page that begins with the line *begin*."""
    (text,) = [block.text for block in blocks() if block.page == PAGE and block.text.startswith(f"{begin}\n")]
    return text


@pytest.fixture
def desk(pool: Pool, request: pytest.FixtureRequest) -> Iterator[Desk]:
    yield Desk(pool, pool.user_home("alice") / re.sub(r"\W+", "-", request.node.name))
    pool.empty_queue()


@pytest.fixture(scope="module")
def tools() -> Path:
    with needs(NO_RECIPES):
        return recipes.python()


def jobs(desk: Desk, constraint: str = "true") -> list[dict[str, object]]:
    """Return all jobs that were submitted from the folder, also ended ones."""
    mine = f'substr(Iwd, 0, {len(str(desk.folder))}) == "{desk.folder}" && ({constraint})'
    named = ("ClusterId", "ProcId", "RequiredDatasets", "DataLocality")
    found = [*desk.pool.jobs(mine, *named), *desk.pool.history(mine, *named)]
    return list({(job["ClusterId"], job["ProcId"]): job for job in found}.values())


def test_dask_jobqueue_asks_for_datasets(desk, tools):
    script = (
        recipe("from dask_jobqueue import HTCondorCluster")
        + "import sys\nsys.stdin.read()\ncluster.close()\n"
    )
    (desk.folder / "cluster.py").write_text(script)
    with (desk.folder / "stderr").open("w") as stderr:
        dask = subprocess.Popen(
            [str(tools), "cluster.py"],
            cwd=desk.folder,
            env={**os.environ, **LOOPBACK, "PATH": desk.path, "TMPDIR": str(desk.folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        desk.pool.wait(lambda: len(jobs(desk)) >= 2, 180, f"two workers; see {desk.folder}/stderr")
    finally:
        dask.communicate(b"", timeout=120)
    for job in jobs(desk):
        assert (job["RequiredDatasets"], job["DataLocality"]) == (["lofar:L1"], "require")


DESCRIBE = """\
from pathlib import Path
from htmap.options import create_submit_object_and_itemdata
import htmap
htmap.settings["DELIVERY_METHOD"] = "assume"
for name, options in (("all", all_read_one), ("each", each_its_own)):
    (Path.cwd() / name / "output_files").mkdir(parents=True)
    description, items = create_submit_object_and_itemdata(name, Path.cwd() / name, 2, options)
    keys = list(items[0])
    rows = [",".join(item[key] for key in keys) for item in items]
    Path(f"{name}.items").write_text("\\n".join(rows) + "\\n")
    queue = f"queue {','.join(keys)} from {name}.items"
    Path(f"{name}.sub").write_text(f"{description}\\nhold = true\\n{queue}\\n")
"""


@pytest.mark.parametrize(
    ("which", "expected"), [("all", [["lofar:L1"], ["lofar:L1"]]), ("each", [["lofar:L1"], ["lofar:L2"]])]
)
def test_htmap_asks_for_datasets(desk, tools, which, expected):
    """HTMap's own description and items, through condor_submit: its bindings need a user's complete login."""
    home = desk.folder / "home"
    home.mkdir()
    subprocess.run(
        [str(tools), "-W", "ignore", "-c", recipe("import htmap") + DESCRIBE],
        cwd=desk.folder,
        env={**os.environ, "HOME": str(home), "CONDOR_CONFIG": "/dev/null"},
        check=True,
    )
    desk.pool.run("condor_submit", f"{which}.sub", user="alice", cwd=desk.folder)
    found = sorted(jobs(desk), key=lambda job: job["ProcId"])
    assert [job["RequiredDatasets"] for job in found] == expected


def test_htcondor_command_submits_a_file_unchanged(desk):
    text = (
        recipe("executable = analyse.sh")
        .replace("analyse.sh", "/bin/true")
        .replace("queue", "hold = true\nqueue")
    )
    desk.write("analyse.sub", text)
    done = desk.pool.run("htcondor", "job", "submit", "analyse.sub", user="alice", cwd=desk.folder)
    assert "was submitted" in done.stdout + done.stderr
    assert [job["RequiredDatasets"] for job in jobs(desk)] == [["lofar:L667526_SB001", "lofar:L667526_SB002"]]
