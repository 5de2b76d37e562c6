"""The data that jobs need: the jobs of the last snapshot, the idle ones with the sites that match them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from adapters.condor.pool_load import ScheddNeeds, choose_in_turns
from hydrator.domain.errors import PoolError
from hydrator.domain.model import ScheddDemand, Site, Unseen, from_unix, to_unix
from hydrator.domain.ports import MAX_LOAD_AGE, DataNeed, PoolSnapshot, ScheddQueue
from tests.factories import MINUTE, NOON

SINCE = to_unix(NOON) - 600
IDLE = DataNeed(("lofar:L1",), 3, "ann@x", "7.0", NOON)
HELD = replace(IDLE, example="8.0", is_data_missing=False)
RUNNING = replace(IDLE, example="", is_running=True, running_site=Site("CAM"))


class Client:
    """A stand-in for a CondorClient; ``match`` and ``since`` may be errors of collector and schedd."""

    mode = '"auto"'

    def __init__(self, match=None, since=SINCE):
        self.match = match or {"sites": ["CAM", "RAL"], "matches_now": False}
        self.since = since
        self.asked = []

    def read_job_texts(self, schedd, ids):
        self.asked.append((schedd, ids))
        if isinstance(self.since, Exception):
            raise self.since
        return {job: {"EnteredCurrentStatus": str(self.since), "datalocality": self.mode} for job in ids}

    def evaluate_sites(self, jobs, site_attributes):
        assert site_attributes == ("DataLocalitySite", "GLIDEIN_Site")
        if isinstance(self.match, Exception):
            raise self.match
        return [self.match for _ in jobs]


def needs_of(client, *jobs, at=NOON, has_snapshot=True):
    queues = {"ap1": ScheddQueue(ScheddDemand(NOON, ()), needs=jobs)}
    snapshot = PoolSnapshot(NOON, queues, {"ap2": "no answer in time"})
    pool = SimpleNamespace(last=snapshot if has_snapshot else None)
    return ScheddNeeds(pool, client, lambda: at, ["GLIDEIN_Site"]).read_needs()


def test_idle_jobs_have_the_sites_that_match_the_rest_by_one_query_of_their_schedd():
    client = Client()
    second = replace(IDLE, user="bob@x", example="9.0")
    answers = needs_of(client, IDLE, HELD, RUNNING, second)
    one, held, running, two = answers["ap1"]
    assert (one.queued_since, one.matching_sites, one.is_data_missing) == (
        from_unix(SINCE),
        {"CAM", "RAL"},
        True,
    )
    assert (held, running, two.is_data_missing) == (HELD, RUNNING, True)
    assert answers["ap2"] == Unseen("no answer in time")
    assert client.asked == [("ap1", ["7.0", "9.0"])]


@pytest.mark.parametrize(
    ("match", "sites", "missing"),
    [
        ({"sites": ["CAM"], "matches_now": True}, {"CAM"}, False),
        ({"sites": [], "matches_now": False}, set(), False),
        (PoolError("collector", "no answer"), None, None),
    ],
)
def test_jobs_whose_data_is_not_the_only_reason_are_told_from_others(match, sites, missing):
    [one] = needs_of(Client(match), IDLE)["ap1"]
    assert (one.matching_sites, one.is_data_missing) == (sites, missing)


@pytest.mark.parametrize(("mode", "is_bound"), [("require", True), ("auto", False), ("wait", False)])
def test_jobs_that_start_only_beside_their_data_are_told_from_others(mode, is_bound):
    client = Client()
    client.mode = f'"{mode}"'
    [one] = needs_of(client, IDLE)["ap1"]
    assert one.is_bound is is_bound


def test_schedd_that_does_not_return_its_jobs_leaves_their_sites_unknown():
    assert needs_of(Client(since=PoolError("ap1", "no answer")), IDLE)["ap1"] == [IDLE]


@pytest.mark.parametrize("since", [to_unix(NOON) + 10**6, 10**15, "undefined", "-5"])
def test_odd_time_since_when_a_job_waits_is_now(since):
    [one] = needs_of(Client(since=since), IDLE)["ap1"]
    assert one.queued_since == NOON


@pytest.mark.parametrize("given", [{"has_snapshot": False}, {"at": NOON + MAX_LOAD_AGE + MINUTE}])
def test_without_a_new_snapshot_the_needs_are_unknown(given):
    with pytest.raises(PoolError):
        needs_of(Client(), IDLE, **given)


def test_each_user_has_jobs_that_are_matched_however_many_another_has():
    greedy = [replace(IDLE, example=f"{n}.0") for n in (10, 5, 6, 7, 8)]
    others = [replace(IDLE, user="bob@x", example="20.0"), replace(IDLE, user="eve@x", example="21.0")]
    chosen = choose_in_turns([*greedy, *others], 4)
    assert [one.example for one in chosen] == ["5.0", "20.0", "21.0", "6.0"]
