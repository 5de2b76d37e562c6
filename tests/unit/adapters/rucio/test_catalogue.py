"""Rucio catalogue: parse rows, and report a server that misbehaves (on a stand-in)."""

import ast
import json
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from adapters.rucio.responses import (
    BadRow,
    Count,
    DatasetRow,
    Rse,
    largest_counts,
    read_dataset_row,
)
from adapters.rucio.states import (
    Lock,
    Movement,
    Rule,
    container_replicas,
    dataset_replicas,
    file_replicas,
    movement_without_locks,
    movements,
    read_rule,
    state_at,
)
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
)
from hydrator.domain.model import NO_PROVENANCE, DatasetState, Did, Replica, Seen, Site, Unseen
from testbed.loopback import LoopbackRequest
from testbed.rucio_standin import RucioStandIn
from tests.factories import BEST_FIRST
from tests.memory import system_clock

L1, L2, BOTH = Did("lofar:L1"), Did("lofar:L2"), Did("lofar:both")
UK, AU = Site("UK"), Site("AU")
DISK, TAPE = Rse("UK-DISK", UK, is_tape=False), Rse("UK-TAPE", UK, is_tape=True)
HOMELESS, GONE = Rse("X", None, is_tape=False), Rse("Y", None, is_tape=False, is_deleted=True)
STORAGES = {each.name: each for each in (DISK, TAPE, HOMELESS, GONE)}
AVAILABLE, STAGING, PARTIAL, NEARLINE, STUCK, UNAVAILABLE = BEST_FIRST
MOVING, JAMMED, BOTH_WAYS, STILL = (
    Movement(is_moving=True),
    Movement(is_stuck=True),
    Movement(is_moving=True, is_stuck=True),
    Movement(),
)


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SOON = NOON + timedelta(hours=6)


def at(storage: Rse, count: Count, movement: Movement) -> tuple[DatasetState, float] | None:
    found = state_at(storage, count, movement, SOON)
    return (found.state, found.fraction) if found else None


def plain(replicas: tuple[Replica, ...]) -> tuple[Replica, ...]:
    """Return *replicas* without their provenance."""
    return tuple(replace(replica, provenance=NO_PROVENANCE) for replica in replicas)


def files(available: int, length: int = 4) -> Count:
    return Count(length, available, length * 10, available * 10)


@pytest.mark.parametrize(
    ("count", "movement", "on_disk"),
    [
        (files(4), STILL, (AVAILABLE, 1.0)),
        (files(4), JAMMED, (AVAILABLE, 1.0)),
        (files(5), STILL, (AVAILABLE, 1.0)),
        (files(0), MOVING, (STAGING, 0.0)),
        (files(1), MOVING, (STAGING, 0.25)),
        (files(1), BOTH_WAYS, (STAGING, 0.25)),
        (files(3), JAMMED, (STUCK, 0.75)),
        (files(0), JAMMED, (STUCK, 0.0)),
        (files(3), STILL, (PARTIAL, 0.75)),
        (files(0), STILL, None),
        (files(0, 0), STILL, None),
        (files(0, 0), MOVING, (STAGING, 0.0)),
    ],
)
def test_a_count_and_what_moves_make_a_state_on_disk(count, movement, on_disk):
    assert at(DISK, count, movement) == on_disk


@pytest.mark.parametrize("movement", [STILL, MOVING, JAMMED])
def test_only_a_complete_copy_counts_on_tape(movement):
    assert at(TAPE, files(4), movement) == (NEARLINE, 0.0)
    assert at(TAPE, files(3), movement) is None


@pytest.mark.parametrize(
    ("storage", "count", "movement", "found"),
    [
        (replace(DISK, is_readable=False), files(4), STILL, (UNAVAILABLE, 0.0)),
        (replace(DISK, is_readable=False), files(0), MOVING, (UNAVAILABLE, 0.0)),
        (replace(DISK, is_readable=False), files(0), STILL, None),
        (replace(TAPE, is_readable=False), files(4), STILL, (UNAVAILABLE, 0.0)),
        (replace(TAPE, is_readable=False), files(3), MOVING, None),
        (replace(DISK, is_writable=False), files(4), STILL, (AVAILABLE, 1.0)),
        (replace(DISK, is_writable=False), files(1), MOVING, (STUCK, 0.25)),
        (replace(DISK, is_writable=False), files(1), STILL, (PARTIAL, 0.25)),
        (replace(DISK, is_volatile=True), files(4), STILL, (PARTIAL, 1.0)),
        (DISK, files(4), Movement(ends_at=NOON), (PARTIAL, 1.0)),
        (DISK, files(4), Movement(ends_at=SOON), (PARTIAL, 1.0)),
        (DISK, files(4), Movement(ends_at=SOON + timedelta(seconds=1)), (AVAILABLE, 1.0)),
        (TAPE, files(4), Movement(ends_at=NOON), (NEARLINE, 0.0)),
    ],
)
def test_a_copy_that_is_unreadable_or_short_lived_is_not_complete(storage, count, movement, found):
    assert at(storage, count, movement) == found


@pytest.mark.parametrize(
    ("storage", "movement", "reason"),
    [
        (replace(DISK, is_readable=False), STILL, "UK-DISK cannot be read"),
        (replace(DISK, is_volatile=True), STILL, "is a cache"),
        (DISK, Movement(ends_at=SOON), "no rule holds it for long enough"),
    ],
)
def test_a_copy_that_is_not_complete_has_a_reason(storage, movement, reason):
    assert reason in state_at(storage, files(4), movement, SOON).provenance.reason


@pytest.mark.parametrize(
    ("count", "fraction"),
    [
        (Count(4, 1, 100, 70), 0.7),
        (Count(4, 1, 0, 0), 0.25),
        (Count(4, 1, 3003.0, 1001.0), 1 / 3),
        (Count(0, 0, 0, 0), 0.0),
        (Count(4, 3, 100, 130), 1.0),
    ],
)
def test_a_fraction_is_of_bytes_and_of_files_where_bytes_are_unknown(count, fraction):
    assert count.fraction == pytest.approx(fraction)


def test_unmapped_and_deleted_storage_elements_have_no_replica():
    counts = {"UK-DISK": files(4), "X": files(4), "Y": files(4)}
    found = dataset_replicas(L1, counts, {}, STORAGES, held_until=SOON)
    assert plain(found) == (Replica(L1, UK, AVAILABLE, 1.0, "UK-DISK"),)


def test_a_lock_alone_makes_an_incoming_replica():
    found = dataset_replicas(L1, {}, {"UK-DISK": MOVING}, STORAGES, held_until=SOON)
    assert plain(found) == (Replica(L1, UK, STAGING, 0.0, "UK-DISK"),)


def test_files_and_archives_at_one_element_are_not_added_up():
    rows = [DatasetRow("UK-DISK", files(n), "") for n in (2, 3, 1)]
    assert largest_counts(rows) == {"UK-DISK": files(3)}


def rule(name: str, state: str = "OK", ends: datetime | None = None, error: str = "") -> Rule:
    return Rule(name, L1, state, "UK-DISK", account="anna", error=error, expires_at=ends)


def does(rows: list[Lock], *book: Rule) -> dict[str, tuple[bool, bool]]:
    found = movements(rows, {each.id: each for each in book}, held_until=SOON)
    return {storage: (move.is_moving, move.is_stuck) for storage, move in found.items()}


def test_locks_of_suspended_rules_move_nothing():
    rows = [Lock(L1, "A", "REPLICATING", "r1"), Lock(L1, "B", "REPLICATING", "r2"), Lock(L1, "C", "OK", "r3")]
    rows += [Lock(L1, "D", "STUCK", "r4"), Lock(L1, "D", "REPLICATING", "r1")]
    book = rule("r1", "REPLICATING"), rule("r2", "SUSPENDED"), rule("r3"), rule("r4", "STUCK")
    assert does(rows, *book) == {
        "A": (True, False), "B": (False, True), "C": (False, False), "D": (True, True)
    }  # fmt: skip


def test_a_lock_of_a_deleted_rule_is_ignored():
    assert does([Lock(L1, "A", "REPLICATING", "r1")]) == {}


def test_a_transfer_for_a_rule_that_ends_soon_is_not_incoming():
    rows = [Lock(L1, "A", "REPLICATING", "r1")]
    assert does(rows, rule("r1", "REPLICATING", ends=SOON)) == {"A": (False, False)}
    assert does([*rows, Lock(L1, "A", "OK", "r2")], rule("r1", "REPLICATING", ends=SOON), rule("r2")) == {
        "A": (False, False)
    }


@pytest.mark.parametrize(
    ("ends", "last"),
    [([None], None), ([NOON], NOON), ([NOON, SOON], SOON), ([NOON, None], None), ([None, SOON], None)],
)
def test_data_is_held_until_the_last_of_its_rules_ends(ends, last):
    rows = [Lock(L1, "A", "OK", f"r{n}") for n in range(len(ends))]
    book = {f"r{n}": rule(f"r{n}", ends=end) for n, end in enumerate(ends)}
    assert movements(rows, book, held_until=NOON)["A"].ends_at == last


@pytest.mark.parametrize(
    ("state", "error", "reason"),
    [
        ("STUCK", "no source", "its rule is stuck: no source"),
        ("STUCK", "", "its rule is stuck"),
        ("STUCK", "NO_SOURCES: f1", "no storage has the missing files: NO_SOURCES: f1"),
        ("SUSPENDED", "", "its rule is suspended"),
        ("REPLICATING", "old trouble", ""),
    ],
)
def test_the_decisive_rule_gives_reason_and_account(state, error, reason):
    rows = [Lock(L1, "A", "OK", "r0"), Lock(L1, "A", "STUCK" if state == "STUCK" else "REPLICATING", "r1")]
    told = movements(rows, {"r0": rule("r0"), "r1": rule("r1", state, error=error)}, held_until=NOON)[
        "A"
    ].provenance
    assert (told.reason, told.rule, told.account) == (reason, "r1", "anna")


def test_a_rule_without_locks_moves_only_what_is_approved():
    for state, ends, moving, stuck, reason in [
        ("INJECT", None, True, False, "its rule is about to be taken up"),
        ("INJECT", SOON, False, False, "its rule is about to be taken up"),
        ("WAITING_APPROVAL", None, False, True, "its rule waits for approval"),
    ]:
        found = movement_without_locks(rule("r", state, ends), held_until=SOON)
        assert (found.is_moving, found.is_stuck, found.provenance.reason) == (moving, stuck, reason)


RULE_ROW = {"id": "r", "scope": "lofar", "name": "L1", "state": "OK", "rse_expression": "UK-DISK"}


def test_a_rule_is_read_with_its_times_in_utc_and_its_error_on_one_line():
    row = {**RULE_ROW, "error": "a\nb", "account": "anna"}
    for ends in (datetime(2026, 11, 21, 12), "Sat, 21 Nov 2026 12:00:00 UTC"):  # noqa: DTZ001
        assert read_rule({**row, "expires_at": ends}) == rule("r", ends=NOON, error="a b")


@pytest.mark.parametrize("damage", [{}, {**RULE_ROW, "id": None}])
def test_a_rule_row_without_an_id_is_refused(damage):
    with pytest.raises(BadRow):
        read_rule(damage)


def test_a_file_is_complete_moving_or_not_there():
    states = {"UK-DISK": "COPYING", "UK-TAPE": "AVAILABLE", "X": "AVAILABLE"}
    said = {(r.storage, r.state) for r in file_replicas(L1, states, STORAGES, held_until=SOON)}
    assert said == {("UK-DISK", STAGING), ("UK-TAPE", NEARLINE)}
    bad = {"UK-DISK": "BAD", "UK-TAPE": "UNAVAILABLE"}
    assert file_replicas(L1, bad, STORAGES, held_until=SOON) == ()


def part(*replicas: tuple[Site, DatasetState, float], size: int | None = 10) -> Seen:
    return Seen(NOON, tuple(Replica(L1, *replica, storage="S") for replica in replicas), size)


@pytest.mark.parametrize(
    ("parts", "at_uk"),
    [
        ([part((UK, AVAILABLE, 1.0)), part((UK, AVAILABLE, 1.0))], {(AVAILABLE, 1.0)}),
        ([part((UK, AVAILABLE, 1.0), size=30), part((AU, AVAILABLE, 1.0))], {(PARTIAL, 0.75)}),
        ([part((UK, AVAILABLE, 1.0), size=30), part(size=None)], {(PARTIAL, 0.5)}),
        ([part((UK, AVAILABLE, 1.0)), part((UK, STAGING, 0.5))], {(STAGING, 0.75)}),
        ([part((UK, STUCK, 0.5)), part((UK, STAGING, 0.5))], {(STAGING, 0.5)}),
        ([part((UK, AVAILABLE, 1.0)), part((UK, STUCK, 0.0))], {(STUCK, 0.5)}),
        ([part((UK, AVAILABLE, 1.0), (UK, STUCK, 0.5)), part((UK, AVAILABLE, 1.0))], {(AVAILABLE, 1.0)}),
        ([part((UK, NEARLINE, 0.0)), part((UK, NEARLINE, 0.0))], {(NEARLINE, 0.0)}),
        (
            [part((UK, NEARLINE, 0.0)), part((UK, NEARLINE, 0.0), (UK, AVAILABLE, 1.0))],
            {(NEARLINE, 0.0), (PARTIAL, 0.5)},
        ),
        ([part((UK, NEARLINE, 0.0)), part((UK, AVAILABLE, 1.0))], {(PARTIAL, 0.5)}),
        ([part((UK, NEARLINE, 0.0)), part((AU, AVAILABLE, 1.0))], set()),
    ],
)
def test_a_container_is_what_its_datasets_are_together(parts, at_uk):
    said = {(r.state, r.fraction) for r in container_replicas(BOTH, parts) if r.site == UK}
    assert said == at_uk


ROW = {
    "scope": "lofar", "name": "L1", "rse": "UK-DISK", "length": 4, "available_length": 4, "bytes": 40,
    "available_bytes": 40, "updated_at": None,
}  # fmt: skip


def test_a_row_without_sizes_is_valid_before_the_first_count():
    row = read_dataset_row({**ROW, "length": None, "bytes": None})
    assert (row.amount.length, row.amount.is_complete) == (0, False)


# -- a server that misbehaves

USUAL = {
    "timeout": timedelta(seconds=5),
    "deadline": timedelta(seconds=20),
    "twins_every": timedelta(hours=1),
    "calls_per_second": 1000,
}
Answer = Callable[[LoopbackRequest], None]


def json_lines(*rows: object) -> Answer:
    """Answer with *rows*; to a query about some DIDs, only with the rows about these."""

    def answer(request: LoopbackRequest) -> None:
        sent = json.loads(request.sent or "{}")
        asked = {(did["scope"], did["name"]) for did in sent.get("dids", ())}
        said = [row for row in rows if not asked or (row["scope"], row["name"]) in asked]
        body("".join(json.dumps(row) + "\n" for row in said), "application/x-json-stream")(request)

    return answer


def body(text: str, kind: str = "application/json", status: int = 200, **headers: str) -> Answer:
    named = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return lambda request: request.send(status, named, text.encode())


def raw(text: str) -> Answer:
    """Send exactly *text*, then close."""

    def answer(request: LoopbackRequest) -> None:
        request.close_connection = True
        request.wfile.write(text.encode())

    return answer


HERE = {"UK-DISK": "available"}


class StandIn(RucioStandIn):
    """A stand-in with lofar:L1 and lofar:L2 complete at UK-DISK; ``answers`` by path replace its own."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK"}, {L1: HERE, L2: HERE})
        self.answers: dict[str, Answer] = {}
        self.file_searches: list[str] = []

    def hold_file(self, row: object) -> None:
        """Answer each search for files with *row*, and note it; a search for datasets finds nothing."""

        def answer(request: LoopbackRequest) -> None:
            query = parse_qs(urlsplit(request.path).query)
            if is_for_files := query["type"] == ["file"]:
                self.file_searches.append(ast.literal_eval(query["filters"][0])[0]["name"])
            json_lines(*([row] if is_for_files else []))(request)

        self.answers["/dids/lofar/dids/search"] = answer

    def reply(self, request: LoopbackRequest) -> None:
        path = request.path.partition("?")[0]
        if answer := self.answers.get(path):
            self.asked.append(path)
            answer(request)
        else:
            self.reply_itself(request)

    def reply_itself(self, request: LoopbackRequest) -> None:
        super().reply(request)


@contextmanager
def fails_as(kind: type[CatalogueError], *words: str):
    with pytest.raises(CatalogueError) as failure:
        yield
    assert isinstance(failure.value, kind), repr(failure.value)
    assert failure.value.catalogue == "rucio"
    text = str(failure.value)
    assert all(word in text for word in words), text
    assert "a-secret-word" not in text
    assert "token-" not in text
    assert "\n" not in text


HTML = body("<html>Log in</html>", "text/html; charset=utf-8")
NOT_HERE = body("<html>Not Found", "text/html", status=404)
CHUNKED = "HTTP/1.1 200 OK\r\nContent-Type: application/x-json-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVERYWHERE = ("/auth/userpass", "/rses/", "/rses/UK-DISK/attr/", "/dids/bulkmeta", "/replicas/datasets_bulk",
              "/replicas/lofar/L1/datasets")  # fmt: skip
FAULTS = {
    "500": (body("oh", status=500), CatalogueUnreachable),
    "429": (body("slow down", status=429), CatalogueUnreachable),
    "403": (body("no", status=403), CatalogueDenied),
    "401 for ever": (body("no", status=401, ExceptionClass="CannotAuthenticate"), CatalogueDenied),
    "a redirect": (body("", status=302, Location="https://sso.example.org/"), CatalogueGarbled),
    "a web page": (HTML, CatalogueGarbled),
    "a 404 of a proxy": (NOT_HERE, CatalogueGarbled),
    "a broken-off answer": (raw(CHUNKED + '6\r\n{"a":1'), CatalogueUnreachable),
    "half of the length it told": (
        raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"),
        CatalogueUnreachable,
    ),
    "no length": (raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}"), CatalogueGarbled),
    "no HTTP": (raw("220 mail ready\r\n"), CatalogueUnreachable),
    "silence": (raw(""), CatalogueUnreachable),
}


@pytest.mark.outside
@pytest.mark.parametrize("path", EVERYWHERE)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_server_is_never_an_empty_catalogue(asking, stand_in, path, fault):
    stand_in.answers[path], kind = FAULTS[fault]
    if path == "/auth/userpass" and fault in {"a broken-off answer", "half of the length it told"}:
        kind = CatalogueGarbled  # a login's body is not read: what counts is that it brought no token
    with fails_as(kind):
        asking().read({L1})


NONSENSE = ("not json", '{"rse": ', '"text"', "[1]", '{"rse": 7}', '{"scope": "lofar"}')
RECORDS = NONSENSE[-2:]  # a fair answer where any attribute may be


@pytest.mark.outside
@pytest.mark.parametrize(
    ("path", "text"),
    [(p, t) for p in EVERYWHERE[1:] for t in NONSENSE if not (p.endswith("/attr/") and t in RECORDS)],
)
def test_a_server_with_unreadable_answers_is_garbled(asking, stand_in, path, text):
    stand_in.answers[path] = body(text + "\n", "application/x-json-stream")
    with fails_as(CatalogueGarbled):
        asking().read({L1})


@pytest.mark.outside
def test_a_server_without_storage_elements_is_an_error(asking, stand_in):
    stand_in.answers["/rses/"] = json_lines()
    with fails_as(CatalogueGarbled, "storage elements"):
        asking().read(frozenset())


@pytest.mark.outside
def test_a_query_is_repeated_after_a_503(asking, stand_in):
    left = [body("", status=503)] * 2

    def recovers(request):
        return left.pop()(request) if left else stand_in.reply_itself(request)

    stand_in.answers["/rses/"] = recovers
    assert asking().read(frozenset()).sites == {UK}
    stand_in.answers["/rses/"] = body("", status=503)
    with fails_as(CatalogueUnreachable, "503"):
        asking().read(frozenset())


@pytest.mark.outside
@pytest.mark.parametrize("status", [429, 503])
def test_a_server_is_not_queried_during_the_pause_that_it_asked_for(asking, stand_in, status):
    stand_in.answers["/rses/"] = body("", status=status, Retry_After="300")
    catalogue = asking()
    with fails_as(CatalogueUnreachable, f"HTTP {status}"):
        catalogue.read({L1})
    assert stand_in.asked.count("/rses/") == 1
    stand_in.answers.clear()
    asked = len(stand_in.asked)
    with fails_as(CatalogueUnreachable, "asked for a pause"):
        catalogue.read({L1})
    assert len(stand_in.asked) == asked


@pytest.mark.outside
def test_a_batch_refused_in_the_middle_leaves_what_was_seen(asking, stand_in):
    path = "/replicas/lofar/L2/datasets"
    stand_in.answers[path] = body("", status=429, Retry_After="300")
    readings = asking().read({L1, L2}).readings
    assert [type(readings[did]) for did in (L1, L2)] == [Seen, Unseen]


@pytest.mark.outside
def test_a_server_that_fails_for_every_name_gets_few_queries(asking, stand_in):
    stand_in.answers["/dids/bulkmeta"] = body("", status=500)
    with fails_as(CatalogueUnreachable):
        asking().read({Did(f"lofar:L{n}") for n in range(1000)})
    assert len(stand_in.asked) < 200


@pytest.mark.outside
def test_a_name_that_the_bulk_answer_leaves_out_is_absent_only_after_a_404(asking, stand_in):
    stand_in.holdings = {}
    assert asking().read({L1}).readings[L1].replicas == ()
    assert "/dids/lofar/L1" in stand_in.asked
    stand_in.answers["/dids/lofar/L1"] = body("", status=500)
    with fails_as(CatalogueUnreachable):
        asking().read({L1})


@pytest.mark.outside
def test_data_at_an_unlisted_element_makes_the_dataset_unseen(asking, stand_in):
    stand_in.answers["/replicas/lofar/L1/datasets"] = json_lines({**ROW, "rse": "NEW"})
    readings = asking().read({L1, L2}).readings
    assert "NEW" in readings[L1].reason
    assert isinstance(readings[L2], Seen)


@pytest.mark.outside
def test_a_site_once_known_outlives_a_failing_attribute_call(asking, stand_in):
    catalogue = asking(attributes_every=timedelta(0))
    assert catalogue.read(frozenset()).sites == {UK}
    stand_in.answers["/rses/UK-DISK/attr/"] = body("", status=500)
    assert catalogue.read(frozenset()).sites == {UK}


@pytest.mark.outside
@pytest.mark.parametrize(
    "fault", [body("", status=500), body("", status=403), HTML, NOT_HERE, body("[]"), body("{}")]
)
def test_an_element_whose_site_cannot_be_queried_concerns_its_datasets_only(asking, stand_in, fault):
    stand_in.storages["AU-DISK"] = "AU"
    stand_in.answers["/rses/AU-DISK/attr/"] = fault
    stand_in.holdings = {L1: HERE, L2: {"AU-DISK": "available"}}
    survey = asking().read({L1, L2})
    assert (survey.sites, survey.unmapped_storages) == ({UK}, {"AU-DISK"})
    assert [replica.site for replica in survey.readings[L1].replicas] == [UK]
    assert survey.readings[L2].reason.startswith("lofar:L2 is at AU-DISK: ")


@pytest.mark.outside
@pytest.mark.parametrize("path", ["/rules/rule-1", "/rules/lofar/L1/history"])
def test_a_404_of_a_proxy_ends_no_rule(asking, stand_in, path):
    """Data whose last rule has ended attracts no job any more."""
    stand_in.answers["/dids/lofar/L1/parents"] = json_lines()
    catalogue = asking(verify_every=timedelta(0))
    assert catalogue.read({L1}).readings[L1].replicas[0].state is AVAILABLE
    stand_in.answers[path] = NOT_HERE
    if path == "/rules/rule-1":
        past = {"rule_id": "rule-1", "rse_expression": "UK-DISK"}
        stand_in.answers["/rules/lofar/L1/history"] = json_lines(past)
    with fails_as(CatalogueGarbled, "404"):
        catalogue.read({L1})


@pytest.mark.outside
def test_readings_are_valid_without_a_search_for_case_variants(asking, stand_in):
    stand_in.answers["/scopes/"] = body("", status=500)
    reading = asking().read({L1}).readings[L1]
    assert (reading.replicas[0].state, reading.case_variants) == (AVAILABLE, frozenset())


@pytest.mark.outside
@pytest.mark.parametrize("path", ["/scopes/", "/dids/lofar/dids/search"])
def test_find_returns_all_matches_or_fails(asking, stand_in, path):
    assert asking().find(["lofar:L*"]) == {L1, L2}
    for fault, kind in (body("", status=500), CatalogueUnreachable), (HTML, CatalogueGarbled):
        stand_in.answers[path] = fault
        with fails_as(kind):
            asking().find(["lofar:L*"])


@pytest.mark.outside
@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("lofar:L775619_SB0*.tar", "L775619_SB0*.tar"),
        ("lofar:L775619_SB0?_uv.MS_*.tar", "L775619_SB0*.tar"),
        ("lofar:L775619_SB0[0-9]_uv.MS_76a2361e.tar", "L775619_SB0*.tar"),
        ("lofar:L775619_SB00_uv.MS_76a2361e.tar", "L775619_SB00_uv.MS_76a2361e.tar"),
        ("lofar:L775619_SB0*", None),
        ("lofar:L7756*.tar", None),
        ("lofar:*.tar", None),
        ("*:L775619_SB0*.tar", None),
    ],
)
def test_find_lists_files_only_for_archives_of_which_it_knows_the_begin(asking, stand_in, pattern, name):
    archive = {"scope": "lofar", "name": "L775619_SB00_uv.MS_76a2361e.tar", "did_type": "FILE"}
    stand_in.hold_file(archive)
    found = asking().find([pattern])
    assert stand_in.file_searches == ([name] if name else [])
    assert found == ({Did("lofar:L775619_SB00_uv.MS_76a2361e.tar")} if name else set())


@pytest.mark.outside
def test_a_rucio_cfg_of_another_user_is_ignored(asking, tmp_path, monkeypatch):
    broken = tmp_path / "rucio.cfg"
    broken.write_text("no section = here\n")
    monkeypatch.setenv("RUCIO_CONFIG", str(broken))
    assert asking().read(frozenset()).sites == {UK}


def half_way(stand_in: StandIn, *names: str) -> None:
    """Put half of each of *names* at UK-DISK, with a rule that transfers the rest."""
    stand_in.holdings = {f"lofar:{name}": {"UK-DISK": "staging"} for name in names}
    known = [{**RULE_ROW, "id": f"rule-{name}", "name": name, "state": "REPLICATING"} for name in names]
    stand_in.answers["/rules/"] = by_query({"scope=lofar": json_lines(*known)}, json_lines())


def by_query(answers: dict[str, Answer], other: Answer) -> Answer:
    return lambda request: answers.get(request.path.partition("?")[2], other)(request)


@pytest.mark.outside
@pytest.mark.parametrize(("datasets", "asked_alone"), [(3, 3), (30, 0)])
def test_rules_of_many_datasets_are_queried_together_and_once(asking, stand_in, datasets, asked_alone):
    names = [f"M{n}" for n in range(datasets)]
    half_way(stand_in, *names)
    catalogue = asking(twins_every=None, calls_per_second=1000)
    dids = {Did(f"lofar:{name}") for name in names}
    for _ in range(2):
        readings = catalogue.read(dids).readings
        assert {reading.replicas[0].state for reading in readings.values()} == {STAGING}
    assert sum(path.startswith("/rules/rule-") for path in stand_in.asked) == asked_alone


@pytest.mark.outside
def test_only_complete_datasets_are_seen_if_rules_cannot_be_queried(asking, stand_in):
    stand_in.holdings = {L1: HERE, "lofar:M1": {"UK-DISK": "staging"}}
    lock = {"scope": "lofar", "rse": "UK-DISK"}
    stand_in.answers["/locks/bulk_locks_for_dids"] = json_lines(
        {**lock, "name": "L1", "state": "OK", "rule_id": "of-L1"},
        {**lock, "name": "M1", "state": "REPLICATING", "rule_id": "of-M1"},
    )
    stand_in.answers["/rules/of-L1"] = stand_in.answers["/rules/of-M1"] = body("", status=500)
    readings = asking().read({L1, Did("lofar:M1")}).readings
    assert isinstance(readings[L1], Seen)
    assert "HTTP 500" in readings[Did("lofar:M1")].reason


@pytest.mark.outside
@pytest.mark.parametrize("fault", [body("", status=500), body("", status=403), HTML, json_lines()])
def test_a_rule_that_cannot_be_read_concerns_its_dataset_only(asking, stand_in, fault):
    half_way(stand_in, "M0", "M1", "M2")
    stand_in.answers["/rules/rule-M1"] = fault
    readings = asking().read({Did(f"lofar:M{n}") for n in range(3)}).readings
    assert [isinstance(readings[did], Seen) for did in sorted(readings)] == [True, False, True]


@pytest.mark.outside
@pytest.mark.parametrize("fault", [body("", status=500), body("", status=403), HTML])
def test_a_rule_that_cannot_be_read_again_ends_when_it_did(asking, stand_in, fault):
    soon = (system_clock() + timedelta(hours=1)).strftime("%a, %d %b %Y %H:%M:%S UTC")
    lock = {"scope": "lofar", "name": "L1", "rse": "UK-DISK", "state": "OK", "rule_id": "of-L1"}
    stand_in.answers["/locks/bulk_locks_for_dids"] = json_lines(lock)
    stand_in.answers["/rules/of-L1"] = json_lines({**RULE_ROW, "id": "of-L1", "expires_at": soon})
    catalogue = asking(verify_every=timedelta(0))
    assert catalogue.read({L1}).readings[L1].replicas[0].state is PARTIAL
    stand_in.answers["/rules/of-L1"] = fault
    assert catalogue.read({L1}).readings[L1].replicas[0].state is PARTIAL


@pytest.mark.outside
@pytest.mark.parametrize("size", [None, 0])
def test_a_count_without_bytes_takes_no_size_away(asking, stand_in, size):
    stand_in.answers["/replicas/lofar/L1/datasets"] = json_lines({**ROW, "name": "L1", "bytes": size})
    assert asking().read({L1}).readings[L1].bytes_total == 4000


@pytest.mark.outside
def test_all_rules_are_read_again_if_the_server_cannot_list_changes(asking, stand_in):
    half_way(stand_in, "M1")
    catalogue = asking(twins_every=None)
    did = Did("lofar:M1")
    changes = body("", status=500)
    good = stand_in.answers["/rules/"]
    stand_in.answers["/rules/"] = lambda request: (changes if "updated_after" in request.path else good)(
        request
    )
    for _ in range(3):
        assert catalogue.read({did}).readings[did].replicas[0].state == STAGING


def whole(stand_in: StandIn, *names: str) -> set[Did]:
    """Put the datasets *names* complete at UK-DISK, in the cheap and in the deep answer."""
    stand_in.holdings = {Did(f"lofar:{name}"): HERE for name in names}
    return set(stand_in.holdings)


def seen_of(catalogue: RucioCatalogue, dids: set[Did]) -> set[Did]:
    return {did for did, reading in catalogue.read(dids).readings.items() if isinstance(reading, Seen)}


def counted_at(stand_in: StandIn) -> list[str]:
    """Return the datasets that it counted since the last call, in order."""
    asked = [path.split("/")[3] for path in stand_in.asked if path.endswith("/datasets")]
    stand_in.asked.clear()
    return asked


@pytest.mark.outside
def test_what_is_due_to_be_counted_anew_stays_seen_while_the_budget_is_spent(asking, stand_in):
    dids = whole(stand_in, *(f"M{n}" for n in range(4)))
    catalogue = asking(twins_every=None, deep_calls=2, verify_every=timedelta(0))
    assert [len(seen_of(catalogue, dids)) for _ in range(3)] == [2, 4, 4]
    assert Counter(counted_at(stand_in)) == {"M0": 2, "M1": 2, "M2": 1, "M3": 1}


@pytest.mark.outside
def test_changed_datasets_are_counted_before_due_ones(asking, stand_in):
    dids = whole(stand_in, *(f"M{n}" for n in range(4)))
    catalogue = asking(twins_every=None, deep_calls=2, verify_every=timedelta(0))
    for _ in range(3):
        seen_of(catalogue, dids)
    counted_at(stand_in)  # M0 and M1 last, so that M2 and M3 are due
    rows = [row for did in sorted(dids) for row in stand_in._replicas(did)]
    rows[1]["updated_at"] = "Sat, 21 Nov 2026 13:00:00 UTC"
    stand_in.answers["/replicas/datasets_bulk"] = json_lines(*rows)
    assert seen_of(catalogue, dids) == dids
    assert counted_at(stand_in) == ["M1", "M2"]


@pytest.mark.outside
def test_a_tenth_of_the_budget_is_for_what_is_due_however_much_else_there_is_to_count(asking, stand_in):
    first = whole(stand_in, "A0", "A1")
    catalogue = asking(twins_every=None, deep_calls=10, verify_every=timedelta(0), calls_per_second=1000)
    assert seen_of(catalogue, first) == first
    dids = whole(stand_in, "A0", "A1", *(f"M{n:02}" for n in range(20)))
    counted_at(stand_in)
    assert len(seen_of(catalogue, dids)) == 2 + 9
    assert counted_at(stand_in)[0] == "A0"


@pytest.mark.outside
def test_a_dataset_that_a_job_missed_is_counted_in_the_next_poll(asking, stand_in):
    dids = whole(stand_in, *(f"M{n}" for n in range(4)))
    catalogue = asking(twins_every=None, verify_every=timedelta(hours=1))
    seen_of(catalogue, dids)
    counted_at(stand_in)
    catalogue.recount({Did("lofar:M2"), Did("lofar:nowhere")})
    assert [(seen_of(catalogue, dids), counted_at(stand_in)) for _ in range(2)] == [
        (dids, ["M2"]),
        (dids, []),
    ]


@pytest.mark.outside
def test_missed_datasets_get_half_of_the_budget_and_stay_seen_until_they_are_counted(asking, stand_in):
    dids = whole(stand_in, *(f"M{n}" for n in range(4)))
    catalogue = asking(twins_every=None, deep_calls=4, verify_every=timedelta(hours=1))
    seen_of(catalogue, dids)
    counted_at(stand_in)
    catalogue.recount(dids)
    assert [(seen_of(catalogue, dids), counted_at(stand_in)) for _ in range(3)] == [
        (dids, ["M0", "M1"]), (dids, ["M2", "M3"]), (dids, []),
    ]  # fmt: skip


def test_settings_do_not_show_the_password(tmp_path):
    settings = RucioSettings(
        name="r", url="http://r", account="a", password="a-secret-word", token_dir=tmp_path
    )
    assert "a-secret-word" not in repr(settings)


@pytest.mark.outside
def test_a_deleted_storage_element_has_no_site_and_is_not_queried(asking, stand_in):
    gone = {"rse": "UK-OLD", "rse_type": "DISK", "deleted": True}
    stand_in.answers["/rses/"] = json_lines({"rse": "UK-DISK", "rse_type": "DISK", "deleted": False}, gone)
    stand_in.answers["/replicas/lofar/L1/datasets"] = json_lines(ROW, {**ROW, "rse": "UK-OLD"})
    survey = asking(sites={"UK-OLD": "OLD"}).read({L1})
    assert (survey.sites, survey.unmapped_storages) == ({UK}, frozenset())
    assert [replica.site for replica in survey.readings[L1].replicas] == [UK]
