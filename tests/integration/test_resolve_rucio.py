"""Names of measurement sets on a real Rucio server, by pattern and by name, with their sizes."""

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from hydrator.config import Settings, parse
from hydrator.submit.dataset_names.globs import expand_globs
from hydrator.submit.dataset_names.resolver import resolve_names

pytestmark = pytest.mark.rucio

SCOPES = (f"names-{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def names(rucio_server, tmp_path_factory) -> Iterator[tuple[RucioCatalogue, str]]:
    """Return a catalogue, and a scope with L1_SB1.ms and L1_SB2.ms.tar, of four files each."""
    scope = next(SCOPES)
    dids = [f"{scope}:L1_SB1.ms", f"{scope}:L1_SB2.ms.tar"]
    rucio_server.seed(
        ("add_rse", {"rse": f"{scope}-DISK".upper(), "attributes": {"site": "UK"}}),
        ("add_scope", {"scope": scope}),
        *(("add_dataset", {"did": did, "rse": f"{scope}-DISK".upper(), "files": 4}) for did in dids),
        ("abacus", {}),
    )
    catalogue = RucioCatalogue(
        RucioSettings(
            name="rucio",
            url=rucio_server.url,
            account=rucio_server.account,
            username=rucio_server.username,
            password=rucio_server.password,
            token_dir=tmp_path_factory.mktemp("tokens"),
        ),
        lambda: datetime.fromtimestamp(time.time(), UTC),
    )
    yield catalogue, scope
    catalogue.close()


def settings(scope: str | None) -> Settings:
    data = {
        "daemon": {"default_scope": scope} if scope else {},
        "catalogue": [{"type": "file", "path": "unused.toml"}],
    }
    return parse(data, folder=Path("/"), origin="test")


@pytest.mark.parametrize("with_scope", [True, False])
def test_globs_and_names_become_datasets_with_their_sizes(names, with_scope):
    catalogue, scope = names
    chosen = settings(scope if with_scope else None)
    found = expand_globs(["/data/L1_SB*.ms"], lambda _: [], chosen, [catalogue])
    assert found.names == ("/data/L1_SB1.ms", "/data/L1_SB2.ms")
    resolution = resolve_names([*found.names, "L1_SB3.ms"], chosen, [catalogue])
    assert resolution.dids[:2] == (f"{scope}:L1_SB1.ms", f"{scope}:L1_SB2.ms.tar")
    assert list(resolution.unknown_names) == ["L1_SB3.ms"]
    assert set(resolution.sizes) == set(resolution.dids[:2])
    assert all(size > 0 for size in resolution.sizes.values())
