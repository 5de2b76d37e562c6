"""ClassAd texts: literals, and keys that tell ``Lofar:L1`` from ``lofar:l1``."""

import time

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.ads.classad import (
    classad_string,
    list_literal,
    nested_ad_literal,
    string_literal,
)
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import HERE
from hydrator.domain.model import Did
from tests.slots import hooked

names = st.lists(st.from_regex(r"[aAbB1_]{1,4}:[aAbB1@~]{1,5}", fullmatch=True).map(Did), unique=True)


@given(names, names)
def test_a_job_matches_exactly_where_its_name_is_spelled_alike(held, wanted):
    sets = ";".join(f"'{set_key([did])}'=1.0" for did in held)
    slot = hooked(ClassAd(f"[DataLocalitySets = [{sets}]; DataLocalityAsOf = {int(time.time())}]"))
    for did in {*wanted, *(did.swapcase() for did in held)}:
        job = ClassAd({"DataLocalityMaxAge": 20700, "DataLocalityKey": set_key([Did(did)])})
        job["DataLocalityHere"] = ExprTree(HERE["require"])
        assert job.lookup("DataLocalityHere").eval(job, slot) == (did in held)


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
