"""Rapthor's own parsets, made for another machine, in slots of 1 and of 16 cores: its reader, and real Toil.

No pool: the wrapper is given the ads that a starter would write. This machine has fewer than 16 cores, so
psutil, by which Toil counts them, is given a stand-in for a larger machine.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hydrator.submit import job_wrapper as job_start
from hydrator.submit.rapthor.machine import job_parset
from hydrator.submit.rapthor.parset import parse_parset
from testbed.files import write_program
from testbed.processes import run_program
from testbed.rapthor import examples, python
from tests.parts import needs
from tests.tables import write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

OPERATION = Path(__file__).with_name("rapthor_operation.py")
ANOTHER_MACHINE = {
    "batch_system": "slurm",
    "max_nodes": "12",
    "cpus_per_task": "96",
    "mem_per_node_gb": "384",
    "max_cores": "96",
    "max_threads": "96",
    "deconvolution_threads": "14",
    "local_scratch_dir": "/shared/fsx1",
    "global_scratch_dir": "/shared/fsx1",
}
LARGE_MACHINE = "import psutil\npsutil.cpu_count = lambda logical=True: 64\ndel psutil.Process.cpu_affinity\n"
CONCATENATE = """\
#!/bin/sh
for word; do case $word in --msout=*) out=${word#--msout=};; esac; done
mkdir "$out" && echo "$OMP_NUM_THREADS $*" > "$out/seen"
"""
NAMES = ("rapthor.parset", "defaults.parset", "defaults_skalow.parset")


class Slot:
    """A scratch folder with the ads of a slot, two measurement sets beside it, and a stand-in for a step."""

    def __init__(self, folder: Path, cores: int, memory: int) -> None:
        self.scratch = folder / "scratch"
        self.cores, self.gigabytes = cores, memory // 1024
        tools = folder / "bin"
        for each in (self.scratch, tools):
            each.mkdir()
        for name in ("a.ms", "b.ms"):
            write(folder / name)
        write_program(tools / "concat_ms.py", CONCATENATE)
        for name in ("toil-cwl-runner", "_toil_worker"):  # built elsewhere, so they name another Python
            _, _, program = (python().parent / name).read_text().partition("\n")
            write_program(tools / name, f"#!{python()}\n{program}")
        (tools / "sitecustomize.py").write_text(LARGE_MACHINE)
        (folder / "machine.ad").write_text(f'Cpus = {cores}\nMemory = {memory}\nDataLocalitySite = "UK"\n')
        datasets = [{"did": f"o:{name}", "name": name} for name in ("a.ms", "b.ms")]
        sites = {"UK": {f"o:{name}": str(folder / name) for name in ("a.ms", "b.ms")}}
        paths = {"version": 1, "datasets": datasets, "sites": sites}
        (self.scratch / "hydrator-paths.json").write_text(json.dumps(paths))
        self._environment = {
            "PATH": f"{tools}:{python().parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(tools),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": str(cores),
            "_CONDOR_SCRATCH_DIR": str(self.scratch),
            "_CONDOR_MACHINE_AD": str(folder / "machine.ad"),
        }

    def move(self) -> None:
        """Move the scratch folder: the next start of a job has another one."""
        moved = self.scratch.with_name("another")
        self.scratch.rename(moved)
        self.scratch = moved
        self._environment["_CONDOR_SCRATCH_DIR"] = str(moved)

    def run(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Start the job of the parset *text* as the starter would."""
        (self.scratch / "run.parset").write_text(job_parset(parse_parset(text.encode(), "run.parset"), {})[0])
        words = [job_start.__file__, "--parset", "run.parset", "--", str(python()), str(OPERATION)]
        return run_program(
            [sys.executable, *words, "run.parset", *options],
            cwd=self.scratch,
            env=self._environment,
            timeout=600,
        )


@pytest.fixture(params=[(1, 2048), (16, 65536)], ids=["1 core", "16 cores"])
def slot(tmp_path, request) -> Slot:
    with needs("Rapthor"):
        return Slot(tmp_path, *request.param)


def made_for_another_machine(name: str) -> str:
    """Return one of Rapthor's own parsets as for a cluster of 96 cores a node."""
    with needs("Rapthor"):
        text = examples()[name]
    for option, value in {"dir_working": "/data/run1", "input_ms": "*.ms", **ANOTHER_MACHINE}.items():
        text, times = re.subn(rf"^{option} = .*$", f"{option} = {value}", text, flags=re.MULTILINE)
        assert times == 1, option
    return text


def test_parsets_are_those_that_rapthor_ships():
    with needs("Rapthor"):
        assert set(NAMES) <= set(examples())


@pytest.mark.parametrize("name", NAMES)
def test_rapthor_reads_what_the_slot_has_and_nothing_of_the_other_machine(slot, name):
    text = made_for_another_machine(name)
    told = "\n".join(job_parset(parse_parset(text.encode(), name), {})[1])
    assert all(f"{option} = {value}" in told for option, value in ANOTHER_MACHINE.items())
    assert "unknown" not in told
    done = slot.run(text, "--read-only")
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)["cluster"]
    wanted = {
        "batch_system": "single_machine", "max_nodes": 1, "cpus_per_task": slot.cores,
        "max_cores": slot.cores, "max_threads": slot.cores, "mem_per_node_gb": slot.gigabytes,
        "deconvolution_threads": min(14, slot.cores), "local_scratch_dir": str(slot.scratch),
        "global_scratch_dir": str(slot.scratch),
    }  # fmt: skip
    assert {option: read[option] for option in wanted} == wanted
    assert f"max_cores = 96 is now {slot.cores}" in done.stderr


def test_an_operation_of_rapthor_runs_by_real_toil_with_the_cores_of_the_slot(slot):
    done = slot.run(made_for_another_machine("rapthor.parset"))
    log = slot.scratch / "rapthor" / "logs" / "concatenate_1" / "pipeline.log"
    assert done.returncode == 0, log.read_text()[-3000:] if log.exists() else done.stderr
    (seen,) = json.loads(done.stdout)["made"]
    assert "a.ms" in Path(seen).read_text()
    workflow = slot.scratch / "rapthor" / "pipelines" / "concatenate_1" / "pipeline_parset.cwl"
    assert f"coresMin: {slot.cores}" in workflow.read_text()


def test_rapthor_skips_a_finished_operation_in_another_scratch_folder(slot):
    """An evicted job that keeps its working folder needs this."""
    text = made_for_another_machine("rapthor.parset")
    assert slot.run(text).returncode == 0
    slot.move()
    (slot.scratch.parent / "bin" / "concat_ms.py").write_text("#!/bin/sh\nexit 1\n")
    again = slot.run(text)
    assert again.returncode == 0, again.stderr
    shutil.rmtree(slot.scratch / "rapthor" / "pipelines")
    assert slot.run(text).returncode != 0
