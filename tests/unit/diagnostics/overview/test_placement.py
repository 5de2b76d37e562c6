"""Counts of datasets by site and state, from the facts as a cycle stores them."""

from hydrator.diagnostics.overview.placement import Placement
from hydrator.domain.model import DatasetState, Fact, SiteFacts, Snapshot
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL
from hydrator.reconcile.snapshot.merge import FactRows
from tests.factories import CAM, HOUR, L1, L2, NOON


class CountedRows(FactRows):
    """Facts that count how many of them are built for a reader."""

    built_count = 0

    def with_timestamp(self, row: Fact) -> Fact:
        self.built_count += 1
        return super().with_timestamp(row)


def test_counts_of_a_site_build_no_facts():
    rows = CountedRows(
        {
            L1: Fact(DatasetState.AVAILABLE, AT_LAST_POLL),
            L2: Fact(DatasetState.STAGING, AT_LAST_POLL, 0.5),
        },
        NOON,
    )
    placement = Placement.of(Snapshot({CAM: SiteFacts(NOON, rows)}))
    counts = placement.sites[CAM]
    assert rows.built_count == 0
    assert (counts.total, counts.complete, counts.oldest_at) == (2, 1, NOON)
    assert placement.complete == {L1}


def test_oldest_fact_of_a_site_may_be_older_than_its_last_poll():
    rows = FactRows(
        {
            L1: Fact(DatasetState.AVAILABLE, AT_LAST_POLL),
            L2: Fact(DatasetState.AVAILABLE, NOON - HOUR),
        },
        NOON,
    )
    placement = Placement.of(Snapshot({CAM: SiteFacts(NOON, rows)}))
    assert placement.sites[CAM].oldest_at == NOON - HOUR
