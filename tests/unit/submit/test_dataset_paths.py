"""Dataset paths: the paths of datasets at each site, and hydrator-paths.json."""

import json
import os
import posixpath
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hydrator.config import StorageArea
from hydrator.domain.errors import BadDid
from hydrator.domain.model import DatasetFile, Did, parse_did
from hydrator.submit.dataset_paths import (
    StorageFolder,
    dataset_path,
    hash_path,
    local_paths,
    paths_file_text,
)
from testbed.processes import run_program

L1, L2 = Did("lofar:L1.ms"), Did("lofar:L2.ms")


def area(site="UK", **more) -> StorageArea:
    return StorageArea(site=site, prefix="/data", **more)


RUCIOS = """
import json, sys
from rucio.rse.translation import RSEDeterministicTranslation

translation = RSEDeterministicTranslation("X", {})
identity = RSEDeterministicTranslation("X", {"lfn2pfn_algorithm": "identity"})
each = (translation, identity)
print(json.dumps([[by.path(*did.split(":", 1)) for by in each] for did in json.load(sys.stdin)]))
"""


@pytest.mark.outside
def test_hash_and_identity_rules_equal_rucios_own_code(tmp_path):
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
    done = run_program(
        [sys.executable, "-W", "ignore", "-c", RUCIOS],
        input=json.dumps(dids),
        env={**os.environ, "RUCIO_CONFIG": str(tmp_path / "rucio.cfg")},
    )
    assert done.returncode == 0, done.stderr
    identity = area(rule="identity")
    ours = [[f"/data/{hash_path(did)}", dataset_path(identity, Did(did))] for did in dids]
    assert [[f"/data/{path}" for path in row] for row in json.loads(done.stdout)] == ours


def test_name_rule_joins_scope_and_name():
    assert dataset_path(area(rule="name"), Did("lofar:a/L1.ms")) == "/data/lofar/a/L1.ms"


def test_storage_table_overrides_the_rule_of_its_area():
    mixed = area(rule="name", table={L1: "odd/one.ms"})
    assert [dataset_path(mixed, did) for did in (L1, L2)] == ["/data/odd/one.ms", "/data/lofar/L2.ms"]


FILES = (DatasetFile("lofar:a", 1), DatasetFile("user.x:b", 2, {"RSE": ("davs://h:1/p//q/b", "root://h/b")}))


def test_every_site_has_the_paths_of_datasets_that_come_one_by_one():
    sites = [StorageArea(site=site, prefix=f"/{site}", rule="name") for site in ("NL", "UK")]
    paths = local_paths(sites, iter([L1, L2]))
    assert {site: sorted(places) for site, places in paths.items()} == {
        "NL": [L1, L2],
        "UK": [L1, L2],
    }


def test_each_file_has_a_path_under_the_rules_for_files():
    """Rucio's own names of the algorithms."""
    hashed, identity = area(), area("AU", rule="identity")
    paths = local_paths([hashed, identity], [L1], {L1: FILES})
    assert paths == {
        "UK": {L1: (StorageFolder("/data", "hash"),)},
        "AU": {L1: (StorageFolder("/data", "identity"),)},
    }
    text = paths_file_text([("L1.ms", L1)], paths, None, areas=[hashed, identity], contents={L1: FILES})
    (entry,) = json.loads(text)["datasets"]
    assert entry["layouts"]["identity"] == ["lofar/a", "user/x/b"]
    assert entry["layouts"]["hash"] == [hash_path("lofar:a"), hash_path("user.x:b")]
    assert entry["files"] == [["a", 1], ["b", 2]]
    assert entry["bytes"] == 3


@pytest.mark.parametrize("prefix", ["davs://h:1/p", "davs://h:1/p/"])
def test_address_of_the_areas_storage_element_gives_the_path(prefix):
    def at(rse: str) -> StorageArea:
        return area(rule="catalogue", rse=rse, address_prefix=prefix)

    contents = {L1: FILES[1:]}
    assert local_paths([at("OTHER")], [L1], contents) == {"UK": {}}
    paths = local_paths([at("RSE")], [L1], contents)
    text = paths_file_text([("L1.ms", L1)], paths, None, areas=[at("RSE")], contents=contents)
    (entry,) = json.loads(text)["datasets"]
    assert list(entry["layouts"].values()) == [["q/b"]]


@pytest.mark.parametrize(
    "address",
    [
        "davs://h/p/../../etc/passwd",
        "davs://h/pq/x",
        "davs://h/p/",
        "file:///etc/x",
        "davs://h/p/a.zip?xrdcl.unzip=a",
        "davs://h/p/a?X-Amz-Signature=1",
    ],
)
def test_address_with_another_prefix_or_a_query_gives_no_path(address):
    chosen = area(rule="catalogue", rse="RSE", address_prefix="davs://h/p")
    assert local_paths([chosen], [L1], {L1: [DatasetFile("lofar:a", 1, {"RSE": (address,)})]}) == {"UK": {}}


@pytest.mark.parametrize("name", ["../a", "a//b", "/a", "."])
def test_dataset_with_a_file_that_could_leave_its_folder_has_no_path(name):
    for rule in ("hash", "identity"):
        assert local_paths([area(rule=rule)], [L1], {L1: [*FILES, DatasetFile(f"lofar:{name}")]}) == {
            "UK": {}
        }


def test_file_names_lose_the_dataset_name_and_get_a_scope_if_two_are_equal():
    def names(*dids: str) -> list[str]:
        contents = {L1: [DatasetFile(did) for did in dids]}
        paths = local_paths([area()], [L1], contents)
        text = paths_file_text([("L1.ms", L1)], paths, None, areas=[area()], contents=contents)
        return [name for name, _ in json.loads(text)["datasets"][0]["files"]]

    assert names("lofar:L1.ms/table.dat", "lofar:L1.ms.tar") == ["table.dat", "L1.ms.tar"]
    assert names("a:x", "b:x", "b:y") == ["a/x", "b/x", "b/y"]


def test_folder_of_unpacked_archives_has_no_expected_size():
    def size(did: str) -> object:
        text = paths_file_text([("L1.ms", L1)], {}, None, contents={L1: [DatasetFile(did, 7)]})
        return json.loads(text)["datasets"][0].get("bytes")

    assert [size("lofar:L1.ms.tar"), size("lofar:L1.ms/table.dat")] == [None, 7]


def test_first_area_of_a_site_with_the_dataset_counts():
    first = area(rule="table", table={L1: "one.ms"})
    second = StorageArea(site="UK", prefix="/tape", rule="name")
    assert local_paths([first, second], [L1, L2]) == {"UK": {L1: "/data/one.ms", L2: "/tape/lofar/L2.ms"}}


def test_paths_file_has_the_fields_that_the_wrapper_reads():
    text = paths_file_text(
        [("/x/L2.ms", L2), ("/x/L1.ms", L1)],
        local_paths([area(rule="name")], [L1, L2]),
        "get {did} {path}",
        ["GLIDEIN_Site"],
    )
    assert json.loads(text) == {
        "version": 1,
        "datasets": [
            {"did": "lofar:L2.ms", "name": "/x/L2.ms"},
            {"did": "lofar:L1.ms", "name": "/x/L1.ms"},
        ],
        "sites": {"UK": {"lofar:L1.ms": "/data/lofar/L1.ms", "lofar:L2.ms": "/data/lofar/L2.ms"}},
        "stage_in": "get {did} {path}",
        "unpack": [],
        "site_keys": ["GLIDEIN_Site"],
    }


@given(st.text("ab./:-~=@+_", min_size=1, max_size=12), st.sampled_from(["hash", "name"]))
@example("lofar:../../etc/passwd", "name")
@example("..:x", "name")
@example("user..x:y", "hash")
def test_paths_never_leave_their_prefix(text: str, rule: str):
    try:
        did = parse_did(text, "user.x")
    except BadDid:
        return
    path = dataset_path(area(rule=rule), did)
    assert path is None or "/../" not in f"{did.replace(':', '/')}/"
    if path is not None:
        assert path == posixpath.normpath(path)
        assert path.startswith("/data/")


def test_storage_table_may_have_a_did_that_no_rule_accepts():
    listed = area(rule="name", table={"cms:/store/x": "store/x"})
    assert dataset_path(listed, Did("cms:/store/x")) == "/data/store/x"
