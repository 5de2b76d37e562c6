"""``hydrator submit wrap`` and ``filter``: add RequiredDatasets to existing submit files and DAGs."""

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from hydrator.cli.commands.submit.dataset_options import (
    DatasetOptions,
    find_input_datasets,
    read_input_file,
)
from hydrator.cli.commands.submit.shared import print_outlook
from hydrator.cli.commands.submit.wrap_dag import (
    DagTree,
    jobs_of_nodes,
    read_dag_trees,
    read_datasets,
    write_copies,
)
from hydrator.cli.options import RefuseOption, command_of
from hydrator.cli.output.new_files import lock_folder, remove_files, run_to_completion
from hydrator.cli.output.printing import print_problems
from hydrator.domain.errors import BadDid, ConfigError, HydratorError
from hydrator.domain.model import Did, parse_did
from hydrator.submit.outlook import JobsOfSet
from hydrator.submit.submit_files.dag import is_dag, read_dag
from hydrator.submit.submit_files.datasets import FilterResult, add_datasets, own_lists
from hydrator.submit.submit_files.description import REFUSED, Description, read_description

_MAX_ARGUMENT_BYTES = 100_000
"""Longest argument that this command uses; Linux allows 131,072 bytes."""
_SUBMIT_OPTIONS_WITH_VALUE = {
    **dict.fromkeys(("append", "name", "remote", "batch-name", "password"), 1),
    **dict.fromkeys(("addr", "address", "pool", "dump"), 2),
    **dict.fromkeys(("dry-run", "maxjobs"), 3),
    "digest": 6,
    "batch-id": 7,
}
"""Options of condor_submit with a value, each with the length of its shortest abbreviation."""
_QUEUE_OPTIONS = {"queue": 1, "iterate": 2}
"""Options of condor_submit whose value ends before the next option."""
_DAG_OPTIONS_WITH_VALUE = {
    **dict.fromkeys(("maxidle", "maxjobs", "maxpre", "maxpost", "maxhold", "dagman", "dorescuefrom"), 2),
    **dict.fromkeys(("notification", "r", "remote", "rescuefile", "outfile_dir", "config", "lockfile"), 1),
    **dict.fromkeys(("insert_sub_file", "append", "batch-name", "priority", "autorescue", "load_save"), 1),
    **dict.fromkeys(("submitmethod", "include_env", "insert_env", "schedd-daemon-ad-file"), 1),
    "schedd-address-file": 1,
    "debug": 2,
}
"""As above, of condor_submit_dag."""


@dataclass(kw_only=True, eq=False)
class FilterOptions(DatasetOptions):
    """The options of ``hydrator submit filter``."""

    file: Annotated[Path, typer.Argument(help="A submit file or a DAG file; - is standard input.")]


@dataclass(kw_only=True, eq=False)
class WrapOptions(DatasetOptions):
    """The options of ``hydrator submit wrap``."""

    command: Annotated[list[str], typer.Argument(help="-- condor_submit … FILE, or condor_submit_dag … FILE")]
    refuse_nowhere: RefuseOption = False


def _filter(options: FilterOptions) -> None:
    """Print a submit or DAG file with RequiredDatasets."""
    file = options.file
    text = sys.stdin.buffer.read() if str(file) == "-" else read_input_file(file)
    origin = "standard input" if str(file) == "-" else str(file)
    mode = None
    if is_dag(text):
        filtered, jobs = _add_to_dag(text, origin, options)
    else:
        description = read_description(text, Path.cwd())
        if description.unread == REFUSED:
            readable = "neither a DAG file nor a submit file that condor_submit can read"
            raise ConfigError([f"{origin} is {readable}"])
        filtered, jobs = _add_datasets(text, description, origin, options)
        mode = description.mode
    print_outlook(options.settings, options.dids, jobs, should_refuse=False, mode=mode)
    sys.stdout.buffer.write(filtered.text)


def _wrap(options: WrapOptions) -> None:
    """Run condor_submit with RequiredDatasets added.

    It also runs condor_submit_dag, and exits with that command's status.
    A submit file stays unchanged: condor_submit gets the new lines by -append.
    For a DAG, the command submits a copy, NAME.hydrator.dag, in the same folder. DAGMan may read this copy
    until the DAG ends. So an existing copy never changes: a copy with other datasets is NAME.2.hydrator.dag.
    If condor_submit_dag rejects the DAG, the command removes the new copies.
    """
    command = options.command
    tool = Path(command[0]).name
    if tool not in ("condor_submit", "condor_submit_dag"):
        tools = "condor_submit and condor_submit_dag: give one of them after --"
        raise ConfigError([f"{command[0]}: wrap runs only {tools}"])
    submit = _submit_dag if tool.endswith("_dag") else _submit_file
    status = submit(command, options)
    raise typer.Exit(status if status >= 0 else 128 - status)  # for a signal, as in a shell


filter_file = command_of(FilterOptions, _filter)
wrap = command_of(WrapOptions, _wrap)


def _add_datasets(
    text: bytes, description: Description, origin: str, options: DatasetOptions
) -> tuple[FilterResult, list[JobsOfSet]]:
    """Add the datasets of *options* to *text*, the submit file *origin*; print notes on stderr.

    Also return the jobs by their datasets.
    """

    dids = options.parse_shared_datasets(origin)
    if description.dataset_list is None:
        dids += find_input_datasets(description, options, origin)
    options.dids.update(dids)
    filtered = add_datasets(text, description, dids, origin, options.gpu_lines().get("", ()))
    options.require_datasets(origin, [description])
    print_problems(*filtered.notes)
    return filtered, _jobs_of(description, options)


def _add_to_dag(text: bytes, origin: str, options: DatasetOptions) -> tuple[FilterResult, list[JobsOfSet]]:
    """Add the datasets of *options* to the DAG *text*; also return the nodes that get datasets.

    File names in *text* are relative to the current folder, as in HTCondor.
    """
    tree = DagTree(Path(origin), Path(origin), Path.cwd(), text, read_dag(text), "")
    lines = read_datasets([tree], options)
    filtered = tree.add_datasets(lines)
    print_problems(*filtered.notes)
    return filtered, jobs_of_nodes([tree])


def _submit_file(command: Sequence[str], options: WrapOptions) -> int:
    """Run condor_submit, and return its status; -append puts the new lines before the queue statement."""

    found = _find_files(command, _SUBMIT_OPTIONS_WITH_VALUE)
    at = next(reversed(found.files), None)  # condor_submit takes the last file
    if at is None or command[at] == "-":
        only = "only hydrator submit filter can read standard input"
        raise ConfigError([f"name a submit file after condor_submit: {only}"])
    file = Path(command[at])
    text = read_input_file(file)
    if is_dag(text):
        advice = "give condor_submit_dag instead of condor_submit after --"
        raise ConfigError([f"{file} is a DAG file: {advice}"])
    description = read_description(
        text, Path.cwd(), before=found.settings, after=found.appended, queue=found.queue
    )
    filtered, jobs = _add_datasets(text, description, f"{file}", options)
    print_outlook(
        options.settings, options.dids, jobs, should_refuse=options.refuse_nowhere, mode=description.mode
    )
    # condor_submit reads ``first`` before the file, so a setting in the file overrides ``first``
    first = filtered.first_line.replace("+", "MY.", 1).replace(" = ", "=", 1)
    is_too_long = any(len(os.fsencode(line)) > _MAX_ARGUMENT_BYTES for line in (*filtered.lines, first))
    if is_too_long or filtered.has_new_items:
        return _submit_copy(command, at, filtered.text)
    appended = [word for line in filtered.lines for word in ("-append", line)]
    words = [
        command[0],
        *([first] if first else []),
        *command[1 : found.end],
        *appended,
        *command[found.end :],
    ]
    return run_command(words)


def _jobs_of(description: Description, options: DatasetOptions) -> list[JobsOfSet]:
    """Return the jobs of a submit file by their datasets."""

    lists = own_lists(description)
    if not lists:
        return [JobsOfSet(tuple(sorted(options.dids)))] if options.dids else []
    counts: Counter[tuple[Did, ...]] = Counter()
    for names in lists:
        with suppress(BadDid):
            counts[tuple(sorted({parse_did(name, options.default_scope) for name in names}))] += 1
    options.dids.update(*counts)
    return [JobsOfSet(dids, count) for dids, count in counts.items()]


def _submit_copy(command: Sequence[str], file_index: int, text: bytes) -> int:
    """Submit a temporary copy of the submit file, because arguments cannot contain the changes.

    Remove the copy after the submission.
    """
    file = Path(command[file_index])
    ending = f".{file.name[:100]}.hydrator"
    try:
        with tempfile.NamedTemporaryFile(prefix=".", suffix=ending, dir=file.parent) as copy:
            copy.write(text)
            copy.flush()
            return run_command([*command[:file_index], copy.name, *command[file_index + 1 :]])
    except OSError as error:
        problem = f"cannot write a temporary copy of {file} into its folder: {error.strerror}"
        raise HydratorError(problem) from error


def _submit_dag(command: Sequence[str], options: WrapOptions) -> int:
    """Add the datasets to a copy of the DAG, and run condor_submit_dag on the copy.

    If condor_submit_dag rejects the DAG, remove the new copies.
    """

    positions = _find_files(command, _DAG_OPTIONS_WITH_VALUE).files
    if not positions:
        raise ConfigError(["name a DAG file after condor_submit_dag"])
    files = [Path(command[at]) for at in positions]
    use_dag_folder = "-usedagdir" in [word.lower() for word in command]
    with lock_folder(files[0].parent):
        roots = read_dag_trees(files, use_dag_folder)
        lines = read_datasets(roots, options)
        jobs = jobs_of_nodes(roots)
        print_outlook(options.settings, options.dids, jobs, should_refuse=options.refuse_nowhere)
        copies, new_files = write_copies(roots, lines)
        words = list(command)
        for at, file in zip(positions, copies, strict=True):
            words[at] = str(file)
        status = run_command(words)
        if status > 0:
            remove_files(new_files)
        return status


def run_command(argv: Sequence[str]) -> int:
    """Run *argv* to its end; return its exit status: negative for a signal, 127 if it cannot start."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        return run_to_completion(argv)
    except OSError as error:
        print_problems(f"cannot run {argv[0]}: {error.strerror}")
        return 127


@dataclass(slots=True)
class _CommandLine:
    """Parts of a command line: the positions of the submit files, and settings for condor_submit.

    ``settings`` are the arguments NAME=VALUE, ``appended`` the values of -append. ``queue`` has the words
    after -queue, None without; ``end`` is the position of -queue, else the number of words.
    """

    end: int
    files: list[int] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    appended: list[str] = field(default_factory=list)
    queue: str | None = None

    def append(self, line: str) -> None:
        """Note *line*, the value of -append, which may be a queue statement."""
        if queue := re.match(r"queue\b(?!\s*=)(.*)", line, re.IGNORECASE):
            self.queue = queue[1].strip()
        else:
            self.appended.append(line)


def _find_files(command: Sequence[str], options_with_value: Mapping[str, int]) -> _CommandLine:
    """Read *command* as condor_submit or condor_submit_dag does."""
    found = _CommandLine(len(command))
    is_submit = options_with_value is _SUBMIT_OPTIONS_WITH_VALUE
    at = 1
    while at < len(command):
        word = command[at]
        at += 1
        if word == "-" or not word.startswith("-"):
            # condor_submit takes no file with an equals sign in its name
            if "=" in word and (is_submit or not Path(word).exists()):
                found.settings.append(word)
            else:
                found.files.append(at - 1)
        elif is_submit and _is_option(word, _QUEUE_OPTIONS):
            words = list(takewhile(lambda one: not one.startswith("-"), command[at:]))
            found.end, found.queue = at - 1, " ".join(words)
            at += len(words)
        elif _is_option(word, options_with_value):
            if is_submit and _is_option(word, {"append": 1}):
                found.append(" ".join(command[at : at + 1]))
            at += 1
    return found


def _is_option(word: str, options: Mapping[str, int]) -> bool:
    """Return whether *word* is an option of *options*, or an abbreviation of one."""
    option = word.lstrip("-").lower().partition(":")[0]
    return any(name.startswith(option) and len(option) >= least for name, least in options.items())
