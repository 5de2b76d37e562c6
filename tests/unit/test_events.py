"""Events say what to look at first, and nothing else; whatever comes, nothing breaks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.events import MAX_EVENT_BYTES, NAMES, Drop, Due, Front, hinted
from hydrator.model import Did

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
    assert hinted(body) == {ONE, Did("lofar:f1")}


def test_a_transfer_without_a_dataset_is_about_its_file():
    body = event("transfer-failed", scope="lofar", name="f1", dataset=None, datasetScope=None)
    assert hinted(body) == {Did("lofar:f1")}


def test_a_recall_from_tape_is_about_its_dataset():
    body = event("stagein-done", scope="lofar", name="f1", dataset="L1", datasetScope="lofar")
    assert ONE in hinted(body)


def test_a_lost_file_is_about_the_dataset_that_lost_it():
    body = event("lost", scope="lofar", name="f1", dataset_scope="lofar", dataset_name="L1")
    assert ONE in hinted(body)


def test_an_attachment_is_about_the_container_and_what_was_put_into_it():
    body = event("register_cnt", scope="lofar", name="L1", childscope="lofar", childname="L2")
    assert hinted(body) == {ONE, TWO}


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_every_known_event_names_its_did_in_capitals_too(kind):
    assert ONE in hinted(event(kind, scope="lofar", name="L1"))
    assert ONE in hinted(event(kind.upper(), scope="lofar", name="L1"))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"x" * (MAX_EVENT_BYTES + 1), Drop.TOO_LARGE),
        (b"", Drop.GARBLED),
        (b"\xff\xfe", Drop.GARBLED),
        (b"[" * 60_000, Drop.GARBLED),
        (b"[]", Drop.GARBLED),
        (b'{"event_type": "close"}', Drop.GARBLED),
        (b'{"event_type": 1, "payload": {}}', Drop.GARBLED),
        (event("email", to="somebody", body="hello"), Drop.UNKNOWN),
        (event("close"), Drop.NAMELESS),
        (event("close", scope="lofar", name='x" || true'), Drop.NAMELESS),
        (event("close", scope="lofar", name=["L1"]), Drop.NAMELESS),
    ],
)
def test_what_cannot_be_heeded_is_dropped_with_its_kind_of_reason(body, why):
    assert hinted(body) is why


@given(st.binary(max_size=300))
def test_no_bytes_break_it(body):
    assert isinstance(hinted(body), frozenset | Drop)


@given(jsons, jsons)
def test_no_json_breaks_it(kind, payload):
    body = json.dumps({"event_type": kind, "payload": payload}).encode()
    assert isinstance(hinted(body), frozenset | Drop)


@given(st.sampled_from(sorted(NAMES)), st.dictionaries(names, jsons))
def test_no_payload_of_a_known_event_breaks_it(kind, payload):
    assert isinstance(hinted(event(kind, **payload)), frozenset | Drop)


def test_a_storm_about_one_dataset_is_one_dataset():
    front = Front(10)
    for _ in range(1000):
        assert front.event(close(ONE), {ONE}) is None
    assert front.take() == Due(frozenset({ONE}))
    assert not front.take()


def test_what_nobody_wants_moves_nothing():
    front = Front(10)
    assert front.event(close(TWO), {ONE}) is Drop.UNWANTED
    assert not front.take()


def test_more_datasets_than_fit_are_one_full_poll():
    front = Front(1)
    for did in (ONE, TWO):
        assert front.event(close(did), {ONE, TWO}) is None
    due = front.take()
    assert due.everything
    assert due.why == "events spoke of more than 1 datasets at a time"
    assert not front.take()


def test_a_gap_is_a_full_poll_and_its_first_reason_is_told():
    front = Front(10)
    front.event(close(ONE), {ONE})
    front.gap("the connection was lost")
    front.gap("connected again")
    assert front.take() == Due(why="the connection was lost")
    assert not front.take()


def test_a_private_dataset_stands_there_by_its_opaque_name_only():
    front = Front(10, lambda did: Did("private:abc") if did == ONE else did)
    assert front.event(close(ONE), {Did("private:abc")}) is None
    assert front.take() == Due(frozenset({Did("private:abc")}))


@given(st.lists(names | st.just(None), max_size=60), st.integers(1, 8))
def test_whatever_comes_nothing_wanted_is_forgotten_and_no_more_than_the_most_is_kept(told, most):
    wanted = frozenset(Did(f"lofar:{name}") for name in told if name)
    front = Front(most)
    for name in told:
        if name is None:
            front.gap("a gap")
        else:
            front.event(close(Did(f"lofar:{name}")), wanted)
    due = front.take()
    assert len(due.dids) <= most
    assert due.everything or due.dids == wanted
