"""Rucio auditor: incomplete and unreadable answers end in an error (on a stand-in)."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from adapters.rucio.auditor import RucioAuditor
from adapters.rucio.session.settings import RucioSettings
from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.model import Did, ReplicaState
from testbed.rucio_standin import FILES, RucioStandIn
from tests.factories import NOON

pytestmark = pytest.mark.outside

DID = Did("lofar:L1")


class Listed(RucioStandIn):
    """A stand-in with one dataset, half of it at each of two elements of a site; lists may be cut short."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK", "UK-DISK2": "UK"})
        self.holdings = {DID: {"UK-DISK": "partial", "UK-DISK2": "partial"}}
        self.files = self.replicas = FILES
        self.state = "AVAILABLE"

    def answer(self, path, query, body):
        names = [{"scope": "lofar", "name": f"f{n}", "bytes": 1} for n in range(FILES)]
        if path == "/dids/lofar/L1/files":
            return 200, names[: self.files]
        if path == "/replicas/list":
            where = ["UK-DISK", "UK-DISK2"]
            rows = [{**row, "states": {where[n % 2]: self.state}} for n, row in enumerate(names)]
            return 200, rows[: self.replicas]
        if path == "/dids/lofar/L1":
            return 200, {"scope": "lofar", "name": "L1", "type": "DATASET", "length": FILES, "bytes": FILES}
        return super().answer(path, query, body)


@pytest.fixture
def stand_in() -> Iterator[Listed]:
    with Listed() as server:
        yield server


@pytest.fixture
def auditor(stand_in, tmp_path) -> Iterator[RucioAuditor]:
    login = {"account": "hydrator", "username": "somebody", "password": "a-secret-word"}
    limits = {"calls_per_second": 1000, "deadline": timedelta(seconds=60)}
    settings = RucioSettings(name="rucio", url=stand_in.url, token_dir=tmp_path, **login, **limits)
    with closing(RucioAuditor(settings, lambda: NOON)) as one:
        yield one


def test_two_halves_at_one_site_are_complete_in_an_audit(auditor):
    whole = auditor.verify(DID).replicas[0]
    assert (whole.state, whole.storage) == (ReplicaState.COMPLETE, "UK-DISK,UK-DISK2")


@pytest.mark.parametrize("damage", [{"files": 3}, {"replicas": 3}, {"replicas": 0}, {"state": "MELTED"}])
def test_an_audit_with_incomplete_lists_fails(auditor, stand_in, damage):
    for name, value in damage.items():
        setattr(stand_in, name, value)
    with pytest.raises(CatalogueGarbled, match="list_"):
        auditor.verify(DID)
