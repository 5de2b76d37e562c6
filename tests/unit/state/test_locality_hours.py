"""The table of the hours of the locality: sums by hour, bounded, and absent in an old state."""

from datetime import timedelta

from hydrator.state.reports import MAX_AGE, LocalityHour, add_hour, begin_of_hour, load_hours
from hydrator.state.store import Store
from tests.factories import HOUR, MINUTE, NOON

FIRST = LocalityHour(NOON, 3, 10, 5, 7)


def test_sums_of_one_hour_add_up_and_survive_a_restart(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        add_hour(store, FIRST)
        add_hour(store, LocalityHour(NOON, 1, 1, 20, 30))
        add_hour(store, LocalityHour(NOON + HOUR, 0, 1))
    with Store.open_to_read(tmp_path) as store:
        assert load_hours(store, NOON) == [
            LocalityHour(NOON, 4, 11, 25, 37),
            LocalityHour(NOON + HOUR, 0, 1),
        ]
        assert load_hours(store, NOON + MINUTE) == [LocalityHour(NOON + HOUR, 0, 1)]


def test_old_hours_and_hours_from_the_future_are_deleted(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for at in (NOON - MAX_AGE, NOON - MAX_AGE + HOUR, NOON + timedelta(days=900), NOON):
            add_hour(store, LocalityHour(at, 1))
        assert [hour.started_at for hour in load_hours(store, NOON - 2 * MAX_AGE)] == [NOON]
        add_hour(store, LocalityHour(NOON - MAX_AGE + HOUR, 1))
        assert [hour.started_at for hour in load_hours(store, NOON - 2 * MAX_AGE)] == [NOON - MAX_AGE + HOUR]


def test_hours_that_cannot_be_decoded_count_as_lost(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save_reports({"locality hours": [{"started_at": "soon"}]})
        assert load_hours(store, NOON) == []
        add_hour(store, FIRST)
        assert load_hours(store, NOON) == [FIRST]


def test_hours_begin_in_utc():
    assert begin_of_hour(NOON + 59 * MINUTE) == NOON
