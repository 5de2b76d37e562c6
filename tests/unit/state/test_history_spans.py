"""The stays of datasets in the ads: the history that report reads on a busy pool."""

from dataclasses import replace

from hydrator.diagnostics.outcomes import AdHistory
from hydrator.domain.model import Did, from_unix
from hydrator.reconcile.history import HistoryEntry
from hydrator.state.history import generations
from hydrator.state.history import spans as span_table
from hydrator.state.history.spans import MAX_AGE
from hydrator.state.store import Store
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, RAL, ad

COUNT = 2 * generations.MAX_GENERATIONS_PER_SITE


def publish(store, *dids, at, site=CAM, **more):
    generation = int(at.timestamp())
    one = replace(ad(*dids, site=site, generation=generation, **more), as_of=at)
    store.add_history([HistoryEntry(at, one, ())], {}, at)
    return frozenset(dids)


def fill(store, begin=NOON):
    """Publish a new dataset each minute; the first ones leave again after an hour."""
    dids = [Did(f"lofar:L{n:04}") for n in range(COUNT)]
    return {
        begin + n * MINUTE: publish(store, *dids[max(0, n - 60) : n + 1], at=begin + n * MINUTE)
        for n in range(COUNT)
    }


def read(store) -> AdHistory:
    return AdHistory(store.load_history(), store.history_begins.load(), store.available_spans.load)


def test_history_of_a_busy_pool_has_the_datasets_of_each_minute(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        expected = fill(store)
        assert len(store.load_history()) == generations.MAX_GENERATIONS_PER_SITE
        history = read(store)
        assert {at: frozenset(history.available_datasets(CAM, at)) for at in expected} == expected
        assert (history.begins, history.has_lost(NOON), history.has_lost(NOON - HOUR)) == ({}, False, False)
        assert history.available_datasets(CAM, NOON - MINUTE) is None


def test_first_ad_after_an_upgrade_takes_over_the_generations_that_are_left(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        expected = fill(store)
        with store._db:
            for table in ("available_span", "available_begin"):
                store._db.execute(f"drop table {table}")
    with Store.open_to_read(tmp_path) as old:
        assert old.available_spans.load().begins == {}
        assert read(old).has_lost(NOON)
    with Store.open_to_write(tmp_path) as store:
        first = store.load_history()[0].decided_at
        later = fill(store, NOON + COUNT * MINUTE)
        history = read(store)
        assert history.begins == {CAM: first}
        known = {at: dids for at, dids in (expected | later).items() if at >= first}
        assert {at: frozenset(history.available_datasets(CAM, at)) for at in known} == known
        assert history.has_lost(first - MINUTE)


def test_ads_that_list_the_same_datasets_add_no_row(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for n in range(5):
            publish(store, L1, L2, at=NOON + n * MINUTE)
        publish(store, L2, at=NOON + 9 * MINUTE)
        publish(store, L1, L2, at=NOON + 10 * MINUTE)
        spans = store.available_spans.load().spans[CAM]
        begin, end, again = (float(NOON.timestamp()) + 60 * n for n in (0, 9, 10))
        assert spans == {L1: [(begin, end), (again, float("inf"))], L2: [(begin, float("inf"))]}


def test_stays_that_ended_too_long_ago_are_deleted_and_the_begin_moves(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        publish(store, L1, L2, at=NOON)
        publish(store, L2, at=NOON + HOUR)
        publish(store, L3, site=RAL, at=NOON)
        late = NOON + HOUR + MAX_AGE
        publish(store, L2, L3, at=late)
        spans = store.available_spans.load()
        assert L1 not in spans.spans[CAM]
        assert spans.has_lost(CAM, NOON)
        assert not spans.has_lost(CAM, NOON + HOUR)
        assert not spans.has_lost(RAL, NOON), "nothing of this site was deleted"
        assert set(spans.find_listed(CAM, NOON + HOUR)) == {L2}


def test_oldest_ended_stays_go_first_when_there_are_too_many(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for n in range(10):
            publish(store, f"lofar:L{n}", at=NOON + n * MINUTE)
        with store._db:
            span_table.forget_old(store._db, NOON - HOUR, max_rows=4)
        spans = store.available_spans.load()
        assert sorted(spans.spans[CAM]) == [f"lofar:L{n}" for n in range(6, 10)]
        assert spans.begins[CAM] == ((NOON + 6 * MINUTE).timestamp(), True)
        with store._db:
            span_table.forget_old(store._db, NOON - HOUR, max_rows=0)
        assert sorted(store.available_spans.load().spans[CAM]) == ["lofar:L9"], "an ad lists it now"


def test_stays_of_a_dataset_that_is_not_published_any_more_are_deleted(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        publish(store, L1, L3, at=NOON)
        store.forget_history((L3,))
        assert set(store.available_spans.load().spans[CAM]) == {L1}
        assert from_unix(store.available_spans.load().begins[CAM][0]) == NOON
