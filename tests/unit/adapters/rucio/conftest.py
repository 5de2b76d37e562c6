"""The stand-in for Rucio that a test module describes, and catalogues on it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from testbed.loopback import LoopbackServer
from tests.rucio_fixtures import catalogues


@pytest.fixture
def stand_in(request: pytest.FixtureRequest) -> Iterator[LoopbackServer]:
    """Start the module's own ``StandIn``."""
    with request.module.StandIn() as server:
        yield server


@pytest.fixture
def asking(
    request: pytest.FixtureRequest, stand_in: LoopbackServer, tmp_path: Path
) -> Iterator[Callable[..., RucioCatalogue]]:
    """Make catalogues on the stand-in, with the module's ``USUAL`` settings; close them at the end."""
    usual = {"twins_every": None, "calls_per_second": 10_000, **getattr(request.module, "USUAL", {})}
    with catalogues(url=stand_in.url, token_dir=tmp_path / "tokens", **usual) as make:
        yield make
