"""Rapthor's own runner through our shim and batch system for Toil: the one scenario of the frozen plugin."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.installation import Installation, ListedCatalogue
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


def run_operation(toil: Toil, folder: Path, front: Path) -> int:
    """Run Rapthor's own ToilRunner, from PyPI, on one operation; return its exit status."""
    environment = toil.environment(
        PATH=f"{front}:{front.parent}/shim:{toil.bin}:/usr/bin:/bin", SECRET=CANARY,
        _CONDOR_RequiredDatasets=BOTH, _CONDOR_SUBMIT_ATTRS="RequiredDatasets",
    )  # fmt: skip
    with needs("Rapthor"):
        words = [str(rapthor_python()), str(RAPTHOR), str(folder)]
    return run_program(words, env=environment, cwd=folder, timeout=300).returncode


def test_rapthors_own_runner_sends_stand_in_operations_to_the_site_of_the_first(installed):
    installed.catalogue.hold({"lofar:L1.ms": {"NL": "available"}, "lofar:L2.ms": {"UK": "available"}})
    with needs("Toil"):
        toil = Toil.place(installed.pool)
    working = toil.folder("run1")
    # the second one reads what the first has written; the third a dataset that is elsewhere only
    for name in ("L1.ms", "L1_field.ms", "L2.ms"):
        (working / name).mkdir()
        (working / name / "name").write_text(f"{name}\n")
    front = shim_for(installed, toil, toil.folder("path"))
    ran: dict[str, dict] = {}
    for name, read in (("calibrate_1", "L1.ms"), ("predict_1", "L1_field.ms"), ("image_1", "L2.ms")):
        folder = operation(toil, working, name, working / read)
        status = run_operation(toil, folder, front)
        assert status == 0, (working / "logs" / name / "pipeline.log").read_text()[-4000:]
        ours = f'IsToilJob && Iwd == "{folder}"'
        (ad,) = installed.pool.wait(lambda ours=ours: installed.pool.history(ours), f"{name} to leave")
        assert CANARY not in json.dumps(ad)
        assert ad["WorkflowRun"].startswith("run1-")
        assert ad["RapthorOperation"] == name
        ran[name] = ad["LastRemoteHost"].split("@")[1], ad.get("RequiredDatasets")
    assert ran == {
        "calibrate_1": ("NL", ["lofar:L1.ms"]), "predict_1": ("NL", None), "image_1": ("NL", None),
    }  # fmt: skip


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
