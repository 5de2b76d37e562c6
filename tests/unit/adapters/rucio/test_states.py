"""Rows of Rucio become states of datasets at storage elements, and of containers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from adapters.rucio.catalogue import RucioSettings
from adapters.rucio.responses import BadRow, Count, DatasetRow, Rse, largest_counts, read_dataset_row
from adapters.rucio.states import (
    Lock,
    Movement,
    Rule,
    container_replicas,
    dataset_replicas,
    file_replicas,
    movement_without_locks,
    movements,
    read_rule,
)
from hydrator.domain.model import DatasetState, Did, Replica, Seen, Site
from tests.factories import BEST_FIRST, L1

BOTH = Did("lofar:both")
UK, AU = Site("UK"), Site("AU")
DISK, TAPE = Rse("UK-DISK", UK, is_tape=False), Rse("UK-TAPE", UK, is_tape=True)
HOMELESS, GONE = Rse("X", None, is_tape=False), Rse("Y", None, is_tape=False, is_deleted=True)
STORAGES = {each.name: each for each in (DISK, TAPE, HOMELESS, GONE)}
AVAILABLE, STAGING, PARTIAL, NEARLINE, STUCK, UNAVAILABLE = BEST_FIRST
MOVING, JAMMED, BOTH_WAYS, STILL = (
    Movement(is_moving=True),
    Movement(is_stuck=True),
    Movement(is_moving=True, is_stuck=True),
    Movement(),
)


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SOON = NOON + timedelta(hours=6)


def at(storage: Rse, count: Count, movement: Movement) -> tuple[DatasetState, float] | None:
    found = replicas_at(storage, count, movement)
    return (found[0].state, found[0].fraction) if found else None


def replicas_at(storage: Rse, count: Count, movement: Movement) -> tuple[Replica, ...]:
    name = storage.name
    return dataset_replicas(L1, {name: count}, {name: movement}, {name: storage}, held_until=SOON)


def files(available: int, length: int = 4) -> Count:
    return Count(length, available, length * 10, available * 10)


@pytest.mark.parametrize(
    ("count", "movement", "on_disk"),
    [
        (files(4), STILL, (AVAILABLE, 1.0)),
        (files(4), JAMMED, (AVAILABLE, 1.0)),
        (files(5), STILL, (AVAILABLE, 1.0)),
        (files(0), MOVING, (STAGING, 0.0)),
        (files(1), MOVING, (STAGING, 0.25)),
        (files(1), BOTH_WAYS, (STAGING, 0.25)),
        (files(3), JAMMED, (STUCK, 0.75)),
        (files(0), JAMMED, (STUCK, 0.0)),
        (files(3), STILL, (PARTIAL, 0.75)),
        (files(0), STILL, None),
        (files(0, 0), STILL, None),
        (files(0, 0), MOVING, (STAGING, 0.0)),
    ],
)
def test_a_count_and_what_moves_make_a_state_on_disk(count, movement, on_disk):
    assert at(DISK, count, movement) == on_disk


@pytest.mark.parametrize("movement", [STILL, MOVING, JAMMED])
def test_only_a_complete_copy_counts_on_tape(movement):
    assert at(TAPE, files(4), movement) == (NEARLINE, 0.0)
    assert at(TAPE, files(3), movement) is None


CLOSED, SHORT = "UK-DISK cannot be read", "no rule holds it for long enough"


@pytest.mark.parametrize(
    ("storage", "count", "movement", "found", "reason"),
    [
        (replace(DISK, is_readable=False), files(4), STILL, (UNAVAILABLE, 0.0), CLOSED),
        (replace(DISK, is_readable=False), files(0), MOVING, (UNAVAILABLE, 0.0), CLOSED),
        (replace(DISK, is_readable=False), files(0), STILL, None, ""),
        (replace(TAPE, is_readable=False), files(4), STILL, (UNAVAILABLE, 0.0), "UK-TAPE cannot be read"),
        (replace(TAPE, is_readable=False), files(3), MOVING, None, ""),
        (replace(DISK, is_writable=False), files(4), STILL, (AVAILABLE, 1.0), ""),
        (replace(DISK, is_writable=False), files(1), MOVING, (STUCK, 0.25), ""),
        (replace(DISK, is_writable=False), files(1), STILL, (PARTIAL, 0.25), ""),
        (replace(DISK, is_volatile=True), files(4), STILL, (PARTIAL, 1.0), "is a cache"),
        (DISK, files(4), Movement(ends_at=NOON), (PARTIAL, 1.0), SHORT),
        (DISK, files(4), Movement(ends_at=SOON), (PARTIAL, 1.0), SHORT),
        (DISK, files(4), Movement(ends_at=SOON + timedelta(seconds=1)), (AVAILABLE, 1.0), ""),
        (TAPE, files(4), Movement(ends_at=NOON), (NEARLINE, 0.0), ""),
    ],
)
def test_a_copy_that_is_unreadable_or_short_lived_is_not_complete(storage, count, movement, found, reason):
    assert at(storage, count, movement) == found
    assert not reason or reason in replicas_at(storage, count, movement)[0].provenance.reason


@pytest.mark.parametrize(
    ("count", "fraction"),
    [
        (Count(4, 1, 100, 70), 0.7),
        (Count(4, 1, 0, 0), 0.25),
        (Count(4, 1, 3003.0, 1001.0), 1 / 3),
        (Count(0, 0, 0, 0), 0.0),
        (Count(4, 3, 100, 130), 1.0),
        (Count(4, 4, 100, 70), 1.0),
    ],
)
def test_a_fraction_is_of_bytes_and_of_files_where_bytes_are_unknown(count, fraction):
    assert count.fraction == pytest.approx(fraction)


@pytest.mark.parametrize(
    ("there", "moves", "found"),
    [(("UK-DISK", "X", "Y"), {}, (AVAILABLE, 1.0)), ((), {"UK-DISK": MOVING}, (STAGING, 0.0))],
    ids=["counts, also at an unmapped and a deleted element", "a lock alone"],
)
def test_only_elements_with_a_site_have_a_replica(there, moves, found):
    counts = dict.fromkeys(there, files(4))
    replicas = dataset_replicas(L1, counts, moves, STORAGES, held_until=SOON)
    assert [(one.site, one.state, one.fraction, one.storage) for one in replicas] == [(UK, *found, "UK-DISK")]


def test_files_and_archives_at_one_element_are_not_added_up():
    rows = [DatasetRow("UK-DISK", files(n), "") for n in (2, 3, 1)]
    assert largest_counts(rows) == {"UK-DISK": files(3)}


def rule(name: str, state: str = "OK", ends: datetime | None = None, error: str = "") -> Rule:
    return Rule(name, L1, state, "UK-DISK", account="anna", error=error, expires_at=ends)


A1 = Lock(L1, "A", "REPLICATING", "r1")
ENDING = rule("r1", "REPLICATING", ends=SOON)


@pytest.mark.parametrize(
    ("rows", "book", "moves"),
    [
        ([A1], [rule("r1", "REPLICATING")], {"A": (True, False)}),
        ([Lock(L1, "B", "REPLICATING", "r2")], [rule("r2", "SUSPENDED")], {"B": (False, True)}),
        ([Lock(L1, "C", "OK", "r3")], [rule("r3")], {"C": (False, False)}),
        ([Lock(L1, "A", "STUCK", "r4"), A1], [rule("r4", "STUCK"), rule("r1")], {"A": (True, True)}),
        ([A1], [], {}),
        ([A1], [ENDING], {"A": (False, False)}),
        ([A1, Lock(L1, "A", "OK", "r2")], [ENDING, rule("r2")], {"A": (False, False)}),
    ],
    ids=["moving", "suspended", "still", "stuck and moving", "deleted", "ends soon", "one of two ends soon"],
)
def test_locks_move_data_if_their_rules_are_there_go_on_and_do_not_end_soon(rows, book, moves):
    found = movements(rows, {each.id: each for each in book}, held_until=SOON)
    assert {storage: (move.is_moving, move.is_stuck) for storage, move in found.items()} == moves


@pytest.mark.parametrize(
    ("ends", "last"),
    [([None], None), ([NOON], NOON), ([NOON, SOON], SOON), ([NOON, None], None), ([None, SOON], None)],
)
def test_data_is_held_until_the_last_of_its_rules_ends(ends, last):
    rows = [Lock(L1, "A", "OK", f"r{n}") for n in range(len(ends))]
    book = {f"r{n}": rule(f"r{n}", ends=end) for n, end in enumerate(ends)}
    assert movements(rows, book, held_until=NOON)["A"].ends_at == last


@pytest.mark.parametrize(
    ("state", "error", "reason"),
    [
        ("STUCK", "no source", "its rule is stuck: no source"),
        ("STUCK", "", "its rule is stuck"),
        ("STUCK", "NO_SOURCES: f1", "no storage has the missing files: NO_SOURCES: f1"),
        ("SUSPENDED", "", "its rule is suspended"),
        ("REPLICATING", "old trouble", ""),
    ],
)
def test_the_decisive_rule_gives_reason_and_account(state, error, reason):
    rows = [Lock(L1, "A", "OK", "r0"), Lock(L1, "A", "STUCK" if state == "STUCK" else "REPLICATING", "r1")]
    book = {"r0": rule("r0"), "r1": rule("r1", state, error=error)}
    told = movements(rows, book, held_until=NOON)["A"].provenance
    assert (told.reason, told.rule, told.account) == (reason, "r1", "anna")


def test_a_rule_without_locks_moves_only_what_is_approved():
    for state, ends, moving, stuck, reason in [
        ("INJECT", None, True, False, "its rule is about to be taken up"),
        ("INJECT", SOON, False, False, "its rule is about to be taken up"),
        ("WAITING_APPROVAL", None, False, True, "its rule waits for approval"),
    ]:
        found = movement_without_locks(rule("r", state, ends), held_until=SOON)
        assert (found.is_moving, found.is_stuck, found.provenance.reason) == (moving, stuck, reason)


RULE_ROW = {"id": "r", "scope": "lofar", "name": "L1", "state": "OK", "rse_expression": "UK-DISK"}


def test_a_rule_is_read_with_its_times_in_utc_and_its_error_on_one_line():
    row = {**RULE_ROW, "error": "a\nb", "account": "anna"}
    for ends in (datetime(2026, 11, 21, 12), "Sat, 21 Nov 2026 12:00:00 UTC"):  # noqa: DTZ001
        assert read_rule({**row, "expires_at": ends}) == rule("r", ends=NOON, error="a b")


@pytest.mark.parametrize("damage", [{}, {**RULE_ROW, "id": None}])
def test_a_rule_row_without_an_id_is_refused(damage):
    with pytest.raises(BadRow):
        read_rule(damage)


@pytest.mark.parametrize(
    ("disk", "tape", "found"),
    [
        ("COPYING", "AVAILABLE", {("UK-DISK", STAGING), ("UK-TAPE", NEARLINE)}),
        ("UNAVAILABLE", "COPYING", {("UK-DISK", STUCK)}),
        ("BAD", "UNAVAILABLE", set()),
        ("TEMPORARY_UNAVAILABLE", "BAD", set()),
        ("BEING_DELETED", "BAD", set()),
    ],
)
def test_a_file_is_complete_moving_stuck_or_not_there(disk, tape, found):
    states = {"UK-DISK": disk, "UK-TAPE": tape, "X": "AVAILABLE"}
    replicas = file_replicas(L1, states, STORAGES, held_until=SOON)
    assert {(replica.storage, replica.state) for replica in replicas} == found


def part(*replicas: tuple[Site, DatasetState, float], size: int | None = 10) -> Seen:
    return Seen(NOON, tuple(Replica(L1, *replica, storage="S") for replica in replicas), size)


@pytest.mark.parametrize(
    ("parts", "at_uk"),
    [
        ([part((UK, AVAILABLE, 1.0)), part((UK, AVAILABLE, 1.0))], {(AVAILABLE, 1.0)}),
        ([part((UK, AVAILABLE, 1.0), size=30), part((AU, AVAILABLE, 1.0))], {(PARTIAL, 0.75)}),
        ([part((UK, AVAILABLE, 1.0), size=30), part(size=None)], {(PARTIAL, 0.5)}),
        ([part((UK, AVAILABLE, 1.0)), part((UK, STAGING, 0.5))], {(STAGING, 0.75)}),
        ([part((UK, STUCK, 0.5)), part((UK, STAGING, 0.5))], {(STAGING, 0.5)}),
        ([part((UK, AVAILABLE, 1.0)), part((UK, STUCK, 0.0))], {(STUCK, 0.5)}),
        ([part((UK, AVAILABLE, 1.0), (UK, STUCK, 0.5)), part((UK, AVAILABLE, 1.0))], {(AVAILABLE, 1.0)}),
        ([part((UK, NEARLINE, 0.0)), part((UK, NEARLINE, 0.0))], {(NEARLINE, 0.0)}),
        (
            [part((UK, NEARLINE, 0.0)), part((UK, NEARLINE, 0.0), (UK, AVAILABLE, 1.0))],
            {(NEARLINE, 0.0), (PARTIAL, 0.5)},
        ),
        ([part((UK, NEARLINE, 0.0)), part((UK, AVAILABLE, 1.0))], {(PARTIAL, 0.5)}),
        ([part((UK, NEARLINE, 0.0)), part((AU, AVAILABLE, 1.0))], set()),
    ],
)
def test_a_container_is_what_its_datasets_are_together(parts, at_uk):
    said = {(r.state, r.fraction) for r in container_replicas(BOTH, parts) if r.site == UK}
    assert said == at_uk


ROW = {
    "scope": "lofar", "name": "L1", "rse": "UK-DISK", "length": 4, "available_length": 4, "bytes": 40,
    "available_bytes": 40, "updated_at": None,
}  # fmt: skip


def test_a_row_without_sizes_is_valid_before_the_first_count():
    row = read_dataset_row({**ROW, "length": None, "bytes": None})
    assert (row.amount.length, row.amount.is_complete) == (0, False)


def test_settings_do_not_show_the_password(tmp_path):
    settings = RucioSettings(
        name="r", url="http://r", account="a", password="a-secret-word", token_dir=tmp_path
    )
    assert "a-secret-word" not in repr(settings)
