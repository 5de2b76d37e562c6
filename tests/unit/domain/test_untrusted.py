"""Untrusted numbers in the ads of jobs and slots affect their own job or slot only, and end no cycle."""

import json
import math
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic_core import to_json

from adapters.condor.bindings.library import MAX_MISSES_OF_JOB, is_number
from adapters.condor.job_history import choose_misses_fairly
from hydrator.diagnostics.outcomes import parse_histories
from hydrator.diagnostics.why.explain import explain
from hydrator.diagnostics.why.pool_facts import parse_job, parse_slot_groups, with_requests
from hydrator.domain import untrusted as numbers
from hydrator.domain.ads.dataset_sets import names_key
from hydrator.domain.model import to_unix
from hydrator.domain.ports import EndedJobs
from hydrator.domain.text import format_duration
from hydrator.reconcile.misses import MAX_MISSES_PER_JOB, MISSES_ATTRIBUTE, parse_misses
from tests.factories import CAM, L1, L2, NOON, jwt

FAR = [-(10**15), 2**63 - 1, 253_402_300_800, 10**30, -1, 0]
ODD: list[object] = [*FAR, math.nan, -math.inf, 1e300, True, None, "7", [7], {}]


@pytest.mark.parametrize("value", ODD)
def test_every_conversion_returns_a_value_in_its_range_or_none(value):
    assert numbers.valid_integer(value) is None or 0 <= value <= numbers.MAX_CLASSAD_INTEGER
    moment = numbers.valid_time(value)
    assert moment is None or isinstance(moment, datetime)
    finite = numbers.valid_number(value)
    assert finite is None or math.isfinite(finite)
    if finite is not None:
        assert isinstance(numbers.nearest_moment(finite), datetime)
        assert abs(numbers.nearest_span(finite)) <= timedelta(seconds=numbers.MAX_SPAN_SECONDS)
        assert format_duration(finite)


@pytest.mark.parametrize("value", [True, False, math.nan, "7", None])
def test_booleans_and_nan_are_not_numbers(value):
    assert numbers.valid_number(value) is numbers.valid_integer(value) is numbers.valid_time(value) is None


# ------------------------------------------------------------------------------------- jobs that ended


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("name", ["QDate", "JobStartDate", "start", "read_bytes", "misses", "site"])
def test_one_ended_job_with_an_odd_value_is_counted_beside_the_others(name, value):
    when = to_unix(NOON)
    good = {
        "QDate": when,
        "JobStartDate": when + 60,
        "JobCurrentStartDate": when + 60,
        "site": CAM,
        "datasets": [L1],
    }
    answer = EndedJobs(({**good, name: value}, good), is_complete=True)
    counted = parse_histories({"ap1": answer}, None, NOON + timedelta(hours=1))
    assert len(counted.jobs) + counted.left_out == 2
    assert counted.jobs[-1].wait_seconds == 60


# --------------------------------------------------------------------------------------------- why


def explained(texts: dict[str, str], *groups: dict[str, Any]) -> Any:
    job = parse_job({"ClusterId": "7", "ProcId": "0", "JobStatus": "1", **texts}, [0], "ap1")
    judged: Any = {"requests": {}, "clauses": [], "groups": groups}
    answer = explain(with_requests(job, judged), parse_slot_groups(judged, job.datasets), None, now=NOON)
    return json.loads(to_json(answer), parse_constant=pytest.fail)


TEXTS = [
    *("1000000000000000", "-1000000000000000", "9223372036854775807", "99999999999999999999999999", "-1"),
    *("1e400", "-1e400", "nan", "inf", "-inf", "true", "undefined", "error", '"soon"', '""', "7.5", "1e300"),
]


BOUND = {"DataLocalityHere": "false", "Requirements": "MY.DataLocalityHere =!= false"}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "name",
    ["DataLocalityAnyAfter", "DataLocalityMaxAge", "EnteredCurrentStatus", "LastRejMatchTime", "JobStatus"],
)
@pytest.mark.parametrize("status", ["1", "2", "5"])
def test_why_survives_any_number_in_a_job(name, text, status):
    texts = {
        "JobStatus": status,
        "RequiredDatasets": f'{{"{L1}"}}',
        **BOUND,
        "LastRejMatchReason": '"no match"',
        "LastRejMatchTime": "1763690400",
        name: text,
    }
    assert explained(texts)


def group(**given: Any) -> dict[str, Any]:
    return {
        "site": "CAM", "advertised_site": "CAM", "generation": 7, "slots": 1,
        "state": "Unclaimed", "partitionable": False,
        "matches": False, "theirs": [], "job_values": [], "slot_values": [], "largest_resources": {},
        "facts": [*FACTS.values()], **given,
    }  # fmt: skip


FACTS = {"usable": False, "state": "PARTIAL", "fraction": 0.5, "read": 7}
FACTS |= {
    "local": False,
    "paced": True,
    "open": True,
    "share": 0.5,
    "seconds": 240,
    "source": "UK",
    "set_as_of": 7,
}
"""The values of the job's dataset, then of its set."""


@pytest.mark.parametrize("value", [one for one in ODD if not isinstance(one, (list, dict))])
@pytest.mark.parametrize("name", ["generation", "advertised_site", "state", *FACTS])
@pytest.mark.parametrize("mode", ["require", "auto"])
def test_why_survives_any_value_in_a_slot(name, value, mode):
    facts = {"facts": [*{**FACTS, name: value}.values()]}
    odd = group(**(facts if name in FACTS else {name: value}))
    texts = {"RequiredDatasets": f'{{"{L1}"}}', **BOUND}
    texts |= {"DataLocality": f'"{mode}"', "DataLocalityKey": f'"{names_key([L1])}"'}
    assert explained(texts, odd, group(advertised_site="RAL"))


# -------------------------------------------------------------------------------------------- misses


def miss(what: str, when: int = 7, site: str = CAM) -> str:
    return f"{when} {what} {site}"


def test_a_thousand_equal_misses_hide_no_other():
    flood = [("eve", [miss(L1, when)]) for when in range(5000)]
    alone = [("alice", [miss(L2)]), ("bob", [miss(L2, site="RAL")])]
    for reports in (flood + alone, alone + flood):
        chosen = [text for (text,) in choose_misses_fairly(reports, 1000)]
        assert len(chosen) == 1000
        assert {miss(L2), miss(L2, site="RAL"), miss(L1, 4999)} <= set(chosen)


def test_a_user_with_many_different_misses_takes_only_his_share():
    flood = [("eve", [miss(f"x:{number}_{n}") for n in range(20)]) for number in range(1000)]
    alone = [(f"user{number}", [miss(f"y:{number}_{n}") for n in range(3)]) for number in range(100)]
    chosen = {text for (text,) in choose_misses_fairly([*flood, *alone], 1000)}
    assert len(chosen) == 1000
    assert {text for _, texts in alone for text in texts} <= chosen


def test_all_misses_are_chosen_while_there_is_room():
    reports = [("alice", [miss(L1, 1)]), ("alice", [miss(L1, 2)]), ("bob", [miss(L1, 1)])]
    assert sorted(choose_misses_fairly(reports, 1000)) == [[miss(L1, 1)], [miss(L1, 1)], [miss(L1, 2)]]


def test_misses_of_one_job_are_bounded():
    huge = [miss(f"x:{number}") for number in range(10_000)]
    assert len(choose_misses_fairly([("eve", huge)], 1000)) == MAX_MISSES_OF_JOB
    assert max(len(text) for (text,) in choose_misses_fairly([("eve", ["x" * 10**6])], 9)) <= 2000
    assert len(parse_misses({MISSES_ATTRIBUTE: huge})) == MAX_MISSES_PER_JOB


@pytest.mark.parametrize("value", ODD)
def test_the_childs_numbers_are_numbers(value):
    assert is_number(value) == (numbers.valid_number(value) is not None)


@pytest.mark.parametrize(
    ("token", "ends"),
    [
        (jwt({"exp": NOON.timestamp()}), NOON),
        (jwt({"sub": "x"}), None),
        (jwt({"exp": 1e300}), None),
        (jwt({"exp": NOON.timestamp(), "sub": "x" * numbers.MAX_TOKEN_CHARS}), None),
        (jwt("[" * 50_000), None),
        (jwt('{"exp": 1e999}'), None),
        (jwt('{"exp": ' + "9" * 400 + "}"), None),
        (jwt([]), None),
        (jwt(7), None),
        ("a.b.c", None),
        ("a.!!.c", None),
        ("opaque", None),
    ],
)
def test_expiry_of_a_jwt_is_its_claim_exp(token, ends):
    assert numbers.expiry_of(token) == ends


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.9", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_loopback_is_an_address_or_a_name_of_this_machine(host, expected):
    assert numbers.is_loopback(host) is expected
