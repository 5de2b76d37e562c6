"""Outlook at submission: the prospect of jobs, and jobs whose datasets no site has together."""

from datetime import timedelta

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason
from hydrator.domain.model import Site, to_unix
from hydrator.submit.outlook import JobsOfSet, describe_jobs_without_site, describe_starts
from tests.factories import L1, L2, L3, NOON

UK, DE = Site("UK"), Site("DE")
MADE = Openings(
    {DE: {set_key([L1]): Opening(240, UK, 31 * 10**9)}},
    to_unix(NOON) + 600,
    outlooks={
        set_key([L1]): Outlook(Reason.OPEN, (DE,)),
        set_key([L2]): Outlook(Reason.BESIDE, (UK,), 7),
        set_key([L3]): Outlook(Reason.TURN, (UK,), 2),
    },
)


def test_prospect_of_each_set_is_named():
    jobs = [JobsOfSet((L1,), 8), JobsOfSet((L2,), 15), JobsOfSet((L3,), 1)]
    assert describe_starts(jobs, MADE, NOON) == (
        "8 jobs: it may start now at DE by reading 31 GB from UK in 4 min; 15 jobs: its data is at UK, with"
        " up to 7 jobs before it there; 1 job: its turn to read has not come: the link of UK feeds jobs of"
        " 2 sets before it"
    )


@pytest.mark.parametrize("mode", ["require", "wait"])
def test_only_auto_jobs_have_a_prospect(mode):
    assert describe_starts([JobsOfSet((L1,))], MADE, NOON, mode) == ""
    assert describe_starts([JobsOfSet((L1,))], MADE, NOON, "auto")


def test_unknown_sets_and_old_openings_promise_nothing():
    assert describe_starts([JobsOfSet((L1, L2))], MADE, NOON) == ""
    assert describe_starts([JobsOfSet((L1,))], None, NOON) == ""
    assert describe_starts([JobsOfSet((L1,))], MADE, NOON + timedelta(minutes=10)) == ""


def test_jobs_without_a_site_are_counted_with_advice_for_require():
    jobs = [JobsOfSet((L1,), 108), JobsOfSet((L1, L2), 12)]
    text = describe_jobs_without_site(
        jobs, {jobs[1].dids: "no site has all data of the job now: …"}, "require"
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
    text = describe_jobs_without_site(nodes, {(L1,): "why", (L2,): "why", (L3,): "other"}, None)
    assert text == "nodes A, B: why; node C: other"
