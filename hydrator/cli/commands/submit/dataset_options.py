"""Options that name a job's datasets, and their effect on a submit file or a DAG."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, parse_dids
from hydrator.config import Settings, SubmitSettings, load
from hydrator.domain.errors import BadDid, ConfigError
from hydrator.domain.files import MAX_INPUT_BYTES, read_limited
from hydrator.domain.model import Did, parse_did
from hydrator.submit.dataset_names.search import apply_configuration
from hydrator.submit.gpus import gpu_choice, submit_lines
from hydrator.submit.submit_files.datasets import input_names
from hydrator.submit.submit_files.description import Description

_NONE_NAMED = "no dataset is named: name one, or leave the option out"


class DagNodes:
    """The nodes of one DAG, or of several DAGs that are submitted as one, by DAGMan's names.

    With several DAG files, DAGMan calls node ``A`` of the second file ``1.A``. A user may write ``A`` if no
    other file has a node ``A``, and may leave out quotes around a name.
    """

    def __init__(self, kinds: Mapping[str, str], has_file_numbers: bool = False) -> None:
        self.names = list(kinds)
        self.jobs = [name for name, kind in kinds.items() if kind == "JOB"]
        self._names_by_alias: dict[str, list[str]] = {}
        for name in self.names:
            plain = name.partition(".")[2] if has_file_numbers else name
            for alias in dict.fromkeys((name, plain, name.replace('"', ""), plain.replace('"', ""))):
                self._names_by_alias.setdefault(alias, []).append(name)

    def find(self, name: str, option: str) -> str:
        """Return DAGMan's name of the node that the user calls *name*; error messages begin with *option*."""
        matches = [name] if name in self.names else self._names_by_alias.get(name, [])
        if len(matches) > 1:
            use = f"use {' or '.join(matches)}"
            raise ConfigError([f"{option}: several of the DAG files have a node {name}: {use}"])
        if not matches:
            raise ConfigError([f"{option}: the DAG has no node {name}"])
        return matches[0]


@dataclass(kw_only=True, eq=False)
class DatasetOptions:
    """The options that name datasets, and the configuration that turns names of input files into datasets.

    Attributes:
        texts: the values of --datasets.
        file_dids: the lines of --datasets-file.
        dids: the datasets of the jobs that were read so far.
    """

    datasets: Annotated[
        list[str] | None,
        typer.Option(
            "--datasets",
            "-d",
            help="DIDs, separated by commas, for every job; in a DAG also NODE=DIDs. Repeatable.",
        ),
    ] = None
    datasets_file: Annotated[Path | None, typer.Option(help="A file with one DID per line.")] = None
    from_inputs: Annotated[
        bool,
        typer.Option(
            "--from-inputs",
            help="Find datasets in transfer_input_files, arguments and VARS,"
            r" by \[submit] names and patterns.",
        ),
    ] = False
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            help=r"prefer: a GPU slot first, else cores and memory of \[submit]; require: GPU slots only."
            " In a DAG also NODE=prefer. Repeatable.",
        ),
    ] = None
    config: ConfigOption = DEFAULT_CONFIG_PATH

    def __post_init__(self) -> None:
        self.dids: set[Did] = set()
        self.texts = [text for text in self.datasets or () if text.strip()]
        for text in self.texts:
            if not text.rstrip("=, ") or (":" not in text and text.rstrip(", ").endswith("=")):
                raise ConfigError([f"--datasets {text}: {_NONE_NAMED}"])
        file = self.datasets_file
        lines = read_input_file(file).decode("utf-8-sig", "replace").splitlines() if file else []
        self.file_dids: list[str] = []
        problems = []
        for number, line in enumerate(map(str.strip, lines), 1):
            if line and not line.startswith("#") and line != "SCOPE:NAME":  # Rucio's header
                self.file_dids.append(line)
                try:
                    parse_did(line, self.default_scope)
                except BadDid as bad:
                    problems.append(f"--datasets-file {file}:{number}: {bad}")
        if problems:
            raise ConfigError(problems)
        if file and not self.file_dids:
            raise ConfigError([f"--datasets-file {file}: {_NONE_NAMED}"])

    def require_datasets(self, origin: str, descriptions: Iterable[Description]) -> None:
        """Raise ConfigError if neither an option nor one of the *descriptions* of *origin* names datasets."""
        has_options = self.texts or self.file_dids or self.from_inputs or self.gpu
        if not has_options and all(not one.unread and one.dataset_list is None for one in descriptions):
            advice = "give --datasets, --datasets-file or --from-inputs"
            raise ConfigError([f"{origin} names no datasets: {advice}"])

    @cached_property
    def settings(self) -> Settings | None:
        """The configuration; None if the user names no file and the default file does not exist."""
        is_default = self.config == DEFAULT_CONFIG_PATH
        return None if is_default and not self.config.exists() else load(self.config)

    @property
    def default_scope(self) -> str | None:
        return self.settings.daemon.default_scope if self.settings else None

    def parse_shared_datasets(self, origin: str) -> list[Did]:
        """Return the datasets that the options name for every job of *origin*, a submit file."""
        for text in self.texts:
            node, equals, dids = text.partition("=")
            if equals and ":" not in node:
                no_node = f"{origin} is a submit file, which has no node {node}"
                raise ConfigError([f"--datasets {text}: {no_node}: use --datasets {dids}"])
        return self._parse_dids([did for text in self.texts for did in text.split(",")] + self.file_dids)

    def parse_node_datasets(self, nodes: DagNodes) -> dict[str, list[Did]]:
        """Return the datasets of each node of a DAG.

        ``--datasets DIDs`` adds datasets to every JOB node, ``--datasets NODE=DIDs`` only to the node NODE.
        FINAL, PROVISIONER and SERVICE nodes seldom read data. So they get only the datasets of NODE=DIDs.
        """
        own: dict[str, list[str]] = {name: [] for name in nodes.names}
        shared = list(self.file_dids)
        for text in self.texts:
            name, equals, dids = text.partition("=")
            if equals and (":" not in name or name in own):
                own[nodes.find(name, f"--datasets {text}")] += dids.split(",")
            else:
                shared += text.split(",")
        return {
            name: self._parse_dids((shared if name in nodes.jobs else []) + dids)
            for name, dids in own.items()
        }

    def gpu_lines(self, nodes: DagNodes | None = None) -> dict[str, Sequence[str]]:
        """Return the submit commands for --gpu by DAG node; a submit file is one node, named ``""``."""
        submit = self.settings.submit if self.settings else SubmitSettings()
        modes: dict[str, str] = {}
        for text in self.gpu or ():
            node, equals, mode = text.rpartition("=")
            if mode not in ("no", "prefer", "require"):
                raise ConfigError([f"--gpu {text}: use no, prefer or require"])
            if equals and nodes is None:
                raise ConfigError([f"--gpu {text}: the file is not a DAG: use --gpu {mode}"])
            everything = nodes.jobs if nodes else [""]
            modes |= dict.fromkeys(
                [nodes.find(node, f"--gpu {text}")] if equals and nodes else everything, mode
            )
        choices = {node: gpu_choice(submit, mode) for node, mode in modes.items()}
        return {node: submit_lines(choice) for node, choice in choices.items() if choice}

    def _parse_dids(self, texts: Sequence[str]) -> list[Did]:
        given = [text.strip() for text in texts if text.strip()]
        if of_nodes := [text for text in given if "=" in text.partition(":")[0] and ":" in text]:
            raise ConfigError([f"use a --datasets of its own for {text}" for text in of_nodes])
        return parse_dids(given, self.default_scope)


def find_input_datasets(
    description: Description, options: DatasetOptions, origin: str, variables: Sequence[str] = ()
) -> list[Did]:
    """Return the datasets of the inputs that *description* and *variables*, the VARS of a node, name."""

    if not options.from_inputs:
        return []
    if options.settings is None:
        needed = "[submit] names or patterns in a configuration file: give --config"
        raise ConfigError([f"--from-inputs needs {needed}"])
    names, names_of_some = input_names(description, variables)
    if some := apply_configuration(names_of_some, options.settings):
        name, did = next(iter(some.items()))
        advice = "write +RequiredDatasets into the file, with the macro that differs, or name all datasets"
        only = f"{origin}: only some of the jobs name {name}, the dataset {did}"
        raise ConfigError([f"{only}: {advice} with --datasets"])
    return list(apply_configuration(names, options.settings).values())


def read_input_file(file: Path, kind: str = "") -> bytes:
    """Return the content of *file*, of which the user should know the *kind* if it cannot be read."""
    try:
        return read_limited(file, MAX_INPUT_BYTES)
    except OSError as error:
        advice = f"; give the path of {kind}" if kind else ""
        raise ConfigError([f"cannot read {file}: {error.strerror}{advice}"]) from error
