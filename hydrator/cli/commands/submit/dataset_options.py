"""Options that name a job's datasets, and their effect on a submit file or a DAG."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH

if TYPE_CHECKING:
    from hydrator.config import Settings
    from hydrator.domain.model import Did
    from hydrator.submit.submit_files.dag import Dag
    from hydrator.submit.submit_files.datasets import FilterResult
    from hydrator.submit.submit_files.description import Description


class ExitWithMessage(typer.Exit):
    """An exit with one sentence on stderr."""

    def __init__(self, message: str, status: int = 2) -> None:
        print(f"hydrator: {message}", file=sys.stderr)
        super().__init__(status)


class DagNodes:
    """The nodes of one DAG, or of several DAGs that are submitted as one, by DAGMan's names.

    With several DAG files, DAGMan calls node ``A`` of the second file ``1.A``. A user may write ``A`` if no
    other file has a node ``A``, and may leave out quotes around a name.
    """

    def __init__(self, kinds: "Mapping[str, str]", has_file_numbers: bool = False) -> None:
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
            raise ExitWithMessage(
                f"{option}: several of the DAG files have a node {name}: use {' or '.join(matches)}"
            )
        if not matches:
            raise ExitWithMessage(f"{option}: the DAG has no node {name}")
        return matches[0]


class DatasetOptions:
    """The options that name datasets, and the configuration that turns names of input files into datasets."""

    def __init__(
        self, texts: Sequence[str], file: Path | None, from_inputs: bool, config: Path, gpus: Sequence[str]
    ) -> None:
        self._config = config
        self._gpus = gpus
        self._settings: Settings | None = None
        self.from_inputs = from_inputs
        self.dids: set[Did] = set()
        """The datasets of the jobs that were read so far."""
        self.texts = [text for text in texts if text.strip()]
        lines = read_input_file(file).decode("utf-8-sig", "replace").splitlines() if file else []
        self.file_dids = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]

    @property
    def has_options(self) -> bool:
        """True if an option names datasets or requests GPUs."""
        return bool(self.texts or self.file_dids or self.from_inputs or self._gpus)

    @property
    def settings(self) -> "Settings | None":
        """The configuration; None if the user names no file and the default file does not exist."""
        from hydrator.config import load

        if self._settings is None and (self._config != DEFAULT_CONFIG_PATH or self._config.exists()):
            self._settings = load(self._config)
        return self._settings

    @property
    def default_scope(self) -> str | None:
        return self.settings.daemon.default_scope if self.settings else None

    def parse_shared_datasets(self, origin: str) -> "list[Did]":
        """Return the datasets that the options name for every job of *origin*, a submit file."""
        for text in self.texts:
            node, equals, dids = text.partition("=")
            if equals and ":" not in node:
                raise ExitWithMessage(
                    f"--datasets {text}: {origin} is a submit file, which has no node {node}:"
                    f" use --datasets {dids}"
                )
        return self._parse_dids([did for text in self.texts for did in text.split(",")] + self.file_dids)

    def parse_node_datasets(self, nodes: "DagNodes") -> "dict[str, list[Did]]":
        """Return the datasets of each node of a DAG.

        ``--datasets DIDs`` adds datasets to every JOB node, ``--datasets NODE=DIDs`` only to the node NODE.
        FINAL, PROVISIONER and SERVICE nodes seldom read data. So they get only the datasets of NODE=DIDs.
        """
        own: dict[str, list[str]] = {name: [] for name in nodes.names}
        shared = list(self.file_dids)
        for text in self.texts:
            name, equals, dids = text.partition("=")
            node = nodes.find(name, f"--datasets {text}") if equals and ":" not in name else None
            if node is None and equals and name in own:
                node = name
            (shared if node is None else own[node]).extend((text if node is None else dids).split(","))
        return {
            name: self._parse_dids((shared if name in nodes.jobs else []) + dids)
            for name, dids in own.items()
        }

    def gpu_lines(self, nodes: "DagNodes | None" = None) -> "dict[str, Sequence[str]]":
        """Return the submit commands for --gpu by DAG node; a submit file is one node, named ``""``."""
        from hydrator.config import SubmitSettings
        from hydrator.submit.gpus import gpu_choice, submit_lines

        submit = self.settings.submit if self.settings else SubmitSettings()
        modes: dict[str, str] = {}
        for text in self._gpus:
            node, equals, mode = text.rpartition("=")
            if mode not in ("no", "prefer", "require"):
                raise ExitWithMessage(f"--gpu {text}: use no, prefer or require")
            if equals and nodes is None:
                raise ExitWithMessage(f"--gpu {text}: the file is not a DAG: use --gpu {mode}")
            everything = nodes.jobs if nodes else [""]
            modes |= dict.fromkeys(
                [nodes.find(node, f"--gpu {text}")] if equals and nodes else everything, mode
            )
        choices = {node: gpu_choice(submit, mode) for node, mode in modes.items()}
        if submit.require_gpus and choices:
            self._check_expression(submit.require_gpus)
        return {node: submit_lines(choice) for node, choice in choices.items() if choice}

    def _check_expression(self, expression: str) -> None:
        from hydrator.wiring import build_condor_client

        if self.settings is not None:
            with closing(build_condor_client(self.settings.htcondor)) as client:
                client.check_expressions({"[submit].require_gpus": expression})

    def find_input_datasets(self, names: Sequence[str]) -> "Mapping[str, Did]":
        """Return the DIDs of *names* by [submit].names and [submit].patterns; skip a name without a DID."""
        from hydrator.submit.dataset_names.rules import apply_configuration

        if self.settings is None:
            raise ExitWithMessage(
                "--from-inputs needs [submit] names or patterns in a configuration file: give --config"
            )
        return apply_configuration(names, self.settings)

    def _parse_dids(self, texts: Sequence[str]) -> "list[Did]":
        from hydrator.domain.errors import BadDid
        from hydrator.domain.model import parse_did

        dids, problems = [], []
        for text in texts:
            if "=" in text.partition(":")[0] and ":" in text:
                problems.append(f"use a --datasets of its own for {text.strip()}")
            elif text.strip():
                try:
                    dids.append(parse_did(text.strip(), self.default_scope))
                except BadDid as bad:
                    problems.append(str(bad))
        if problems:
            raise ExitWithMessage("; ".join(problems))
        return dids


def print_notes(filtered: "FilterResult") -> None:
    for note in filtered.notes:
        print(f"hydrator: {note}", file=sys.stderr)


def collect_dag_datasets(
    dag: "Dag",
    descriptions: "Mapping[str, Description]",
    options: DatasetOptions,
    datasets_by_node: "dict[str, list[Did]]",
) -> "dict[str, list[Did]]":
    """Add the datasets of the nodes' input files to *datasets_by_node*; return it."""
    from hydrator.submit.submit_files.datasets import check_lists

    for node in dag.nodes:
        origin = f"node {node.name}" + (f" ({node.file})" if node.file else "")
        description = descriptions[node.name]
        if description.dataset_list is not None:
            check_lists(description, origin)
        elif not description.unread:
            words = list(node.variables.values())
            datasets_by_node[node.name] += find_input_datasets(description, options, origin, words)
    options.dids.update(*datasets_by_node.values())
    return datasets_by_node


def find_input_datasets(
    description: "Description", options: DatasetOptions, origin: str, variables: Sequence[str] = ()
) -> "list[Did]":
    """Return the datasets of the inputs that *description* and *variables*, the VARS of a node, name."""
    from hydrator.submit.submit_files.datasets import input_names

    if not options.from_inputs:
        return []
    names, names_of_some = input_names(description, variables)
    if some := options.find_input_datasets(names_of_some):
        name, did = next(iter(some.items()))
        raise ExitWithMessage(
            f"{origin}: only some of the jobs name {name}, the dataset {did}: write +RequiredDatasets into"
            " the file, with the macro that differs, or name all datasets with --datasets"
        )
    return list(options.find_input_datasets(names).values())


def read_input_file(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ExitWithMessage(f"cannot read {file}: {error.strerror}") from error
