"""Which datasets are private, the opaque names they go by, and that texts of others lose their names."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.model import Did, parse_did
from hydrator.privacy.pseudonyms import HIDDEN_DID, Privacy, Pseudonymizer, is_masked, is_opaque
from tests.slowness import grows_evenly

KEY, OLD = b"k" * 16 + bytes(range(16)), b"o" * 16 + bytes(range(16))
SECRET = Did("embargo:L1")
PRIVACY = Privacy(("embargo:*", "*:secret_*"))
VEIL = Pseudonymizer(PRIVACY, (KEY, OLD))
NAMES = st.from_regex(r"[A-Za-z0-9._/@=+~-]{1,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("did", "private"),
    [
        ("embargo:L1", True),
        ("EMBARGO:l1", True),
        ("lofar:secret_1", True),
        ("lofar:L1", False),
        ("embargoed:L1", False),
        ("private:" + "a" * 32, False),
        ("private-in-plain:" + "a" * 32, False),
    ],
)
def test_patterns_say_what_is_private_in_any_letter_case(did, private):
    assert PRIVACY.is_private(did) is private


def test_without_patterns_nothing_is_private():
    assert not Privacy().is_private("embargo:L1")
    assert Privacy().redact("embargo:L1") == "embargo:L1"


def test_not_even_a_pattern_for_everything_makes_opaque_names_private():
    everything = Pseudonymizer(Privacy(("*",)), (KEY,))
    name = everything.pseudonym(SECRET)
    assert is_opaque(name)
    assert everything.pseudonym(name) == name


def test_an_opaque_name_is_the_hmac_of_the_did_and_a_did_itself():
    digest = hmac.new(KEY, b"embargo:L1", hashlib.sha256).hexdigest()
    assert VEIL.pseudonym(SECRET) == f"private:{digest[:32]}"
    assert parse_did(VEIL.pseudonym(SECRET)) == VEIL.pseudonym(SECRET)
    assert VEIL.pseudonym(Did("lofar:L1")) == "lofar:L1"


def test_every_key_gives_a_name_the_present_one_first():
    first, second = VEIL.pseudonyms(SECRET)
    assert first == VEIL.pseudonym(SECRET)
    assert second == Pseudonymizer(PRIVACY, (OLD,)).pseudonym(SECRET)
    assert first != second


def test_what_stands_for_a_plain_name_tells_nothing_of_the_opaque_one():
    masked = VEIL.mask(SECRET)
    assert is_masked(masked)
    assert not is_opaque(masked)
    assert masked.partition(":")[2] not in {name.partition(":")[2] for name in VEIL.pseudonyms(SECRET)}


def test_names_that_differ_by_letter_case_get_different_pseudonyms():
    one, other = VEIL.pseudonym(Did("embargo:L1")), VEIL.pseudonym(Did("embargo:l1"))
    assert one.lower() != other.lower()


@given(NAMES)
def test_what_is_private_is_found_by_the_searches_in_whatever_case_it_is_stored(name):
    from adapters.did_matching import filter_by_patterns

    for did in (Did(f"Embargo:{name}"), Did(f"lofar:SECRET_{name}")):
        assert PRIVACY.is_private(did)
        assert filter_by_patterns([did], PRIVACY.search_patterns()) == {did}


@pytest.mark.parametrize(
    "text",
    [
        "datasets.embargo:L1: no such state",
        "asked about embargo:L1.",
        "GET https://rucio/dids/embargo/L1/dids: 500",
        "GET https://rucio/x?did=embargo%3AL1&y=1",
        "cannot read /data/rucio/embargo/ab/cd/L1",
        "KeyError: 'Embargo:L1'",
        '{"did":"embargo:L1"}',
    ],
)
def test_a_text_loses_the_names_of_private_datasets(text):
    scrubbed = VEIL.redact(text)
    assert "L1" not in scrubbed
    assert HIDDEN_DID in scrubbed


def test_in_a_plain_sentence_a_private_did_that_nobody_asked_for_is_hidden():
    assert VEIL.redact("asked about embargo:L1: slow.") == f"asked about {HIDDEN_DID}: slow."


def test_guesses_in_a_text_of_somebody_else_never_become_opaque_names():
    guesses = [Did(f"embargo:L{number}") for number in range(41)]
    shown = VEIL.redact(f"Held: {', '.join(guesses)}", {guesses[0]: VEIL.pseudonym(guesses[0])})
    assert [VEIL.pseudonym(did) for did in guesses if VEIL.pseudonym(did) in shown] == [
        VEIL.pseudonym(guesses[0])
    ]
    assert shown.count(HIDDEN_DID) == 40


@pytest.mark.parametrize(
    "text",
    [
        "x?u=https%253A%252F%252Frucio%252Fembargo%252FL1",
        "a=embargo:L1,b=2",
        "embargo:L1/file-7.ms",
        "private-in-plain:x:secret_L1",
        "..embargo:L1..",
        "lofar%3asecret_L1",
        "LOFAR/SECRET_L1",
    ],
)
def test_a_private_did_is_found_inside_other_words(text):
    assert "l1" not in VEIL.redact(text).lower()
    assert "ms" not in VEIL.redact(text)


HOSTILE = ["a.", "a/", "a:", ":", "a", "%3A", "%", "embargo", "Embargo:", "private:", ":secret_", "é", " "]


@pytest.mark.outside
@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("patterns", [("*:secret_*",), ("*a*a*a*b9", "*?a?*"), ("embargo:*", "*:*ab*")])
def test_time_to_scrub_grows_no_faster_than_the_text(piece, patterns):
    veil = Pseudonymizer(Privacy(patterns), (KEY,))
    grows_evenly(lambda size: veil.redact(piece * (size // len(piece))), 2_000)
    grows_evenly(lambda size: veil.privacy.find_mentions(piece * (size // len(piece))), 2_000)


@pytest.mark.outside
def test_time_to_scrub_hardly_depends_on_how_many_were_asked_for():
    text = "no rule for embargo:L1 " * 50
    asked = {size: {Did(f"embargo:L{n}"): SECRET for n in range(size)} for size in (2000, 8000)}
    grows_evenly(lambda size: VEIL.redact(text, asked[size]), 2000)


@given(st.text("embargo:L1/%3A .é", max_size=40))
def test_no_text_keeps_a_private_did(text):
    scrubbed = VEIL.redact(text)
    assert not PRIVACY.find_mentions(scrubbed)
    assert VEIL.redact(scrubbed) == scrubbed


def test_of_datasets_that_a_text_may_be_about_the_name_alone_is_hidden_too():
    name = VEIL.pseudonym(SECRET)
    assert VEIL.redact("no rule for L10 in scope embargo", {Did("embargo:L10"): name}) == (
        f"no rule for {name} in scope embargo"
    )


@pytest.mark.parametrize("text", ["lofar:L1 is new", "topembargo:L1", "the embargo ends: soon", "12:00:01"])
def test_other_texts_stay_as_they_are(text):
    assert VEIL.redact(text) == text
    assert Pseudonymizer(Privacy(("*:*",)), (KEY,)).redact(text) == text


def test_scrubbing_twice_changes_nothing_more():
    once = VEIL.redact("embargo:L1, lofar:secret_9 and " + VEIL.mask(SECRET))
    assert VEIL.redact(once) == once


def test_what_a_text_mentions_is_told():
    assert PRIVACY.find_mentions('+RequiredDatasets = {"embargo:L1", "lofar:L1"} # lofar:secret_2') == [
        "embargo:L1",
        "lofar:secret_2",
    ]
    assert PRIVACY.find_mentions("top.embargo:L1 EMBARGO:L1. x=embargo:L2") == ["EMBARGO:L1", "embargo:L2"]
    assert PRIVACY.find_mentions(f'+RequiredDatasets = {{"{VEIL.pseudonym(SECRET)}"}}') == []
