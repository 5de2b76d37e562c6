"""A site whose catalogue makes false claims loses trust in its slots, and they are corrected: all real."""

import itertools
import json
import secrets
from collections.abc import Iterator, Mapping

import pytest

from testbed.demo import BRISK, RucioHoldings
from testbed.installation import Installation
from testbed.pool import Pool

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.timeout(900)]

SCOPES = (f"trust-{n}" for n in itertools.count())
DATASETS = 8
KEY = "canary-key-" + secrets.token_hex(32)

FALSE_CLAIM = "catalogue repeated a claim that the audit disproved"


class Believed(RucioHoldings):
    """A server whose dataset summaries are trusted for a day after each count."""

    def section(self) -> str:
        return super().section() + "verify_minutes = 1440\n"

    def put(self, did: str, states: Mapping[str, str]) -> None:
        """Leave no replica without a rule: it would have no dataset summary, so each poll would count it."""
        super().put(did, states)
        self._server.seed(("remove", {"did": did, "rse": self.origin}), ("abacus", {}))

    def spoil(self, did: str, site: str) -> None:
        """Let a file go bad; Rucio does not recount the dataset, so its summary still says complete."""
        self._server.do("go_bad", did=did, rse=self.disks[site], files=1)

    def repair(self, did: str, site: str) -> None:
        self._server.do("transferred", did=did, rse=self.disks[site])


@pytest.fixture(scope="module")
def installed(htcondor_release, rucio_server) -> Iterator[Installation]:
    with Pool.start(htcondor_release) as pool:
        sites = [site.name for site in pool.sites]
        holdings = Believed(rucio_server, pool.home, sites, scope=next(SCOPES))
        settings = """
[audit]
calls_per_second = 2
misses_seconds = 1
[log]
level = "debug"
"""
        with Installation(pool, holdings, extra=BRISK, settings=settings) as installation:
            yield installation


@pytest.fixture(scope="module")
def dids(installed) -> list[str]:
    """Return datasets that are complete in the UK and in AU, and in demand."""
    names = [f"{installed.catalogue.scope}:D{n}" for n in range(DATASETS)]
    for did in names:
        installed.catalogue.put(did, {"UK": "available", "AU": "available"})
    installed.submit(names)
    for site in ("UK", "AU"):
        installed.pool.wait(
            lambda site=site: installed.states_at(site) == dict.fromkeys(names, "AVAILABLE"),
            180,
            f"{site} to say it has all",
        )
    return names


def trust_at(installed: Installation, site: str) -> float | None:
    slots = installed.pool.slots(
        "DataLocalityTrust", constraint=f'PartitionableSlot && GLIDEIN_Site == "{site}"'
    )
    return slots[0].get("DataLocalityTrust") if slots else None


def logged(installed: Installation, event: str, **what: object) -> list[dict]:
    """Return the lines of the daemon's log about *event* with the fields *what*."""
    whole = [line for line in installed.log.splitlines(keepends=True) if line.endswith("\n")]
    fields = {"event": event, **what}.items()
    return [line for line in map(json.loads, whole) if fields <= line.items()]


def missing(did: str, when: int = 1795000000) -> str:
    """Return the miss that the wrapper of a job in the UK reports in its ad for *did*."""
    return f'+ChirpDataLocalityMisses = {{"{when} {did} UK"}}'


def test_a_lie_of_the_catalogue_is_found_corrected_and_told_and_a_repair_is_noticed(installed, dids):
    uk, lied_about = installed.catalogue, dids[3]
    assert trust_at(installed, "UK") == 1.0

    uk.spoil(lied_about, "UK")
    installed.pool.wait(
        lambda: installed.states_at("UK").get(lied_about) == "PARTIAL", 180, "the spoilt dataset to be seen"
    )
    installed.pool.wait(lambda: (trust_at(installed, "UK") or 1) < 1, 180, "the UK to lose trust")
    assert trust_at(installed, "AU") == 1.0
    assert installed.states_at("AU")[lied_about] == "AVAILABLE"

    lies = logged(installed, FALSE_CLAIM)
    assert [(lie["dataset"], lie["site"], lie["method"]) for lie in lies] == [
        (lied_about, "UK", "file by file")
    ]
    rows = {row["site"]: row for row in json.loads(installed.run("sites", "--json").stdout)}
    assert rows["UK"]["trust"] < 1
    assert rows["UK"]["corrected"] == 1
    assert rows["AU"]["false"] == 0
    assert "UK: trust 0." in installed.run("status").stdout
    findings = json.loads(installed.run("check", "--json", check=False).stdout)
    assert any(f["subject"] == "site UK" and f["message"].startswith("trust 0.") for f in findings)
    assert installed.metric('hydrator_site_trust_ratio{site="UK"}') < 1
    assert installed.metric('hydrator_repeated_false_claims_total{site="UK"}') == 1

    uk.repair(lied_about, "UK")
    installed.pool.wait(
        lambda: installed.states_at("UK")[lied_about] == "AVAILABLE", 180, "the repair to be noticed"
    )
    installed.stop_daemon()
    installed.start_daemon()
    rows = {row["site"]: row for row in json.loads(installed.run("sites", "--json").stdout)}
    assert rows["UK"]["trust"] < 1  # the lie still counts, for a day


def test_misses_of_jobs_are_read_from_the_queue_and_from_the_history(installed, dids):
    before = installed.metric('hydrator_missed_datasets_total{site="UK"}')
    nowhere = f"{installed.catalogue.scope}:nowhere"
    waits = installed.submit([nowhere], mode="require", more=missing(dids[1]))
    ends = installed.submit([dids[2]], more=missing(dids[2]))
    assert installed.ran_at(ends) != []
    installed.pool.wait(
        lambda: installed.metric('hydrator_missed_datasets_total{site="UK"}') >= before + 2,
        180,
        "both misses to be read",
    )
    for did in dids[1:3]:
        installed.pool.wait(
            lambda did=did: logged(
                installed, "checked a dataset that a job reported missing", dataset=did, true=2, false=0
            ),
            180,
            "what was missed to be looked at, and found",
        )
    assert trust_at(installed, "AU") == 1.0  # a miss brings an audit; it is not a verdict
    installed.pool.run("condor_rm", str(waits))
