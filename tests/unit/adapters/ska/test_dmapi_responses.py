"""Unreadable rows of DMAPI: a garbled row never counts as a missing file."""

import copy
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.ska import dmapi_responses as rows
from hydrator.domain.model import DatasetState, Did, Seen, Unseen
from testbed.dmapi_standin import DmapiStandIn
from tests.contracts.test_dmapi_catalogue import dmapi

L1, L2 = Did("testing:L1"), Did("testing:L2")
URL = "davs://se.example.org:1094/disk/testing/bd/0c/L1/table.{}"
GOOD = [
    {
        "identifier": "CAM-DISK",
        "associated_storage_area_id": "area-0",
        "replicas": [URL.format(number) for number in range(4)],
        "is_dataset": True,
    }
]
METADATA = {
    "scope": "testing",
    "name": "L1",
    "did_type": "DATASET",
    "is_open": False,
    "length": 4,
    "bytes": 9,
}


def read(value):
    """Decode *value* as an answer is decoded."""
    return json.loads(json.dumps(value))


def with_replica(url):
    body = copy.deepcopy(GOOD)
    body[0]["replicas"][1] = url
    return body


def with_(**changes):
    return [{**GOOD[0], **changes}]


GARBLED_LOCATIONS = {
    "a NUL in a URL": with_replica("davs://se.example.org/a\x00b"),
    "a NUL that is quoted": with_replica("davs://se.example.org/a%00b"),
    "a lone surrogate": with_replica("davs://se.example.org/\ud800"),
    "a byte that is no UTF-8": with_replica("davs://se.example.org/a%ff"),
    "a line break": with_replica("davs://se.example.org/a\nb"),
    "a URL of nothing": with_replica(""),
    "a URL without a path": with_replica("davs://se.example.org"),
    "a folder": with_replica("davs://se.example.org/a/"),
    "a host that is none": with_replica("davs://[::1/a"),
    "a number for a URL": with_replica(7),
    "null for a URL": with_replica(None),
    "is_dataset as text": with_(is_dataset="false"),
    "is_dataset as a number": with_(is_dataset=0),
    "an area id as a number": with_(associated_storage_area_id=7),
    "an area id with a line break": with_(associated_storage_area_id="area\n0"),
    "an area id as a list": with_(associated_storage_area_id=["area-0"]),
    "an identifier as a number": with_(identifier=7),
    "an identifier with an escape": with_(identifier="\x1b[2J"),
    "replicas as a text": with_(replicas="davs://se.example.org/a"),
    "replicas as a record": with_(replicas={"a": 1}),
    "a row that is no record": [*GOOD, "x"],
    "a row of null": [*GOOD, None],
    "both a dataset and a file": [*GOOD, {**GOOD[0], "identifier": "RAL-DISK", "is_dataset": False}],
    "a record of nothing": {},
    "a record of texts": {"CAM-DISK": "x"},
    "no identifier": [{"replicas": []}],
    "no replicas": [{"identifier": "CAM-DISK"}],
    "an error": {"detail": "x"},
    "a text": "x",
    "a number": 7,
}
GARBLED_SIZES = {
    "length as text": {"length": "4"},
    "length as NaN": {"length": math.nan},
    "length out of range": {"length": math.inf},
    "length as a fraction": {"length": 3.5},
    "a negative length": {"length": -4},
    "length as true": {"length": True},
    "a length of 400 digits": {"length": 10**400},
    "bytes as text": {"bytes": "9"},
    "is_open as text": {"is_open": "false"},
    "is_open as a number": {"is_open": 0},
    "did_type of no kind": {"did_type": "dataset"},
    "did_type as a list": {"did_type": ["DATASET"]},
    "another scope": {"scope": "elsewhere"},
    "another name": {"name": "L2"},
}


def test_optional_fields_may_be_missing():
    (one,), _ = rows.parse_locations([{"identifier": "CAM-DISK", "replicas": GOOD[0]["replicas"]}])
    assert (one.area, one.file_count, one.is_dataset) == (None, 4, None)
    assert rows.parse_size(L1, {}) == rows.DatasetSize("", None, None, is_settled=False)
    assert rows.parse_size(L1, METADATA) == rows.DatasetSize("DATASET", 4, 9, is_settled=True)


def test_names_that_differ_in_quoted_bytes_are_two_files():
    body = with_(replicas=["davs://a.example.org/x/y%2Fz", "davs://a.example.org/x/y%252Fz"])
    assert rows.parse_locations(body)[0][0].file_count == 2


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(GOOD[0])), values)
def test_any_row_has_all_of_its_files_counted_or_none(key, value):
    try:
        (one,), _ = rows.parse_locations([{**GOOD[0], key: value}])
    except (rows.BadAnswer, ValueError):
        return
    assert one.file_count == (4 if key != "replicas" else len(set(map(rows.file_name, value))))


@given(st.sampled_from(sorted(METADATA)), values)
def test_any_column_gives_a_valid_file_count_or_none(key, value):
    try:
        size = rows.parse_size(L1, {**METADATA, key: value})
    except rows.BadAnswer:
        return
    assert size.file_count in {4, None, 1} or (key == "length" and size.file_count == value)


# through the catalogue


@pytest.fixture
def standin():
    made = DmapiStandIn()
    made.add_area("CAM", "CAM-DISK")
    for did in (L1, L2):
        made.put(did, 4, {"CAM-DISK": 4})
    return made


@pytest.fixture
def catalogue(standin, tmp_path):
    made = dmapi(standin, tmp_path)
    yield made
    made.close()


def complete(reading):
    return [(each.site, each.state) for each in reading.replicas] == [("CAM", DatasetState.AVAILABLE)]


GARBLED = {
    **{f"location: {kind}": ("/data/locate", answer) for kind, answer in GARBLED_LOCATIONS.items()},
    **{f"metadata: {kind}": ("/metadata", {**METADATA, **answer}) for kind, answer in GARBLED_SIZES.items()},
    "metadata: no record": ("/metadata", [METADATA]),
}


@pytest.mark.parametrize("garble", GARBLED)
def test_a_garbled_answer_makes_its_dataset_unseen_with_the_evidence_and_no_other(standin, catalogue, garble):
    route, answer = GARBLED[garble]
    standin.habits.answers[f"{route}/{L1.replace(':', '/')}"] = answer
    readings = catalogue.read({L1, L2}).readings
    assert isinstance(readings[L1], Unseen)
    assert L1 in readings[L1].reason
    assert readings[L1].reason.isprintable()
    assert len(readings[L1].reason) < 250
    assert isinstance(readings[L2], Seen)
    assert complete(readings[L2])


def test_an_unreadable_namespace_affects_no_dataset(standin, catalogue):
    standin.habits.answers["/data/list"] = ["testing", 7, "\ud800"]
    assert complete(catalogue.read({L1}).readings[L1])
