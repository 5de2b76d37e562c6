"""One run: a pool of three sites, the jobs of a workload, and what became of them."""

import fcntl
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from testbed.installation import Installation
from testbed.pool import Pool, SiteSpec

from .arms import Arm, listed_sites
from .jobs import Record, read_records, submissions, write_files
from .links import NAMESPACES, Links, lone_read_seconds
from .workload import (
    DRAINED,
    JOB_BYTES,
    SITES,
    SLOTS,
    BenefitJob,
    Cell,
    Workload,
    drained_after_seconds,
    link_rate,
)

POOL = "USE_PROCD = True\nNEGOTIATOR_INTERVAL = 5\nMAXJOBRETIREMENTTIME = 3600\n"
POLL_SECONDS = 2
_STARTING = Path(tempfile.gettempdir()) / "classad-hydrator-benefit.lock"


@dataclass(frozen=True, slots=True)
class Finished:
    """One run that has ended: when it began, in Unix seconds, the jobs' records, and the machine's state.

    ``load`` has samples of the load average of a minute; ``lone_seconds`` are the seconds of a read of
    JOB_BYTES from each source without other readers, before the jobs; ``unfinished`` jobs never ran.
    """

    began_at: float
    records: tuple[Record, ...]
    load: tuple[float, ...]
    lone_seconds: tuple[float, ...]
    unfinished: frozenset[int]
    version: str


class ListedWorkload:
    """The file catalogue with the datasets of *workload*, at the sites that *arm* lists."""

    def __init__(self, folder: Path, workload: Workload, arm: Arm) -> None:
        self._file = folder / "catalogue.json"
        places = {each.did: listed_sites(arm, each.sites) for each in workload.datasets}
        self.counts = {site: sum(site in sites for sites in places.values()) for site in SITES}
        datasets = {
            each.did: {"bytes": each.bytes, "sites": dict.fromkeys(places[each.did], "available")}
            for each in workload.datasets
        }
        self._file.write_text(json.dumps({"sites": SITES, "datasets": datasets}), "utf-8")

    def section(self) -> str:
        """Return its part of the daemon's configuration, in TOML."""
        return f'[[catalogue]]\ntype = "file"\nname = "embedded"\npath = "{self._file}"\n'


def execute(workload: Workload, cell: Cell, arm: Arm, form: str, release: str | None = None) -> Finished:
    """Run the *workload* of *cell* once on a fresh pool under *arm*.

    Jobs that no site has all datasets of never run in the mode require; the run does not wait for them.

    Raises:
        AssertionError: jobs did not end in time, with the pool's state.
    """
    with ExitStack() as stack:
        pool, links = _start(stack, link_rate(cell.read_seconds), form, release)
        folder = pool.shared / "benefit"
        folder.mkdir()
        write_files(folder, workload, links.sources)
        lone = tuple(lone_read_seconds(source, JOB_BYTES) for source in links.sources.values())
        if not arm.is_stock:
            _install(stack, pool, workload, cell, arm)
        stuck = _never_run(workload, arm)
        orders = submissions(workload, folder, arm.lines)
        start = _submit(stack, pool, orders)
        if drained := DRAINED.get(cell.layout):
            slot = pool.slots("Name", constraint=f'GLIDEIN_Site == "{drained}" && PartitionableSlot')[0]
            time.sleep(max(0.0, start + drained_after_seconds(workload) - time.time()))
            pool.run("condor_drain", "-graceful", slot["Name"])  # all slots of its startd
        load = _wait(pool, folder, len(workload.jobs) - len(stuck), _limit(workload, cell))
        records = read_records(folder)
        _check(records, workload, stuck)
        return Finished(start, tuple(records), tuple(load), lone, stuck, pool.version)


def _start(stack: ExitStack, rate: float, form: str, release: str | None) -> tuple[Pool, Links]:
    """Start pool and links, one at a time: side by side they would slow each other down most then."""
    with _STARTING.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        specs = [SiteSpec(site, cpus=SLOTS, memory=128 * SLOTS) for site in SITES]
        pool = stack.enter_context(Pool.start(release, specs, {"all": POOL}, say=lambda _line: None))
        ports = pool.home / "links"
        ports.mkdir()
        return pool, stack.enter_context(Links(SITES, rate, ports, form))


def _install(stack: ExitStack, pool: Pool, workload: Workload, cell: Cell, arm: Arm) -> None:
    """Install daemon, hook and pool configuration; return when the slots have every dataset."""
    catalogue = ListedWorkload(pool.home, workload, arm)
    installed = Installation(
        pool,
        catalogue,
        poll_seconds=POLL_SECONDS,
        extra={"all": POOL},
        settings=_network(link_rate(cell.read_seconds)),
        demand='patterns = ["*"]',
    )
    stack.enter_context(installed)

    def are_listed() -> bool:
        slots = pool.slots("GLIDEIN_Site", "DatasetStates", constraint="PartitionableSlot")
        counts = {slot["GLIDEIN_Site"]: len(slot.get("DatasetStates") or {}) for slot in slots}
        return counts == catalogue.counts

    pool.wait(are_listed, "every slot to have all datasets of its site")


def _network(rate: float) -> str:
    """Return the daemon's configuration of links."""
    gbit = 8 * rate / 1e9
    return "".join(f'[[network.links]]\nsource = "{site}"\ngbit_per_second = {gbit:.9f}\n' for site in SITES)


def _never_run(workload: Workload, arm: Arm) -> frozenset[int]:
    """Return the jobs that wait for ever: in the mode require those whose data no site has together."""
    if 'DataLocality = "require"' not in arm.lines:
        return frozenset()

    def has_home(job: BenefitJob) -> bool:
        sites = [set(listed_sites(arm, workload.datasets[each].sites)) for each in job.datasets]
        return not sites or bool(set.intersection(*sites))

    return frozenset(job.number for job in workload.jobs if not has_home(job))


def _limit(workload: Workload, cell: Cell) -> float:
    """Return the seconds after which a run has failed: all jobs one after the other on one link, and more."""
    return (
        180 + workload.jobs[-1].submitted_at + len(workload.jobs) * (0.5 * cell.seconds + cell.read_seconds)
    )


@contextmanager
def _submitter(pool: Pool, user: str) -> Iterator[subprocess.Popen[str]]:
    """Start the program that submits as *user*; it has found the schedd when this begins."""
    command = [sys.executable, "-m", "benchmarks.benefit.submitter", pool.collector]
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "TERM", *command]
    root = str(Path(__file__).parents[2])
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "CONDOR_CONFIG": str(pool.client(user))},
    )
    try:
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise OSError(f"the submitter of {user} did not start")
        yield child
    finally:
        child.terminate()
        child.wait(30)
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()


def _submit(stack: ExitStack, pool: Pool, orders: Mapping[str, list[dict[str, object]]]) -> float:
    """Submit all orders, each user by a process of his own; return the time of the first job."""
    children = {user: stack.enter_context(_submitter(pool, user)) for user in orders}
    start = time.time() + 0.5
    for user, child in children.items():
        assert child.stdin is not None
        child.stdin.write(json.dumps({"start": start, "orders": orders[user]}))
        child.stdin.close()
    return start


def _wait(pool: Pool, folder: Path, count: int, seconds: float) -> list[float]:
    """Wait until *count* jobs have left a record; return samples of the load average."""
    load: list[float] = []

    def is_done() -> bool:
        load.append(os.getloadavg()[0])
        if len(load) % 20 == 0 and (held := pool.jobs("JobStatus == 5", "HoldReason")):
            raise RuntimeError(f"{len(held)} jobs are on hold: {held[0].get('HoldReason')}")
        time.sleep(0.8)  # pool.wait asks five times a second, and reading loads the machine
        return len((folder / "records").read_bytes().splitlines()) >= count

    pool.wait(is_done, f"{count} jobs to end", seconds)
    return load


def _check(records: list[Record], workload: Workload, stuck: frozenset[int]) -> None:
    """Check that each job ran once, and that each read what it had to.

    Raises:
        AssertionError: a job ran twice or not at all, or its bytes are wrong.
    """
    expected = {job.number: job for job in workload.jobs if job.number not in stuck}
    assert sorted(record.number for record in records) == sorted(expected), "each job runs exactly once"
    for record in records:
        needed = workload.missing_bytes(expected[record.number], record.site)
        assert record.remote_bytes == needed, f"job {record.number} at {record.site} read wrongly: {record}"


def median_gap(records: tuple[Record, ...]) -> float:
    """Return the median seconds for which a slot was idle between two jobs: the load's effect."""
    by_slot: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda each: each.began_at):
        by_slot.setdefault((record.site, record.slot), []).append(record)
    gaps = [
        later.began_at - earlier.ended_at for runs in by_slot.values() for earlier, later in pairwise(runs)
    ]
    return statistics.median(gaps) if gaps else 0.0


__all__ = ["NAMESPACES", "Finished", "execute", "median_gap"]
