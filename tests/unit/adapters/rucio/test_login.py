"""Secrets that change in their files: used at once when Rucio refuses the old one (on a stand-in)."""

import os
import sys
from functools import partial

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.errors import CatalogueDenied, CatalogueError
from hydrator.domain.model import Did
from testbed.rucio_standin import RucioStandIn

pytestmark = pytest.mark.outside

DID = Did("lofar:L1")


StandIn = partial(RucioStandIn, {"UK-DISK": "UK"}, {DID: {"UK-DISK": "available"}})
USUAL = {"username": None, "password": None}


@pytest.fixture
def secret(tmp_path):
    return tmp_path / "secret"


def sees(catalogue: RucioCatalogue) -> bool:
    return bool(catalogue.read(frozenset({DID})).readings[DID].replicas)


def test_a_password_changed_in_its_file_is_used_in_the_same_poll(stand_in, secret, asking):
    secret.write_text("first\n")
    stand_in.password = "first"
    catalogue = asking(username="somebody", password_file=secret)
    assert sees(catalogue)
    stand_in.password = "second"
    secret.write_text("second\n")
    assert sees(catalogue)


def test_a_certificate_whose_file_is_there_is_enough(stand_in, tmp_path, asking):
    certificate = tmp_path / "certificate"
    certificate.touch(mode=0o600)
    stand_in.password = "nobody knows it"
    assert sees(asking(auth_type="x509", client_cert=certificate))
    with pytest.raises(CatalogueDenied):
        sees(asking(auth_type="x509", client_cert=tmp_path / "none"))


def test_a_password_file_that_changes_later_than_the_server_is_used_then(stand_in, secret, asking):
    secret.write_text("first")
    stand_in.password = "first"
    catalogue = asking(username="somebody", password_file=secret)
    assert sees(catalogue)
    stand_in.password = "second"
    for _ in range(2):
        with pytest.raises(CatalogueDenied) as refused:
            catalogue.read(frozenset({DID}))
        assert "first" not in str(refused.value)
    for half in ("", "sec"):
        secret.write_text(half)
        with pytest.raises(CatalogueDenied):
            catalogue.read(frozenset({DID}))
    secret.write_text("second")
    assert sees(catalogue)


def test_a_missing_password_file_is_reported_and_needed_only_to_log_in(stand_in, secret, asking):
    catalogue = asking(username="somebody", password_file=secret)
    stand_in.password = "first"
    with pytest.raises(CatalogueDenied, match=f"password_file {secret}: No such file"):
        catalogue.read(frozenset({DID}))
    secret.write_bytes(b"\xff\xfe")
    with pytest.raises(CatalogueDenied, match="the file does not contain a secret"):
        catalogue.read(frozenset({DID}))
    secret.write_text("first")
    assert sees(catalogue)
    secret.unlink()
    assert sees(catalogue)


@pytest.mark.parametrize("how", ["file", "command"])
def test_a_renewed_token_is_used_in_the_poll_that_refused_the_old_one(
    stand_in, secret, asking, how, tmp_path
):
    stand_in.password = "first"
    first = stand_in.token
    stand_in.password = "second"
    second = stand_in.token
    secret.write_text(first)
    read = f"file = __import__('pathlib').Path({str(secret)!r}); print(file.read_text())"
    swap = f"{read}; file.write_text({second!r})"
    if how == "command":
        catalogue = asking(auth_type="token", token_command=(sys.executable, "-c", swap))
    else:
        catalogue = asking(auth_type="token", token_file=secret)
        stand_in.on_denial = lambda: secret.write_text(second)  # it is renewed after the poll has read it
    assert sees(catalogue)


def test_some_500s_to_the_token_of_a_command_are_answered_by_one_more_run(stand_in, secret, asking):
    """Of the kind of R1: a server may answer 500 to an old token, whoever issued it."""
    refused, reply = [], stand_in.reply

    def reply_to_new_tokens(request):
        if request.headers["X-Rucio-Auth-Token"] in refused:
            request.send(500, {"Content-Type": "text/html"}, b"")
        else:
            reply(request)

    stand_in.reply = reply_to_new_tokens
    count = f"file = __import__('pathlib').Path({str(secret)!r}); file.open('a').write('x')"
    command = f"{count}; print({stand_in.token!r} + '~' * (len(file.read_text()) > 1))"
    catalogue = asking(auth_type="token", token_command=(sys.executable, "-c", command))
    assert sees(catalogue)
    refused.append(stand_in.token)
    for _ in range(3):
        with pytest.raises(CatalogueError, match="500"):
            sees(catalogue)
    assert sees(catalogue)
    assert secret.read_text() == "xx"


def test_a_refused_login_is_reported_after_one_more_attempt(stand_in, secret, asking):
    stand_in.password = "first"
    secret.write_text("other")
    catalogue = asking(auth_type="token", token_file=secret)
    with pytest.raises(CatalogueDenied, match="401"):
        catalogue.read(frozenset({DID}))
    assert stand_in.refusals <= 2


def test_a_login_leaves_the_environment_as_it_is(stand_in, asking, monkeypatch):
    """Other threads read the environment at any moment, for instance before each request for its proxies."""
    changes = []
    monkeypatch.setattr(os, "unsetenv", changes.append)
    monkeypatch.setattr(os, "putenv", lambda name, _value: changes.append(name))
    stand_in.password = "a-word"
    assert sees(asking(username="somebody", password="a-word"))
    assert changes == []
