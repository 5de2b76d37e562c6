"""Limits of one client of the HTTP server: requests, connections, time; a real server on loopback."""

import asyncio
import socket
from contextlib import suppress

import httpx
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from hydrator.config import HttpServerSettings
from hydrator.domain.model import Snapshot
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from hydrator.server.handlers import Sources
from hydrator.server.http_server import HttpServer, TlsCertificate
from hydrator.server.limits import MAX_CLIENTS, MAX_HEAD_BYTES, ConnectionLimiter, RateLimiter
from hydrator.server.middleware import RequestPolicy
from hydrator.wiring.http import build_http_server
from testbed.patience import wait_for
from tests.factories import CAM, L1, NOON, RAL, ad, demand, server_state
from tests.served import server_of

pytestmark = pytest.mark.outside

VIEW = server_state({CAM: ad(L1), RAL: ad(L1, site=RAL)}, Snapshot({}), demand(), None, NOON)


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def serving(buckets=None, doorway=None, access=None, behind_proxy=False, certificate=None) -> HttpServer:
    policy = RequestPolicy(rate_limiter=buckets, behind_proxy=behind_proxy)
    return server_of(
        lambda: VIEW, certificate=certificate, limiter=doorway, authenticator=access, policy=policy
    )


def ask(server, path="/v1/sites", source="127.0.0.1", **headers):
    transport = httpx.HTTPTransport(local_address=source, verify=False)
    with httpx.Client(transport=transport, trust_env=False, timeout=120) as client:
        return client.get(server.url + path, headers=headers)


def dial(server, source="127.0.0.1") -> socket.socket:
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    return socket.create_connection(address, 10, (source, 0))


def ended(connection: socket.socket) -> bool:
    """Return whether the server ended the connection within ten seconds."""
    with suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


# buckets


def test_a_burst_then_a_pace_then_a_rest():
    clock = Hand()
    buckets = RateLimiter(2, 3, clock)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a") == pytest.approx(0.5)
    clock.now += 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0
    clock.now += 1.5
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]


def test_rate_limiter_forgets_idle_clients_and_bounds_its_memory():
    clock = Hand()
    buckets = RateLimiter(1, 1000, clock)
    for number in range(2 * MAX_CLIENTS):
        buckets.take(number)
    assert len(buckets) == MAX_CLIENTS
    clock.now += 2
    buckets.take("new")
    assert len(buckets) == 1


@given(
    st.floats(0.1, 1000),
    st.integers(1, 100),
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 10)), max_size=200),
)
def test_rate_limiter_never_allows_more_than_burst_and_rate(pace, burst, asked):
    clock = Hand()
    buckets = RateLimiter(pace, burst, clock)
    began, got = clock.now, {"a": 0, "b": 0}
    for who, pause in asked:
        clock.now += pause
        got[who] += buckets.take(who) == 0
        assert got[who] <= burst + (clock.now - began) * pace + 1e-6


# requests


def test_too_many_requests_from_an_address_are_429_with_a_time_to_ask_again():
    clock = Hand()
    with serving(RateLimiter(0.1, 2, clock)) as server:
        assert [ask(server).status_code for _ in range(2)] == [200, 200]
        refused = ask(server)
        assert (refused.status_code, refused.json()["error"]) == (429, "too many requests")
        assert refused.headers["Retry-After"] == "10"
        assert ask(server, source="127.0.0.2").status_code == 200
        clock.now += 10
        assert ask(server).status_code == 200


def test_guessing_tokens_is_limited_too(tmp_path):
    (tmp_path / "tokens").touch(0o600)
    with serving(RateLimiter(0.1, 3, Hand()), access=TokenAuthenticator(tmp_path / "tokens")) as server:
        tried = [ask(server, Authorization=f"Bearer guess{n}").status_code for n in range(4)]
    assert tried == [401, 401, 401, 429]


def test_rate_limit_of_a_token_is_shared_by_all_addresses(tmp_path):
    token, grant = create_token(Role.SITE, CAM, "2026-11-21")
    other, second = create_token(Role.SITE, RAL, "2026-11-21")
    (tmp_path / "tokens").write_text(grant.line + second.line)
    (tmp_path / "tokens").chmod(0o600)
    with serving(RateLimiter(0.1, 2, Hand()), access=TokenAuthenticator(tmp_path / "tokens")) as server:

        def status(number, site, token):
            path = f"/v1/sites/{site}/ad"
            return ask(server, path, f"127.0.1.{number}", Authorization=f"Bearer {token}").status_code

        assert [status(number, CAM, token) for number in range(1, 4)] == [200, 200, 429]
        assert status(4, RAL, other) == 200


def test_rate_limit_behind_a_proxy_counts_the_address_that_the_proxy_added():
    with serving(RateLimiter(0.1, 1, Hand()), behind_proxy=True) as server:
        named = {"X-Forwarded-For": "10.0.0.9, 192.0.2.1"}
        assert ask(server, **named).status_code == 200
        assert ask(server, **{"X-Forwarded-For": "10.0.0.8, 192.0.2.1"}).status_code == 429
        assert ask(server, **{"X-Forwarded-For": "192.0.2.2"}).status_code == 200
    with serving(RateLimiter(0.1, 1, Hand())) as server:
        assert [ask(server, **{"X-Forwarded-For": f"192.0.2.{n}"}).status_code for n in (1, 2)] == [200, 429]


def test_default_rate_limit_lets_all_hooks_of_a_site_ask_at_once():
    http = HttpServerSettings(port=0)
    with build_http_server(http, Sources(lambda: VIEW), CollectorRegistry()) as server:
        assert {ask(server, "/healthz").status_code for _ in range(50)} == {200}


# connections


def quick(cuts, **more) -> ConnectionLimiter:
    return ConnectionLimiter(request_seconds=2, on_cut=cuts.append, **more)


@pytest.mark.parametrize(
    ("is_https", "said"),
    [
        (False, b""),
        (False, b"GET /healthz HTTP/1.1\r\nHost: x\r\n"),
        (True, b""),
        (True, b"\x16\x03\x01\x02\x00\x01"),
    ],
    ids=["silent", "half a request", "TLS, silent", "TLS, half a hello"],
)
def test_a_client_that_does_not_finish_its_request_or_its_hello_is_cut(certificate, is_https, said):
    cuts = []
    serves = serving(doorway=quick(cuts), certificate=certificate if is_https else None)
    with serves as server, dial(server) as silent:
        silent.sendall(said)
        assert ended(silent)
        assert cuts == ["slow"]
        assert ask(server).status_code == 200


def test_a_client_that_sends_a_body_without_end_is_cut():
    cuts = []
    with serving(doorway=quick(cuts)) as server, dial(server) as endless:
        endless.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert endless.makefile("rb").readline().startswith(b"HTTP/1.1 413 ")

        def sent() -> bool:
            try:
                endless.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
            except OSError:
                return True
            return False

        wait_for(sent, "the end of the client's time")


def test_a_client_that_does_not_take_its_answer_is_cut():
    async def large(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * (64 << 20)})

    cuts = []
    with HttpServer(large, limiter=quick(cuts)) as server, dial(server) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for(lambda: cuts == ["slow"], "the end of the client's time")


def test_connections_above_the_limit_are_closed_until_others_end():
    cuts = []
    with serving(
        doorway=ConnectionLimiter(
            max_connections=4, max_per_address=4, request_seconds=60, on_cut=cuts.append
        )
    ) as server:
        held = [dial(server, f"127.0.0.{2 + n}") for n in range(4)]
        for each in held:  # known to the server once it answered
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert each.recv(9) == b"HTTP/1.1 "
        with dial(server) as late:
            assert ended(late)
        assert cuts == ["full"]
        held.pop().close()
        wait_for(lambda: _answered(server), "the place that was left")
        for each in held:
            each.close()


def _answered(server, source="127.0.0.1") -> bool:
    try:
        return ask(server, "/healthz", source).status_code == 200
    except httpx.TransportError:
        return False


def test_behind_a_proxy_one_address_may_have_all_connections():
    http, limiter = HttpServerSettings(port=0, behind_proxy=True), ConnectionLimiter()
    build_http_server(http, Sources(lambda: VIEW), CollectorRegistry(), limiter=limiter)
    assert limiter.max_per_address == limiter.max_connections


def test_cut_connections_are_counted_in_the_metrics():
    registry = CollectorRegistry()
    http, limiter = HttpServerSettings(port=0), ConnectionLimiter(request_seconds=1)
    with build_http_server(http, Sources(lambda: VIEW), registry, limiter=limiter) as server:
        assert 'hydrator_http_connections_cut_total{reason="slow"} 0.0' in ask(server, "/metrics").text
        with dial(server) as silent:
            assert ended(silent)
        assert 'hydrator_http_connections_cut_total{reason="slow"} 1.0' in ask(server, "/metrics").text


# TLS


@pytest.fixture
def certificate(tmp_path) -> TlsCertificate:
    issued = trustme.CA().issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "key"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "pem"))
    return TlsCertificate(tmp_path / "pem", tmp_path / "key")


def test_clients_that_say_no_tls_hello_count_and_leave_room_for_other_addresses(certificate):
    cuts = []
    doorway = ConnectionLimiter(max_connections=8, max_per_address=4, request_seconds=60, on_cut=cuts.append)
    with serving(doorway=doorway, certificate=certificate) as server:
        held = [dial(server, "127.0.0.2") for _ in range(20)]
        wait_for(lambda: len(cuts) == 16, "the connections beyond the most of one address to be cut")
        assert _answered(server)
        for each in held:
            each.close()
        wait_for(lambda: _answered(server, "127.0.0.2"), "the places of those that left")


def test_the_addresses_of_one_ipv6_network_share_their_connections():
    async def admitted() -> list[bool]:
        doorway = ConnectionLimiter(max_connections=10, max_per_address=1)
        found = []
        for address in ("2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:2::1"):
            ours, theirs = socket.socketpair()
            with theirs:
                found.append(doorway.admit(ours, address))
        for each in found:
            if each:
                each.close()
        return [each is not None for each in found]

    assert asyncio.run(admitted()) == [True, False, True]


# heads and bodies


def told(server, request: bytes) -> bytes:
    """Send *request* as it is; the first line of the answer."""
    with dial(server) as raw:
        raw.sendall(request)
        return raw.makefile("rb").readline()


@pytest.mark.parametrize("size", [40_000, 100_000])
@pytest.mark.parametrize("header", [b"X: " + b"x" * 60, b"X: "], ids=["many headers", "one header"])
def test_a_head_beyond_the_bound_is_refused_however_it_arrives(size, header):
    lines = size // 64 if len(header) > 3 else 1
    padding = header if len(header) > 3 else header + b"x" * size
    with serving() as server:
        line = told(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + (padding + b"\r\n") * lines + b"\r\n")
        assert line.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
        assert ask(server).status_code == 200


def test_a_head_below_the_bound_is_answered():
    with serving() as server:
        request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (MAX_HEAD_BYTES - 100) + b"\r\n\r\n"
        assert told(server, request).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("size", ["1", "01", "000000000001", "-1", "x"])
def test_no_length_lets_a_body_in(size):
    with serving() as server:
        head = f"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
        assert told(server, head.encode() + b"x").startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))


# names


def called(server, host: str, path="/v1/sites") -> int:
    return ask(server, path, Host=host).status_code


def test_a_server_without_tokens_does_not_answer_to_a_strange_name():
    with build_http_server(HttpServerSettings(port=0), Sources(lambda: VIEW), CollectorRegistry()) as server:
        for host in (
            "evil.example",
            "evil.example:8471",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
        ):
            for path in ("/", "/v1/sites", "/v1/datasets", "/v1/sites/CAM/ad", "/metrics"):
                assert called(server, host, path) == 421, (host, path)
        for host in ("localhost", "LOCALHOST:8471", "localhost.", "127.0.0.1:1", "[::1]:8471", "192.0.2.7"):
            assert called(server, host) == 200, host
        assert called(server, socket.gethostname()) == 200
        assert ask(server, Host="evil.example").json()["error"] == "unknown host"


def test_allowed_names_are_answered_and_those_below_a_wildcard():
    http = HttpServerSettings(port=0, allowed_hosts=("hydrator.example.org", "*.svc.cluster.local"))
    with build_http_server(http, Sources(lambda: VIEW), CollectorRegistry()) as server:
        assert called(server, "Hydrator.example.org:80") == 200
        assert called(server, "classad-hydrator.pool.svc.cluster.local") == 200
        assert called(server, "example.org") == 421
        assert called(server, "svc.cluster.local") == 421


def test_any_host_name_is_accepted_behind_a_proxy_or_with_tokens_by_default(tmp_path):
    (tmp_path / "tokens").touch(0o600)
    for http, expected in (
        (HttpServerSettings(port=0, behind_proxy=True), 200),
        (HttpServerSettings(port=0, behind_proxy=True, allowed_hosts=("a.example",)), 421),
        (HttpServerSettings(port=0, tokens_file=tmp_path / "tokens"), 401),
        (HttpServerSettings(port=0, tokens_file=tmp_path / "tokens", allowed_hosts=("a.example",)), 421),
    ):
        with build_http_server(http, Sources(lambda: VIEW), CollectorRegistry()) as server:
            assert called(server, "evil.example") == expected
