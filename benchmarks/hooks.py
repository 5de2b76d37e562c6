"""Hooks that one server answers over HTTPS: the daemon alone, and nginx in front of it."""

import asyncio
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import trustme
from prometheus_client import CollectorRegistry

from adapters.http.publisher import WebPublisher
from hydrator.config import HttpServerSettings, Settings
from hydrator.daemon.http_frontend import HttpFrontend
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.domain.bugs import BugReporter
from hydrator.domain.model import from_unix
from hydrator.reconcile.result import CycleReport
from hydrator.server.auth import Role, create_token
from hydrator.state.store import Store
from testbed.files import write_secret
from testbed.nginx import Nginx

from .material import SITES, busy_site_ads, dids, wants
from .measure import cpu_with_children
from .record import Figure, Result

PERIOD, HOOKS = 300, 100_000
GOAL_MS = 1.5
"""CPU of the servers for one hook: 100,000 hooks then take half a core."""
DATASETS = 10_000
TOGETHER = 16
"""Simultaneous connections."""


def material(folder: Path) -> dict[str, str]:
    """Create a certificate and a file of tokens; return the tokens by site."""
    made = {str(site): create_token(Role.SITE, site, "2026-11-21") for site in SITES}
    write_secret(folder / "tokens", "".join(grant.line for _, grant in made.values()))
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(folder / "key"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "pem"))
    ca.cert_pem.write_to_path(str(folder / "ca"))
    return {site: token for site, (token, _) in made.items()}


def build_settings(folder: Path, *, tls: bool) -> Settings:
    """Return the settings of a daemon with these tokens."""
    http = HttpServerSettings(
        port=0,
        tokens_file=folder / "tokens",
        behind_proxy=not tls,
        tls_certificate=folder / "pem" if tls else None,
        tls_key=folder / "key" if tls else None,
    )
    return Settings.model_validate({"publish": {"http": http}})


def serve(folder: Path, dataset_count: int, *, tls: bool) -> None:
    """Run the daemon's HTTP front end, after one cycle: print its address, end with the input."""
    now, settings = from_unix(time.time()), build_settings(folder, tls=tls)
    evaluation, web_publisher = busy_site_ads(dataset_count, now), WebPublisher(lambda: None, lambda: now)
    web_publisher.put(evaluation.ads.values())
    parts = SimpleNamespace(web_publisher=web_publisher)
    registry, store = CollectorRegistry(), cast("Store", None)
    context = DaemonContext(
        settings,
        evaluation.state,
        store,
        Metrics(registry, "0"),
        BugReporter(),
        runtime=cast("Runtime", SimpleNamespace(parts=parts)),
        report=CycleReport(now, wants(dids(dataset_count)), evaluation, (), {}),
    )
    frontend = HttpFrontend(context, registry, lambda: None)
    frontend.start()
    server = frontend.server
    assert server is not None
    with server:
        print(server.url, flush=True)
        sys.stdin.read()


@contextmanager
def run_server(folder: Path, dataset_count: int, *, tls: bool) -> Iterator[tuple[str, int]]:
    transport = "tls" if tls else "plain"
    command = [sys.executable, "-m", "benchmarks.hooks", str(folder), str(dataset_count), transport]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.communicate("")


async def hook(
    port: int, trust: ssl.SSLContext, site: str, token: str, etag: str | None, node: int = 0
) -> tuple[int, str]:
    """One run of a hook: a connection of its own, one question; its status and ETag.

    Each of 200 nodes has an address of its own, because the server limits the requests from one address.
    """
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trust, server_hostname="127.0.0.1", local_addr=(f"127.0.1.{1 + node % 200}", 0)
    )
    header = f"If-None-Match: {etag}\r\n" if etag else ""
    writer.write(
        f"GET /v1/sites/{site}/ad HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"{header}Accept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode()
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    await reader.read()
    writer.close()
    lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    return int(head.split(" ", 2)[1]), lines["etag"]


async def ask(port: int, folder: Path, tokens: dict[str, str], count: int, *, current: bool) -> list[int]:
    """*count* hooks, so many at a time; *current* ones have the ad and say so."""
    trust = ssl.create_default_context(cafile=str(folder / "ca"))
    etags = {site: (await hook(port, trust, site, token, None))[1] for site, token in tokens.items()}
    names = sorted(tokens)
    statuses: list[int] = []
    numbers = iter(range(count))

    async def one_after_the_other() -> None:
        for number in numbers:
            site = names[number % len(names)]
            etag = etags[site] if current else None
            statuses.append((await hook(port, trust, site, tokens[site], etag, number))[0])

    await asyncio.gather(*(one_after_the_other() for _ in range(TOGETHER)))
    return statuses


def measure_server(
    url: str, pids: list[int], folder: Path, tokens: dict[str, str], count: int
) -> dict[str, Any]:
    """Return answers a second, and CPU milliseconds for each, for hooks with and without a current copy."""
    port, results = int(url.rpartition(":")[2]), {}
    for current, status in ((True, 304), (False, 200)):
        before, begun = sum(map(cpu_with_children, pids)), time.monotonic()
        ours = time.process_time()
        statuses = asyncio.run(ask(port, folder, tokens, count, current=current))
        seconds = time.monotonic() - begun
        assert set(statuses) == {status}, set(statuses)
        spent = sum(map(cpu_with_children, pids)) - before
        results[str(status)] = {
            "hooks": len(statuses),
            "per_second": len(statuses) / seconds,
            "server_ms": spent / len(statuses) * 1000,
            "asker_ms": (time.process_time() - ours) / len(statuses) * 1000,
        }
    return results


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()]


def run(quick: bool = False) -> Result:
    """Measure the daemon with HTTPS, and behind nginx with the shipped configuration."""
    count, dataset_count = (200, 1000) if quick else (10_000, DATASETS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokens = material(folder)
        with run_server(folder, dataset_count, tls=True) as (url, pid):
            alone = measure_server(url, [pid], folder, tokens, count)
        with run_server(folder, dataset_count, tls=False) as (url, pid):
            upstream = url.removeprefix("http://")
            with Nginx.start(folder / "nginx", upstream, folder / "pem", folder / "key") as nginx:
                pids = [pid, nginx.process.pid, *children(nginx.process.pid)]
                proxied = measure_server(nginx.url, pids, folder, tokens, count)
    measurements = {"the daemon alone": alone, "behind nginx": proxied}
    figures = [figure for who, each in measurements.items() for figure in figures_of(who, each)]
    return Result("hooks", tuple(figures), HOW, measurements)


def figures_of(who: str, taken: dict[str, Any]) -> list[Figure]:
    all_figures = []
    for status, one in taken.items():
        cost = one["server_ms"]
        note = (
            f"{HOOKS:,} hooks ask {HOOKS / PERIOD:.0f} times a second;"
            f" the asker took {one['asker_ms']:.2f} ms a hook"
        )
        all_figures += [
            Figure(
                f"{who}, {status}: CPU of the server, a hook",
                cost,
                "ms",
                GOAL_MS,
                f"goal: {HOOKS:,} hooks on half a core",
            ),
            Figure(f"{who}, {status}: hooks that one core answers each {PERIOD} s", 1000 / cost * PERIOD, ""),
            Figure(f"{who}, {status}: answered, asker on the same cores", one["per_second"], "/s", note=note),
        ]
    return all_figures


HOW = " ".join(
    f"""\
The daemon's HTTP front end after a cycle with {DATASETS:,} demanded datasets at each of {len(SITES)} sites,
so every ad is full and most datasets have no room; a token for each site. Every hook is a TLS connection
of its own with one question, as a hook is, {TOGETHER} at a time; 304: it says that it has the current
ad, as nearly all do; 200: it has none. The asker, in another process, takes a core as well: answers a
second are of both together, CPU is of the servers (all processes of nginx, and the daemon behind it).
nginx runs deploy/nginx/classad-hydrator.conf with one worker. 100,000 hooks are not asked at once: what
one costs is measured over 10,000 connections, and multiplied.""".split()
)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), tls=sys.argv[3] == "tls")
