"""One Toil job as an HTCondor job: what is submitted, and what its ad says of how it ended. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Any, Self

from .gpus import StepGpus

CARRIED = (
    "RequiredDatasets", "RequiredBytes", "DataLocality", "DataLocalityMaxWait", "DataLocalityMaxAge",
    "RapthorRun", "RapthorOperation",
)  # fmt: skip
"""Attributes that ``_CONDOR_<name>`` in the leader's environment gives to every job."""

WORKFLOW = "ToilWorkflowID"
SEEN = "ToilSeen"
"""Set once the leader knows how the job ended: then the schedd need not keep it."""
KEEP_SECONDS = 86400
"""How long the schedd keeps a completed job that no leader asks for."""
SITE_ATTRIBUTE = "MachineAttrDataLocalitySite0"
PROJECTION = (
    "ClusterId", "JobStatus", "ExitCode", "ExitBySignal", "ExitSignal", "HoldReason", "HoldReasonCode",
    "RemoveReason", "RemoteWallClockTime", "EnteredCurrentStatus", "QDate", SITE_ATTRIBUTE,
)  # fmt: skip
IDLE, RUNNING, REMOVED, COMPLETED, HELD = 1, 2, 3, 4, 5
_OURS = frozenset({"istoiljob", "toiljobid", "toiljobname", "toilunitname", "toilseen", WORKFLOW.lower()})
_KNOWN = {name.lower(): name for name in CARRIED}
_SPOOLING, _OUT_OF_RESOURCES, _TOO_LONG = 16, 34, frozenset({46, 47})
_UNAVAILABLE = 255
_DOLLARS = re.compile(r"\$+")


class ParametersWrong(ValueError):
    """Something in the leader's environment that cannot be put into a submit description."""


class Why(Enum):
    """How a job ended, in words that Toil has too."""

    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    MEMLIMIT = "memlimit"
    TIMELIMIT = "timelimit"


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that will not run any more."""

    status: int
    why: Why
    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What Toil wants run; memory and disk in bytes, duration in seconds."""

    command: str
    cores: float
    memory: int
    disk: int
    name: str
    unit: str
    environment: Mapping[str, str] = field(default_factory=dict)
    accelerators: Sequence[Mapping[str, Any]] = ()
    duration: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for all jobs of a workflow: attributes as expressions, and submit commands."""

    workflow: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, workflow: str, environment: Mapping[str, str]) -> Self:
        """What the leader's *environment* says; ``_CONDOR_…`` goes before ``TOIL_HTCONDOR_PARAMS``.

        Raises:
            ParametersWrong: something there cannot be put into a submit description.
        """
        commands, attributes = parameters(environment.get("TOIL_HTCONDOR_PARAMS"))
        return cls(workflow, attributes | carried(environment), commands)


def description(
    work: Work,
    job: int,
    logs: Mapping[str, str],
    setting: Setting,
    datasets: str | None,
    site: str | None,
    step_gpus: StepGpus | None = None,
) -> dict[str, str]:
    """The submit description of *work*.

    Args:
        work: what Toil wants run.
        job: Toil's number of it.
        logs: the files for ``output``, ``error`` and ``log``.
        setting: the workflow's part.
        datasets: its RequiredDatasets as a ClassAd list, or None.
        site: where its run is already, or None. Then it goes there and not to a dataset's site.
        step_gpus: which steps take a GPU where there is one; not for those that ask for one themselves.
    """
    attributes = {
        "IsToilJob": "true",
        WORKFLOW: string(setting.workflow),
        "ToilJobID": str(job),
        "ToilJobName": string(work.name),
        "ToilUnitName": string(work.unit),
        **{name: value for name, value in setting.attributes.items() if name != "RequiredDatasets"},
    }
    if site is not None:
        attributes["RapthorSite"] = string(site)
    elif datasets is not None:
        attributes["RequiredDatasets"] = datasets
    cpus, memory = max(1, ceil(work.cores)), max(1, ceil(work.memory / 2**20))
    said = {
        "executable": "/bin/sh",
        "transfer_executable": "false",
        "arguments": quoted(["-c", work.command]),
        "environment": quoted([f"{name}={value}" for name, value in work.environment.items()]),
        "getenv": "false",
        # for the logs alone: leader and workers share a file system, but rarely a FILESYSTEM_DOMAIN
        "should_transfer_files": "yes",
        "when_to_transfer_output": "on_exit",
        "transfer_output_files": '""',
        **{name: literal(path) for name, path in logs.items()},
        "request_cpus": str(cpus),
        "request_memory": f"{memory}MB",
        "request_disk": f"{max(1, ceil(work.disk / 2**10))}KB",
        "leave_in_queue": f"JobStatus == {COMPLETED} && {SEEN} =!= true"
        f" && (time() - EnteredCurrentStatus) < {KEEP_SECONDS}",
        "job_machine_attrs": "DataLocalitySite",
        "job_machine_attrs_history_length": "1",
        "batch_name": literal(_no_doubles(batch_name(setting))),
        **gpus(work.accelerators),
    }
    if work.duration:
        said["allowed_job_duration"] = str(work.duration)
    clauses = ["TARGET.DataLocalitySite =?= MY.RapthorSite"] if site is not None else []
    extra = dict(setting.commands)
    operation = setting.attributes.get("RapthorOperation", "").strip('"')
    names = tuple(name for name in (work.unit, operation) if name)
    choice = step_gpus.choice(names, cpus, memory) if step_gpus and not work.accelerators else None
    if choice:
        said |= choice.requests
        attributes |= choice.attributes
        clauses.append(choice.requirement)
        extra["rank"] = choice.ranked(extra.get("rank", ""))
    if clauses:
        own = [extra["requirements"]] if "requirements" in extra else []
        every = [*own, *clauses]
        extra["requirements"] = " && ".join(f"({one})" for one in every) if len(every) > 1 else every[0]
    if clash := sorted(set(extra) & set(said)):
        raise ParametersWrong(
            f"TOIL_HTCONDOR_PARAMS sets {', '.join(clash)}, which Toil's jobs set themselves"
        )
    return said | extra | {f"MY.{name}": value for name, value in attributes.items()}


def batch_name(setting: Setting) -> str:
    """What ``condor_q`` shows in its first column."""
    run = [setting.attributes.get(name, "").strip('"') for name in ("RapthorRun", "RapthorOperation")]
    return "/".join(part for part in run if part) or f"toil {setting.workflow[:8]}"


def gpus(accelerators: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The request for GPUs: how many, and of which model where one is asked for.

    Raises:
        ParametersWrong: an accelerator that is no GPU, or two models for one job.
    """
    wanted = list(accelerators)
    if other := sorted({str(one["kind"]) for one in wanted if one["kind"] != "gpu"}):
        raise ParametersWrong(f"HTCondor is asked for GPUs only, not for {', '.join(other)}")
    models = {str(one["model"]) for one in wanted if one.get("model")}
    if len(models) > 1:
        raise ParametersWrong(f"one job asks for GPUs of several models: {', '.join(sorted(models))}")
    count = sum(int(one["count"]) for one in wanted)
    if not count:
        return {}
    said = {"request_gpus": str(count)}
    for model in models:
        pattern = re.sub(r"[^A-Za-z0-9]+", "[^A-Za-z0-9]*", model)
        said["require_gpus"] = f"regexp({string(pattern)}, DeviceName, {string('i')})"
    return said


def parameters(text: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """``TOIL_HTCONDOR_PARAMS``: submit commands and attributes, each ``name=value``, with ``;`` between.

    Raises:
        ParametersWrong: a part without ``=``, or an attribute that Toil's jobs set themselves.
    """
    commands, attributes = {}, {}
    for part in (text or "").split(";"):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not part.strip():
            continue
        if not (equals and name):
            raise ParametersWrong(f"TOIL_HTCONDOR_PARAMS: {part.strip()!r} is not name=value")
        plain = re.sub(r"^(\+|my\.)", "", name, flags=re.IGNORECASE)
        if plain == name:
            commands[name.lower()] = _one_line("TOIL_HTCONDOR_PARAMS", value)
        elif plain.lower() in _OURS:
            raise ParametersWrong(f"TOIL_HTCONDOR_PARAMS sets {plain}, which Toil's jobs set themselves")
        else:
            attributes[_KNOWN.get(plain.lower(), plain)] = _one_line("TOIL_HTCONDOR_PARAMS", value)
    return commands, attributes


def carried(environment: Mapping[str, str]) -> dict[str, str]:
    """The attributes that the leader's environment gives to every job, as ClassAd expressions."""
    given = {name: environment.get(f"_CONDOR_{name}", "").strip() for name in CARRIED}
    return {name: _one_line(f"_CONDOR_{name}", value) for name, value in given.items() if value}


def _one_line(name: str, value: str) -> str:
    if odd := next((char for char in value if (char < " " and char != "\t") or char == "\x7f"), ""):
        what = "line break" if odd in "\r\n" else f"control character ({odd!r})"
        raise ParametersWrong(f"{name} has a {what} in it: {value[:100]!r}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ParametersWrong(f"{name} is not UTF-8 text: {value[:100]!r}")
    return value


def string(text: str) -> str:
    """A ClassAd string, in a submit description; what cannot be written there becomes ``?``."""
    plain = _no_doubles("".join(char if char.isprintable() else "?" for char in text))
    return literal('"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"')


def quoted(words: Iterable[str]) -> str:
    """Words in HTCondor's new syntax for arguments and environment: each in ``'``, all in ``"``.

    A quote of either kind is written twice (HTCondor manual, condor_submit, arguments), and ``$$`` as
    ``$$(DOLLARDOLLAR)``, which the schedd undoes when the job starts. A single ``$`` comes behind the
    doubled ones: before them it would be read as a part of their names.

    Raises:
        ParametersWrong: a control character, or bytes that are not UTF-8.
    """
    doubled = (_one_line("a job", word).replace("'", "''").replace('"', '""') for word in words)
    return '"' + " ".join(f"'{_DOLLARS.sub(_kept, word)}'" for word in doubled) + '"'


def _kept(dollars: re.Match[str]) -> str:
    pairs, single = divmod(len(dollars[0]), 2)
    return "$$(DOLLARDOLLAR)" * pairs + "$(DOLLAR)" * single


def _no_doubles(text: str) -> str:
    return re.sub(r"\$(?=\$)", "?", text)


def literal(text: str) -> str:
    """*text* as it is: ``$`` starts a macro in a submit description.

    Raises:
        ParametersWrong: ``$$``, for which there is no escape outside arguments and environment.
    """
    if "$$" in text:
        raise ParametersWrong(f"$$ cannot be written into a submit description: {text[:100]!r}")
    return _one_line("a value", text).replace("$", "$(DOLLAR)")


def ended(ad: Mapping[str, Any]) -> Ended | None:
    """How the job ended that has this *ad*, or None while it may still run."""
    status, cluster = ad.get("JobStatus"), ad.get("ClusterId")
    seconds = float(ad.get("RemoteWallClockTime") or 0) or None
    if status == COMPLETED:
        return _completed(ad, seconds)
    if status == REMOVED:
        reason = ad.get("RemoveReason") or "no reason was given"
        return Ended(_UNAVAILABLE, Why.KILLED, f"HTCondor job {cluster} was removed: {reason}", seconds)
    code = ad.get("HoldReasonCode")
    if status == HELD and code != _SPOOLING:
        why = (
            Why.MEMLIMIT if code == _OUT_OF_RESOURCES else Why.TIMELIMIT if code in _TOO_LONG else Why.FAILED
        )
        reason = ad.get("HoldReason") or "no reason was given"
        return Ended(_UNAVAILABLE, why, f"HTCondor job {cluster} was held: {reason}", seconds)
    return None


def _completed(ad: Mapping[str, Any], seconds: float | None) -> Ended:
    cluster = ad.get("ClusterId")
    if ad.get("ExitBySignal"):
        number = int(ad.get("ExitSignal") or 0)
        return Ended(128 + number, Why.FAILED, f"HTCondor job {cluster} died of signal {number}", seconds)
    code = ad.get("ExitCode")
    if not isinstance(code, int):
        return Ended(
            _UNAVAILABLE, Why.FAILED, f"HTCondor job {cluster} completed without an exit code", seconds
        )
    why = Why.FAILED if code else Why.FINISHED
    return Ended(code, why, f"HTCondor job {cluster} ended with exit status {code}", seconds)


def lost(cluster: int) -> Ended:
    """A job that neither the queue nor the history knows any more."""
    text = f"HTCondor job {cluster} is no longer in the queue, and the history does not say why"
    return Ended(_UNAVAILABLE, Why.KILLED, text)
