"""Rules of ours: their comments, their states, and rows that no Rucio should send."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rucio.responses import BadRow
from adapters.rucio.session.transport import WriteRefused, WriteUnconfirmed
from adapters.rucio.staging.own_rules import build_comment, iter_own_rules, parse_comment
from adapters.rucio.staging.rule_writer import translate_error
from hydrator.domain.errors import CatalogueDenied, CatalogueUnreachable
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import (
    RefusalKind,
    RequestState,
    StagingKind,
    StagingOutcomeUnknown,
    StagingRefused,
    StagingUnavailable,
)
from tests.contracts.stager import make_order

ROW = {
    "id": "r1",
    "scope": "lofar",
    "name": "L1",
    "account": "hydrator",
    "rse_expression": "CAM-DISK",
    "state": "REPLICATING",
    "comments": "classad-hydrator stage for jobs at CAM [hydrator:pool:1]",
    "locks_ok_cnt": 1,
    "locks_replicating_cnt": 3,
    "locks_stuck_cnt": 0,
    "bytes": 4000,
    "expires_at": "Mon, 23 Nov 2026 15:01:05 UTC",
    "error": None,
}


def parse(**changes):
    return list(iter_own_rules([{**ROW, **changes}], "hydrator", "call"))


@given(
    tag=st.text("abc0189.:-", min_size=1, max_size=100),
    site=st.text(min_size=1, max_size=120).map(Site),
    kind=st.sampled_from(list(StagingKind)),
)
def test_a_comment_brings_back_its_tag_kind_and_site(tag, site, kind):
    comment = build_comment(make_order(tag, Did("lofar:L1"), site, kind=kind))
    mark = parse_comment(comment)
    assert mark
    assert (mark.tag, mark.kind, mark.site) == (tag, kind, site[:100])
    assert len(comment) <= 250


@pytest.mark.parametrize(
    "comment",
    [
        None,
        7,
        "",
        "my own rule [hydrator:pool:1]",
        "classad-hydrator",
        "classad-hydrator steal for jobs at CAM [t]",
        "classad-hydrator stage for jobs at CAM []",
        "classad-hydrator stage for jobs at  [t]",
        "classad-hydrator stage for jobs at CAM [t] ",
        "classad-hydrator: a test of permissions",
    ],
)
def test_any_other_comment_is_not_ours(comment):
    assert parse_comment(comment) is None
    assert parse(comments=comment, state="nonsense") == []


def test_a_rule_of_another_account_with_our_comment_is_not_ours():
    assert parse(account="somebody") == []


@pytest.mark.parametrize(
    ("state", "error", "expected"),
    [
        ("OK", None, RequestState.DONE),
        ("REPLICATING", "NO_SOURCES:x", RequestState.MOVING),
        ("STUCK", "a transfer failed", RequestState.STUCK),
        ("STUCK", "NO_SOURCES:RequestState.NO_SOURCES", RequestState.FAILED),
        ("STUCK", "MissingSourceReplica", RequestState.FAILED),
        ("SUSPENDED", None, RequestState.SUSPENDED),
        ("WAITING_APPROVAL", None, RequestState.UNAPPROVED),
        ("INJECT", None, RequestState.QUEUED),
    ],
)
def test_each_state_of_a_rule_is_a_state_of_the_request(state, error, expected):
    [rule] = parse(state=state, error=error)
    assert rule.state is expected
    is_explained = expected in {RequestState.STUCK, RequestState.FAILED}
    assert (str(error) in rule.progress().reason) is is_explained


def test_the_bytes_are_the_share_of_the_files():
    progress = parse()[0].progress()
    assert (progress.files_done, progress.files_total) == (1, 4)
    assert (progress.bytes_done, progress.bytes_total) == (1000, 4000)
    assert progress.expires_at == datetime(2026, 11, 23, 15, 1, 5, tzinfo=UTC)


def test_negative_counts_and_missing_sizes_are_no_error():
    progress = parse(locks_ok_cnt=2, locks_replicating_cnt=2, locks_stuck_cnt=-2, bytes=None)[0].progress()
    assert (progress.files_done, progress.files_total, progress.bytes_done) == (2, 4, None)
    nothing = parse(locks_ok_cnt=0, locks_replicating_cnt=0, state="INJECT")[0].progress()
    assert (nothing.files_total, nothing.bytes_done, nothing.bytes_total) == (None, None, 4000)


def test_a_rule_has_ended_at_its_end():
    [rule] = parse()
    assert rule.expires_at
    assert rule.has_ended(rule.expires_at)
    assert not rule.has_ended(rule.expires_at - timedelta(seconds=1))
    assert not parse(expires_at=None)[0].has_ended(rule.expires_at)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "NEW"},
        {"id": None},
        {"name": "no name\n"},
        {"locks_ok_cnt": "1"},
        {"locks_ok_cnt": True},
        {"rse_expression": ""},
        {"expires_at": 5},
        {"bytes": -1},
    ],
)
def test_an_unreadable_row_of_ours_makes_the_answer_incomplete(change):
    with pytest.raises(BadRow):
        parse(**change)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("AccessDenied", RefusalKind.PERMISSION),
        ("InsufficientAccountLimit", RefusalKind.QUOTA),
        ("RSEOverQuota", RefusalKind.QUOTA),
        ("RSEWriteBlocked", RefusalKind.CLOSED),
        ("InvalidRSEExpression", RefusalKind.CLOSED),
        ("DataIdentifierNotFound", RefusalKind.UNKNOWN_DATASET),
        ("ScratchDiskLifetimeConflict", RefusalKind.OTHER),
        ("ANewException", RefusalKind.OTHER),
    ],
)
def test_each_refusal_of_rucio_is_one_sentence_of_its_kind(kind, expected):
    error = translate(WriteRefused("rucio", kind, "the words\nof Rucio"))
    assert isinstance(error, StagingRefused)
    assert error.kind is expected
    assert "\n" not in error.reason
    assert "the words of Rucio" in error.reason


def test_a_refused_activity_is_told_from_other_invalid_values():
    words = "Problem validating rule: 'Carousel' is not one of ['Staging']"
    assert translate(WriteRefused("rucio", "InvalidObject", words)).kind is RefusalKind.ACTIVITY
    words = "Problem validating rule: 'xxx' is too long"
    assert translate(WriteRefused("rucio", "InvalidObject", words)).kind is RefusalKind.OTHER


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (WriteUnconfirmed("rucio", "no answer"), StagingOutcomeUnknown),
        (CatalogueUnreachable("rucio", "refused"), StagingUnavailable),
        (WriteRefused("rucio", "ReplicationRuleCreationTemporaryFailed", "again"), StagingUnavailable),
        (CatalogueDenied("rucio", "401"), StagingRefused),
        (StagingRefused("rucio", "not ours"), StagingRefused),
    ],
)
def test_an_error_says_whether_the_call_had_an_effect(error, expected):
    assert type(translate(error)) is expected


def translate(error):
    return translate_error(
        error, verb="add", subject="lofar:L1", account="hydrator", storage="CAM-DISK", activity="Carousel"
    )
