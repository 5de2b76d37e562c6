"""File lists of Rucio datasets, also incomplete and unreadable ones (on a stand-in)."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from adapters.rucio.file_lists import RucioFileLister
from adapters.rucio.session.settings import RucioSettings
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueGarbled,
    CatalogueUnreachable,
    TooManyFiles,
)
from hydrator.domain.model import DatasetFile, Did
from testbed.rucio_standin import RucioStandIn
from tests.unit.adapters.condor.test_job_history import Reported

pytestmark = pytest.mark.outside

DID = Did("lofar:L1")
OTHER = Did("lofar:L2")


class StandIn(RucioStandIn):
    """A stand-in with two equal datasets of two files, one of them at an element; tests change answers."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK"})
        self.kind, self.length = "DATASET", 2
        self.list_files = [{"scope": "lofar", "name": f"f{n}", "bytes": n} for n in range(2)]
        self.rows: list[object] = [
            {"scope": "lofar", "name": "f1", "bytes": 1, "rses": {"UK-DISK": ["b", "a"]}}
        ]
        self.status = 200
        self.listed: list[object] = []

    def answer(self, path, query, body):
        name, path = "L3" if "/L3" in path else "L1", path.replace("/L3", "/L1")
        if self.status != 200 and path.startswith("/dids/lofar/L1"):
            return self.status, {"ExceptionClass": "AccessDenied"}
        if path == "/dids/lofar/L1/files":
            return 200, self.list_files
        if path == "/replicas/list":
            self.listed.append((body["rse_expression"], body["domain"]))
            return 200, self.rows
        if path == "/dids/lofar/L1":
            return 200, {"scope": "lofar", "name": name, "type": self.kind, "length": self.length}
        return super().answer(path, query, body)


@pytest.fixture
def reported() -> Reported:
    return Reported()


@pytest.fixture
def lister(stand_in, reported, tmp_path) -> Iterator[RucioFileLister]:
    login = {"account": "hydrator", "username": "somebody", "password": "a-secret-word"}
    settings = RucioSettings("rucio", stand_in.url, token_dir=tmp_path, calls_per_second=1000, **login)
    with closing(RucioFileLister(settings, reported)) as made:
        yield made


def test_each_dataset_is_a_step_also_an_unknown_one(lister, reported):
    listed = lister.list_files({DID, Did("lofar:none")}, set(), 9)
    assert (list(listed), reported.steps, reported.done) == ([DID], None, 2)


def test_files_are_listed_with_sizes_and_requested_addresses(lister, stand_in):
    plain = (DatasetFile("lofar:f0", 0), DatasetFile("lofar:f1", 1))
    assert lister.list_files({DID}, set(), 9) == {DID: plain}
    assert stand_in.listed == []
    found = lister.list_files({DID}, {"UK-DISK", "AU-DISK"}, 9)
    assert found == {DID: (plain[0], DatasetFile("lofar:f1", 1, {"UK-DISK": ("a", "b")}))}
    assert stand_in.listed == [("AU-DISK|UK-DISK", "all")]


def test_dataset_whose_files_are_all_inside_archives_says_what_a_job_would_find(lister, stand_in):
    """Case R3: it is complete at UK-DISK by every count, but no file has an address."""
    stand_in.rows = []
    assert lister.list_files({DID}, {"UK-DISK"}, 9)[DID][0].addresses == {}, "it is not at UK-DISK"
    stand_in.holdings = {DID: {"UK-DISK": "available"}}
    reason = lister.list_files({DID}, {"UK-DISK"}, 9)[DID].reason
    assert "its files at UK-DISK are inside archives" in reason
    assert "a job would find no file" in reason
    assert len(lister.list_files({DID}, {"AU-DISK"}, 9)[DID]) == 2


def test_file_inside_an_archive_says_what_a_job_would_find(lister, stand_in):
    stand_in.kind, stand_in.length, stand_in.list_files = "FILE", 1, stand_in.list_files[1:]
    inside = "root://h//p/f1.zip?xrdcl.unzip=f1"
    stand_in.rows[0]["rses"] = {"UK-DISK": [inside]}
    reason = lister.list_files({DID}, {"UK-DISK"}, 9)[DID].reason
    assert "its files at UK-DISK are inside archives" in reason
    stand_in.rows[0]["rses"] = {"UK-DISK": [inside], "AU-DISK": ["root://h//p/f1"]}
    plain = DatasetFile("lofar:f1", 1, {"AU-DISK": ("root://h//p/f1",)})
    assert lister.list_files({DID}, {"UK-DISK", "AU-DISK"}, 9)[DID] == (plain,)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_list_that_was_cut_is_an_error_of_its_dataset(lister, stand_in, kept):
    stand_in.list_files = stand_in.list_files[:kept]
    assert f"lists {kept} of the 2 files of lofar:L1" in str(lister.list_files({DID}, set(), 9)[DID])


def test_a_container_may_count_a_file_twice(lister, stand_in):
    stand_in.kind, stand_in.length = "CONTAINER", 3
    assert [file.did for file in lister.list_files({DID}, set(), 9)[DID]] == ["lofar:f0", "lofar:f1"]


def test_more_files_than_allowed_are_not_even_listed(lister, stand_in):
    stand_in.list_files = []
    assert isinstance(lister.list_files({DID}, set(), 1)[DID], TooManyFiles)


def test_the_files_of_all_datasets_together_are_limited(lister):
    found = lister.list_files({DID, Did("lofar:L3")}, set(), 3)
    assert {type(files) for files in found.values()} == {tuple, TooManyFiles}


@pytest.mark.parametrize("spoilt", ["files", "addresses", "a word", "a size"])
def test_an_unreadable_answer_is_an_error_of_its_dataset(lister, stand_in, spoilt):
    if spoilt == "files":
        stand_in.list_files = ["a web page"]
    elif spoilt == "a size":
        stand_in.list_files[0]["bytes"] = "many"
    else:
        stand_in.rows[0]["rses"] = {"UK-DISK": [7]} if spoilt == "addresses" else "UK-DISK"
    assert isinstance(lister.list_files({DID}, {"UK-DISK"}, 9)[DID], CatalogueGarbled)


def test_a_denied_account_is_an_error_and_not_an_empty_list(lister, stand_in):
    stand_in.status = 403
    with pytest.raises(CatalogueDenied):
        lister.list_files({DID}, set(), 9)


def test_an_unreachable_server_is_an_error_and_not_an_empty_list(lister, stand_in):
    stand_in.shutdown()
    stand_in.server_close()
    with pytest.raises(CatalogueUnreachable):
        lister.list_files({DID, OTHER}, set(), 9)
