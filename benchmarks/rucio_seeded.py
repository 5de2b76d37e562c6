"""Rucio server on PostgreSQL with many datasets, each of four files at three of 20 elements."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

from adapters.rucio.catalogue import RucioSettings
from adapters.rucio.session.client import RucioConnection
from hydrator.domain.model import Did
from testbed.postgres import Postgres
from testbed.rucio import RucioServer

ELEMENTS = [f"RSE{n:02}" for n in range(20)]
EACH = 3
"""Storage elements of each dataset."""


@contextmanager
def connect_to_seeded_server(size: int) -> Iterator[tuple[RucioServer, list[Did], RucioConnection]]:
    """Run a server with *size* datasets; yield it, their names, and a connection with a limit of an hour."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Postgres.start() as postgres,
        RucioServer.start(Path(scratch) / "server", postgres.url) as server,
    ):
        dids = sorted(seed_datasets(server, size))
        settings = RucioSettings(
            name="rucio", url=server.url, account=server.account, username=server.username,
            password=server.password, token_dir=Path(scratch) / "tokens", calls_per_second=10_000,
        )  # fmt: skip
        with (
            closing(RucioConnection(settings)) as connection,
            connection.start_poll(timedelta(hours=1).total_seconds()),
        ):
            yield server, dids, connection


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
