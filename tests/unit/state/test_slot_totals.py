"""The table of slot totals: a sample every 10 minutes, bounded, and absent in an old state."""

import sqlite3
from datetime import timedelta

from hydrator.domain.pool_ports import SlotAdVersion
from hydrator.state import slot_totals
from hydrator.state.slot_totals import SlotTotal, count_slots
from hydrator.state.store import Store
from tests.factories import CAM, HOUR, MINUTE, NOON, RAL

DAY = timedelta(days=1)


def totals(at=NOON, cores=8):
    return [SlotTotal(at, CAM, 1, cores), SlotTotal(at, RAL, 2, cores)]


def test_slots_are_counted_by_site():
    slots = [
        SlotAdVersion("RAL", 1, 8),
        SlotAdVersion("CAM", None, 4),
        SlotAdVersion("RAL", 1, 16),
        SlotAdVersion(None, 1, 9),
    ]
    assert count_slots(slots, NOON) == [SlotTotal(NOON, CAM, 1, 4), SlotTotal(NOON, RAL, 2, 24)]


def test_samples_survive_a_restart_oldest_first(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.slot_totals.add(totals(NOON + HOUR), NOON + HOUR)
        store.slot_totals.add(totals(NOON + 2 * HOUR, 16), NOON + 2 * HOUR)
    with Store.open_to_read(tmp_path) as store:
        assert store.slot_totals.load(NOON) == [*totals(NOON + HOUR), *totals(NOON + 2 * HOUR, 16)]
        assert store.slot_totals.load(NOON + 2 * HOUR) == totals(NOON + 2 * HOUR, 16)


def test_sample_is_saved_every_ten_minutes(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for minute in range(21):
            store.slot_totals.add(totals(NOON + minute * MINUTE), NOON + minute * MINUTE)
        times = {one.sampled_at for one in store.slot_totals.load(NOON)}
    assert times == {NOON, NOON + 10 * MINUTE, NOON + 20 * MINUTE}


def test_old_samples_and_samples_from_the_future_are_deleted(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for at in (NOON, NOON + 20 * DAY, NOON + 32 * DAY):
            store.slot_totals.add(totals(at), at)
        assert {one.sampled_at for one in store.slot_totals.load(NOON)} == {NOON + 20 * DAY, NOON + 32 * DAY}
        store.slot_totals.add(totals(NOON + 21 * DAY), NOON + 21 * DAY)  # the clock was set back
        assert {one.sampled_at for one in store.slot_totals.load(NOON)} == {NOON + 20 * DAY, NOON + 21 * DAY}


def test_table_has_a_maximum_number_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(slot_totals, "MAX_ROWS", 6)
    with Store.open_to_write(tmp_path) as store:
        for hour in range(9):
            store.slot_totals.add(totals(NOON + hour * HOUR), NOON + hour * HOUR)
        kept = store.slot_totals.load(NOON)
    assert len(kept) == 6
    assert kept[0].sampled_at == NOON + 6 * HOUR


def test_state_of_an_earlier_version_has_no_samples_and_gets_the_table(tmp_path):
    with Store.open_to_write(tmp_path):
        pass
    with sqlite3.connect(tmp_path / "state.sqlite") as db:
        db.execute("drop table slot_totals")
    with Store.open_to_read(tmp_path) as store:
        assert store.slot_totals.load(NOON) == []
    with Store.open_to_write(tmp_path) as store:
        store.slot_totals.add(totals(), NOON)
        assert store.slot_totals.load(NOON) == totals()


def test_row_that_cannot_be_decoded_is_left_out(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.slot_totals.add(totals(), NOON)
        with sqlite3.connect(tmp_path / "state.sqlite") as db:
            db.execute("update slot_totals set cores = 'many' where site = 'CAM'")
        assert store.slot_totals.load(NOON) == totals()[1:]
