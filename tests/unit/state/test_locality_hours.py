"""The table of the hours of the locality: sums by hour, bounded, and absent in an old state."""

import sqlite3
from datetime import timedelta

from hydrator.state.locality_hours import MAX_AGE, LocalityHour, begin_of_hour
from hydrator.state.store import Store
from tests.factories import HOUR, MINUTE, NOON

FIRST = LocalityHour(NOON, 3, 10)


def test_sums_of_one_hour_add_up_and_survive_a_restart(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.locality_hours.add(FIRST)
        store.locality_hours.add(LocalityHour(NOON, 1, 1))
        store.locality_hours.add(LocalityHour(NOON + HOUR, 0, 1))
    with Store.open_to_read(tmp_path) as store:
        assert store.locality_hours.load(NOON) == [
            LocalityHour(NOON, 4, 11),
            LocalityHour(NOON + HOUR, 0, 1),
        ]
        assert store.locality_hours.load(NOON + MINUTE) == [LocalityHour(NOON + HOUR, 0, 1)]


def test_old_hours_and_hours_from_the_future_are_deleted(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for at in (NOON - MAX_AGE, NOON - MAX_AGE + HOUR, NOON + timedelta(days=900), NOON):
            store.locality_hours.add(LocalityHour(at, 1))
        assert [hour.started_at for hour in store.locality_hours.load(NOON - 2 * MAX_AGE)] == [NOON]
        store.locality_hours.add(LocalityHour(NOON - MAX_AGE + HOUR, 1))
        assert [hour.started_at for hour in store.locality_hours.load(NOON - 2 * MAX_AGE)] == [
            NOON - MAX_AGE + HOUR
        ]


def test_huge_sums_stay_integers_of_the_database(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for _ in range(2):
            store.locality_hours.add(LocalityHour(NOON, 0, 2**62))
        assert [hour.job_count for hour in store.locality_hours.load(NOON)] == [2**63 - 1]


def test_damaged_row_is_left_out(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.locality_hours.add(FIRST)
        store.locality_hours.add(LocalityHour(NOON + HOUR, 1))
    with sqlite3.connect(tmp_path / "state.sqlite") as db:
        db.execute("update locality_hours set local = 'x' where at = ?", (NOON.timestamp(),))
    with Store.open_to_read(tmp_path) as store:
        assert [hour.started_at for hour in store.locality_hours.load(NOON)] == [NOON + HOUR]


def test_hours_begin_in_utc():
    assert begin_of_hour(NOON + 59 * MINUTE) == NOON
