"""Outlook at submission: the estimated start of jobs, and jobs whose datasets no site has together."""

from datetime import timedelta

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, Estimates, SetEstimate, SiteEstimates
from hydrator.domain.model import Site
from hydrator.submit.outlook import JobsOfSet, describe_jobs_without_site, describe_starts
from tests.factories import L1, L2, L3, MINUTE, NOON

UK, DE = Site("UK"), Site("DE")


def estimates(de: dict, uk: dict | None = None, own: int = 0) -> Estimates:
    def keyed(by_did: dict) -> dict:
        return {set_key([did]): one for did, one in by_did.items()}

    sites = {DE: SiteEstimates(keyed(de), own), UK: SiteEstimates(keyed(uk or {}))}
    return Estimates(NOON + 10 * MINUTE, sites)


def reading(read: int | None, queue: int) -> SetEstimate:
    return SetEstimate(read, queue, UK, missing_bytes=31_000_000_000)


def test_starts_are_counted_beside_the_data_elsewhere_and_waiting():
    jobs = [JobsOfSet((L1,), 8), JobsOfSet((L2,), 15), JobsOfSet((L3,), 1)]
    made = estimates({L1: reading(240, 0), L2: reading(240, 720), L3: reading(None, 960)})
    assert describe_starts(jobs, made, NOON) == (
        "at least 1 of 24 jobs can start beside the data now; 15 jobs would read 31 GB from UK, about 4 min;"
        " 1 job would wait up to 16 min for a slot beside the data"
    )


def test_jobs_of_one_set_each_are_all_sure_to_start():
    made = estimates({L1: reading(240, 0), L2: reading(240, 0)})
    assert describe_starts([JobsOfSet((L1,)), JobsOfSet((L2,))], made, NOON).startswith("2 of 2 jobs can")
    assert describe_starts([JobsOfSet((L1,))], made, NOON) == "the job can start beside the data now"


@pytest.mark.parametrize("mode", ["require", "wait"])
def test_only_auto_jobs_start_elsewhere_because_reading_ends_sooner(mode):
    made = estimates({L2: reading(240, 720)})
    assert "would read" in describe_starts([JobsOfSet((L2,), 3)], made, NOON, "auto")
    assert describe_starts([JobsOfSet((L2,), 3)], made, NOON, mode) == (
        "3 jobs would wait up to 12 min for a slot beside the data"
    )


def test_queue_of_other_jobs_at_the_site_makes_the_job_wait():
    made = estimates({L2: reading(240, 720)}, own=480)
    assert "would wait up to 12 min" in describe_starts([JobsOfSet((L2,), 3)], made, NOON)


def test_unknown_and_expired_estimates_promise_nothing():
    made = estimates({L1: reading(240, 720)})
    assert describe_starts([JobsOfSet((L2,))], made, NOON) == ""
    assert describe_starts([JobsOfSet((L1,))], None, NOON) == ""
    assert describe_starts([JobsOfSet((L1,))], made, NOON + timedelta(minutes=10)) == ""
    nowhere = estimates({L1: reading(None, NO_QUEUE_SECONDS)})
    assert describe_starts([JobsOfSet((L1,))], nowhere, NOON) == ""


def test_jobs_without_a_site_are_counted_with_advice_for_require():
    jobs = [JobsOfSet((L1,), 108), JobsOfSet((L1, L2), 12)]
    text = describe_jobs_without_site(
        jobs, {jobs[1].identity: "no site has all data of the job now: …"}, "require"
    )
    assert text.startswith(
        "12 of 120 jobs: no site has all data of the job now: …; with DataLocality = require"
    )
    assert describe_jobs_without_site(jobs, {}, "require") == ""


def test_nodes_without_a_site_are_named_once_for_each_reason():
    nodes = [
        JobsOfSet((L1,), 1, "node", "A"),
        JobsOfSet((L2,), 1, "node", "B"),
        JobsOfSet((L3,), 1, "node", "C"),
    ]
    text = describe_jobs_without_site(nodes, {"A": "why", "B": "why", "C": "other"}, None)
    assert text == "nodes A, B: why; node C: other"
