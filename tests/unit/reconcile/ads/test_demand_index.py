"""Index of the demand: its work grows with the demand, also if many sets share a dataset."""

import tracemalloc
from collections import UserList
from collections.abc import Iterator, Sequence

from hydrator.domain.model import DemandEntry, Did
from hydrator.reconcile.ads.set_lines import DemandIndex
from tests.factories import want

SHARED = Did("lofar:shared")


class WatchedEntries(UserList[DemandEntry]):
    """Demand entries that count single reads, and the bytes that a reader allocates between two entries."""

    allocated_bytes = 0
    read_count = 0

    def __getitem__(self, position: int) -> DemandEntry:
        self.read_count += 1
        return self.data[position]

    def __iter__(self) -> Iterator[DemandEntry]:
        for entry in self.data:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            yield entry
            self.allocated_bytes += tracemalloc.get_traced_memory()[1] - before


def share_one_dataset(count: int) -> Sequence[DemandEntry]:
    return [want(Did(f"lofar:L{number}"), SHARED) for number in range(count)]


def count_allocated_bytes(entries: Sequence[DemandEntry]) -> int:
    watched = WatchedEntries(entries)
    tracemalloc.start()
    try:
        DemandIndex.build(watched)
    finally:
        tracemalloc.stop()
    return watched.allocated_bytes


def test_index_of_twice_the_sets_that_share_a_dataset_is_twice_the_work():
    few, many = (count_allocated_bytes(share_one_dataset(count)) for count in (1000, 2000))
    assert 1.5 * few < many < 3 * few


def test_positions_of_a_shared_dataset_are_in_the_order_of_the_entries():
    index = DemandIndex.build(share_one_dataset(5))
    assert list(index.positions_by_did[SHARED]) == [0, 1, 2, 3, 4]
    assert list(index.positions_by_did[Did("lofar:L3")]) == [3]
