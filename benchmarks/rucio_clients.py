"""Cost of the same queries to one Rucio server by rucio-clients, as the daemon uses it, and by httpx.

Both return the same records; httpx parses them with plain json, which is the minimum.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from adapters.rucio.session.client import RucioConnection
from hydrator.domain.model import Did
from testbed.rucio import VERSION, RucioServer

from .record import Figure, Result, round_samples
from .rucio_seeded import connect_to_seeded_server

_GOAL = 1.2
Rows = Sequence[Any]
Ways = tuple[Callable[[], Rows], Callable[[], Rows]]


def run(*, quick: bool = False) -> Result:
    """Query by both in turn, for some rounds, and compare."""
    size, deep, rounds = (100, 10, 3) if quick else (1_000, 100, 15)
    figures: list[Figure] = []
    raw = {}
    with connect_to_seeded_server(size) as (server, dids, connection), connect_httpx(server) as client:
        for name, ways in _questions(connection, client, server.url, dids, deep).items():
            new_figures, raw[name] = _compare_ways(name, ways, rounds)
            figures += new_figures
    how = (
        f"{size:,} datasets as in rucio_polls. Each question is asked both ways in turns, {rounds} rounds; "
        f"medians, ratios of the same round. Above {_GOAL} httpx would be taken for that question."
    )
    return Result("rucio_clients", tuple(figures), how, raw, {"Rucio": VERSION, "httpx": httpx.__version__})


def _questions(
    connection: RucioConnection, client: httpx.Client, url: str, dids: Sequence[Did], deep: int
) -> Mapping[str, Ways]:
    names = [dict(zip(("scope", "name"), did.split(":"), strict=True)) for did in dids]
    typed = [{**each, "type": "DATASET"} for each in names]

    def post(path: str, body: object) -> Rows:
        return _records(client.post(url + path, content=json.dumps(body)))

    def count_files(each: Mapping[str, str]) -> Rows:
        path = f"{url}/replicas/{each['scope']}/{each['name']}/datasets"
        return _records(client.get(path, params={"deep": True}))

    many = f"{len(dids):,} datasets at once: "
    return {
        many + "cheap rows": (
            lambda: connection.ask(lambda rucio: list(rucio.list_dataset_replicas_bulk(typed))),
            lambda: post("/replicas/datasets_bulk", {"dids": typed}),
        ),
        many + "metadata": (
            lambda: connection.ask(lambda rucio: list(rucio.get_metadata_bulk(names))),
            lambda: post("/dids/bulkmeta", {"dids": names}),
        ),
        f"{deep} datasets counted one by one": (
            lambda: [
                row
                for each in names[:deep]
                for row in connection.ask(
                    lambda rucio, each=each: list(rucio.list_dataset_replicas(**each, deep=True))  # type: ignore[misc]
                )
            ],
            lambda: [row for each in names[:deep] for row in count_files(each)],
        ),
    }


def connect_httpx(server: RucioServer) -> httpx.Client:
    """Return a client with a token of *server*."""
    login = {
        "X-Rucio-Account": server.account,
        "X-Rucio-Username": server.username,
        "X-Rucio-Password": server.password,
    }
    answer = httpx.get(f"{server.url}/auth/userpass", headers=login, trust_env=False).raise_for_status()
    token = {"X-Rucio-Auth-Token": answer.headers["X-Rucio-Auth-Token"]}
    return httpx.Client(headers=token, trust_env=False, timeout=300)


def _records(answer: httpx.Response) -> Rows:
    return [json.loads(line) for line in answer.raise_for_status().content.splitlines() if line]


def _compare_ways(name: str, ways: Ways, rounds: int) -> tuple[list[Figure], dict[str, list[float]]]:
    first, second = (sorted(map(_as_text, way())) for way in ways)
    if first != second:
        raise AssertionError(f"{name}: {len(first)} records by rucio-clients, {len(second)} by httpx differ")
    wall: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for place, way in enumerate(ways):
            begun, used = time.monotonic(), time.process_time()
            way()
            wall[place].append(time.monotonic() - begun)
            cpu[place].append(time.process_time() - used)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(*wall, strict=True))
    return [
        Figure(f"{name}: wall, rucio-clients / httpx", ratio, "", _GOAL),
        Figure(f"{name}: our CPU with rucio-clients", 1000 * statistics.median(cpu[0]), "ms"),
        Figure(f"{name}: our CPU with httpx", 1000 * statistics.median(cpu[1]), "ms"),
    ], {
        "wall by rucio-clients": round_samples(wall[0]),
        "wall by httpx": round_samples(wall[1]),
        "CPU by rucio-clients": round_samples(cpu[0]),
        "CPU by httpx": round_samples(cpu[1]),
    }


def _as_text(row: Mapping[str, Any]) -> str:
    """Return a record as a text that is the same for both clients."""
    return json.dumps(row, sort_keys=True)
