"""Rapthor's own runner through our shim and batch system for Toil: the one scenario of the frozen plugin."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool
from testbed.processes import run_program
from testbed.rapthor import python as rapthor_python
from testbed.toil import Toil, as_user, own
from tests.parts import needs

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.timeout(900)]
CANARY = "canary-4f1c0"
STEP = """\
cwlVersion: v1.2
class: CommandLineTool
id: wsclean_image
requirements: {ResourceRequirement: {coresMin: 1, ramMin: 64, tmpdirMin: 8, outdirMin: 8}}
baseCommand: [sh, -c, COMMAND]
inputs: {ms: {type: Directory, inputBinding: {position: 1}}}
outputs: {seen: {type: stdout}}
"""
READ = 'cat "$0/name"; echo "secret=$SECRET"'
BOTH = '{"lofar:L1.ms","lofar:L2.ms"}'


@pytest.fixture(scope="module")
def installed(own_pool) -> Iterator[Installation]:
    quick = {"schedd": "PERIODIC_EXPR_INTERVAL = 2\n"}  # how soon a job that Toil has seen leaves the queue
    waits = '[jobs]\ndefault_mode = "wait"\n'  # mode auto runs anywhere after its wait
    catalogue = ListedCatalogue(own_pool.home)
    with Installation(own_pool, catalogue, extra=quick, settings=waits) as running:
        yield running


@pytest.fixture
def toil(installed) -> Toil:
    with needs("Toil"):
        return Toil.place(installed.pool)


_LEADERS: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_leader_stays() -> Iterator[None]:
    """End a leader that a test left running, such as a test that failed."""
    yield
    while _LEADERS:
        leader = _LEADERS.pop()
        if leader.poll() is None:
            os.killpg(leader.pid, signal.SIGKILL)
            leader.wait()


@dataclass
class Run:
    """One workflow: its leader, its folder, and the ads of its queued jobs."""

    pool: Pool
    folder: Path
    leader: subprocess.Popen[str]
    ads: dict[int, dict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _LEADERS.append(self.leader)

    @property
    def _ours(self) -> str:
        return 'IsToilJob && Iwd == "' + str(self.folder) + '"'

    def look(self) -> dict[int, dict]:
        self.ads |= {ad["ClusterId"]: ad for ad in self.pool.jobs(self._ours)}
        return self.ads

    def ended(self) -> int:
        """Wait for the leader; return its exit status."""

        def over() -> bool:
            self.look()
            return self.leader.poll() is not None

        self.pool.wait(over, f"Toil to end; see {self.folder}/stderr")
        left = {ad["ClusterId"]: ad for ad in self.pool.history(self._ours)}  # also between two looks
        self.ads = left | self.ads
        return self.leader.returncode

    @property
    def said(self) -> str:
        return (self.folder / "stderr").read_text()

    def sites(self) -> dict[str, str]:
        """Return the site where each step ran, by its datasets."""
        found = {}
        for cluster, ad in self.ads.items():
            self.pool.wait(
                lambda c=cluster: self.pool.history(f"ClusterId == {c}"), f"job {cluster} to leave"
            )
            host = self.pool.history(f"ClusterId == {cluster}", "LastRemoteHost")[0]["LastRemoteHost"]
            found[",".join(ad.get("RequiredDatasets") or ["none"])] = host.split("@")[1]
        return found


def hold(installed: Installation, datasets: Mapping[str, Mapping[str, str]]) -> None:
    """Set the catalogue, and wait until no slot lists a dataset that has left its site."""
    installed.catalogue.hold(datasets)

    def is_gone() -> bool:
        return not any(
            state == "AVAILABLE" and datasets.get(did, {}).get(site.name) != "available"
            for site in installed.pool.sites
            for did, state in installed.states_at(site.name).items()
        )

    installed.pool.wait(is_gone, "the data of the tests before to leave the ads")


OPERATION = """\
cwlVersion: v1.2
class: Workflow
inputs: {ms: Directory}
outputs: {seen: {type: File, outputSource: step/seen}}
steps:
  step: {in: {ms: ms}, out: [seen], run: STEP}
"""
RAPTHOR = Path(__file__).with_name("rapthor_runner.py")


def operation(toil: Toil, working: Path, name: str, measurement_set: Path) -> Path:
    """Create the folder of one operation as Rapthor fills it, with another workflow for Rapthor's own."""
    folder = working / "pipelines" / name
    for sub in ("workdir", "tmp-out"):
        (folder / sub).mkdir(parents=True)
    step = folder / "step.cwl"
    step.write_text(STEP.replace("COMMAND", json.dumps(READ)))
    (folder / "pipeline_parset.cwl").write_text(OPERATION.replace("STEP", step.name))
    inputs = {"ms": {"class": "Directory", "path": str(measurement_set)}}
    (folder / "pipeline_inputs.json").write_text(json.dumps(inputs))
    (working / "logs" / name).mkdir(parents=True)
    own(working, "alice")
    return folder


def shim_for(installed: Installation, toil: Toil, folder: Path) -> Path:
    """Create a folder with the shim, which becomes alice, as Rapthor's user is in production."""
    front, real = folder / "front", folder / "shim"
    for place in (front, real):
        place.mkdir()
    (real / "toil-cwl-runner").write_text(installed.run("submit", "toil-shim").stdout)
    words = " ".join(as_user("alice"))
    (front / "toil-cwl-runner").write_text(f'#!/bin/sh\nexec {words} "{real}/toil-cwl-runner" "$@"\n')
    for place in (front, real):
        (place / "toil-cwl-runner").chmod(0o755)
    return front


def rapthor_runs(installed: Installation, toil: Toil, folder: Path, front: Path) -> subprocess.Popen[str]:
    """Run Rapthor's own ToilRunner, from PyPI, on one operation."""
    environment = toil.environment(
        PATH=f"{front}:{front.parent}/shim:{toil.bin}:/usr/bin:/bin", SECRET=CANARY,
        _CONDOR_RequiredDatasets=BOTH, _CONDOR_SUBMIT_ATTRS="RequiredDatasets",
    )  # fmt: skip
    with needs("Rapthor"):
        python = rapthor_python()
    with (folder / "stderr").open("wb") as err:
        return subprocess.Popen(
            [str(python), str(RAPTHOR), str(folder)], env=environment, cwd=folder, stderr=err, text=True,
            start_new_session=True,
        )  # fmt: skip


def test_rapthors_own_runner_sends_stand_in_operations_to_the_site_of_the_first(installed, toil):
    hold(installed, {"lofar:L1.ms": {"NL": "available"}, "lofar:L2.ms": {"UK": "available"}})
    working = toil.folder("run1")
    dataset = working / "L1.ms"
    dataset.mkdir()
    (dataset / "name").write_text("L1.ms\n")
    front = shim_for(installed, toil, toil.folder("path"))
    ran: dict[str, dict] = {}
    # the second one reads what the first has written; the third a dataset that is elsewhere only
    (working / "L1_field.ms").mkdir()
    (working / "L1_field.ms" / "name").write_text("product\n")
    (working / "L2.ms").mkdir()
    (working / "L2.ms" / "name").write_text("L2.ms\n")
    for name, read in (
        ("calibrate_1", dataset),
        ("predict_1", working / "L1_field.ms"),
        ("image_1", working / "L2.ms"),
    ):
        folder = operation(toil, working, name, read)
        run = Run(installed.pool, folder, rapthor_runs(installed, toil, folder, front))
        status = run.ended()
        log = (working / "logs" / name / "pipeline.log").read_text()
        assert status == 0, log[-4000:]
        ad, where = next(iter(run.ads.values())), list(run.sites().values())
        ran[name] = {
            "operation": ad["RapthorOperation"],
            "sites": where,
            "datasets": ad.get("RequiredDatasets"),
        }
        assert CANARY not in json.dumps(ad)
        assert ad["WorkflowRun"].startswith("run1-")
    assert ran == {
        "calibrate_1": {"operation": "calibrate_1", "sites": ["NL"], "datasets": ["lofar:L1.ms"]},
        "predict_1": {"operation": "predict_1", "sites": ["NL"], "datasets": None},
        "image_1": {"operation": "image_1", "sites": ["NL"], "datasets": None},
    }


def test_patch_for_rapthor_applies_and_lets_it_use_htcondor(tmp_path):
    with needs("Rapthor"):
        python = rapthor_python()
    source = next((python.parents[1] / "lib").glob("python3*/site-packages/rapthor"))
    shutil.copytree(source, tmp_path / "rapthor")
    patch = Path(__file__).parents[2] / "docs" / "rapthor-htcondor.patch"
    subprocess.run(["patch", "-p1", "-i", str(patch)], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "x.ms").mkdir()
    parset = tmp_path / "run.parset"

    program = "import sys, rapthor.lib.parset as p; p.parset_read(sys.argv[1], use_log_file=False)"

    def reads(system: str) -> subprocess.CompletedProcess[str]:
        parset.write_text(
            f"[global]\ndir_working = {tmp_path}\ninput_ms = {tmp_path}/x.ms\n"
            f"[cluster]\nbatch_system = {system}\n"
        )
        return run_program(
            [str(python), "-c", program, str(parset)],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )

    assert [reads(name).returncode for name in ("htcondor", "classad_hydrator", "slurm")] == [0, 0, 0]
    assert "must be one of" in reads("pbs").stderr
