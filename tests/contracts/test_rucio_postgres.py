"""The tests of Rucio on PostgreSQL, which counts bytes in floating point, with several queries at a time."""

import pytest

from tests import rucio_contract as common

pytestmark = [pytest.mark.rucio, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def seeded(rucio_on_postgres):
    return common.with_storages(rucio_on_postgres)


class TestRucioCatalogueOnPostgres(common.RucioCatalogueContract):
    def catalogue(self, **changes):
        return super().catalogue(**{"concurrent_calls": 3, "batch": 1, **changes})
