"""TransferLog contract: both sources of finished transfers give each one, and an odd one hides no other."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from adapters.condor.job_history import TransferRecords, WrapperReports
from hydrator.domain.model import Site, to_unix
from hydrator.domain.network import TransferSample
from tests.factories import NOON

WHEN, NEVER = to_unix(NOON), 10**15


def wrapper_reports():
    log = WrapperReports()

    def add(job, ended_at):
        reads = [f"UK:1000:2.0:{ended_at}:NL"]
        log.add({"ap": [{"GlobalJobId": job, "User": "ann", "reads": reads, "misses": []}]})

    return log, add


def transfer_records():
    rows = []
    client = SimpleNamespace(
        schedds=lambda: [{"Name": "ap"}], read_transfer_records=lambda *_: rows, close=lambda: None
    )

    def add(job, ended_at):
        file = {"host": "se.uk", "bytes": 1000, "seconds": 2.0, "ended_at": ended_at}
        rows.append({"kind": "INPUT", "run": job, "site": "NL", "user": "ann", "files": [file]})

    return TransferRecords(client, lambda: NOON, (), lambda _: Site("UK")), add


@pytest.mark.parametrize("make", [wrapper_reports, transfer_records])
def test_log_gives_each_readable_transfer_and_later_the_new_ones(make):
    log, add = make()
    assert not log.read_samples().samples
    for job, ended_at in [("7", WHEN), ("8", NEVER), ("9", WHEN)]:
        add(job, ended_at)
    first, failures = log.read_samples().samples, log.read_samples().failures
    expected = TransferSample(Site("UK"), Site("NL"), 1000, 2.0, NOON, log.origin, "ann", "")
    assert [replace(each, job="") for each in first] == [expected, expected]
    assert len(set(first)) == 2
    assert failures == {}
    add("10", WHEN)
    assert len(set(log.read_samples().samples) - set(first)) == 1
    log.close()
    log.close()
