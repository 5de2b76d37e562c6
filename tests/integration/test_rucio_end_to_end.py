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


def test_stuck_rule_has_its_reason_and_expiring_data_attracts_no_job(installed, rucio):
    did = f"{rucio.scope}:doomed"
    rucio.put(did, {"UK": "available", "AU": "staging"})
    rucio.fail(did, "AU", error="no route to storage")
    installed.submit([did], mode="wait")
    installed.until_states(did, UK="AVAILABLE", AU="STUCK")
    (at_au,) = [row for row in whys(installed, did) if row["site"] == "AU"]
    assert "no route to storage" in at_au["why"]
    assert "of root" in at_au["why"]
    assert "no route to storage" in installed.run("datasets", "--why", did).stdout

    rucio.expire(did, "UK", seconds=3600)
    installed.until_states(did, UK="PARTIAL")
    assert "no rule holds it for long enough" in str(whys(installed, did))
    rucio.leave(did, "UK")
    installed.until_states(did, UK=None, AU="STUCK")


def whys(installed: Installation, did: str) -> list[dict]:
    return json.loads(installed.run("datasets", "--why", "--json", did).stdout)


def test_init_writes_a_configuration_from_rucio_that_passes_check(installed, rucio):
    ours, new = load(installed.config), installed.home / "first.toml"
    source = ours.catalogue[0]
    login = ["--username", source.username, "--password-file", str(source.password_file)]
    catalogue = ["--url", source.url, "--account", source.account, *login]
    pool = ["--condor-config", str(ours.htcondor.config_file), "--state-dir", str(installed.home / "first")]
    made = installed.run("init", "--config", str(new), "--yes", *catalogue, *pool)
    assert "catalogue rucio: answers, and covers" in made.stderr
    checked = installed.run("check", "--config", str(new), "--json")
    assert [row for row in json.loads(checked.stdout) if row["level"] == "fail"] == []
