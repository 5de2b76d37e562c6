"""DMAPI catalogue: recorded answers, inferred ones, and the service's bad habits (on a stand-in)."""

import json
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from adapters.http.client import JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings, TokenFile
from adapters.ska import dmapi_responses as rows
from hydrator.domain.errors import CatalogueDenied, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import DatasetState, Did, Seen, Unseen
from testbed.dmapi_standin import CLIENT, SECRET, DmapiStandIn
from tests.contracts.test_dmapi_catalogue import FAST, ONCE, dmapi
from tests.factories import HOUR, MINUTE, NOON, jwt

L1, L2 = Did("testing:L1"), Did("testing:L2")
AVAILABLE, PARTIAL = DatasetState.AVAILABLE, DatasetState.PARTIAL
UNAVAILABLE = DatasetState.UNAVAILABLE
RECORDED_2025 = [
    {
        "identifier": "SPSRC_STORM",
        "associated_storage_area_id": "dcbae756-21a9-4787-bff2-2af3b7bfa1b0",
        "replicas": [
            "davs://rucio.espsrc.iaa.csic.es:443/disk/dev/deterministic/testing/bd/0c/zrq-test-20250507-024944"
        ],
    }
]


@pytest.fixture
def standin():
    made = DmapiStandIn()
    made.add_area("ESPSRC", "SPSRC_STORM")
    made.add_area("UKSRC CAM", "CAM-T0")
    return made


@pytest.fixture
def opened(standin, tmp_path):
    made = []

    def make(**changes):
        made.append(dmapi(standin, tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def read_replicas(catalogue, did=L1):
    reading = catalogue.read({did}).readings[did]
    assert isinstance(reading, Seen), reading
    return {(r.site, r.state, r.fraction) for r in reading.replicas}


# what was recorded


def test_recorded_2025_a_list_without_is_dataset_is_read():
    (one,), longest = rows.parse_locations(RECORDED_2025)
    assert (one.storage, one.is_dataset, longest) == ("SPSRC_STORM", None, 1)
    assert one.file_count == 1
    assert rows.file_name(RECORDED_2025[0]["replicas"][0]) == "zrq-test-20250507-024944"


@pytest.mark.parametrize("shape", ["2024", "2025", "2026"])
def test_recorded_forms_all_give_the_same_locations(standin, opened, shape):
    standin.habits.shape = shape
    standin.put(L1, 4, {"SPSRC_STORM": 4, "CAM-T0": 1})
    assert read_replicas(opened()) == {("ESPSRC", AVAILABLE, 1.0), ("UKSRC CAM", PARTIAL, 0.25)}


@pytest.mark.parametrize(
    ("second", "whole"), [(range(2, 4), True), (range(1, 4), True), (range(2), False), (range(1, 3), False)]
)
def test_files_at_two_storage_elements_of_a_site_count_together(standin, opened, second, whole):
    standin.put(L1, 4, {"SPSRC_STORM": 2, "CAM-T0": second})
    catalogue = opened(storage_sites={"SPSRC_STORM": ("UKSRC CAM",)})
    found = catalogue.read({L1}).readings[L1].replicas
    assert ((AVAILABLE, 1.0) in {(r.state, r.fraction) for r in found}) == whole
    assert catalogue.read({L1}).readings[L1].replicas == found
    if whole:
        assert "4 of the dataset's 4 files are on disk" in found[0].provenance.reason
    assert not any(r.state is AVAILABLE for r in opened().read({L1}).readings[L1].replicas)


def test_recorded_the_order_is_shuffled_and_the_answer_is_not(standin, opened):
    standin.put(L1, 4, {"SPSRC_STORM": 4, "CAM-T0": 4})
    catalogue = opened()
    answers = {catalogue.read({L1}).readings[L1] for _ in range(8)}
    assert len(answers) == 1


def test_recorded_an_unknown_did_is_a_nested_404_and_has_no_replica(standin, opened):
    assert read_replicas(opened()) == set()
    standin.habits.unknown_is_empty = True
    assert read_replicas(opened()) == set()


def client_with(who, standin):
    """Return a client of the stand-in's DMAPI with a token for *who*."""
    token = ClientCredentials("dmapi", who, lambda: NOON, transport=standin.transport)
    return JsonClient("dmapi", standin.url, token_source=token, limits=FAST, transport=standin.transport)


def _who(standin, folder):
    (folder / "own-secret").write_text(SECRET)
    return ClientSettings(standin.token_url, CLIENT, folder / "own-secret", "data-management-api", "openid")


def test_recorded_a_namespace_that_is_denied_is_unseen_and_the_others_are_read(standin, opened):
    standin.put(L1, 1, {"SPSRC_STORM": 1})
    other = Did("daac:L1")
    standin.put(other, 1, {"SPSRC_STORM": 1})
    standin.habits.denied = {"daac"}
    readings = opened().read({L1, other}).readings
    assert isinstance(readings[L1], Seen)
    assert readings[other] == Unseen("You do not have permission to access this resource. (status 403)")
    with pytest.raises(CatalogueDenied):
        opened().read({other})


def test_recorded_a_token_for_another_audience_is_denied_with_its_words(standin, opened, tmp_path):
    who = replace(_who(standin, tmp_path), audience="site-capabilities-api")
    server = client_with(who, standin)
    with pytest.raises(CatalogueDenied, match="audience"):
        server.get("/data/list")
    server.close()


def test_recorded_tokens_that_expire_in_mid_poll_are_renewed(standin, opened):
    times = iter([NOON + n * MINUTE for n in range(1000)])
    catalogue = opened(clock=lambda: next(times))
    standin.put(L1, 1, {"SPSRC_STORM": 1})
    assert len(read_replicas(catalogue)) == 1
    standin.expire_tokens()
    assert len(read_replicas(catalogue)) == 1


def test_recorded_names_with_slashes_go_into_the_path_as_they_are(standin, opened):
    did = Did("srcnet_test.comm:eb_001.prod_001/PTF10tce.fits")
    standin.put(did, 1, {"SPSRC_STORM": 1}, kind="FILE")
    assert read_replicas(opened(), did) == {("ESPSRC", AVAILABLE, 1.0)}
    assert any(
        call.endswith("/data/locate/srcnet_test.comm/eb_001.prod_001/PTF10tce.fits") for call in standin.calls
    )


# completeness, which DMAPI does not know


def test_a_file_is_complete_where_it_is_and_needs_no_metadata(standin, opened):
    standin.put(L1, 1, {"SPSRC_STORM": 1}, kind="FILE")
    assert read_replicas(opened()) == {("ESPSRC", AVAILABLE, 1.0)}
    assert not any("/metadata/" in call for call in standin.calls)


def test_the_same_file_under_two_protocols_counts_once():
    path = "testing/bd/0c/x.ms/ANTENNA/table.dat"
    urls = [f"davs://a.example.org:1094/disk/{path}", f"https://a.example.org:443/{path}"]
    (one,), _ = rows.parse_locations([{"identifier": "A", "replicas": urls}])
    assert one.file_count == 1
    assert {rows.file_name(url) for url in urls} == {"x.ms/ANTENNA/table.dat"}


@pytest.mark.parametrize(
    ("kind", "settings", "state", "reason"),
    [
        ({"is_open": True}, {"bare_location": PARTIAL}, PARTIAL, "an open dataset cannot be counted"),
        ({"is_open": True}, {"bare_location": AVAILABLE}, AVAILABLE, "an open dataset cannot be counted"),
        ({"kind": "CONTAINER"}, {}, PARTIAL, "a container cannot be counted"),
    ],
)
def test_an_uncounted_location_has_the_configured_state(standin, opened, kind, settings, state, reason):
    standin.put(L1, 4, {"SPSRC_STORM": 4}, **kind)
    [one] = opened(**settings).read({L1}).readings[L1].replicas
    assert (one.site, one.state, one.fraction, one.provenance.reason) == ("ESPSRC", state, None, reason)


def test_an_uncounted_location_may_make_its_site_unreachable(standin, opened):
    standin.put(L1, 4, {"SPSRC_STORM": 4}, is_open=True)
    reading = opened(bare_location=None).read({L1}).readings[L1]
    assert (reading.replicas, reading.unreachable_sites) == ((), {"ESPSRC"})


def test_more_files_at_a_location_than_in_the_dataset_is_an_error(standin, opened):
    standin.put(L1, 4, {"SPSRC_STORM": 5})
    standin.put(L2, 4, {"SPSRC_STORM": 4})
    assert "has 4 files, and 5" in opened().read({L1, L2}).readings[L1].reason


def test_the_size_of_a_closed_dataset_is_cached(standin, opened):
    times = [NOON]
    catalogue = opened(clock=lambda: times[0])
    standin.put(L1, 4, {"SPSRC_STORM": 4})
    for later in (NOON, NOON + MINUTE, NOON + 2 * HOUR):
        times[0] = later
        assert read_replicas(catalogue) == {("ESPSRC", AVAILABLE, 1.0)}
    assert sum("/metadata/" in call for call in standin.calls) == 2


def test_each_fact_has_its_reason_as_provenance(standin, opened):
    standin.put(L1, 4, {"SPSRC_STORM": 1})
    standin.put(L2, 1, {"CAM-T0": 1}, kind="FILE")
    readings = opened().read({L1, L2}).readings
    reasons = {r.storage: r.provenance.reason for did in (L1, L2) for r in readings[did].replicas}
    assert reasons == {
        "SPSRC_STORM": "1 of 4 files, by GET /metadata",
        "CAM-T0": "a single file is complete where it is",
    }


# never empty for an error


def test_an_answer_that_was_cut_short_makes_the_dataset_unseen(standin, opened):
    standin.put(L1, 8, {"SPSRC_STORM": 8})
    standin.put(L2, 1, {"SPSRC_STORM": 1})
    reading = opened(limit=5).read({L1, L2}).readings[L1]
    assert "is incomplete" in reading.reason


def test_a_server_with_a_smaller_limit_never_makes_a_dataset_complete(standin, opened):
    standin.habits.cut_at = 3
    standin.put(L1, 8, {"SPSRC_STORM": 8})
    assert read_replicas(opened()) == {("ESPSRC", PARTIAL, 0.375)}


def test_an_answer_with_a_next_page_counts_as_cut_short(standin, opened):
    standin.put(L1, 1, {"SPSRC_STORM": 1})
    standin.habits.next_page = True
    with pytest.raises(CatalogueGarbled, match="not a complete list"):
        opened().read({L1})
    with pytest.raises(CatalogueGarbled, match="incomplete"):
        opened(capabilities=False).read({L1})


def test_a_web_page_of_the_ingress_is_a_garbled_answer(standin, opened):
    standin.habits.html = True
    with pytest.raises(CatalogueGarbled, match="not JSON"):
        opened(capabilities=False).read({L1})


def test_a_404_that_is_not_rucios_is_a_wrong_address_and_never_absence(standin, opened):
    standin.put(L1, 1, {"SPSRC_STORM": 1})
    assert rows.is_absent('response: {"ExceptionClass": "DataIdentifierNotFound"}')
    assert not rows.is_absent("Not Found")
    standin.habits.status = 404
    with pytest.raises(CatalogueGarbled, match="check url"):
        opened(capabilities=False).read({L1})


@pytest.mark.parametrize("habit", ["lost", "no_metadata"])
def test_a_dataset_that_fails_is_unseen_rather_than_partial_and_leaves_the_others_seen(
    standin, opened, habit
):
    for did in (L1, L2):
        standin.put(did, 4, {"SPSRC_STORM": 4})
    setattr(standin.habits, habit, {L1})
    readings = opened().read({L1, L2}).readings
    assert isinstance(readings[L1], Unseen)
    assert isinstance(readings[L2], Seen)


def test_a_name_that_would_leave_its_url_path_is_never_sent(standin, opened):
    odd = Did("testing:../../secrets")
    standin.put(L1, 1, {"SPSRC_STORM": 1})
    assert isinstance(opened().read({odd, L1}).readings[odd], Unseen)
    assert not any("secrets" in call for call in standin.calls)


def test_a_listing_is_queried_only_if_its_path_is_configured(standin, opened):
    with pytest.raises(CatalogueUnreachable, match="set list_path"):
        opened(list_path="").find(["*"])


# the rest of HTTP


def answering(*answers, limits=FAST, **more):
    queue = list(answers)

    def handle(request):
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return JsonClient(
        "dmapi", "https://dm.example.org", limits=limits, transport=httpx.MockTransport(handle), **more
    )


@pytest.mark.outside
def test_a_busy_server_is_queried_again_and_then_reported():
    busy = httpx.Response(503, text="later")
    assert answering(busy, httpx.Response(200, json=["a"])).get("/x").body == ["a"]
    with pytest.raises(CatalogueUnreachable, match="later"):
        answering(busy).get("/x")


def test_a_pause_longer_than_the_query_ends_it_at_once():
    """End the query without a sleep: a sleep of an hour would delay the test."""
    asked = []

    def handle(request):
        asked.append(request)
        return httpx.Response(429, headers={"Retry-After": "3600"}, text="not now")

    now = [0.0]
    server = JsonClient(
        "dmapi", "https://dm.example.org", limits=FAST, transport=httpx.MockTransport(handle),
        monotonic=lambda: now[0],
    )  # fmt: skip
    with pytest.raises(CatalogueUnreachable, match="not now"):
        server.get("/x")
    now[0] += 119 - FAST.deadline.total_seconds()
    with pytest.raises(CatalogueUnreachable, match="asked for a pause"):
        server.get("/x")
    assert len(asked) == 1
    now[0] += 120
    with pytest.raises(CatalogueUnreachable, match="not now"):
        server.get("/x")
    assert len(asked) == 2


@pytest.mark.parametrize(
    "error",
    [httpx.ConnectError("refused"), httpx.ReadTimeout(""), httpx.RemoteProtocolError("cut"),
     httpx.DecodingError("gzip")],
)  # fmt: skip
def test_a_failed_connection_is_unreachable(error):
    with pytest.raises(CatalogueUnreachable):
        answering(error, limits=ONCE).get("/x")


def test_a_redirect_does_not_get_the_token():
    with pytest.raises(CatalogueUnreachable, match="302"):
        answering(httpx.Response(302, headers={"location": "https://elsewhere.example.org"})).get("/x")


def test_errors_hide_tokens_that_a_service_repeats():
    words = {"detail": "for url: https://papi/x?token=abc123&y=1 eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.sig"}
    with pytest.raises(CatalogueDenied) as failure:
        answering(httpx.Response(403, json=words)).get("/x")
    assert "abc123" not in str(failure.value)
    assert "eyJ" not in str(failure.value)


# tokens


def credentials(tmp_path, answer, clock=lambda: NOON):
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    asked = []

    def handle(request):
        asked.append(request)
        return answer(len(asked))

    who = ClientSettings("https://iam.example.org/token", "me", secret, "data-management-api", "openid")
    return ClientCredentials("dmapi", who, clock, limits=FAST, transport=httpx.MockTransport(handle)), asked


@pytest.mark.parametrize(
    ("answer", "renewed"),
    [
        ({"access_token": "t", "expires_in": 600}, 480),
        ({"access_token": jwt({"exp": int(NOON.timestamp()) + 100})}, 80),
        ({"access_token": "t"}, 480),
    ],
    ids=["an answer with its lifetime", "with its own expiry", "as one of ten minutes, without an end"],
)
def test_a_token_is_requested_for_its_audience_and_renewed_before_its_end(tmp_path, answer, renewed):
    now = NOON
    bearer, asked = credentials(tmp_path, lambda _: httpx.Response(200, json=answer), lambda: now)
    for seconds, requests in ((0, 1), (0, 1), (renewed - 1, 1), (renewed, 2)):
        now = NOON + timedelta(seconds=seconds)
        assert bearer.token() == answer["access_token"]
        assert len(asked) == requests
    form = asked[0].content.decode()
    assert "grant_type=client_credentials" in form
    assert "audience=data-management-api" in form
    assert asked[0].headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize("status", [400, 401])
def test_a_refused_client_is_denied_and_the_error_hides_its_secret(tmp_path, status):
    bearer, _ = credentials(tmp_path, lambda _: httpx.Response(status, json={"error": "invalid_client"}))
    with pytest.raises(CatalogueDenied, match="invalid_client") as failure:
        bearer.token()
    assert "hush" not in f"{failure.value} {bearer!r} {bearer.__dict__}"


def test_a_token_file_is_read_again(tmp_path):
    file = tmp_path / "token"
    bearer = TokenFile("dmapi", file)
    with pytest.raises(CatalogueDenied, match="No such file"):
        bearer.token()
    file.write_text("one\n")
    assert bearer.token() == "one"
    file.write_text("two\n")
    assert bearer.token() == "two"


@pytest.mark.parametrize(("newest", "asked"), [("one", ["one"]), ("two", ["one", "two"])])
def test_a_refused_token_is_tried_again_only_if_there_is_a_newer_one(tmp_path, newest, asked):
    file = tmp_path / "token"
    file.write_text("one")
    sent = []

    def refuse(request):
        sent.append(request.headers["authorization"].removeprefix("Bearer "))
        file.write_text(newest)
        return httpx.Response(401, json={"detail": "for another audience"})

    server = JsonClient(
        "dmapi",
        "https://dmapi.example.org",
        token_source=TokenFile("dmapi", file),
        transport=httpx.MockTransport(refuse),
    )
    with pytest.raises(CatalogueDenied, match="for another audience"):
        server.get("/x")
    assert sent == asked


@pytest.mark.parametrize("token", ["absent", "", "two words", "a\nb", "\ud800", "\u00e9", 7, "x" * 100_001])
def test_a_token_that_no_header_can_carry_is_refused(tmp_path, token):
    body = json.dumps({"access_token": token} if token != "absent" else {})
    bearer, _ = credentials(tmp_path, lambda _: httpx.Response(200, text=body))
    with pytest.raises(CatalogueGarbled, match="has no valid access_token"):
        bearer.token()
