"""A whole Rapthor run as one HTCondor job: write the job's attributes, parset and submit description.

Pure: values in, text out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.config import SubmitSettings
from hydrator.domain.ads.classad import escape_macros, list_literal, string_literal
from hydrator.domain.ads.expressions import Mode
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Did, Site
from hydrator.domain.text import format_count
from hydrator.reconcile.misses import PATHS_ATTRIBUTE
from hydrator.submit.bindings import job_attributes
from hydrator.submit.gpus import GpuChoice, gpu_choice, mebibytes
from hydrator.submit.retry import path_known_clause, retry_elsewhere
from hydrator.submit.submit_files.values import (
    quote_arguments,
    unfit_name_reason,
    unfit_reason,
    unfit_value_reason,
)

from .machine import WORKING_FOLDER
from .parset import printable_line

JOB_PARSET = "run.parset"
WRAPPER_FILE = "hydrator-job-start.py"
_NAME_ENDINGS = {"output": ".out", "error": ".err", "log": ".log", "batch_name": ""}
RESULT_FOLDERS = ("images", "logs", "plots", "regions", "skymodels", "solutions", "visibilities")
"""Folders that HTCondor returns from Rapthor's working folder: all but ``pipelines``, which has
copies of the data."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The user's options for the job; ``requirements`` and ``rank`` are valid ClassAd expressions.

    If ``mode`` is None, the pool's default applies. ``expected_seconds`` is the run time that the user
    expects; None if unknown.
    """

    mode: Mode | None = "require"
    max_wait_seconds: int | None = None
    requirements: str = ""
    rank: str = ""
    extra_lines: tuple[str, ...] = ()
    """More lines of the submit description."""
    expected_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class RapthorRun:
    """A Rapthor run with the datasets of its measurement sets.

    ``name`` is the value of the job attribute WorkflowRun and should be unique. ``label`` is the name of the
    batch and of the job's files.
    """

    name: str
    label: str
    dids: tuple[Did, ...]
    sizes: Mapping[Did, int] = field(default_factory=dict)
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def attributes(self) -> dict[str, str]:
        """The job attributes, each with its ClassAd literal (docs/reference/attributes.md)."""
        wish = self.options
        given = job_attributes(self.dids, wish.mode, wish.expected_seconds, wish.max_wait_seconds)
        plain = {name.removeprefix("MY."): literal for name, literal in given.items()}
        return {**plain, "WorkflowRun": string_literal(self.name)}


def run_name(text: str) -> str:
    """Return *text* as a name of at most 100 characters; ``-`` replaces characters that could need quotes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")[:100] or "rapthor"


def job_lines(
    run: RapthorRun,
    submit: SubmitSettings,
    *,
    origin: str,
    input_files: Sequence[str],
    command: Sequence[str],
    site_attributes: Sequence[str],
    path_sites: Sequence[Site] | None = None,
    data_sites: Sequence[Site] = (),
    should_keep_folder: bool = False,
) -> list[str]:
    """Return the lines of the submit description of the whole run as one job, without the user's own lines.

    Args:
        run: the run with its datasets.
        submit: the resources to request. With a GPU, cores and memory depend on whether the slot has a free
            one.
        origin: the name of the user's parset, for a comment.
        input_files: files that HTCondor transfers with the job, in addition to the wrapper.
        command: the command that the wrapper starts after it has found the data.
        site_attributes: the slot attributes that may have a site's name.
        path_sites: the sites with a path for every dataset; the job runs only at these. None means any site,
            because the job can fetch its data.
        data_sites: the allowed sites that have all data now. If the job fails to read its data at each of
            them, the schedd holds it.
        should_keep_folder: keep Rapthor's working folder at the schedd when the job is evicted.

    Raises:
        ConfigError: the description cannot contain a file name or the container.
    """
    problems = [
        f"{name!r} cannot be a file of the job: {why}: rename the file"
        for name in input_files
        if (why := unfit_name_reason(name))
    ]
    if submit.container and (why := unfit_value_reason(submit.container)):
        problems.append(f"the container {submit.container!r} cannot be in a submit description: {why}")
    if problems:
        raise ConfigError(problems)
    gpu = gpu_choice(submit, submit.gpu)
    datasets = format_count(len(set(run.dids)), "dataset")
    plain = {"request_cpus": str(submit.cpus), "request_memory": str(mebibytes(submit.memory_gb))}
    disk = max(1, round(submit.disk_gb * 1e9 / 2**10))  # KiB
    requests = {**(gpu.requests if gpu else plain), "request_disk": str(disk)}
    return [
        f"# {printable_line(origin)} as one job: {datasets}; by `hydrator submit rapthor`",
        *_command_lines(submit.container, input_files, command, should_keep_folder),
        *(f"{name} = {run.label}{ending}" for name, ending in _NAME_ENDINGS.items()),
        *(f"{name} = {value}" for name, value in requests.items()),
        "",
        *_attribute_lines(run, gpu, path_sites),
        "",
        "# if data is missing at a site, the wrapper ends the job, and the schedd tries another site",
        *retry_elsewhere(
            (
                run.options.requirements,
                gpu.requirement if gpu else "",
                "" if path_sites is None else path_known_clause(site_attributes),
            ),
            site_attributes,
            data_sites=data_sites or path_sites or (),
        ),
    ]


def explain_double_lines(lines: Sequence[str], extra_lines: Sequence[str]) -> list[str]:
    """Return one sentence for each of *extra_lines* that sets what one of the job's *lines* sets.

    HTCondor takes the last line of a command. It takes ``request_cpus`` rather than ``RequestCpus``.
    """
    own = {name.replace("_", ""): name for name in map(_command_name, filter(None, lines))}
    sentences = []
    for line in extra_lines:
        name = _command_name(line)
        if ours := own.get(name.replace("_", "")):
            effect = "replaces a line of the job" if name == ours else f"has no effect: write {ours}"
            sentences.append(f"--line {line} {effect}")
    return sentences


def _command_name(line: str) -> str:
    return line.partition("=")[0].strip().lower().replace("+", "my.")


def submit_description(lines: Sequence[str], extra_lines: Sequence[str]) -> str:
    """Return the text of the submit description with the job's *lines* and the user's *extra_lines*.

    Raises:
        ConfigError: condor_submit cannot read a line.
    """
    every = [*lines, *(["", *extra_lines] if extra_lines else []), "", "queue", ""]
    problems = [
        f"condor_submit cannot read a line of the submit description: {why}: {line[:200]!r}"
        for line in every
        if line and (why := unfit_reason(line))
    ]
    if problems:
        raise ConfigError(problems)
    return "\n".join(every)


def _command_lines(
    container: str | None, input_files: Sequence[str], command: Sequence[str], should_keep_folder: bool
) -> list[str]:
    """Return the lines with the universe, the command, and the input and output files to transfer."""
    universe = ["universe = vanilla"]
    if container:
        universe = ["universe = container", f"container_image = {escape_macros(container)}"]
    keep_option = ("--keep", WORKING_FOLDER) if should_keep_folder else ()
    results = [f"{WORKING_FOLDER}/{part}" for part in RESULT_FOLDERS]
    outputs = [WORKING_FOLDER] if should_keep_folder else results
    return [
        *universe,
        f"executable = {WRAPPER_FILE}",
        f"arguments = {quote_arguments(('--parset', JOB_PARSET, *keep_option, '--', *command))}",
        f"transfer_input_files = {', '.join(escape_macros(name) for name in input_files)}",
        "should_transfer_files = YES",
        f"when_to_transfer_output = {'ON_EXIT_OR_EVICT' if should_keep_folder else 'ON_EXIT'}",
        f"transfer_output_files = {', '.join(outputs)}",
    ]


def _attribute_lines(run: RapthorRun, gpu: GpuChoice | None, path_sites: Sequence[Site] | None) -> list[str]:
    """Return the lines with the job's attributes and its rank."""
    literals = {**run.attributes, **(gpu.attributes if gpu else {})}
    if path_sites is not None:
        # sorted, so that equal runs share an autocluster
        literals[PATHS_ATTRIBUTE] = list_literal(map(string_literal, sorted(set(path_sites))))
    rank = gpu.rank_expression(run.options.rank) if gpu else run.options.rank
    return [
        "# the datasets that the job reads; the schedd's transform makes requirements and rank from them",
        *(f"+{name} = {literal}" for name, literal in literals.items()),
        # also where the negotiator has no term for it; a schedd without the transform sets no rank of ours
        f"rank = {f'({rank}) + ' if rank else ''}(MY.DataLocalityRank ?: 0.0)",
    ]
