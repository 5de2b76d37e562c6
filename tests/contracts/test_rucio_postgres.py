"""The same on PostgreSQL, which counts bytes in floating point and takes several writers."""

import pytest

from tests.contracts import test_rucio_catalogue as common

pytestmark = [pytest.mark.rucio, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def seeded(rucio_on_postgres):
    return common.with_storages(rucio_on_postgres)


class TestRucioCatalogueOnPostgres(common.TestRucioCatalogue):
    pass
