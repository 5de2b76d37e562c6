"""The limit of jobs that begin to read from one source: the slots' expressions, on the real evaluator."""

import re
import time

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree, Value
from hypothesis import given, settings

from hydrator.submit.expressions import LIMIT_EXPRESSIONS
from tests.properties.test_keyed_expressions import KEY, NOW, any_slot, is_here, keyed_job, slot, value


def limited_slot(read, source="RAL-1 b", **facts) -> ClassAd:
    """A slot with the startd's configuration of 10 readers, where a job would read from *source*."""
    at = slot(share=0.0, read=read, queue=16384, **facts)
    at["DataLocalityReadFrom"] = ClassAd({KEY: source})
    for name, expression in LIMIT_EXPRESSIONS.items():
        printed = expression.replace("$(DATALOCALITY_READERS)", "10").replace("$(DATALOCALITY_TURN)", "64")
        at[name] = ExprTree(printed)
    return at


def limit(at: ClassAd) -> object:
    ad = keyed_job()
    ad["ConcurrencyLimits"] = ExprTree("TARGET.DataLocalityReadLimit")
    assert ad.eval("ConcurrencyLimits") is Value.Undefined, "else the negotiator would not look at the slot"
    return value(ad, at, "ConcurrencyLimits")


@pytest.mark.parametrize(
    ("read", "turn", "weight"),
    [(8, 64, 31), (16, 64, 62), (64, 64, 250), (128, 80, 400), (4096, 2560, 400)],
)
def test_limit_of_a_source_has_the_turn_and_a_weight(read, turn, weight):
    """With 10 readers: 5/8 of the read, for 2 of them; in the shortest turn of 64 s more of shorter reads."""
    name = rf"DataLocality\.from_RAL_1_b_{turn}_[0-9]{{1,3}}:{weight}"
    assert re.fullmatch(name, limit(limited_slot(read)))


@pytest.mark.parametrize(
    "at",
    [
        limited_slot(4),
        limited_slot(0),
        limited_slot(None),
        limited_slot(64, until=NOW - 1),
        slot(share=1.0),
        ClassAd("[Name = 1]"),
    ],
    ids=["short read", "no read", "unknown read", "old estimates", "beside the data", "no attributes"],
)
def test_other_jobs_have_no_limit(at):
    assert limit(at) is Value.Undefined


@given(any_slot())
@settings(deadline=None, max_examples=300)
def test_limit_is_a_name_or_undefined_at_every_slot(at):
    for name, expression in LIMIT_EXPRESSIONS.items():
        printed = expression.replace("$(DATALOCALITY_READERS)", "10").replace("$(DATALOCALITY_TURN)", "64")
        at[name] = ExprTree(printed)
    found = limit(at)
    # a source that is no string makes an error, and then the job has no limit
    assert found in (Value.Undefined, Value.Error) or found.startswith("DataLocality.from_")
    assert is_here(keyed_job(), at) in (True, False)


def test_a_slot_takes_a_reader_only_from_the_negotiator():
    """Not on the other cores of a slot that just got a job, and not on an old claim; short reads always."""
    new, old = f"{{{NOW - 900}, {int(time.time())}}}", f"{{{NOW - 900}}}"
    for read, taken in ((64, False), (4, True)):
        just, later = limited_slot(read), limited_slot(read)
        just["ChildEnteredCurrentState"], later["ChildEnteredCurrentState"] = ExprTree(new), ExprTree(old)
        claimed, reused = limited_slot(read), limited_slot(read)
        claimed["State"] = reused["State"] = "Claimed"
        claimed["EnteredCurrentState"], reused["EnteredCurrentState"] = int(time.time()), NOW - 900
        here = [is_here(keyed_job(), at) for at in (just, later, claimed, reused)]
        assert here == [taken, True, True, taken]
