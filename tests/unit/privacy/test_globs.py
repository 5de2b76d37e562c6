"""Globs mean what fnmatch says they mean, and no text makes them slow."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.privacy.globs import compile_glob, matches_any

SMALL = st.text("ab-]:", max_size=8)


@given(st.text("ab-]![*?:", max_size=8), SMALL)
def test_globs_match_what_fnmatch_matches(pattern, text):
    assert compile_glob(pattern).matches(text) is fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("*a*a*a*b", "aaab"),
        ("[!]a]*", "ba"),
        ("[]-a]", "]"),
        ("[a-", "[a-"),
        ("[c-a]", "b"),
        ("[!c-a]", "b"),
        ("a*a", "a"),
        ("", ""),
        ("**", ""),
        ("ab*bc", "abc"),
    ],
)
def test_globs_read_odd_patterns_as_fnmatch_does(pattern, text):
    assert compile_glob(pattern).matches(text) is fnmatchcase(text, pattern)


def test_one_of_several_globs_is_enough():
    assert matches_any("lofar:L1", ["ska:*", "lofar:*"])
    assert not matches_any("lofar:L1", ["ska:*", "LOFAR:*"])
    assert not matches_any("lofar:L1", [])


@pytest.mark.outside
@pytest.mark.parametrize("pattern", ["*a*a*a*b", "*[ab]*[ab]?b", "*:*a*b", "?*a?*b"])
def test_glob_of_many_stars_ends_on_a_long_text(pattern):
    """A search that goes back takes days; then the limit of a test ends it."""
    assert not compile_glob(pattern).matches("a" * 20_000)
