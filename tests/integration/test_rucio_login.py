"""Logins of the daemon at a real Rucio server: a certificate behind Apache, a token of a provider."""

from dataclasses import replace

import pytest
import trustme

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from hydrator.domain.errors import CatalogueDenied
from hydrator.domain.model import Site
from hydrator.wiring import system_clock
from testbed.apache import Apache
from tests.parts import needs

pytestmark = [pytest.mark.rucio, pytest.mark.timeout(300)]

SITE = Site("LOGIN")
DN = "/O=Example/OU=Tests/CN=hydrator"


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
    with needs("Apache before Rucio"):
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
        catalogues.append(RucioCatalogue(settings, system_clock))
        return catalogues[-1]

    yield one
    for each in catalogues:
        each.close()


def test_certificate_known_to_rucio_is_enough(opened, by_certificate):
    catalogue = opened(by_certificate)
    assert SITE in catalogue.read(frozenset()).sites


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
