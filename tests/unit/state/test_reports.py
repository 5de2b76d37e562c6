"""Reports in the state: each is the same after a restart, and one that cannot be decoded counts as lost."""

from datetime import timedelta
from typing import Any

import pytest

from hydrator.domain.model import ScheddDemand
from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.domain.ports import ScheddQueue
from hydrator.domain.staging_ports import RefusalKind, RequestState, StagingKind
from hydrator.staging.table import Decision, Request, Table
from hydrator.state.command_files import TABLE_REPORT
from hydrator.state.reports import (
    MAX_AGE,
    NETWORK_REPORT,
    LocalityHour,
    NetworkRecord,
    SourceStatus,
    add_hour,
    begin_of_hour,
    load_hours,
    load_queues,
    save_queues,
)
from hydrator.state.store import Store
from tests.contracts.pool_reader import QUEUE
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL

SAMPLES = (
    TransferSample(CAM, RAL, 10**9, 12.5, NOON, TransferOrigin.WRAPPER, "alice", "ap#1.0", 2.0),
    TransferSample(RAL, CAM, 10**8, 1.0, NOON, TransferOrigin.SCHEDD),
)
SOURCES = SourceStatus("transfer records", NOON, {"ap1": "denied"}), SourceStatus("job wrapper", NOON)
OPEN = Request(
    L1, CAM, "rucio", StagingKind.STAGE, 10**12, "b", NOON, 1_296_000, "CAM_DISK", RAL, "ann", "rule",
    RequestState.MOVING, 9, 3, NOON, NOON, True, True, NOON, 3600, NOON, NOON, 7, "7.0", NOON, NOON,
    True, "why", "locked", "problem", RefusalKind.QUOTA, NOON, None, "text",
)  # fmt: skip
ENDED = Request(L2, CAM, "rucio", StagingKind.PIN, 1, "c", NOON, 1, ended_at=NOON)


@pytest.mark.parametrize(
    ("key", "report", "spoilt"),
    [
        (NETWORK_REPORT, NetworkRecord(SAMPLES, SOURCES), {"samples": [7]}),
        (TABLE_REPORT, Table((OPEN, ENDED), {"b": Decision("approve", NOON)}), {"rows": [{"did": 7}]}),
    ],
)
def test_report_survives_a_restart_and_counts_as_lost_if_it_cannot_be_decoded(tmp_path, key, report, spoilt):
    kind: Any = type(report)
    with Store.open_to_write(tmp_path) as store:
        assert store.load_report(key, kind) is None
        store.save_reports({key: report})
    with Store.open_to_write(tmp_path) as store:
        assert store.load_report(key, kind) == report
        store.save_reports({key: spoilt})
        assert store.load_report(key, kind) is None


@pytest.mark.parametrize("spoilt", [7, {"ap1": ["today", {}]}, {"other": 1}])
def test_queues_come_back_with_their_jobs_and_time(tmp_path, spoilt):
    """Those of a silent schedd outlive the daemon."""
    with Store.open_to_write(tmp_path) as store:
        assert load_queues(store) == {}
        save_queues(store, {"ap1": QUEUE})
        assert load_queues(store) == {"ap1": ScheddQueue(ScheddDemand(NOON, ()), QUEUE.load)}
        store.save_reports({"pool": spoilt})
        assert load_queues(store) == {}


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
