"""The same on PostgreSQL, which counts bytes in floating point and takes several writers."""

import os

import pytest

from testbed.debs import DebUnavailable
from testbed.postgres import Postgres
from testbed.rucio import RucioServer, RucioUnavailable
from tests.contracts import test_rucio_catalogue as common

pytestmark = [pytest.mark.rucio, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    try:
        postgres = Postgres.start()
    except DebUnavailable as reason:
        pytest.skip(str(reason))
    with postgres:
        try:
            server = RucioServer.start(tmp_path_factory.mktemp("rucio") / "server", postgres.url)
        except RucioUnavailable as reason:
            if os.environ.get("CI") == "true":
                pytest.fail(str(reason))
            pytest.skip(f"no real Rucio server: {reason}")
        with server:
            yield common.with_storages(server)


class TestRucioCatalogueOnPostgres(common.TestRucioCatalogue):
    pass
