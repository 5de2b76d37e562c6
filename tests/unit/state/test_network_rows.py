"""The state about the network: what is saved is read back, and a damaged state loses only rows."""

from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.state.reports import NETWORK_REPORT, NetworkRecord, SourceStatus
from hydrator.state.store import Store
from tests.factories import CAM, NOON, RAL

SAMPLE = TransferSample(CAM, RAL, 10**9, 12.5, NOON, TransferOrigin.WRAPPER, "alice", "ap#1.0", 2.0)
RECORD = NetworkRecord(
    (SAMPLE, TransferSample(RAL, CAM, 10**8, 1.0, NOON, TransferOrigin.SCHEDD)),
    (SourceStatus("transfer records", NOON, {"ap1": "denied"}), SourceStatus("job wrapper", NOON)),
)


def test_network_record_survives_a_restart(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save_reports({NETWORK_REPORT: RECORD})
    with Store.open_to_read(tmp_path) as store:
        assert store.load_report(NETWORK_REPORT, NetworkRecord) == RECORD


def test_new_state_has_no_network_record(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        assert store.load_report(NETWORK_REPORT, NetworkRecord) is None


def test_a_record_that_cannot_be_decoded_counts_as_lost(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save_reports({"network": {"samples": [7]}})
        assert store.load_report(NETWORK_REPORT, NetworkRecord) is None
