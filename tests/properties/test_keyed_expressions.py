"""For all jobs and all slots: the clause and the rank of keyed and bare jobs, on the real evaluator."""

import itertools
import re
import time

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hydrator.domain.ads.classad import string_literal
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.expressions import (
    BARE_HERE,
    BARE_RANK,
    COMPACT_HERE,
    KEYED_HERE,
    KEYED_RANK,
    KNOWN_FLOOR,
    MODES,
    OLDEST_EXPRESSION,
    SETS_EXPRESSION,
    SLOT_EXPRESSIONS,
    SUBMITTED_HERE,
    UNKNOWN_FLOOR,
)
from hydrator.submit.pool_config import PRE_JOB_TERM, START_CLAUSE
from hydrator.submit.pool_config.transform import BOUND_REQUIREMENTS
from tests.factories import NONSENSE
from tests.transform_oracle import shares_expression

NOW = int(time.time())
LATER = NOW + 90_000  # the tests may run hours after this file was read
DIDS = [Did("ska:d0"), Did("ska:D1"), Did("ska:d@2"), Did("lofar:L3_SB003")]
KEY = set_key(DIDS)
MAX_AGE = 20_700
RECORDS = ("DataLocalitySets", "DataLocalitySetsAsOf", "DataLocalityReadSeconds", "DataLocalityQueueSeconds")
NUMBERS = ("DataLocalityAsOf", "DataLocalityEstimatesUntil", "DataLocalityOwnQueueSeconds")
KEYS = [KEY, *(set_key([did]) for did in DIDS)]

nonsense = st.sampled_from(NONSENSE)
moments = st.one_of(  # too old, not too old, later; none changes its class while the tests run
    st.integers(NOW - 2 * MAX_AGE, NOW - MAX_AGE),
    st.integers(NOW - MAX_AGE + 7200, NOW),
    st.integers(NOW + 7200, NOW + MAX_AGE),
).map(str)
seconds = st.integers(0, 10**6)
shares = st.integers(0, 99).map(lambda percent: percent / 100)


def record(entries: dict[str, object]) -> str:
    return "[" + ";".join(f"'{key}'={value}" for key, value in entries.items()) + "]"


@st.composite
def any_slot(draw) -> ClassAd:
    """Any slot: with the attributes, with some of them, or with their names used for something else."""
    lines = []
    for name in (*RECORDS, "DataLocalityReadFrom"):
        values = st.one_of(st.integers(-5, 2 * NOW).map(str), st.floats(-1, 2).map(str), nonsense)
        whole = st.dictionaries(st.sampled_from(KEYS), values).map(record)
        if draw(st.booleans()):
            lines.append(f"{name} = {draw(st.one_of(whole, nonsense))}")
    lines += [f"{name} = {draw(st.one_of(moments, nonsense))}" for name in NUMBERS if draw(st.booleans())]
    return ClassAd(f"[{';'.join(lines)}]")


@st.composite
def slot_of_singles(draw) -> ClassAd:
    """A slot that has the single datasets: most of its values are those that a daemon publishes."""
    share = st.sampled_from(["1.0", "1.0", "1.0", "1.0", "0.5", "0.0", "2.0", "1", "undefined"])
    each = {set_key([did]): draw(share) for did in DIDS if draw(st.integers(0, 9))}
    lines = [f"DataLocalitySets = {record(each)}", f"DataLocalityAsOf = {draw(st.one_of(moments, nonsense))}"]
    if draw(st.booleans()):
        times = draw(st.dictionaries(st.sampled_from(KEYS), moments))
        lines.append(f"DataLocalitySetsAsOf = {record(times)}")
    return ClassAd(f"[{';'.join(lines)}]")


def keyed_job(mode="auto", after=LATER, **more) -> ClassAd:
    ad = ClassAd(
        {
            "DataLocalityKey": KEY,
            "DataLocalityMaxAge": MAX_AGE,
            "DataLocalityAnyAfter": after,
            **more,
        }
    )
    ad["DataLocalityHere"] = ExprTree(COMPACT_HERE[mode])
    ad["DataLocalityRank"] = ExprTree(KEYED_RANK)
    ad["Requirements"] = ExprTree("(true) && MY.DataLocalityHere")
    return ad


def bare_job(mode="auto", after=LATER, dids=DIDS, **more) -> ClassAd:
    ad = ClassAd({"DataLocalityMaxAge": MAX_AGE, "DataLocalityAnyAfter": after, **more})
    ad["RequiredDatasets"] = list(dids)
    ad["DatasetsHere"] = ExprTree(SETS_EXPRESSION)
    ad["DataLocalityShares"] = ExprTree(shares_expression(dids))
    ad["DataLocalityOldest"] = ExprTree(OLDEST_EXPRESSION)
    ad["DataLocalityHere"] = ExprTree(BARE_HERE[mode])
    ad["DataLocalityRank"] = ExprTree(BARE_RANK)
    ad["Requirements"] = ExprTree("(true) && MY.DataLocalityHere")
    return ad


KINDS = {"keyed": keyed_job, "bare": bare_job}
kinds = st.sampled_from(sorted(KINDS))


def slot(share=None, read=None, queue=None, own=None, as_of=NOW - 60, until=LATER, old=None) -> ClassAd:
    """A slot with these facts about the set of all DIDS; None leaves a fact out."""
    lines = [f"DataLocalityAsOf = {as_of}", f"DataLocalityEstimatesUntil = {until}"]
    for name, value in zip(RECORDS, (share, old, read, queue), strict=True):
        if value is not None:
            lines.append(f"{name} = {record({KEY: value})}")
    if own is not None:
        lines.append(f"DataLocalityOwnQueueSeconds = {own}")
    return ClassAd(f"[{';'.join(lines)}]")


def singles(shares_by_did: dict[str, float], old: dict[str, int] | None = None, as_of=NOW - 60) -> ClassAd:
    """A slot with these facts about single datasets."""
    lines = [
        f"DataLocalityAsOf = {as_of}",
        f"DataLocalitySets = {record({set_key([did]): value for did, value in shares_by_did.items()})}",
    ]
    if old is not None:
        lines.append(f"DataLocalitySetsAsOf = {record({set_key([did]): at for did, at in old.items()})}")
    return ClassAd(f"[{';'.join(lines)}]")


def value(ad: ClassAd, other: ClassAd, name: str):
    """Return the attribute of *ad* as the negotiator evaluates it against *other*."""
    return ad.lookup(name).eval(ad, other)


def is_here(ad: ClassAd, at: ClassAd) -> bool:
    return value(ad, at, "DataLocalityHere")


def rank(ad: ClassAd, at: ClassAd) -> float:
    return value(ad, at, "DataLocalityRank")


def with_startd_expressions(at: ClassAd) -> ClassAd:
    """Add the attributes of the startd's configuration to the slot *at*."""
    configured = ClassAd(str(at))
    for name, expression in SLOT_EXPRESSIONS.items():
        configured[name] = ExprTree(expression)
    return configured


@given(st.sampled_from(MODES), any_slot(), st.sampled_from([NOW - 900, LATER]))
@settings(deadline=None, max_examples=300)
def test_clause_in_the_slot_and_clause_in_the_job_have_one_value(mode, at, after):
    ad = keyed_job(mode, after)
    ad["Whole"] = ExprTree(f"({KEYED_HERE[mode]}) =?= true")
    configured = with_startd_expressions(at)
    assert is_here(ad, at) is is_here(ad, configured) is value(ad, at, "Whole")


@given(any_slot())
@settings(deadline=None, max_examples=300)
def test_offer_of_any_slot_is_a_text_that_the_schedd_can_expand(at):
    """HTCondor holds a job whose text expands to undefined or an error; a quote would end the text."""
    job, configured = keyed_job("auto", LATER), with_startd_expressions(at)
    offer = value(configured, job, "DataLocalityOffer")
    assert re.fullmatch('|local|(read -?[0-9]+ s( from [^"\\\\$]+)?, )?queue [0-9]+ s', offer)
    assert (offer == "local") is value(configured, job, "DataLocalityLocal")


@given(st.sampled_from(MODES), any_slot(), st.sampled_from([NOW - 900, LATER]))
@settings(deadline=None, max_examples=300)
def test_clause_of_submit_has_the_value_of_the_jobs_mode(mode, at, after):
    made = keyed_job(mode, after)
    written = keyed_job(mode, after, DataLocality=mode, DataLocalityTransformed=True)
    written["DataLocalityHere"] = ExprTree(SUBMITTED_HERE)
    assert is_here(written, at) is is_here(made, at)
    del written["DataLocalityTransformed"]
    assert is_here(written, at) is True, "a schedd without the transform"


def plain_expressions(mode: str) -> tuple[str, str]:
    """Return the clause and the rank of a bare job as one would write them without thought of their size."""
    shares, times = (
        "{" + ", ".join(f'TARGET.{name}["{set_key([did])}"]' for did in DIDS) + "}"
        for name in ("DataLocalitySets", "DataLocalitySetsAsOf")
    )
    oldest = f"(isUndefined(TARGET.DataLocalitySetsAsOf) ? TARGET.DataLocalityAsOf : min({times}))"
    fresh = "isInteger(TARGET.DataLocalityAsOf)"
    fresh += f" && time() - min({{TARGET.DataLocalityAsOf, {oldest}}}) < MY.DataLocalityMaxAge"
    local, known = (
        f'((allCompare(">=", {shares}, {least}) && {fresh}) =?= true)' for least in ("1.0", "0.0")
    )
    more = {"require": [], "auto": ["time() >= MY.DataLocalityAnyAfter", known]}
    clauses = [local, *more.get(mode, more["auto"][:1])]
    share = f"min({{1.0, sum({shares}) / {len(DIDS)}.0}})"
    ranked = f"{local} ? 0.0 : (sum({shares}) >= 0 && {fresh}) =?= true"
    return " || ".join(clauses), f"{ranked} ? 100000.0 * {share} - 1000000.0 : -1000000.0"


@given(st.sampled_from(MODES), st.one_of(any_slot(), slot_of_singles()), st.sampled_from([NOW - 900, LATER]))
@settings(deadline=None, max_examples=600)
def test_short_expressions_of_bare_jobs_have_the_value_of_the_plain_ones(mode, at, after):
    ad = bare_job(mode, after)
    ad["PlainHere"], ad["PlainRank"] = map(ExprTree, plain_expressions(mode))
    assert is_here(ad, at) is value(ad, at, "PlainHere")
    assert rank(ad, at) == pytest.approx(value(ad, at, "PlainRank"), rel=1e-12)


def test_clause_of_submit_is_written_as_unparse_prints_it():
    assert str(ExprTree(SUBMITTED_HERE)) == SUBMITTED_HERE


@pytest.mark.parametrize(
    ("requirements", "is_bound"),
    [
        ("(MY.DataLocalityHere) && (TARGET.A == 1)", True),
        ('(MY.DataLocalityHere && (a || b == ")(")) && TARGET.HasX && (x)', True),
        ("(MY.DataLocalityHere && ('a)||(b')) && (z)", True),
        (r'(MY.DataLocalityHere && (x == "\\")) && (y || "\"")', True),
        ("(MY.DataLocalityHere) || (x)", False),
        ("(MY.DataLocalityHere || (x)) && (y)", False),
        ("(MY.DataLocalityHere && (x) || (y)) && (z)", False),
        ("(MY.DataLocalityHere && (x)) && (y) || (z)", False),
        ("(MY.DataLocalityHere) && (x) ? (y) : (z)", False),
        ("((MY.DataLocalityHere) && (x)) || (y)", False),
        ("(TARGET.DataLocalityHere) && (x)", False),
        ("true", False),
    ],
)
def test_requirements_that_may_be_true_without_the_clause_are_found(requirements, is_bound):
    ad = ClassAd({"Requirements": ExprTree(requirements)})
    ad["IsBound"] = ExprTree(f"regexp({string_literal(BOUND_REQUIREMENTS)}, unparse(Requirements))")
    assert ad.eval("IsBound") is is_bound


@given(any_slot())
@settings(deadline=None, max_examples=300)
def test_negotiator_computes_the_rank_of_keyed_jobs_as_for_a_job_that_carries_it(at):
    ranked = ClassAd(str(at))  # a printed number has one digit less: both ranks are computed at this slot
    carried = keyed_job()
    del carried["DataLocalityKey"]
    carried["DataLocalityRank"] = rank(keyed_job(), ranked)
    ranked["PreJobRank"] = ExprTree(PRE_JOB_TERM.replace("$(DATALOCALITY_OTHERS_WEIGHT)", "1000000"))
    lean = keyed_job()
    del lean["DataLocalityRank"]
    found = value(ranked, lean, "PreJobRank")
    assert isinstance(found, float)
    assert found == value(ranked, carried, "PreJobRank")
    assert -1.12e12 < found <= 0


# --- no slot makes an error


@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(MODES),
    any_slot(),
    st.sampled_from([NOW - 900, LATER]),
)
@settings(deadline=None, max_examples=300)
def test_clause_is_true_or_false_at_any_slot_and_start_agrees(kind, mode, at, after):
    ad = KINDS[kind](mode, after)
    assert is_here(ad, at) in (True, False)
    at["Start"] = ExprTree(f"(true) && {START_CLAUSE}")
    assert value(at, ad, "Start") is value(ad, at, "Requirements")


@given(kinds, any_slot())
@settings(deadline=None, max_examples=300)
def test_rank_is_a_number_from_the_floor_to_0_at_any_slot(kind, at):
    found = rank(KINDS[kind](), at)
    assert isinstance(found, float)
    assert UNKNOWN_FLOOR <= found <= 0.0


# --- the clause


@pytest.mark.parametrize("mode", MODES)
def test_slot_with_all_data_matches_in_every_mode(mode):
    assert is_here(keyed_job(mode), slot(share=1.0)) is True
    assert is_here(bare_job(mode), singles(dict.fromkeys(DIDS, 1.0))) is True


@pytest.mark.parametrize("mode", ["require", "wait"])
def test_slot_without_all_data_does_not_match_before_the_deadline(mode):
    assert is_here(keyed_job(mode), slot(share=0.99, read=0, queue=10)) is False
    assert is_here(bare_job(mode), singles({**dict.fromkeys(DIDS, 1.0), DIDS[1]: 0.99})) is False
    assert is_here(bare_job(mode), singles(dict.fromkeys(DIDS[:3], 1.0))) is False


@pytest.mark.parametrize(("mode", "matches"), [("require", False), ("wait", True)])
def test_after_the_deadline_only_mode_require_needs_the_data(mode, matches):
    for make in KINDS.values():
        assert is_here(make(mode, after=NOW - 1), ClassAd("[]")) is matches


def test_bare_job_matches_no_dataset_in_another_letter_case():
    assert is_here(bare_job("require", dids=[Did("ska:d0")]), singles({"ska:D0": 1.0})) is False
    assert is_here(bare_job("require", dids=[Did("ska:D0")]), singles({"ska:D0": 1.0})) is True


@given(shares, seconds, seconds, seconds)
@settings(deadline=None)
def test_auto_compares_the_seconds_here_with_those_beside_the_data(share, read, own, queue):
    assert is_here(keyed_job(), slot(share, read, queue, own)) is (read + own < queue)


def test_auto_never_reads_from_a_source_that_takes_no_readers():
    assert is_here(keyed_job(after=NOW - 900), slot(0.5, queue=10**6)) is False


def test_auto_without_estimates_settles_at_once_where_the_set_is_published():
    assert is_here(keyed_job(), slot(0.0)) is True
    assert is_here(keyed_job(), slot()) is False
    assert is_here(keyed_job(after=NOW - 1), slot()) is True
    assert is_here(bare_job(), singles(dict.fromkeys(DIDS, 0.0))) is True
    assert is_here(bare_job(), singles(dict.fromkeys(DIDS[:3], 0.0))) is False


def test_auto_does_not_use_estimates_after_their_end():
    beside, away = slot(0.5, 100, 1, until=NOW - 1), slot(0.5, 100, 1, until=LATER)
    assert is_here(keyed_job(), beside) is True  # as without estimates: the set is published
    assert is_here(keyed_job(), away) is False


# --- the laws


@given(shares, seconds, seconds, seconds, seconds)
@settings(deadline=None)
def test_a_faster_link_and_a_longer_queue_at_home_never_take_a_slot_away(share, read, own, queue, less):
    near = slot(share, max(0, read - less), queue, own)
    far = slot(share, read, queue, own)
    longer = slot(share, read, queue + less, own)
    ad = keyed_job()
    assert is_here(ad, near) >= is_here(ad, far)
    assert is_here(ad, longer) >= is_here(ad, far)
    assert rank(ad, near) >= rank(ad, far)
    assert rank(ad, longer) == rank(ad, far)


@given(shares, shares, st.one_of(st.none(), seconds))
@settings(deadline=None)
def test_more_local_bytes_never_rank_lower(one, other, read):
    low, high = sorted((one, other))
    ad = keyed_job()
    assert rank(ad, slot(low, read)) <= rank(ad, slot(high, read)) < rank(ad, slot(1.0)) == 0.0
    assert (low == high) is (rank(ad, slot(low, read)) == rank(ad, slot(high, read)))


@given(st.one_of(st.none(), shares), st.integers(0, 800_000), st.one_of(st.none(), shares))
@settings(deadline=None)
def test_an_unknown_slot_never_ranks_above_a_known_one(here, read, unknown):
    ad = keyed_job()
    assert rank(ad, slot(unknown)) < KNOWN_FLOOR <= rank(ad, slot(here, read)) < rank(ad, slot(1.0))


def test_an_unknown_slot_never_matches_instead_of_a_known_local_one():
    """Before its deadline, a job in any mode matches the slot beside its data and no unknown slot."""
    for mode, make in itertools.product(MODES, KINDS.values()):
        assert is_here(make(mode), ClassAd("[]")) is False


@given(st.integers(1, 4 * MAX_AGE), st.integers(1, 4 * MAX_AGE), st.integers(60, 2 * MAX_AGE))
@settings(deadline=None)
def test_facts_older_than_the_jobs_bound_count_as_unknown(site_age, fact_age, bound):
    assume(bound not in {site_age, fact_age, max(site_age, fact_age)})
    oldest = max(site_age, fact_age)
    too_old = oldest > bound
    fact = NOW - fact_age if fact_age > site_age else None  # the daemon publishes only older ones
    keyed = slot(1.0, as_of=NOW - site_age, old=fact)
    per_dataset = singles(
        dict.fromkeys(DIDS, 1.0), None if fact is None else {DIDS[2]: fact}, as_of=NOW - site_age
    )
    elapsed = int(time.time()) - NOW
    assume(abs(oldest - bound) > elapsed + 1)
    for mode in MODES:
        assert is_here(keyed_job(mode, DataLocalityMaxAge=bound), keyed) is not too_old
        assert is_here(bare_job(mode, DataLocalityMaxAge=bound), per_dataset) is not too_old
    expected = UNKNOWN_FLOOR if too_old else 0.0
    assert rank(keyed_job(DataLocalityMaxAge=bound), keyed) == expected
    assert rank(bare_job(DataLocalityMaxAge=bound), per_dataset) == expected


def test_an_old_fact_about_another_dataset_does_not_matter():
    old = {"ska:other": NOW - 2 * MAX_AGE}
    assert is_here(bare_job("require"), singles(dict.fromkeys(DIDS, 1.0), old)) is True
    assert rank(bare_job("require"), singles(dict.fromkeys(DIDS, 1.0), old)) == 0.0


@pytest.mark.parametrize("datasets", [2, 244, 401, 2500])
@pytest.mark.parametrize("old", [None, {}])
def test_bare_list_of_any_length_is_evaluated(datasets, old):
    """HTCondor does not evaluate an expression more than 400 operators deep."""
    dids = [Did(f"ska:Obs_{number}") for number in range(datasets)]
    ad = bare_job("require", dids=dids)
    assert value(ad, singles(dict.fromkeys(dids, 1.0), old), "Requirements") is True
    assert value(ad, singles(dict.fromkeys(dids[1:], 1.0), old), "Requirements") is False
    share = (datasets - 1) / datasets
    assert rank(ad, singles(dict.fromkeys(dids[1:], 1.0), old)) == pytest.approx(-1e6 + 1e5 * share)
