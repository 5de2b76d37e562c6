"""The files of a run's datasets, from the catalogues that can list them."""

from collections.abc import Mapping
from pathlib import Path

from hydrator.config import Settings, parse
from hydrator.domain.errors import (
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    TooManyFiles,
)
from hydrator.domain.model import DatasetFile, Did
from hydrator.submit.file_lists import MAX_FILES, Listing, address_mismatches, list_files, single_file_notice

A, B = Did("lofar:A"), Did("lofar:B")


class Lister:
    """A catalogue that lists these files, or fails with a reason."""

    def __init__(
        self, known: Mapping[Did, tuple[DatasetFile, ...] | CatalogueError], *, away: bool = False
    ) -> None:
        self.name = "rucio"
        self.known, self.away = known, away
        self.asked: list[tuple[frozenset[Did], frozenset[str], int]] = []

    def list_files(self, dids, storages, max_files):
        self.asked.append((dids, storages, max_files))
        if self.away:
            raise CatalogueUnreachable(self.name, "timed out")
        return {did: answer for did, answer in self.known.items() if did in dids}

    def close(self) -> None: ...


def settings(*storage: Mapping[str, str], **submit: object) -> Settings:
    data = {
        "catalogue": [{"type": "file", "path": "unused.toml"}],
        "storage": [{"site": "UK", "prefix": "/data", **each} for each in storage],
        "submit": submit,
    }
    return parse(data, folder=Path("/"), origin="test")


def files(*dids: str, size: int | None = 5) -> tuple[DatasetFile, ...]:
    return tuple(DatasetFile(did, size) for did in dids)


def test_each_dataset_is_listed_by_the_first_catalogue_that_has_it():
    first, second = Lister({A: files("x:1")}), Lister({A: files("y:1"), B: files("x:2", "x:3")})
    chosen = settings({"rule": "catalogue", "rse": "R", "address_prefix": "p"}, {})
    listing = list_files([A, B], chosen, [first, second])
    assert listing == Listing({A: files("x:1"), B: files("x:2", "x:3")})
    assert second.asked == [(frozenset({B}), frozenset({"R"}), MAX_FILES - 1)]


def test_dataset_that_no_catalogue_lists_counts_as_one_file_with_a_notice():
    listing = list_files([A, B], settings({}), [Lister({A: files("x:1")})])
    assert (listing.unlisted_dids, listing.problems) == ({B}, [])
    notice = str(single_file_notice(settings({}).storage, listing))
    assert "no catalogue lists files of lofar:B" in notice
    assert single_file_notice(settings({"rule": "name"}).storage, listing) is None


def test_unreachable_catalogue_is_a_problem_unless_another_lists_the_files():
    away = Lister({}, away=True)
    assert list_files([A, B], settings({}), [away]).problems == [
        "the files of lofar:A, lofar:B are not known: catalogue rucio: timed out"
    ]
    listing = list_files([A], settings({}), [away, Lister({A: files("x:1")})])
    assert (listing.problems, list(listing.contents)) == ([], [A])


def test_dataset_with_a_garbled_file_list_is_a_problem():
    listing = list_files(
        [A, B], settings({}), [Lister({A: files("x:1"), B: CatalogueGarbled("rucio", "cut")})]
    )
    assert listing.problems == ["the files of lofar:B are not known: catalogue rucio: cut"]
    assert (listing.unlisted_dids, listing.has_too_many_files) == (frozenset(), False)


def test_too_many_files_are_reported_for_the_user_to_change():
    listing = list_files([A], settings({}), [Lister({A: TooManyFiles("rucio", 3)})])
    assert listing.has_too_many_files
    why = "the datasets have more than 3 files, the limit of one run"
    assert listing.problems == [f"the files of lofar:A are not known: catalogue rucio: {why}"]


def test_archives_to_unpack_have_their_sizes_as_far_as_they_are_known():
    listing = Listing({A: files("x:a/1.MS.tar", "x:2.ms.tar", "x:3.tar"), B: files("x:4.ms.tar", size=None)})
    single, unknown = Did("x:5.ms.tar"), Did("x:6.ms.tar")
    found = listing.archives(["*.ms.tar"], [A, B, single, unknown], {A: 9, single: 7, Did("x:7.ms.tar"): 1})
    sizes = {file.did: file.bytes for file in found}
    assert sizes == {"x:a/1.MS.tar": 5, "x:2.ms.tar": 5, "x:4.ms.tar": None, single: 7, unknown: None}
    assert listing.archives([], [A, single], {}) == []


def test_area_without_a_matching_address_is_reported_with_an_example():
    chosen = settings({"rule": "catalogue", "rse": "R", "address_prefix": "file://localhost:0/d"}).storage
    there = {A: (DatasetFile("x:1", 1, {"R": ("file://localhost/d/1",)}),)}
    assert address_mismatches(chosen, there) == [
        (
            "[[storage]] of UK: no file address at R begins with file://localhost:0/d/;"
            " an example is file://localhost/d/1: correct address_prefix"
        )
    ]
    fits = {A: (DatasetFile("x:1", 1, {"R": ("file://localhost:0/d/1",)}),)}
    assert address_mismatches(chosen, fits) == []
