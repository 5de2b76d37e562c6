"""For all jobs and slots: the slot's match logic, and the jobs' clause and rank, on the real evaluator."""

import re
import time

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import (
    HERE,
    JOB_RANK,
    KNOWN_FLOOR,
    MODES,
    SIGNIFICANT_ATTRIBUTES,
    SLOT_EXPRESSIONS,
    UNKNOWN_FLOOR,
)
from hydrator.domain.model import Did
from hydrator.submit.pool_config import START_CLAUSE
from tests.factories import NONSENSE
from tests.slots import hooked

NOW = int(time.time())
LATER = NOW + 90_000  # the tests may run hours after this file was read
DIDS = [Did("ska:d0"), Did("ska:D1"), Did("ska:d@2"), Did("lofar:L3_SB003")]
KEY = set_key(DIDS)
MAX_AGE = 20_700
RECORDS = ("DataLocalitySets", "DataLocalitySetsAsOf", "DataLocalityOpen")
NUMBERS = ("DataLocalityAsOf", "DataLocalityOpenUntil", "DataLocalityBacklog")
KEYS = [KEY, f"{KEY}~2", *(set_key([did]) for did in DIDS)]

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


def job(mode="auto", after=LATER, **more) -> ClassAd:
    ad = ClassAd(
        {
            "DataLocalityKey": KEY,
            "DataLocalityMaxAge": MAX_AGE,
            "DataLocalityAnyAfter": after,
            "DataLocalityLane": 2,
            **more,
        }
    )
    ad["DataLocalityHere"] = ExprTree(HERE[mode])
    ad["DataLocalityRank"] = ExprTree(JOB_RANK)
    ad["Requirements"] = ExprTree("(true) && MY.DataLocalityHere")
    return ad


def slot(share=None, read=None, as_of=NOW - 60, until=LATER, old=None, key=KEY, name=None) -> ClassAd:
    """A slot with these facts about the set of all DIDS; None leaves a fact out. *name* is what is open."""
    lines = [f"DataLocalityAsOf = {as_of}", f"DataLocalityOpenUntil = {until}"]
    for attribute, value in zip(RECORDS, (share, old, read), strict=True):
        if value is not None:
            entry = name or key if attribute == "DataLocalityOpen" else key
            lines.append(f"{attribute} = {record({entry: value})}")
    return hooked(ClassAd(f"[{';'.join(lines)}]"))


def value(ad: ClassAd, other: ClassAd, name: str):
    """Return the attribute of *ad* as the negotiator evaluates it against *other*."""
    return ad.lookup(name).eval(ad, other)


def is_here(ad: ClassAd, at: ClassAd) -> bool:
    return value(ad, at, "DataLocalityHere")


def rank(ad: ClassAd, at: ClassAd) -> float:
    return value(ad, at, "DataLocalityRank")


# --- no slot and no job makes an error


@given(st.sampled_from(MODES), any_slot(), st.sampled_from([NOW - 900, LATER]), st.booleans())
@settings(deadline=None, max_examples=300)
def test_clause_is_true_or_false_at_any_slot_and_start_agrees(mode, at, after, has_hook):
    ad, at = job(mode, after), hooked(at) if has_hook else at
    assert is_here(ad, at) in (True, False)
    at["Start"] = ExprTree(f"(true) && {START_CLAUSE}")
    assert value(at, ad, "Start") is value(ad, at, "Requirements")


@given(any_slot(), st.booleans())
@settings(deadline=None, max_examples=300)
def test_rank_is_a_number_from_the_floor_to_0_at_any_slot(at, has_hook):
    found = rank(job(), hooked(at) if has_hook else at)
    assert isinstance(found, float)
    assert UNKNOWN_FLOOR <= found <= 0.0


@given(any_slot())
@settings(deadline=None, max_examples=300)
def test_offer_of_any_slot_is_a_text_that_the_schedd_can_expand(at):
    """HTCondor holds a job whose text expands to undefined or an error; a quote would end the text."""
    at = hooked(at)
    offer = value(at, job(), "DataLocalityOffer")
    assert re.fullmatch('|local|read [0-9]+ s( from [^"\\\\$]+)?', offer)
    assert (offer == "local") is value(at, job(), "DataLocalityLocal")


@pytest.mark.parametrize("wrong", NONSENSE)
@pytest.mark.parametrize("name", SIGNIFICANT_ATTRIBUTES)
def test_job_of_another_pool_makes_no_error_in_a_slot(name, wrong):
    ad = job("require")
    ad[name] = ExprTree(wrong)
    at = slot(0.5, 10)
    assert value(at, ad, "DataLocalityAuto") in (True, False)
    assert value(at, ad, "DataLocalityLocal") in (True, False)
    assert isinstance(value(at, ad, "DataLocalityRank"), float)


def test_slots_look_at_significant_attributes_of_jobs_alone():
    """The schedd does not see what an expression of the slot uses; other attributes would be absent."""
    texts = "".join(SLOT_EXPRESSIONS.values())
    assert set(re.findall(r"\bTARGET\.(\w+)", texts)) == set(SIGNIFICANT_ATTRIBUTES)


# --- the clause


@pytest.mark.parametrize("mode", MODES)
def test_slot_with_all_data_matches_in_every_mode(mode):
    assert is_here(job(mode), slot(share=1.0)) is True


@pytest.mark.parametrize("mode", ["require", "wait"])
def test_slot_without_all_data_does_not_match_before_the_deadline(mode):
    assert is_here(job(mode), slot(share=0.99, read=0)) is False


@pytest.mark.parametrize("at", [ClassAd("[]"), slot()], ids=["no hook", "no data"])
@pytest.mark.parametrize("mode", MODES)
def test_job_matches_an_unknown_slot_after_its_deadline_alone_and_require_never(mode, at):
    assert is_here(job(mode), at) is False
    assert is_here(job(mode, after=NOW - 1), at) is (mode != "require")


@pytest.mark.parametrize("have", ["ska:d1", "SKA:@D1"])
def test_job_matches_no_dataset_in_another_letter_case(have):
    ad = job("require", DataLocalityKey=set_key(["ska:D1"]))
    assert is_here(ad, slot(1.0, key=set_key([have]))) is False
    assert is_here(ad, slot(1.0, key="SKA:@d1")) is True, "ClassAd names ignore case: marks distinguish"


@pytest.mark.parametrize("name", [KEY, f"{KEY}~2"])
def test_auto_starts_where_its_set_or_its_lane_is_open(name):
    open_slot = slot(0.5, 240, name=name)
    assert is_here(job(), open_slot) is True
    assert value(open_slot, job(), "DataLocalityOffer") == "read 240 s"
    assert rank(job(), open_slot) == -240.5


@pytest.mark.parametrize(
    "closed", [slot(0.5), slot(0.5, 240, name=f"{KEY}~3"), slot(0.5, 240, until=NOW - 1)]
)
def test_auto_does_not_start_where_neither_is_open(closed):
    assert is_here(job(), closed) is False
    assert value(closed, job(), "DataLocalityOffer") == ""


@pytest.mark.parametrize(
    ("share", "until", "starts"),
    [(0.0, LATER, False), (None, LATER, True), (0.0, NOW - 1, True)],
    ids=["paced", "unknown set", "openings over"],  # not the times: two processes of pytest may differ by one
)
def test_end_of_the_wait_of_an_auto_job_counts_where_no_daemon_paces_its_set(share, until, starts):
    """A dead daemon's openings end by themselves; and a daemon that does not know the set opens nothing."""
    assert is_here(job(after=NOW - 900), slot(share, until=until)) is starts
    assert is_here(job("wait", after=NOW - 900), slot(share, until=until)) is True


# --- the laws


@given(shares, seconds, seconds)
@settings(deadline=None)
def test_a_faster_link_never_ranks_lower(share, read, less):
    assert rank(job(), slot(share, max(0, read - less))) >= rank(job(), slot(share, read))


@given(shares, shares, st.one_of(st.none(), seconds))
@settings(deadline=None)
def test_more_local_bytes_never_rank_lower(one, other, read):
    low, high = sorted((one, other))
    ad = job()
    assert rank(ad, slot(low, read)) <= rank(ad, slot(high, read)) < rank(ad, slot(1.0)) == 0.0
    assert (low == high) is (rank(ad, slot(low, read)) == rank(ad, slot(high, read)))


@given(st.one_of(st.none(), shares), st.integers(0, 800_000), st.one_of(st.none(), shares))
@settings(deadline=None)
def test_an_unknown_slot_never_ranks_above_a_known_one(here, read, unknown):
    ad = job()
    assert rank(ad, slot(unknown)) < KNOWN_FLOOR <= rank(ad, slot(here, read)) < rank(ad, slot(1.0))


@given(st.integers(1, 4 * MAX_AGE), st.integers(1, 4 * MAX_AGE), st.integers(60, 2 * MAX_AGE))
@settings(deadline=None)
def test_facts_older_than_the_jobs_bound_count_as_unknown(site_age, fact_age, bound):
    oldest = max(site_age, fact_age)
    fact = NOW - fact_age if fact_age > site_age else None  # the daemon publishes only older ones
    at = slot(1.0, as_of=NOW - site_age, old=fact)
    assume(abs(oldest - bound) > int(time.time()) - NOW + 1)
    for mode in MODES:
        assert is_here(job(mode, DataLocalityMaxAge=bound), at) is (oldest <= bound)
    assert rank(job(DataLocalityMaxAge=bound), at) == (UNKNOWN_FLOOR if oldest > bound else 0.0)
