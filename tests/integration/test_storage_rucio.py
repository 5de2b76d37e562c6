"""Storage that Rucio's own upload client laid out: jobs find each file, by hash and by its address."""

import itertools
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.rucio.catalogue import RucioSettings
from adapters.rucio.file_lists import RucioFileLister
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import DatasetFile, Did
from testbed.processes import run_program
from tests.tables import table, write

pytestmark = pytest.mark.rucio

NUMBERS = itertools.count()
PARTS = {"table.dat": table(0), "ANTENNA/table.dat": b"antennas"}


class Tree:
    """Two storage elements with files of a scope with dots: one hashed, one that is not deterministic."""

    def __init__(self, server, folder: Path) -> None:
        self.server = server
        number = next(NUMBERS)
        self.scope = f"user.storage{number}"
        self.hashed, self.free = f"HASHED{number}", f"FREE{number}"
        self.disk = {rse: folder / rse for rse in (self.hashed, self.free)}
        for each in self.disk.values():
            each.mkdir()
        server.seed(
            ("add_scope", {"scope": self.scope}),
            ("add_rse", {
                "rse": self.hashed, "attributes": {"site": "UK"}, "folder": str(self.disk[self.hashed]),
            }),
            ("add_rse", {
                "rse": self.free, "attributes": {"site": "AU"}, "folder": str(self.disk[self.free]),
                "deterministic": False,
            }),
        )  # fmt: skip
        self.lister = RucioFileLister(
            RucioSettings(
                name="rucio",
                url=server.url,
                account=server.account,
                username=server.username,
                password=server.password,
                token_dir=folder / "tokens",
            )
        )
        self.source = folder / "source"
        self.source.mkdir()

    def did(self, name: str) -> Did:
        return Did(f"{self.scope}:{name}")

    def item(self, name: str, dataset: str, rse: str, content: bytes | Path) -> dict[str, object]:
        """Return an item for Rucio's upload: a file and the dataset that it belongs to."""
        path = content if isinstance(content, Path) else self.source / name.replace("/", "_")
        if isinstance(content, bytes):
            path.write_bytes(content)
        item = {
            "path": str(path), "rse": rse, "did_scope": self.scope, "did_name": name,
            "dataset_scope": self.scope, "dataset_name": dataset,
        }  # fmt: skip
        if rse == self.free:
            item["pfn"] = f"file://localhost{self.disk[rse]}/by/hand/{dataset}.d/{name}"
        return item

    def contents(self, *names: str) -> dict[Did, tuple[DatasetFile, ...]]:
        dids = {self.did(name) for name in names}
        found = self.lister.list_files(dids, {self.free}, 100)
        assert not any(isinstance(each, CatalogueError) for each in found.values()), found
        return dict(found)


@pytest.fixture(scope="module")
def tree(rucio_server, tmp_path_factory) -> Iterator[Tree]:
    made = Tree(rucio_server, tmp_path_factory.mktemp("elements"))
    items = [
        made.item(f"{dataset}/{part}", dataset, rse, content)
        for dataset, rse in (("plain.ms", made.hashed), ("free.ms", made.free))
        for part, content in PARTS.items()
    ]
    measurement_set = made.source / "L1_abc.MS"
    write(measurement_set, PARTS)
    for dataset, rse in (("packed.ms", made.hashed), ("packed-free.ms", made.free)):
        packed = made.source / f"{dataset}.tar"
        with tarfile.open(packed, "w") as tar:
            tar.add(measurement_set, "L1_abc.MS")
        items.append(made.item(packed.name, dataset, rse, packed))
    items.append(made.item("L775619_SB055_uv.MS_76a2361e.tar", "L775619", made.hashed, packed))
    rucio_server.upload(*items)
    children = [made.did(name) for name in ("plain.ms", "packed.ms")]
    rucio_server.seed(
        ("add_container", {"did": made.did("observation"), "children": children}),
        ("add_dataset", {"did": made.did("empty.ms"), "files": 0}),
        ("abacus", {}),
    )  # fmt: skip
    yield made
    made.lister.close()


def submitted(tree: Tree, folder: Path, input_ms: str) -> Path:
    """Have `hydrator submit rapthor` write a job that prints its parset; return the job's folder."""
    server, free = tree.server, tree.disk[tree.free]
    (folder / "password").write_text(server.password)
    (folder / "password").chmod(0o600)
    (folder / "config.toml").write_text(
        f'[daemon]\nstate_dir = "state"\ndefault_scope = "{tree.scope}"\n[submit]\ndisk_gb = 1\n'
        f'[[catalogue]]\ntype = "rucio"\nname = "rucio"\nurl = "{server.url}"\nauth = "userpass"\n'
        f'account = "{server.account}"\nusername = "{server.username}"\npassword_file = "password"\n'
        f'[[storage]]\nsite = "UK"\nprefix = "{tree.disk[tree.hashed]}"\n'
        f'[[storage]]\nsite = "AU"\nprefix = "{free}"\nrule = "catalogue"\nrse = "{tree.free}"\n'
        f'address_prefix = "file://localhost{free}"\n'
    )
    (folder / "run.parset").write_text(f"[global]\ndir_working = /x\ninput_ms = {input_ms}\n")
    words = ["rapthor", "run.parset", "-c", "config.toml", "-o", "job"]
    done = run_program([sys.executable, "-m", "hydrator.cli", "submit", *words], cwd=folder)
    assert done.returncode == 0, done.stderr
    (job,) = (each.parent for each in folder.glob("job/**/hydrator-paths.json"))
    return job


@pytest.mark.parametrize(
    ("site", "names"),
    [
        ("UK", ("plain.ms", "packed.ms")),
        ("AU", ("free.ms", "packed-free.ms")),
        ("UK", ("/data/L775619_SB055_uv.MS",)),
        ("UK", ("/data/L775619*.MS",)),
    ],
    ids=["hashed", "by address", "archive of a dataset of many", "glob of archives"],
)
def test_the_submitted_job_finds_what_rucio_laid_out(tree, tmp_path, site, names):
    job = submitted(tree, tmp_path, f"[{', '.join(names)}]")
    wrapper = [sys.executable, "-I", "-S", "hydrator-job-start.py", "--parset", "run.parset"]
    done = run_program(
        [*wrapper, "--site", site, "--", "cat", "run.parset"], cwd=job, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("input_ms"))
    found = [Path(path) for path in json.loads(line.partition("=")[2])]
    assert {path.name for path in found} == {
        "L1_abc.MS" if "packed" in name or "L775619" in name else name for name in names
    }
    for path in found:
        assert (path / "ANTENNA" / "table.dat").read_text() == "antennas"


def test_container_has_the_files_of_all_its_datasets(tree):
    (files,) = tree.contents("observation").values()
    names = [f"plain.ms/{part}" for part in sorted(PARTS)]
    assert [file.did for file in files] == [tree.did(name) for name in ("packed.ms.tar", *names)]


def test_file_did_counts_as_a_dataset_of_one_file(tree):
    (files,) = tree.contents("packed.ms.tar").values()
    assert [file.did for file in files] == [tree.did("packed.ms.tar")]


def test_unknown_dataset_is_omitted_and_an_empty_one_has_no_files(tree):
    assert tree.contents("nothing.ms", "empty.ms") == {tree.did("empty.ms"): ()}
