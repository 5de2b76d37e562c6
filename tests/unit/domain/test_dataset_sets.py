"""Keys of dataset sets: two sets never share a key, but that of a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.ads.dataset_sets import (
    HASHED_KEY_CHARS,
    NAMES_CHARS,
    can_be_key,
    fits,
    hash_key,
    key_attributes,
    names_key,
    names_of,
    set_key,
)

NAMES = st.text("aAbB@~.:", min_size=1, max_size=6).map(lambda name: f"lofar:{name}")
SETS = st.sets(NAMES, min_size=1, max_size=3)
LONG = [f"lofar:L{number}" for number in range(100, 120)]


def test_empty_set_has_no_key():
    with pytest.raises(ValueError, match="at least one dataset"):
        set_key([])


@given(SETS, SETS)
def test_different_sets_have_keys_that_differ_in_more_than_letter_case(one, other):
    for key in (set_key, hash_key):
        assert (key(one).lower() == key(other).lower()) == (one == other)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_names_key_is_of_its_names_alone_and_has_no_lane(names):
    key = names_key(names)
    assert names_of(key) == tuple(names)
    assert fits(key, set(names))
    assert not fits(key, {*names, "lofar:other"})
    assert names_of(f"{key}~3") == ()


@given(
    st.sets(
        st.from_regex(r"\A[A-Za-z0-9._/@=+~-]{1,250}:[A-Za-z0-9._:/@=+~-]{1,249}\Z"), min_size=1, max_size=2
    )
)
def test_every_key_of_valid_names_can_be_a_key(names):
    assert can_be_key(set_key(names))


def test_key_of_a_cluster_can_be_a_key_and_fits_any_list():
    key = "c2147483647.1234567@schedd_1@host-2.example.org"
    assert can_be_key(key)
    assert fits(key, LONG)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "true",
        "s",
        "S" + "a" * 20,
        "s" + "1" * 20,
        "a",
        ":a",
        "a:b c",
        "a:b\n",
        "A:b",
        "a:@b",
        "c1.@h",
        "c1.2@H",
    ],
)
def test_other_texts_cannot_be_a_key(text):
    assert not can_be_key(text)


@given(SETS, st.randoms())
def test_order_and_duplicates_do_not_change_the_key_of_submit(names, random):
    mixed = [*names, *names]
    random.shuffle(mixed)
    assert set_key(mixed) == set_key(names)


def test_short_names_are_the_key_and_long_lists_have_a_hash_with_its_text():
    assert set_key(["lofar:L2", "lofar:L1@a~b"]) == "lofar:@L1@@a@~b,lofar:@L2"
    assert key_attributes(["lofar:L1"]) == {}
    at_most = ["x:" + "a" * (NAMES_CHARS - 2)]
    assert key_attributes(at_most) == {}
    assert len(set_key(["x:" + "a" * (NAMES_CHARS - 1)])) == HASHED_KEY_CHARS
    assert key_attributes(LONG) == {"DataLocalityKey": hash_key(LONG), "DataLocalityKeyFor": ",".join(LONG)}
    assert set_key(LONG) == hash_key(LONG)
