"""What `hydrator why` concludes is what the ClassAd library evaluates, for all jobs and slots."""

import json
import time

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.condor.bindings.match_calls import (
    JobMatch,
    split_conjunction,
    split_into_clauses,
    strip_parentheses,
)
from hydrator.diagnostics.why.explain import explain
from hydrator.diagnostics.why.explanation import MismatchCause
from hydrator.diagnostics.why.pool_facts import (
    HERE_ATTRIBUTE,
    fact_expressions,
    parse_job,
    parse_slot_groups,
    with_requests,
)
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import HERE
from hydrator.domain.model import DatasetState, Did, from_unix
from tests.slots import hooked

DIDS = [Did(f"ska:d{number}") for number in range(5)]

dids = st.lists(st.sampled_from(DIDS), min_size=1, unique=True)
states = st.dictionaries(st.sampled_from(DIDS), st.sampled_from([state.value for state in DatasetState]))
# s from now; half a minute from every limit, so that the moments an example takes change nothing
moments = st.integers(-100, 3).map(lambda minutes: 60 * minutes + 30)
ages = st.dictionaries(st.sampled_from(DIDS), moments)
modes = st.sampled_from(["require", "wait"])
limits = st.integers(1, 90).map(lambda minutes: 60 * minutes)
afters = st.sampled_from([-900, 900])


def slot_ad(held, read, as_of, cores, names) -> ClassAd:
    """A slot that has the set *names*; *read* and *as_of* are Unix s."""
    ad = ClassAd({"Name": "slot1@x", "Cpus": cores, "TotalSlotCpus": 8, "PartitionableSlot": True})
    ad["DatasetStates"] = ExprTree("[" + ";".join(f"'{k}'=\"{v}\"" for k, v in held.items()) + "]")
    ad["DatasetAsOf"] = ExprTree("[" + ";".join(f"'{k}'={v}" for k, v in read.items()) + "]")
    key, share = set_key(names), sum(held.get(did) == "AVAILABLE" for did in names) / len(names)
    ad["DataLocalitySets"] = ExprTree(f"['{key}'={share}]")
    ad["DataLocalitySetsAsOf"] = ExprTree(f"['{key}'={min(read.get(did, as_of) for did in names)}]")
    ad["DataLocalitySite"] = "UK"
    ad["DataLocalityGeneration"] = 1
    ad["DataLocalityAsOf"] = as_of
    ad["Start"] = ExprTree(f"(true) && (TARGET.{HERE_ATTRIBUTE} =!= false)")
    ad["Requirements"] = ExprTree("Start && (MY.Cpus > 0 && TARGET.RequestCpus <= MY.Cpus)")
    return hooked(ad)


def job_texts(names, mode, max_age, after, cores=1) -> dict[str, str]:
    texts = {
        "ClusterId": "1",
        "ProcId": "0",
        "JobStatus": "1",
        "RequestCpus": str(cores),
        "RequiredDatasets": json.dumps(names).replace("[", "{").replace("]", "}"),
        "DataLocalityMaxAge": str(max_age),
        "DataLocalityKey": f'"{set_key(names)}"',
        HERE_ATTRIBUTE: HERE[mode],
        "Requirements": f"((TARGET.Cpus >= RequestCpus)) && MY.{HERE_ATTRIBUTE}",
        "DataLocalityTransformed": "true",
    }
    return texts if mode == "require" else {**texts, "DataLocalityAnyAfter": str(after)}


def as_ad(texts) -> ClassAd:
    ad = ClassAd()
    for name, text in texts.items():
        ad[name] = ExprTree(text)
    return ad


@settings(max_examples=100, deadline=None)
@given(dids, modes, states, ages, moments, limits, afters, st.integers(0, 9), st.integers(1, 10))
def test_a_verdict_is_the_symmetric_match_and_its_reasons_are_the_clauses_that_fail(
    names, mode, held, read, as_of, max_age, after, free, asked
):
    now = int(time.time())
    read, as_of, after = {did: now + s for did, s in read.items()}, now + as_of, now + after
    texts, slot = job_texts(names, mode, max_age, after, asked), slot_ad(held, read, as_of, free, names)
    matches, here = (
        as_ad(texts).symmetricMatch(slot),
        ExprTree(texts[HERE_ATTRIBUTE]).eval(as_ad(texts), slot),
    )
    judged = JobMatch(
        classad2, as_ad(texts), fact_expressions(names), ["Site"], [HERE_ATTRIBUTE]
    ).evaluate_slots([(slot, None)])
    job = with_requests(parse_job(texts, [0], "schedd"), judged)
    answer = explain(job, parse_slot_groups(judged, names), None, now=from_unix(now))
    assert answer.matching_sites == (("UK",) if matches else ())
    causes = {reason.cause for at in answer.sites for reason in at.reasons}
    assert (MismatchCause.DATA in causes) == (not here)
    assert (MismatchCause.BUSY in causes) == (free < asked <= 8)
    assert (MismatchCause.CORES in causes) == (asked > max(8, free))
    assert bool(answer.remedy) == (not matches)
    counted = {did for did in names if held.get(did) == "AVAILABLE" and now - read.get(did, as_of) < max_age}
    missing = {one.did for at in answer.sites for reason in at.reasons for one in reason.missing_datasets}
    assert missing == (set() if here else set(names) - counted)


atoms = st.sampled_from(
    [
        "true",
        "false",
        "undefined",
        "A",
        "MY.A",
        "B",
        "TARGET.C",
        '"&& (" == "&& ("',
        "TARGET.'C'",
        "{1,2}[0] == 1",
    ]
)


@st.composite
def expressions(draw, depth=3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(atoms)
    one, other, third = (draw(expressions(depth - 1)) for _ in range(3))
    return draw(
        st.sampled_from(
            [
                f"{one} && {other}",
                f"({one}) && ({other}) && {third}",
                f"({one} && {other})",
                f"{one} || {other}",
                f"({one}) ? ({other}) : ({third})",
                f"{one} =?= {other} && {third}",
                f"({one}) ?: ({other} && {third})",
                f"ifThenElse({one}, {other}, {third})",
                f"!({one} && {other})",
            ]
        )
    )


@settings(max_examples=300, deadline=None)
@given(expressions(), st.sampled_from(["true", "false", "C && A", "A || TARGET.C"]))
def test_an_expression_holds_exactly_where_all_its_clauses_do(text, b):
    my, target = ClassAd({"A": True}), ClassAd({"C": True})
    my["B"] = ExprTree(b)
    my["Requirements"] = ExprTree(text)

    def holds(part: str) -> bool:
        return ExprTree(part).eval(my, target) is True

    printed = {name: str(my.lookup(name)) for name in my}
    parts = split_into_clauses("Requirements", printed.get, ())
    assert all(holds(part) for part in parts) == holds(text)


@given(expressions())
def test_what_is_split_and_laid_bare_means_the_same(text):
    assert strip_parentheses(f"(({text}))") in {text, strip_parentheses(text)}
    assert " && ".join(split_conjunction(text)).replace(" ", "") == text.replace(" ", "")
