"""The test pool itself: it works, it denies clients that a production pool denies, and it leaves no trace."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.patience import PATIENCE
from testbed.pool import Pool, SiteSpec, ToolFailed

pytestmark = pytest.mark.pool

SLEEPER = (
    "executable = /bin/sleep\narguments = {seconds}\n"
    "request_cpus = 1\nrequest_memory = 16\nrequest_disk = 16\n"
)

ADVERTISE = """
import sys, classad2, htcondor2
command, name, more = sys.argv[1:4]
ad = classad2.ClassAd(more)
ad["Name"] = name
try:
    htcondor2.Collector().advertise([ad], command, True)
except Exception as failure:
    print(f"{type(failure).__name__}: {failure}")
"""


def outside(pool: Pool, identity: str | None, program: str, *arguments: str) -> str:
    """Return the output of *program*, run outside the pool with the PyPI wheel and a token of *identity*."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "CONDOR_CONFIG": str(pool.client(identity))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def advertise(pool: Pool, identity: str | None, command: str, name: str, more: str) -> str:
    """Send one ad; return the sender's error, which is not every possible one."""
    return outside(pool, identity, ADVERTISE, command, name, more)


def generic(pool: Pool) -> set[str]:
    return {ad["Name"] for ad in pool.ads('MyType == "DataLocality"', "Name")}


def traces(home: Path) -> list[str]:
    """Return all on this machine that still belongs to the pool whose run folder was *home*."""
    found = [str(home)] if home.exists() else []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            texts = [str((process / "root").readlink()), str((process / "cwd").readlink())]
            texts += [
                (process / name).read_text("utf-8", "replace") for name in ("cmdline", "environ", "mountinfo")
            ]
        except OSError:
            continue
        if any(home.name in text for text in texts):
            found.append(f"{process.name} {texts[2]}")
    return found


def eventually(condition: Callable[[], bool], seconds: float, what: Callable[[], object]) -> None:
    deadline = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@contextmanager
def by_command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start ``python -m testbed.pool up``; return it with its run folder, once it is up."""
    command = [sys.executable, "-m", "testbed.pool", "up", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(5)]
            shared = next(line.split()[2] for line in lines if "shared folder:" in line)
            yield process, Path(shared).parent
        finally:
            process.terminate()


@pytest.mark.parametrize("identity", ["alice", "stranger", None])
def test_other_users_may_not_advertise_a_generic_ad(pool: Pool, identity: str | None):
    problem = advertise(pool, identity, "UPDATE_AD_GENERIC", f"by-{identity}", '[MyType = "DataLocality"]')
    advertise(pool, "hydrator", "UPDATE_AD_GENERIC", f"after-{identity}", '[MyType = "DataLocality"]')
    pool.wait(lambda: f"after-{identity}" in generic(pool), 10, "the ad that was sent later")
    assert f"by-{identity}" not in generic(pool)
    assert problem != ""


@pytest.mark.parametrize("command", ["MERGE_STARTD_AD", "UPDATE_STARTD_AD", "INVALIDATE_STARTD_ADS"])
def test_hydrator_may_not_update_a_slot(pool: Pool, command: str):
    slot = pool.slots("Name", "MyAddress", constraint="PartitionableSlot")[0]
    name, address = slot["Name"], slot["MyAddress"]
    query = f'MyType = "Query"; TargetType = "Machine"; Requirements = Name == "{name}"; '
    more = f'[{query if "INVALIDATE" in command else ""}MyAddress = "{address}"; Touched = true]'
    problem = advertise(pool, "hydrator", command, name, more)
    advertise(pool, "hydrator", "UPDATE_AD_GENERIC", f"after-{command}", '[MyType = "DataLocality"]')
    pool.wait(lambda: f"after-{command}" in generic(pool), 10, "the ad that was sent later")
    slot = pool.slots("Name", "Touched", "Cpus", constraint=f'Name == "{name}"')
    assert [(ad["Name"], "Cpus" in ad, "Touched" in ad) for ad in slot] == [(name, True, False)]
    assert problem != ""


def test_hydrator_reads_queues_and_changes_none(pool: Pool):
    cluster = pool.submit(SLEEPER.format(seconds=600) + "requirements = false\nqueue")
    done = pool.run(
        "condor_q", "-allusers", "-constraint", f"ClusterId == {cluster}", "-af", "Owner", user="hydrator"
    )
    assert done.stdout == "alice\n"
    with pytest.raises(ToolFailed):
        pool.run("condor_rm", str(cluster), user="hydrator")
    pool.run("condor_rm", str(cluster), user="alice")


def test_stops_without_a_trace_while_a_job_runs(pool_factory: Callable[..., Pool]):
    pool = pool_factory(sites=[SiteSpec("UK")])
    cluster = pool.submit(SLEEPER.format(seconds=600) + "queue")
    pool.wait(lambda: pool.jobs(f"ClusterId == {cluster} && JobStatus == 2"), 60, "the job to run")
    assert [trace for trace in traces(pool.home) if "condor_procd" in trace]
    pool.stop()
    assert traces(pool.home) == []
    pool.stop()


def test_pool_ends_when_its_owner_is_killed(htcondor_release: str):
    with by_command("--sites", "UK:2", "--release", htcondor_release) as (owner, home):
        assert traces(home) != []
        owner.kill()
        eventually(lambda: traces(home) == [], 15, lambda: traces(home))
