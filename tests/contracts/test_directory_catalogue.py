"""Catalogue contract for the directory catalogue, and its own tests."""

import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.files.directory import catalogue
from hydrator.domain.errors import CatalogueUnreachable
from hydrator.domain.model import DatasetState, Did, Site, from_unix
from hydrator.testing.catalogue_contract import SiteBySiteCatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from testbed.files import as_nobody
from tests.factories import NOON

EVERY_DEPTH = ["*", "*/*", "*/*/*"]
MARKER = "done"


def make(folder, **more):
    options = {"roots": {"CAM": str(folder / "CAM"), "RAL": str(folder / "RAL")}, "scope": "lofar"}
    return catalogue("folders", options | more, lambda: NOON)


def put(folder, site, name, *, age=timedelta(days=1), files=("table.dat",)):
    path = folder / site / name
    path.mkdir(parents=True)
    for file in files:
        (path / file).write_text("x")
    when = (NOON - age).timestamp()
    for each in (*path.iterdir(), path):
        os.utime(each, (when, when))
    return path


class TestDirectoryCatalogue(SiteBySiteCatalogueContract):
    states = (DatasetState.AVAILABLE, DatasetState.PARTIAL, DatasetState.STAGING)
    cannot_happen = RECORDS_STATES_ONLY | dict.fromkeys(
        ["whole at one of two elements, half at the other"], "a site has one folder of a dataset"
    )
    has_fractions = False
    test_two_storage_elements_of_a_site_both_have_a_replica = None  # one folder again

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def make_catalogue(self, *replicas):
        for site in ("CAM", "RAL"):
            (self.folder / site / "other").mkdir(parents=True, exist_ok=True)
        for replica in replicas:
            age = timedelta(minutes=3) if replica.state is DatasetState.STAGING else timedelta(days=1)
            files = ("table.dat", *([MARKER] if replica.state is DatasetState.AVAILABLE else []))
            put(self.folder, replica.site, replica.did.partition(":")[2], age=age, files=files)
        return make(self.folder, patterns=EVERY_DEPTH, marker=MARKER)

    def make_failing_catalogue(self):
        return make(self.folder / "not-mounted")

    def make_catalogue_with_unreachable_site(self, site, *replicas):
        made = self.make_catalogue(*(replica for replica in replicas if replica.site != site))
        (self.folder / site / "other").rmdir()  # as an empty mount point
        return made


def read_site_states(made, name="x.MS"):
    did = Did(f"lofar:{name}")
    reading = made.read({did}).readings[did]
    return {replica.site: replica.state for replica in reading.replicas}, reading.unreachable_sites


@pytest.fixture
def folder(tmp_path):
    put(tmp_path, "RAL", "other")
    return tmp_path


def test_a_changing_folder_is_staging_and_an_unchanged_one_complete(folder):
    path = put(folder, "CAM", "x.MS", age=timedelta(minutes=3))
    assert read_site_states(make(folder)) == ({"CAM": DatasetState.STAGING}, frozenset())
    os.utime(path / "table.dat", (0, 0))
    os.utime(path, (0, 0))
    assert read_site_states(make(folder)) == ({"CAM": DatasetState.AVAILABLE}, frozenset())


def test_only_the_marker_makes_a_folder_complete(folder):
    path = put(folder, "CAM", "x.MS")
    assert read_site_states(make(folder, marker="done"))[0] == {"CAM": DatasetState.PARTIAL}
    (path / "done").write_text("")
    assert read_site_states(make(folder, marker="done"))[0] == {"CAM": DatasetState.AVAILABLE}


ROOTS: dict[str, Callable[[Path], object]] = {
    "not there": lambda root: None,
    "not mounted": lambda root: root.mkdir(),
    "a plain file": lambda root: root.touch(),
    "a link to nowhere": lambda root: root.symlink_to(root.parent / "nowhere"),
    "a link to itself": lambda root: root.symlink_to(root),
}


@pytest.mark.parametrize("root", ROOTS)
def test_an_unmounted_root_makes_its_site_unreachable(folder, root):
    ROOTS[root](folder / "CAM")
    assert read_site_states(make(folder)) == ({}, {Site("CAM")})
    with pytest.raises(CatalogueUnreachable, match="CAM"):
        make(folder).find(["*"])


def test_a_file_and_an_unmatched_folder_are_not_datasets(folder):
    put(folder, "CAM", "x.fits")
    (folder / "CAM" / "y.MS").write_text("x")
    assert make(folder).find(["*"]) == frozenset()


def test_datasets_below_an_unreadable_folder_are_unknown(open_folder):
    put(open_folder, "RAL", "other")
    put(open_folder, "CAM", "open/x.MS")
    put(open_folder, "CAM", "closed/y.MS")
    made = make(open_folder, patterns=["*/*.MS"])
    (open_folder / "CAM" / "closed").chmod(0o700 if os.geteuid() == 0 else 0)
    with as_nobody():
        assert read_site_states(made, "open/x.MS") == ({"CAM": DatasetState.AVAILABLE}, frozenset())
        assert read_site_states(made, "closed/y.MS") == ({}, {Site("CAM")})
        with pytest.raises(CatalogueUnreachable, match="CAM: a folder below its root cannot be read"):
            made.find(["*"])
    (open_folder / "CAM" / "closed").chmod(0o755)


def test_an_unreadable_dataset_is_not_complete(open_folder):
    put(open_folder, "RAL", "other")
    path = put(open_folder, "CAM", "x.MS")
    path.chmod(0o700 if os.geteuid() == 0 else 0)
    with as_nobody():
        assert read_site_states(make(open_folder)) == ({}, {Site("CAM")})
    path.chmod(0o755)


def test_a_pattern_with_two_stars_finds_folders_at_every_depth(folder):
    for name in ("x.MS", "2026/x.MS", "2026/11/x.MS"):
        put(folder, "CAM", name)
    found = make(folder, patterns=["**/*.MS"]).find(["*"])
    assert found == {Did(f"lofar:{name}") for name in ("x.MS", "2026/x.MS", "2026/11/x.MS")}


@pytest.mark.parametrize("odd", [-(2**33), 2**34, 2**40], ids=["before 1970", "year 2514", "year 36812"])
def test_a_file_with_an_odd_time_affects_no_dataset(odd):
    room = next(path for path in ("/dev/shm", None) if path is None or os.access(path, os.W_OK))
    with tempfile.TemporaryDirectory(dir=room) as folder:
        path = put(Path(folder), "CAM", "L1.MS")
        put(Path(folder), "CAM", "L2.MS")
        (Path(folder) / "RAL" / "other").mkdir(parents=True)
        os.utime(path / "table.dat", (odd, odd))
        if path.joinpath("table.dat").stat().st_mtime != odd:
            pytest.skip("this file system keeps no such time")
        options = {"roots": {site: f"{folder}/{site}" for site in ("CAM", "RAL")}, "scope": "lofar"}
        later = from_unix(time.time() + 3600)  # everything was settled by then
        readings = catalogue("folders", options, lambda: later).read({Did("lofar:L1.MS"), Did("lofar:L2.MS")})
    states = {did: [one.state for one in seen.replicas] for did, seen in readings.readings.items()}
    assert states == {"lofar:L1.MS": [DatasetState.AVAILABLE], "lofar:L2.MS": [DatasetState.AVAILABLE]}


def test_a_file_that_just_changed_is_not_settled_even_with_an_old_time(tmp_path):
    path = put(tmp_path, "CAM", "L1.MS")
    (tmp_path / "RAL" / "other").mkdir(parents=True)
    os.utime(path / "table.dat", (2**34, 2**34))
    options = {"roots": {site: str(tmp_path / site) for site in ("CAM", "RAL")}, "scope": "lofar"}
    now = from_unix(time.time() + 1)
    seen = catalogue("folders", options, lambda: now).read({Did("lofar:L1.MS")}).readings["lofar:L1.MS"]
    assert [one.state for one in seen.replicas] == [DatasetState.STAGING]


@pytest.mark.parametrize(
    "options",
    [
        *({"marker": name} for name in ("/etc/hostname", "..", ".", "a/b", "a\0b")),
        *({"patterns": [pattern]} for pattern in ("", "/data/*.MS", "../*.MS", "a/**", "**")),
        {"roots": {"CAM": "/data\0"}},
        {"settled_minutes": float("nan")},
    ],
    ids=str,
)
def test_option_that_would_make_wrong_datasets_is_refused(folder, options):
    with pytest.raises(ValueError, match=min(options)):
        make(folder, **options)


def test_folders_whose_names_are_no_dids_are_not_datasets(folder):
    for name in (b"\xff.MS", b"a b.MS", b"a\nb.MS", b"a'b.MS"):
        os.mkdir(os.path.join(os.fsencode(folder / "RAL"), name))  # noqa: PTH102, PTH118 - bytes
    put(folder, "CAM", "x.MS")
    assert make(folder).find(["*"]) == {Did("lofar:x.MS")}
