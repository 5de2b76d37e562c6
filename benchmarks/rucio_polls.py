"""Polls of a real Rucio server on PostgreSQL: their cost for the server and for the daemon.

The first poll counts each dataset by a query, which takes the server a quarter of an hour for 100,000.

Each dataset has four files at three of 20 storage elements, with a rule for each. The server's own time
is measured inside it, around the application that answers; a recall, a stuck rule or a transfer cost more.
"""

import gc
import os
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from hydrator.domain.model import DatasetState, Did, Seen
from hydrator.wiring.catalogues import rucio_environment
from testbed.postgres import Postgres
from testbed.rucio import VERSION, RucioServer

from .measure import memory
from .record import Figure, Result

ELEMENTS = [f"RSE{n:02}" for n in range(20)]
EACH = 3
"""Storage elements of each dataset."""
_OVERHEAD_GOAL, _CHANGED_GOAL = 1.15, 0.1
_REST_GOAL = 10.0
SIZES = (1_000, 10_000, 100_000)
_VERIFIED = 2_000
_VERIFY_EVERY = timedelta(seconds=10)
"""Most counts are older when the first poll ends."""


def run(*, quick: bool = False, sizes: Sequence[int] = SIZES) -> Result:
    """Poll catalogues of *sizes* datasets: all counted, unchanged, and with one in a hundred changed."""
    figures: list[Figure] = []
    raw = {}
    with tempfile.TemporaryDirectory() as scratch:
        for size in (200,) if quick else sizes:
            new_figures, raw[str(size)] = _measure_size(size, Path(scratch) / str(size))
            figures += new_figures
        size = 200 if quick else _VERIFIED
        new_figures, raw[f"{size} verified"] = _measure_verification(size, Path(scratch) / "verified")
        figures += new_figures
    how = (
        f"Every dataset has 4 files at {EACH} of {len(ELEMENTS)} storage elements, with rules, made by SQL "
        "in PostgreSQL. The first poll counts every dataset. At rest "
        "nothing changed; then a file of each hundredth dataset goes bad, and those are counted. Of "
        f"{_VERIFIED:,} most counts are due again, and a poll repeats a tenth of its limit. Server time "
        "is taken inside the server, around its application. Two calls at a time, no limit a second; one "
        "gunicorn worker and the poll share the machine."
    )
    versions = {"Rucio": VERSION, "database": "PostgreSQL"}
    return Result("rucio_polls", tuple(figures), how, raw, versions)


def seed_datasets(server: RucioServer, size: int) -> frozenset[Did]:
    """Create *size* datasets, as copies of one for each storage element."""
    server.seed(("add_scope", {"scope": "bench"}))
    server.seed(*(("add_rse", {"rse": rse, "attributes": {"site": f"SITE-{rse}"}}) for rse in ELEMENTS))
    for n, rse in enumerate(ELEMENTS):
        did = f"bench:t{n:02}-0"
        others = [ELEMENTS[(n + step) % len(ELEMENTS)] for step in range(1, EACH)]
        server.seed(
            ("add_dataset", {"did": did, "rse": rse, "files": 4}),
            *(("place", {"did": did, "rse": other}) for other in others),
            *(("replicate", {"did": did, "rse": each}) for each in (rse, *others)),
        )
    server.seed(("abacus", {}), ("multiply", {"copies": size // len(ELEMENTS)}))
    return frozenset(
        Did(f"bench:t{n:02}-{copy}") for n in range(len(ELEMENTS)) for copy in range(size // len(ELEMENTS))
    )


def _measure_size(size: int, folder: Path) -> tuple[list[Figure], dict[str, dict[str, float]]]:
    folder.mkdir()
    with Postgres.start() as postgres, RucioServer.start(folder / "server", postgres.url) as server:
        dids = seed_datasets(server, size)
        catalogue = _catalogue(server, folder)
        try:
            gc.collect()
            before = memory(os.getpid(), "Rss")
            first = _poll(server, catalogue, dids, partial=0)
            used = memory(os.getpid(), "Rss") - before
            rest = _poll(server, catalogue, dids, partial=0)
            server.seed(("spoil", {"every": 5}))
            changed = _poll(server, catalogue, dids, partial=size // 100)
        finally:
            catalogue.close()
    name = f"{size:,} datasets: "
    return [
        Figure(name + "first poll, counts all", first["wall"], "s"),
        Figure(name + "its wall time / server time", first["wall"] / first["server"], "", _OVERHEAD_GOAL),
        Figure(name + "its requests", first["requests"], ""),
        Figure(name + "our CPU in it", first["cpu"], "s"),
        Figure(name + "poll at rest", rest["wall"], "s"),
        Figure(name + "its requests at rest", rest["requests"], ""),
        Figure(
            name + "its wall time at rest / server time", rest["wall"] / rest["server"], "", _OVERHEAD_GOAL
        ),
        Figure(name + "our CPU at rest", rest["cpu"], "s"),
        Figure(name + "poll with 1 % changed", changed["wall"], "s"),
        Figure(name + "that / the first poll", changed["wall"] / first["wall"], "", _CHANGED_GOAL),
        Figure(name + "its wall / server time", changed["wall"] / changed["server"], "", _OVERHEAD_GOAL),
        Figure(name + "memory the first poll took", max(0.0, used), "MiB"),
    ], {"first": first, "rest": rest, "changed": changed}


def _measure_verification(size: int, folder: Path) -> tuple[list[Figure], dict[str, dict[str, float]]]:
    """Measure a poll without changes that counts again what is due, up to its limit."""
    folder.mkdir()
    with Postgres.start() as postgres, RucioServer.start(folder / "server", postgres.url) as server:
        dids = seed_datasets(server, size)
        catalogue = _catalogue(server, folder, verify_every=_VERIFY_EVERY, deep_calls=_VERIFIED)
        try:
            _poll(server, catalogue, dids, partial=0)
            rest = _poll(server, catalogue, dids, partial=0)
        finally:
            catalogue.close()
    name = f"{size:,} datasets, counts verified: "
    return [
        Figure(name + "poll at rest", rest["wall"], "s", _REST_GOAL),
        Figure(name + "its requests at rest", rest["requests"], ""),
        Figure(
            name + "its wall time at rest / server time", rest["wall"] / rest["server"], "", _OVERHEAD_GOAL
        ),
    ], {"rest": rest}


def _catalogue(
    server: RucioServer,
    folder: Path,
    *,
    verify_every: timedelta = timedelta(days=1),
    deep_calls: int = 10**6,
) -> RucioCatalogue:
    settings = RucioSettings(
        name="rucio", url=server.url, account=server.account, username=server.username,
        password=server.password, token_dir=folder / "tokens", twins_every=None,
        deadline=timedelta(hours=2), deep_calls=deep_calls, verify_every=verify_every,
        calls_per_second=10_000,
    )  # fmt: skip
    os.environ.update(rucio_environment(folder / "client"))  # as a worker has it
    return RucioCatalogue(settings, lambda: datetime.fromtimestamp(time.time(), UTC))


def _poll(
    server: RucioServer, catalogue: RucioCatalogue, dids: frozenset[Did], *, partial: int
) -> dict[str, float]:
    """Run one poll, which must return every dataset, *partial* of them partial somewhere."""
    server.seed(("meter", {}))
    begun, used = time.monotonic(), time.process_time()
    survey = catalogue.read(dids)
    wall, cpu = time.monotonic() - begun, time.process_time() - used
    readings = [each for each in survey.readings.values() if isinstance(each, Seen)]
    spoilt = sum(any(r.state is DatasetState.PARTIAL for r in each.replicas) for each in readings)
    if (
        len(readings) != len(dids)
        or spoilt != partial
        or any(len(each.replicas) != EACH for each in readings)
    ):
        raise AssertionError(f"{len(readings)} of {len(dids)} seen, {spoilt} of {partial} partial")
    ((requests, seconds),) = server.seed(("meter", {}))
    return {"wall": round(wall, 3), "server": round(seconds, 3), "cpu": round(cpu, 3), "requests": requests}
