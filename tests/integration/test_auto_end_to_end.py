"""Estimates on a real pool, from the configured uplink to the slot ads, and a job with mode auto by them.

UK has the 500 GB of the set and one core. That core and three queued jobs of 4,096 s each belong to the set,
so one more job starts there in 16,384 s. The same job at NL reads first, at the rate of UK's uplink.
"""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec
from tests.desk import Desk

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

NAMES = ("ska:visibilities", "ska:Calibration")
KEY = set_key([Did(name) for name in NAMES])
KEYED = f'+DataLocalityKey = "{KEY}"\n+DataLocalityExpectedSeconds = 4096\n'
QUEUE_SECONDS = 16384
"""The rest of a run and three runs of 4,096 s; with the auto job in the queue four runs: the same class."""
SLOW_GBIT, SLOW_READ_SECONDS = 0.05, 131072
"""500 GB at 6.25 MB/s are 80,000 s alone, and 160,000 s with the one reader that may begin meanwhile."""
FAST_GBIT, FAST_READ_SECONDS = 8, 1024
"""500 GB at 1 GB/s: 500 s alone, 1,000 s with one other reader."""


class SizedCatalogue(ListedCatalogue):
    """A catalogue in which UK has the two datasets of the set, of 250 GB each."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool.home, ("UK", "NL"))
        one = {"bytes": 250_000_000_000, "sites": {"UK": "available"}}
        content = {"sites": ["UK", "NL"], "datasets": dict.fromkeys(NAMES, one)}
        self._file.write_text(json.dumps(content), "utf-8")


def uplink(gbit_per_second: float) -> str:
    return f"[network.uplinks.UK]\ngbit_per_second = {gbit_per_second}\n"


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    with (
        Pool.start(htcondor_release, [SiteSpec("UK", 1), SiteSpec("NL", 1)]) as pool,
        Installation(
            pool,
            SizedCatalogue(pool),
            road="url",
            settings=f"{uplink(SLOW_GBIT)}[jobs]\nauto_settle_seconds = 600\n",
            demand="settle_seconds = 0\n",
        ) as installation,
    ):
        yield installation


def set_uplink(installed: Installation, before: float, after: float) -> None:
    """Change the rate in the configuration of the daemon, which reads it again."""
    text = installed.config.read_text("utf-8")
    installed.config.write_text(text.replace(uplink(before), uplink(after)), "utf-8")
    os.kill(installed.pid, signal.SIGHUP)


def facts_at(installed: Installation, site: str) -> dict[str, object]:
    """Return what the site's partitionable slot says about the set, and its queue of its own."""
    names = {name: f"DataLocality{name}" for name in ("Sets", "ReadSeconds", "QueueSeconds", "ReadFrom")}
    own = "DataLocalityOwnQueueSeconds"
    constraint = f'PartitionableSlot && GLIDEIN_Site == "{site}"'
    (slot,) = installed.pool.slots(*names.values(), own, constraint=constraint)
    facts = {name: dict(slot.get(attribute) or {}).get(KEY) for name, attribute in names.items()}
    return facts | {"OwnQueueSeconds": slot.get(own)}


def wait_for_facts(installed: Installation, site: str, **expected: object) -> None:
    installed.pool.wait(
        lambda: facts_at(installed, site) == expected, 120, f"the slot of {site} to say {expected}"
    )


def nl_facts(read_seconds: int) -> dict[str, object]:
    return {
        "Sets": 0.0,
        "ReadSeconds": read_seconds,
        "QueueSeconds": QUEUE_SECONDS,
        "ReadFrom": "UK",
        "OwnQueueSeconds": 0,
    }


def test_auto_job_waits_for_a_slow_link_and_leaves_when_the_link_is_fast(installed):
    pool = installed.pool
    beside = installed.submit(NAMES, mode="require", count=4, seconds=3000, more=KEYED)
    is_running = f"ClusterId == {beside} && JobStatus == 2"
    pool.wait(lambda: len(pool.jobs(is_running, "ProcId")) == 1, 60, "the first job to take UK's only core")
    wait_for_facts(installed, "NL", **nl_facts(SLOW_READ_SECONDS))
    wait_for_facts(
        installed,
        "UK",
        Sets=1.0,
        ReadSeconds=None,
        QueueSeconds=None,
        ReadFrom=None,
        OwnQueueSeconds=QUEUE_SECONDS,
    )

    auto = installed.submit(NAMES, mode="auto", more=KEYED)
    pool.wait(lambda: pool.job(auto, "LastRejMatchTime"), 60, "the negotiator to have looked at the job")
    assert pool.job(auto, "JobStatus") == {"JobStatus": 1}
    assert facts_at(installed, "NL") == nl_facts(SLOW_READ_SECONDS)

    set_uplink(installed, SLOW_GBIT, FAST_GBIT)
    wait_for_facts(installed, "NL", **nl_facts(FAST_READ_SECONDS))
    assert installed.ran_at(auto, 120) == ["NL"]
    assert len(pool.jobs(is_running, "ProcId")) == 1, "UK's core was never free"
    wait_for_facts(installed, "NL", **nl_facts(FAST_READ_SECONDS))  # UK has no reader again
    submit_a_set_that_no_job_has_named(installed)
    pool.run("condor_rm", str(beside), user="alice")


def submit_a_set_that_no_job_has_named(installed: Installation) -> None:
    """The job's ad and `why` say where the job started."""
    desk = Desk(installed.pool, installed.pool.user_home("alice") / "desk")
    desk.write("config.toml", f'[daemon]\nstate_dir = "none"\n[submit]\ndaemon_url = "{installed.url}"\n')
    desk.write("job.sub", "executable = /bin/true\nrequest_memory = 10\nrequest_disk = 1\nqueue\n")
    words = ("wrap", "-c", "config.toml", "-d", NAMES[0], "--", "condor_submit", "-terse", "job.sub")
    done = desk.hydrator(*words)
    assert done.returncode == 0, done.stderr
    cluster = int(done.stdout.partition(".")[0])
    assert installed.ran_at(cluster, 120) == ["NL"]
    ad = installed.pool.job(cluster, "MATCH_EXP_DataLocalityStart")
    assert ad == {"MATCH_EXP_DataLocalityStart": f"read 512 s from UK, queue {QUEUE_SECONDS} s"}
    said = installed.run("why", str(cluster)).stdout
    assert "it started away from its data: reading from UK would take 8 min 32 s, the next slot" in said
