"""Oddities of Rucio servers that users reported, each one instance of a kind."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.rucio.conclusions import ProgressTracker, _mark_growing, estimate_completion
from adapters.rucio.file_lists import files_at
from adapters.rucio.responses import BadRow, Count, Rse
from adapters.rucio.states import Lock, Movement, Rule, dataset_replicas, movements
from hydrator.domain.errors import CatalogueDenied, CatalogueUnreachable
from hydrator.domain.model import DatasetState, Did, Provenance, Replica
from testbed.rucio_standin import FILE_BYTES, FILES, RucioStandIn
from tests.factories import CAM, HOUR, L1, MINUTE, NOON, RAL

HALF = Count(4, 2, 40, 20)


class Odd(RucioStandIn):
    """A server with an odd answer to a token, and with a dataset that grows."""

    odd_status = 500
    odd_headers: Mapping[str, str] = {}
    files, arrived = FILES, FILES // 2

    def is_odd(self, token: str) -> bool:
        """Return whether *token* gets the odd answer; tests replace this."""
        return False

    @property
    def token(self) -> str:
        return f"{super().token}-{self.logins}"

    def reply(self, request):
        token = request.headers["X-Rucio-Auth-Token"]
        if token and self.is_odd(token):
            request.send(self.odd_status, {"Content-Type": "application/json", **self.odd_headers}, b"{}")
        else:
            super().reply(request)

    def _meta(self, did):
        return {**super()._meta(did), "is_open": True, "length": None, "bytes": None}

    def _replicas(self, did):
        amount = {"length": self.files, "available_length": self.arrived}
        sizes = {"bytes": self.files * FILE_BYTES, "available_bytes": self.arrived * FILE_BYTES}
        return [{**row, **amount, **sizes} for row in super()._replicas(did)]


StandIn = partial(Odd, {"CAM-DISK": "CAM"}, {L1: {"CAM-DISK": "staging"}})


@pytest.mark.outside
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/html"},
        {"ExceptionClass": "RucioException"},
        {"ExceptionClass": "CannotAuthenticate"},
    ],
)
def test_some_500s_in_a_row_to_an_old_token_are_answered_by_one_new_login(asking, stand_in, headers):
    """Case R1: 34 polls in 100 s failed, all with the old token."""
    first, catalogue = stand_in.token, asking()
    assert catalogue.read({L1}).readings[L1].replicas
    stand_in.is_odd, stand_in.odd_headers, logins = first.__eq__, headers, stand_in.logins
    for _ in range(3):
        with pytest.raises(CatalogueUnreachable, match="500"):
            catalogue.read({L1})
    assert catalogue.read({L1}).readings[L1].replicas
    assert stand_in.logins == logins + 1
    stand_in.is_odd = bool
    for _ in range(8):
        with pytest.raises(CatalogueUnreachable, match="500"):
            catalogue.read({L1})
    assert stand_in.logins == logins + 2


@pytest.mark.outside
def test_open_dataset_that_grows_faster_than_it_arrives_has_no_time_of_completion(asking, stand_in):
    """Case R2: 20 files more a minute, of which 13 arrive, and "expected to be complete in 3 min"."""
    now = NOON
    catalogue = asking(lambda: now, verify_every=timedelta())
    for minute in range(6):
        stand_in.files, stand_in.arrived, now = 100 + 20 * minute, 80 + 13 * minute, NOON + minute * MINUTE
        [found] = catalogue.read({L1}).readings[L1].replicas
        assert found.state is DatasetState.STAGING
        assert found.provenance.ready_at is None
    assert found.provenance.reason == "the dataset is open: it still grows"


class Holding(RucioStandIn):
    """A server with an open container, which gets more and more datasets."""

    members: tuple[str, ...] = ()
    arrived = 0

    def answer(self, path, query, body):
        if path == "/dids/lofar/all/dids":
            return 200, [self._meta(did) | {"type": "DATASET"} for did in self.members]
        return super().answer(path, query, body)

    def _meta(self, did):
        kind = "CONTAINER" if did == "lofar:all" else "DATASET"
        size = 40 * (len(self.members) if kind == "CONTAINER" else 1)
        changes = {"did_type": kind, "type": kind, "is_open": kind == "CONTAINER", "bytes": size}
        return {**super()._meta(did), **changes}

    def _replicas(self, did):
        amount = {
            "available_length": self.arrived,
            "available_bytes": self.arrived,
            "length": 40,
            "bytes": 40,
        }
        return [{**row, **amount} for row in super()._replicas(did)]


@pytest.mark.outside
def test_open_container_that_gets_more_datasets_has_no_time_of_completion(asking):
    """Of the kind of R2: each of its datasets has a time, and the next dataset comes before that."""
    container, now = Did("lofar:all"), NOON
    with Holding({"CAM-DISK": "CAM"}, {"lofar:all": {}}) as server:
        catalogue, found = asking(lambda: now, url=server.url, verify_every=timedelta()), []
        for minute in range(12):
            server.members = tuple(f"lofar:m{n}" for n in range(1 + minute // 6))
            moving = {member: {"CAM-DISK": "staging"} for member in server.members}
            server.holdings = {"lofar:all": {}, **moving}
            server.arrived, now = 2 + 2 * minute, NOON + minute * MINUTE
            found += catalogue.read({container}).readings[container].replicas
    assert {one.state for one in found} == {DatasetState.STAGING}
    assert found[5].provenance.ready_at is not None
    assert not any(one.provenance.ready_at for one in found[6:])
    assert "still grows" in found[-1].provenance.reason


def test_dataset_that_no_longer_grows_has_a_time_again_after_an_hour():
    tracker = ProgressTracker()
    grown = [tracker.has_grown(L1, length, NOON + n * MINUTE) for n, length in enumerate((4, 4, 5, 5))]
    assert grown == [False, False, True, True]
    assert not tracker.has_grown(L1, 5, NOON + 2 * HOUR)
    partial = Replica(L1, CAM, DatasetState.PARTIAL, 0.5)
    assert _mark_growing(partial) is partial


@pytest.mark.outside
def test_end_of_a_token_in_a_refusal_is_in_no_reason(asking, stand_in):
    """Case R8: the last 20 characters stood alone in a 403, and then in status, datasets and the state."""
    end, stand_in.is_odd, stand_in.odd_status = stand_in.token[-20:], bool, 403
    stand_in.odd_headers = {"ExceptionClass": "AccessDenied", "ExceptionMessage": end}
    with pytest.raises(CatalogueDenied) as refused:
        asking().read({L1})
    assert "AccessDenied" in str(refused.value)
    assert end not in str(refused.value)


def row(name: str, **states: str) -> dict[str, object]:
    return {"scope": "lofar", "name": name, "bytes": 10, "states": states}


def test_files_inside_archives_are_part_of_no_union_and_no_error():
    """Case R3, by its rows; test_file_unions has it by its state."""
    rows = [row("f0", RAL="AVAILABLE"), row("f1", RAL="AVAILABLE"), row("f2"), row("f3")]
    found = files_at(L1, rows, {"RAL": HALF, "RAL2": HALF})
    assert {name: files.files_on_disk for name, files in found.items()} == {"RAL": 2}
    with pytest.raises(BadRow):
        files_at(L1, [row("f0")], {"RAL": HALF, "RAL2": HALF})
    with pytest.raises(BadRow):
        files_at(L1, [*rows[1:], row("f2", RAL2="AVAILABLE")], {"RAL": HALF, "RAL2": HALF})


DISK = Rse("RAL-DISK", RAL, is_tape=False)


def replica_at_ral(count: Count, movement: Movement, held_until: datetime) -> Replica:
    name, moves = DISK.name, {DISK.name: movement}
    [replica] = dataset_replicas(L1, {name: count}, moves, {name: DISK}, held_until=held_until)
    return replica


def test_dataset_that_loses_files_after_its_last_rule_is_not_called_whole():
    """Case R5: "PARTIAL 92 %", and "whole, but its last rule has ended"."""
    ended = Movement(ends_at=NOON, provenance=Provenance(reason="its last rule has ended"))
    counts = Count(13, 12, 130, 120), Count(4, 4, 40, 40)
    part, whole = (replica_at_ral(count, ended, NOON + HOUR) for count in counts)
    assert (part.state, part.fraction) == (DatasetState.PARTIAL, 12 / 13)
    assert part.provenance.reason == "its last rule has ended"
    assert whole.provenance.reason == "whole, but its last rule has ended"


@pytest.mark.parametrize("lock", ["OK", "REPLICATING", "STUCK"])
def test_dataset_in_part_under_a_suspended_rule_is_stuck_whatever_its_locks(lock):
    """Case R6: two of four files, all locks OK, was PARTIAL."""
    rule = Rule("r", L1, "SUSPENDED", "RAL-DISK")
    found = movements([Lock(L1, "RAL-DISK", lock, "r")], {"r": rule}, held_until=NOON)["RAL-DISK"]
    assert replica_at_ral(HALF, found, NOON).state is DatasetState.STUCK
    assert replica_at_ral(Count(4, 4, 40, 40), found, NOON).state is DatasetState.AVAILABLE


# completion estimates: a straight line through the samples


def line(*shares: float) -> list:
    return [(NOON + n * MINUTE, share) for n, share in enumerate(shares)]


def test_steady_progress_ends_where_its_line_does():
    assert abs(estimate_completion(line(0.0, 0.1, 0.2)) - (NOON + 10 * MINUTE)) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        line(0.1),
        line(0.1, 0.2),
        line(0.5, 0.5, 0.5),
        line(0.5, 0.4, 0.3),
        [(NOON, 0.1), (NOON, 0.2), (NOON, 0.3)],
        line(0.0, 0.0, 1e-9),
    ],
)
def test_too_little_or_no_progress_has_no_estimate(samples):
    assert estimate_completion(samples) is None


@example([0.0, 0.9, 0.95, 0.96])
@given(st.lists(st.floats(0, 1), min_size=3, max_size=60))
def test_an_estimate_is_never_before_the_last_sample(shares):
    found = estimate_completion(line(*shares))
    assert found is None or found >= NOON + (len(shares) - 1) * MINUTE
