"""Mode auto on a real pool while its links and sites change: the next jobs follow a table computed by hand.

UK has both datasets and one core, NL has none and two cores. The rates come from samples, the queues from the
schedd, and the slots from the collector. Nothing but the sizes of the datasets is configured.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from adapters.condor import CondorClient, CondorSettings
from adapters.condor.pool_load import ScheddLoads
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.timeout(1200)]

SIZES = {"ska:large": 500_000_000_000, "ska:small": 1_000_000, "ska:new": 1_000_000_000}
LARGE, SMALL, NEW = SIZES
DEMAND = f'pins = ["{LARGE}", "{SMALL}"]\nsettle_seconds = 3600\n'
DRAINING = {"startd": "MAXJOBRETIREMENTTIME = 3600\n"}
"""A startd that drains lets its jobs end."""
FILLER_SECONDS, AUTO_SECONDS = 4096, 64
"""Expected run times of the job without data that fills UK, and of the jobs with data."""
NEVER = 4_194_304
SLOW, FAST = 125_000_000, 1_000_000_000
"""Bytes a second of 1 and of 8 Gb/s."""


@dataclass(frozen=True)
class Row:
    """The state of the pool after an event, and where the next jobs of both sets start; None: they wait."""

    event: str
    read_small: int
    read_large: int
    queue: int
    small_at: str | None
    large_at: str | None


# Read seconds at NL: bytes / rate x 2, because a second job may begin to read before the daemon counts it.
#   1 MB: 0.008 s x 2 at 1 Gb/s, class 0.    500 GB: 4,000 s x 2 = 8,000 s at 1 Gb/s, class 8192;
#   500 s x 2 = 1,000 s at 8 Gb/s, class 1024.
# Queue seconds: 0 if UK's core is free. If a job of 4,096 s has it, some seconds less than 4,096 s; with the
#   waiting job of 500 GB, 64 s more: class 4096. Without any slot at UK that takes jobs: 4194304, never.
# A job runs at UK if a core is free there, at NL if read < queue, and waits otherwise.
TABLE = (
    Row("UK's core is free", 0, 8192, 0, "UK", "UK"),
    Row("UK fills up", 0, 8192, 4096, "NL", None),
    Row("the link becomes fast", 0, 1024, 4096, "NL", "NL"),
    Row("the link becomes slow", 0, 8192, 4096, "NL", None),
    Row("UK drains", 0, 8192, NEVER, "NL", "NL"),
    Row("UK's core is free", 0, 8192, 0, "UK", "UK"),
    Row("UK fills up", 0, 8192, 4096, "NL", None),
    Row("UK dies", 0, 8192, NEVER, "NL", "NL"),
    Row("UK's core is free", 0, 8192, 0, "UK", "UK"),
)


class HeldByUK(ListedCatalogue):
    """A catalogue in which UK has the datasets of SIZES."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool.home, ("UK", "NL"))
        datasets = {did: {"bytes": size, "sites": {"UK": "available"}} for did, size in SIZES.items()}
        self._file.write_text(json.dumps({"sites": ["UK", "NL"], "datasets": datasets}), "utf-8")


class Events:
    """The events of the table, by their words."""

    def __init__(self, installed: Installation) -> None:
        self.installed, self.pool = installed, installed.pool
        self._filler: int | None = None
        self._is_draining = self._is_dead = False
        self.by_name: dict[str, Callable[[], None]] = {
            "UK's core is free": self.free,
            "UK fills up": self.fill,
            "the link becomes fast": lambda: self.report("alice", FAST, 4),
            "the link becomes slow": lambda: self.report("bob", SLOW, 3),
            "UK drains": self.drain,
            "UK dies": self.die,
        }

    def fill(self) -> None:
        """Let a job without data take UK's only core."""
        self._filler = self.pool.submit(
            "executable = /bin/sleep\narguments = 3000\nrequest_memory = 10\nrequest_disk = 1\n"
            f"+DataLocalityExpectedSeconds = {FILLER_SECONDS}\n"
            'requirements = TARGET.GLIDEIN_Site == "UK"\nqueue\n'
        )
        running = {"JobStatus": 2}
        self.pool.wait(
            lambda: self.pool.job(self._filler, "JobStatus") == running, 60, "UK's core to be busy"
        )

    def free(self) -> None:
        """End what the events before have begun, so that UK has a free core."""
        if self._is_dead:
            self.pool.start_daemon("startd:UK")
        if self._is_draining:
            self.pool.run("condor_drain", "-cancel", self._address_of_uk())
        if self._filler is not None:
            self.pool.run("condor_rm", str(self._filler), user="alice")
        self._filler, self._is_draining, self._is_dead = None, False, False

    def drain(self) -> None:
        self.pool.run("condor_drain", self._address_of_uk())
        self._is_draining = True
        self.pool.wait(
            lambda: self._sites_of_leaving_jobs() == ["UK"], 60, "UK's job to be in a leaving slot"
        )

    def die(self) -> None:
        self.pool.stop_daemon("startd:UK")
        self._is_dead = True

    def report(self, user: str, bytes_per_second: int, count: int) -> None:
        """Let a job of *user* report *count* reads of one second of UK's data at NL, one after another."""
        now = int(time.time())
        reads = ", ".join(f'"UK:{bytes_per_second}:1:{now - 2 * number}:NL"' for number in range(count))
        self.pool.submit(
            f"executable = /bin/true\nhold = true\n+ChirpDataLocalityReads = {{{reads}}}\nqueue\n", user
        )

    def _sites_of_leaving_jobs(self) -> list[str | None]:
        settings = CondorSettings(self.pool.collector, token_directory=self.pool.token("hydrator"))
        loads = ScheddLoads(CondorClient(settings), lambda: datetime.now(UTC), ["GLIDEIN_Site"])  # noqa: TID251
        with closing(loads):
            (schedd,) = loads.read_load().schedds.values()
        return [each.site for each in schedd.running if each.is_leaving]

    def _address_of_uk(self) -> str:
        (slot,) = self.pool.slots("MyAddress", constraint='PartitionableSlot && GLIDEIN_Site == "UK"')
        return str(slot["MyAddress"])


def facts_at_nl(installed: Installation) -> dict[str, object]:
    """Return the seconds in NL's slot: the read seconds of both sets, and their queue seconds."""
    names = ("DataLocalityReadSeconds", "DataLocalityQueueSeconds")
    (slot,) = installed.pool.slots(*names, constraint='PartitionableSlot && GLIDEIN_Site == "NL"')
    reads, queues = (dict(slot.get(name) or {}) for name in names)
    return {
        "small": reads.get(SMALL),
        "large": reads.get(LARGE),
        "queues": (queues.get(SMALL), queues.get(LARGE)),
    }


def wait_for_facts(installed: Installation, expected: dict[str, object], what: str) -> None:
    """Wait until NL's slot has *expected*; jobs and slots are queried one after the other."""
    installed.pool.wait(lambda: facts_at_nl(installed) == expected, 120, what)


def wait_for_rejection(pool: Pool, cluster: int) -> None:
    pool.wait(lambda: pool.job(cluster, "LastRejMatchTime"), 60, "the negotiator to have looked at the job")
    assert pool.job(cluster, "JobStatus") == {"JobStatus": 1}


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    with (
        Pool.start(htcondor_release, [SiteSpec("UK", 1), SiteSpec("NL", 2)]) as pool,
        Installation(pool, HeldByUK(pool), road="url", demand=DEMAND, extra=DRAINING) as installation,
    ):
        yield installation


def test_without_rates_auto_jobs_wait_until_their_data_is_published(installed):
    """They run beside free data at once; else they wait for their publication, and then run anywhere."""
    pool, events = installed.pool, Events(installed)
    assert installed.ran_at(installed.submit([NEW], mode="auto")) == ["UK"]
    events.fill()
    published = installed.submit([SMALL], mode="auto")
    assert installed.ran_at(published) == ["NL"], "settling ends at once for what is published"
    job = pool.job(published, "JobStartDate", "DataLocalityAnyAfter", "QDate")
    assert job["DataLocalityAnyAfter"] - job["QDate"] >= 600
    assert job["JobStartDate"] < job["DataLocalityAnyAfter"]
    waited = installed.submit([NEW], mode="auto", more="+DataLocalityMaxWait = 12\n")
    assert installed.ran_at(waited) == ["NL"]
    job = pool.job(waited, "JobStartDate", "DataLocalityAnyAfter")
    assert job["JobStartDate"] >= job["DataLocalityAnyAfter"]
    assert facts_at_nl(installed) == {"small": None, "large": None, "queues": (None, None)}
    events.free()


def test_next_jobs_follow_links_and_sites_as_the_table_says(installed):
    pool, events = installed.pool, Events(installed)
    events.report("alice", SLOW, 3)
    waiting: int | None = None
    for row in TABLE:
        events.by_name[row.event]()
        expected = {"small": row.read_small, "large": row.read_large, "queues": (row.queue,) * 2}
        wait_for_facts(installed, expected, f"NL's slot to follow {row}")
        small, large = (
            installed.submit([name], mode="auto", more=f"+DataLocalityExpectedSeconds = {AUTO_SECONDS}\n")
            for name in (SMALL, LARGE)
        )
        assert installed.ran_at(small) == [row.small_at], row
        if row.large_at is None:
            wait_for_rejection(pool, large)
            wait_for_facts(installed, expected, f"NL's slot to be as before its rejection: {row}")
            waiting = large
            continue
        for cluster in (waiting, large):
            if cluster is not None:
                assert installed.ran_at(cluster) == [row.large_at], row
        waiting = None
    pool.empty_queue()
