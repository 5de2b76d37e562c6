"""Job wrapper with datasets of files: at a storage element in Rucio's layout, or in archives."""

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hydrator.config import StorageArea, SubmitSettings
from hydrator.domain.model import DatasetFile, Did
from hydrator.submit import job_wrapper as job_start
from hydrator.submit.dataset_paths import hash_path, local_paths, paths_file_text
from testbed.processes import run_program
from tests.archives import tar_of
from tests.pythons import pythons
from tests.tables import below, table, write
from tests.unit.submit.test_job_wrapper import PARSET, Node

pytestmark = pytest.mark.outside

L1 = Did("lofar:L1.ms")
SHOW = ("sh", "-c", 'cd "$INPUT_1" && find . -not -type d | sort && cat $(find . -not -type d | sort)')


class Element(Node):
    """A worker node at UK, whose storage is that of Rucio elements with files in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.areas: list[StorageArea] = []
        self.contents: dict[Did, tuple[DatasetFile, ...]] = {}

    def area(self, name: str, **more: str) -> StorageArea:
        area = StorageArea(site="UK", prefix=str(self.storage / name), **more)
        self.areas.append(area)
        return area

    def has(self, did: str, files: Mapping[str, bytes], *, at: str = "", sizes: int = 0) -> None:
        """Catalogue *files* as those of *did*, and put them on disk as Rucio's rule "hash" does."""
        if not self.areas:
            self.area(at)
        listed = []
        for file, content in files.items():
            self.put(self.storage / at / hash_path(file), content)
            listed.append(DatasetFile(file, len(content) + sizes))
        self.contents[Did(did)] = (*self.contents.get(Did(did), ()), *listed)

    def put(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def ready(self, *dids: str, stage_in: str | None = None, unpack: tuple[str, ...] = ("*.ms.tar",)) -> None:
        wanted = [Did(did) for did in dids or (L1,)]
        paths = local_paths(self.areas, wanted, self.contents)
        named = [(f"/as/was/{did.partition(':')[2]}", did) for did in wanted]
        text = paths_file_text(
            named, paths, stage_in, areas=self.areas, contents=self.contents, unpack=unpack
        )
        (self.scratch / "hydrator-paths.json").write_text(text)


@pytest.fixture
def element(tmp_path: Path) -> Iterator[Element]:
    element = Element(tmp_path)
    yield element
    element.close()


WHOLE = {"L1.MS": None, **below("L1.MS")}

# ------------------------------------------------------------------------------------- files of a dataset


def test_dataset_of_several_files_becomes_a_folder_of_links(element):
    element.has(L1, {"lofar:L1.ms/table.dat": b"one\n", "lofar:L1.ms/FIELD/table.dat": b"two\n"})
    element.ready()
    done = element.run(*SHOW)
    assert (done.returncode, done.stdout) == (0, "./FIELD/table.dat\n./table.dat\ntwo\none\n"), done.stderr
    link = next(element.scratch.glob("hydrator-inputs/*/L1.ms/table.dat"))
    assert str(link.readlink()) == str(element.storage / hash_path("lofar:L1.ms/table.dat"))


def test_dataset_of_one_file_is_that_file(element):
    element.has(L1, {"lofar:raw/one": b"data\n"})
    element.ready()
    done = element.run("sh", "-c", 'echo "$INPUT_1"; cat "$INPUT_1"')
    assert done.stdout == f"{element.storage / hash_path('lofar:raw/one')}\ndata\n", done.stderr


def test_parset_lists_each_measurement_set_of_a_dataset(element):
    element.has("lofar:obs", {**below("lofar:obs/b.ms"), **below("lofar:obs/a.ms")})
    element.ready("lofar:obs")
    (element.scratch / "run.parset").write_bytes(PARSET)
    done = element.run("--parset", "run.parset", "--", "cat", "run.parset")
    folder = next(element.scratch.glob("hydrator-inputs/*/obs"))
    assert f'["{folder}/a.ms", "{folder}/b.ms"]' in done.stdout, done.stderr


LISTED = ("--parset", "run.parset", "--", "sh", "-c", "sed -n 's/^input_ms = //p' run.parset")
UNPACKED = tuple(SubmitSettings().unpack)
A = below("a.ms")


@pytest.mark.parametrize(
    ("files", "sets"),
    [
        ({**A, **below("x/y/b.MS"), "a.ms.md5": b"x"}, ["a.ms", "x/y/b.MS"]),
        ({**below("a.ms-2"), **A, **below("b")}, ["a.ms-2", "a.ms", "b"]),
        ({"a.ms.tar": tar_of(below("data/scratch/SB1"))}, ["data/scratch/SB1"]),
        (
            {
                "a.ms.tar": tar_of({**A, "._a.ms": b"x"}),
                "b.ms.dppp_1ef66b9a.tar": tar_of(below("x/b.ms.dppp")),
            },
            ["a.ms", "x/b.ms.dppp"],
        ),
    ],
)
def test_rapthor_gets_each_measurement_set_however_deep(element, files, sets):
    write(element.storage / "obs", files)
    element.takes("lofar:obs", unpack=UNPACKED)
    (element.scratch / "run.parset").write_bytes(PARSET)
    done = element.run(*LISTED)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert [re.sub(r".*/obs/", "", path) for path in listed] == sets
    assert all(Path(path, "ANTENNA", "table.dat").exists() for path in listed)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({**A, "b.MS": None}, "obs/b.MS/table.dat: No such file"),
        ({**A, "b.MS/lost": b"x"}, "obs/b.MS/table.dat: No such file"),
        ({**A, **below("b.MS", r"table")}, "obs/b.MS/table.dat: No such file"),
        ({**A, **below("SB1", r"table")}, "obs/SB1/table.dat: No such file"),
        ({**A, **below("SB1", r"ANTENNA")}, "obs/SB1/table.dat has a subtable ANTENNA"),
        ({**A, "b/table.dat": table(0)}, "obs/b is neither a measurement set with antennas"),
        *(
            ({**A, name: b"<html>"}, f"obs/{name} is neither a measurement set with antennas nor a tar file")
            for name in ("b.MS", "b.MS.tar.gz", "x/b.MS.flagged_1ef66b9a.tar", "b.ZIP", "b.tar.zst", "b.tgz")
        ),
        ({**A, "b.MS": b""}, "obs/b.MS is neither"),
        ({"README": b"x"}, "obs is neither"),
        (
            {"a.ms.tar": tar_of(A), "b.ms_1.tar": tar_of({"README": b"x"})},
            "b.ms_1.tar has no measurement set",
        ),
        ({"a.ms.tar": tar_of({**A, "b.ms": None})}, "b.ms/table.dat: No such file"),
        (b"", "has no files or only empty ones"),
        (b"<html>", "obs is neither"),
    ],
)
def test_anything_in_the_place_of_a_measurement_set_is_a_miss_for_rapthor(element, files, told):
    if isinstance(files, bytes):
        (element.storage / "obs").write_bytes(files)
    else:
        write(element.storage / "obs", files)
    element.takes("lofar:obs", unpack=UNPACKED)
    (element.scratch / "run.parset").write_bytes(PARSET)
    done = element.run(*LISTED)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (85, "", 1)
    assert told in done.stderr


def test_files_of_one_dataset_may_be_in_two_storage_elements_of_a_site(element):
    element.area("first")
    element.area("second")
    element.has(L1, {"lofar:a": b"1"}, at="first")
    element.has(L1, {"lofar:b": b"2"}, at="second")
    element.ready()
    assert element.run(*SHOW).stdout == "./a\n./b\n12"


def test_missing_files_are_one_miss_with_their_number_and_an_example(element):
    element.has(L1, {"lofar:a": b"1", "lofar:b": b"2", "lofar:c": b"3"})
    (element.storage / hash_path("lofar:b")).unlink()
    element.ready()
    attributes = element.chirp()
    stderr = element.missed()
    path = element.storage / hash_path("lofar:b")
    error = f"{path}: No such file or directory"
    why = f"lofar:L1.ms (1 of the dataset's 3 files cannot be read; the first: {error})"
    assert f"not readable at UK: {why}" in stderr
    assert "lofar:L1.ms UK" in attributes["ChirpDataLocalityMisses"]


@pytest.mark.parametrize("off", [1, -1])
def test_file_with_another_size_is_a_miss(element, off):
    element.has(L1, {"lofar:a": b"12345", "lofar:b": b"12345"}, sizes=off)
    element.ready()
    stderr = element.missed()
    assert f"has 5 of {5 + off} bytes" in stderr


def test_dataset_with_a_missing_file_is_fetched_with_a_stage_in_command(element):
    element.has(L1, {"lofar:a": b"1", "lofar:b": b"2"})
    (element.storage / hash_path("lofar:b")).unlink()
    element.ready(stage_in="sh -c 'echo fetched > $0/table.dat' {path}")
    done = element.run("sh", "-c", 'cat "$INPUT_1"')
    assert (done.returncode, done.stdout) == (0, "fetched\n"), done.stderr


@pytest.mark.parametrize("bad", ["../b", "/etc/passwd", "a//b", ".", ""])
@pytest.mark.parametrize("where", ["files", "layouts"])
def test_file_list_that_leads_out_of_the_folder_is_rejected(element, bad, where):
    entry = {"did": L1, "name": "x", "files": [["a", 1]], "layouts": {"hash": ["a"]}}
    entry[where] = [[bad, 1]] if where == "files" else {"hash": [bad]}
    element.takes(L1, datasets=[entry], sites={"UK": {L1: [[str(element.storage), "hash"]]}})
    done = element.run("true")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "leads out of its folder" in done.stderr


# ------------------------------------------------------------------------------------- inside a folder


def miss(element: Element, *, size: int | None = None) -> str:
    """Return the reason why the measurement set L1.ms, a folder on disk, is a miss."""
    entry = {"did": L1, "name": "x"} | ({"bytes": size} if size else {})
    element.takes(L1, datasets=[entry])
    done = element.run("true")
    return done.stderr if done.returncode else ""


def test_check_reads_every_file_of_a_folder(element):
    path = element.holds("L1.ms")
    assert miss(element) == ""
    (path / "ANTENNA" / "table.f1").symlink_to("gone")
    error = f"1 of the dataset's 5 files cannot be read; the first: {path}/ANTENNA/table.f1: No such file"
    assert error in miss(element)


def test_folder_behind_a_link_is_checked_too_and_a_link_back_ends(element):
    path = element.holds("L1.ms")
    antenna = (path / "ANTENNA").rename(element.storage / "antenna")
    (path / "ANTENNA").symlink_to(antenna)
    for folder in (path, antenna):
        (folder / "back").symlink_to(path)
    assert miss(element) == ""
    (antenna / "table.f0").write_bytes(b"")
    assert f"{path}/ANTENNA/table.f0 is empty, and the table has rows" in miss(element)


def test_link_to_a_folder_above_brings_no_other_data_into_the_dataset(element):
    path = element.holds("L1.ms")
    (path / "up").symlink_to("..")
    (element.storage / "other.ms").mkdir()
    (element.storage / "other.ms" / "gone").symlink_to("nowhere")
    assert miss(element) == ""


def test_folder_with_too_few_bytes_is_a_miss(element):
    element.holds("L1.ms", "12345")
    assert miss(element, size=5) == ""
    assert "has only 5 of 6 bytes" in miss(element, size=6)


def test_empty_column_file_is_seen_where_no_sizes_are_known(element):
    """Case S21 of cases/submit.md."""
    files = {"table.dat": table(5), "table.f0": b"x", "ANTENNA/table.dat": table(9), "ANTENNA/table.f0": b""}
    element.has(L1, {f"lofar:L1.ms/{name}": content for name, content in files.items()})
    element.contents = {L1: tuple(DatasetFile(file.did) for file in element.contents[Did(L1)])}
    element.ready()
    stderr = element.missed()
    assert "is empty, and the table has rows" in stderr


# ------------------------------------------------------------------------------------- archives


def test_archive_is_unpacked_and_the_parset_lists_its_content(element):
    element.has(L1, {"lofar:L1_abc.ms.tar": tar_of(WHOLE)})
    element.ready()
    (element.scratch / "run.parset").write_bytes(PARSET)
    done = element.run("--parset", "run.parset", "--", "sh", "-c", 'cat $0 "$INPUT_1/table.f0"', "run.parset")
    unpacked = next(element.scratch.glob("hydrator-inputs/*/L1.ms/L1.MS"))
    assert f'input_ms = ["{unpacked}"]' in done.stdout, done.stderr
    assert done.stdout.endswith("\nx")


def test_archives_are_unpacked_next_to_links_to_other_files(element):
    archives = {f"lofar:{n}.MS.TAR": tar_of({f"{n}.ms/table.dat": b"x"}) for n in (1, 2)}
    element.has("lofar:obs", {**archives, "lofar:README": b"text"})
    element.ready("lofar:obs")
    done = element.run("sh", "-c", 'cd "$INPUT_1" && find . -not -type d | sort')
    assert done.stdout == "./1.ms/table.dat\n./2.ms/table.dat\n./README\n", done.stderr


def test_archive_at_a_single_path_is_unpacked(element):
    element.area("", rule="name")
    element.put(element.storage / "lofar" / "L1.ms.tar", tar_of({"./": None, **WHOLE}))
    element.ready("lofar:L1.ms.tar")
    assert element.run("cat", "$INPUT_1/table.f0").stdout == "x"


def test_archive_in_a_fetched_folder_is_unpacked(element):
    source = element.scratch.parent / "source.ms.tar"
    source.write_bytes(tar_of(below("x/SB1")))
    element.ready(stage_in=f"sh -c 'cp {source} $0' {{path}}")
    done = element.run("cat", "$INPUT_1/table.f0")
    assert (done.returncode, done.stdout) == (0, "x"), done.stderr


def test_archive_is_not_unpacked_without_unpack_patterns(element):
    element.has(L1, {"lofar:L1.ms.tar": tar_of(WHOLE)})
    element.ready(unpack=())
    assert "hydrator-inputs" not in element.run("sh", "-c", 'echo "$INPUT_1"').stdout


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def device(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info


GOOD = tar_of(WHOLE)
BAD = {
    "a name above": (tar_of({"../evil": b"x"}), "leads out of its folder: '../evil'"),
    "a name above, further in": (tar_of({"a/../../evil": b"x"}), "leads out of its folder"),
    "a name from the root": (tar_of({"/evil": b"x"}), "leads out of its folder: '/evil'"),
    "a symbolic link": (tar_of(WHOLE, link("out", "/", tarfile.SYMTYPE)), "neither file nor folder: 'out'"),
    "a hard link": (tar_of(WHOLE, link("out", "/etc/passwd", tarfile.LNKTYPE)), "neither file nor folder"),
    "a device": (tar_of(WHOLE, device("dev", tarfile.CHRTYPE)), "neither file nor folder: 'dev'"),
    "a pipe": (tar_of(WHOLE, device("pipe", tarfile.FIFOTYPE)), "neither file nor folder: 'pipe'"),
    "a member twice": (
        tar_of({"table.dat": b"x"})[:1024] + tar_of({"table.dat": b"y"}),
        "have the same name",
    ),
    "cut within a member": (GOOD[:1300], "is not a tar file"),
    "cut between members": (GOOD[:1536], "breaks off at byte 1536"),
    "garbled": (GOOD[:1536] + b"x" * 512 + GOOD[2048:], "breaks off at byte 1536"),
    "no archive": (b"x" * 2048, "is not a tar file"),
    "compressed": (b"\x1f\x8b" + b"x" * 2048, "is not a tar file"),
    "empty": (tar_of({}), "has no measurement set"),
    "another archive": (tar_of({"L1.MS.tar": GOOD}), "has no measurement set"),
    "a file and a folder of one name": (tar_of({"a": b"x", "a/table.dat": b"x"}), "have the same name"),
    "no description of its table": (tar_of({**WHOLE, "b/c/table.dat": b""}), "b/c/table.dat is empty"),
}


UNPACK = """
import importlib.util, os, sys, types
spec = importlib.util.spec_from_file_location("job_start", sys.argv[1])
job_start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(job_start)
dataset = job_start.Dataset(1, {"did": "lofar:L1.ms"})
job = types.SimpleNamespace(datasets=[dataset], unpack_patterns=["*.tar"], is_rapthor=False)
for path in sys.argv[2:]:
    folder = path + ".d"
    os.mkdir(folder)
    try:
        job_start.build_dataset_folders(job, [[path]], folder)
        print("unpacked")
    except job_start.WrapperError as missed:
        assert (missed.status, missed.dids) == (85, ["lofar:L1.ms"])
        print(missed)
"""


@pytest.mark.parametrize("python", pythons())
def test_archives_are_judged_alike_by_the_pythons_of_this_machine(tmp_path, python):
    """Since Python 3.12 tarfile refuses some of it by itself; the Pythons of worker nodes refuse nothing."""
    archives = [*BAD.values(), (GOOD, "unpacked")]
    paths = [tmp_path / f"{number}.tar" for number in range(len(archives))]
    for path, (content, _) in zip(paths, archives, strict=True):
        path.write_bytes(content)
    words = [python, "-I", "-S", "-c", UNPACK, job_start.__file__, *map(str, paths)]
    done = run_program(words)
    assert done.returncode == 0, done.stderr
    output = done.stdout.splitlines()
    assert len(output) == len(archives)
    assert [why for line, (_, why) in zip(output, archives, strict=True) if why not in line] == []
    assert not list(tmp_path.rglob("evil"))
    assert not any(each.is_symlink() for each in tmp_path.rglob("*"))


def test_invalid_archive_is_a_miss_of_its_dataset_and_leaves_no_files(element):
    element.has("lofar:good", {"lofar:good": b"x"})
    element.has(L1, {"lofar:L1.ms.tar": tar_of({**WHOLE, "../evil": b"x"})})
    element.ready("lofar:good", L1)
    attributes = element.chirp()
    stderr = element.missed()
    assert "not readable at UK: lofar:L1.ms (" in stderr
    assert "leads out of its folder: '../evil'" in stderr
    assert "lofar:good" not in attributes["ChirpDataLocalityMisses"]
    assert "lofar:L1.ms UK" in attributes["ChirpDataLocalityMisses"]
    assert not (element.scratch / "hydrator-inputs").exists()


def test_archive_too_large_for_the_scratch_folder_is_a_node_failure(element):
    """The dataset is there: the job keeps away from the site, and the catalogue is not in doubt."""
    element.area("")
    huge = tarfile.TarInfo("L1.ms/table.dat")
    huge.size = 1 << 43
    block = huge.tobuf(tarfile.GNU_FORMAT)
    path = element.storage / hash_path("lofar:L1.ms.tar")
    element.put(path, block)
    with path.open("r+b") as file:
        try:
            file.truncate(512 + (1 << 43) + 1024)
        except OSError:
            pytest.skip("this file system has no sparse file of 8 TiB")
    element.contents[L1] = (DatasetFile("lofar:L1.ms.tar", path.stat().st_size),)
    element.ready()
    attributes = element.chirp()
    stderr = element.missed()
    assert f"unpacking needs {1 << 43} bytes, but {element.scratch} has only " in stderr
    assert attributes.keys() == {"ChirpDataLocalityMissed", "ChirpDataLocalityMissedUntil"}
