"""HTTP answers of the app, from a real server on loopback."""

import logging
import re
import signal
import socket
import threading
from dataclasses import replace
from urllib.parse import quote, unquote

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from hydrator import startd_cron
from hydrator.domain.ads.openings import Opening, write_openings
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import DatasetState, Fact, Site, SiteAd, SiteFacts, Snapshot, from_unix, to_unix
from hydrator.server.app import build_app
from hydrator.server.handlers import Sources
from hydrator.server.http_server import HttpServer
from hydrator.server.middleware import MAX_URL_BYTES
from hydrator.server.view import ServerState
from testbed.patience import wait_for
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, RAL, ad, demand, server_state, want

pytestmark = pytest.mark.outside

AWKWARD = Site("Žilina (CZ/2) 50% ad")


class Daemon:
    """A server whose view a test may swap, as the daemon does."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.forget()
        self.asgi = build_app(Sources(self.look), self.registry)
        self.server = HttpServer(self.asgi, "127.0.0.1", 0)

    def forget(self) -> None:
        self.broken = False
        self.view = server_state(
            ads={}, snapshot=Snapshot({}), demand=demand(), not_ready_reason=None, now=NOON
        )

    def look(self) -> ServerState:
        if self.broken:
            raise RuntimeError("a secret of the inside")
        return self.view

    def show(self, *ads: SiteAd, **changes) -> None:
        if ads:
            changes["ads"] = {a.site: a for a in ads}
        self.view = replace(self.view, **changes)

    def ask(self, path: str, method: str = "GET", **more) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=120) as client:
            return client.request(method, self.server.url + path, **more)

    def count(self, route: str, status: str) -> float:
        labels = {"route": route, "status": status}
        return self.registry.get_sample_value("hydrator_http_requests_total", labels) or 0.0


@pytest.fixture(scope="module")
def shared():
    made = Daemon()
    with made.server:
        yield made


@pytest.fixture
def daemon(shared):
    """One server for most tests, because stopping takes it a moment; what it shows is each test's own."""
    shared.forget()
    return shared


def path_of(site: str) -> str:
    return f"/v1/sites/{quote(site, safe='')}/ad"


def big_ad(site: Site = CAM, generation: int = 7) -> SiteAd:
    return ad(*(f"lofar:L{n}" for n in range(400)), site=site, generation=generation)


# the ad


def test_ad_route_returns_the_text_of_the_ad_with_its_generation_as_etag_and_its_age(daemon):
    daemon.show(ad(L1, generation=42))
    answer = daemon.ask(path_of(CAM))
    assert answer.status_code == 200
    assert answer.text == ad(L1, generation=42).text
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert re.fullmatch('"42-[0-9a-f]{8}"', answer.headers["ETag"])
    assert answer.headers["X-DataLocality-AsOf"] == str(to_unix(NOON))
    assert answer.headers["Cache-Control"] == "public, max-age=10, stale-if-error=86400"
    assert "X-DataLocality-OpenUntil" not in answer.headers


def test_hook_gets_other_openings_in_a_new_answer_and_a_later_end_in_a_304(daemon):
    settings, now = startd_cron.HookSettings(["--url", daemon.server.url], {}), to_unix(NOON)
    ends = (now + 300, now + 600)
    new = [
        replace(ad(L1), openings=write_openings({name: Opening(60, RAL, 9)}, 7), open_until=from_unix(end))
        for name, end in (("a:b~3", ends[0]), ("a:b~3", ends[1]), ("a:b", ends[1]))
    ]
    shown, answer, not_modified = [], None, daemon.count("/v1/sites/{site}/ad", "304")
    for each in new:
        daemon.show(each)
        answer = startd_cron.ask_daemon(settings, CAM, now, answer)
        shown.append((answer.ad["DataLocalityOpen"], answer.ad["DataLocalityOpenUntil"]))
    assert shown == [({"a:b~3": 60}, ends[0]), ({"a:b~3": 60}, ends[1]), ({"a:b": 60}, ends[1])]
    assert daemon.count("/v1/sites/{site}/ad", "304") == not_modified + 1


@pytest.mark.parametrize("given", ["{}", "W/{}", '"41", {}', "*"])
def test_an_unchanged_ad_is_304_with_its_new_age(daemon, given):
    daemon.show(ad(L1, generation=42))
    etag = daemon.ask(path_of(CAM)).headers["ETag"]
    daemon.show(ad(L1, generation=42, at=NOON + HOUR))
    answer = daemon.ask(path_of(CAM), headers={"If-None-Match": given.format(etag)})
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["X-DataLocality-AsOf"] == str(to_unix(NOON + HOUR))
    assert answer.headers["ETag"] == etag
    for other in ('"41"', "42", '"420"', ""):
        whole = daemon.ask(path_of(CAM), headers={"If-None-Match": other})
        assert (whole.status_code, f"DataLocalityAsOf = {to_unix(NOON + HOUR)}\n" in whole.text) == (
            200,
            True,
        )


@pytest.mark.parametrize("site", [AWKWARD, "UK", "a/b", "x/ad", "Orsay & co?", "çà#1", "semi;colon", "+plus"])
def test_a_site_may_have_any_name(daemon, site):
    daemon.show(ad(L1, site=Site(site)))
    assert daemon.ask(path_of(site)).text == ad(L1, site=Site(site)).text


def test_ad_route_gzips_a_large_ad_for_clients_that_accept_gzip(daemon):
    daemon.show(big_ad())
    answer = daemon.ask(path_of(CAM), headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert int(answer.headers["Content-Length"]) < len(big_ad().text) / 3
    assert answer.text == big_ad().text


@pytest.mark.parametrize("refusing", ["identity", "gzip;q=0", "br", "*;q=0.0", ""])
def test_ad_route_sends_no_gzip_to_clients_that_do_not_accept_it(daemon, refusing):
    daemon.show(big_ad())
    answer = daemon.ask(path_of(CAM), headers={"Accept-Encoding": refusing})
    assert "Content-Encoding" not in answer.headers
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert answer.text == big_ad().text


def test_head_is_get_without_the_body(daemon):
    daemon.show(big_ad())
    got, head = (daemon.ask(path_of(CAM), method) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (200, b"")
    same = ("ETag", "X-DataLocality-AsOf", "Content-Length", "Cache-Control", "Content-Encoding")
    assert {name: head.headers[name] for name in same} == {name: got.headers[name] for name in same}


def test_unknown_site_is_404_and_lists_similar_sites(daemon):
    daemon.show(ad(site=Site("UKI-RAL")), ad(site=Site("UKI-GLASGOW")), ad(site=Site("AU")))
    answer = daemon.ask(path_of("uki-ral "))
    assert answer.status_code == 404
    assert answer.json()["error"] == "unknown site"
    assert "did you mean 'UKI-RAL', 'UKI-GLASGOW'?" in answer.json()["detail"]
    assert "UKI-RAL" in answer.json()["detail"]


def test_a_withdrawn_site_is_not_served_from_memory(daemon):
    daemon.show(ad(L1), ad(L2, site=RAL))
    daemon.ask(path_of(CAM))
    daemon.show(ad(L2, site=RAL))
    assert daemon.ask(path_of(CAM)).status_code == 404


# programs


def test_sites_route_shows_generation_age_and_time_of_publication(daemon):
    daemon.show(ad(L1, generation=5, at=NOON - MINUTE), ad(site=AWKWARD), published_at={CAM: NOON - HOUR})
    rows = {row["site"]: row for row in daemon.ask("/v1/sites").json()["sites"]}
    assert rows[CAM]["generation"] == 5
    assert rows[CAM]["as_of"] == to_unix(NOON - MINUTE)
    assert rows[CAM]["published_at"] == to_unix(NOON - HOUR)
    assert rows[AWKWARD]["published_at"] == to_unix(NOON)
    content = daemon.ask("/v1/sites").content.decode()
    assert (content.endswith("}\n"), AWKWARD in content) == (True, True), "names keep their accents"
    assert daemon.ask(path_of(AWKWARD)).text == ad(site=AWKWARD).text


def with_facts(daemon: Daemon) -> None:
    facts = {
        CAM: SiteFacts(NOON, {L1: Fact(DatasetState.AVAILABLE, NOON)}),
        RAL: SiteFacts(NOON, {L1: Fact(DatasetState.STAGING, NOON - HOUR, 0.25)}),
    }
    snapshot = Snapshot(facts, unseen_reasons={L2: "timeout"}, bytes_total={L1: 9})
    daemon.view = server_state({}, snapshot, demand(want(L1, L2, jobs=3), want(L1, jobs=4)))


def test_datasets_route_shows_the_sites_of_a_dataset_with_state_and_age(daemon):
    with_facts(daemon)
    (row,) = daemon.ask("/v1/datasets", params={"did": L1}).json()["datasets"]
    assert (row["did"], row["demanded"], row["jobs"], row["bytes"]) == (L1, True, 7, 9)
    assert row["sites"] == [
        {"site": CAM, "state": "AVAILABLE", "fraction": None, "as_of": to_unix(NOON), "provenance": {}},
        {"site": RAL, "state": "STAGING", "fraction": 0.25, "as_of": to_unix(NOON - HOUR), "provenance": {}},
    ]


def test_each_named_dataset_is_answered_once(daemon):
    with_facts(daemon)
    rows = daemon.ask(f"/v1/datasets?did={L3}&did={L2}&did={L1}&did={L1}").json()["datasets"]
    found = [(row["did"], row["demanded"], row["unseen"]) for row in rows]
    assert found == [(L1, True, None), (L2, True, "timeout"), (L3, False, None)]
    many = daemon.ask("/v1/datasets?" + "&".join(f"did=a:{number}" for number in range(700))).json()
    assert len(many["datasets"]) == 700


@pytest.mark.parametrize("written", ["a:b+c/d", "a%3Ab%2Bc%2Fd", "a:" + "x" * 498])
def test_a_plus_or_slash_in_a_did_means_itself_and_500_characters_are_fine(daemon, written):
    assert daemon.ask(f"/v1/datasets?did={written}").json()["datasets"][0]["did"] == unquote(written)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("did=noscope", "it has no scope"),
        ("did=", "is not a DID"),
        ("did=a:b%20c", "use letters, digits"),
        ("did=a:%C3%A9%00", "use letters, digits"),
        ("did=a:" + "x" * 600, "500 are allowed"),
        ("dids=a:b", "unknown parameter 'dids'"),
        ("x", "unknown parameter 'x'"),
        ("", "name the datasets"),
    ],
)
def test_a_bad_question_is_400_with_one_sentence(daemon, query, told):
    answer = daemon.ask(f"/v1/datasets?{query}")
    assert answer.status_code == 400
    assert told in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]


# health


def test_readyz_is_200_once_a_complete_state_exists(daemon):
    assert daemon.ask("/readyz").json() == {"ready": True}
    daemon.show(ad(L1), not_ready_reason="no catalogue has been read yet")
    assert daemon.ask("/healthz").json() == {"status": "ok"}
    assert daemon.ask(path_of(CAM)).status_code == 200
    answer = daemon.ask("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"error": "not ready", "detail": "no catalogue has been read yet"}


def test_a_daemon_that_hangs_is_not_healthy_and_says_why(daemon):
    daemon.show(hang_reason="nothing went on for 700 s")
    answer = daemon.ask("/healthz")
    assert answer.status_code == 503
    assert answer.json() == {"error": "hung", "detail": "nothing went on for 700 s"}


def test_metrics_count_routes_and_never_raw_paths():
    daemon = Daemon()
    daemon.show(ad(L1))
    with daemon.server:
        for path in (path_of(CAM), path_of("secret-site"), "/v1/nonsense", "/v1/sites/"):
            daemon.ask(path)
        daemon.ask("/v1/sites", "POST")
        text = daemon.ask("/metrics", headers={"Accept": "text/plain"}).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    counted = {
        (s.labels["route"], s.labels["status"]): s.value
        for s in families["hydrator_http_requests"].samples
        if s.name.endswith("_total") and s.value
    }
    assert counted == {
        ("/v1/sites/{site}/ad", "200"): 1,
        ("/v1/sites/{site}/ad", "404"): 1,
        ("other", "404"): 2,
        ("/v1/sites", "405"): 1,
    }
    assert "secret-site" not in text


# refusals


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/v1/sites", "/v1/sites/CAM/ad", "/v1/datasets", "/metrics"])
def test_nothing_can_be_changed(daemon, method, path):
    daemon.show(ad(L1))
    answer = daemon.ask(path, method)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert answer.json()["error"] == "method not allowed"


@pytest.mark.parametrize(
    "path", ["/nonsense", "/v1", "/v1/sites/", "/v1/sites/CAM", "/..%2f..%2fetc/passwd", "//"]
)
def test_unknown_path_is_404_as_json(daemon, path):
    answer = daemon.ask(path)
    assert (answer.status_code, answer.json()["error"]) == (404, "not found")
    assert answer.json()["detail"].startswith("no such path; try /, ")


def test_a_bug_is_500_without_its_traceback(daemon, caplog):
    before = daemon.count("/v1/sites", "500")
    daemon.broken = True
    with caplog.at_level(logging.ERROR):
        for path in ("/", "/v1/sites", path_of(CAM), "/readyz"):
            answer = daemon.ask(path)
            assert (answer.status_code, answer.json()["error"]) == (500, "internal error")
            assert "secret" not in answer.text
        wait_for(lambda: "a secret of the inside" in caplog.text, "the log, written after the answer")
    assert daemon.count("/v1/sites", "500") == before + 1
    daemon.broken = False
    assert daemon.ask("/healthz").status_code == 200


def test_a_url_beyond_the_limit_is_414(daemon):
    fits = "/v1/datasets?did=a:b".ljust(MAX_URL_BYTES, "&")
    assert daemon.ask(fits).status_code == 200
    assert daemon.ask(fits + "&").json()["error"] == "URL too long"


@pytest.mark.parametrize(
    "path", ["/", "/v1/sites", "/v1/sites/CAM/ad", "/nonsense", "/metrics", "/v1/datasets?x"]
)
def test_every_answer_carries_the_security_headers(daemon, path):
    daemon.show(ad(L1))
    headers = daemon.ask(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert "server" not in headers


# the server


def test_a_stopped_server_does_not_answer_and_can_start_again():
    daemon = Daemon()
    assert daemon.server.url is None
    daemon.server.stop()
    with daemon.server:
        url = daemon.server.url
        assert re.fullmatch(r"http://127\.0\.0\.1:[1-9][0-9]*", url)
    assert daemon.server.url is None
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", trust_env=False, timeout=120)
    with daemon.server:
        assert daemon.ask("/healthz").status_code == 200


def test_a_client_that_never_finishes_does_not_hold_up_the_end():
    daemon = Daemon()
    before = set(threading.enumerate())
    daemon.server.start()
    host, port = daemon.server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=120) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n")
        assert daemon.ask("/healthz").status_code == 200
        daemon.server.stop()
    wait_for(lambda: set(threading.enumerate()) <= before, "the server's threads to end")


def test_an_address_in_use_is_one_clear_sentence(daemon):
    port = int(daemon.server.url.rsplit(":", 1)[1])
    with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
        HttpServer(daemon.asgi, "127.0.0.1", port).start()


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.1", 0), ("no such host", 0), ("127.0.0.1", 70000), ("::zz", 80), ("", -1)]
)
def test_a_bad_address_is_one_clear_sentence(daemon, host, port):
    with pytest.raises(ConfigError) as raised:
        HttpServer(daemon.asgi, host, port).start()
    assert len(raised.value.problems) == 1
    assert raised.value.problems[0].startswith("http: ")


def test_a_server_on_all_addresses_gives_the_loopback_one():
    daemon = Daemon()
    daemon.server = HttpServer(daemon.asgi, "0.0.0.0", 0)
    with daemon.server:
        assert daemon.server.url.startswith("http://127.0.0.1:")
        assert daemon.ask("/healthz").status_code == 200


def test_the_server_prints_nothing_and_leaves_signal_handlers_alone(capfd):
    def handlers():
        return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]

    daemon, before = Daemon(), handlers()
    with daemon.server:
        assert handlers() == before
        daemon.ask("/healthz")
        daemon.ask("/nonsense")
    assert capfd.readouterr() == ("", "")
