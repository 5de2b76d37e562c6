"""Datasets and names that Rucio refuses, fails over or does not have: the others are read all the same."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from adapters.rucio import RucioCatalogue
from hydrator.errors import CatalogueDenied
from hydrator.model import Did, ReplicaState, Seen, Unseen
from testbed.rucio_standin import RucioStandIn
from tests.rucio_fixtures import catalogues

DIDS = [Did(f"lofar:L{n:02}") for n in range(61)]
FORBIDDEN = (403, {"ExceptionClass": "AccessDenied"})
BROKEN = (500, {"ExceptionClass": "DatabaseException"})
SILENT = "silent"


class Troubled(RucioStandIn):
    """A stand-in that answers as ``trouble`` says to requests with a given text, and notes all."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK"})
        self.holdings = {did: {"UK-DISK": "available"} for did in DIDS}
        self.trouble: dict[str, tuple[int, dict] | str] = {}
        self.asked: list[str] = []
        self.over = threading.Event()

    def answer(self, path, query, body):
        self.asked.append(path)
        for text, answer in self.trouble.items():
            if text in f"{path} {body}":
                if answer == SILENT:
                    self.over.wait(60)
                    return 503, {}
                return answer
        return super().answer(path, query, body)

    def counted(self) -> list[str]:
        """The datasets that it was asked to count since the last call, in that order."""
        found = [path.split("/")[3] for path in self.asked if path.endswith("/datasets")]
        self.asked.clear()
        return found


@pytest.fixture
def server() -> Iterator[Troubled]:
    with Troubled() as started:
        yield started
        started.over.set()


@pytest.fixture
def asking(server, tmp_path):
    """Makes a catalogue on the stand-in, closed at the end."""
    usual = {"twins_every": None, "calls_per_second": 10_000, "verify_every": timedelta(0)}
    with catalogues(url=server.url, token_dir=tmp_path / "tokens", **usual) as make:
        yield make


def unseen(catalogue: RucioCatalogue, dids=DIDS) -> set[Did]:
    readings = catalogue.read(frozenset(dids)).readings
    states = {each.state for seen in readings.values() if isinstance(seen, Seen) for each in seen.replicas}
    assert states <= {ReplicaState.COMPLETE}
    return {did for did, reading in readings.items() if isinstance(reading, Unseen)}


# -- a refusal for one DID


@pytest.mark.parametrize("lines", [1, 2, 5])
@pytest.mark.parametrize("where", ["/replicas/lofar/L07/datasets", "'name': 'L07'"])
def test_a_dataset_that_may_not_be_asked_about_keeps_no_other_unknown(asking, server, lines, where):
    server.trouble = {where: FORBIDDEN}
    assert unseen(asking(concurrent_calls=lines)) == {"lofar:L07"}


@pytest.mark.parametrize("path", ["/replicas/lofar/", "/replicas/datasets_bulk"])
def test_an_account_that_may_ask_nothing_is_not_asked_for_long(asking, server, path):
    server.trouble = {path: FORBIDDEN}
    catalogue = asking(concurrent_calls=2, batch=10)
    with pytest.raises(CatalogueDenied):
        catalogue.read(frozenset(DIDS))
    assert sum(each.startswith(path) for each in server.asked) <= 6


@pytest.mark.parametrize("lines", [1, 2, 3, 5])
def test_many_refused_datasets_of_a_scope_keep_no_other_unknown(asking, server, lines):
    server.trouble = {f"/replicas/lofar/{did[6:]}/datasets": FORBIDDEN for did in DIDS[:12]}
    catalogue = asking(concurrent_calls=lines)
    assert unseen(catalogue) == set(DIDS[:12])


def test_two_silent_datasets_do_not_come_first_again(asking, server):
    silent = DIDS[:2]
    server.trouble = {f"/replicas/lofar/{did[6:]}/datasets": SILENT for did in silent}
    catalogue = asking(concurrent_calls=2, timeout=timedelta(seconds=2))
    assert unseen(catalogue) > set(silent), "the poll gives up counting after two silences"
    assert unseen(catalogue) == set(silent)
    first = server.counted()
    assert unseen(catalogue) == set(silent)
    assert {*first[-2:], *server.counted()[-2:]} == {"L00", "L01"}


def test_a_poll_ends_soon_where_many_datasets_are_silent(asking, server):
    server.trouble = {"/replicas/lofar/": SILENT}
    unseen(asking(concurrent_calls=2, timeout=timedelta(seconds=0.5)), [*DIDS, Did("lofar:nothing")])
    assert len(server.counted()) <= 2 * 3 + 2, "rucio-clients asks three times"
