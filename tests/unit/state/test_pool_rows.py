"""The queues of schedds in the state: those of a silent schedd outlive the daemon, with their time."""

import pytest

from hydrator.domain.model import ScheddDemand
from hydrator.domain.ports import ScheddQueue
from hydrator.state.reports import load_queues, save_queues
from hydrator.state.store import Store
from tests.contracts.pool_reader import QUEUE
from tests.factories import NOON


def test_queues_come_back_with_their_jobs_and_time(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        assert load_queues(store) == {}
        save_queues(store, {"ap1": QUEUE})
        assert load_queues(store) == {"ap1": ScheddQueue(ScheddDemand(NOON, ()), QUEUE.load)}


@pytest.mark.parametrize("body", [7, {"ap1": ["today", {}]}, {"other": 1}])
def test_rows_that_cannot_be_decoded_are_no_queues(tmp_path, body):
    with Store.open_to_write(tmp_path) as store:
        store.save_reports({"pool": body})
        assert load_queues(store) == {}
