"""Every fault of an HTTP catalogue, at the start and in steady running, while many datasets leave.

Each fact that is read was true at its time, and the first good answers repair everything. What the daemon
makes of such readings is the matter of tests/simulation; faults of files and folders are tested beside these.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testbed.dmapi_standin import DmapiStandIn
from testbed.faults import FaultProxy
from testbed.rucio_standin import RucioStandIn

from .length import chosen
from .sources import CAM, FULL, RAL, SHRUNK, Asked, DmapiSource, RucioSource

POLLS = chosen(2, 5)
"""How long a fault lasts."""
SOURCES = {"rucio (stand-in)": RucioSource, "dmapi (stand-in)": DmapiSource}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict]:
    with RucioStandIn({"CAM-DISK": CAM, "RAL-DISK": RAL}) as rucio, DmapiStandIn() as dmapi:
        yield {RucioSource: rucio, DmapiSource: dmapi}


@pytest.fixture
def asked(request: pytest.FixtureRequest, servers: dict, tmp_path: Path) -> Iterator[Asked]:
    server = servers[request.param]
    with FaultProxy(server.url) as proxy:
        made = Asked(request.param(proxy, server, tmp_path))
        with closing(made.catalogue):
            yield made


@pytest.mark.parametrize("begins", ["at the start", "in steady running"])
@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        pytest.param(kind, fault, id=f"{name}: {fault}")
        for name, kind in SOURCES.items()
        for fault in kind.faults
    ],
    indirect=["asked"],
)
def test_no_answer_of_a_sick_catalogue_is_false_and_the_next_good_ones_are_whole(asked, fault, begins):
    asked.hold(FULL)
    if begins == "in steady running":
        asked.until_well()
    asked.break_with(fault)
    asked.hold(SHRUNK)
    if fault in asked.source.harmless:
        asked.until_well()
    for _ in range(POLLS):
        seen = asked.read()
        if fault not in asked.source.harmless | asked.source.believable:
            assert seen < set(FULL), "the fault was not noticed"
    asked.break_with("")
    asked.until_well()
