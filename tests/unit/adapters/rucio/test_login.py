"""Secrets that change in their files: used at once when Rucio refuses the old one (on a stand-in)."""

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.errors import CatalogueDenied, CatalogueError
from hydrator.domain.model import Did
from testbed.rucio_standin import RucioStandIn
from tests.rucio_fixtures import catalogues

pytestmark = pytest.mark.outside

DID = Did("lofar:L1")


@pytest.fixture
def server():
    with RucioStandIn({"UK-DISK": "UK"}) as started:
        started.holdings = {DID: {"UK-DISK": "available"}}
        yield started


@pytest.fixture
def secret(tmp_path):
    return tmp_path / "secret"


@pytest.fixture
def rucio(server, tmp_path):
    login = {"username": None, "password": None}
    with catalogues(url=server.url, token_dir=tmp_path / "tokens", twins_every=None, **login) as make:
        yield make


def sees(catalogue: RucioCatalogue) -> bool:
    return bool(catalogue.read(frozenset({DID})).readings[DID].replicas)


def test_a_password_changed_in_its_file_is_used_in_the_same_poll(server, secret, rucio):
    secret.write_text("first\n")
    server.password = "first"
    catalogue = rucio(username="somebody", password_file=secret)
    assert sees(catalogue)
    server.password = "second"
    secret.write_text("second\n")
    assert sees(catalogue)


def test_a_certificate_whose_file_is_there_is_enough(server, tmp_path, rucio):
    certificate = tmp_path / "certificate"
    certificate.touch(mode=0o600)
    server.password = "nobody knows it"
    assert sees(rucio(auth_type="x509", client_cert=certificate))
    with pytest.raises(CatalogueDenied):
        sees(rucio(auth_type="x509", client_cert=tmp_path / "none"))


def test_a_password_file_that_changes_later_than_the_server_is_used_then(server, secret, rucio):
    secret.write_text("first")
    server.password = "first"
    catalogue = rucio(username="somebody", password_file=secret)
    assert sees(catalogue)
    server.password = "second"
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


def test_a_missing_password_file_is_reported_and_needed_only_to_log_in(server, secret, rucio):
    catalogue = rucio(username="somebody", password_file=secret)
    server.password = "first"
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
def test_a_renewed_token_is_used_in_the_poll_that_refused_the_old_one(server, secret, rucio, how, tmp_path):
    server.password = "first"
    first = server.token
    server.password = "second"
    second = server.token
    secret.write_text(first)
    read = f"file = __import__('pathlib').Path({str(secret)!r}); print(file.read_text())"
    swap = f"{read}; file.write_text({second!r})"
    if how == "command":
        catalogue = rucio(auth_type="token", token_command=(sys.executable, "-c", swap))
    else:
        catalogue = rucio(auth_type="token", token_file=secret)
        server.on_denial = lambda: secret.write_text(second)  # it is renewed after the poll has read it
    assert sees(catalogue)


def test_some_500s_to_the_token_of_a_command_are_answered_by_one_more_run(server, secret, rucio):
    """Of the kind of R1: a server may answer 500 to an old token, whoever issued it."""
    refused, reply = [], server.reply

    def reply_to_new_tokens(request):
        if request.headers["X-Rucio-Auth-Token"] in refused:
            request.send(500, {"Content-Type": "text/html"}, b"")
        else:
            reply(request)

    server.reply = reply_to_new_tokens
    count = f"file = __import__('pathlib').Path({str(secret)!r}); file.open('a').write('x')"
    command = f"{count}; print({server.token!r} + '~' * (len(file.read_text()) > 1))"
    catalogue = rucio(auth_type="token", token_command=(sys.executable, "-c", command))
    assert sees(catalogue)
    refused.append(server.token)
    for _ in range(3):
        with pytest.raises(CatalogueError, match="500"):
            sees(catalogue)
    assert sees(catalogue)
    assert secret.read_text() == "xx"


def test_a_refused_login_is_reported_after_one_more_attempt(server, secret, rucio):
    server.password = "first"
    secret.write_text("other")
    catalogue = rucio(auth_type="token", token_file=secret)
    with pytest.raises(CatalogueDenied, match="401"):
        catalogue.read(frozenset({DID}))
    assert server.refusals <= 2


def test_a_login_without_an_answer_delays_no_other_catalogue(server, rucio):
    silent = socket.create_server(("127.0.0.1", 0))
    late = rucio(username="somebody", password="a-word", url=f"http://127.0.0.1:{silent.getsockname()[1]}")
    server.password = "a-word"
    with ThreadPoolExecutor() as threads:
        with silent:
            waiting = threads.submit(late.read, frozenset({DID}))
            with silent.accept()[0]:
                assert sees(rucio(username="somebody", password="a-word"))
                assert not waiting.done()
        with pytest.raises(CatalogueError):
            waiting.result()


def test_a_login_leaves_the_environment_as_it_is(server, rucio, monkeypatch):
    """Other threads read the environment at any moment, for instance before each request for its proxies."""
    changes = []
    monkeypatch.setattr(os, "unsetenv", changes.append)
    monkeypatch.setattr(os, "putenv", lambda name, _value: changes.append(name))
    server.password = "a-word"
    assert sees(rucio(username="somebody", password="a-word"))
    assert changes == []
