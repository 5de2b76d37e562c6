"""CWL through toil-cwl-runner on a real pool, by this project's batch system and by Toil's own."""

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
from testbed.pool import Pool, SiteSpec
from testbed.rapthor import python as rapthor_python
from testbed.toil import Toil, as_user, own
from tests.parts import NO_RAPTHOR, NO_TOIL, needs

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.timeout(900)]
CANARY = "canary-4f1c0"
SCATTER = """\
cwlVersion: v1.2
class: Workflow
requirements: {ScatterFeatureRequirement: {}}
inputs: {ms: "Directory[]"}
outputs: {seen: {type: "File[]", outputSource: wsclean_image/seen}}
steps:
  wsclean_image:
    scatter: ms
    in: {ms: ms}
    out: [seen]
    run: wsclean_image.cwl
"""
STEP = """\
cwlVersion: v1.2
class: CommandLineTool
id: wsclean_image
requirements: {ResourceRequirement: {coresMin: 1, ramMin: 64, tmpdirMin: 8, outdirMin: 8}}
baseCommand: [sh, -c, COMMAND]
inputs: {ms: {type: Directory, inputBinding: {position: 1}}}
outputs: {seen: {type: stdout}}
"""
WHOLE = """\
cwlVersion: v1.2
class: Workflow
inputs: {ms: "Directory[]", one: Directory}
outputs: {seen: {type: File, outputSource: wsclean_image/seen}}
steps:
  wsclean_image:
    in: {ms: ms}
    out: [seen]
    run: wsclean_image.cwl
"""
READ = 'cat "$0/name"; echo "secret=$SECRET"'
SITES = (SiteSpec("UK", 8), SiteSpec("AU", 4), SiteSpec("NL", 2, gpus=2))  # stand-ins for GPUs
BOTH = '{"lofar:L1.ms","lofar:L2.ms"}'


@pytest.fixture(scope="module")
def installed(htcondor_release) -> Iterator[Installation]:
    quick = {"schedd": "PERIODIC_EXPR_INTERVAL = 2\n"}  # how soon a job that Toil has seen leaves the queue
    waits = '[jobs]\ndefault_mode = "wait"\n'  # mode auto runs anywhere without estimates
    with (
        Pool.start(htcondor_release, SITES) as pool,
        Installation(pool, ListedCatalogue(pool.home), extra=quick, settings=waits) as running,
    ):
        yield running


def toil_of(installed: Installation, which: str) -> Toil:
    with needs(NO_TOIL):
        return Toil.place(installed.pool, which)


@pytest.fixture
def current(installed) -> Toil:
    return toil_of(installed, "current")


@pytest.fixture
def stock(installed) -> Toil:
    return toil_of(installed, "stock")


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

    def ended(self, seconds: float = 150) -> int:
        """Wait for the leader; return its exit status."""

        def over() -> bool:
            self.look()
            return self.leader.poll() is not None

        self.pool.wait(over, seconds, f"Toil to end; see {self.folder}/stderr")
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
                lambda c=cluster: self.pool.history(f"ClusterId == {c}"), 90, f"job {cluster} to leave"
            )
            host = self.pool.history(f"ClusterId == {cluster}", "LastRemoteHost")[0]["LastRemoteHost"]
            found[",".join(ad.get("RequiredDatasets") or ["none"])] = host.split("@")[1]
        return found


def options(folder: Path) -> list[str]:
    settings = {
        "--jobStore": f"file:{folder}/store",
        "--workDir": f"{folder}/scratch",
        "--batchLogsDir": f"{folder}/logs",
        "--tmp-outdir-prefix": f"{folder}/scratch/out.",
        "--disableChaining": "True",
        "--retryCount": "0",
        "--outdir": f"{folder}/out",
    }
    words = [word for pair in settings.items() for word in pair]
    return [
        *words, "--bypass-file-store", "--disableCaching", "--preserve-entire-environment",
        "scatter.cwl", "in.json",
    ]  # fmt: skip


def start(
    toil: Toil,
    name: str,
    *words: str,
    command: str = READ,
    more: str = "",
    files: Mapping[str, str] | None = None,
    inputs: Mapping[str, object] | None = None,
    **environment: str,
) -> Run:
    """Start a scatter over two measurement sets, or over *files*, with more *inputs*."""
    folder = toil.folder(name)
    for ms in ("L1.ms", "L2.ms"):
        (folder / ms).mkdir()
        (folder / ms / "name").write_text(f"{ms}\n")
    (folder / "scatter.cwl").write_text(SCATTER)
    (folder / "wsclean_image.cwl").write_text(STEP.replace("COMMAND", json.dumps(command)) + more)
    for file, text in (files or {}).items():
        (folder / file).write_text(text)
    sets = [{"class": "Directory", "path": str(folder / ms)} for ms in ("L1.ms", "L2.ms")]
    one = {"one": sets[1]} if files else {}
    (folder / "in.json").write_text(json.dumps({"ms": sets, **one, **(inputs or {})}))
    for sub in ("scratch", "logs", "out"):
        (folder / sub).mkdir()
    own(folder, "alice")
    leader = toil.start(*words, *options(folder), folder=folder, SECRET=CANARY, **environment)
    return Run(toil.pool, folder, leader)


def hold(installed: Installation, datasets: Mapping[str, Mapping[str, str]]) -> None:
    """Set the catalogue, and wait until no slot lists a dataset that has left its site."""
    installed.catalogue.hold(datasets)

    def is_gone() -> bool:
        return not any(
            state == "AVAILABLE" and datasets.get(did, {}).get(site.name) != "available"
            for site in SITES
            for did, state in installed.states_at(site.name).items()
        )

    installed.pool.wait(is_gone, 60, "the data of the tests before to leave the ads")


OURS = ("--batchSystem", "classad_hydrator")


def test_batch_system_runs_each_step_beside_its_own_dataset(installed, current):
    hold(installed, {"lofar:L1.ms": {"AU": "available"}, "lofar:L2.ms": {"NL": "available"}})
    run = start(current, "apart", *OURS, _CONDOR_RequiredDatasets=BOTH)
    assert run.ended() == 0, run.said
    assert run.sites() == {"lofar:L1.ms": "AU", "lofar:L2.ms": "NL"}
    outputs = json.loads((run.folder / "stdout").read_text())["seen"]
    assert len(outputs) == 2


MIXED = """\
cwlVersion: v1.2
class: Workflow
requirements:
  ScatterFeatureRequirement: {}
  StepInputExpressionRequirement: {}
  InlineJavascriptRequirement: {}
inputs: {ms: "Directory[]", one: Directory, threads: int}
outputs: {seen: {type: File, outputSource: gather/seen}}
steps:
  plain: {in: {threads: threads}, out: [seen], run: plain.cwl}
  direct: {in: {ms: one}, out: [seen], run: wsclean_image.cwl}
  scattered: {scatter: ms, in: {ms: ms}, out: [seen], run: wsclean_image.cwl}
  gather: {in: {parts: scattered/seen, one: plain/seen}, out: [seen], run: gather.cwl}
"""
PLAIN = (
    STEP.replace("COMMAND", json.dumps("echo plain"))
    .replace("id: wsclean_image\n", "")
    .replace("ms: {type: Directory, inputBinding: {position: 1}}", "threads: int")
)
GATHER = (
    STEP.replace("COMMAND", json.dumps('cat "$0" "$@"'))
    .replace("id: wsclean_image\n", "")
    .replace(
        "ms: {type: Directory, inputBinding: {position: 1}}",
        "parts: {type: 'File[]', inputBinding: {position: 1}},"
        " one: {type: File, inputBinding: {position: 2}}",
    )
)


def test_a_step_that_reads_no_dataset_asks_for_none_and_the_others_for_their_own(installed, current):
    """No site has both datasets, and the run requires them: a step with both would wait without end."""
    hold(installed, {"lofar:L1.ms": {"AU": "available"}, "lofar:L2.ms": {"NL": "available"}})
    run = start(
        current, "mixed", *OURS, _CONDOR_RequiredDatasets=BOTH, _CONDOR_DataLocality='"require"',
        files={"scatter.cwl": MIXED, "plain.cwl": PLAIN, "gather.cwl": GATHER}, inputs={"threads": 4},
    )  # fmt: skip
    assert run.ended() == 0, run.said
    asked = sorted(
        (ad["ToilUnitName"].split(".")[2], ",".join(ad.get("RequiredDatasets") or []))
        for ad in run.ads.values()
    )
    assert asked == [
        ("0", "lofar:L1.ms"),
        ("1", "lofar:L2.ms"),
        ("direct", "lofar:L2.ms"),
        ("gather", ""),
        ("plain", ""),
    ]
    sites = run.sites()
    assert (sites["lofar:L1.ms"], sites["lofar:L2.ms"]) == ("AU", "NL")


def test_batch_system_puts_the_step_into_the_ad_and_no_secret_of_the_leader(installed, current):
    hold(installed, {"lofar:L1.ms": {"UK": "available"}, "lofar:L2.ms": {"UK": "available"}})
    run = start(
        current, "named", *OURS, _CONDOR_RequiredDatasets=BOTH, _CONDOR_RapthorRun='"r1"',
        _CONDOR_RapthorOperation='"image_1"', _CONDOR_SUBMIT_ATTRS="RequiredDatasets RapthorRun",
        TOIL_HTCONDOR_PARAMS=f'+RequiredDatasets={BOTH};+RapthorRun="r1";',
    )  # fmt: skip
    assert run.ended() == 0, run.said
    assert set(run.sites().values()) == {"UK"}
    assert len(run.ads) == 2
    for ad in run.ads.values():
        assert "wsclean_image" in ad["ToilUnitName"]
        assert (ad["RapthorRun"], ad["RapthorOperation"], ad["JobBatchName"]) == (
            "r1",
            "image_1",
            "r1/image_1",
        )
        assert len(ad["RequiredDatasets"]) == 1
        assert CANARY not in json.dumps(ad)
    # the step itself has it, from the job store
    outputs = list((run.folder / "out").iterdir())
    assert outputs
    assert all(f"secret={CANARY}" in path.read_text() for path in outputs)


def test_toils_own_batch_system_runs_the_steps_beside_the_datasets_of_the_run(installed, stock):
    hold(
        installed, {"lofar:L1.ms": {"AU": "available", "NL": "available"}, "lofar:L2.ms": {"AU": "available"}}
    )
    run = start(
        stock, "stock", "--batchSystem", "htcondor", _CONDOR_SUBMIT_ATTRS="RequiredDatasets RapthorRun",
        _CONDOR_RequiredDatasets=BOTH, _CONDOR_RapthorRun='"r1"',
    )  # fmt: skip
    assert run.ended() == 0, run.said
    assert run.sites() == {"lofar:L1.ms,lofar:L2.ms": "AU"}
    assert [ad["RapthorRun"] for ad in run.ads.values()] == ["r1", "r1"]


def test_leader_submits_to_a_schedd_by_name(installed, current):
    hold(installed, {"lofar:L1.ms": {"UK": "available"}, "lofar:L2.ms": {"UK": "available"}})
    name = installed.pool.ads('MyType == "Scheduler"', "Name")[0]["Name"]
    run = start(
        current, "remote", *OURS, TOIL_HTCONDOR_COLLECTOR=installed.pool.collector, TOIL_HTCONDOR_SCHEDD=name
    )
    assert run.ended() == 0, run.said


def waiting_step(run: Run) -> str:
    """Return the job that reads L1.ms, once it is queued; it waits, because no site has L1.ms."""

    def found() -> list[int]:
        return [cluster for cluster, ad in run.look().items() if ad["RequiredDatasets"] == ["lofar:L1.ms"]]

    return str(run.pool.wait(found, 90, f"the step to be in the queue; Toil says:\n{run.said[-2000:]}")[0])


def test_removed_step_fails_the_workflow(installed, current):
    hold(installed, {"lofar:L2.ms": {"UK": "available"}})
    run = start(current, "removed", *OURS, _CONDOR_RequiredDatasets=BOTH)
    job = waiting_step(run)
    installed.pool.run("condor_rm", job, user="alice")
    assert run.ended() == 1, run.said
    assert f"HTCondor job {job} was removed: via condor_rm (by user alice)" in run.said


def test_a_step_that_is_held_fails_the_workflow_and_leaves_the_queue(installed, current):
    hold(installed, {"lofar:L2.ms": {"UK": "available"}})
    run = start(current, "held", *OURS, _CONDOR_RequiredDatasets=BOTH)
    job = waiting_step(run)
    installed.pool.run("condor_hold", "-reason", "quota", job, user="alice")
    assert run.ended() == 1, run.said
    assert f"HTCondor job {job} was held: quota" in run.said
    assert not installed.pool.jobs(f"ClusterId == {job} && JobStatus != 3")


def test_removed_running_step_fails_the_workflow(installed, current):
    hold(installed, {"lofar:L1.ms": {"UK": "available"}, "lofar:L2.ms": {"UK": "available"}})
    slow = 'case "$0" in *L1.ms) exec sleep 300;; esac'
    run = start(current, "killed", *OURS, command=slow, _CONDOR_RequiredDatasets=BOTH)
    job = waiting_step(run)
    running = f"ClusterId == {job} && JobStatus == 2"
    installed.pool.wait(lambda: installed.pool.jobs(running), 90, "the step to run")
    installed.pool.run("condor_rm", job, user="alice")
    assert run.ended() == 1, run.said
    assert f"HTCondor job {job} was removed: via condor_rm" in run.said


def test_stopped_leader_removes_its_jobs(installed, current):
    hold(installed, {})
    run = start(current, "stopped", *OURS, _CONDOR_RequiredDatasets=BOTH)
    installed.pool.wait(lambda: len(run.look()) == 2, 90, "two jobs in the queue")
    os.killpg(run.leader.pid, signal.SIGINT)
    assert run.ended() != 0
    left = " || ".join(f"ClusterId == {cluster}" for cluster in run.ads)
    installed.pool.wait(lambda: not installed.pool.jobs(left), 30, "the jobs to leave the queue")


def test_a_restarted_workflow_removes_the_jobs_of_the_leader_that_was_killed(installed, current):
    hold(installed, {})
    run = start(current, "killed-leader", *OURS, _CONDOR_RequiredDatasets=BOTH)
    installed.pool.wait(lambda: len(run.look()) == 2, 90, "two jobs in the queue")
    os.killpg(run.leader.pid, signal.SIGKILL)
    run.leader.wait(120)
    old = set(run.ads)
    words = (*OURS, "--restart", *options(run.folder))
    leader = current.start(*words, folder=run.folder, SECRET=CANARY, _CONDOR_RequiredDatasets=BOTH)
    again = Run(installed.pool, run.folder, leader)
    of_the_killed = " || ".join(f"ClusterId == {cluster}" for cluster in old)
    installed.pool.wait(
        lambda: not installed.pool.jobs(of_the_killed), 90, "the jobs of the killed leader to leave the queue"
    )
    # before this the old jobs could still run, and would leave less to do
    hold(installed, {"lofar:L1.ms": {"UK": "available"}, "lofar:L2.ms": {"UK": "available"}})
    assert again.ended() == 0, again.said
    assert len(set(again.ads) - old) == 2


def test_a_step_that_fails_fails_the_workflow_with_its_status(installed, current):
    run = start(current, "fails", *OURS, command="exit 33")
    assert run.ended() == 1, run.said
    assert "ended with exit status" in run.said


def test_job_that_the_schedd_rejects_fails_the_workflow_with_the_reason(installed, current):
    run = start(current, "refused", *OURS, _CONDOR_DataLocality='"sometimes"', _CONDOR_RequiredDatasets=BOTH)
    assert run.ended() == 1, run.said
    assert "was not submitted" in run.said
    assert "sometimes" in run.said or "DataLocality" in run.said


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("TOIL_HTCONDOR_PARAMS", "rank", "'rank' is not name=value"),
        ("_CONDOR_RequiredDatasets", '{"a b"}', "must be a list such as"),
        ("HYDRATOR_CONFIG", "/nonexistent", "/nonexistent (HYDRATOR_CONFIG): [submit] cannot be read"),
    ],
)
def test_wrong_environment_is_reported_in_one_sentence_before_the_workflow(
    installed, current, variable, value, reason
):
    run = start(current, f"wrong-{variable}", *OURS, **{variable: value})
    assert run.ended() == 2, run.said
    assert reason in run.said
    assert "Traceback" not in run.said


def test_schedd_restart_costs_no_step(installed, current):
    hold(installed, {})
    run = start(current, "patient", *OURS, _CONDOR_RequiredDatasets=BOTH)
    installed.pool.wait(lambda: len(run.look()) == 2, 90, "two jobs in the queue")
    installed.pool.stop_daemon("schedd")
    try:
        installed.pool.wait(lambda: "the workflow waits" in run.said, 60, "Toil to notice")
    finally:
        installed.pool.start_daemon("schedd")
    installed.pool.wait(run.look, 60, "the queue to be there again")
    hold(installed, {"lofar:L1.ms": {"UK": "available"}, "lofar:L2.ms": {"UK": "available"}})
    assert run.ended() == 0, run.said


@pytest.mark.parametrize("which", ["current", "stock"])
def test_step_that_reads_244_sub_bands_runs_beside_them(installed, which, record_property):
    """Both batch systems, by the environment: the list (8.8 kB) is in each job's ad."""
    names = [f"lofar:L667526_SB{number:03}_uv_pre-cal.ms" for number in range(244)]
    hold(installed, {name: {"UK": "available"} for name in names})
    listed = "{" + ",".join(f'"{name}"' for name in names) + "}"
    words = OURS if which == "current" else ("--batchSystem", "htcondor")
    toil = toil_of(installed, which)
    data = toil.folder(f"sub-bands-{which}")
    inputs = []
    for name in names:
        (data / name.partition(":")[2]).mkdir()
        inputs.append({"class": "Directory", "path": str(data / name.partition(":")[2])})
    own(data, "alice")
    step = STEP.replace("type: Directory,", 'type: "Directory[]",').replace("COMMAND", '"true"')
    run = start(
        toil, f"many-{which}", *words, _CONDOR_SUBMIT_ATTRS="RequiredDatasets",
        _CONDOR_RequiredDatasets=listed, inputs={"ms": inputs},
        files={"scatter.cwl": WHOLE, "wsclean_image.cwl": step},
    )  # fmt: skip
    assert run.ended() == 0, run.said
    assert set(run.sites().values()) == {"UK"}
    assert {len(ad["RequiredDatasets"]) for ad in run.ads.values()} == {244}
    sizes = [len(json.dumps(ad)) for ad in run.ads.values()]
    record_property(f"244_sub_bands_toil_{which}", f"ad {max(sizes)} bytes as JSON")
    print(f"244 sub-bands, Toil, {which}: ad {max(sizes)} bytes as JSON")


GPU = """\
$namespaces: {cwltool: "http://commonwl.org/cwltool#"}
hints:
  cwltool:CUDARequirement:
    {cudaVersionMin: "11.4", cudaComputeCapability: "3.0", cudaDeviceCountMin: 2, cudaDeviceCountMax: 2}
"""


def test_a_step_that_needs_gpus_starts_where_they_are(installed, current):
    """cwltool looks for an Nvidia driver there, which the stand-ins for GPUs do not have."""
    run = start(current, "gpu", *OURS, more=GPU)
    assert run.ended() == 1
    assert "Could not satisfy CUDARequirement" in run.said
    assert [ad["RequestGPUs"] for ad in run.ads.values()] == [2, 2]
    assert set(run.sites().values()) == {"NL"}


def test_step_that_may_use_a_gpu_takes_one_beside_its_data_or_more_cores(installed, current):
    hold(installed, {"lofar:L1.ms": {"AU": "available"}, "lofar:L2.ms": {"NL": "available"}})
    config = installed.pool.shared / "gpu.toml"
    config.write_text(
        '[submit]\ngpu = "prefer"\ncpus = 3\nmemory_gb = 0.1\ngpu_steps = ["*wsclean_image*"]\n'
    )
    run = start(current, "choice", *OURS, _CONDOR_RequiredDatasets=BOTH, HYDRATOR_CONFIG=str(config))
    assert run.ended() == 0, run.said
    assert run.sites() == {"lofar:L1.ms": "AU", "lofar:L2.ms": "NL"}
    which = " || ".join(f"ClusterId == {cluster}" for cluster in run.ads)
    done = installed.pool.history(which, "RequiredDatasets", "CpusProvisioned", "GPUsProvisioned")
    assert {job["RequiredDatasets"][0]: (job["CpusProvisioned"], job["GPUsProvisioned"]) for job in done} == {
        "lofar:L1.ms": (3, 0),
        "lofar:L2.ms": (1, 1),
    }


# Rapthor


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
    with needs(NO_RAPTHOR):
        python = rapthor_python()
    with (folder / "stderr").open("wb") as err:
        return subprocess.Popen(
            [str(python), str(RAPTHOR), str(folder)], env=environment, cwd=folder, stderr=err, text=True,
            start_new_session=True,
        )  # fmt: skip


def test_rapthors_own_runner_sends_stand_in_operations_to_the_site_of_the_first(installed, current):
    hold(installed, {"lofar:L1.ms": {"NL": "available"}, "lofar:L2.ms": {"UK": "available"}})
    working = current.folder("run1")
    dataset = working / "L1.ms"
    dataset.mkdir()
    (dataset / "name").write_text("L1.ms\n")
    front = shim_for(installed, current, current.folder("path"))
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
        folder = operation(current, working, name, read)
        run = Run(installed.pool, folder, rapthor_runs(installed, current, folder, front))
        status = run.ended(200)
        log = (working / "logs" / name / "pipeline.log").read_text()
        assert status == 0, log[-4000:]
        ad, where = next(iter(run.ads.values())), list(run.sites().values())
        ran[name] = {
            "operation": ad["RapthorOperation"],
            "sites": where,
            "datasets": ad.get("RequiredDatasets"),
        }
        assert CANARY not in json.dumps(ad)
        assert ad["RapthorRun"].startswith("run1-")
    assert ran == {
        "calibrate_1": {"operation": "calibrate_1", "sites": ["NL"], "datasets": ["lofar:L1.ms"]},
        "predict_1": {"operation": "predict_1", "sites": ["NL"], "datasets": None},
        "image_1": {"operation": "image_1", "sites": ["NL"], "datasets": None},
    }


def test_patch_for_rapthor_applies_and_lets_it_use_htcondor(tmp_path):
    with needs(NO_RAPTHOR):
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
        return subprocess.run(
            [str(python), "-c", program, str(parset)], cwd=tmp_path, capture_output=True, text=True,
            check=False, env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )  # fmt: skip

    assert [reads(name).returncode for name in ("htcondor", "classad_hydrator", "slurm")] == [0, 0, 0]
    assert "must be one of" in reads("pbs").stderr
