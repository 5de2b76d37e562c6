"""ClassAd texts: ``DatasetLetters`` distinguishes ``Lofar:L1`` from ``lofar:l1``, a look-up does not."""

import time

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree
from hypothesis import given
from hypothesis import strategies as st

from hydrator import startd_cron
from hydrator.diagnostics.why.pool_facts import fact_expressions
from hydrator.domain.ads.classad import (
    classad_string,
    letters,
    list_literal,
    nested_ad_literal,
    spellings,
    string_literal,
)
from hydrator.domain.model import Did
from hydrator.submit.expressions import here_expression, spelling_expression

names = st.lists(st.from_regex(r"[aAbB1_]{1,4}:[aAbB1@~]{1,5}", fullmatch=True).map(Did), unique=True)


def slot(*held: str, said: str | None = None) -> ClassAd:
    """A slot whose site has *held* on disk; *said* is its DatasetLetters, by default that of the hook."""
    states = ";".join(f"'{did}'=\"AVAILABLE\"" for did in held)
    ad = ClassAd(f"[DatasetStates = [{states}]; DataLocalityAsOf = {int(time.time())}]")
    ad["DatasetLetters"] = spellings(map(Did, held)) if said is None else ExprTree(said)
    return ad


def job(*wanted: str) -> ClassAd:
    dids = [Did(did) for did in sorted(wanted)]
    ad = ClassAd({"DataLocalityMaxAge": 20700, "RequiredDatasetsCSV": ",".join(dids)})
    ad["DataLocalitySpelled"] = ExprTree(spelling_expression(dids))
    ad["DataLocalityHere"] = ExprTree(here_expression(dids, "require"))
    return ad


def matches(wanted: ClassAd, there: ClassAd) -> bool:
    return wanted.lookup("DataLocalityHere").eval(wanted, there)


@pytest.mark.parametrize("wanted", ["lofar:l1_sb001", "LOFAR:L1_SB001", "Lofar:L1_sb001"])
def test_another_letter_case_does_not_match(wanted):
    assert matches(job("Lofar:L1_SB001"), slot("Lofar:L1_SB001", "Lofar:L2_SB001"))
    assert not matches(job(wanted), slot("Lofar:L1_SB001", "Lofar:L2_SB001"))
    assert not matches(job(wanted, "ska:a"), slot("Lofar:L1_SB001", "ska:a"))


def test_names_whose_letters_differ_only_in_case_are_listed_in_full():
    there = slot("ska:Test1", "ska:test2", "ska:other")
    assert matches(job("ska:Test1", "ska:test2", "ska:other"), there)
    assert matches(job("ska:other"), there)
    assert not matches(job("ska:test1"), there)
    assert not matches(job("ska:Test2", "ska:other"), there)


def test_job_does_not_match_a_site_without_one_of_its_datasets():
    assert matches(job("ska:a", "ska:b"), slot("ska:a", "ska:b"))
    assert not matches(job("ska:a", "ska:b"), slot("ska:a"))


def test_a_slot_of_an_older_hook_counts_as_spelling_alike():
    assert matches(job("ska:test1"), slot("ska:Test1", said="undefined"))


def test_names_without_letters_match():
    assert matches(job("1:2"), slot("1:2", "ska:a"))


def test_nonsense_under_our_name_matches_nothing():
    assert not matches(job("ska:a"), slot("ska:a", said="5"))
    assert not matches(job("ska:a"), slot("ska:a", said="error"))


def test_subbands_of_all_observations_share_their_letters():
    dids = [Did(f"lofar:L{run}_SB{band:03}") for run in range(20) for band in range(50)]
    assert spellings(dids) == "lofarLSB"
    assert letters(dids) == ["lofarLSB"]
    assert len(spelling_expression(dids)) < 250


@given(names, names)
def test_a_job_matches_exactly_where_its_names_are_spelled_alike(held, wanted):
    held = list({did.lower(): did for did in held}.values())
    there = slot(*held)
    assert matches(job(*(wanted or ["a:a"])), there) == (set(wanted or ["a:a"]) <= set(held))
    for did in wanted:
        counts = ExprTree(fact_expressions([did])[0]).eval(job(did), there)
        assert counts == (did in held)


@given(names)
def test_the_hook_prints_what_a_merge_writes(held):
    assert startd_cron.spellings({"DatasetStates": dict.fromkeys(held, "AVAILABLE")}) == spellings(held)


def test_a_long_text_has_the_names_alone():
    held = [Did(f"{letter * 400}:{number}") for letter in "aA" for number in range(60)]
    held += [
        Did(f"s{number:x}".translate(str.maketrans("0123456789", "ghijklmnop")) + ":x" * 200)
        for number in range(60)
    ]
    text = spellings(held)
    assert text == ",".join(sorted(held))
    assert startd_cron.spellings({"DatasetStates": dict.fromkeys(held, "AVAILABLE")}) == text
    assert classad_string(text) == f'"{text}"'


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r")))
def test_classad2_reads_a_string_literal_back_as_it_was(text):
    assert ExprTree(string_literal(text)).eval() == text


def test_classad2_reads_lists_and_nested_ads_of_literals_back():
    entries = [("lofar:L1", string_literal("a\\b")), ("ska:x/y", string_literal('say "a"'))]
    assert list(ExprTree(list_literal(literal for _, literal in entries)).eval()) == ["a\\b", 'say "a"']
    assert dict(ExprTree(nested_ad_literal(entries)).eval()) == {"lofar:L1": "a\\b", "ska:x/y": 'say "a"'}


def test_literals_have_the_bytes_that_queues_and_ads_hold():
    pairs = [("A", string_literal('"')), ("B", "2")]
    assert nested_ad_literal(pairs) == "['A'=\"\\\"\";'B'=2]"
    assert list_literal(["1", "2"], ", ") == "{1, 2}"
    assert classad_string("a\tb") == '"a b"'
