"""The data that jobs need: what schedds and slots answer becomes needs, or stays unknown."""

from datetime import timedelta

import pytest

from adapters.condor.pool_load import ScheddNeeds
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, Unseen, from_unix, to_unix
from tests.factories import NOON

pytestmark = pytest.mark.outside

SINCE = to_unix(NOON) - 600
IDLE = {
    "datasets": ["lofar:L1"],
    "user": "ann@x",
    "job_count": 3,
    "example": "7.0",
    "since": SINCE,
    "is_held": False,
    "ad": {"Requirements": "true"},
}
RUNNING = {
    "datasets": ["lofar:L2"],
    "user": "bob@x",
    "started_at": [SINCE, SINCE + 5],
    "site": "CAM",
    "slot": None,
}


class Client:
    """A stand-in for a CondorClient; the schedd ap2 does not answer."""

    def __init__(self, *, idle=(IDLE,), running=(), match=None):
        self.idle, self.running = idle, running
        self.match = match or {"sites": ["CAM", "RAL"], "matches_now": False}
        self.is_closed = False

    def schedds(self):
        return [{"Name": "ap1"}, {"Name": "ap2"}]

    def read_data_needs(self, schedd, site_attributes, max_groups):
        if schedd == "ap2":
            raise PoolError(schedd, "no answer in time")
        assert site_attributes == ("DataLocalitySite", "GLIDEIN_Site")
        return {"idle": list(self.idle), "running": list(self.running)}

    def evaluate_sites(self, jobs, site_attributes):
        if isinstance(self.match, Exception):
            raise self.match
        return [self.match for _ in jobs]

    def slots(self, attributes, constraint):
        return [{"Name": "slot1@x", "DataLocalitySite": None, "GLIDEIN_Site": "RAL"}]

    def close(self):
        self.is_closed = True


def read(client):
    return ScheddNeeds(client, lambda: NOON, ["GLIDEIN_Site"]).read_needs()


def test_idle_jobs_have_the_sites_that_match_the_rest():
    answers = read(Client())
    [one] = answers["ap1"]
    assert (one.datasets, one.job_count, one.user, one.example) == (("lofar:L1",), 3, "ann@x", "7.0")
    assert one.queued_since == from_unix(SINCE)
    assert (one.matching_sites, one.is_data_missing) == ({"CAM", "RAL"}, True)
    assert answers["ap2"] == Unseen("no answer in time")


@pytest.mark.parametrize(
    ("match", "sites", "missing"),
    [
        ({"sites": ["CAM"], "matches_now": True}, {"CAM"}, False),
        ({"sites": [], "matches_now": False}, set(), False),
        (PoolError("collector", "no answer"), None, None),
    ],
)
def test_jobs_whose_data_is_not_the_only_reason_are_told_from_others(match, sites, missing):
    [one] = read(Client(match=match))["ap1"]
    assert (one.matching_sites, one.is_data_missing) == (sites, missing)


def test_jobs_beyond_the_largest_groups_are_unknown():
    rows = [{**IDLE, "ad": None}, {**IDLE, "example": "8.0"}]
    first, second = read(Client(idle=rows))["ap1"]
    assert (first.is_data_missing, second.is_data_missing) == (None, True)


@pytest.mark.parametrize(
    ("row", "attribute", "value"),
    [
        ({"since": None}, "queued_since", NOON),
        ({"since": to_unix(NOON) + 10**6}, "queued_since", NOON),
        ({"since": 10**15}, "queued_since", NOON),
        ({"job_count": -5}, "job_count", 1),
        ({"job_count": 10**18}, "job_count", 10**7),
    ],
)
def test_odd_values_of_a_job_are_limited(row, attribute, value):
    [one] = read(Client(idle=[{**IDLE, **row}]))["ap1"]
    assert getattr(one, attribute) == value


def test_held_jobs_need_their_data_but_do_not_wait_for_it():
    [one] = read(Client(idle=[{**IDLE, "is_held": True, "ad": None}]))["ap1"]
    assert (one.is_data_missing, one.is_running, one.matching_sites) == (False, False, None)


@pytest.mark.parametrize(
    ("row", "site"),
    [({}, "CAM"), ({"site": None, "slot": "slot1@x"}, "RAL"), ({"site": None, "slot": "gone@x"}, None)],
)
def test_running_jobs_have_the_site_of_their_slot(row, site):
    [one] = read(Client(idle=[], running=[{**RUNNING, **row}]))["ap1"]
    assert one.is_running
    assert one.running_site == (site and Site(site))
    assert (one.job_count, one.queued_since) == (2, from_unix(SINCE) + timedelta(seconds=5))
    assert one.matching_sites is None
