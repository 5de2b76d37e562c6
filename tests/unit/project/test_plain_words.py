"""Reasons for people: without names, addresses or representations of Python's objects."""

import ast
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import requests

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from hydrator.config import parse
from hydrator.domain.errors import CatalogueError, ConfigError
from hydrator.domain.text import reason_of
from tests.factories import L1, NOON

ROOT = Path(__file__).parents[3]
RAW = re.compile(
    r"object at 0x|Caused by|_ssl\.c|\b[A-Z]\w*(?:Pool|Error|Exception|Connection|Timeout|Response)\("
    r"|\b(?:True|False|None)\b|\bdict\b|[{\[]'|<class|PosixPath"
)
"""Python's own notation, which a reason must not have."""


def failures() -> Iterator[Exception]:
    """Yield the exceptions that the adapters' libraries raise for unreachable and odd servers."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/x", "http://nowhere.invalid/", "http://[::1", "https://"):
        for ask in (requests.get, httpx.get):
            try:
                ask(url, timeout=5)
            except (requests.RequestException, httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                yield error
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for ask in (requests.get, httpx.get):
            try:
                ask(url, timeout=0.1)
            except (requests.RequestException, httpx.HTTPError) as error:
                yield error
    yield ssl.SSLCertVerificationError(
        1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1000)"
    )
    yield KeyError("sites")
    yield TypeError("'NoneType' object is not subscriptable")
    yield RuntimeError({"a": None})
    yield httpx.ReadTimeout("")


def test_reason_of_an_error_has_no_python_notation():
    found = list(failures())
    assert len(found) > 10
    for error in found:
        said = reason_of(error)
        assert re.search(r"[a-z]{3}", said), repr(error)
        assert not RAW.search(said), said


def test_unreachable_rucio_is_reported_in_plain_words(tmp_path):
    """Regression: ``ConnectionError: PlainPool(host='127.0.0.1', port=1): Max retries exceeded …``."""
    settings = RucioSettings(
        name="rucio", url="http://127.0.0.1:1", account="a", username="u", password="p",
        token_dir=tmp_path,
    )  # fmt: skip
    catalogue = RucioCatalogue(settings, lambda: NOON)
    with pytest.raises(CatalogueError) as away:
        catalogue.read(frozenset({L1}))
    catalogue.close()
    assert "Connection refused" in str(away.value)
    assert not RAW.search(str(away.value)), str(away.value)


def test_a_wrong_value_of_the_configuration_is_shown_as_toml_has_it(tmp_path):
    with pytest.raises(ConfigError) as wrong:
        parse(
            {"daemon": {"state_dir": True}, "publish": {"http": {"enabled": "perhaps"}}},
            folder=tmp_path,
            origin="test",
        )
    assert not RAW.search("\n".join(wrong.value.problems))
    assert "(it is true)" in "\n".join(wrong.value.problems)


def test_reason_of_an_error_is_the_systems_own():
    with pytest.raises(requests.ConnectionError) as refused:
        requests.get("http://127.0.0.1:1/", timeout=5)
    assert reason_of(refused.value) == "Connection refused"


def test_no_message_shows_the_representation_of_an_exception():
    """Find ``{error!r}`` and the like in all shipped modules."""
    caught = {"error", "exc", "wrong", "trouble", "reason", "silent", "refused", "failure"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("hydrator", "adapters", "toil_batch_system_classad_hydrator")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FormattedValue)
        and node.conversion == ord("r")
        and isinstance(node.value, ast.Name)
        and node.value.id in caught
    ]
    assert found == []
