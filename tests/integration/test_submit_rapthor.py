"""`hydrator submit rapthor`: from a parset to a job beside its measurement sets, on a real pool.

Rapthor itself is not on the pool's nodes: a stand-in prints the parset that it gets. The parset is the
example in Rapthor's source, with another working folder and input_ms.
"""

import functools
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cached import Unavailable
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import UIDS, Pool
from testbed.rapthor import example
from tests.tables import write

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SUB_BANDS = [f"L667526_SB{number:03}_uv_pre-cal.ms" for number in range(244)]
SMALL = ("--cpus", "1", "--memory-gb", "0.01", "--disk-gb", "0.001")
STANDIN = (
    "--command",
    "/bin/sh -c 'echo DATA $INPUT_1; cat $0; echo image > rapthor/images/a.fits' run.parset",
)


@functools.cache
def example_parset() -> str:
    """Return Rapthor's example with ``{input_ms}`` as its input; a short one if it cannot be downloaded."""
    try:
        text = example()
    except Unavailable:
        if os.environ.get("CI") == "true":
            raise
        text = "[global]\ndir_working = None\ninput_ms = None\n[cluster]\nbatch_system = slurm\n"
    text = text.replace("{", "{{").replace("}", "}}")
    for name, value in (("dir_working", "/data/rapthor/run1"), ("input_ms", "{input_ms}")):
        text, times = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert times == 1
    return text


class Sized(ListedCatalogue):
    """Datasets with sizes, and the disks of the sites as jobs see them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        super().__init__(pool.home)

    def put(self, name: str, size: int, *sites: str) -> None:
        """Have the catalogue list it at *sites*, whose disks have it."""
        self.add(f"lofar:{name}", size, **dict.fromkeys(sites, "available"))
        for site in sites:
            write(self.disk(site) / "lofar" / name)

    def disk(self, site: str) -> Path:
        return self._pool.shared / "disks" / site


@pytest.fixture(scope="module")
def installed(own_pool: Pool) -> Iterator[Installation]:
    """Start one installation for all tests in this file; each uses measurement sets of its own."""
    catalogue = Sized(own_pool)
    settings = "".join(
        f'[[storage]]\nsite = "{site}"\nprefix = "{catalogue.disk(site)}"\nrule = "name"\n'
        for site in ("UK", "AU", "NL")
    )
    with Installation(own_pool, catalogue, settings=settings) as installation:
        yield installation


@pytest.fixture
def folder(installed: Installation, request: pytest.FixtureRequest) -> Path:
    """Create the folder of a user who prepares a run."""
    name = re.sub(r"\W", "_", request.node.originalname)[:40]
    return Path(tempfile.mkdtemp(prefix=name, dir=installed.pool.user_home("alice")))


def staging(installed: Installation) -> Path:
    """Return the configuration of a host that can also fetch datasets."""
    config = installed.home / "staging.toml"
    fetch = f"/bin/cp -r {installed.catalogue.disk('lake')}/{{did}}/. {{path}}"
    config.write_text(f'{installed.config.read_text()}\n[submit]\nstage_in = "{fetch}"\n')
    return config


def prepare(installed: Installation, folder: Path, input_ms: str, *options: str) -> Path:
    """Write the example's parset for *input_ms*, and run the command on it; return the submit file."""
    parset = folder / "example.parset"
    parset.write_text(example_parset().format(input_ms=input_ms))
    words = ("submit", "rapthor", str(parset), "-o", str(folder / "job"))
    installed.run(*words, *SMALL, *([] if "--command" in options else STANDIN), *options)
    give_to_alice(folder)
    return job_of(folder) / "example.sub"


def job_of(folder: Path) -> Path:
    """Return the folder of the only submission from *folder*."""
    (job,) = (folder / "job").glob("*.run")
    return job


def give_to_alice(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UIDS["alice"], -1)


def test_run_starts_at_the_site_of_its_measurement_sets_and_opens_them(installed, folder):
    for number in (1, 2):
        installed.catalogue.put(f"one_SB{number}.ms", 100, "AU")
    job = installed.pool.submit_file(prepare(installed, folder, "/data/lofar/one_SB*.ms"))
    assert installed.pool.ran_at(job) == ["AU"]
    disk = installed.catalogue.disk("AU") / "lofar"
    out = (job_of(folder) / "example.out").read_text()
    assert f"DATA {disk}/one_SB1.ms" in out
    assert f'input_ms = ["{disk}/one_SB1.ms", "{disk}/one_SB2.ms"]' in out
    assert re.search(r"^dir_working = /\S+/rapthor$", out, re.MULTILINE)
    assert "batch_system = single_machine" in out
    assert (job_of(folder) / "images" / "a.fits").read_text() == "image\n"
    assert (job_of(folder) / "example.log").stat().st_size, "by which --submit knows that there is a job"


def test_run_that_is_the_first_to_name_a_dataset_starts_by_paths_of_the_daemon(installed, folder):
    """The submitter's host has the daemon's address, and neither a catalogue nor a [[storage]]."""
    installed.catalogue.put("first_1.ms", 100, "NL")
    config = folder / "hydrator.toml"
    config.write_text(f'[daemon]\ndefault_scope = "lofar"\n[submit]\ndaemon_url = "{installed.url}"\n')
    job = installed.pool.submit_file(prepare(installed, folder, "/mine/first_1.ms", "--config", str(config)))
    assert installed.pool.ran_at(job) == ["NL"]
    disk = installed.catalogue.disk("NL") / "lofar"
    assert f"DATA {disk}/first_1.ms" in (job_of(folder) / "example.out").read_text()


def test_run_prefers_the_site_with_more_bytes_and_fetches_the_rest(installed, folder):
    """UK has two of the three measurement sets, AU one that is larger than both, NL, the smallest, none."""
    installed.catalogue.put("part_1.ms", 100, "UK")
    installed.catalogue.put("part_2.ms", 100, "UK")
    installed.catalogue.put("part_3.ms", 9_000, "AU")
    for name in ("part_1.ms", "part_2.ms"):
        write(installed.catalogue.disk("lake") / f"lofar:{name}" / name)
    options = (
        "--mode",
        "wait",
        "--max-wait",
        "1",
        "--line",
        "hold = true",
        "--config",
        str(staging(installed)),
    )
    job = installed.pool.submit_file(
        prepare(installed, folder, "[part_1.ms, part_2.ms, part_3.ms]", *options)
    )
    for site, name in (("UK", "part_1.ms"), ("UK", "part_2.ms"), ("AU", "part_3.ms")):
        installed.pool.wait(
            lambda site=site, name=name: installed.states_at(site).get(f"lofar:{name}") == "AVAILABLE",
            f"{site} to list {name}",
        )
    installed.pool.run("condor_release", str(job), user="alice")
    assert installed.pool.ran_at(job) == ["AU"]
    out = (job_of(folder) / "example.out").read_text()
    (listed,) = re.findall(r"^input_ms = (.*)$", out, re.MULTILINE)
    assert [Path(path).name for path in json.loads(listed)] == ["part_1.ms", "part_2.ms", "part_3.ms"]
    assert [path.startswith(str(installed.catalogue.disk("AU"))) for path in json.loads(listed)] == [
        False,
        False,
        True,
    ]


def test_run_without_a_site_waits_and_then_fetches_its_data(installed, folder):
    installed.catalogue.put("far_1.ms", 100)
    write(installed.catalogue.disk("lake") / "lofar:far_1.ms" / "far_1.ms")
    options = ("--mode", "wait", "--max-wait", "10", "--config", str(staging(installed)))
    job = installed.pool.submit_file(prepare(installed, folder, "far_1.ms", *options))
    assert len(installed.pool.ran_at(job)) == 1
    (done,) = installed.pool.history(f"ClusterId == {job}")
    assert done["DataLocality"] == "wait"
    assert done["JobStartDate"] >= done["DataLocalityAnyAfter"]
    ((_, did, site),) = (text.split() for text in done["ChirpDataLocalityFetched"])
    assert (did, site) == ("lofar:far_1.ms", done["LastRemoteHost"].split("@")[1])
    assert "ChirpDataLocalityMisses" not in done  # no slot had said that it is there
    assert re.search(
        r"^DATA .*/hydrator-inputs/1/far_1.ms/far_1.ms$",
        (job_of(folder) / "example.out").read_text(),
        re.MULTILINE,
    )


EVICTED = (
    "cd rapthor; mkdir -p pipelines/calibrate_1 pipelines/image_1;"
    " echo start: $(ls -A pipelines/calibrate_1 pipelines/image_1) >> {folder}/starts;"
    " if test -e pipelines/calibrate_1/.done; then exit 0; fi;"
    " echo solutions > pipelines/calibrate_1/field.h5;"
    " touch pipelines/calibrate_1/.done pipelines/image_1/part;"
    " echo kept > images/early; echo waits >> {folder}/starts; while :; do sleep 1; done"
)


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "lost"])
def test_an_evicted_run_goes_on_after_its_finished_operations_if_they_are_kept(installed, folder, keep):
    """The stand-in for Rapthor ends one operation and hangs in the next; a start after one has ended ends."""
    name = f"evicted_{keep}.ms"
    installed.catalogue.put(name, 100, "UK")
    command = f"/bin/sh -c {shlex.quote(EVICTED.format(folder=folder))}"
    options = ["--command", command, *(["--keep-on-eviction"] if keep else [])]
    job = installed.pool.submit_file(prepare(installed, folder, name, *options))
    starts = folder / "starts"

    def said() -> list[str]:
        return starts.read_text().splitlines() if starts.exists() else []

    empty = "start: pipelines/calibrate_1: pipelines/image_1:"
    installed.pool.wait(lambda: said() == [empty, "waits"], "the run to be in its second operation")
    installed.pool.run("condor_vacate_job", str(job), user="alice")
    installed.pool.wait(lambda: len(said()) >= 3, "the run to start again")
    if keep:
        assert said()[2:] == ["start: pipelines/calibrate_1: .done field.h5 pipelines/image_1:"]
        assert installed.pool.ran_at(job) == ["UK"]
        assert (job_of(folder) / "rapthor" / "images" / "early").read_text() == "kept\n"
        assert not (job_of(folder) / "rapthor" / "pipelines").exists()
        stderr = (job_of(folder) / "example.err").read_text()
        assert "hydrator: the job was evicted before: Rapthor continues after calibrate_1" in stderr
    else:
        assert said()[2] == empty
        installed.pool.run("condor_rm", str(job), user="alice")


def test_job_of_244_sub_bands_runs(installed, folder):
    for name in SUB_BANDS:
        installed.catalogue.put(name, 40_000_000_000, "UK")
    job = installed.pool.submit_file(prepare(installed, folder, "/data/L667526_SB*.ms"))
    assert installed.pool.ran_at(job) == ["UK"]
    out = (job_of(folder) / "example.out").read_text()
    assert len(json.loads(re.findall(r"^input_ms = (.*)$", out, re.MULTILINE)[0])) == 244


PLAIN = "executable = /bin/true\nrequest_cpus = 1\nrequest_memory = 10\nrequest_disk = 1\n"


def exports(installed: Installation, folder: Path, name: str, *options: str) -> dict[str, str]:
    parset = folder / "env.parset"
    parset.write_text(example_parset().format(input_ms=name))
    output = installed.run("submit", "rapthor", str(parset), "--as", "env", *options).stdout
    lines = [shlex.split(line) for line in output.splitlines()]
    return dict(words[1].split("=", 1) for words in lines)


def test_the_environment_reaches_the_nodes_of_a_dag(installed, folder):
    for number in (1, 2):
        installed.catalogue.put(f"dag_{number}.ms", 1, "AU")
    environment = exports(installed, folder, "dag_*.ms", "--name", "dagged")
    (folder / "node.sub").write_text(PLAIN + "queue\n")
    (folder / "run.dag").write_text("JOB A node.sub\n")
    give_to_alice(folder)
    installed.pool.run("condor_submit_dag", "run.dag", user="alice", cwd=folder, env=environment)
    which = 'WorkflowRun == "dagged" && JobUniverse == 5'
    installed.pool.wait(lambda: installed.pool.history(which, "ClusterId"), "the node to end")
    (node,) = installed.pool.history(which, "RequiredDatasets", "LastRemoteHost", "Requirements")
    assert node["RequiredDatasets"] == ["lofar:dag_1.ms", "lofar:dag_2.ms"]
    assert node["LastRemoteHost"].split("@")[1] == "AU"
