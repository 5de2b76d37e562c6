"""The test pool itself: it works, it denies clients that a production pool denies, and it leaves no trace."""

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.patience import wait_for
from testbed.pool import Pool, SiteSpec

pytestmark = pytest.mark.pool

SLEEPER = (
    "executable = /bin/sleep\narguments = {seconds}\n"
    "request_cpus = 1\nrequest_memory = 16\nrequest_disk = 16\n"
)


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


OWNER = """
import sys
from testbed.pool import Pool, SiteSpec

with Pool.start(sys.argv[1], [SiteSpec("UK")]) as pool:
    print(pool.home, flush=True)
    sys.stdin.read()
"""


def test_stops_without_a_trace_while_a_job_runs(htcondor_release: str):
    pool = Pool.start(htcondor_release, [SiteSpec("UK")])
    cluster = pool.submit(SLEEPER.format(seconds=600) + "queue")
    pool.until_running(cluster)
    assert [trace for trace in traces(pool.home) if "condor_procd" in trace]
    pool.stop()
    assert traces(pool.home) == []
    pool.stop()


def test_pool_ends_when_its_owner_is_killed(htcondor_release: str):
    words = [sys.executable, "-c", OWNER, htcondor_release]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        home = Path(owner.stdout.readline().strip())
        assert traces(home) != []
        owner.kill()
        wait_for(lambda: traces(home) == [], "nothing to be left")
