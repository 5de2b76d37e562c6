"""HTTP clients: the configured client credentials reach the client that requests tokens."""

from datetime import UTC, datetime

import pytest

from adapters.http.oauth import ClientSettings
from hydrator.config import parse
from hydrator.domain.model import Did, Seen
from hydrator.wiring.assembly import assemble
from hydrator.wiring.catalogues import rucio_settings
from testbed.dmapi_standin import CLIENT, SECRET, DmapiStandIn

OFF = {"demand": {"ask_schedds": False}, "publish": {"collector": {"enabled": False}}}
IDP = "https://iam.example.org/token"


def rucio(folder, **more):
    source = {"type": "rucio", "name": "rucio", "url": "https://rucio.example.org", "account": "a", **more}
    return parse({"catalogue": [source], **OFF}, folder=folder, origin="test")


@pytest.fixture
def standin():
    with DmapiStandIn() as running:
        yield running


@pytest.mark.outside
def test_dmapi_and_site_capabilities_let_us_in_as_the_client_that_is_configured(standin, tmp_path):
    standin.add_area("UK", "UK-DISK")
    standin.put("testing:L1", 4, {"UK-DISK": 4})
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    client = {"token_url": standin.token_url, "client_id": CLIENT, "client_secret_file": str(secret)}
    source = {"type": "dmapi", "name": "dmapi", "url": standin.url, **client}
    capabilities = {"url": standin.capabilities_url, **client}
    told = {"catalogue": [source], "site_capabilities": capabilities, **OFF}
    parts = assemble(parse(told, folder=tmp_path, origin="test"), lambda: datetime(2026, 11, 21, tzinfo=UTC))
    try:
        (catalogue,) = parts.catalogues
        reading = catalogue.read(frozenset({Did("testing:L1")})).readings[Did("testing:L1")]
    finally:
        parts.close()
    assert isinstance(reading, Seen)
    assert [replica.site for replica in reading.replicas] == ["UK"]


def test_rucio_with_oidc_gets_all_client_settings(tmp_path):
    given = {"token_url": IDP, "client_id": "me", "client_secret_file": "secret", "audience": "rucio-2"}
    settings = rucio(tmp_path, auth="oidc", ca_cert="ca", **given)
    assert rucio_settings(settings.catalogue[0], settings.daemon.state_dir).oidc == ClientSettings(
        IDP, "me", tmp_path / "secret", "rucio-2", "openid", tmp_path / "ca"
    )


def test_rucio_with_another_login_has_no_client_settings(tmp_path):
    (tmp_path / "password").write_text("p")
    settings = rucio(tmp_path, auth="userpass", username="u", password_file="password")
    assert rucio_settings(settings.catalogue[0], settings.daemon.state_dir).oidc is None
