"""Many names that are absent or never answer: all other datasets are seen in every poll."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Seen
from testbed.dmapi_standin import DmapiStandIn
from testbed.faults import Fault, FaultProxy, never
from testbed.patience import PATIENCE
from testbed.rucio_standin import RucioStandIn

from .sources import DmapiSource, RucioSource, Source
from .watched import CAM, DIDS, FULL, RAL, Watched

ABSENT = tuple(Did(f"lofar:A-absent-{number:03}") for number in range(120))
DEAD = tuple(Did(f"lofar:A-dead-{number:03}") for number in range(20))
POLLS = 4
MOST_POLLS = 60
CLOSE_SECONDS = 3.0
"""A poll of this catalogue has 1.5 s."""


@pytest.fixture(params=[RucioSource, DmapiSource])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    made = (
        RucioStandIn({"CAM-DISK": CAM, "RAL-DISK": RAL}) if request.param is RucioSource else DmapiStandIn()
    )
    with made as server, FaultProxy(server.url) as proxy:
        yield request.param(proxy, server, tmp_path)


def all_seen(watched: Watched) -> bool:
    readings = watched.faulty.read(frozenset(watched.dids)).readings
    watched.clock.now += watched.poll
    found = [readings[did] for did in DIDS]
    return all(isinstance(one, Seen) and one.replicas for one in found)


def polled_in_time(watched: Watched) -> bool:
    begun = time.monotonic()
    try:
        seen = all_seen(watched)
    except CatalogueError:  # no time was left for any that answers
        return False
    finally:
        assert time.monotonic() - begun < CLOSE_SECONDS * PATIENCE
    return seen


def test_many_absent_names_delay_no_dataset(source):
    source.patience = PATIENCE  # each is answered at once: how soon is the machine's affair
    watched = Watched(source, dids=(*ABSENT, *DIDS))
    with closing(watched.faulty):
        watched.hold(FULL)
        assert [all_seen(watched) for _ in range(POLLS)] == [True] * POLLS


def test_many_names_without_an_answer_delay_no_dataset(source):
    watched = Watched(source, dids=(*DEAD, *DIDS))
    with closing(watched.faulty):
        watched.hold(FULL)
        source.proxy.fault = Fault("dead names", deliver=never, only="A-dead")

        in_a_row = 0
        for _ in range(MOST_POLLS):
            in_a_row = in_a_row + 1 if polled_in_time(watched) else 0
            if in_a_row == POLLS:
                break
        assert in_a_row == POLLS, "where dead names came first for ever, no poll would see the others"
        source.heal()
        assert all_seen(watched)
