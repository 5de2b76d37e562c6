"""Throughputs and distances between sites, from the real Rucio server."""

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.rucio.catalogue import RucioSettings
from adapters.rucio.rses.links import RucioLinks
from hydrator.domain.errors import CatalogueDenied
from hydrator.domain.model import Site
from testbed.rucio import RucioServer

pytestmark = pytest.mark.rucio
UK, NL, DE = Site("LINK-UK"), Site("LINK-NL"), Site("LINK-DE")
SITES = frozenset({UK, NL, DE})
DONE = {"source": "LINK-UK_A", "files": 4, "bytes_each": 9 * 10**9}


@pytest.fixture(scope="module")
def server(rucio_server: RucioServer) -> RucioServer:
    """Three sites; UK has two elements. Transfers from UK to NL wait, those from UK to DE do not."""
    rucio_server.seed(
        *(
            ("add_rse", {"rse": rse, "attributes": {"site": rse.rpartition("_")[0]}})
            for rse in ("LINK-UK_A", "LINK-UK_B", "LINK-NL_A", "LINK-DE_A")
        ),
        ("add_scope", {"scope": "links"}),
        ("add_dataset", {"did": "links:ds", "rse": "LINK-UK_A"}),
        ("replicate", {"did": "links:ds", "rse": "LINK-NL_A"}),
        ("choose_source", {"rse": "LINK-NL_A", "source": "LINK-UK_A"}),
        ("add_transfer_stats", DONE | {"destination": "LINK-NL_A"}),
        ("add_transfer_stats", DONE | {"destination": "LINK-DE_A"}),
        ("add_user", {"account": "plainuser", "password": "a-plain-word"}),
    )  # fmt: skip
    return rucio_server


def links(server: RucioServer, tmp_path: Path, account: str, username: str, password: str) -> RucioLinks:
    settings = RucioSettings(
        name="rucio", url=server.url, auth_url=server.url, account=account, username=username,
        password=password, site_attribute="site", token_dir=tmp_path,
    )  # fmt: skip
    return RucioLinks(settings, lambda: datetime.fromtimestamp(time.time(), UTC), {})


def test_administrator_sees_the_throughput_of_busy_links_and_all_distances(server, tmp_path):
    with closing(links(server, tmp_path, server.account, server.username, server.password)) as reader:
        found = reader.read_links(SITES)
        assert reader.refusal == ""
    assert found[UK, NL].bytes_per_second == 1e7
    assert found[UK, NL].files == 4
    assert found[UK, DE].bytes_per_second is None
    assert found.keys() == {(one, other) for one in SITES for other in SITES if one != other}
    assert {link.distance for link in found.values()} == {1}


def test_account_without_rights_sees_distances_and_says_why(server, tmp_path):
    with closing(links(server, tmp_path, "plainuser", "plainuser", "a-plain-word")) as reader:
        found = reader.read_links(SITES)
        assert "request metrics" in reader.refusal
        assert "AccessDenied" in reader.refusal
        assert reader.read_links(frozenset({UK, NL})).keys() == {(UK, NL), (NL, UK)}
    assert found.keys() == {(one, other) for one in SITES for other in SITES if one != other}
    assert {(link.distance, link.bytes_per_second) for link in found.values()} == {(1, None)}


def test_wrong_password_is_an_error_of_the_catalogue(server, tmp_path):
    reader = links(server, tmp_path, "plainuser", "plainuser", "wrong")
    with closing(reader), pytest.raises(CatalogueDenied):
        reader.read_links(SITES)
