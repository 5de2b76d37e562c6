"""One Toil job as an HTCondor job: build the submit description, and read the job's exit from its ad."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import ceil
from typing import Any, NamedTuple, Self

from hydrator.domain.ads import classad
from hydrator.domain.ads.dataset_sets import key_attributes
from hydrator.submit.gpus import GpuChoice, SlotShare, mebibytes
from hydrator.submit.submit_files.values import quote_arguments, unfit_reason

from .datasets import parse_did_list, read_settings

JOB_ATTRIBUTES = (
    "RequiredDatasets", "DataLocalityKey", "DataLocalityKeyFor", "DataLocality", "DataLocalityMaxWait",
    "DataLocalityMaxAge", "DataLocalityExpectedSeconds", "WorkflowRun", "RapthorOperation",
)  # fmt: skip
"""Attributes that ``_CONDOR_<name>`` in the leader's environment gives to every job."""

WORKFLOW_ATTRIBUTE = "ToilWorkflowID"
SUBMISSION_ATTRIBUTE = "ToilSubmission"
"""Job attribute: a unique text, by which the leader finds a job whose submission had no answer."""
SEEN_ATTRIBUTE = "ToilSeen"
"""Job attribute: the leader has read the job's exit, so the schedd may drop the job."""
KEEP_SECONDS = 86400
"""Time for which the schedd keeps a completed job that no leader queries."""
SITE_ATTRIBUTE = "MachineAttrDataLocalitySite0"
PROJECTION = (
    "ClusterId", "JobStatus", "ExitCode", "ExitBySignal", "ExitSignal", "HoldReason", "HoldReasonCode",
    "RemoveReason", "RemoteWallClockTime", "EnteredCurrentStatus", "QDate", SITE_ATTRIBUTE,
    SUBMISSION_ATTRIBUTE,
)  # fmt: skip
IDLE, RUNNING, REMOVED, COMPLETED, HELD = 1, 2, 3, 4, 5
_RESERVED_ATTRIBUTES = frozenset(
    {"istoiljob", "toiljobid", "toiljobname", "toilunitname", "toilseen", "toilworkflowid", "toilsubmission"}
)
_STEP_ATTRIBUTES = frozenset({"RequiredDatasets", "DataLocalityKey", "DataLocalityKeyFor"})
"""Attributes of the run whose value each step has for its own datasets."""
_JOB_ATTRIBUTE_BY_LOWER = {name.lower(): name for name in JOB_ATTRIBUTES}
_REMOVE = "which this batch system sets itself: remove this part"
_HOLD_SPOOLING_INPUT = 16
EXIT_STATUS_UNAVAILABLE = 255


class SubmitParameterError(ValueError):
    """A value in the environment of Toil's leader cannot be written into a submit description."""


_HOLD_REASONS: dict[object, str] = {34: "MEMLIMIT", 46: "TIMELIMIT", 47: "TIMELIMIT"}
"""By HoldReasonCode: the job used more than its slot has, or ran longer than allowed."""


@dataclass(frozen=True, slots=True)
class JobExit:
    """The end of a job: exit status, name of a BatchJobExitReason, text for the log, seconds of run time."""

    status: int
    reason: str
    message: str
    wall_seconds: float | None = None


class ToilJob(NamedTuple):
    """A job with Toil's number and JobDescription, and its RequiredDatasets as a ClassAd list, or None."""

    number: int
    description: Any
    command: str
    environment: Mapping[str, str] = {}
    datasets: str | None = None

    @property
    def step(self) -> str:
        """The name of the step; empty for a job that is not a step."""
        return str(self.description.unitName or self.description.displayName or "")


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """The settings for all jobs of a workflow: job attributes as ClassAd expressions, and submit commands."""

    workflow_id: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, workflow_id: str, environment: Mapping[str, str]) -> Self:
        """Read the *environment* of Toil's leader; ``_CONDOR_…`` overrides ``TOIL_HTCONDOR_PARAMS``.

        Raises:
            SubmitParameterError: one of the values cannot be written into a submit description.
        """
        commands, attributes = parse_parameters(environment.get("TOIL_HTCONDOR_PARAMS"))
        return cls(workflow_id, attributes | attributes_from_environment(environment), commands)


@dataclass(frozen=True, slots=True)
class StepGpus:
    """The settings of ``[submit]`` on GPUs.

    If no GPU is free, a step requests at least ``cpus`` cores and ``memory_mib`` MiB of memory.
    """

    mode: str = "no"
    steps: tuple[str, ...] = ("*image*",)
    cpus: int = 16
    memory_mib: int = 61_035
    properties: str = ""

    @classmethod
    def load(cls, file: str | None) -> Self:
        """Load the ``[submit]`` section of *file*, a configuration in TOML; the defaults if *file* is None.

        Raises:
            DatasetsError: the file cannot be read, or a value has the wrong type.
        """
        with read_settings(file) as settings:
            submit = settings.get("submit", {})
            mode = str(submit.get("gpu", "no"))
            if mode not in {"no", "prefer", "require"}:
                raise ValueError(f"gpu is {mode!r}: use no, prefer or require")
            return cls(
                mode,
                tuple(map(str, submit.get("gpu_steps", ["*image*"]))),
                int(submit.get("cpus", 16)),
                mebibytes(float(submit.get("memory_gb", 64))),
                str(submit.get("require_gpus") or ""),
            )

    def choose(self, names: tuple[str, ...], cpus: int, memory_mib: int) -> GpuChoice | None:
        """Return the requests of a step with these *names*, cores and memory; None without a GPU."""
        if self.mode == "no" or not any(fnmatchcase(name, one) for name in names for one in self.steps):
            return None
        many = SlotShare(max(cpus, self.cpus), max(memory_mib, self.memory_mib))
        without = None if self.mode == "require" else many
        return GpuChoice(SlotShare(cpus, memory_mib), without, self.properties)


EXTRA_VARIABLE = "HYDRATOR_TOIL_ENVIRONMENT"
ALLOWED_VARIABLES = (
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "VIRTUAL_ENV", "CONDA_PREFIX",
    "LANG", "LC_ALL", "LC_CTYPE", "TZ",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_MAIN_FREE", "MKL_NUM_THREADS",
    "TOIL_CHECK_ENV", "TOIL_WORKDIR", "TOIL_COORDINATION_DIR",
    "SINGULARITY_CACHEDIR", "SINGULARITY_TMPDIR", "SINGULARITY_BIND", "APPTAINER_CACHEDIR",
    "APPTAINER_TMPDIR", "APPTAINER_BIND", "CWL_SINGULARITY_CACHE",
)  # fmt: skip
"""The variables of Toil's leader that are written into a job's ad: programs, libraries, language, threads.

Everybody who may read the queue can read a job's ad, so the ad gets no others. Toil's worker reads the
leader's whole environment from the job store, which only the user can read.
"""


def filter_environment(leader_environment: Mapping[str, str]) -> dict[str, str]:
    """Return the leader's variables that a job's ad may have.

    These are the variables in ``ALLOWED_VARIABLES``, and those that ``HYDRATOR_TOIL_ENVIRONMENT`` names.
    """
    more = [name.strip() for name in leader_environment.get(EXTRA_VARIABLE, "").split(",") if name.strip()]
    return {
        name: value
        for name, value in sorted(leader_environment.items())
        if name in ALLOWED_VARIABLES or any(fnmatchcase(name, pattern) for pattern in more)
    }


def build_submit_description(
    toil_job: ToilJob,
    logs: Mapping[str, str],
    settings: WorkflowSettings,
    site: str | None = None,
    step_gpus: StepGpus | None = None,
) -> dict[str, str]:
    """Build the submit description of *toil_job*.

    Args:
        logs: the files for ``output``, ``error`` and ``log``.
        settings: the settings of the workflow.
        site: the site of the run, or None. With a site, the job runs only at this site, without
            RequiredDatasets.
        step_gpus: the steps that use a GPU; a step that requests a GPU itself keeps its own request.
    """
    wanted = toil_job.description
    cpus, memory = max(1, ceil(wanted.cores)), max(1, ceil(wanted.memory / 2**20))
    attributes = _job_attributes(toil_job, settings, site)
    description = _job_commands(toil_job, settings)
    description |= {"request_cpus": str(cpus), "request_memory": f"{memory}MB"}
    description |= {name: escape_macros(path) for name, path in logs.items()}
    extra = dict(settings.commands)
    clauses = ["TARGET.DataLocalitySite =?= MY.RapthorSite"] if site is not None else []
    operation = settings.attributes.get("RapthorOperation", "").strip('"')
    names = tuple(filter(None, (toil_job.step, operation)))
    choice = step_gpus.choose(names, cpus, memory) if step_gpus and not wanted.accelerators else None
    if choice:
        description |= choice.requests
        attributes |= choice.attributes
        clauses.append(choice.requirement)
        extra["rank"] = choice.rank_expression(extra.get("rank", ""))
    if clauses:
        every = [extra["requirements"], *clauses] if "requirements" in extra else clauses
        extra["requirements"] = " && ".join(f"({one})" for one in every) if len(every) > 1 else every[0]
    if clash := sorted(set(extra) & set(description)):
        raise SubmitParameterError(f"TOIL_HTCONDOR_PARAMS sets {', '.join(clash)}, {_REMOVE}")
    return description | extra | {f"MY.{name}": value for name, value in attributes.items()}


def _job_attributes(toil_job: ToilJob, settings: WorkflowSettings, site: str | None) -> dict[str, str]:
    """Return the attributes of the job, each with its expression."""
    attributes = {
        "IsToilJob": "true",
        WORKFLOW_ATTRIBUTE: classad_string(settings.workflow_id),
        "ToilJobID": str(toil_job.number),
        "ToilJobName": classad_string(toil_job.description.jobName),
        "ToilUnitName": classad_string(toil_job.step),
        **{name: value for name, value in settings.attributes.items() if name not in _STEP_ATTRIBUTES},
    }
    if site is not None:
        attributes["RapthorSite"] = classad_string(site)
    elif (datasets := toil_job.datasets) is not None:
        attributes["RequiredDatasets"] = datasets
        key = key_attributes(parse_did_list(datasets))
        attributes |= {name: classad_string(text) for name, text in key.items()}
    return attributes


def _job_commands(toil_job: ToilJob, settings: WorkflowSettings) -> dict[str, str]:
    """Return the commands of the submit description that every job has."""
    wanted = toil_job.description
    seconds = getattr(wanted, "walltime", None)
    duration = {"allowed_job_duration": str(seconds)} if seconds else {}
    return {
        "executable": "/bin/sh",
        "transfer_executable": "false",
        "arguments": quote_words(["-c", toil_job.command]),
        "environment": quote_words([f"{name}={value}" for name, value in toil_job.environment.items()]),
        "getenv": "false",
        # HTCondor transfers only the logs, because leader and workers share a file system. Without file
        # transfer, the job would match only slots with the FILESYSTEM_DOMAIN of the submit host
        "should_transfer_files": "yes",
        "when_to_transfer_output": "on_exit",
        "transfer_output_files": '""',
        "request_disk": f"{max(1, ceil(wanted.disk / 2**10))}KB",
        "leave_in_queue": f"JobStatus == {COMPLETED} && {SEEN_ATTRIBUTE} =!= true"
        f" && (time() - EnteredCurrentStatus) < {KEEP_SECONDS}",
        "job_machine_attrs": "DataLocalitySite",
        "job_machine_attrs_history_length": "1",
        "batch_name": escape_macros(_replace_double_dollars(batch_name(settings))),
        **gpu_request(wanted.accelerators),
        **duration,
    }


def batch_name(settings: WorkflowSettings) -> str:
    """Return the name for the first column of ``condor_q``."""
    run = [settings.attributes.get(name, "").strip('"') for name in ("WorkflowRun", "RapthorOperation")]
    return "/".join(part for part in run if part) or f"toil {settings.workflow_id[:8]}"


def gpu_request(accelerators: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the submit commands for the GPUs that a job requests: their number and, if given, their model.

    Raises:
        SubmitParameterError: an accelerator is not a GPU, or a job requests two models.
    """
    requests = list(accelerators)
    if other := sorted({str(one["kind"]) for one in requests if one["kind"] != "gpu"}):
        raise SubmitParameterError(f"this batch system requests GPUs only, not {', '.join(other)}")
    models = {str(one["model"]) for one in requests if one.get("model")}
    if len(models) > 1:
        raise SubmitParameterError(f"one job requests GPUs of several models: {', '.join(sorted(models))}")
    count = sum(int(one["count"]) for one in requests)
    if not count:
        return {}
    commands = {"request_gpus": str(count)}
    for model in models:
        pattern = re.sub(r"[^A-Za-z0-9]+", "[^A-Za-z0-9]*", model)
        commands["require_gpus"] = f"regexp({classad_string(pattern)}, DeviceName, {classad_string('i')})"
    return commands


def parse_parameters(text: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """Parse ``TOIL_HTCONDOR_PARAMS``: submit commands and attributes as ``name=value``, separated by ``;``.

    Raises:
        SubmitParameterError: a part has no ``=``, or sets an attribute that this batch system sets itself.
    """
    commands, attributes = {}, {}
    for part in (text or "").split(";"):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not part.strip():
            continue
        if not (equals and name):
            raise SubmitParameterError(f"TOIL_HTCONDOR_PARAMS: {part.strip()!r} is not name=value")
        plain = re.sub(r"^(\+|my\.)", "", name, flags=re.IGNORECASE)
        if plain == name:
            commands[name.lower()] = _require_one_line("TOIL_HTCONDOR_PARAMS", value)
        elif plain.lower() in _RESERVED_ATTRIBUTES:
            raise SubmitParameterError(f"TOIL_HTCONDOR_PARAMS sets {plain}, {_REMOVE}")
        else:
            name = _JOB_ATTRIBUTE_BY_LOWER.get(plain.lower(), plain)
            attributes[name] = _require_one_line("TOIL_HTCONDOR_PARAMS", value)
    return commands, attributes


def attributes_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ClassAd expressions that the leader's *environment* sets for every job, by attribute."""
    values = {name: environment.get(f"_CONDOR_{name}", "").strip() for name in JOB_ATTRIBUTES}
    return {name: _require_one_line(f"_CONDOR_{name}", value) for name, value in values.items() if value}


def _require_one_line(name: str, value: str) -> str:
    if reason := unfit_reason(f"{value}'"):  # the description has a quote after the value
        raise SubmitParameterError(f"{name}: {reason}: {value[:100]!r}")
    return value


def classad_string(text: str) -> str:
    """Return *text* as a ClassAd string for a submit description; ``?`` replaces unprintable characters."""
    plain = _replace_double_dollars("".join(char if char.isprintable() else "?" for char in text))
    return escape_macros(classad.string_literal(plain))


def quote_words(words: Iterable[str]) -> str:
    """Quote *words* in HTCondor's new syntax for arguments and environment.

    Raises:
        SubmitParameterError: a word has a control character, or is not UTF-8 text.
    """
    return quote_arguments([_require_one_line("a job", word) for word in words])


def _replace_double_dollars(text: str) -> str:
    return re.sub(r"\$(?=\$)", "?", text)


def escape_macros(text: str) -> str:
    """Return *text* with ``$(DOLLAR)`` for each ``$``, because a ``$`` would begin a macro.

    Raises:
        SubmitParameterError: *text* has ``$$``, which has no escape outside arguments and environment.
    """
    if "$$" in text:
        raise SubmitParameterError(f"$$ cannot be written into a submit description: {text[:100]!r}")
    return classad.escape_macros(_require_one_line("a value", text))


def exit_from_ad(ad: Mapping[str, Any]) -> JobExit | None:
    """Return the exit of the job with this *ad*; None if the job may still run."""
    status, text = ad.get("JobStatus"), f"HTCondor job {ad.get('ClusterId')}"
    seconds = float(ad.get("RemoteWallClockTime") or 0) or None
    if status == COMPLETED:
        by_signal = 128 + int(ad.get("ExitSignal") or 0) if ad.get("ExitBySignal") else None
        code = by_signal or ad.get("ExitCode", EXIT_STATUS_UNAVAILABLE)
        how = "a signal: exit status" if by_signal else "exit status"
        return JobExit(code, "FAILED" if code else "FINISHED", f"{text} ended with {how} {code}", seconds)
    if status == REMOVED:
        text += f" was removed: {ad.get('RemoveReason') or 'no reason was given'}"
        return JobExit(EXIT_STATUS_UNAVAILABLE, "KILLED", text, seconds)
    code = ad.get("HoldReasonCode")
    if status == HELD and code != _HOLD_SPOOLING_INPUT:
        text += f" was held: {ad.get('HoldReason') or 'no reason was given'}"
        return JobExit(EXIT_STATUS_UNAVAILABLE, _HOLD_REASONS.get(code, "FAILED"), text, seconds)
    return None
