"""Bounded JSON: bounds on bytes, values and depth, and unreadable values."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.bounded_json import Bounds, TooLarge, UnreadableValue, decode, is_text, quote_excerpt

SMALL = Bounds(max_bytes=1000, max_values=100, max_depth=8)

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(-1e300, 1e300) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@given(values)
def test_json_values_are_decoded_unchanged(value):
    assert decode(json.dumps(value).encode(), Bounds()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused_in_one_way(data):
    with suppress(ValueError):
        decode(data, SMALL)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'"' + b"a" * 1000 + b'"', "larger than 1000 bytes; the limit is max_answer_mb"),
        (b'"' + b"\\u0101" * 100 + b'"', "wide characters, is larger than 1000 bytes"),
        ('"' + "\N{GRINNING FACE}" * 100 + '"', "wide characters"),
        (b"[" + b"0," * 100 + b"0]", "more than 100 values; the limit is max_answer_values"),
        (b"[" * 9 + b"]" * 9, "nested more than 8 levels deep"),
        (b"[" * 99, "."),
    ],
)
def test_a_text_beyond_a_bound_is_refused_with_the_name_of_its_setting(text, words):
    with pytest.raises(ValueError, match=words):
        decode(text if isinstance(text, bytes) else text.encode(), SMALL)


def test_deep_nesting_never_reaches_the_recursion_limit():
    with pytest.raises(TooLarge, match="nested more than 64 levels deep"):
        decode(b"[" * 200_000 + b"]" * 200_000, Bounds())


def test_a_text_at_its_bounds_is_decoded():
    assert decode(b"[" * 8 + b"]" * 8, SMALL)
    assert len(decode(b"[" + b"0," * 98 + b"0]", SMALL)) == 99


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"a": 1, "b": 2, "a": 1}', "the key 'a' is given twice in one object"),
        (b"NaN", "NaN is not a number"),
        (b"-Infinity", "-Infinity is not a number"),
        (b"1e999", "a number out of range"),
        (b"9" * 400, "a number of 400 digits"),
    ],
)
def test_an_unreadable_value_leaves_the_others_readable(text, why):
    assert decode(b'[1, {"row": ' + text + b"}, 2]", Bounds()) == [1, {"row": UnreadableValue(why)}, 2]


@pytest.mark.parametrize("text", [b'"\\ud800"', b'"\xff"', b'"a\\u0000b"', b'"\\u001b[2J"', b'""', b"1"])
def test_a_text_with_unprintable_characters_is_not_a_text(text):
    assert not is_text(decode(text, Bounds()))


def test_evidence_is_short_printable_and_without_secrets():
    said = quote_excerpt("\x1b[2J\ud800\u202e" + "x" * 1000, 40)
    assert said.isprintable()
    assert len(said) < 80
    assert "eyJ" not in quote_excerpt("https://se.example.org/x?token=eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.sig")
    assert is_text("STFC_STORM \u00e9")
