"""A Rucio server that misbehaves, and the budget of its queries (on a stand-in)."""

import ast
import json
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import DatasetState, Did, Seen, Site, Unseen
from testbed.loopback import LoopbackRequest
from testbed.rucio_standin import RucioStandIn
from tests.factories import L1, L2
from tests.memory import system_clock
from tests.unit.adapters.rucio.test_states import ROW, RULE_ROW

pytestmark = pytest.mark.outside

UK = Site("UK")
AVAILABLE, STAGING, PARTIAL = DatasetState.AVAILABLE, DatasetState.STAGING, DatasetState.PARTIAL
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


@pytest.mark.parametrize(
    ("path", "text"),
    [(p, t) for p in EVERYWHERE[1:] for t in NONSENSE if not (p.endswith("/attr/") and t in RECORDS)],
)
def test_a_server_with_unreadable_answers_is_garbled(asking, stand_in, path, text):
    stand_in.answers[path] = body(text + "\n", "application/x-json-stream")
    with fails_as(CatalogueGarbled):
        asking().read({L1})


def test_a_server_without_storage_elements_is_an_error(asking, stand_in):
    stand_in.answers["/rses/"] = json_lines()
    with fails_as(CatalogueGarbled, "storage elements"):
        asking().read(frozenset())


def test_a_query_is_repeated_after_a_503(asking, stand_in):
    left = [body("", status=503)] * 2

    def recovers(request):
        return left.pop()(request) if left else stand_in.reply_itself(request)

    stand_in.answers["/rses/"] = recovers
    assert asking().read(frozenset()).sites == {UK}
    stand_in.answers["/rses/"] = body("", status=503)
    with fails_as(CatalogueUnreachable, "503"):
        asking().read(frozenset())


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


def test_a_batch_refused_in_the_middle_leaves_what_was_seen(asking, stand_in):
    path = "/replicas/lofar/L2/datasets"
    stand_in.answers[path] = body("", status=429, Retry_After="300")
    readings = asking().read({L1, L2}).readings
    assert [type(readings[did]) for did in (L1, L2)] == [Seen, Unseen]


def test_a_server_that_fails_for_every_name_gets_few_queries(asking, stand_in):
    stand_in.answers["/dids/bulkmeta"] = body("", status=500)
    with fails_as(CatalogueUnreachable):
        asking().read({Did(f"lofar:L{n}") for n in range(1000)})
    assert len(stand_in.asked) < 200


def test_a_name_that_the_bulk_answer_leaves_out_is_absent_only_after_a_404(asking, stand_in):
    stand_in.holdings = {}
    assert asking().read({L1}).readings[L1].replicas == ()
    assert "/dids/lofar/L1" in stand_in.asked
    stand_in.answers["/dids/lofar/L1"] = body("", status=500)
    with fails_as(CatalogueUnreachable):
        asking().read({L1})


def test_data_at_an_unlisted_element_makes_the_dataset_unseen(asking, stand_in):
    stand_in.answers["/replicas/lofar/L1/datasets"] = json_lines({**ROW, "rse": "NEW"})
    readings = asking().read({L1, L2}).readings
    assert "NEW" in readings[L1].reason
    assert isinstance(readings[L2], Seen)


def test_a_site_once_known_outlives_a_failing_attribute_call(asking, stand_in):
    catalogue = asking(attributes_every=timedelta(0))
    assert catalogue.read(frozenset()).sites == {UK}
    stand_in.answers["/rses/UK-DISK/attr/"] = body("", status=500)
    assert catalogue.read(frozenset()).sites == {UK}


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


def test_readings_are_valid_without_a_search_for_case_variants(asking, stand_in):
    stand_in.answers["/scopes/"] = body("", status=500)
    reading = asking().read({L1}).readings[L1]
    assert (reading.replicas[0].state, reading.case_variants) == (AVAILABLE, frozenset())


@pytest.mark.parametrize("path", ["/scopes/", "/dids/lofar/dids/search"])
def test_find_returns_all_matches_or_fails(asking, stand_in, path):
    assert asking().find(["lofar:L*"]) == {L1, L2}
    for fault, kind in (body("", status=500), CatalogueUnreachable), (HTML, CatalogueGarbled):
        stand_in.answers[path] = fault
        with fails_as(kind):
            asking().find(["lofar:L*"])


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


@pytest.mark.parametrize("fault", [body("", status=500), body("", status=403), HTML, json_lines()])
def test_a_rule_that_cannot_be_read_concerns_its_dataset_only(asking, stand_in, fault):
    half_way(stand_in, "M0", "M1", "M2")
    stand_in.answers["/rules/rule-M1"] = fault
    readings = asking().read({Did(f"lofar:M{n}") for n in range(3)}).readings
    assert [isinstance(readings[did], Seen) for did in sorted(readings)] == [True, False, True]


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


@pytest.mark.parametrize("size", [None, 0])
def test_a_count_without_bytes_takes_no_size_away(asking, stand_in, size):
    stand_in.answers["/replicas/lofar/L1/datasets"] = json_lines({**ROW, "name": "L1", "bytes": size})
    assert asking().read({L1}).readings[L1].bytes_total == 4000


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


def test_what_is_due_to_be_counted_anew_stays_seen_while_the_budget_is_spent(asking, stand_in):
    dids = whole(stand_in, *(f"M{n}" for n in range(4)))
    catalogue = asking(twins_every=None, deep_calls=2, verify_every=timedelta(0))
    assert [len(seen_of(catalogue, dids)) for _ in range(3)] == [2, 4, 4]
    assert Counter(counted_at(stand_in)) == {"M0": 2, "M1": 2, "M2": 1, "M3": 1}


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


def test_a_tenth_of_the_budget_is_for_what_is_due_however_much_else_there_is_to_count(asking, stand_in):
    first = whole(stand_in, "A0", "A1")
    catalogue = asking(twins_every=None, deep_calls=10, verify_every=timedelta(0), calls_per_second=1000)
    assert seen_of(catalogue, first) == first
    dids = whole(stand_in, "A0", "A1", *(f"M{n:02}" for n in range(20)))
    counted_at(stand_in)
    assert len(seen_of(catalogue, dids)) == 2 + 9
    assert counted_at(stand_in)[0] == "A0"


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


def test_missed_datasets_get_half_of_the_budget_and_stay_seen_until_they_are_counted(asking, stand_in):
    dids = whole(stand_in, *(f"M{n}" for n in range(4)))
    catalogue = asking(twins_every=None, deep_calls=4, verify_every=timedelta(hours=1))
    seen_of(catalogue, dids)
    counted_at(stand_in)
    catalogue.recount(dids)
    assert [(seen_of(catalogue, dids), counted_at(stand_in)) for _ in range(3)] == [
        (dids, ["M0", "M1"]), (dids, ["M2", "M3"]), (dids, []),
    ]  # fmt: skip


def test_a_deleted_storage_element_has_no_site_and_is_not_queried(asking, stand_in):
    gone = {"rse": "UK-OLD", "rse_type": "DISK", "deleted": True}
    stand_in.answers["/rses/"] = json_lines({"rse": "UK-DISK", "rse_type": "DISK", "deleted": False}, gone)
    stand_in.answers["/replicas/lofar/L1/datasets"] = json_lines(ROW, {**ROW, "rse": "UK-OLD"})
    survey = asking(sites={"UK-OLD": "OLD"}).read({L1})
    assert (survey.sites, survey.unmapped_storages) == ({UK}, frozenset())
    assert [replica.site for replica in survey.readings[L1].replicas] == [UK]
