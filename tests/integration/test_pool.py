"""The test pool itself: it works, it denies clients that a production pool denies, and it leaves no trace."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.patience import PATIENCE
from testbed.pool import Pool, PoolUnavailable, SiteSpec, ToolFailed, sites_from

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


def keeper_of(owner: int, home: Path) -> int:
    """Return the keeper process of one pool; process 1 of its namespace has the same command line."""
    pids = [line.split()[0] for line in traces(home) if "keeper.py" in line]
    parents = {
        pid: Path("/proc", pid, "stat").read_text("utf-8").rpartition(")")[2].split()[1] for pid in pids
    }
    return next(int(pid) for pid, parent in parents.items() if int(parent) == owner)


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


def test_pool_runs_a_job_at_each_site(pool: Pool):
    sites = [site.name for site in pool.sites]
    wish = 'requirements = TARGET.GLIDEIN_Site == "$(site)"\nqueue site from (\n' + "\n".join(sites) + "\n)\n"
    cluster = pool.submit(SLEEPER.format(seconds=0) + wish)
    pool.wait(lambda: pool.done(cluster, len(sites)), 60, "a job at each site")
    assert pool.ran_at(cluster) == sites


def test_startds_do_not_wait_for_processes_of_ended_starters(pool: Pool):
    """Check for the 3 s that a 25.x startd waits, with no other work, after each job it cannot account for.

    Without a condor_procd the startd counts the ended starter itself as a process that is still running.
    """
    cluster = pool.submit(SLEEPER.format(seconds=0) + "queue 8")
    pool.wait(lambda: pool.done(cluster, 8), 120, "eight jobs")
    waited = [line for site in pool.sites for line in pool.logs(f"startd:{site.name}").splitlines()]
    assert [line for line in waited if "still-running processes" in line] == []


def test_pool_runs_the_job_as_the_user_who_submitted_it(pool: Pool):
    who = SLEEPER.replace("/bin/sleep", "/usr/bin/id").format(seconds="-un")
    cluster = pool.submit(who + "output = who.txt\nqueue", "bob")
    pool.wait(lambda: pool.done(cluster), 60, "the job of bob")
    assert (pool.user_home("bob") / "who.txt").read_text("utf-8") == "bob\n"


def test_pool_has_the_version_of_its_daemons(pool: Pool):
    assert f"$CondorVersion: {pool.version} " in pool.run("condor_version").stdout


def test_pool_has_slots_of_the_requested_sizes_and_sites(pool: Pool):
    slots = pool.slots("GLIDEIN_Site", "TotalSlotCpus", constraint="PartitionableSlot")
    assert {slot["GLIDEIN_Site"]: slot["TotalSlotCpus"] for slot in slots} == {"UK": 8, "AU": 4, "NL": 2}


def test_shared_folder_has_one_path_inside_and_outside_the_pool(pool: Pool):
    (pool.shared / "note").write_text("from outside", "utf-8")
    assert pool.run("cat", pool.shared / "note", user="alice").stdout == "from outside"
    pool.run("cp", pool.shared / "note", pool.shared / "copy", user="alice")
    assert (pool.shared / "copy").read_text("utf-8") == "from outside"


def test_pool_has_a_complete_python_for_hooks(pool: Pool):
    modules = "ssl, http.client, urllib.request, json, sqlite3, fcntl, hashlib"
    assert pool.run("python3", "-c", f"import {modules}; print('all')", user=None).stdout == "all\n"


def test_the_hydrator_may_advertise_a_generic_ad(pool: Pool):
    problem = advertise(pool, "hydrator", "UPDATE_AD_GENERIC", "by-hydrator", '[MyType = "DataLocality"]')
    assert problem == ""
    pool.wait(lambda: "by-hydrator" in generic(pool), 10, "the hydrator's ad")


def test_a_token_limited_to_read_and_daemon_is_enough_to_advertise(pool: Pool):
    config = pool.client("hydrator", ["READ", "DAEMON"])
    arguments = ["UPDATE_AD_GENERIC", "by-limited", '[MyType = "DataLocality"]']
    environment = {**os.environ, "CONDOR_CONFIG": str(config)}
    subprocess.run([sys.executable, "-c", ADVERTISE, *arguments], env=environment, check=True, timeout=120)
    pool.wait(lambda: "by-limited" in generic(pool), 10, "the ad sent with a limited token")


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


def test_administrator_may_merge_into_a_slot(pool: Pool):
    """Positive control of the test above: the same ad from an identity with NEGOTIATOR arrives."""
    slot = pool.slots("Name", "MyAddress", constraint="PartitionableSlot")[0]
    more = f'[MyAddress = "{slot["MyAddress"]}"; TouchedByAdmin = true]'

    def is_merged() -> bool:
        # the startd's next update removes the attribute: it may arrive between the merge and the query
        assert advertise(pool, "condor", "MERGE_STARTD_AD", slot["Name"], more) == ""
        return bool(pool.slots("Name", constraint="TouchedByAdmin"))

    pool.wait(is_merged, 10, "the merged attribute")


def test_hydrator_reads_queues_and_changes_none(pool: Pool):
    cluster = pool.submit(SLEEPER.format(seconds=600) + "requirements = false\nqueue")
    done = pool.run(
        "condor_q", "-allusers", "-constraint", f"ClusterId == {cluster}", "-af", "Owner", user="hydrator"
    )
    assert done.stdout == "alice\n"
    with pytest.raises(ToolFailed):
        pool.run("condor_rm", str(cluster), user="hydrator")
    pool.run("condor_rm", str(cluster), user="alice")


def test_reading_needs_a_token(pool: Pool):
    with pytest.raises(ToolFailed):
        pool.run("condor_status", user=None)


def test_the_wheel_reads_the_pool_from_outside(pool: Pool):
    program = (
        "import htcondor2\n"
        "collector = htcondor2.Collector()\n"
        "schedd = htcondor2.Schedd(collector.query(htcondor2.AdType.Schedd)[0])\n"
        "slots = collector.query(htcondor2.AdType.Slot, 'PartitionableSlot')\n"
        "print(len(slots), len(schedd.query('false')))\n"
    )
    assert outside(pool, "hydrator", program) == "3 0\n"


def test_extra_configuration_can_be_replaced_while_it_runs(pool_factory: Callable[..., Pool]):
    pool = pool_factory(
        sites=[SiteSpec("UK")], extra={"startd": "COLOUR = 1\nSTARTD_ATTRS = $(STARTD_ATTRS) COLOUR"}
    )
    assert pool.slots("COLOUR")[0]["COLOUR"] == 1
    pool.reconfig(startd="COLOUR = 2\nSTARTD_ATTRS = $(STARTD_ATTRS) COLOUR")
    pool.wait(lambda: pool.slots("COLOUR")[0]["COLOUR"] == 2, 30, "the new value in the slot's ad")


def test_configuration_of_one_site_is_of_that_site_alone(pool_factory: Callable[..., Pool]):
    odd = SiteSpec("SRC-NET.UK", cpus=3, extra={"COLOUR": '"blue"', "STARTD_ATTRS": "GLIDEIN_Site COLOUR"})
    pool = pool_factory(sites=[odd, SiteSpec("NL")])
    slots = pool.slots("GLIDEIN_Site", "COLOUR", "Cpus")
    assert {slot["GLIDEIN_Site"]: (slot.get("COLOUR"), slot["Cpus"]) for slot in slots} == {
        "SRC-NET.UK": ("blue", 3),
        "NL": (None, 2),
    }


@pytest.mark.parametrize("daemon", ["collector", "negotiator", "schedd", "startd:UK"])
def test_a_daemon_can_be_stopped_and_started(pool_factory: Callable[..., Pool], daemon: str):
    pool = pool_factory(sites=[SiteSpec("UK"), SiteSpec("NL")])
    before = pool.pids(daemon)
    assert len(before) == 1
    pool.stop_daemon(daemon)
    assert pool.pids(daemon) == []
    pool.start_daemon(daemon)
    pool.wait_ready()
    assert pool.pids(daemon) not in ([], before)
    cluster = pool.submit(SLEEPER.format(seconds=0) + 'requirements = GLIDEIN_Site == "UK"\nqueue')
    pool.wait(lambda: pool.done(cluster), 60, "a job after the restart")


def test_a_killed_daemon_is_started_again(pool_factory: Callable[..., Pool]):
    pool = pool_factory(sites=[SiteSpec("UK")])
    before = pool.pids("schedd")
    pool.kill_daemon("schedd", signal.SIGKILL)
    pool.wait(lambda: pool.pids("schedd") not in ([], before), 30, "a new schedd")


def test_two_pools_run_side_by_side(pool: Pool, pool_factory: Callable[..., Pool]):
    other = pool_factory(sites=[SiteSpec("UK", cpus=1)])
    assert other.collector != pool.collector
    assert (len(other.slots("Name")), len(pool.slots("Name", constraint="PartitionableSlot"))) == (1, 3)
    other.stop()
    assert len(pool.slots("Name", constraint="PartitionableSlot")) == 3


def test_stops_without_a_trace_while_a_job_runs(pool_factory: Callable[..., Pool]):
    pool = pool_factory(sites=[SiteSpec("UK")])
    cluster = pool.submit(SLEEPER.format(seconds=600) + "queue")
    pool.wait(lambda: pool.jobs(f"ClusterId == {cluster} && JobStatus == 2"), 60, "the job to run")
    assert [trace for trace in traces(pool.home) if "condor_procd" in trace]
    pool.stop()
    assert traces(pool.home) == []
    pool.stop()


def test_pool_changes_no_kernel_setting(pool_factory: Callable[..., Pool]):
    names = ["net/ipv4/ip_local_port_range", "vm/dirty_bytes", "net/core/rmem_max", "fs/pipe-user-pages-soft"]
    before = [Path("/proc/sys", name).read_text("utf-8") for name in names]
    pool = pool_factory(sites=[SiteSpec("UK")], extra={"all": "ENABLE_KERNEL_TUNING = True"})
    pool.stop()
    assert [Path("/proc/sys", name).read_text("utf-8") for name in names] == before


def test_pool_ends_when_its_owner_is_killed(htcondor_release: str):
    with by_command("--sites", "UK:2", "--release", htcondor_release) as (owner, home):
        assert traces(home) != []
        owner.kill()
        eventually(lambda: traces(home) == [], 15, lambda: traces(home))


def test_next_pool_cleans_up_after_a_keeper_and_an_owner_that_were_killed(htcondor_release: str):
    with by_command("--sites", "UK:2", "--release", htcondor_release) as (owner, home):
        owner.send_signal(signal.SIGSTOP)
        os.kill(keeper_of(owner.pid, home), signal.SIGKILL)
        owner.kill()
        # a new pool of another worker may have removed the folder already
        eventually(lambda: traces(home) in ([], [str(home)]), 15, lambda: traces(home))
    with Pool.start(htcondor_release, [SiteSpec("UK")]):
        eventually(lambda: traces(home) == [], 15, lambda: traces(home))


def test_pool_ends_when_its_keeper_is_killed(pool_factory: Callable[..., Pool]):
    pool = pool_factory(sites=[SiteSpec("UK")])
    os.kill(keeper_of(os.getpid(), pool.home), signal.SIGKILL)
    eventually(lambda: traces(pool.home) == [str(pool.home)], 15, lambda: traces(pool.home))
    pool.stop()
    assert traces(pool.home) == []


def test_pool_command_stops_without_a_trace_on_sigterm(htcondor_release: str):
    with by_command("--sites", "UK:2", "--release", htcondor_release) as (owner, home):
        facts = json.loads((home / "pool.json").read_text("utf-8"))
        tool = [
            sys.executable,
            "-m",
            "testbed.pool",
            "run",
            "--pool",
            str(home),
            "condor_status",
            "-af",
            "Name",
        ]
        done = subprocess.run(
            tool, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], timeout=120
        )
        assert done.stdout.startswith("slot1@UK@")
        assert facts["collector"].startswith("127.0.0.1:")
        owner.terminate()
        assert owner.wait(120) == 0
        assert traces(home) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root uses a private Debian tree")
def test_newer_debian_release_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tree = tmp_path / "classad-hydrator" / "sid"
    tree.mkdir(parents=True)
    (tree / "testbed.done").write_text("26.0.3\n", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    messages: list[str] = []
    assert Pool.prepare("25.14", messages.append) == "26.0.3"
    assert messages == ["HTCondor 25.14 was asked for; Debian sid has 26.0.3"]


def test_unknown_release_is_reported_in_one_sentence():
    with pytest.raises(
        PoolUnavailable, match=r"^no release '8\.8' of HTCondor is known here: choose one of [^.]*25\.14"
    ):
        Pool.start("8.8")


@pytest.mark.parametrize("text", ["", "UK:", "UK:0", ":4", "UK:x", "UK:4,,NL:2", "UK:4,uk:2"])
def test_invalid_list_of_sites_is_rejected(text: str):
    with pytest.raises(ValueError, match="site"):
        sites_from(text)
