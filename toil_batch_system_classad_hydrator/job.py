"""One Toil job as an HTCondor job: build the submit description, and read the job's exit from its ad."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Any, Self

from hydrator.domain.ads.dataset_sets import set_key

from .datasets import parse_did_list
from .gpus import StepGpus

JOB_ATTRIBUTES = (
    "RequiredDatasets", "DataLocalityKey", "RequiredBytes", "DataLocality", "DataLocalityMaxWait",
    "DataLocalityMaxAge", "DataLocalityExpectedSeconds", "RapthorRun", "RapthorOperation",
)  # fmt: skip
"""Attributes that ``_CONDOR_<name>`` in the leader's environment gives to every job."""

WORKFLOW_ATTRIBUTE = "ToilWorkflowID"
SEEN_ATTRIBUTE = "ToilSeen"
"""Job attribute: the leader has read the job's exit, so the schedd may drop the job."""
KEEP_SECONDS = 86400
"""Time for which the schedd keeps a completed job that no leader queries."""
SITE_ATTRIBUTE = "MachineAttrDataLocalitySite0"
PROJECTION = (
    "ClusterId", "JobStatus", "ExitCode", "ExitBySignal", "ExitSignal", "HoldReason", "HoldReasonCode",
    "RemoveReason", "RemoteWallClockTime", "EnteredCurrentStatus", "QDate", SITE_ATTRIBUTE,
)  # fmt: skip
IDLE, RUNNING, REMOVED, COMPLETED, HELD = 1, 2, 3, 4, 5
_RESERVED_ATTRIBUTES = frozenset(
    {"istoiljob", "toiljobid", "toiljobname", "toilunitname", "toilseen", WORKFLOW_ATTRIBUTE.lower()}
)
_STEP_ATTRIBUTES = frozenset({"RequiredDatasets", "DataLocalityKey"})
"""Attributes of the run whose value each step has for its own datasets."""
_JOB_ATTRIBUTE_BY_LOWER = {name.lower(): name for name in JOB_ATTRIBUTES}
_HOLD_SPOOLING_INPUT = 16
_EXIT_STATUS_UNAVAILABLE = 255
_DOLLARS = re.compile(r"\$+")


class SubmitParameterError(ValueError):
    """A value in the environment of Toil's leader cannot be written into a submit description."""


class ExitReason(Enum):
    """The reason why a job ended; the members have the names of Toil's BatchJobExitReason."""

    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    MEMLIMIT = "memlimit"
    TIMELIMIT = "timelimit"


_HOLD_REASONS: dict[object, ExitReason] = {
    34: ExitReason.MEMLIMIT,
    46: ExitReason.TIMELIMIT,
    47: ExitReason.TIMELIMIT,
}
"""By HoldReasonCode: the job used more than its slot has, or ran longer than allowed."""


@dataclass(frozen=True, slots=True)
class JobExit:
    """The end of a job: exit status, reason, message for Toil's log, and run time in seconds."""

    status: int
    reason: ExitReason
    message: str
    wall_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ToilJob:
    """A job of Toil; memory and disk are in bytes."""

    command: str
    cores: float
    memory: int
    disk: int
    name: str
    unit_name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    accelerators: Sequence[Mapping[str, Any]] = ()
    duration_seconds: int | None = None


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


def build_submit_description(
    toil_job: ToilJob,
    job_id: int,
    logs: Mapping[str, str],
    settings: WorkflowSettings,
    datasets: str | None,
    site: str | None,
    step_gpus: StepGpus | None = None,
) -> dict[str, str]:
    """Build the submit description of *toil_job*.

    Args:
        job_id: Toil's number for the job.
        logs: the files for ``output``, ``error`` and ``log``.
        settings: the settings of the workflow.
        datasets: the job's RequiredDatasets as a ClassAd list, or None.
        site: the site of the run, or None. With a site, the job runs only at this site, without
            RequiredDatasets.
        step_gpus: the steps that use a GPU; a step that requests a GPU itself keeps its own request.
    """
    cpus, memory = max(1, ceil(toil_job.cores)), max(1, ceil(toil_job.memory / 2**20))
    attributes = _job_attributes(toil_job, job_id, settings, datasets, site)
    description = _job_commands(toil_job, logs, settings, cpus, memory)
    extra = dict(settings.commands)
    clauses = ["TARGET.DataLocalitySite =?= MY.RapthorSite"] if site is not None else []
    operation = settings.attributes.get("RapthorOperation", "").strip('"')
    names = tuple(filter(None, (toil_job.unit_name, operation)))
    choice = step_gpus.choose(names, cpus, memory) if step_gpus and not toil_job.accelerators else None
    if choice:
        description |= choice.requests
        attributes |= choice.attributes
        clauses.append(choice.requirement)
        extra["rank"] = choice.rank_expression(extra.get("rank", ""))
    if clauses:
        every = [extra["requirements"], *clauses] if "requirements" in extra else clauses
        extra["requirements"] = " && ".join(f"({one})" for one in every) if len(every) > 1 else every[0]
    if clash := sorted(set(extra) & set(description)):
        raise SubmitParameterError(
            f"TOIL_HTCONDOR_PARAMS sets {', '.join(clash)},"
            " which this batch system sets itself: remove this part"
        )
    return description | extra | {f"MY.{name}": value for name, value in attributes.items()}


def _job_attributes(
    toil_job: ToilJob, job_id: int, settings: WorkflowSettings, datasets: str | None, site: str | None
) -> dict[str, str]:
    """Return the attributes of the job, each with its expression."""
    attributes = {
        "IsToilJob": "true",
        WORKFLOW_ATTRIBUTE: classad_string(settings.workflow_id),
        "ToilJobID": str(job_id),
        "ToilJobName": classad_string(toil_job.name),
        "ToilUnitName": classad_string(toil_job.unit_name),
        **{name: value for name, value in settings.attributes.items() if name not in _STEP_ATTRIBUTES},
    }
    if site is not None:
        attributes["RapthorSite"] = classad_string(site)
    elif datasets is not None:
        attributes["RequiredDatasets"] = datasets
        attributes["DataLocalityKey"] = classad_string(set_key(parse_did_list(datasets)))
    return attributes


def _job_commands(
    toil_job: ToilJob, logs: Mapping[str, str], settings: WorkflowSettings, cpus: int, memory_mib: int
) -> dict[str, str]:
    """Return the commands of the submit description that every job has."""
    duration = {"allowed_job_duration": str(toil_job.duration_seconds)} if toil_job.duration_seconds else {}
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
        **{name: escape_macros(path) for name, path in logs.items()},
        "request_cpus": str(cpus),
        "request_memory": f"{memory_mib}MB",
        "request_disk": f"{max(1, ceil(toil_job.disk / 2**10))}KB",
        "leave_in_queue": f"JobStatus == {COMPLETED} && {SEEN_ATTRIBUTE} =!= true"
        f" && (time() - EnteredCurrentStatus) < {KEEP_SECONDS}",
        "job_machine_attrs": "DataLocalitySite",
        "job_machine_attrs_history_length": "1",
        "batch_name": escape_macros(_replace_double_dollars(batch_name(settings))),
        **gpu_request(toil_job.accelerators),
        **duration,
    }


def batch_name(settings: WorkflowSettings) -> str:
    """Return the name for the first column of ``condor_q``."""
    run = [settings.attributes.get(name, "").strip('"') for name in ("RapthorRun", "RapthorOperation")]
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
            raise SubmitParameterError(
                f"TOIL_HTCONDOR_PARAMS sets {plain}, which this batch system sets itself: remove this part"
            )
        else:
            attributes[_JOB_ATTRIBUTE_BY_LOWER.get(plain.lower(), plain)] = _require_one_line(
                "TOIL_HTCONDOR_PARAMS", value
            )
    return commands, attributes


def attributes_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ClassAd expressions that the leader's *environment* sets for every job, by attribute."""
    values = {name: environment.get(f"_CONDOR_{name}", "").strip() for name in JOB_ATTRIBUTES}
    return {name: _require_one_line(f"_CONDOR_{name}", value) for name, value in values.items() if value}


def _require_one_line(name: str, value: str) -> str:
    if odd := next((char for char in value if (char < " " and char != "\t") or char == "\x7f"), ""):
        what = "line break" if odd in "\r\n" else f"control character ({odd!r})"
        raise SubmitParameterError(f"{name} has a {what} in it: {value[:100]!r}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise SubmitParameterError(f"{name} is not UTF-8 text: {value[:100]!r}")
    return value


def classad_string(text: str) -> str:
    """Return *text* as a ClassAd string for a submit description; ``?`` replaces unprintable characters."""
    plain = _replace_double_dollars("".join(char if char.isprintable() else "?" for char in text))
    return escape_macros('"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"')


def quote_words(words: Iterable[str]) -> str:
    """Quote *words* in HTCondor's new syntax for arguments and environment.

    Each word is in single quotes, all words together in double quotes. The function doubles quotes in words
    (HTCondor manual, condor_submit, arguments). ``$$`` becomes ``$$(DOLLARDOLLAR)``, which the schedd expands
    when the job starts. ``$$$`` becomes ``$$(DOLLARDOLLAR)$(DOLLAR)``: in the reverse order HTCondor
    would read the ``$(DOLLAR)`` as part of the macro after it.

    Raises:
        SubmitParameterError: a word has a control character, or is not UTF-8 text.
    """
    doubled = (_require_one_line("a job", word).replace("'", "''").replace('"', '""') for word in words)
    return '"' + " ".join(f"'{_DOLLARS.sub(_escape_dollars, word)}'" for word in doubled) + '"'


def _escape_dollars(dollars: re.Match[str]) -> str:
    pairs, single = divmod(len(dollars[0]), 2)
    return "$$(DOLLARDOLLAR)" * pairs + "$(DOLLAR)" * single


def _replace_double_dollars(text: str) -> str:
    return re.sub(r"\$(?=\$)", "?", text)


def escape_macros(text: str) -> str:
    """Return *text* with ``$(DOLLAR)`` for each ``$``, because a ``$`` would begin a macro.

    Raises:
        SubmitParameterError: *text* has ``$$``, which has no escape outside arguments and environment.
    """
    if "$$" in text:
        raise SubmitParameterError(f"$$ cannot be written into a submit description: {text[:100]!r}")
    return _require_one_line("a value", text).replace("$", "$(DOLLAR)")


def exit_from_ad(ad: Mapping[str, Any]) -> JobExit | None:
    """Return the exit of the job with this *ad*; None if the job may still run."""
    status, cluster = ad.get("JobStatus"), ad.get("ClusterId")
    seconds = float(ad.get("RemoteWallClockTime") or 0) or None
    if status == COMPLETED:
        return _exit_of_completed(ad, seconds)
    if status == REMOVED:
        reason = ad.get("RemoveReason") or "no reason was given"
        text = f"HTCondor job {cluster} was removed: {reason}"
        return JobExit(_EXIT_STATUS_UNAVAILABLE, ExitReason.KILLED, text, seconds)
    code = ad.get("HoldReasonCode")
    if status == HELD and code != _HOLD_SPOOLING_INPUT:
        why = _HOLD_REASONS.get(code, ExitReason.FAILED)
        reason = ad.get("HoldReason") or "no reason was given"
        return JobExit(_EXIT_STATUS_UNAVAILABLE, why, f"HTCondor job {cluster} was held: {reason}", seconds)
    return None


def _exit_of_completed(ad: Mapping[str, Any], seconds: float | None) -> JobExit:
    cluster = ad.get("ClusterId")
    code = ad.get("ExitCode")
    if ad.get("ExitBySignal"):
        number = int(ad.get("ExitSignal") or 0)
        code, text = 128 + number, f"died of signal {number}"
    elif isinstance(code, int):
        text = f"ended with exit status {code}"
    else:
        code, text = _EXIT_STATUS_UNAVAILABLE, "completed without an exit code"
    why = ExitReason.FAILED if code else ExitReason.FINISHED
    return JobExit(code, why, f"HTCondor job {cluster} {text}", seconds)


def exit_of_lost_job(cluster: int) -> JobExit:
    """Return the exit of a job that is neither in the queue nor in the history."""
    text = f"HTCondor job {cluster} is in neither the queue nor the history"
    return JobExit(_EXIT_STATUS_UNAVAILABLE, ExitReason.KILLED, text)
