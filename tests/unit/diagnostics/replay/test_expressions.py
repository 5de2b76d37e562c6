"""The replay evaluates the pool's own expressions: in virtual time, and once for each different case."""

import struct
import time

import classad2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator.diagnostics.replay.expressions import (
    ESTIMATED,
    FRESH,
    READER_CLAIM_SECONDS,
    READER_PAUSE_SECONDS,
    RELEASED,
    SETTLED,
    TURN_NUMBERS,
    AdEntry,
    Matcher,
    ReadLimit,
    TurnRules,
    in_virtual_time,
    rank_of_others,
    read_limit,
)
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.submit.expressions import KEYED_HERE, KEYED_RANK, LIMIT_EXPRESSIONS, MODES
from hydrator.submit.pool_config import PRE_JOB_TERM, START_CLAUSE

from .worlds import evaluator

NOW = 1_800_000_000
MAX_AGE = 600
KEY = set_key(["lofar:L1"])
SHARES = st.sampled_from([None, 0.0, 0.5, 0.99, 1.0])
SECONDS = st.sampled_from([None, 0, 1, 64, 128, 4096])
ENTRIES = st.builds(AdEntry, SHARES, SECONDS, SECONDS, st.sampled_from([0, 1, 64, 4096]))
AGES = st.integers(-3, 3)


@pytest.mark.parametrize("text", [*KEYED_HERE.values(), KEYED_RANK, PRE_JOB_TERM, START_CLAUSE])
def test_virtual_time_is_the_only_change_of_a_text(text):
    assert in_virtual_time(text).replace("MY.ReplayTime", "time()") == text
    assert "time()" not in in_virtual_time(text)


@pytest.mark.parametrize("mode", MODES)
def test_the_texts_read_the_clock(mode):
    assert "time()" in KEYED_HERE[mode]


def full_slot(entry: AdEntry, as_of: int, until: int) -> classad2.ClassAd:
    """Return a slot ad with *entry* under the key of L1, and other values under another key."""
    parts = [f"DataLocalityAsOf={as_of}", f"DataLocalityEstimatesUntil={until}", "DataLocalityVersion=2"]
    values = {"Sets": entry.share, "ReadSeconds": entry.read_seconds, "QueueSeconds": entry.queue_seconds}
    for name, value in values.items():
        own = "" if value is None else f"'{KEY}'={value};"
        parts.append(f"DataLocality{name}=[{own}sother=1]")
    if entry.own_queue_seconds:
        parts.append(f"DataLocalityOwnQueueSeconds={entry.own_queue_seconds}")
    return classad2.ClassAd("[" + ";".join(parts) + "]")


def full_job(mode: str, any_after: int, now: int | None) -> classad2.ClassAd:
    here = KEYED_HERE[mode] if now is None else in_virtual_time(KEYED_HERE[mode])
    return classad2.ClassAd(
        f'[DataLocalityKey="{KEY}";DataLocalityMaxAge={MAX_AGE};DataLocalityAnyAfter={any_after};'
        f"ReplayTime={now or 0};DataLocalityHere={here}]"
    )


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MODES), ENTRIES, AGES, AGES, AGES, st.booleans())
def test_a_case_has_the_value_of_the_text_on_a_full_ad_at_any_time(
    mode, entry, stale, expired, released, settled
):
    # each instant is some seconds before or after the time, and sometimes at the time
    as_of, until, any_after = NOW - MAX_AGE + stale, NOW + expired, NOW + released
    shown = entry if settled or entry.share == 1 else entry._replace(share=None)
    slot, job = full_slot(shown, as_of, until), full_job(mode, any_after, NOW)
    time_class = FRESH * (stale > 0) | ESTIMATED * (expired > 0) | RELEASED * (released <= 0)
    time_class |= SETTLED * settled
    matcher = Matcher(evaluator(), mode)
    here = classad2.ExprTree("MY.DataLocalityHere").eval(job, slot)
    assert matcher.matches(entry, time_class) is (here is True)
    start = classad2.ExprTree(START_CLAUSE).eval(slot, job)
    assert matcher.may_start(entry, time_class) is (start is True and here is True)
    rank = classad2.ExprTree(in_virtual_time(KEYED_RANK)).eval(job, slot)
    assert matcher.rank(entry, time_class) == rank


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(MODES), ENTRIES, *[st.sampled_from([-3600, 3600])] * 3)
def test_virtual_time_gives_the_value_of_the_wall_clock(mode, entry, stale, expired, released):
    now = int(time.time())
    slot = full_slot(entry, now - MAX_AGE + stale, now + expired)
    here = classad2.ExprTree("MY.DataLocalityHere")
    by_clock = here.eval(full_job(mode, now + released, None), slot)
    assert here.eval(full_job(mode, now + released, now), slot) == by_clock


def test_rank_prefers_local_slots_then_short_reads_then_more_data():
    matcher = Matcher(evaluator(), "auto")
    ranks = [
        matcher.rank(entry, FRESH | ESTIMATED | SETTLED)
        for entry in (AdEntry(1.0), AdEntry(0.5, 64, 1), AdEntry(0.5, 128, 1), AdEntry(0.5), AdEntry(0.0))
    ]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == 5


def negotiator_rank(entry: AdEntry) -> float:
    """Return the value of the negotiator's own term for a job with data, as the negotiator stores it."""
    term = in_virtual_time(PRE_JOB_TERM).replace("$(DATALOCALITY_OTHERS_WEIGHT)", "1e6")
    slot, job = full_slot(entry, NOW - 1, NOW + 60), full_job("auto", NOW, NOW)
    value = classad2.ExprTree(term.replace("MY.ReplayTime", str(NOW))).eval(slot, job)
    return struct.unpack("f", struct.pack("f", value))[0]


@settings(max_examples=200, deadline=None)
@given(ENTRIES, ENTRIES)
def test_negotiators_term_has_the_order_of_the_rank_in_seconds(one, other):
    matcher = Matcher(evaluator(), "auto")
    ranks = [matcher.rank(entry, FRESH | ESTIMATED | SETTLED) for entry in (one, other)]
    stored = [negotiator_rank(entry) for entry in (one, other)]
    assert (ranks[0] > ranks[1]) == (stored[0] > stored[1])


def test_slots_with_a_queue_of_their_own_rank_lower_for_jobs_without_data():
    ranks = [rank_of_others(evaluator(), own, 1e6) for own in (0, 4, 4096)]
    assert ranks == [0.0, -4e6, -4.096e9]
    assert rank_of_others(evaluator(), 4096, 0.0) == 0.0


# turns to read


def limited_slot(read_seconds: int, now: int, more: str = "") -> classad2.ClassAd:
    """Return the ad of a slot away from L1, with the startd's own expressions at the time *now*."""
    ad = classad2.ClassAd(
        f"[DataLocalityEstimatesUntil={now + 60};DataLocalitySets=['{KEY}'=0.0];"
        f"DataLocalityQueueSeconds=['{KEY}'=4096];"
        f"DataLocalityReadSeconds=['{KEY}'={read_seconds}];DataLocalityReadFrom=['{KEY}'=\"N-L\"];{more}]"
    )
    knobs = {"$(DATALOCALITY_READERS)": "10", "$(DATALOCALITY_TURN)": "64", "time()": str(now)}
    for name, expression in LIMIT_EXPRESSIONS.items():
        text = expression
        for knob, value in knobs.items():
            text = text.replace(knob, value)
        ad[name] = classad2.ExprTree(text)
    return ad


def value_at(name: str, slot: classad2.ClassAd) -> object:
    job = classad2.ClassAd(f'[DataLocalityKey="{KEY}"]')
    return classad2.ExprTree(f"TARGET.{name}").eval(job, slot)


@pytest.mark.parametrize("read_seconds", [0, 4, 8, 16, 64, 128, 4096, 2**20])
@pytest.mark.parametrize("later", [0, 63, 64, 500 * 64 + 1])
def test_turn_of_the_model_is_the_name_of_the_pools_limit(read_seconds, later):
    now = NOW + later
    limit, name = (
        read_limit(evaluator(), read_seconds, TurnRules()),
        value_at("DataLocalityReadLimit", limited_slot(read_seconds, now)),
    )
    if limit is None:
        assert name == classad2.Value.Undefined
        assert read_seconds in {0, 4}
    else:
        number = now // limit.turn_seconds % TURN_NUMBERS
        assert name == f"DataLocality.from_N_L_{limit.turn_seconds}_{number}:{limit.weight}"


def test_turn_of_long_reads_is_longer_and_takes_a_quarter_of_the_readers():
    short, long = (read_limit(evaluator(), seconds, TurnRules(10, 64)) for seconds in (16, 1024))
    assert (short, long) == (ReadLimit(64, 62), ReadLimit(640, 400))


@pytest.mark.parametrize(
    ("state", "since", "limit"),
    [("Claimed", "EnteredCurrentState", READER_CLAIM_SECONDS), ("Unclaimed", "", READER_PAUSE_SECONDS)],
)
def test_times_of_the_model_are_those_of_the_pools_expression(state, since, limit):
    def takes(ago: int) -> object:
        times = f"{since}={NOW - ago}" if since else f"ChildEnteredCurrentState={{{NOW - ago},{NOW - 999}}}"
        slot = limited_slot(16, NOW, f'State="{state}";{times}')
        return value_at("DataLocalityTakesReader", slot)

    assert (takes(limit - 1), takes(limit)) == ((True, False) if since else (False, True))


def test_slot_that_takes_no_reader_matches_no_job_that_would_read():
    job = full_job("auto", NOW + 60, NOW)
    for takes in ("true", "false"):
        slot = limited_slot(16, NOW)
        slot["DataLocalityTakesReader"] = classad2.ExprTree(takes)
        slot["DataLocalityAsOf"] = NOW
        assert (classad2.ExprTree("MY.DataLocalityHere").eval(job, slot) is True) is (takes == "true")
