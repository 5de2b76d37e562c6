"""The turnover of slots, against networks of queues that are solved by hand."""

import pytest

from hydrator.diagnostics.counterfactual.turnover import count_starts
from hydrator.domain.model import Site
from tests.factories import CAM, OSO, RAL


def test_without_reads_each_slot_starts_a_job_a_run():
    assert count_starts({CAM: 4.0, RAL: 2.0}, 10.0, {}) == {CAM: 0.4, RAL: 0.2}


def test_one_reader_has_the_link_alone():
    starts = count_starts({CAM: 1.0, RAL: 1.0}, 10.0, {RAL: {CAM: 10.0}})
    assert starts == pytest.approx({CAM: 0.1, RAL: 0.05})


def test_full_link_lets_no_more_jobs_through_than_it_reads():
    starts = count_starts({CAM: 4.0, RAL: 400.0}, 10.0, {RAL: {CAM: 10.0}})
    assert starts[RAL] == pytest.approx(0.1, rel=0.01)


def test_readers_of_two_sites_share_their_source():
    starts = count_starts({RAL: 50.0, OSO: 50.0}, 1.0, {RAL: {CAM: 10.0}, OSO: {CAM: 10.0}})
    assert starts[RAL] == starts[OSO] == pytest.approx(0.05, rel=0.01)


def test_pool_without_slots_starts_nothing():
    assert count_starts({}, 10.0, {Site("X"): {CAM: 1.0}}) == {}
