"""Addresses of the server: HTTPS with a renewed certificate, a Unix socket, loopback."""

import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
import trustme

from adapters.http.publisher import WebPublisher
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Snapshot
from hydrator.server.auth import TokenAuthenticator
from hydrator.server.http_server import HttpServer, TlsCertificate
from hydrator.server.view import ServerState
from tests.factories import L1, NOON, ad, demand, server_state
from tests.served import app_of

pytestmark = pytest.mark.outside


class Authority:
    """A certificate authority, and the server's two files, which tests replace."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.pem, self.key, self.trust = folder / "pem", folder / "key", folder / "ca"
        self.ca.cert_pem.write_to_path(str(self.trust))
        self.issue()

    def issue(self, *, cert: bool = True, key: bool = True) -> bytes:
        """Replace the files; the certificate's first PEM block."""
        made = self.ca.issue_cert("localhost", "127.0.0.1")
        if key:
            replace(self.key, made.private_key_pem.bytes())
        if cert:
            replace(self.pem, b"".join(blob.bytes() for blob in made.cert_chain_pems))
        return made.cert_chain_pems[0].bytes()

    def seen_at(self, server: HttpServer, name: str | None = "localhost") -> str:
        """The certificate that a client gets now; *name* None names no host."""
        context = ssl.create_default_context(cafile=str(self.trust))
        context.check_hostname = name is not None
        port = int(server.url.rpartition(":")[2])
        plain = socket.create_connection(("127.0.0.1", port), 10)
        with context.wrap_socket(plain, server_hostname=name) as safe:
            return ssl.DER_cert_to_PEM_cert(safe.getpeercert(binary_form=True))


def replace(file: Path, text: bytes) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_bytes(text)
    fresh.rename(file)


def same(pem: str, other: bytes) -> bool:
    return ssl.PEM_cert_to_DER_cert(pem) == ssl.PEM_cert_to_DER_cert(other.decode())


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def shown(board: WebPublisher) -> ServerState:
    return server_state(board.ads(), Snapshot({}), demand(), None, NOON, published_at=board.publish_times())


@pytest.fixture
def board():
    made = WebPublisher(lambda: None, lambda: NOON)
    made.put([ad(L1)])
    return made


def serving(board: WebPublisher, access: TokenAuthenticator | None = None, **where) -> HttpServer:
    asgi = app_of(lambda: shown(board), authenticator=access)
    return HttpServer(asgi, **where)


@pytest.fixture
def https(authority, board):
    with serving(board, certificate=TlsCertificate(authority.pem, authority.key)) as server:
        yield server


# HTTPS


def test_https_is_served_and_its_url_says_so(https, authority):
    assert https.url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(authority.trust))
    answer = httpx.get(f"{https.url}/v1/sites/CAM/ad", verify=context, trust_env=False, timeout=120)
    assert answer.text == ad(L1).text


@pytest.mark.parametrize("name", ["localhost", None])
def test_a_renewed_certificate_is_shown_without_a_restart(https, authority, name):
    before = authority.seen_at(https, name)
    renewed = authority.issue()
    assert same(authority.seen_at(https, name), renewed)
    assert not same(before, renewed)


@pytest.mark.parametrize("broken", ["torn", "half", "empty", "gone", "passphrase"])
def test_a_broken_renewal_keeps_the_old_certificate_until_it_is_mended(https, authority, broken):
    before = authority.seen_at(https)
    if broken == "half":
        authority.issue(key=False)
    elif broken == "gone":
        authority.pem.unlink()
    elif broken == "passphrase":
        locked = ["openssl", "pkey", "-in", authority.key, "-aes128", "-passout", "pass:x"]
        replace(authority.key, subprocess.run(locked, check=True, capture_output=True).stdout)
    else:
        replace(authority.pem, b"" if broken == "empty" else authority.pem.read_bytes()[:300])
    assert [authority.seen_at(https) for _ in range(2)] == [before, before]
    mended = authority.issue()
    assert same(authority.seen_at(https), mended)


def test_server_refuses_tls_before_1_2(https, authority):
    offered = TlsCertificate(authority.pem, authority.key).context
    assert offered.minimum_version is ssl.TLSVersion.TLSv1_2
    newest = ssl.create_default_context(cafile=str(authority.trust))
    plain = socket.create_connection(("127.0.0.1", int(https.url.rpartition(":")[2])), 10)
    with newest.wrap_socket(plain, server_hostname="localhost") as safe:
        assert safe.version() in {"TLSv1.2", "TLSv1.3"}


def test_server_sends_no_session_tickets_which_no_hook_could_use(https, authority):
    context = ssl.create_default_context(cafile=str(authority.trust))
    plain = socket.create_connection(("127.0.0.1", int(https.url.rpartition(":")[2])), 10)
    with context.wrap_socket(plain, server_hostname="localhost") as safe:
        safe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert safe.recv(8) == b"HTTP/1.1"
        assert not safe.session.has_ticket


def test_plain_http_at_the_https_port_gets_no_answer_and_harms_no_client(https, authority):
    with pytest.raises(httpx.HTTPError):
        httpx.get(https.url.replace("https", "http"), trust_env=False, timeout=120)
    assert authority.seen_at(https)


@pytest.mark.parametrize("wrong", ["no key", "not a pair", "no files"])
def test_a_pair_that_cannot_be_used_at_the_start_is_one_sentence(authority, wrong):
    if wrong == "no key":
        replace(authority.key, b"nothing")
    elif wrong == "not a pair":
        authority.issue(key=False)
    else:
        authority.pem.unlink()
    with pytest.raises(ConfigError, match=r"publish.http.tls_certificate: .*pem with tls_key .*key") as told:
        TlsCertificate(authority.pem, authority.key)
    assert len(told.value.problems) == 1
    assert "\n" not in told.value.problems[0]
