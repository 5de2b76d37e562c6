"""Jobs follow the records of a real Rucio server, and its adapter keeps the contract of all catalogues."""

import pytest

from testbed.patience import wait_for
from tests.gate.early import begin_early
from tests.rucio_contract import RucioCatalogueContract, seeded

__all__ = ["seeded"]
pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.timeout(900)]

MOVING, CONVEYED, REQUESTED = "gate:moving", "gate:conveyed", "gate:requested"


@begin_early
def moving(installed):
    installed.catalogue.rucio.put(MOVING, {"UK": "available", "AU": "staging", "NL": "nearline"})
    return installed.submit([MOVING], mode="wait")


def test_jobs_follow_a_dataset_that_moves(installed, begun):
    rucio = installed.catalogue.rucio
    assert installed.pool.ran_at(begun(moving)) == ["UK"]
    installed.until_states(MOVING, UK="AVAILABLE", AU="STAGING", NL="NEARLINE")
    assert installed.fraction_at("AU", MOVING) == 0.5

    rucio.arrive(MOVING, "AU")
    rucio.leave(MOVING, "UK")
    assert rucio.available()[MOVING] == {"AU"}
    installed.until_states(MOVING, UK=None, AU="AVAILABLE", NL="NEARLINE")
    assert installed.pool.ran_at(installed.submit([MOVING], mode="wait")) == ["AU"]


@begin_early
def conveyed(installed):
    installed.catalogue.rucio.put(CONVEYED, {})
    return installed.submit([CONVEYED], mode="wait")


def test_a_new_rule_becomes_a_replica_and_the_waiting_job_starts_there(installed, begun):
    rucio, job = installed.catalogue.rucio, begun(conveyed)
    installed.until_states(CONVEYED, UK=None, AU=None, NL=None)
    rucio.promise(CONVEYED, "UK")  # at AU, Rucio would first transfer the files of MOVING
    installed.until_states(CONVEYED, UK="STAGING")
    assert installed.fraction_at("UK", CONVEYED) is None
    rucio.convey("UK", files=2)
    installed.pool.wait(lambda: installed.fraction_at("UK", CONVEYED) == 0.5, "half of it at UK")
    assert installed.pool.stays_idle(job)
    rucio.convey("UK", files=2)
    installed.until_states(CONVEYED, UK="AVAILABLE", AU=None, NL=None)
    assert installed.pool.ran_at(job) == ["UK"]


@begin_early
def requested(installed):
    """A job whose data is only on tape at FAR, which has no slots; the daemon may request it for NL."""
    tape = {"rse": "GATE-FAR-TAPE"}
    installed.catalogue.rucio.server.seed(
        ("add_rse", {**tape, "rse_type": "TAPE", "attributes": {"site": "FAR"}}),
        ("add_dataset", {"did": REQUESTED, **tape}),
        ("close", {"did": REQUESTED}),
        ("abacus", {}),
    )
    return installed.submit([REQUESTED], mode="wait")


def test_data_nowhere_near_is_requested_and_the_job_starts_where_it_arrives(installed, begun):
    rucio, job = installed.catalogue.rucio, begun(requested)
    server, disk = rucio.server, {"did": REQUESTED, "rse": rucio.disks["NL"]}
    [rule] = wait_for(lambda: server.do("rules_on", did=REQUESTED), "a rule of the daemon")
    assert (rule["account"], rule["rse"], rule["state"]) == (server.account, disk["rse"], "REPLICATING")
    assert "[hydrator:gate:" in rule["comment"]
    installed.until_states(REQUESTED, UK=None, AU=None, NL="STAGING")
    assert installed.pool.is_idle(job)

    # an operator suspends the rule while its files are on their way: what counts is that they arrive
    suspended = {**disk, "state": "SUSPENDED"}
    server.seed(("change_rules", suspended), ("convey", {"rse": disk["rse"]}), ("abacus", {}))
    installed.until_states(REQUESTED, UK=None, AU=None, NL="AVAILABLE")
    assert installed.pool.ran_at(job) == ["NL"]
    assert [each["id"] for each in server.do("rules_on", did=REQUESTED)] == [rule["id"]]
    rucio.leave(REQUESTED, "NL")


class TestRucioCatalogue(RucioCatalogueContract):
    """The contract of hydrator.testing, on the same server."""
