"""Where are 10,000 datasets? One call to a running daemon, beside one bulk call to the Rucio that it polls.

Both servers run on this machine and answer in turns, so both meet whatever else the machine does.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from hydrator.domain.model import Did
from testbed.ports import free_port
from testbed.processes import end
from testbed.rucio import VERSION, RucioServer

from .measure import cpu_with_children, memory, wait
from .record import Figure, Result, Spread, round_samples
from .rucio_clients import connect_httpx
from .rucio_seeded import EACH, connect_to_seeded_server

_SIZE = 10_000
_ROUNDS = 100
_LIMIT_SECONDS = 1500
"""No round begins after this time: on a busy machine there are fewer rounds."""
_GOAL = 1.0
"""The daemon's p99 divided by Rucio's."""

_RUCIO_MOST = 1000
"""Rucio refuses a bulk call with more datasets (its schema ``r_dids``)."""

Places = set[tuple[str, str]]
"""Datasets and sites that have all their files."""


@dataclass
class Samples:
    """Measurements of one kind of call: wall seconds, the server's CPU seconds, bytes of the answer, and MiB.

    ``peaks`` are the server's memory at its highest during a call, less its memory before the call.
    """

    pid: int
    ask: Callable[[], Iterable[httpx.Response]]
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    answer_bytes: int = 0

    def call(self) -> bytes:
        """Ask once, measure, and return the bodies, one after the other."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", "utf-8")  # forget the highest memory until now
        before, used = memory(self.pid, "Rss"), cpu_with_children(self.pid)
        begun = time.monotonic()
        body = b"\n".join(answer.raise_for_status().content for answer in self.ask())
        self.seconds.append(time.monotonic() - begun)
        self.cpu.append(cpu_with_children(self.pid) - used)
        self.peaks.append(max(0.0, _highest_mib(self.pid) - before))
        self.answer_bytes = len(body)
        return body

    def figures(self, name: str) -> list[Figure]:
        wall = Spread.of(self.seconds)
        note = f"{wall.count} calls, {wall.least:.2f} to {wall.most:.2f} s"
        return [
            Figure(f"{name}: p50", wall.p50, "s", note=note),
            Figure(f"{name}: p99", wall.p99, "s"),
            Figure(f"{name}: server's CPU, median", statistics.median(self.cpu), "s"),
            Figure(f"{name}: server's memory above before, most", max(self.peaks), "MiB"),
            Figure(f"{name}: answer", self.answer_bytes / 1e6, "MB"),
        ]

    @property
    def raw(self) -> dict[str, list[float]]:
        return {
            "wall seconds": round_samples(self.seconds),
            "CPU seconds": round_samples(self.cpu),
            "MiB above before": round_samples(self.peaks, 1),
        }


def run(*, quick: bool = False) -> Result:
    """Ask both in turns, for some rounds, and compare."""
    size, rounds = (100, 3) if quick else (_SIZE, _ROUNDS)
    with (
        connect_to_seeded_server(size) as (server, dids, _),
        connect_httpx(server) as rucio,
        run_daemon(server, size) as (url, pid),
        httpx.Client(base_url=url, trust_env=False, timeout=300) as daemon,
    ):
        body = {"datasets": list(dids)}
        wait(
            lambda: len(_read_lines(daemon.post("/v1/locality", json=body).content)) == size * EACH,
            "the poll, which counts the files of each dataset",
            1800,
            step=20,  # each of these answers takes the daemon seconds of CPU, which its poll lacks
        )
        names = [dict(zip(("scope", "name"), did.split(":"), strict=True)) for did in dids]
        typed = [{**each, "type": "DATASET"} for each in names]
        portions = [typed[first : first + _RUCIO_MOST] for first in range(0, size, _RUCIO_MOST)]
        headers = {"Accept-Encoding": "identity"}
        rows = Samples(pid, lambda: [daemon.post("/v1/locality", json=body, headers=headers)])
        whole = Samples(pid, lambda: [daemon.post("/v1/locality/set", json=body, headers=headers)])
        bulk = Samples(
            _worker(server),
            lambda: (
                rucio.post(f"{server.url}/replicas/datasets_bulk", json={"dids": some}, headers=headers)
                for some in portions
            ),
        )
        rounds = _compare(rows, whole, bulk, rounds, dids)
    ratio = Spread.of(rows.seconds).p99 / Spread.of(bulk.seconds).p99
    figures = (
        Figure("p99, daemon / Rucio", ratio, "", _GOAL),
        *rows.figures(f"{size:,} datasets, POST /v1/locality"),
        *bulk.figures(f"{size:,} datasets, Rucio's list_dataset_replicas_bulk"),
        *whole.figures(f"one set of {size:,} datasets, POST /v1/locality/set"),
    )
    how = (
        f"{size:,} datasets of four files, each at {EACH} of 20 elements, in a Rucio on PostgreSQL; a daemon "
        f"polled them all (demand.patterns) and does not poll meanwhile. {rounds} rounds, each of "
        "which asks each for all datasets, by one client (httpx, no gzip) that reads the whole answer: the "
        f"daemon in one call, Rucio in calls of {_RUCIO_MOST:,}, the most that its schema allows. "
        "Each answer of the daemon was one page, and names the same datasets at the same sites as Rucio's. "
        "Memory is the highest resident memory of the server's process during the call, less that before it. "
        "Rucio reads its database in each call; the daemon answers from its last poll. The daemon has no "
        "estimates here, as there is no pool. publish.http.request_seconds is 3600, so that an answer has "
        "one page on a busy machine too. The p99 of fewer than 100 rounds is the slowest one."
    )
    raw = {"locality": rows.raw, "set": whole.raw, "Rucio": bulk.raw}
    return Result("locality", figures, how, raw, {"Rucio": VERSION, "httpx": httpx.__version__})


def _compare(rows: Samples, whole: Samples, bulk: Samples, rounds: int, dids: Sequence[Did]) -> int:
    """Call all three in turns, and return the number of rounds."""
    ends_at = time.monotonic() + _LIMIT_SECONDS
    done = 0
    while done < rounds and time.monotonic() < ends_at:
        done += 1
        ours, theirs = _read_lines(rows.call()), _read_rucio(bulk.call())
        if ours != theirs or len(ours) != len(dids) * EACH:
            raise AssertionError(f"{len(ours)} places by the daemon and {len(theirs)} by Rucio differ")
        answer = json.loads(whole.call())
        if answer["datasets"] != len(dids) or answer["not_polled"]:
            raise AssertionError("the daemon does not know the whole set")
    return done


def _read_lines(body: bytes) -> Places:
    """Return the places in an answer of the daemon, which must be one complete page."""
    lines = [json.loads(line) for line in body.splitlines()]
    if lines[-1] != {"next": None}:
        raise AssertionError(f"the answer ends with {lines[-1]}")
    return {
        (line["did"], each["site"])
        for line in lines[1:-1]
        for each in line["sites"]
        if each["state"] == "AVAILABLE"
    }


def _read_rucio(body: bytes) -> Places:
    rows: list[dict[str, Any]] = [json.loads(line) for line in body.splitlines() if line]
    return {
        (f"{row['scope']}:{row['name']}", f"SITE-{row['rse']}")
        for row in rows
        if row["available_length"] == row["length"]
    }


@contextmanager
def run_daemon(server: RucioServer, dataset_count: int) -> Iterator[tuple[str, int]]:
    """Run a daemon that polls all datasets of *server* once an hour; yield its address and process id."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        (folder / "password").touch(0o600)
        (folder / "password").write_text(server.password, "utf-8")
        (folder / "config.toml").write_text(
            f"""
            [daemon]
            state_dir = "state"
            poll_seconds = 3600
            [[catalogue]]
            type = "rucio"
            name = "rucio"
            url = "{server.url}"
            account = "{server.account}"
            username = "{server.username}"
            password_file = "password"
            deadline_seconds = 3600
            calls_per_second = 1000
            deep_calls = {dataset_count}
            [demand]
            ask_schedds = false
            patterns = ["bench:*"]
            [audit]
            enabled = false
            [publish.collector]
            enabled = false
            [publish.http]
            port = {port}
            request_seconds = 3600
            """,
            "utf-8",
        )
        command = [sys.executable, "-m", "hydrator.cli", "run", "-c", str(folder / "config.toml")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stderr=log, cwd=Path(__file__).parents[1])
        url = f"http://127.0.0.1:{port}"
        try:
            wait(lambda: _is_ready(url, process, folder / "log"), "the daemon", 900, step=0.5)
            yield url, process.pid
        finally:
            end(process, 15)


def _is_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"the daemon ended: {log.read_text('utf-8')[-2000:]}")
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def _worker(server: RucioServer) -> int:
    """Return the process id of Rucio's only worker."""
    pid = server.process.pid
    (worker,) = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    return int(worker)


def _highest_mib(pid: int) -> float:
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
        if line.startswith("VmHWM:")
    ]
    return int(line.split()[1]) / 1024
