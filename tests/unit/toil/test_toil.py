"""Toil batch system: the parts that need neither Toil nor HTCondor, and the shim for Rapthor."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import classad2
import htcondor2
import pytest

from hydrator.submit.rapthor import environment as rapthor
from testbed.files import write_program
from testbed.processes import run_program
from tests.command_line import run_hydrator
from toil_batch_system_classad_hydrator import shim
from toil_batch_system_classad_hydrator.affinity import SITE_FILE_VARIABLE, SiteAffinity
from toil_batch_system_classad_hydrator.condor import Schedd, ScheddUnreachable, SubmitRejected
from toil_batch_system_classad_hydrator.datasets import (
    DatasetsError,
    NamingRules,
    find_required_dids,
    format_did_list,
    parse_did_list,
)
from toil_batch_system_classad_hydrator.job import (
    JOB_ATTRIBUTES,
    StepGpus,
    SubmitParameterError,
    ToilJob,
    WorkflowSettings,
    build_submit_description,
    classad_string,
    escape_macros,
    exit_from_ad,
    filter_environment,
    gpu_request,
    parse_parameters,
    quote_words,
)

ROOT = Path(__file__).parents[3]
SHIM = ROOT / "toil_batch_system_classad_hydrator" / "toil-cwl-runner"
LOGS = {"output": "/s/out", "error": "/s/err", "log": "/s/events"}
STEP = SimpleNamespace(
    cores=1.5, memory=3 * 2**20 + 1, disk=2**20, jobName="CWLJob", unitName="image.cwl.0.wsclean",
    displayName="", accelerators=[],
)  # fmt: skip
RUN = ("lofar:L1.ms", "lofar:L2.ms")


def described(step=STEP, setting=None, datasets=None, site=None, gpus=None):
    job = ToilJob(7, step, "_toil_worker CWLJob", {"PATH": "/v:/bin"}, datasets)
    return build_submit_description(job, LOGS, setting or WorkflowSettings("w1"), site, gpus)


def settings(leader):
    return WorkflowSettings.from_environment("w1", leader)


def directory(path, **more):
    return {"class": "Directory", "path": path, **more}


# what a Toil job becomes


def test_description_rounds_resources_up_and_names_the_step():
    output = described()
    assert [output[f"request_{part}"] for part in ("cpus", "memory", "disk")] == ["2", "4MB", "1024KB"]
    assert output["MY.ToilUnitName"] == '"image.cwl.0.wsclean"'
    assert output["arguments"] == """"-c '_toil_worker CWLJob'\""""
    assert "request_gpus" not in output
    assert "requirements" not in output
    assert output["getenv"] == "false"
    assert output["environment"] == '"PATH=/v:/bin"'


def test_environment_filter_allows_harmless_and_configured_variables():
    leader = {
        "PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "SINGULARITY_DOCKER_PASSWORD": "x", "BEARER_TOKEN": "x",
        "_CONDOR_SEC_PASSWORD_FILE": "x", "EVERYBEAM_DATADIR": "/data", "MY_A": "1",
    }  # fmt: skip
    assert filter_environment(leader) == {"PATH": "/bin"}
    named = leader | {"HYDRATOR_TOIL_ENVIRONMENT": "EVERYBEAM_DATADIR, MY_*"}
    assert filter_environment(named) == {"PATH": "/bin", "EVERYBEAM_DATADIR": "/data", "MY_A": "1"}


def test_job_has_its_own_datasets_and_the_runs_attributes():
    setting = settings({"_CONDOR_WorkflowRun": '"r1"', "_CONDOR_RequiredDatasets": format_did_list(RUN)})
    output = described(setting=setting, datasets=format_did_list(RUN[:1]))
    assert output["MY.RequiredDatasets"] == '{"lofar:L1.ms"}'
    assert output["MY.WorkflowRun"] == '"r1"'
    assert output["batch_name"] == "r1"


def test_run_with_a_site_stays_there_without_datasets():
    output = described(datasets=format_did_list(RUN), site="UK")
    assert output["requirements"] == "TARGET.DataLocalitySite =?= MY.RapthorSite"
    assert output["MY.RapthorSite"] == '"UK"'
    assert "MY.RequiredDatasets" not in output


def test_description_keeps_the_users_requirements_in_parentheses():
    setting = settings({"TOIL_HTCONDOR_PARAMS": "Requirements = A || B"})
    assert described(setting=setting)["requirements"] == "A || B"
    assert described(setting=setting, site="UK")["requirements"].startswith("(A || B) && (")


def test_condor_variables_override_toil_htcondor_params():
    setting = settings(
        {"TOIL_HTCONDOR_PARAMS": '+WorkflowRun="old";+X=1;rank=2;', "_CONDOR_WorkflowRun": '"new"'}
    )
    assert setting.attributes == {"WorkflowRun": '"new"', "X": "1"}
    assert setting.commands == {"rank": "2"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rank", "is not name=value"),
        ("=1", "is not name=value"),
        ("+IsToilJob=false", "which this batch system sets itself"),
        ("MY.toiljobid=3", "which this batch system sets itself"),
        ("+X=1\nqueue 100", "control character"),
    ],
)
def test_invalid_toil_htcondor_params_are_rejected(text, reason):
    with pytest.raises(SubmitParameterError, match=reason):
        parse_parameters(text)


def test_toil_htcondor_params_cannot_replace_commands_of_the_job():
    with pytest.raises(SubmitParameterError, match="request_cpus"):
        described(setting=settings({"TOIL_HTCONDOR_PARAMS": "Request_Cpus=3"}))


def test_gpu_request_sums_counts_and_requires_the_model():
    one = {"kind": "gpu", "count": 1, "api": "cuda"}
    assert gpu_request([]) == {}
    assert gpu_request([one, one | {"count": 2}]) == {"request_gpus": "3"}
    model = gpu_request([one | {"model": "nvidia-a100"}])
    assert model["require_gpus"] == 'regexp("nvidia[^A-Za-z0-9]*a100", DeviceName, "i")'
    with pytest.raises(SubmitParameterError, match="fpga"):
        gpu_request([{"kind": "fpga", "count": 1}])


PREFERRED = StepGpus("prefer", ("*wsclean*",), cpus=16, memory_mib=61_000, properties="Capability >= 7.0")


def test_configured_step_takes_a_gpu_or_many_cores():
    output = described(gpus=PREFERRED)
    gpu = "((countMatches(MY.RequireGPUs, TARGET.AvailableGPUs) >= 1) =?= true)"
    assert output["request_gpus"] == f"{gpu} ? 1 : 0"
    assert output["request_cpus"] == f"{gpu} ? 2 : 16"
    assert output["request_memory"] == f"{gpu} ? 4 : 61000"
    assert output["requirements"] == "TARGET.Cpus >= MY.RequestCpus"
    assert (output["rank"], output["MY.RequireGPUs"]) == ("100 * MY.GPUPreference", "Capability >= 7.0")


def test_other_steps_and_steps_with_own_gpu_request_are_unchanged():
    other = StepGpus("prefer", ("predict*",))
    assert described(gpus=other) == described(gpus=StepGpus()) == described()
    asking = SimpleNamespace(**vars(STEP) | {"accelerators": [{"kind": "gpu", "count": 2}]})
    assert described(asking, gpus=PREFERRED) == described(asking)
    of_an_operation = WorkflowSettings("w1", {"RapthorOperation": '"predict_1"'})
    assert "rank" in described(setting=of_an_operation, gpus=other)


def test_gpu_choice_is_joined_to_requirements_rank_and_site():
    setting = settings({"TOIL_HTCONDOR_PARAMS": "requirements=A || B;rank=C"})
    output = described(setting=setting, site="NL", gpus=PREFERRED)
    site = "TARGET.DataLocalitySite =?= MY.RapthorSite"
    assert output["requirements"] == f"(A || B) && ({site}) && (TARGET.Cpus >= MY.RequestCpus)"
    assert output["rank"] == "((C) ?: 0.0) + 100 * MY.GPUPreference"


def test_gpu_settings_are_read_and_an_invalid_one_is_reported(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('[submit]\ngpu = "prefer"\ncpus = 8\nmemory_gb = 1.048576\ngpu_steps = ["a*"]\n')
    assert StepGpus.load(str(file)) == StepGpus("prefer", ("a*",), 8, 1000)
    file.write_text('[submit]\ngpu = "maybe"\n')
    with pytest.raises(DatasetsError, match="'maybe': use no, prefer or require"):
        StepGpus.load(str(file))


def test_dollars_and_quotes_are_escaped_in_the_description():
    assert escape_macros("$(HOME)") == "$(DOLLAR)(HOME)"
    # of $(DOLLAR)$(DOLLAR)(Name) condor_submit makes $$(DOLLAR)(Name): test_submit_language.py
    assert quote_words(["$(HOME) $$(Name)"]) == "\"'$(DOLLAR)(HOME) $$(DOLLARDOLLAR)(Name)'\""
    with pytest.raises(SubmitParameterError, match="cannot be written"):
        escape_macros("/logs/$$(Name)")
    assert quote_words(["it's", 'a "b"']) == """"'it''s' 'a ""b""'\""""
    assert classad_string('a"b\\c\n') == '"a\\"b\\\\c?"'
    with pytest.raises(SubmitParameterError, match="control character"):
        quote_words(["a\nqueue 100"])


# how a job ended


@pytest.mark.parametrize(
    ("ad", "status", "why"),
    [
        ({"JobStatus": 4, "ExitCode": 0}, 0, "FINISHED"),
        ({"JobStatus": 4, "ExitCode": 33}, 33, "FAILED"),
        ({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9}, 137, "FAILED"),
        ({"JobStatus": 4}, 255, "FAILED"),
        ({"JobStatus": 3, "RemoveReason": "via condor_rm"}, 255, "KILLED"),
        ({"JobStatus": 5, "HoldReasonCode": 1}, 255, "FAILED"),
        ({"JobStatus": 5, "HoldReasonCode": 34}, 255, "MEMLIMIT"),
        ({"JobStatus": 5, "HoldReasonCode": 46}, 255, "TIMELIMIT"),
    ],
)
def test_job_exit_is_read_from_its_ad(ad, status, why):
    end = exit_from_ad(ad | {"ClusterId": 12})
    assert (end.status, end.reason) == (status, why)
    assert "12" in end.message


@pytest.mark.parametrize("ad", [{"JobStatus": 1}, {"JobStatus": 2}, {"JobStatus": 5, "HoldReasonCode": 16}])
def test_job_that_may_still_run_has_no_exit(ad):
    assert exit_from_ad(ad) is None


# which datasets a step reads


def found(inputs, run=RUN, names=None):
    return find_required_dids(inputs, NamingRules(names or {}), run)


@pytest.mark.parametrize(
    ("inputs", "required"),
    [
        ([directory("/data/L2.ms/"), {"class": "File", "location": "file:///d/model%20a.txt"}], RUN[1:]),
        (directory("/data/L1_field.ms"), ()),
        (["/data/L1.ms/", "/data/L9.ms"], RUN[:1]),
        (4, ()),
        ("image", ()),
        (None, ()),
    ],
)
def test_step_requires_the_datasets_of_the_run_among_its_inputs(inputs, required):
    assert found({"msin": inputs}) == found(inputs) == required
    assert found(inputs, ()) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("/data/L1.ms,/data/L2.ms", "msin=[/data/L1.ms, '/data/L2.ms']", "L2.ms /d/L1.ms_76a2361e.tar;x"),
        *("/data/L1.ms:/data/L2.ms", "{(/d/L1.ms)|file:///d/L2.ms}", "msin=/d/L1.ms\\\n/d/L2.ms"),
    ],
)
def test_text_input_with_several_paths_names_all_datasets(text):
    """Case S24 of cases/submit.md."""
    assert found({"msin": text}) == RUN
    assert found({"msin": text}, (), {"L1.ms": RUN[0]}) == ()


BOTH = [directory("/d/L1.ms"), directory("L2.ms")]


@pytest.mark.parametrize(
    "inputs",
    [
        {"class": "Directory", "basename": "data", "listing": BOTH},
        {"class": "Directory", "listing": [{"class": "Directory", "listing": BOTH}]},
        {"class": "File", "path": "/d/list", "secondaryFiles": BOTH},
        directory("/d/L1.ms", secondaryFiles=[directory("/d/L2.ms")]),
        [directory("/d/L1.ms_76a2361e.tar"), directory("file:///d/L2.ms.tar")],
    ],
    ids=["listing", "nested listing", "secondaryFiles", "of a dataset", "archives"],
)
def test_datasets_are_found_inside_cwl_objects(inputs):
    """Case S24 of cases/submit.md."""
    assert found({"in": inputs}) == found({"in": inputs}, (), {"L1.ms": RUN[0], "L2.ms": RUN[1]}) == RUN


@pytest.mark.parametrize("place", ["file://[::1/d/L1.ms", "/d/run#1/L1.ms", "/d/what?/100%/L1.ms/"])
def test_dataset_is_found_by_a_place_that_is_no_valid_url(place):
    odd = {"class": ["File"], "path": "/d/L2.ms"}
    assert found({"in": directory(place), "odd": odd}) == RUN


def test_content_of_a_dataset_is_not_searched():
    inside = directory("/d/L1.ms", listing=[{"class": "File", "basename": "table.dat"}])
    anything = NamingRules(patterns=((re.compile(r".*"), r"x:\g<0>"),))
    assert find_required_dids(inside, anything, ()) == ("x:L1.ms",)


def test_run_dataset_is_found_by_the_last_part_of_its_name():
    run = ("lofar:2024/L1.ms", "lofar:L2.ms_76a2361e.tar", "lofar:L2.ms")
    assert found([directory("/d/L1.ms")], run) == run[:1]
    assert found([directory("/d/L2.ms")], run) == run[2:]
    assert found([directory("/d/L2.ms")], run[:2]) == run[1:2]


def test_run_dataset_of_one_name_with_others_is_found_by_its_folder():
    run = ("x:obs1/L6.ms", "x:obs2/L6.ms")
    for inputs in (directory("file:///d/obs2/L6.ms"), "msin=/d/obs2/L6.ms/"):
        assert find_required_dids(inputs, NamingRules(), run) == run[1:]


def test_names_precede_patterns_and_get_the_default_scope(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(
        '[daemon]\ndefault_scope = "lofar"\n[submit]\nnames = { "L1_SB1.ms" = "x:special" }\n'
        "patterns = [ { match = '(L[0-9]+)_SB([0-9]+)[.]ms', did = '\\1_SB\\2' } ]\n"
    )
    naming = NamingRules.load(str(file))
    assert [naming.find_did(f"L1_SB{band}.ms") for band in (1, 2)] == ["x:special", "lofar:L1_SB2"]
    assert naming.find_did("other.ms") is None


def test_naming_rules_ignore_the_ending_of_an_archive_as_hydrator_submit_does():
    naming = NamingRules({"L1.ms": "lofar:L1"})
    assert naming.find_did("L1.ms.tar") == naming.find_did("L1.ms") == "lofar:L1"


@pytest.mark.parametrize(
    ("match", "did", "reason"),
    [
        *(("(L[0-9]+)", did, ".*write a group as") for did in (r"lofar:\2", r"lofar:\g<scan>", "lofar:\\")),
        ("(", "x", ""),
    ],
)
def test_pattern_that_cannot_be_used_is_rejected_when_loaded(tmp_path, match, did, reason):
    file = tmp_path / "c.toml"
    file.write_text(f"[submit]\npatterns = [ {{ match = '{match}', did = '{did}' }} ]\n")
    with pytest.raises(DatasetsError, match=rf"c\.toml .*\[submit\] cannot be read: {reason}"):
        NamingRules.load(str(file))


def test_product_named_like_a_dataset_is_not_a_dataset_of_the_run():
    names = {"L1.ms": "lofar:L1.ms", "image.fits": "lofar:image"}
    inputs = [directory("/d/L1.ms"), {"class": "File", "basename": "image.fits"}]
    assert found(inputs, RUN, names) == ("lofar:L1.ms",)
    assert found(inputs, (), names) == ("lofar:L1.ms", "lofar:image")


@pytest.mark.parametrize("text", ["lofar:L1", '{"L1"}', '{"lofar:L1", 3}', '{"lofar:a b"}', '{"lofar:L1"'])
def test_invalid_dataset_list_is_rejected(text):
    with pytest.raises(DatasetsError, match="must be a list such as"):
        parse_did_list(text)


def test_batch_system_reads_every_attribute_that_submit_exports():
    assert rapthor.SUBMIT_ATTRS == "_CONDOR_SUBMIT_ATTRS"
    assert {"RequiredDatasets", "DataLocality", "WorkflowRun"} <= set(JOB_ATTRIBUTES)


# the site of a run


def test_site_affinity_keeps_the_first_site(tmp_path):
    file = str(tmp_path / "pipelines" / "site.json")
    first, second = SiteAffinity(file), SiteAffinity(file)
    assert first.site is None
    assert first.record_first_site("UK", "12")
    assert not first.record_first_site("AU", "13")
    assert second.record_first_site("AU", "14")  # it had not seen the file
    assert (first.site, second.site, SiteAffinity(file).site) == ("UK", "UK", "UK")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"site": 3}', '{"site": ""}'])
def test_site_affinity_ignores_a_damaged_file(tmp_path, text):
    file = tmp_path / "site.json"
    file.write_text(text)
    assert SiteAffinity(str(file)).site is None


def test_site_affinity_needs_a_file_and_a_site(tmp_path):
    assert not SiteAffinity(None).record_first_site("UK", "1")
    assert not SiteAffinity(str(tmp_path / "s")).record_first_site(None, "1")


# submissions whose answer is lost


class Queue:
    """A schedd's queue. The next submission fails as *failure* says; questions fail while it is *silent*."""

    def __init__(self) -> None:
        self.jobs: dict[int, classad2.ClassAd] = {}
        self.failure = ""
        self.silent = False
        self.late: list[htcondor2.Submit] = []

    def submit(self, description: htcondor2.Submit, count: int) -> SimpleNamespace:
        assert count == 1
        if self.failure == "late":
            self.late.append(description)
        elif self.failure != "refused":
            self.arrive(description)
        if self.failure:
            self.failure = ""
            raise htcondor2.HTCondorException("Failed to commit and disconnect from queue.")
        return SimpleNamespace(cluster=lambda: max(self.jobs))

    def add(self, cluster: int, **more: object) -> None:
        ad = {"ClusterId": cluster, "JobStatus": 2, "ToilWorkflowID": "w1", **more}
        self.jobs[cluster] = classad2.ClassAd(ad)

    def arrive(self, description: htcondor2.Submit) -> None:
        mark = classad2.ExprTree(description["MY.ToilSubmission"]).eval()
        self.add(11 + len(self.jobs), JobStatus=1, ToilSubmission=mark)

    def query(self, constraint: str, projection: Sequence[str]) -> list[classad2.ClassAd]:
        if self.silent:
            raise htcondor2.HTCondorException("Failed to connect")
        return [ad for ad in self.jobs.values() if classad2.ExprTree(constraint).eval(ad) is True]

    def act(self, action: htcondor2.JobAction, constraint: str, reason: str) -> None:
        assert action == htcondor2.JobAction.Remove
        for ad in self.query(constraint, []):
            del self.jobs[ad["ClusterId"]]


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def schedd(queue) -> Schedd:
    return Schedd({}, lambda: queue)


DESCRIPTION: Mapping[str, str] = {"executable": "/bin/true"}


def submit_without_answer(queue: Queue, schedd: Schedd, failure: str) -> None:
    """Submit to a schedd that fails as *failure* says, and answers no question until afterwards."""
    queue.failure, queue.silent = failure, True
    with pytest.raises(ScheddUnreachable):
        schedd.submit(DESCRIPTION, 1)
    queue.silent = False


def test_job_whose_submission_had_no_answer_is_taken(queue, schedd):
    assert schedd.submit(DESCRIPTION, 1) == 11
    queue.failure = "lost"
    assert schedd.submit(DESCRIPTION, 2) == 12
    assert schedd.query_jobs("w1").keys() == {11, 12}


@pytest.mark.parametrize("failure", ["lost", "refused"])
def test_job_is_taken_or_submitted_again_when_the_schedd_answers_again(queue, schedd, failure):
    submit_without_answer(queue, schedd, failure)
    assert schedd.submit(DESCRIPTION, 1) == 11
    assert schedd.query_jobs("w1").keys() == {11}


def test_job_that_appears_after_its_rejection_is_removed(queue, schedd):
    assert schedd.submit(DESCRIPTION, 1) == 11
    queue.failure = "late"
    with pytest.raises(SubmitRejected, match="Failed to commit"):
        schedd.submit(DESCRIPTION, 2)
    queue.arrive(queue.late[0])
    schedd.query_jobs("w1")
    assert queue.jobs.keys() == {11}


def test_second_job_of_a_repeated_submission_is_removed(queue, schedd):
    submit_without_answer(queue, schedd, "late")
    assert schedd.submit(DESCRIPTION, 1) == 11
    queue.arrive(queue.late[0])
    schedd.query_jobs("w1")
    assert queue.jobs.keys() == {11}


def test_end_of_a_workflow_removes_its_jobs_and_those_without_an_answer(queue, schedd):
    submit_without_answer(queue, schedd, "lost")
    queue.add(99, ToilWorkflowID="other")
    queue.add(98, JobStatus=4, ToilSeen=True)
    schedd.remove_workflow("w1", "the end")
    assert queue.jobs.keys() == {98, 99}


def test_expressions_of_other_users_are_not_evaluated(queue, schedd):
    """A schedd before 25.13.2 would not end with ``+ToilWorkflowID = false ? {} : ToilWorkflowID``."""
    for name, text in (("ToilWorkflowID", 'strcat("w", "1")'), ("ToilSeen", "false || true")):
        queue.jobs.clear()
        queue.add(7, **{name: classad2.ExprTree(text)})
        assert len(schedd.query_jobs("w1")) == (name == "ToilSeen")
        schedd.remove_workflow("w1", "the end")
        assert len(queue.jobs) == (name == "ToilWorkflowID")


# the shim


@pytest.mark.outside
def test_modules_of_the_leader_need_only_the_standard_library():
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import toil_batch_system_classad_hydrator.job, toil_batch_system_classad_hydrator.shim\n"
        "own = {*sys.stdlib_module_names, '__main__', 'hydrator', 'toil_batch_system_classad_hydrator'}\n"
        "print([name for name in sys.modules if name.partition('.')[0] not in own])"
    )
    done = run_program([sys.executable, "-I", "-S", "-c", program])
    assert (done.stdout, done.stderr) == ("[]\n", "")


def rapthors(folder: Path, *inputs: str, system: str = "slurm") -> list[str]:
    """Rapthor's call of toil-cwl-runner for the operation in *folder*."""
    file = folder / "pipeline_inputs.json"
    file.write_text(json.dumps({"timechunk_filename": [directory(path) for path in inputs]}))
    return [
        "--outdir", str(folder), "--bypass-file-store", "--batchSystem", system, "--maxJobs", "2",
        "--jobStore", f"{folder}/jobstore", f"{folder}/pipeline_parset.cwl", str(file),
    ]  # fmt: skip


@pytest.fixture
def operation(tmp_path) -> Path:
    folder = tmp_path / "run1" / "pipelines" / "calibrate_1"
    folder.mkdir(parents=True)
    return folder


def test_shim_turns_a_slurm_call_into_one_without_chaining(operation):
    words = rapthors(operation, "/data/L1.ms")
    arguments, more = shim.translate_call(words, {"_CONDOR_RequiredDatasets": format_did_list(RUN)})
    assert arguments[:2] == ["--disableChaining", "True"]
    assert arguments[2:] == ["classad_hydrator" if word == "slurm" else word for word in words]
    assert more["_CONDOR_RequiredDatasets"] == '{"lofar:L1.ms"}'
    assert more["_CONDOR_RapthorOperation"] == '"calibrate_1"'
    assert more["_CONDOR_WorkflowRun"].startswith('"run1-')
    assert more[SITE_FILE_VARIABLE] == str(operation.parent / ".classad-hydrator-site.json")


def test_shim_takes_a_folder_whose_name_is_not_utf_8(tmp_path):
    folder = tmp_path / "run\udce9" / "pipelines" / "a"
    folder.mkdir(parents=True)
    _, more = shim.translate_call(rapthors(folder, "L1.ms"), {})
    assert more["_CONDOR_WorkflowRun"].startswith('"run_-')


def test_shim_keeps_the_runs_datasets_for_an_operation_without_any(operation):
    _, more = shim.translate_call(
        rapthors(operation, "/data/L1_field.ms"), {"_CONDOR_RequiredDatasets": format_did_list(RUN)}
    )
    assert "_CONDOR_RequiredDatasets" not in more


@pytest.mark.parametrize("form", ["--batchSystem=slurm_static", "--batchSystem=slurm"])
def test_shim_accepts_both_forms_of_the_batch_system_option(form):
    assert shim.translate_call([form, "x.cwl"], {}) == (
        ["--disableChaining", "True", "--batchSystem", "classad_hydrator", "x.cwl"],
        {},
    )


@pytest.mark.parametrize("system", ["single_machine", "htcondor", "classad_hydrator"])
def test_shim_does_not_change_a_call_for_another_batch_system(operation, system):
    assert shim.translate_call(rapthors(operation, system=system), {}) is None


def test_shim_names_inputs_that_cannot_be_read(operation):
    words = rapthors(operation)
    Path(words[-1]).write_text("{")
    with pytest.raises(DatasetsError, match="inputs cannot be read"):
        shim.translate_call(words, {})


@pytest.mark.outside
@pytest.mark.parametrize(("words", "status"), [((), 2), (("/nowhere/toil-cwl-runner", "x.cwl"), 127)])
def test_shim_that_cannot_start_the_real_program_prints_one_sentence(words, status):
    program = "toil_batch_system_classad_hydrator.shim"
    done = run_program([sys.executable, "-m", program, *words])
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)


def run_shim(front: Path, *words: str, path: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run_program([str(front / "toil-cwl-runner"), *words], env={"PATH": path, **more}, timeout=120)


@pytest.fixture
def front(tmp_path) -> Path:
    folder = tmp_path / "front"
    folder.mkdir()
    write_program(folder / "toil-cwl-runner", SHIM.read_text())
    return folder


def toil_standin(folder: Path, python: str) -> Path:
    """A folder like a virtual environment's bin, whose toil-cwl-runner says how it was called."""
    folder.mkdir()
    write_program(folder / "toil-cwl-runner", '#!/bin/sh\necho "real $*"\necho "$_CONDOR_RapthorOperation"\n')
    write_program(folder / "python3", f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{python}" "$@"\n')
    return folder


@pytest.mark.outside
def test_shim_finds_the_next_toil_cwl_runner_on_path(front, tmp_path, operation):
    other = toil_standin(tmp_path / "venv", sys.executable)
    words = rapthors(operation)
    done = run_shim(front, *words, path=f"{other}:{front}:{other}:/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("real --disableChaining True --outdir")
    assert "--batchSystem classad_hydrator" in done.stdout
    assert done.stdout.endswith('"calibrate_1"\n')


@pytest.mark.outside
@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ((), "no other toil-cwl-runner"),
        (("toil-cwl-runner",), "no python3"),
        (("toil-cwl-runner", "python3"), "install classad-hydrator[toil] there"),
    ],
)
def test_shim_reports_a_missing_part_of_toil(front, tmp_path, programs, reason):
    other = tmp_path / "venv"
    other.mkdir()
    for name in programs:
        write_program(other / name, "#!/bin/sh\nexit 1\n")
    done = run_shim(front, path=f"{front}:{other}:/usr/bin:/bin")
    assert done.returncode == 2
    assert reason in done.stderr


def test_submit_toil_shim_command_prints_the_shim():
    assert run_hydrator("submit", "toil-shim").stdout == SHIM.read_bytes()
