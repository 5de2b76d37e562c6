"""Oddities of Rucio servers that users reported, each one instance of a kind."""

from collections.abc import Iterator

import pytest

from adapters.http.rate_limiter import MAX_PAUSE_SECONDS, retry_after
from adapters.rucio.conclusions import ProgressTracker, _mark_growing
from adapters.rucio.file_lists import files_at
from adapters.rucio.responses import BadRow, Count, Rse
from adapters.rucio.states import Lock, Movement, Rule, movements, state_at
from hydrator.domain.model import Provenance, Replica, ReplicaState
from testbed.rucio_standin import RucioStandIn
from tests.factories import CAM, HOUR, L1, MINUTE, NOON, RAL
from tests.rucio_fixtures import catalogues

HALF = Count(4, 2, 40, 20)


class OldTokens(RucioStandIn):
    """A server that answers 500 to a token that is old (rucio#5986)."""

    is_old = False

    def answer(self, path, query, body):
        return (500, "RucioException") if self.is_old else super().answer(path, query, body)


@pytest.fixture
def server() -> Iterator[OldTokens]:
    with OldTokens({"CAM-DISK": "CAM"}, {L1: {"CAM-DISK": "available"}}) as started:
        yield started


@pytest.mark.outside
def test_some_500s_in_a_row_are_answered_by_one_new_login(server, tmp_path):
    with catalogues(url=server.url, token_dir=tmp_path, twins_every=None) as make:
        catalogue = make()
        assert catalogue.read({L1}).readings[L1].replicas
        server.is_old, logins = True, server.logins
        for _ in range(8):
            with pytest.raises(Exception, match="500"):
                catalogue.read({L1})
        assert server.logins == logins + 1
        server.is_old = False
        assert catalogue.read({L1}).readings[L1].replicas


def test_open_dataset_that_grows_has_no_time_of_completion():
    tracker = ProgressTracker()
    grown = [tracker.has_grown(L1, length, NOON + n * MINUTE) for n, length in enumerate((4, 4, 5, 5))]
    assert grown == [False, False, True, True]
    assert not tracker.has_grown(L1, 5, NOON + 2 * HOUR)
    incoming = Replica(L1, CAM, ReplicaState.INCOMING, 0.5, provenance=Provenance(rule="r"))
    assert _mark_growing(incoming).provenance.reason == "the dataset is open: it still grows"
    partial = Replica(L1, CAM, ReplicaState.PARTIAL, 0.5)
    assert _mark_growing(partial) is partial


def row(name: str, **states: str) -> dict[str, object]:
    return {"scope": "lofar", "name": name, "bytes": 10, "states": states}


def test_files_inside_archives_are_part_of_no_union_and_no_error():
    rows = [row("f0", RAL="AVAILABLE"), row("f1", RAL="AVAILABLE"), row("f2"), row("f3")]
    found = files_at(L1, rows, {"RAL": HALF, "RAL2": HALF})
    assert {name: files.files_on_disk for name, files in found.items()} == {"RAL": 2}
    with pytest.raises(BadRow):
        files_at(L1, [row("f0")], {"RAL": HALF, "RAL2": HALF})
    with pytest.raises(BadRow):
        files_at(L1, [*rows[1:], row("f2", RAL2="AVAILABLE")], {"RAL": HALF, "RAL2": HALF})


DISK = Rse("RAL-DISK", RAL, is_tape=False)


def test_dataset_that_loses_files_after_its_last_rule_is_not_called_whole():
    ended = Movement(ends_at=NOON, provenance=Provenance(reason="its last rule has ended"))
    part, whole = (state_at(DISK, count, ended, NOON + HOUR) for count in (HALF, Count(4, 4, 40, 40)))
    assert part.provenance.reason == "its last rule has ended"
    assert whole.provenance.reason == "whole, but its last rule has ended"


@pytest.mark.parametrize("lock", ["OK", "REPLICATING", "STUCK"])
def test_dataset_in_part_under_a_suspended_rule_is_stuck_whatever_its_locks(lock):
    rule = Rule("r", L1, "SUSPENDED", "RAL-DISK")
    found = movements([Lock(L1, "RAL-DISK", lock, "r")], {"r": rule}, held_until=NOON)["RAL-DISK"]
    assert state_at(DISK, HALF, found, NOON).state is ReplicaState.STUCK
    assert state_at(DISK, Count(4, 4, 40, 40), found, NOON).state is ReplicaState.COMPLETE


@pytest.mark.parametrize("header", ["9" * 400, "900", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_pause_of_any_length_ends_after_two_minutes(header):
    assert retry_after(header, NOON) == MAX_PAUSE_SECONDS == 120
