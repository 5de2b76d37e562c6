"""For all jobs of contract 1 and all slots: the clause is true or false. For all waits: the deadline."""

import time

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree
from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator.domain.model import DatasetState, Did
from hydrator.submit.expressions import here_expression
from hydrator.submit.pool_config import START_CLAUSE, remove_our_parts
from hydrator.submit.rapthor.job import RapthorRun
from tests.factories import NONSENSE
from tests.transform_oracle import compute_any_after

NOW = int(time.time())
DIDS = [Did(f"ska:d{number}") for number in range(6)]
STATES = [state.value for state in DatasetState]

dids = st.lists(st.sampled_from(DIDS), min_size=1, unique=True)
sizes = st.dictionaries(st.sampled_from(DIDS), st.integers(-5, 2**62))
modes = st.sampled_from(["require", "wait", "prefer"])

nonsense = st.sampled_from(NONSENSE)
records = st.dictionaries(
    st.sampled_from(DIDS), st.one_of(st.sampled_from([f'"{s}"' for s in STATES]), nonsense)
)
ages = st.dictionaries(st.sampled_from(DIDS), st.one_of(st.integers(0, 2 * NOW).map(str), nonsense))


def record(entries: dict[str, str]) -> str:
    return "[" + ";".join(f"'{key}'={value}" for key, value in entries.items()) + "]"


@st.composite
def slots(draw) -> ClassAd:
    """Any slot: hydrated, half hydrated, or with our names used for something else."""
    parts = []
    for name, value in (
        ("DatasetStates", st.one_of(records.map(record), nonsense)),
        ("DatasetAsOf", st.one_of(ages.map(record), nonsense)),
        ("DataLocalityAsOf", st.one_of(st.integers(0, 2 * NOW).map(str), nonsense)),
    ):
        if draw(st.booleans()):
            parts.append(f"{name} = {draw(value)}")
    return ClassAd(f"[{';'.join(parts)}]")


def job(names, mode="require", after=NOW + 900) -> ClassAd:
    ad = ClassAd({"DataLocalityMaxAge": 20700, "DataLocalityAnyAfter": after})
    ad["DataLocalityHere"] = ExprTree(here_expression(names, mode))
    ad["Requirements"] = ExprTree("(true) && MY.DataLocalityHere")
    return ad


def value(ad: ClassAd, slot: ClassAd, name: str):
    return ad.lookup(name).eval(ad, slot)


def site(held: dict[str, str]) -> ClassAd:
    ad = ClassAd({"DataLocalityAsOf": NOW - 60})
    ad["DatasetStates"] = ExprTree(record({did: f'"{state}"' for did, state in held.items()}))
    return ad


@given(dids, modes, slots(), st.sampled_from([NOW - 900, NOW + 900]))
@settings(deadline=None)
def test_the_clause_is_true_or_false_at_any_slot(names, mode, slot, after):
    assert value(job(names, mode, after=after), slot, "DataLocalityHere") in (True, False)


@given(dids, modes, slots())
@settings(deadline=None)
def test_requirements_and_start_agree_at_any_slot(names, mode, slot):
    ad = job(names, mode)
    slot["Start"] = ExprTree(f"(true) && {START_CLAUSE}")
    assert value(slot, ad, "Start") is value(ad, slot, "Requirements")


@given(dids, sizes, st.randoms())
def test_equal_runs_say_the_same_in_whatever_order_they_name_their_datasets(names, known, chance):
    """Equal text is what makes one autocluster of jobs."""
    known = {did: size for did, size in known.items() if size >= 0}
    shuffled = [*names, chance.choice(names)]
    chance.shuffle(shuffled)
    backwards = dict(reversed(known.items()))
    assert (
        RapthorRun("r", tuple(shuffled), backwards).attributes
        == RapthorRun("r", tuple(names), known).attributes
    )


@given(dids, st.dictionaries(st.sampled_from(DIDS), st.sampled_from(STATES)))
@settings(deadline=None)
def test_the_clause_holds_exactly_where_all_datasets_are(names, held):
    is_here = value(job(names), site(held), "DataLocalityHere")
    assert is_here is all(held.get(did) == "AVAILABLE" for did in names)


@given(st.integers(0, 2 * NOW), st.integers(0, 10**7), st.integers(1, 10**4))
def test_a_deadline_is_never_early_and_less_than_a_step_late(now, wait, floor):
    late = compute_any_after(now, wait, floor) - (now + wait)
    if wait < 2:
        assert -floor < late <= 0
    else:
        assert 0 <= late < max(min(floor, wait // 2), wait // 12)


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])).map(str.strip), st.integers(0, 3))
def test_taking_our_clause_out_of_start_leaves_what_was_there(start, times):
    bare = remove_our_parts("START", start)
    text = bare
    for _ in range(times):
        text = f"({text}) && {START_CLAUSE}"
    assert remove_our_parts("START", text) == bare
