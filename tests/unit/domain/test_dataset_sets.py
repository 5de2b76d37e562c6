"""Keys of dataset sets: two sets never share a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.ads.dataset_sets import HASHED_KEY_CHARS, can_be_key, set_key

NAMES = st.text("aAbB@!.:", min_size=1, max_size=6).map(lambda name: f"lofar:{name}")
SETS = st.sets(NAMES, min_size=1, max_size=3)


def test_empty_set_has_no_key():
    with pytest.raises(ValueError, match="at least one dataset"):
        set_key([])


@given(SETS, SETS)
def test_different_sets_have_keys_that_differ_in_more_than_letter_case(one, other):
    assert (set_key(one).lower() == set_key(other).lower()) == (one == other)


@given(
    st.sets(
        st.from_regex(r"\A[A-Za-z0-9._/@=+~-]{1,250}:[A-Za-z0-9._:/@=+~-]{1,249}\Z"), min_size=1, max_size=2
    )
)
def test_every_key_of_valid_names_can_be_a_key(names):
    assert can_be_key(set_key(names))


@pytest.mark.parametrize(
    "text", ["", "true", "s", "S" + "a" * 20, "s" + "1" * 20, "a", ":a", "a:", "a:!", "a:b c", "a:b\n"]
)
def test_other_texts_cannot_be_a_key(text):
    assert not can_be_key(text)


@given(SETS, st.randoms())
def test_order_and_duplicates_do_not_change_the_key(names, random):
    mixed = [*names, *names]
    random.shuffle(mixed)
    assert set_key(mixed) == set_key(names)


def test_the_key_of_one_dataset_can_be_read_and_the_key_of_several_is_short():
    assert set_key(["lofar:L1@a"]) == "lofar:@L1@!a"
    key = set_key(["lofar:L1", "lofar:L2"])
    assert len(key) == HASHED_KEY_CHARS
    assert key.isalnum()
    assert key[0] == "s"
