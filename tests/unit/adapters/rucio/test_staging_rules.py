"""Rules of Rucio: those of ours by their comments, their states, and rows that no Rucio should send."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rucio.responses import BadRow
from adapters.rucio.session.settings import RucioSettings
from adapters.rucio.session.transport import Forbidden, WriteRefused, WriteUnconfirmed
from adapters.rucio.staging import RucioStager, RuleOptions, build_comment, parse_rule
from hydrator.domain.errors import CatalogueDenied, CatalogueUnreachable
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import (
    ExistingRule,
    RefusalKind,
    RequestState,
    StagingFailed,
    StagingKind,
    StagingRefused,
)
from tests.contracts.stager import make_order
from tests.factories import NOON

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
    "created_at": "Mon, 16 Nov 2026 15:01:05 UTC",
    "error": None,
}


def rule(**changes) -> ExistingRule:
    return parse_rule({**ROW, **changes}, "pool", "hydrator")


@given(
    pool=st.text("abc0189.-", min_size=1, max_size=64),
    site=st.text(min_size=1, max_size=120).map(Site),
    kind=st.sampled_from(list(StagingKind)),
)
def test_a_comment_brings_back_its_pool_kind_and_site(pool, site, kind):
    comment = build_comment(make_order(Did("lofar:L1"), site, kind=kind), pool, "CAM-DISK")
    row = parse_rule({**ROW, "comments": comment}, pool, "hydrator")
    assert (row.kind, row.site) == (kind, site[:100])
    assert not parse_rule({**ROW, "comments": comment}, f"{pool}-2", "hydrator").is_ours
    assert len(comment) <= 250


@pytest.mark.parametrize(
    "comment",
    [
        None,
        7,
        "",
        "my own rule [hydrator:pool:1]",
        "classad-hydrator",
        "classad-hydrator steal for jobs at CAM [hydrator:pool:1]",
        "classad-hydrator stage for jobs at CAM []",
        "classad-hydrator stage for jobs at  [hydrator:pool:1]",
        "classad-hydrator stage for jobs at CAM [hydrator:other:1]",
        "classad-hydrator: a test of permissions",
    ],
)
def test_any_other_comment_is_not_ours(comment):
    assert not rule(comments=comment).is_ours


def test_a_rule_of_another_account_with_our_comment_is_not_ours():
    assert rule().is_ours
    assert not rule(account="somebody").is_ours


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
    found = rule(state=state, error=error)
    assert found.state is expected
    is_explained = expected in {RequestState.STUCK, RequestState.FAILED}
    assert (str(error) in found.reason) is is_explained


@pytest.mark.parametrize(
    ("state", "counts", "is_whole"),
    [
        ("SUSPENDED", (4, 0, 0), True),
        ("SUSPENDED", (2, 2, 0), False),
        ("INJECT", (0, 0, 0), False),
        ("OK", (4, 0, 0), True),
    ],
)
def test_counts_of_locks_say_whether_the_data_of_a_rule_is_there(state, counts, is_whole):
    done, moving, stuck = counts
    numbers = {"locks_ok_cnt": done, "locks_replicating_cnt": moving, "locks_stuck_cnt": stuck}
    assert rule(state=state, **numbers).is_whole is is_whole


def test_a_stuck_rule_without_its_time_is_stuck_since_it_was_made():
    """R15: ``stuck_at`` is null."""
    made, stuck = datetime(2026, 11, 16, 15, 1, 5, tzinfo=UTC), "Tue, 17 Nov 2026 15:01:05 UTC"
    assert rule(state="STUCK", stuck_at=None).stuck_since == made
    assert rule(state="STUCK", stuck_at=stuck).stuck_since == datetime(2026, 11, 17, 15, 1, 5, tzinfo=UTC)
    assert rule(stuck_at=stuck).stuck_since is None


def test_texts_of_a_rule_are_one_printable_line_without_secrets():
    """Case R8: errors of transfers quote addresses with tokens, and all of it is shown and saved."""
    token = f"eyJhbGciOiJSUzI1NiJ9.{'a' * 40}.{'b' * 40}"
    error = f"TRANSFER [110]\n\x1b[31m davs://ukdisk/f?authz=Bearer%20{token} " + "x" * 10**6
    found = rule(state="STUCK", error=error, account="carl\x1b[2J", child_rule_id="c\x07\n")
    for text in (found.reason, found.account, found.blocked):
        assert text.isprintable()
        assert len(text) < 300
        assert token[:30] not in text
    assert "TRANSFER [110]" in found.reason


@pytest.mark.parametrize("column", ["state", "id", "expires_at", "locks_ok_cnt"])
def test_an_odd_value_is_quoted_on_one_line_without_secrets(column):
    token = f"eyJhbGciOiJSUzI1NiJ9.{'a' * 40}.{'b' * 40}"
    with pytest.raises(BadRow) as caught:
        rule(**{column: f"odd\x1b[2J\n {token}"})
    assert str(caught.value).isprintable()
    assert token[:30] not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "blocked"),
    [
        ({}, ""),
        ({"locked": True}, "it is locked"),
        ({"child_rule_id": "abc"}, "it has the child rule abc"),
    ],
)
def test_a_rule_that_rucio_does_not_end_says_why(changes, blocked):
    """R12: a locked rule, and one with a child rule."""
    assert rule(**changes).blocked == blocked


def test_negative_counts_and_missing_sizes_are_no_error():
    """R18: INJECT with 0/0/0, and no bytes."""
    found = rule(locks_ok_cnt=2, locks_replicating_cnt=2, locks_stuck_cnt=-2, bytes=None)
    assert (found.files_done, found.files, found.bytes) == (2, 4, None)
    assert rule(locks_ok_cnt=0, locks_replicating_cnt=0, state="INJECT").files is None
    assert found.expires_at == datetime(2026, 11, 23, 15, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "NEW"},
        *({"id": odd} for odd in (None, "r\x1b[2J", "r" * 10**6)),
        {"locks_ok_cnt": "1"},
        {"locks_ok_cnt": True},
        {"rse_expression": ""},
        {"expires_at": 5},
        {"bytes": -1},
    ],
)
def test_an_unreadable_row_makes_the_answer_incomplete(change):
    with pytest.raises(BadRow):
        rule(**change)


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
        (WriteUnconfirmed("rucio", "no answer"), StagingFailed),
        (CatalogueUnreachable("rucio", "refused"), StagingFailed),
        (WriteRefused("rucio", "ReplicationRuleCreationTemporaryFailed", "again"), StagingFailed),
        (CatalogueDenied("rucio", "401"), StagingRefused),
        (StagingRefused("rucio", "not ours"), StagingRefused),
    ],
)
def test_an_error_says_whether_the_call_had_an_effect(error, expected):
    assert type(translate(error)) is expected


def test_a_forbidden_query_about_one_dataset_is_not_a_missing_permission_to_ask():
    """It would stop all asking at this catalogue until a person acts."""
    error = translate(Forbidden("rucio", "HTTP 403 AccessDenied"))
    assert isinstance(error, StagingRefused)
    assert error.kind is RefusalKind.OTHER


def translate(error):
    settings = RucioSettings("rucio", "https://rucio.example.org", "hydrator", Path("tokens"))
    stager = RucioStager(settings, RuleOptions(activity="Carousel"), lambda: NOON)
    return stager._translate(error, "add", "lofar:L1", "CAM-DISK")
