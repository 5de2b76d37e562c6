"""Texts for people."""

import re
import ssl

import httpx
import pytest
import requests

from hydrator.domain.text import format_bytes, hide_names, mentions_any, reason_of, shorten_list

RAW = re.compile(
    r"object at 0x|Caused by|_ssl\.c|\b[A-Z]\w*(?:Pool|Error|Exception|Connection|Timeout|Response)\("
    r"|\b(?:True|False|None)\b|\bdict\b|[{\[]'|<class|PosixPath"
)
"""Python's own notation, which a reason must not have."""


@pytest.mark.parametrize(
    "text",
    [
        "404 for https://rucio.example/replicas/own/L1?rse=UK",
        "/dids/own/L1/rules: no such DID",
        "/dids/own/dir/part/L2: no such DID",
        "GET /replicas/own%3AL1",
        "own:L1: not found.",
    ],
)
def test_reason_with_a_private_name_in_any_form_is_hidden(text):
    assert hide_names(text, ("own:*L?",)) != text
    assert hide_names(text.replace("own", "public"), ("own:*L?",)) == text.replace("own", "public")


def test_name_without_a_scope_is_private_in_the_default_scope_alone():
    assert mentions_any("L1 x", ("own:L?",), "own")
    assert not mentions_any("L1 x", ("own:L?",), "public")
    assert not mentions_any("L1 x", ("own:L?",))


def test_shortened_list_has_the_first_items_and_the_number_of_the_others():
    assert shorten_list([]) == ""
    assert shorten_list(["a", "b", "c"]) == "a, b, c"
    assert shorten_list(["a", "b", "c", "d", "e"]) == "a, b, c, and 2 more"
    assert shorten_list(["a", "b", "c"], "; ", limit=2) == "a; b; and 1 more"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"), (999, "999 B"), (999_499, "999 kB"), (999_999, "1 MB"), (999.6e9, "1 TB"),
        (2**63, "9223 PB"),
    ],
)  # fmt: skip
def test_bytes_have_the_unit_that_they_are_rounded_to(number, text):
    assert format_bytes(number) == text


@pytest.mark.parametrize(
    "error",
    [
        ssl.SSLCertVerificationError(
            1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1000)"
        ),
        KeyError("sites"),
        TypeError("'NoneType' object is not subscriptable"),
        RuntimeError({"a": None}),
        httpx.ReadTimeout(""),
    ],
    ids=repr,
)
def test_reason_of_an_error_has_no_python_notation(error):
    assert re.search(r"[a-z]{3}", reason_of(error))
    assert not RAW.search(reason_of(error))


@pytest.mark.outside
@pytest.mark.parametrize("get", [requests.get, httpx.get], ids=["requests", "httpx"])
def test_reason_of_a_refused_connection_is_the_systems_own(get):
    """Regression: ``ConnectionError: PlainPool(host='127.0.0.1', port=1): Max retries exceeded …``."""
    with pytest.raises((requests.ConnectionError, httpx.ConnectError)) as refused:
        get("http://127.0.0.1:1/")
    assert "Connection refused" in reason_of(refused.value)
    assert not RAW.search(reason_of(refused.value))
