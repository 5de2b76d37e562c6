"""Cost of bulk queries compared with sweeps of storage elements, and of locks compared with rules.

A sweep lists all datasets of a storage element, demanded or not, and has no limit; a bulk query has a
thousand datasets. Here all datasets are demanded: with fewer, bulk costs less, and a sweep the same.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from adapters.rucio.session.client import RucioClient
from hydrator.domain.model import Did
from testbed.rucio import VERSION

from .record import Figure, Result, round_samples
from .rucio_seeded import ELEMENTS, connect_to_seeded_server

_BATCH = 1_000
Rows = Sequence[Any]


def run(*, quick: bool = False) -> Result:
    """Query in both ways in turn, for some rounds, and compare."""
    size, rounds = (200, 2) if quick else (2_000, 7)
    seconds: dict[str, list[float]] = {}
    counts: dict[str, tuple[int, int]] = {}
    with connect_to_seeded_server(size) as (server, dids, connection):
        ways = _ways(dids)
        for _ in range(rounds):
            for name, way in ways.items():
                server.seed(("meter", {}))
                begun = time.monotonic()
                rows = connection.ask(way)
                seconds.setdefault(name, []).append(time.monotonic() - begun)
                ((requests, _spent),) = server.seed(("meter", {}))
                counts[name] = (len(rows), requests)
    if len({rows for rows, _ in counts.values()}) != 1:
        raise AssertionError(f"not all ways gave as many rows: {counts}")
    how = (
        f"{size:,} datasets as in rucio_polls, all of them wanted. Each way in turn, {rounds} rounds; "
        "medians, ratios of the same round. At a ratio r, sweeps cost less where more than r of it is wanted."
    )
    raw = {name: round_samples(samples) for name, samples in seconds.items()}
    return Result("rucio_sweeps", _figures(seconds, counts), how, raw,
                  {"Rucio": VERSION, "database": "PostgreSQL"})  # fmt: skip


def _ways(dids: Sequence[Did]) -> dict[str, Callable[[RucioClient], Rows]]:
    names = [dict(zip(("scope", "name"), did.split(":"), strict=True)) for did in dids]

    def bulk(kind: str, call: Callable[[RucioClient], Callable[[Any], Any]]) -> Callable[[RucioClient], Rows]:
        batches = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]
        return lambda client: [
            row for batch in batches for row in call(client)([{**each, "type": kind} for each in batch])
        ]

    def sweep(call: Callable[[RucioClient], Callable[[str], Any]]) -> Callable[[RucioClient], Rows]:
        return lambda client: [row for element in ELEMENTS for row in call(client)(element)]

    return {
        "cheap rows in bulk": bulk("DATASET", lambda client: client.list_dataset_replicas_bulk),
        "cheap rows by sweeps": sweep(lambda client: client.list_datasets_per_rse),
        "locks in bulk": bulk("dataset", lambda client: client.get_locks_for_dids),
        "locks by sweeps": sweep(lambda client: client.get_dataset_locks_by_rse),
        "rules of the scope": lambda client: list(client.list_replication_rules({"scope": "bench"})),
    }


def _figures(seconds: dict[str, list[float]], counts: dict[str, tuple[int, int]]) -> tuple[Figure, ...]:
    all_figures = []
    for name, times in seconds.items():
        rows, requests = counts[name]
        all_figures.append(
            Figure(
                f"{name}: rows a second", rows / statistics.median(times), "", None, f"{requests} requests"
            )
        )
    for one, other in (("cheap rows by sweeps", "cheap rows in bulk"), ("locks by sweeps", "locks in bulk"),
                       ("rules of the scope", "locks in bulk")):  # fmt: skip
        ratio = statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))
        all_figures.append(Figure(f"{one} / {other}, wall", ratio, "", None))
    return tuple(all_figures)
