"""Jobs follow the records of a real Rucio server, and its adapter keeps the contract of all catalogues."""

import pytest

from tests.gate.early import begin_early
from tests.rucio_contract import RucioCatalogueContract, seeded

__all__ = ["seeded"]
pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.timeout(900)]

MOVING, CONVEYED = "gate:moving", "gate:conveyed"


def fraction_at(installed, site, did):
    """Return the part of *did* that the slots of *site* advertise as being there, or None."""
    at_site = f'PartitionableSlot && GLIDEIN_Site == "{site}"'
    (slot,) = installed.pool.slots("DatasetFractions", constraint=at_site)
    return (slot.get("DatasetFractions") or {}).get(did)


@begin_early
def moving(installed):
    installed.catalogue.rucio.put(MOVING, {"UK": "available", "AU": "staging", "NL": "nearline"})
    return installed.submit([MOVING], mode="wait")


def test_jobs_follow_a_dataset_that_moves(installed, begun):
    rucio = installed.catalogue.rucio
    assert installed.ran_at(begun(moving)) == ["UK"]
    installed.until_states(MOVING, UK="AVAILABLE", AU="STAGING", NL="NEARLINE")
    assert fraction_at(installed, "AU", MOVING) == 0.5

    rucio.arrive(MOVING, "AU")
    rucio.leave(MOVING, "UK")
    assert rucio.available()[MOVING] == {"AU"}
    installed.until_states(MOVING, UK=None, AU="AVAILABLE", NL="NEARLINE")
    assert installed.ran_at(installed.submit([MOVING], mode="wait")) == ["AU"]


@begin_early
def conveyed(installed):
    installed.catalogue.rucio.put(CONVEYED, {})
    return installed.submit([CONVEYED], mode="wait")


def test_a_new_rule_becomes_a_replica_and_the_waiting_job_starts_there(installed, begun):
    rucio, job = installed.catalogue.rucio, begun(conveyed)
    installed.until_states(CONVEYED, UK=None, AU=None, NL=None)
    rucio.promise(CONVEYED, "UK")  # at AU, Rucio would first transfer the files of MOVING
    installed.until_states(CONVEYED, UK="STAGING")
    assert fraction_at(installed, "UK", CONVEYED) is None
    rucio.convey("UK", files=2)
    installed.pool.wait(lambda: fraction_at(installed, "UK", CONVEYED) == 0.5, 0, "half of it at UK")
    installed.until_rejected(job)
    assert installed.is_idle(job)
    rucio.convey("UK", files=2)
    installed.until_states(CONVEYED, UK="AVAILABLE", AU=None, NL=None)
    assert installed.ran_at(job) == ["UK"]


class TestRucioCatalogue(RucioCatalogueContract):
    """The contract of hydrator.testing, on the same server."""
