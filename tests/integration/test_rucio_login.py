"""Logins of the daemon at a real Rucio server: a certificate behind Apache, a token of a provider."""

import json
import stat
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from adapters.http.oauth import ClientSettings
from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from hydrator.domain.errors import CatalogueDenied
from hydrator.domain.model import Site
from testbed.apache import Apache
from tests.parts import NO_APACHE, needs

pytestmark = [pytest.mark.rucio, pytest.mark.timeout(300)]

SITE = Site("LOGIN")
DN = "/O=Example/OU=Tests/CN=hydrator"


def utc_now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


@pytest.fixture(scope="module")
def rucio(rucio_server):
    rucio_server.seed(("add_rse", {"rse": "LOGIN-DISK", "attributes": {"site": "LOGIN"}}))
    rucio_server.seed(("add_identity", {"dn": DN}))
    return rucio_server


@pytest.fixture
def settings(rucio, tmp_path):
    return RucioSettings(
        name="rucio", url=rucio.url, account=rucio.account, token_dir=tmp_path / "tokens", twins_every=None
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Return an authority and certificates: the server's, the daemon's, and one unknown to Rucio."""
    folder = tmp_path_factory.mktemp("certificates")
    folder.chmod(0o755)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    who = {"organization_name": "Example", "organization_unit_name": "Tests"}
    for name, issued in (
        ("server", authority.issue_cert("127.0.0.1")),
        ("hydrator", authority.issue_cert(common_name="hydrator", **who)),
        ("stranger", authority.issue_cert(common_name="stranger", **who)),
    ):
        (folder / f"{name}.key").touch(mode=0o600)
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        issued.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
    return folder


@pytest.fixture(scope="module")
def apache(rucio, certificates, tmp_path_factory):
    files = (certificates / name for name in ("ca.pem", "server.pem", "server.key"))
    with needs(NO_APACHE):
        server = Apache.start(tmp_path_factory.mktemp("apache") / "run", rucio, *files)
    with server:
        yield server


@pytest.fixture
def by_certificate(settings, apache, certificates):
    return replace(
        settings,
        url=apache.url,
        auth_type="x509",
        client_cert=certificates / "hydrator.pem",
        client_key=certificates / "hydrator.key",
        ca_cert=certificates / "ca.pem",
    )


@pytest.fixture
def opened():
    """Return a function that opens catalogues; they are closed at the end."""
    catalogues = []

    def one(settings):
        catalogues.append(RucioCatalogue(settings, utc_now))
        return catalogues[-1]

    yield one
    for each in catalogues:
        each.close()


def test_certificate_known_to_rucio_is_enough_and_its_token_is_private(opened, by_certificate):
    catalogue = opened(by_certificate)
    assert catalogue.token_validity is None
    assert SITE in catalogue.read(frozenset()).sites
    assert catalogue.token_validity.valid_from <= utc_now() < catalogue.token_validity.valid_until
    (token,) = by_certificate.token_dir.glob("rucio-*")
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def test_expired_token_is_replaced_by_a_new_login_with_the_certificate(opened, by_certificate, rucio):
    catalogue = opened(by_certificate)
    catalogue.read(frozenset())
    rucio.seed(("expire_tokens", {}))
    assert SITE in catalogue.read(frozenset()).sites


def test_certificate_unknown_to_rucio_is_denied(opened, by_certificate, certificates):
    stranger = {
        "client_cert": certificates / "stranger.pem",
        "client_key": certificates / "stranger.key",
    }
    with pytest.raises(CatalogueDenied):
        opened(replace(by_certificate, **stranger)).read(frozenset())


class Provider(ThreadingHTTPServer):
    """An identity provider that answers with the token that the test gives it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.tokens: list[str] = []
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"


class _Answer(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.server.asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        token = self.server.tokens.pop(0) if len(self.server.tokens) > 1 else self.server.tokens[0]
        body = json.dumps({"access_token": token, "expires_in": 3600}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider():
    server = Provider()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def a_token(settings, rucio, opened, tmp_path):
    """Return a token that this Rucio accepts; for a real provider its configuration would have to change."""
    by_password = replace(
        settings, username=rucio.username, password=rucio.password, token_dir=tmp_path / "made"
    )
    opened(by_password).read(frozenset())
    (file,) = (tmp_path / "made").glob("rucio-*")
    return file.read_text()


@pytest.fixture
def by_provider(settings, provider, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a-client-secret\n")
    return replace(
        settings,
        auth_type="oidc",
        oidc=ClientSettings(provider.url, "hydrator", secret, audience="rucio", scope="openid"),
    )


def test_provider_token_is_sent_unchanged_and_reused(opened, by_provider, provider, a_token):
    provider.tokens = [a_token]
    catalogue = opened(by_provider)
    for _ in range(2):
        assert SITE in catalogue.read(frozenset()).sites
    (form,) = provider.asked
    assert "grant_type=client_credentials" in form
    assert "audience=rucio" in form
    (file,) = by_provider.token_dir.glob("rucio-*")
    assert a_token not in file.read_text()


def test_rejected_provider_token_is_not_printed_and_not_requested_again_at_once(
    opened, by_provider, provider
):
    provider.tokens = ["not-of-this-rucio"]
    catalogue = opened(by_provider)
    for _ in range(2):
        with pytest.raises(CatalogueDenied) as failure:
            catalogue.read(frozenset())
        assert "not-of-this-rucio" not in str(failure.value)
    assert len(provider.asked) == 1
