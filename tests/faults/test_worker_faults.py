"""A sick catalogue beside sound ones, in a real daemon: its worker ends, and nothing else changes."""

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from testbed.faults import Answer, Fault, FaultProxy, dripping, never
from testbed.files import write_secret
from testbed.patience import wait_for
from testbed.processes import is_running
from testbed.rucio_standin import RucioStandIn

from .process import Daemon

MEGABYTES = 49
GROWTH_BYTES = 32_000_000
POLL_SECONDS = 5.0
"""Longer than a cycle waits for a catalogue, as the default is."""
POLLS_OF_A_CHANGE = 3
"""A change is published with the answer of the poll after it: the first is of the poll that runs, and the
third is counted after the second is published."""
POLLS_UNTIL_BACK = 4
"""The sick catalogue's poll that runs when it is well again, the two after it, and that after publishing."""
NEEDED_BYTES = 2_500_000_000
"""As `hydrator check` adds it up: the daemon 300 MB, two files twice 500 MB each, the plugin twice 100."""
SICK, SOUND = "lofar:sick", "lofar:L2"
DATASETS = "/replicas"

pytestmark = pytest.mark.timeout(600)


def filled(row: bytes, *, lines: bool = False) -> Callable[[Answer], Answer]:
    """Return a fault that makes the body 49 MB of *row*."""
    count = MEGABYTES * 1_000_000 // len(row)
    body = b"\n".join([row] * count) if lines else b"[" + b",".join([row] * count) + b"]"
    return lambda answer: answer.with_body(body)


@cache
def packed_gigabyte() -> bytes:
    packer = zlib.compressobj(wbits=31)
    piece = b"[]," * 333_333
    return b"".join([*(packer.compress(piece) for _ in range(1000)), packer.flush()])


def bomb(answer: Answer) -> Answer:
    headers = (*answer.headers, ("Content-Encoding", "gzip"))
    return replace(answer, headers=headers, body=packed_gigabyte())


def endless(answer: Answer, request) -> None:
    request.head(answer, 1_000_000_000)
    row = b'{"rse": "CAM-DISK", "scope": "lofar", "name": "sick"}\n' * 1000
    while not request.healthy(0):
        request.wfile.write(row)


def continued(_: Answer, request) -> None:
    """Send ``100 Continue`` without end."""
    while not request.healthy(0.01):
        request.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")


ROW = b'{"rse": "CAM-DISK", "scope": "lofar", "name": "sick", "length": 4, "available_length": 4}'
FAULTS = {
    "lists": Fault("lists", filled(b"[]"), only=DATASETS),
    "records": Fault("records", filled(b"{}"), only=DATASETS),
    "rows": Fault("rows", filled(ROW, lines=True), only=DATASETS),
    "a stream of a gigabyte": Fault("stream", deliver=endless, only=DATASETS),
    "100 Continue": Fault("continue", deliver=continued, only=DATASETS),
    "a gzip bomb": Fault("bomb", bomb, only=DATASETS),
    "a hang": Fault("hang", deliver=never, only=DATASETS),
    "a drip": Fault("drip", deliver=dripping, only=DATASETS),
}
PLUGIN = """
import os, signal, sys, time
from pathlib import Path
from tests.memory import MemoryCatalogue
from hydrator.domain.model import Replica, DatasetState, Site, parse_did

kept = []

class Sick(MemoryCatalogue):
    def read(self, dids):
        mood = Path(os.environ["MOOD"]).read_text()
        if mood == "exit":
            sys.exit()
        elif mood == "leak":
            kept.append(os.urandom(10_000_000))
        elif mood == "allocate":
            kept.append([[] for _ in range(100_000_000)])
        elif mood == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif mood == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        elif mood == "thread" or (mood == "poison" and "lofar:sick" in dids):
            os._exit(0)
        elif mood == "poison":
            self.replicas = good(1001)
        return super().read(dids)

def good(count):
    return tuple(Replica(parse_did(f"lofar:P{n}"), Site("OSO"), DatasetState.AVAILABLE) for n in range(count))

def catalogue(name, options, clock):
    sick = Replica(parse_did("lofar:sick"), Site("OSO"), DatasetState.AVAILABLE)
    return Sick(name, [sick, *good(1000)], clock=clock)
"""


class Beside:
    """A daemon with two sound catalogues beside a sick one; ``before`` are the words before its command.

    ``alone`` is a daemon with the sound catalogue only: the measure of what this machine can do now.
    """

    def __init__(self, folder: Path, extra: str, environ: dict[str, str], before: Sequence[str]) -> None:
        (folder / "alone").mkdir()
        self.alone = Daemon(folder / "alone")
        self.alone.configure(poll=POLL_SECONDS)
        self.alone.start()
        self.daemon = Daemon(folder, before)
        self.daemon.environ = environ
        (folder / "other.json").write_text('{"datasets": {"lofar:L9": {"sites": {"RAL": "available"}}}}')
        other = '[[catalogue]]\ntype = "file"\nname = "other"\npath = "other.json"\n'
        self.daemon.configure(other + extra, poll=POLL_SECONDS)
        self.daemon.start()

    def sick_is(self, site: str) -> None:
        wait_for(lambda: self.daemon.lists(site, SICK), "the sick catalogue to be well")

    def check_back(self, catalogue: str, site: str) -> None:
        """Wait until the catalogue, which has just become well, is back: two intervals later."""
        self._wait_within(catalogue, POLLS_UNTIL_BACK, site, SICK)

    def check_sound(self, polls: int) -> None:
        """Change the sound catalogue again and again, while the daemon alone polls its own *polls* times.

        Each change is published with the next poll, and the daemon polls about as often as the one alone.
        """
        size, site = self.resident(), "CAM"
        begun, begun_alone = count_polls(self.daemon), count_polls(self.alone)
        while (alone := count_polls(self.alone) - begun_alone) < polls:
            site = "RAL" if site == "CAM" else "CAM"
            self.daemon.catalogue({"lofar:L1": {"CAM": "available"}, SOUND: {site: "available"}})
            self._wait_within("file", POLLS_OF_A_CHANGE, site, SOUND)
        assert count_polls(self.daemon) - begun > alone / 2
        assert self.resident() - size < GROWTH_BYTES

    def _wait_within(self, catalogue: str, most_polls: int, site: str, dataset: str) -> None:
        first = count_polls(self.daemon, catalogue)

        def is_published() -> bool:
            polls = count_polls(self.daemon, catalogue) - first
            done = self.daemon.lists(site, dataset)
            assert done or polls < most_polls, (
                f"{dataset}: not at {site} after {polls:g} polls of {catalogue}"
            )
            return done

        wait_for(is_published, f"{dataset} at {site}")

    def as_of(self) -> int:
        """Return the time of the facts about a good dataset of the sick catalogue."""
        [row] = self.daemon.get("/v1/datasets?did=lofar:P7").json()["datasets"][0]["sites"]
        return row["as_of"]

    def workers(self) -> set[str]:
        """Return the processes that the daemon has started."""
        tasks = Path(f"/proc/{self.daemon.process.pid}/task").iterdir()
        return {pid for task in tasks for pid in (task / "children").read_text().split()}

    def resident(self) -> int:
        pages = int(Path(f"/proc/{self.daemon.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def count_polls(daemon: Daemon, catalogue: str = "file") -> float:
    """Return how often the daemon has polled this catalogue."""
    name = f'hydrator_catalogue_reads_total{{catalogue="{catalogue}",outcome='
    return daemon.metric(f'{name}"answered"}}') + daemon.metric(f'{name}"failed"}}')


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Callable[..., Beside]]:
    made = []

    def make(extra: str, before: Sequence[str] = (), **environ: str) -> Beside:
        made.append(Beside(tmp_path, extra, environ, before))
        return made[-1]

    yield make
    for each in made:
        each.daemon.stop()
        each.alone.stop()


@pytest.mark.parametrize("fault", FAULTS)
def test_answers_of_a_sick_rucio_cost_nothing_but_its_worker(beside, tmp_path, fault):
    write_secret(tmp_path / "password", "a-secret-word")
    with RucioStandIn({"CAM-DISK": "CAM", "OSO-DISK": "OSO"}) as server, FaultProxy(server.url) as proxy:
        server.holdings = {SICK: {"OSO-DISK": "available"}}
        world = beside(
            f'[[catalogue]]\ntype = "rucio"\nurl = "{proxy.url}"\naccount = "a"\nusername = "a"\n'
            'password_file = "password"\ntimeout_seconds = 1\n'
        )
        world.sick_is("OSO")
        proxy.fault = FAULTS[fault]
        world.check_sound(4)
        server.holdings = {SICK: {"CAM-DISK": "available"}}
        proxy.fault = None
        world.check_back("rucio", "CAM")


@pytest.fixture
def sick_plugin(beside, tmp_path) -> Callable[..., Beside]:
    """Installs the plugin, and starts a daemon with it; the file ``mood`` says what it does."""
    package = tmp_path / "site-packages"
    described = package / "sick-1.0.dist-info"
    described.mkdir(parents=True)
    (package / "sick_catalogue.py").write_text(PLUGIN)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: sick\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[classad_hydrator.catalogues]\nsick = sick_catalogue:catalogue\n"
    )
    (tmp_path / "mood").write_text("well")
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))

    def start(before: Sequence[str] = ()) -> Beside:
        mood = str(tmp_path / "mood")
        world = beside('[[catalogue]]\ntype = "sick"\nmemory_mb = 100\n', before, PYTHONPATH=path, MOOD=mood)
        world.sick_is("OSO")
        return world

    return start


@pytest.mark.parametrize("mood", ["exit", "leak", "allocate", "kill", "thread"])
def test_plugin_that_ends_its_process_costs_nothing_else(sick_plugin, tmp_path, mood):
    world = sick_plugin()
    workers = world.workers()
    (tmp_path / "mood").write_text(mood)
    world.check_sound(8)
    assert len(workers & world.workers()) == 2, "those of the sound catalogues"
    (tmp_path / "mood").write_text("well")
    world.check_back("sick", "OSO")


def test_dataset_that_ends_its_worker_leaves_a_thousand_others_fresh(sick_plugin, tmp_path):
    world = sick_plugin()
    (tmp_path / "mood").write_text("poison")
    wait_for(lambda: world.daemon.lists("OSO", "lofar:P1000"), "a new dataset beside the poisoned one")
    workers, as_of = world.workers(), world.as_of()
    world.check_sound(4)
    assert len(workers & world.workers()) == 3, "the worker goes on, and those of the sound catalogues"
    assert world.as_of() > as_of
    (tmp_path / "mood").write_text("well")
    world.check_back("sick", "OSO")


def test_plugin_that_ignores_signals_ends_with_its_daemon(sick_plugin, tmp_path):
    world = sick_plugin()
    (tmp_path / "mood").write_text("deaf")
    world.check_sound(4)
    workers = world.workers()
    assert len(workers) == 3
    world.daemon.stop()
    wait_for(lambda: not any(map(is_running, workers)), "the end of the workers")


class MemoryGroup:
    """A memory cgroup, as a pod has: when it is full, version 2 ends all of its processes together."""

    def __init__(self) -> None:
        root = Path("/sys/fs/cgroup")
        self.has_version_2 = (root / "memory.stat").exists() or not (root / "memory").exists()
        self.folder = (root if self.has_version_2 else root / "memory") / f"hydrator-test-{os.getpid()}"
        self.folder.mkdir()

    def limit(self, size: int) -> list[str]:
        """Set the largest size, and return the words before the command of a process in the group."""
        if self.has_version_2:
            (self.folder / "memory.oom.group").write_text("1")
        name = "memory.max" if self.has_version_2 else "memory.limit_in_bytes"
        (self.folder / name).write_text(str(size))
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$@"', "sh"]

    @property
    def kills(self) -> int:
        """The processes that the kernel has ended because the group was full."""
        rows = (self.folder / ("memory.events" if self.has_version_2 else "memory.oom_control")).read_text()
        return int(dict(row.split() for row in rows.splitlines())["oom_kill"])


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    try:
        made = MemoryGroup()
        made.limit(1 << 40)
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield made
    wait_for(lambda: not (made.folder / "cgroup.procs").read_text(), "the group to be empty")
    made.folder.rmdir()


@pytest.mark.parametrize("mood", ["leak", "allocate"])
def test_pod_with_the_needed_memory_is_never_full(group, sick_plugin, tmp_path, mood):
    """Kubernetes ends the whole pod otherwise: its group has ``memory.oom.group``."""
    world = sick_plugin(group.limit(NEEDED_BYTES))
    daemon = world.daemon.process.pid
    (tmp_path / "mood").write_text(mood)
    world.check_sound(8)
    assert group.kills == 0
    assert (world.daemon.alive, world.daemon.process.pid) == (True, daemon)
    (tmp_path / "mood").write_text("well")
    world.sick_is("OSO")
