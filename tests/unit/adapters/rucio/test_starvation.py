"""Names that Rucio refuses, fails over or does not have: all other datasets are read (on a stand-in)."""

import itertools
import threading
from collections.abc import Collection, Iterator
from datetime import timedelta

import pytest

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from adapters.rucio.did_search import DidSearch
from adapters.rucio.session.client import RucioConnection
from adapters.rucio.session.queries import QueryRunner, SeriesGuard
from hydrator.domain.errors import CatalogueDenied, CatalogueUnreachable
from hydrator.domain.model import DatasetState, Did, Seen, Unseen
from testbed.patience import wait_for
from testbed.rucio_standin import RucioStandIn
from tests.factories import HOUR, NOON

pytestmark = pytest.mark.outside

DIDS = [Did(f"lofar:L{n:02}") for n in range(61)]
FORBIDDEN = (403, {"ExceptionClass": "AccessDenied"})
BROKEN = (500, {"ExceptionClass": "DatabaseException"})
ABSENT_IT_SAYS = (404, {"ExceptionClass": "DataIdentifierNotFound"})
SILENT = "silent"
USUAL = {"verify_every": timedelta(0)}


class StandIn(RucioStandIn):
    """A stand-in that answers as ``trouble`` says to requests with a given text."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK"}, {did: {"UK-DISK": "available"} for did in DIDS})
        self.trouble: dict[str, tuple[int, dict] | str] = {}
        self.containers: set[str] = set()
        self.over = threading.Event()

    def answer(self, path, query, body):
        for text, answer in self.trouble.items():
            if text in f"{path} {body}":
                if answer == SILENT:
                    self.over.wait(60)
                    return 503, {}
                return answer
        status, rows = super().answer(path, query, body)
        if path == "/dids/bulkmeta":
            names = {f"{each['scope']}:{each['name']}" for each in body["dids"]} & self.containers
            rows = [*rows, *({**self._meta(did), "did_type": "CONTAINER"} for did in sorted(names))]
        return status, rows

    def __exit__(self, *error: object) -> None:
        self.over.set()
        super().__exit__(*error)

    def counted(self) -> list[str]:
        """Return the datasets that it counted since the last call, in order."""
        found = [path.split("/")[3] for path in self.asked if path.endswith("/datasets")]
        self.asked.clear()
        return found


def unseen(catalogue: RucioCatalogue, dids=DIDS) -> set[Did]:
    readings = catalogue.read(frozenset(dids)).readings
    states = {each.state for seen in readings.values() if isinstance(seen, Seen) for each in seen.replicas}
    assert states <= {DatasetState.AVAILABLE}
    return {did for did, reading in readings.items() if isinstance(reading, Unseen)}


# -- a refusal for one DID


@pytest.mark.parametrize(
    ("where", "answer"),
    [
        ("/replicas/lofar/L07/datasets", FORBIDDEN),
        ("/replicas/lofar/L07/datasets", BROKEN),
        ("/replicas/lofar/L07/datasets", ABSENT_IT_SAYS),
        ("'name': 'L07'", FORBIDDEN),
    ],
)
def test_an_error_about_one_dataset_keeps_no_other_unknown(asking, stand_in, where, answer):
    """Such errors made external-dns (4023) delete all records, and WMCore (11674) lose a location."""
    stand_in.trouble = {where: answer}
    assert unseen(asking()) == {"lofar:L07"}


@pytest.mark.parametrize("path", ["/replicas/lofar/", "/replicas/datasets_bulk"])
def test_an_account_that_may_ask_nothing_is_not_asked_for_long(asking, stand_in, path):
    stand_in.trouble = {path: FORBIDDEN}
    catalogue = asking(batch=10)
    with pytest.raises(CatalogueDenied):
        catalogue.read(frozenset(DIDS))
    assert sum(each.startswith(path) for each in stand_in.asked) <= 6


def test_many_refused_datasets_of_a_scope_keep_no_other_unknown(asking, stand_in):
    stand_in.trouble = {f"/replicas/lofar/{did[6:]}/datasets": FORBIDDEN for did in DIDS[:12]}
    catalogue = asking()
    assert unseen(catalogue) == set(DIDS[:12])


def test_two_silent_datasets_do_not_come_first_again(asking, stand_in):
    silent = DIDS[:2]
    stand_in.trouble = {f"/replicas/lofar/{did[6:]}/datasets": SILENT for did in silent}
    catalogue = asking(timeout=timedelta(seconds=1))
    wanted = [*DIDS, Did("lofar:nothing")]  # it has an answer, which no dataset has after two silences
    assert unseen(catalogue, wanted) > set(silent), "the poll gives up counting after two silences"
    for _ in range(2):
        stand_in.counted()
        assert unseen(catalogue, wanted) == set(silent), (
            "where they came first again, the poll would give up again"
        )
        assert {*stand_in.counted()} >= {did[6:] for did in DIDS[2:]}


def test_a_poll_ends_soon_where_many_datasets_are_silent(asking, stand_in):
    stand_in.trouble = {"/replicas/lofar/": SILENT}
    unseen(asking(timeout=timedelta(seconds=0.5)), [*DIDS, Did("lofar:nothing")])
    assert len(stand_in.counted()) <= 2 * 3 + 2, "rucio-clients asks three times"


def test_silent_histories_of_rules_do_not_come_first_again(asking, stand_in):
    stand_in.trouble = {f"/rules/lofar/L{n:02}/history": SILENT for n in range(4)}
    catalogue = asking(timeout=timedelta(seconds=2))
    left = [unseen(catalogue, [*DIDS, Did("lofar:nothing")]) for _ in range(3)]
    assert left[0] == set(DIDS), "two silences end it"
    assert left[2] <= set(DIDS[:4])


class Slow:
    """A connection that has no answer for ``silent`` names; it adds up the seconds that they take."""

    def __init__(self, silent: Collection[Did], settings: RucioSettings) -> None:
        self.remaining_seconds = float("inf")
        self.answer_seconds = settings.timeout.total_seconds()
        self.lost_seconds = 0.0
        self.silent = silent

    def count(self, did: Did) -> str:
        if did not in self.silent:
            return "counted"
        self.lost_seconds += self.answer_seconds
        raise CatalogueUnreachable("rucio", "timed out")


@pytest.mark.parametrize("part", [1, 2, 5])
def test_hundreds_of_silent_datasets_delay_the_others_by_a_few_polls(tmp_path, part):
    """Case R9: two silent datasets ended the counts of a poll, so 300 took 150 polls."""
    settings = RucioSettings("rucio", "https://r", "me", tmp_path)
    dids = [Did(f"lofar:L{n:04}") for n in range(600 // part)]
    slow = Slow(frozenset(dids[:300:part]), settings)
    queries, tried = QueryRunner(settings, slow), {}
    for poll in range(1, 17):
        slow.lost_seconds = 0.0
        jobs = sorted(dids, key=lambda did: (tried.get(did, 0), did), reverse=True)
        guard = SeriesGuard(queries)
        for did, answer in queries.ask_each(jobs, slow.count):
            tried[did] = poll
            if guard.should_stop_after(answer):
                jobs.clear()
        assert slow.lost_seconds < 3 * settings.timeout.total_seconds()
    assert tried.keys() == set(dids)


class Endless:
    """A client whose answers have no end."""

    def list_dids(self, *_: object, **__: object) -> Iterator[dict[str, str]]:
        return itertools.repeat({"scope": "lofar", "name": "L1"})


def test_a_query_with_a_bug_leaves_the_next_ones_their_whole_time(tmp_path):
    settings = RucioSettings("rucio", "https://r", "me", tmp_path)
    slow = Slow(frozenset({DIDS[0]}), settings)
    queries = QueryRunner(settings, slow)
    list(queries.ask_each([DIDS[0]], slow.count))
    with pytest.raises(ZeroDivisionError):
        list(queries.ask_each([DIDS[1]], lambda _: 1 // 0))
    assert slow.answer_seconds == settings.timeout.total_seconds()


def test_silent_parents_do_not_come_first_again(asking, stand_in):
    """A dataset in part without locks needs its containers, one query each."""
    stand_in.holdings = {did: {"UK-DISK": "partial"} for did in DIDS[:12]}
    stand_in.trouble = {f"/dids/lofar/{did[6:]}/parents": SILENT for did in DIDS[:6]}
    catalogue = asking(timeout=timedelta(seconds=1), deadline=timedelta(seconds=6))
    left = []
    for _ in range(4):
        readings = catalogue.read(frozenset([*DIDS[:12], Did("lofar:nothing")])).readings
        left.append({did for did, one in readings.items() if isinstance(one, Unseen)})
    assert left[-1] <= set(DIDS[:6])


# -- names


ABSENT = [Did(f"lofar:A{n:03}") for n in range(700)]


def about(names, asked: list[str]) -> list[str]:
    """Return the requests of *asked* that are about one of *names* alone."""
    wanted = {f"/dids/{did.replace(':', '/')}" for did in names}
    return [path for path in asked if path in wanted]


def test_absent_names_are_looked_up_after_all_else_and_within_a_budget(asking, stand_in):
    catalogue = asking(verify_every=timedelta(minutes=10))
    pending = unseen(catalogue, [*DIDS, *ABSENT])
    assert pending <= set(ABSENT)
    assert 200 <= len(pending) < 700
    alone = about(ABSENT, stand_in.asked)
    assert len(alone) <= 500
    assert stand_in.asked.index(alone[0]) > max(
        n for n, path in enumerate(stand_in.asked) if "/datasets" in path
    )
    wait_for(lambda: not unseen(catalogue, [*DIDS, *ABSENT]), "all were looked up")
    stand_in.asked.clear()
    assert unseen(catalogue, [*DIDS, *ABSENT]) == set()
    assert about(ABSENT, stand_in.asked) == [], "what is known to be absent is asked for in bulk"


def test_a_new_name_is_found_in_the_next_poll(asking, stand_in):
    catalogue, new = asking(verify_every=timedelta(minutes=10)), ABSENT[0]
    assert unseen(catalogue, [*DIDS, new]) == set()
    stand_in.holdings = {**stand_in.holdings, new: {"UK-DISK": "available"}}
    assert len(catalogue.read({new, DIDS[0]}).readings[new].replicas) == 1


def test_a_silent_name_delays_one_poll_and_no_dataset(asking, stand_in):
    stand_in.trouble = {"/dids/lofar/A000": SILENT}
    catalogue = asking(verify_every=timedelta(minutes=10), timeout=timedelta(seconds=5))
    assert unseen(catalogue, [*DIDS, *ABSENT[:3]]) == {"lofar:A000"}
    stand_in.asked.clear()
    asked_for = [*DIDS, *ABSENT[:3]]
    readings = catalogue.read(frozenset(asked_for)).readings
    assert "timed out" in readings[ABSENT[0]].reason or "no complete answer" in readings[ABSENT[0]].reason
    assert "/dids/lofar/A000" not in stand_in.asked, "the poll does not ask again"


def test_a_refused_name_fails_no_further_batch(asking, stand_in):
    stand_in.trouble = {f"'name': 'A{n:03}'": (400, {"ExceptionClass": "InvalidObject"}) for n in range(4)}
    catalogue = asking(verify_every=timedelta(minutes=10), batch=100)
    assert unseen(catalogue, [*DIDS, *ABSENT[:4]]) == set()
    stand_in.asked.clear()
    new = Did("lofar:N")
    stand_in.holdings = {**stand_in.holdings, new: {"UK-DISK": "available"}}
    assert unseen(catalogue, [*DIDS, new, *ABSENT[:4]]) == set()
    assert stand_in.asked.count("/dids/bulkmeta") == 1


def test_a_silent_container_delays_one_poll_and_no_dataset(asking, stand_in):
    boxes = [Did(f"lofar:box{n}") for n in range(4)]
    stand_in.containers = set(boxes)
    stand_in.trouble = {f"/dids/lofar/{did[6:]}/dids": SILENT for did in boxes}
    catalogue = asking(verify_every=timedelta(minutes=10), timeout=timedelta(seconds=1))
    assert unseen(catalogue, [*DIDS, *boxes]) == set(boxes)
    listed = [path for path in stand_in.asked if "/dids/lofar/box" in path]
    assert len(listed) == 2, "then the others wait"


# -- twins


def test_a_failed_search_for_case_variants_is_not_repeated_in_every_poll(asking, stand_in):
    now = NOON
    catalogue = asking(lambda: now, twins_every=HOUR)
    for hours, searches in [(0, 1), (2, 2), (2, 2), (2, 2), (3, 3)]:
        stand_in.trouble = {"/dids/search": BROKEN} if hours else {}
        now = NOON + hours * HOUR
        assert unseen(catalogue) == set()
        assert sum(path.endswith("/dids/search") for path in stand_in.asked) == searches


@pytest.mark.parametrize("path", ["/dids/search", "/scopes"])
def test_new_names_do_not_repeat_a_search_that_fails(asking, stand_in, path):
    """Case R9: one newly wanted dataset a poll made the search run in each poll."""
    stand_in.trouble = {path: BROKEN}
    catalogue = asking(twins_every=HOUR)
    stand_in.holdings = {**stand_in.holdings, **{f"new{n}:A": {"UK-DISK": "available"} for n in range(4)}}
    for n in range(4):
        catalogue.read({*DIDS[: n + 1], Did(f"new{n}:A")})
    assert sum(f"{asked}".rstrip("/").endswith(path) for asked in stand_in.asked) == (
        1 if path == "/scopes" else 5
    )


def test_a_scope_that_cannot_be_searched_hides_no_variant_of_others(asking, stand_in):
    stand_in.holdings = {
        did: {"UK-DISK": "available"} for did in ("a:L1", "a:l1", "b:L1", "b:l1", "c:L1", "c:l1")
    }
    stand_in.trouble = {"/dids/b/dids/search": BROKEN}
    catalogue = asking(twins_every=HOUR)
    readings = catalogue.read({Did(f"{scope}:L1") for scope in "abc"}).readings
    assert {did for did, reading in readings.items() if reading.case_variants} == {"a:L1", "c:L1"}


def test_search_in_a_scope_without_end_ends_with_its_time(tmp_path):
    """After two minutes without a question the daemon ends the worker: then no poll had an answer."""
    settings = RucioSettings("rucio", "https://r", "me", tmp_path)
    queries = QueryRunner(settings, RucioConnection(settings))
    queries.connection._client = Endless()
    with queries.connection.start_poll(0.1), pytest.raises(CatalogueUnreachable, match="no complete answer"):
        DidSearch(queries).list_matching("lofar", "*")


@pytest.mark.parametrize("dotted", ["lofar:..", "lofar:.", "..:L00", ".:L00"])
def test_a_name_of_dots_is_never_sent_and_delays_no_dataset(asking, stand_in, dotted):
    catalogue = asking()
    assert unseen(catalogue, [*DIDS, Did(dotted)]) == {Did(dotted)}
    known = ("/dids/bulkmeta", "/dids/lofar/", "/replicas/", "/locks/", "/rules", "/rses", "/auth/", "/ping")
    assert [path for path in stand_in.asked if not path.startswith(known)] == []
    assert not any("/.." in path for path in stand_in.asked)
