"""The table of the hours of the locality: sums by hour, bounded, and absent in an old state."""

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


def test_hours_that_cannot_be_decoded_count_as_lost(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save_report("locality hours", {"hours": [{"started_at": "soon"}]})
        assert store.locality_hours.load(NOON) == []
        store.locality_hours.add(FIRST)
        assert store.locality_hours.load(NOON) == [FIRST]


def test_hours_begin_in_utc():
    assert begin_of_hour(NOON + 59 * MINUTE) == NOON
