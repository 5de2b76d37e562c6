"""`hydrator network`: every pair of sites from the daemon's state, and the sources that fail."""

import pytest
from typer.testing import CliRunner

from hydrator.cli.app import app
from hydrator.cli.output.network import format_rate
from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.reconcile.state import ReconcileState
from hydrator.state.reports import NETWORK_REPORT, NetworkRecord, SourceStatus
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from tests.factories import CAM, OSO, RAL, ad


@pytest.fixture
def network(tmp_path):
    """Prints what `hydrator network` prints for a state with ads of these sites and this record."""

    def printed(sites, record, settings="") -> list[list[str]]:
        with Store.open_to_write(tmp_path / "state") as store:
            store.save(ReconcileState(ads={site: ad(site=site) for site in sites}))
            store.save_reports({NETWORK_REPORT: record})
        config = tmp_path / "config.toml"
        catalogue = '[[catalogue]]\ntype = "file"\npath = "datasets.json"\n'
        config.write_text(f'[daemon]\nstate_dir = "state"\n{catalogue}{settings}')
        done = CliRunner().invoke(app, ["network", "--config", str(config)])
        assert done.exit_code == 0, done.output
        lines = [line.split("  ") for line in done.output.splitlines()]
        return [[cell.strip() for cell in line if cell.strip()] for line in lines]

    return printed


def test_each_pair_has_a_rate_with_its_origin(network):
    now = system_clock()
    samples = tuple(
        TransferSample(CAM, RAL, 10**9, 4.0, now, TransferOrigin.SCHEDD, "alice", f"{n}") for n in range(3)
    )
    record = NetworkRecord(
        samples,
        (SourceStatus("transfer records", now, {"ap1": "no history"}), SourceStatus("job wrapper", now)),
    )
    uplink = f'[[network.links]]\nsource = "{OSO}"\ngbit_per_second = 10\n'
    head, *rows, failure = network([CAM, RAL], record, uplink)
    assert head == ["from", "to", "rate", "origin", "samples", "newest"]
    by_pair = {tuple(row[:2]): row[2:] for row in rows}
    assert by_pair[CAM, RAL][:3] == ["6 Gb/s", "transfer records", "3 samples"]
    assert by_pair[CAM, RAL][3].endswith(" ago")
    assert by_pair[CAM, OSO][:2] == ["6 Gb/s", "transfer records to all sites"]
    assert by_pair[OSO, CAM] == ["10 Gb/s", "[[network.links]]"]
    assert by_pair[RAL, CAM] == by_pair[RAL, OSO] == ["1 Gb/s", "[network] default"]
    assert len(by_pair) == 6
    assert failure == ["transfer records, ap1: no history"]


def test_pool_of_one_site_has_no_links(network):
    assert network([CAM], NetworkRecord()) == [["the daemon knows fewer than two sites: see hydrator sites"]]


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (1.25e11, "1000 Gb/s"),
        (1.25e9, "10 Gb/s"),
        (125e6, "1 Gb/s"),
        (1.25e6, "0.01 Gb/s"),
        (1.25e5, "1 Mb/s"),
        (31e6, "0.248 Gb/s"),
    ],
)
def test_rate_is_printed_in_bits(rate, text):
    assert format_rate(rate) == text
