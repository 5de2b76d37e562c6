"""Values of the model: DIDs, ads as text, whole seconds."""

from datetime import timedelta

import pytest

from hydrator.domain.errors import BadDid
from hydrator.domain.model import MAX_DID_CHARS, Snapshot, from_unix, parse_did, to_unix
from tests.factories import L1, L2, L3, NOON, ad


@pytest.mark.parametrize(
    "text",
    [
        "lofar:L1",
        "lofar:/ska/pipelines/L1.MS",
        "user.alice:a:b",
        "s:a.b_c-d+e=f@g~h",
        "s:" + "n" * 250,
        "s:" + "n" * (MAX_DID_CHARS - 2),
    ],
)
def test_did_with_a_scope_is_unchanged(text):
    assert parse_did(text) == text


def test_name_without_scope_gets_the_default_scope():
    assert parse_did("L1", "lofar") == "lofar:L1"
    assert parse_did("ska:L1", "lofar") == "ska:L1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("L1", "no scope"),
        (":L1", "empty"),
        ("lofar:", "empty"),
        (":", "empty"),
        ("", "no scope"),
        ("cms:/A/B/RAW#12ac-3", "not '#'"),  # S9 of cases/submit.md
        ("lofar:L 1", "letters"),
        ("lofar:L1\n", "letters"),
        ("lofar:L1\0", "letters"),
        ('lofar:"L1"', "letters"),
        ("lofar:'L1'", "letters"),
        ("lofar:L1,lofar:L2", "letters"),
        ("lofar:L1;", "letters"),
        ("lofar:L\\1", "letters"),
        ("lofar:[L1]", "letters"),
        ("lofar:$(L1)", "letters"),
        ("lofar:Lü", "letters"),
        ("lofar:L\u0661", "letters"),
        ("s:" + "n" * (MAX_DID_CHARS - 1), "501 characters"),
    ],
)
def test_text_that_is_not_a_did_is_rejected_with_a_reason(text, reason):
    with pytest.raises(BadDid, match=reason) as caught:
        parse_did(text)
    assert caught.value.text == text


@pytest.mark.parametrize("text", ["", "L 1", "é"])
def test_bad_did_names_the_original_text_and_not_the_default_scope(text):
    with pytest.raises(BadDid) as caught:
        parse_did(text, "lofar")
    assert caught.value.text == text


def test_a_long_refused_text_is_shortened_for_people():
    with pytest.raises(BadDid) as caught:
        parse_did("x " * 100_000)
    assert len(str(caught.value)) < 500


def test_to_unix_rounds_down_so_that_no_age_is_understated():
    assert to_unix(NOON + timedelta(microseconds=999_999)) == to_unix(NOON)
    assert to_unix(from_unix(-0.5)) == -1
    assert from_unix(to_unix(NOON)) == NOON


def test_an_ad_is_one_attribute_a_line_in_the_order_of_the_contract():
    assert ad(L1, L2, generation=7).text == (
        'DataLocalitySite = "CAM"\n'
        'AvailableDatasets = {"lofar:L1","lofar:L2"}\n'
        "DatasetStates = ['lofar:L1'=\"AVAILABLE\";'lofar:L2'=\"AVAILABLE\"]\n"
        "DatasetFractions = []\n"
        "DatasetAsOf = []\n"
        "DataLocalitySets = ['lofar:@L1'=1.0;'lofar:@L2'=1.0]\n"
        "DataLocalitySetsAsOf = []\n"
        "DataLocalityTruncated = false\n"
        f"DataLocalityAsOf = {to_unix(NOON)}\n"
        "DataLocalityGeneration = 7\n"
        "DataLocalityVersion = 1\n"
    )


@pytest.mark.parametrize(
    ("dids", "size"), [((L1, L2), 12), ((L1, L3), None), ((L3,), None), ((), None)], ids=str
)
def test_bytes_of_datasets_are_known_if_each_size_is(dids, size):
    assert Snapshot({}, bytes_total={L1: 5, L2: 7}).sum_bytes(dids) == size
