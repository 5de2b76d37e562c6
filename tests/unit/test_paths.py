"""Where jobs find datasets at each site."""

import json
import os
import posixpath
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.config import StorageArea
from hydrator.errors import BadDid
from hydrator.model import Did, parse_did
from hydrator.paths import hashed_path, job_datasets, local_paths, path_at, paths_file

L1, L2 = Did("lofar:L1.ms"), Did("lofar:L2.ms")


def area(site="UK", **more) -> StorageArea:
    return StorageArea(site=site, prefix="/data", **more)


RUCIOS = """
import json, sys
from rucio.rse.translation import RSEDeterministicTranslation

translation = RSEDeterministicTranslation("X", {})
print(json.dumps([translation.path(*did.split(":", 1)) for did in json.load(sys.stdin)]))
"""


def test_the_hash_rule_is_that_of_rucios_own_code(tmp_path):
    """In a process of its own: Rucio reads its configuration when it is imported."""
    dids = [
        "lofar:L1.ms",
        "user.alice:a/b.ms",
        "group.ska.x:L1",
        "a.b:c:d",
        "users:x",
        "srcnet_test.comm:eb/1",
    ]
    (tmp_path / "rucio.cfg").write_text("[common]\n[client]\nrucio_host = http://127.0.0.1:1\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUCIOS],
        input=json.dumps(dids),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RUCIO_CONFIG": str(tmp_path / "rucio.cfg")},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [hashed_path(Did(did)) for did in dids]


def test_the_name_rule_is_scope_and_name():
    assert path_at(area(rule="name"), Did("lofar:a/L1.ms")) == "/data/lofar/a/L1.ms"


def test_a_table_says_where_a_dataset_is_and_where_it_is_not():
    listed = area(rule="table", table={L1: "campaign/one.ms"})
    assert path_at(listed, L1) == "/data/campaign/one.ms"
    assert path_at(listed, L2) is None


def test_a_table_beside_another_rule_has_the_exceptions():
    mixed = area(rule="name", table={L1: "odd/one.ms"})
    assert [path_at(mixed, did) for did in (L1, L2)] == ["/data/odd/one.ms", "/data/lofar/L2.ms"]


@pytest.mark.parametrize("rule", ["hash", "name", "table"])
def test_an_opaque_name_is_at_no_path_whatever_the_rule(rule):
    opaque = Did(f"private:{'0123456789abcdef' * 2}")
    assert path_at(area(rule=rule), opaque) is None
    assert local_paths([area(rule=rule)], [opaque]) == {"UK": {}}


def test_of_two_areas_at_a_site_the_first_that_has_it_counts():
    first = area(rule="table", table={L1: "one.ms"})
    second = StorageArea(site="UK", prefix="/tape", rule="name")
    assert local_paths([first, second], [L1, L2]) == {"UK": {L1: "/data/one.ms", L2: "/tape/lofar/L2.ms"}}


def test_the_file_says_what_the_wrapper_reads():
    text = paths_file(
        job_datasets([("/x/L2.ms", L2), ("/x/L1.ms", L1)]),
        local_paths([area(rule="name")], [L1, L2]),
        "get {did} {path}",
        ["GLIDEIN_Site"],
    )
    assert json.loads(text) == {
        "version": 1,
        "datasets": [
            {"did": "lofar:L2.ms", "name": "/x/L2.ms", "variable": "INPUT_1"},
            {"did": "lofar:L1.ms", "name": "/x/L1.ms", "variable": "INPUT_2"},
        ],
        "sites": {"UK": {"lofar:L1.ms": "/data/lofar/L1.ms", "lofar:L2.ms": "/data/lofar/L2.ms"}},
        "stage_in": "get {did} {path}",
        "site_keys": ["GLIDEIN_Site"],
    }


HOSTILE = ["lofar:../../etc/passwd", "lofar:a/../../b", "..:x", "../x:y", "/etc:passwd", "lofar:/etc/passwd"]
HOSTILE += ["lofar:a//b", "lofar:.", "lofar:..", "lofar:a/.", "user..x:y", "lofar:a/", "group.:x"]


@pytest.mark.parametrize("rule", ["hash", "name"])
@pytest.mark.parametrize("did", HOSTILE)
def test_a_did_that_could_leave_the_prefix_has_no_path(rule, did):
    if rule == "name" and did in {"user..x:y", "group.:x"}:
        return  # their dots stay dots
    assert path_at(area(rule=rule), Did(did)) is None
    assert local_paths([area(rule=rule)], [Did(did)]) == {"UK": {}}


@given(st.text("ab./:-~=@+_", min_size=1, max_size=12), st.sampled_from(["hash", "name"]))
def test_no_path_leaves_its_prefix(text: str, rule: str):
    try:
        did = parse_did(text, "user.x")
    except BadDid:
        return
    path = path_at(area(rule=rule), did)
    if path is not None:
        assert path == posixpath.normpath(path)
        assert path.startswith("/data/")


def test_the_operators_table_may_name_what_no_rule_makes_a_path_of():
    listed = area(rule="name", table={"cms:/store/x": "store/x"})
    assert path_at(listed, Did("cms:/store/x")) == "/data/store/x"
