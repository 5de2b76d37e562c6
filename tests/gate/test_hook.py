"""The hook: complete under a real startd, patient with its pipe, and true while its daemon is away."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hydrator import startd_cron as hook
from testbed.patience import wait_for
from testbed.processes import run_program
from tests.hook_ads import OURS, ad_text, put, whole

HOOK = (sys.executable, "-I", "-S", hook.__file__)
GENERATIONS, DATASETS = 10, 1000


@pytest.mark.older
@pytest.mark.pool
@pytest.mark.rucio
@pytest.mark.timeout(900)
def test_hook_output_of_1000_datasets_is_complete_under_a_real_startd(installed):
    """Each generation is new, so each is an update: a lost tail or a merged line would be visible."""
    pool, folder = installed.pool, installed.bulk
    begun_at = int(time.time())
    log_before = len(pool.logs("startd:NL"))
    for generation in range(begun_at, begun_at + GENERATIONS):
        assert whole(bulk_ad_of(installed, generation, DATASETS), DATASETS, "NL")
    # other tests use the slot after this one
    assert whole(bulk_ad_of(installed, begun_at + GENERATIONS, 2), 2, "NL")
    assert not (folder / "said").exists() or (folder / "said").read_text() == ""
    (folder / "NL.ad").unlink()  # a run of the hook may just look for it
    log = pool.logs("startd:NL")[log_before:]
    assert not re.search("Can't insert|DatasetStates|AvailableDatasets|DataLocality", log), log[-3000:]
    assert (folder / "runs").stat().st_size >= GENERATIONS


def bulk_ad_of(installed, generation, many):
    """Give the second hook an ad, and return what the slot of NL shows of it in the collector."""
    put(installed.bulk / "NL.ad", ad_text(generation, int(time.time()), many, "NL"))
    ad = installed.pool.wait(
        lambda: (ad := bulk_ad(installed.pool)).get("DataLocalityGeneration") == generation and ad,
        f"generation {generation} in the slot",
    )
    assert set(ad) == set(OURS)
    return ad


def bulk_ad(pool):
    names = [f"Bulk{name}" for name in OURS]
    (slot,) = pool.slots(*names, constraint='PartitionableSlot && GLIDEIN_Site == "NL"')
    return {name.removeprefix("Bulk"): value for name, value in slot.items()}


def test_hook_prints_old_facts_while_its_daemon_is_away_and_new_ones_after_its_return(daemon, tmp_path):
    url = f"http://127.0.0.1:{daemon.port}"
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), "the first dataset")
    assert 'AvailableDatasets = ({"lofar:L1"})' in run_hook(url, tmp_path).stdout
    here = run_hook(url, tmp_path)
    assert daemon.end() == 0

    away = run_hook(url, tmp_path)
    assert "Connection refused" in away.stdout
    assert facts(away.stdout) == facts(here.stdout)
    assert 'AvailableDatasets = ({"lofar:L1"})' in away.stdout

    daemon.catalogue({"lofar:L1": {"CAM": "available"}, "lofar:L2": {"CAM": "available"}})
    daemon.start()
    wait_for(lambda: "lofar:L2" in daemon.ad(), "the second dataset")
    back = run_hook(url, tmp_path)
    assert 'AvailableDatasets = ({"lofar:L1","lofar:L2"})' in back.stdout
    assert "DataLocalityError = undefined" in back.stdout


def run_hook(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [*HOOK, "--site", "CAM", "--url", url, "--cache-dir", str(folder / "cache"), "--jitter", "0"]
    return run_program(words, stdin=subprocess.DEVNULL)


def facts(text: str) -> str:
    """Return the block of locality, which follows that of troubles."""
    return text.partition("- trouble\n")[2]


def test_hook_waits_until_its_pipe_is_empty(tmp_path):
    """After the end of the hook, a startd reads only a few more kilobytes."""
    put(tmp_path / "UK.ad", ad_text(int(time.time()), int(time.time()), many=400))
    words = [*HOOK, "--site", "UK", "--file", str(tmp_path), "--cache-dir"]
    whole_output = subprocess.run([*words, str(tmp_path / "one")], capture_output=True, check=True).stdout
    with subprocess.Popen([*words, str(tmp_path / "two")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        pipe = child.stdout.fileno()
        wait_for(lambda: hook.unread_byte_count(pipe) == len(whole_output), "the whole output in the pipe")
        before = rest_count(child.pid)
        wait_for(lambda: child.poll() is not None or rest_count(child.pid) > before + 10, "ten looks")
        assert child.poll() is None, "the hook ended before its pipe was read"
        assert child.stdout.read() == whole_output
        assert child.wait() == 0


def rest_count(pid: int) -> int:
    """Return how often the process has gone to sleep: the hook does before each look at its pipe."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(status.split("voluntary_ctxt_switches:")[1].split()[0])
