"""The stays of datasets in the ads: the history that report reads on a busy pool."""

from dataclasses import replace

from hydrator.domain.model import Did, from_unix
from hydrator.reconcile.history import HistoryEntry
from hydrator.state.site_history import MAX_AGE, forget_old
from hydrator.state.store import Store
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, RAL, ad

COUNT = 200
ALL = [Did(f"lofar:L{n:04}") for n in range(COUNT)]

DIDS = frozenset({L1, L2, L3, *(Did(f"lofar:L{n}") for n in range(10))})


def publish(store, *dids, at, site=CAM, **more):
    generation = int(at.timestamp())
    one = replace(ad(*dids, site=site, generation=generation, **more), as_of=at)
    store.add_history([HistoryEntry(at, one, ())])
    return frozenset(dids)


def test_stays_have_the_datasets_of_each_minute_of_a_busy_pool(tmp_path):
    """A new dataset comes each minute; the first ones leave again after an hour."""
    with Store.open_to_write(tmp_path) as store:
        expected = {
            NOON + n * MINUTE: publish(store, *ALL[max(0, n - 60) : n + 1], at=NOON + n * MINUTE)
            for n in range(COUNT)
        }
        spans = store.site_history.load_spans(frozenset(ALL))
        assert {at: frozenset(spans.find_listed(CAM, at)) for at in expected} == expected
        assert not spans.has_lost(CAM, NOON - HOUR)
        assert spans.find_listed(CAM, NOON - MINUTE) is None


def test_only_the_datasets_of_the_question_are_loaded(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        publish(store, L1, L2, at=NOON)
        assert set(store.site_history.load_spans({L2}).spans[CAM]) == {L2}


def test_ads_that_list_the_same_datasets_add_no_row(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for n in range(5):
            publish(store, L1, L2, at=NOON + n * MINUTE)
        publish(store, L2, at=NOON + 9 * MINUTE)
        publish(store, L1, L2, at=NOON + 10 * MINUTE)
        spans = store.site_history.load_spans(DIDS).spans[CAM]
        begin, end, again = (float(NOON.timestamp()) + 60 * n for n in (0, 9, 10))
        assert spans == {L1: [(begin, end), (again, float("inf"))], L2: [(begin, float("inf"))]}


def test_stays_that_ended_too_long_ago_are_deleted_and_the_begin_moves(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        publish(store, L1, L2, at=NOON)
        publish(store, L2, at=NOON + HOUR)
        publish(store, L3, site=RAL, at=NOON)
        late = NOON + HOUR + MAX_AGE
        publish(store, L2, L3, at=late)
        spans = store.site_history.load_spans(DIDS)
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
            forget_old(store._db, NOON - HOUR, max_rows=4)
        spans = store.site_history.load_spans(DIDS)
        assert sorted(spans.spans[CAM]) == [f"lofar:L{n}" for n in range(6, 10)]
        assert spans.begins[CAM] == ((NOON + 6 * MINUTE).timestamp(), True)
        with store._db:
            forget_old(store._db, NOON - HOUR, max_rows=0)
        assert sorted(store.site_history.load_spans(DIDS).spans[CAM]) == ["lofar:L9"], "an ad lists it now"


def test_stays_of_a_dataset_that_is_not_published_any_more_are_deleted(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        publish(store, L1, L3, at=NOON)
        store.forget_history((L3,))
        assert set(store.site_history.load_spans(DIDS).spans[CAM]) == {L1}
        assert from_unix(store.site_history.load_spans(DIDS).begins[CAM][0]) == NOON
