"""Jobs follow the records of a real Rucio server: rules, transfers and deletions, on a real pool."""

import itertools
import json
from collections.abc import Iterator

import pytest

from hydrator.config import load
from testbed.demo import BRISK, RucioHoldings
from testbed.installation import Installation

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.timeout(900)]

SCOPES = (f"e2e-{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def installed(own_pool, rucio_server) -> Iterator[Installation]:
    """Start the daemon on the shared Rucio server, with a scope and storage elements of its own."""
    sites = [site.name for site in own_pool.sites]
    holdings = RucioHoldings(rucio_server, own_pool.home, sites, scope=next(SCOPES))
    with Installation(own_pool, holdings, extra=BRISK) as installation:
        yield installation


@pytest.fixture
def rucio(installed) -> RucioHoldings:
    return installed.catalogue


def test_init_writes_a_configuration_from_rucio_that_passes_check(installed, rucio):
    ours, new = load(installed.config), installed.home / "first.toml"
    source = ours.catalogue[0]
    login = ["--username", source.username, "--password-file", str(source.password_file)]
    catalogue = ["--url", source.url, "--account", source.account, *login]
    pool = ["--condor-config", str(ours.htcondor.config_file), "--state-dir", str(installed.home / "first")]
    installed.run("init", "--config", str(new), "--yes", *catalogue, *pool)
    rows = json.loads(installed.run("check", "--config", str(new), "--json").stdout)
    assert [row for row in rows if row["level"] == "fail"] == []
    assert any("answers, and covers" in row["message"] for row in rows)
