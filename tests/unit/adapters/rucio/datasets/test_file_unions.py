"""File unions: datasets that are complete over several storage elements (on a stand-in)."""

from datetime import timedelta

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.model import DatasetState, Did, Seen, Unseen
from testbed.rucio_standin import FILE_BYTES, FILES, RucioStandIn

pytestmark = pytest.mark.outside

DIDS = [Did(f"lofar:L{n}") for n in range(4)]
FIRST, SECOND = {0, 1}, {2, 3}
LIST = "/replicas/list"


class StandIn(RucioStandIn):
    """A stand-in with two storage elements at one site; ``there`` has the files at each, for all datasets."""

    def __init__(self) -> None:
        states = {"UK-DISK": "available", "UK-DISK2": "available"}
        super().__init__({"UK-DISK": "UK", "UK-DISK2": "UK"}, dict.fromkeys(DIDS, states))
        self.there = {"UK-DISK": FIRST, "UK-DISK2": SECOND}
        self.cut = False
        self.archives: set[str] = set()
        """The storage elements where all files are inside archives: they are counted, but not listed."""
        self.refused = ""
        self.listed: list[str] = []

    def answer(self, path, query, body):
        if path != LIST:
            return super().answer(path, query, body)
        (did,) = (f"{each['scope']}:{each['name']}" for each in body["dids"])
        self.listed.append(did)
        if did == self.refused:
            return 403, {"ExceptionClass": "AccessDenied"}
        assert body["rse_expression"] == "UK-DISK|UK-DISK2"
        rows = [
            {
                "scope": "lofar",
                "name": f"f{n}",
                "bytes": FILE_BYTES,
                "states": {
                    storage: "AVAILABLE"
                    for storage, here in self.there.items()
                    if n in here and storage not in self.archives
                },
            }
            for n in range(FILES)
        ]
        return 200, rows[:-1] if self.cut else rows

    def _replicas(self, did):
        return [
            {
                **row,
                "available_length": len(self.there[row["rse"]]),
                "available_bytes": len(self.there[row["rse"]]) * FILE_BYTES,
            }
            for row in super()._replicas(did)
        ]


def best(catalogue: RucioCatalogue, dids=DIDS) -> dict[Did, tuple[DatasetState, float] | None]:
    """Return the first, that is best, replica of each dataset; None for unseen ones."""
    readings = catalogue.read(frozenset(dids)).readings
    return {
        did: (reading.replicas[0].state, reading.replicas[0].fraction) if isinstance(reading, Seen) else None
        for did, reading in readings.items()
    }


WHOLE, HALF = (DatasetState.AVAILABLE, 1.0), (DatasetState.PARTIAL, 0.5)


def test_a_file_list_is_cached_while_its_counts_are_equal(asking, stand_in):
    catalogue = asking()
    for _ in range(3):
        assert best(catalogue) == dict.fromkeys(DIDS, WHOLE)
    assert sorted(stand_in.listed) == DIDS


def test_parts_that_are_too_few_together_are_not_listed(asking, stand_in):
    stand_in.there = {"UK-DISK": {0}, "UK-DISK2": SECOND}
    assert best(asking()) == dict.fromkeys(DIDS, (DatasetState.PARTIAL, 0.25))
    assert stand_in.listed == []


def test_an_unlisted_dataset_is_unseen_until_its_first_turn(asking, stand_in):
    catalogue = asking(deep_calls=20, verify_every=timedelta(0))
    seen = [sum(found is not None for found in best(catalogue).values()) for _ in range(3)]
    assert seen == [2, 4, 4]
    assert len(stand_in.listed) == 6


def test_a_file_list_that_was_cut_short_is_refused(asking, stand_in):
    stand_in.cut = True
    stand_in.holdings[DIDS[3]] = {"UK-DISK": "available"}
    readings = asking().read(frozenset(DIDS)).readings
    assert isinstance(readings[DIDS[3]], Seen)
    for did in DIDS[:3]:
        assert isinstance(readings[did], Unseen)
        assert "lists 1 files" in readings[did].reason


def test_only_the_dataset_with_forbidden_files_is_unseen(asking, stand_in):
    stand_in.refused = DIDS[1]
    assert best(asking()) == {did: None if did == DIDS[1] else WHOLE for did in DIDS}


def test_two_halves_are_not_complete_once_a_file_goes_bad(asking, stand_in):
    catalogue = asking(verify_every=timedelta(0))
    assert best(catalogue) == dict.fromkeys(DIDS, WHOLE)
    stand_in.there = {"UK-DISK": FIRST, "UK-DISK2": FIRST}
    assert best(catalogue) == dict.fromkeys(DIDS, HALF)


def test_dataset_whose_other_half_is_inside_archives_is_half_there(asking, stand_in):
    """Case R3: "lists 0 files at RAL-DISK2, and 2 were counted", and the dataset never had a state."""
    stand_in.archives = {"UK-DISK2"}
    assert best(asking()) == dict.fromkeys(DIDS, HALF)
