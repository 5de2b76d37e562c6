"""Event queue: events name the datasets to poll first; no input causes an error."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.daemon.event_queue import (
    EarlyPollRequest,
    EventCompleteness,
    EventCoverage,
    EventQueue,
    PollThrottle,
    find_changed_dids,
)
from hydrator.domain.events import DID_FIELDS_BY_EVENT_TYPE, MAX_EVENT_BYTES, RejectReason, parse_event
from hydrator.domain.model import DatasetState, Did, Fact, Site
from hydrator.reconcile.snapshot.update import CatalogueMemory, DatasetRecord
from tests.factories import CAM, NOON

ONE, TWO = Did("lofar:L1"), Did("lofar:L2")

names = st.from_regex(r"[a-z][a-z0-9_.]{0,8}", fullmatch=True)
jsons: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def event(kind: str, **payload: Any) -> bytes:
    told = {"event_type": kind, "payload": payload, "created_at": "2026-11-20 10:00:00"}
    return json.dumps(told).encode()


def close(did: Did) -> bytes:
    scope, _, name = did.partition(":")
    return event("close", scope=scope, name=name)


def test_a_transfer_of_a_file_is_about_its_dataset_too():
    body = event("transfer-done", scope="lofar", name="f1", dataset="L1", datasetScope="lofar")
    assert parse_event(body) == {ONE, Did("lofar:f1")}


def test_a_transfer_without_a_dataset_is_about_its_file():
    body = event("transfer-failed", scope="lofar", name="f1", dataset=None, datasetScope=None)
    assert parse_event(body) == {Did("lofar:f1")}


def test_a_recall_from_tape_is_about_its_dataset():
    body = event("stagein-done", scope="lofar", name="f1", dataset="L1", datasetScope="lofar")
    assert ONE in parse_event(body)


def test_a_lost_file_is_about_the_dataset_that_lost_it():
    body = event("lost", scope="lofar", name="f1", dataset_scope="lofar", dataset_name="L1")
    assert ONE in parse_event(body)


def test_attachment_event_names_the_container_and_the_attached_dataset():
    body = event("register_cnt", scope="lofar", name="L1", childscope="lofar", childname="L2")
    assert parse_event(body) == {ONE, TWO}


@pytest.mark.parametrize("kind", sorted(DID_FIELDS_BY_EVENT_TYPE))
def test_event_types_ignore_letter_case(kind):
    assert ONE in parse_event(event(kind, scope="lofar", name="L1"))
    assert ONE in parse_event(event(kind.upper(), scope="lofar", name="L1"))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"x" * (MAX_EVENT_BYTES + 1), RejectReason.TOO_LARGE),
        (b"", RejectReason.GARBLED),
        (b"\xff\xfe", RejectReason.GARBLED),
        (b"[" * 60_000, RejectReason.GARBLED),
        (b"[]", RejectReason.GARBLED),
        (b'{"event_type": "close"}', RejectReason.GARBLED),
        (b'{"event_type": 1, "payload": {}}', RejectReason.GARBLED),
        (event("email", to="somebody", body="hello"), RejectReason.UNKNOWN),
        (event("close"), RejectReason.NAMELESS),
        (event("close", scope="lofar", name='x" || true'), RejectReason.NAMELESS),
        (event("close", scope="lofar", name=["L1"]), RejectReason.NAMELESS),
    ],
)
def test_invalid_event_is_dropped_with_a_reason(body, why):
    assert parse_event(body) is why


@given(st.binary(max_size=300))
def test_any_bytes_can_be_parsed_as_an_event(body):
    assert isinstance(parse_event(body), frozenset | RejectReason)


@given(jsons, jsons)
def test_any_json_can_be_parsed_as_an_event(kind, payload):
    body = json.dumps({"event_type": kind, "payload": payload}).encode()
    assert isinstance(parse_event(body), frozenset | RejectReason)


@given(st.sampled_from(sorted(DID_FIELDS_BY_EVENT_TYPE)), st.dictionaries(names, jsons))
def test_any_payload_of_a_known_event_type_can_be_parsed(kind, payload):
    assert isinstance(parse_event(event(kind, **payload)), frozenset | RejectReason)


def test_a_storm_about_one_dataset_is_one_dataset():
    front = EventQueue()
    for _ in range(1000):
        assert front.add_event(close(ONE), {ONE}) == {ONE}
    assert front.take() == EarlyPollRequest(frozenset({ONE}))
    assert not front
    assert not front.take()


def test_event_on_a_dataset_without_demand_is_not_queued():
    front = EventQueue()
    assert front.add_event(close(TWO), {ONE}) is RejectReason.UNWANTED
    assert not front.take()


def test_queue_keeps_the_first_reason_of_a_gap_and_the_queued_datasets():
    front = EventQueue()
    front.add_event(close(ONE), {ONE})
    front.record_gap("the connection was lost")
    front.record_gap("connected again")
    assert front
    assert front.take() == EarlyPollRequest(frozenset({ONE}), "the connection was lost")
    assert not front.take()


def test_queue_has_only_pseudonyms_of_a_private_dataset():
    names = {ONE: (Did("private:new"), Did("private:old"))}
    front = EventQueue(lambda did: names.get(did, (did,)))
    assert front.add_event(close(ONE), {Did("private:old"), ONE}) == {Did("private:old")}
    assert front.take() == EarlyPollRequest(frozenset({Did("private:old")}))


@given(st.lists(names | st.just(None), max_size=60), st.frozensets(names))
def test_queue_has_exactly_the_demanded_datasets_of_any_events(told, wanted):
    dids = frozenset(Did(f"lofar:{name}") for name in wanted)
    front = EventQueue()
    for name in told:
        if name is None:
            front.record_gap("a gap")
        else:
            front.add_event(close(Did(f"lofar:{name}")), dids)
    due = front.take()
    assert due.dids == {Did(f"lofar:{name}") for name in told if name} & dids
    assert (due.gap_reason is not None) == (None in told)


# what polls see and events should have told


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.fixture
def ledger():
    """One that has seen a poll at noon; events may be a minute late."""
    made = EventCompleteness(timedelta(minutes=1))
    assert made.record_poll({ONE, TWO}, NOON) == EventCoverage()  # since when these changed nobody knows
    return made


def test_change_that_an_event_announced_is_complete(ledger):
    assert ledger.record_event({ONE}, later(10)) == 0
    assert ledger.record_poll({ONE}, later(30)) == EventCoverage(1)
    assert ledger.record_poll(frozenset(), later(300)) == EventCoverage()


def test_an_event_may_come_a_while_after_the_change_was_seen(ledger):
    assert ledger.record_poll({ONE}, later(30)) == EventCoverage()
    assert ledger.record_poll(frozenset(), later(60)) == EventCoverage()
    assert ledger.record_event({ONE}, later(80)) == 1
    assert ledger.record_poll(frozenset(), later(300)) == EventCoverage()


def test_unannounced_change_is_reported_once(ledger):
    ledger.record_event({TWO}, later(10))
    assert ledger.record_poll({ONE}, later(30)) == EventCoverage()
    assert ledger.record_poll(frozenset(), later(89)) == EventCoverage()
    assert ledger.record_poll(frozenset(), later(90)) == EventCoverage(0, frozenset({ONE}))
    assert ledger.record_poll(frozenset(), later(300)) == EventCoverage()


def test_old_event_does_not_announce_a_new_change(ledger):
    ledger.record_event({ONE}, later(10))
    assert ledger.record_poll({ONE}, later(30)) == EventCoverage(1)
    ledger.record_poll(frozenset(), later(200))
    ledger.record_poll({ONE}, later(230))
    assert ledger.record_poll(frozenset(), later(300)) == EventCoverage(0, frozenset({ONE}))


@given(st.lists(st.tuples(st.sampled_from(["event", "poll"]), st.frozensets(st.integers(0, 3))), max_size=40))
def test_event_completeness_counts_every_event_and_forgets_old_ones(steps):
    ledger = EventCompleteness(timedelta(seconds=15))
    ledger.record_poll(frozenset(), NOON)
    untold_so_far: set[Did] = set()
    for number, (what, numbers) in enumerate(steps, 1):
        dids = frozenset(Did(f"lofar:L{each}") for each in numbers)
        if what == "event":
            ledger.record_event(dids, later(10 * number))
            untold_so_far -= dids
        else:
            untold_so_far |= dids
            changes = ledger.record_poll(dids, later(10 * number))
            assert changes.unannounced_dids <= untold_so_far
            assert changes.announced_count <= len(dids)
    ledger.record_poll(frozenset(), later(10_000))
    assert ledger.record_poll(frozenset(), later(20_000)) == EventCoverage()
    assert (ledger._unannounced_since, ledger._announced_at) == ({}, {})


def known(**states: DatasetState) -> DatasetRecord:
    return DatasetRecord(NOON, {Site(site): Fact(state, NOON, 0.5) for site, state in states.items()})


def test_new_state_or_site_is_a_change_and_age_progress_or_first_poll_are_not():
    before = CatalogueMemory(
        records={ONE: known(CAM=DatasetState.STAGING), TWO: known(CAM=DatasetState.STAGING)}
    )
    older = replace(
        before.records[ONE], read_at=later(60), facts={CAM: Fact(DatasetState.STAGING, later(60), 0.9)}
    )
    three = Did("lofar:L3")
    for new in (
        known(CAM=DatasetState.AVAILABLE),
        known(CAM=DatasetState.STAGING, RAL=DatasetState.STAGING),
        known(),
    ):
        after = CatalogueMemory(records={ONE: older, TWO: new, three: known(CAM=DatasetState.AVAILABLE)})
        assert find_changed_dids(before, after) == {TWO}


def polls(events: list[float], took: float, spacing: float) -> list[float]:
    """Return the times of the polls that events at *events* (s) cause, if each poll takes *took* seconds."""
    pace, begun, ended = PollThrottle(spacing), [], 0.0
    for when in sorted(events):
        if begun and when <= begun[-1]:
            continue  # one that is due already will see it
        asked = max(when, ended)
        begun.append(asked + pace.delay_seconds(asked))
        assert not pace.is_throttled(begun[-1] + 1e-9)
        ended = begun[-1] + took
        pace.record_poll(ended, took)
    return begun


def burst(begin: float, seconds: float, events: int) -> list[float]:
    return [begin + seconds * n / events for n in range(events)]


def test_the_first_event_after_a_rest_brings_a_poll_at_once():
    assert polls([5.0, 60.0], took=0.5, spacing=1.0) == pytest.approx([5.1, 60.1])


def test_a_heap_of_events_costs_one_poll():
    assert polls(burst(7.0, 0.09, 1_000), took=0.5, spacing=1.0) == pytest.approx([7.1])


def test_a_burst_costs_two_polls_however_many_events_it_has():
    assert polls(burst(7.0, 0.5, 5_000), took=0.5, spacing=1.0) == pytest.approx([7.1, 8.6])
    assert polls(burst(7.0, 0.5, 5_000), took=3.0, spacing=1.0) == pytest.approx([7.1, 13.1])


@given(
    events=st.lists(st.floats(0, 1_000), min_size=1, max_size=200),
    took=st.floats(0.001, 50),
    spacing=st.floats(0.01, 50),
)
def test_event_storm_takes_at_most_half_of_the_time_and_leads_to_polls(events, took, spacing):
    begun = polls(events, took, spacing)
    pauses = [after - (before + took) for before, after in pairwise(begun)]
    assert all(pause >= max(took, spacing) - 1e-6 for pause in pauses)
    assert begun[-1] >= max(events)
