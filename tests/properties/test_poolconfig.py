"""For all jobs and all slots: the locality clause and the rank have a value, and the right kind of value."""

import time

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree
from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator.domain.model import DatasetState, Did
from hydrator.submit.expressions import here_expression
from hydrator.submit.pool_config import PRE_JOB_TERM, START_CLAUSE, remove_our_parts
from hydrator.submit.rapthor.job import RapthorRun
from tests.transform_oracle import compute_any_after, job_rank_expression, rank_expression

NOW = int(time.time())
DIDS = [Did(f"ska:d{number}") for number in range(6)]
STATES = [state.value for state in DatasetState]

dids = st.lists(st.sampled_from(DIDS), min_size=1, unique=True)
sizes = st.dictionaries(st.sampled_from(DIDS), st.integers(-5, 2**62))
modes = st.sampled_from(["require", "wait", "prefer"])

# what a slot may say under our names, from a sister project, a broken hook or a joker
nonsense = st.sampled_from(
    [
        "undefined",
        "error",
        "3",
        "-1.5",
        '"text"',
        "true",
        "{}",
        '{"ska:d0"}',
        "[]",
        "[x = 1]",
        "time()",
        "MY.Requirements",
    ]
)
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


def job(names, mode="require", known=None, after=NOW + 900) -> ClassAd:
    ad = ClassAd(
        {"DataLocalityMaxAge": 20700, "DataLocalityAnyAfter": after, "RequiredBytes": ClassAd(known or {})}
    )
    ad["DataLocalityHere"] = ExprTree(here_expression(names, mode))
    ad["DataLocalityRank"] = ExprTree(rank_expression(names, known or {}))
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


@given(dids, sizes, slots())
@settings(deadline=None)
def test_the_rank_is_from_0_to_1_at_any_slot(names, known, slot):
    rank = value(job(names, known=known), slot, "DataLocalityRank")
    assert isinstance(rank, float)
    assert 0.0 <= rank <= 1.0


@given(dids, sizes, st.dictionaries(st.sampled_from(DIDS), st.sampled_from(STATES)), st.sampled_from(DIDS))
@settings(deadline=None)
def test_one_more_dataset_never_lowers_the_rank(names, known, held, more):
    ad = job(names, known=known)
    before = value(ad, site(held), "DataLocalityRank")
    assert value(ad, site({**held, more: "AVAILABLE"}), "DataLocalityRank") >= before


@given(
    dids, sizes, slots(), st.one_of(nonsense, st.sampled_from(["TARGET.Mips", "5 / 0", "false", "real({})"]))
)
@settings(deadline=None)
def test_whatever_the_users_rank_and_the_slot_say_the_ranks_are_numbers_and_the_share_counts(
    names, known, slot, users
):
    ad = job(names, known=known)
    ad["Rank"] = ExprTree(job_rank_expression(users, 1000.0))
    alone = value(ad, slot, "DataLocalityRank")
    rank = value(ad, slot, "Rank")
    assert isinstance(rank, float)
    ad["Rank"] = ExprTree(job_rank_expression(users, 0.0))
    assert abs(rank - value(ad, slot, "Rank") - 1000.0 * alone) < 1e-3
    slot["PreJobRank"] = ExprTree(PRE_JOB_TERM)
    assert value(slot, ad, "PreJobRank") == 1e9 * alone


@given(
    dids,
    st.dictionaries(st.sampled_from(DIDS), st.integers(1, 2**50)),
    st.sets(st.sampled_from(DIDS)),
    st.sets(st.sampled_from(DIDS)),
)
@settings(deadline=None)
def test_of_two_sites_the_one_with_more_local_bytes_never_ranks_lower(names, known, one, other):
    """Datasets where a size is missing, bytes where all are known; nothing is on its way."""
    size = {did: known[did] if all(name in known for name in names) else 1 for did in names}

    def at(held: set[Did]) -> tuple[int, float]:
        rank = value(job(names, known=known), site(dict.fromkeys(held, "AVAILABLE")), "DataLocalityRank")
        return sum(size[did] for did in held if did in size), rank

    (fewer, low), (more, high) = sorted((at(one), at(other)))
    assert low <= high
    assert (fewer == more) or low < high or more - fewer < sum(size.values()) * 1e-12


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
def test_the_clause_holds_exactly_where_the_rank_is_1(names, held):
    ad, slot = job(names), site(held)
    assert value(ad, slot, "DataLocalityHere") is (value(ad, slot, "DataLocalityRank") == 1.0)


@given(st.integers(0, 2 * NOW), st.integers(0, 10**7), st.integers(1, 10**4))
def test_a_deadline_is_never_early_and_less_than_a_step_late(now, wait, floor):
    assert 0 <= compute_any_after(now, wait, floor) - (now + wait) < max(floor, wait // 12)


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])).map(str.strip), st.integers(0, 3))
def test_taking_our_clause_out_of_start_leaves_what_was_there(start, times):
    bare = remove_our_parts("START", start)
    text = bare
    for _ in range(times):
        text = f"({text}) && {START_CLAUSE}"
    assert remove_our_parts("START", text) == bare
