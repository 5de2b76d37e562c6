"""A sick catalogue beside sound ones, in a real daemon: its worker ends, and nothing else changes."""

import os
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from testbed.faults import Answer, Fault, FaultProxy, dripping
from testbed.installation import wait_for
from testbed.rucio_standin import RucioStandIn

from .process import Daemon

MEGABYTES = 49
GROWTH_BYTES = 32_000_000
POLL_SECONDS = 1.0
FRESH_SECONDS = 8.0
"""Within so many seconds a change of a sound catalogue is published, on a busy machine too."""
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
    "rows": Fault("rows", filled(ROW, lines=True), only=DATASETS),
    "a stream of a gigabyte": Fault("stream", deliver=endless, only=DATASETS),
    "100 Continue": Fault("continue", deliver=continued, only=DATASETS),
    "a gzip bomb": Fault("bomb", bomb, only=DATASETS),
    "a drip": Fault("drip", deliver=dripping, only=DATASETS),
}
PLUGIN = """
import os, signal, sys, time
from pathlib import Path
from tests.memory import MemoryCatalogue
from hydrator.domain.model import Replica, ReplicaState, Site, parse_did

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
        elif mood == "thread":
            os._exit(0)
        return super().read(dids)

def catalogue(name, options, clock):
    return Sick(name, [Replica(parse_did("lofar:sick"), Site("OSO"), ReplicaState.COMPLETE)], clock=clock)
"""


class Beside:
    """A daemon with a sound catalogue beside a sick one."""

    def __init__(self, folder: Path, extra: str, environ: dict[str, str]) -> None:
        self.daemon = Daemon(folder)
        self.daemon.environ = environ
        (folder / "other.json").write_text('{"datasets": {"lofar:L9": {"sites": {"RAL": "available"}}}}')
        other = '[[catalogue]]\ntype = "file"\nname = "other"\npath = "other.json"\n'
        self.daemon.configure(other + extra, poll=POLL_SECONDS)
        self.daemon.start()

    def sick_is(self, site: str) -> None:
        wait_for(lambda: self.daemon.lists(site, SICK), "the sick catalogue to be well")

    def check_sound(self, seconds: float) -> None:
        """Change the sound catalogue again and again, for *seconds*; each change must be published soon."""
        size, until, there = self.resident(), time.monotonic() + seconds, False
        while time.monotonic() < until:
            there = not there
            sites = {"CAM": "available"} if there else {"RAL": "available"}
            self.daemon.catalogue({"lofar:L1": {"CAM": "available"}, SOUND: sites})
            began, at = time.monotonic(), "CAM" if there else "RAL"
            wait_for(lambda at=at: self.daemon.lists(at, SOUND), "a change of the sound catalogue")
            assert time.monotonic() - began < FRESH_SECONDS
        assert self.resident() - size < GROWTH_BYTES

    def resident(self) -> int:
        pages = int(Path(f"/proc/{self.daemon.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Callable[..., Beside]]:
    made = []

    def make(extra: str, **environ: str) -> Beside:
        made.append(Beside(tmp_path, extra, environ))
        return made[-1]

    yield make
    for each in made:
        each.daemon.stop()


@pytest.mark.parametrize("fault", FAULTS)
def test_answers_of_a_sick_rucio_cost_nothing_but_its_worker(beside, tmp_path, fault):
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text("a-secret-word")
    with RucioStandIn({"CAM-DISK": "CAM", "OSO-DISK": "OSO"}) as server, FaultProxy(server.url) as proxy:
        server.holdings = {SICK: {"OSO-DISK": "available"}}
        world = beside(
            f'[[catalogue]]\ntype = "rucio"\nurl = "{proxy.url}"\naccount = "a"\nusername = "a"\n'
            'password_file = "password"\ntimeout_seconds = 1\n'
        )
        world.sick_is("OSO")
        proxy.fault = FAULTS[fault]
        world.check_sound(20)
        server.holdings = {SICK: {"CAM-DISK": "available"}}
        proxy.fault = None
        world.sick_is("CAM")


@pytest.mark.parametrize("mood", ["exit", "leak", "allocate", "kill", "thread"])
def test_plugin_that_ends_its_process_costs_nothing_else(beside, tmp_path, mood):
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
    world = beside('[[catalogue]]\ntype = "sick"\n', PYTHONPATH=path, MOOD=str(tmp_path / "mood"))
    world.sick_is("OSO")
    (tmp_path / "mood").write_text(mood)
    world.check_sound(15)
    (tmp_path / "mood").write_text("well")
    world.sick_is("OSO")
