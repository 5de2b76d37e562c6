"""Errors of the client of HTCondor's bindings, whose worker is a stand-in, and its environment."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.library import explain_failure
from adapters.condor.bindings.process import CondorSettings, build_environment
from hydrator.domain.errors import PoolDenied, PoolError

STANDIN = Path(__file__).parents[3] / "worker_standin.py"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[CondorClient]:
    """A client whose worker is a stand-in."""
    with CondorClient(CondorSettings(), (sys.executable, str(STANDIN), str(tmp_path / "starts"))) as made:
        yield made


def ask(client: CondorClient, what: str) -> dict[str, str | None]:
    return client.config_of("schedd", [], name=what)


@pytest.mark.outside
def test_fatal_error_in_the_bindings_is_reported_by_its_last_line_without_token(client: CondorClient):
    with pytest.raises(PoolError) as caught:
        ask(client, "fatal")
    assert caught.value.daemon == "schedd fatal"
    assert caught.value.reason == ('its process ended with status 4: ERROR "no interface" (token)')


@pytest.mark.outside
def test_error_of_any_daemon_of_a_kind_names_the_kind(client: CondorClient):
    with pytest.raises(PoolError) as caught:
        client.config_of("schedd", [])  # the stand-in needs a name
    assert caught.value.daemon == "schedd"


@pytest.mark.outside
def test_a_denial_is_an_error_of_its_own_and_costs_no_child(client: CondorClient):
    with pytest.raises(
        PoolDenied, match=r"schedd denied: it authenticated the client as eve .*; the client needs READ"
    ):
        ask(client, "denied")
    assert client.restart_count == 0


def test_an_installation_without_htcondor_needs_a_collector_and_tokens_only(tmp_path: Path):
    settings = CondorSettings("cm.example.org:9618", token_directory=tmp_path)
    env = build_environment(settings, {}, config_files=[str(tmp_path / "none")])
    assert env == {
        "CONDOR_CONFIG": "ONLY_ENV",
        "_CONDOR_COLLECTOR_HOST": "cm.example.org:9618",
        "_CONDOR_SEC_TOKEN_DIRECTORY": str(tmp_path),
        "_CONDOR_SEC_CLIENT_AUTHENTICATION": "PREFERRED",
        "_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS": "IDTOKENS",
    }


def test_an_installed_htcondor_keeps_its_configuration(tmp_path: Path):
    installed = tmp_path / "condor_config"
    installed.touch()
    assert build_environment(CondorSettings(), {}, config_files=[str(installed)]) == {}
    assert build_environment(CondorSettings(), {"CONDOR_CONFIG": "/x"}, config_files=[]) == {
        "CONDOR_CONFIG": "/x"
    }


def test_config_file_setting_overrides_the_environment_and_its_methods(tmp_path: Path):
    env = build_environment(
        CondorSettings(config_file=tmp_path / "c", token_directory=tmp_path), {"CONDOR_CONFIG": "/x"}
    )
    assert env == {"CONDOR_CONFIG": str(tmp_path / "c"), "_CONDOR_SEC_TOKEN_DIRECTORY": str(tmp_path)}


def test_slots_are_not_queried_for_the_long_attributes(client: CondorClient):
    with pytest.raises(ValueError, match="datasetstates"):
        client.slots(["Name", "datasetstates"])


# the logs below are what htcondor 25.14.1 wrote when real collectors, 25.14.1 and 23.9.6, denied a client
REFUSALS = {
    "SECMAN: startCommand succeeded.": None,
    "AUTHENTICATE: method 4 (FS) failed.\nAuthentication was a Success.\n": None,
    "ERROR: AUTHENTICATE:1003:Failed to authenticate with any method|"
    "AUTHENTICATE:1004:Failed to authenticate using IDTOKENS": (
        "denied",
        "it accepted none of the credentials (tried IDTOKENS)",
    ),
    'SECMAN: FAILED: Received "DENIED" from server for user alice@test.pool using method IDTOKENS.': (
        "denied",
        "it authenticated the client as alice@test.pool (by IDTOKENS) and denies that identity",
    ),
    "AUTHENTICATE: method 2048 (IDTOKENS) failed.\n"
    'SECMAN: FAILED: Received "DENIED" from server for user unauthenticated@unmapped using no authentication '
    "method, which may imply host-based security.": (
        "denied",
        "it accepted none of the credentials (tried IDTOKENS) and denies unauthenticated clients",
    ),
    "TOKEN: No token found.\nAUTHENTICATE: method 2048 (IDTOKENS) failed.\n"
    "ERROR: SECMAN:2007:Failed to received post-auth ClassAd": (
        "denied",
        "it accepted none of the credentials (tried IDTOKENS; there was no token for this pool)",
    ),
    "AUTHENTICATE: method 4 (FS) failed.\nAuthentication was a Success.\n"
    'SECMAN: FAILED: Received "DENIED" from server for user eve@pool using method IDTOKENS.': (
        "denied",
        "it authenticated the client as eve@pool (by IDTOKENS) and denies that identity",
    ),
    'Received "DENIED" from server for user unauthenticated@unmapped using no authentication method': (
        "denied",
        "it accepted none of the credentials (tried none) and denies unauthenticated clients",
    ),
    "attempt to connect to <127.0.0.1:29999> failed: Connection refused (connect errno = 111).": (
        "pool",
        "no connection to 127.0.0.1:29999: Connection refused",
    ),
}


@pytest.mark.parametrize("log", REFUSALS)
def test_denial_is_explained_from_the_security_log_and_nothing_else(log: str):
    assert explain_failure(log) == REFUSALS[log]
