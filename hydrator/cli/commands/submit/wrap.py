"""``hydrator submit wrap`` and ``filter``: RequiredDatasets for submit files and DAGs that people wrote."""

import os
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, EXIT_NO_MATCH_NOW, ConfigOption

if TYPE_CHECKING:
    from hydrator.config import Settings
    from hydrator.domain.model import Did
    from hydrator.submit.dag_file import Dag
    from hydrator.submit.submit_file import FilterResult

_MAX_ARGUMENT_BYTES = 100_000
"""Bytes of one argument; Linux takes 131,072."""
_SUBMIT_OPTIONS_WITH_VALUE = (
    "append",
    "name",
    "remote",
    "addr",
    "pool",
    "batch-name",
    "dry-run",
    "password",
    "dump",
)
_DAG_OPTIONS_WITH_VALUE = (
    *("maxidle", "maxjobs", "maxpre", "maxpost", "notification", "r", "dagman", "outfile_dir", "config"),
    *("insert_sub_file", "append", "batch-name", "priority", "autorescue", "dorescuefrom", "load_save"),
    *("submitmethod", "include_env", "insert_env", "debug", "schedd-daemon-ad-file", "schedd-address-file"),
)

DatasetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--datasets",
        "-d",
        help="DIDs with commas, for every job; in a DAG also NODE=DIDs. May stand several times.",
    ),
]
DatasetsFileOption = Annotated[
    Path | None, typer.Option("--datasets-file", help="A file with one DID a line.")
]
FromInputsOption = Annotated[
    bool,
    typer.Option(
        "--from-inputs",
        help=r"What transfer_input_files, arguments and VARS name, by \[submit] names and patterns.",
    ),
]
GpuOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        help=r"prefer: a GPU slot first, else the cores and memory of \[submit]; require: GPU slots only."
        " In a DAG also NODE=prefer. May stand several times.",
    ),
]


def filter_file(
    file: Annotated[Path, typer.Argument(help="A submit file or a DAG file; - is standard input.")],
    datasets: DatasetsOption = None,
    datasets_file: DatasetsFileOption = None,
    from_inputs: FromInputsOption = False,
    gpu: GpuOption = None,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
) -> None:
    """Print a submit file or a DAG file with RequiredDatasets added, every other byte as it is."""
    wanted = DatasetOptions(datasets or (), datasets_file, from_inputs, config, gpu or ())
    text = sys.stdin.buffer.read() if str(file) == "-" else read_input_file(file)
    filtered = _add_datasets(text, file, wanted)
    sys.stdout.buffer.write(filtered.text)


def wrap(
    command: Annotated[
        list[str], typer.Argument(help="-- condor_submit … FILE, or condor_submit_dag … FILE")
    ],
    datasets: DatasetsOption = None,
    datasets_file: DatasetsFileOption = None,
    from_inputs: FromInputsOption = False,
    gpu: GpuOption = None,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    refuse_nowhere: Annotated[
        bool,
        typer.Option(
            "--refuse-nowhere",
            help="Submit nothing, with status 3, where no site has all data of a job, or of a node, now.",
        ),
    ] = False,
) -> None:
    """Run condor_submit or condor_submit_dag with RequiredDatasets added; its exit status is ours.

    A submit file is not changed and no copy is made: condor_submit gets the line by -append.
    A DAG gets a copy beside it, NAME.hydrator.dag, since DAGMan reads it for as long as it runs. No copy is
    ever changed: another one with other datasets is NAME.2.hydrator.dag. What was written for a submission
    that is refused is removed.
    """
    wanted = DatasetOptions(datasets or (), datasets_file, from_inputs, config, gpu or ())
    wanted.command = "\n".join(command)
    tool = Path(command[0]).name
    if tool not in ("condor_submit", "condor_submit_dag"):
        raise ExitWithMessage(
            f"{command[0]}: wrap runs condor_submit or condor_submit_dag; give it behind --"
        )
    if tool.endswith("_dag"):
        _submit_dag(command, wanted, refuse_nowhere=refuse_nowhere)
    else:
        _exec_condor_submit(command, wanted, refuse_nowhere=refuse_nowhere)


class ExitWithMessage(typer.Exit):
    """One sentence on stderr, and the exit status."""

    def __init__(self, message: str, status: int = 2) -> None:
        print(f"hydrator: {message}", file=sys.stderr)
        super().__init__(status)


class DagNodes:
    """The nodes of a DAG, or of several that are submitted as one, by the names that DAGMan gives them.

    A node of the second of several DAG files is ``1.A``, for DAGMan; it may be called ``A`` where no other
    file has an ``A``. A name that a DAG file has in quotes may be given without them.
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
        """Return the node that the option *said* calls *name*."""
        found = [name] if name in self.names else self._names_by_alias.get(name, [])
        if len(found) > 1:
            raise ExitWithMessage(
                f"{option}: several of the DAG files have a node {name}: say {' or '.join(found)}"
            )
        if not found:
            raise ExitWithMessage(f"{option}: the DAG has no node {name}")
        return found[0]


class ExitWithStatus(typer.Exit):
    """The exit status of a command, as a shell reports it."""

    def __init__(self, status: int) -> None:
        super().__init__(status if status >= 0 else 128 - status)


class DatasetOptions:
    """Which datasets the options name, and how inputs become datasets."""

    def __init__(
        self, texts: Sequence[str], file: Path | None, from_inputs: bool, config: Path, gpus: Sequence[str]
    ) -> None:
        self._config = config
        self._gpus = gpus
        self._settings: Settings | None = None
        self.from_inputs = from_inputs
        self.command = ""
        self.pool_names: dict[Did, Did] = {}
        """By DID, what the pool calls the datasets that were looked up last."""
        self.texts = [text for text in texts if text.strip()]
        lines = read_input_file(file).decode("utf-8", "replace").splitlines() if file else []
        self.file_dids = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]

    @property
    def has_options(self) -> bool:
        """Does any option say which datasets?"""
        return bool(self.texts or self.file_dids or self.from_inputs or self._gpus)

    @property
    def settings(self) -> "Settings | None":
        """The configuration; None where there is none at the usual place."""
        from hydrator.config import load

        if self._settings is None and (self._config != DEFAULT_CONFIG_PATH or self._config.exists()):
            self._settings = load(self._config)
        return self._settings

    @property
    def default_scope(self) -> str | None:
        return self.settings.daemon.default_scope if self.settings else None

    def pseudonymize(self, dids: "Collection[Did]", texts: Mapping[str, bytes]) -> "list[Did]":
        """What the pool calls *dids*: private ones have opaque names, by which the daemon knows them.

        *texts* become ads of jobs, which everybody reads: they must not show a private name.
        """
        from hydrator.privacy.exchange import fetch_pseudonyms
        from hydrator.privacy.pseudonyms import Privacy, find_leaks

        self.pool_names |= {did: did for did in dids}
        if self.settings is None or not self.settings.private.patterns:
            return list(dids)
        privacy = Privacy(tuple(self.settings.private.patterns))
        shown_by = {where: read.decode("utf-8", "replace") for where, read in texts.items()}
        for where, text in {"the command": self.command, **shown_by}.items():
            lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
            plain = privacy.find_mentions("\n".join(lines))
            shown = [
                f"{did} in: {line[:200]}" for did, line in find_leaks(text, privacy.select_private(dids))
            ]
            if plain or shown:
                raise ExitWithMessage(
                    f"{where} shows a private dataset, which everybody in the pool could read:"
                    f" {(shown or plain)[0]}; take it out, name it by --datasets alone; nothing was submitted"
                )
        self.pool_names |= fetch_pseudonyms(frozenset(dids), self.settings)
        return [self.pool_names[did] for did in dids]

    def parse_shared_datasets(self) -> "list[Did]":
        """The datasets of every job."""
        return self._parse_dids([did for text in self.texts for did in text.split(",")] + self.file_dids)

    def parse_node_datasets(self, nodes: "DagNodes") -> "dict[str, list[Did]]":
        """Return the datasets by node of a DAG: those for all JOBs, and those given as NODE=DIDs.

        FINAL, PROVISIONER and SERVICE nodes, which seldom read data, have only what is given by their name.
        """
        own: dict[str, list[str]] = {name: [] for name in nodes.names}
        shared = list(self.file_dids)
        for text in self.texts:
            name, equals, dids = text.partition("=")
            found = nodes.find(name, f"--datasets {text}") if equals and ":" not in name else None
            if found is None and equals and name in own:
                found = name
            (shared if found is None else own[found]).extend((text if found is None else dids).split(","))
        return {
            name: self._parse_dids((shared if name in nodes.jobs else []) + dids)
            for name, dids in own.items()
        }

    def gpu_lines(self, nodes: "DagNodes | None" = None) -> "dict[str, Sequence[str]]":
        """Return the lines that --gpu asks for, by node of a DAG; for a submit file by the name ``""``."""
        from hydrator.config import SubmitSettings
        from hydrator.submit.gpus import gpu_choice, submit_lines

        submit = self.settings.submit if self.settings else SubmitSettings()
        modes: dict[str, str] = {}
        for text in self._gpus:
            node, equals, mode = text.rpartition("=")
            if mode not in ("no", "prefer", "require"):
                raise ExitWithMessage(f"--gpu {text}: say no, prefer or require")
            if equals and nodes is None:
                raise ExitWithMessage(f"--gpu {text}: this is not a DAG: say --gpu {mode}")
            everything = nodes.jobs if nodes else [""]
            modes |= dict.fromkeys(
                [nodes.find(node, f"--gpu {text}")] if equals and nodes else everything, mode
            )
        chosen = {node: gpu_choice(submit, mode) for node, mode in modes.items()}
        if submit.require_gpus and chosen:
            self._check_expression(submit.require_gpus)
        return {node: submit_lines(choice) for node, choice in chosen.items() if choice}

    def _check_expression(self, expression: str) -> None:
        from hydrator.wiring import build_condor_client

        if self.settings is None:
            return
        client = build_condor_client(self.settings)
        try:
            client.check_expressions({"[submit].require_gpus": expression})
        finally:
            client.close()

    def find_input_datasets(self, names: Sequence[str]) -> "Mapping[str, Did]":
        """The names that are datasets, by [submit].names and [submit].patterns."""
        from hydrator.submit.dataset_resolver import apply_configuration

        if self.settings is None:
            raise ExitWithMessage(
                "--from-inputs needs [submit] names or patterns: name the configuration with --config"
            )
        return apply_configuration(names, self.settings)

    def _parse_dids(self, texts: Sequence[str]) -> "list[Did]":
        from hydrator.domain.errors import BadDid
        from hydrator.domain.model import parse_did

        found, problems = [], []
        for text in texts:
            if text.strip():
                try:
                    found.append(parse_did(text.strip(), self.default_scope))
                except BadDid as bad:
                    problems.append(str(bad))
        if problems:
            raise ExitWithMessage("; ".join(problems))
        return found


def _add_datasets(
    text: bytes, file: Path, options: DatasetOptions, folder: Path | None = None
) -> "FilterResult":
    """*text* of *file* with what is wanted added; what was left alone is said on stderr.

    Files that it names count from *folder*, as for HTCondor: from where the command is run.
    """
    from hydrator.submit.dag_file import add_datasets_to_dag, has_required_datasets, is_dag, read_dag
    from hydrator.submit.submit_file import SubmitFileError, add_datasets, is_description

    origin = "standard input" if str(file) == "-" else str(file)
    read = build_reader(folder or Path.cwd())
    try:
        if is_dag(text):
            dag = read_dag(text, read)
            nodes = DagNodes({node.name: node.kind for node in dag.nodes})
            dids = collect_dag_datasets(
                dag, options, read, options.parse_node_datasets(nodes), {origin: text}
            )
            filtered = add_datasets_to_dag(text, dids, dag, origin, extra_lines=options.gpu_lines(nodes))
        elif not is_description(text):
            raise ExitWithMessage(
                f"{origin} begins with a line that is neither of a submit description nor of a DAG"
            )
        else:
            found = options.parse_shared_datasets() + _find_input_datasets(text, {}, options, origin)
            called = options.pseudonymize(found, {origin: text})
            filtered = add_datasets(text, called, origin, read, options.gpu_lines().get("", ()))
    except SubmitFileError as bad:
        raise ExitWithMessage(str(bad)) from bad
    if filtered.text == text and not options.has_options and not has_required_datasets(text, read):
        raise ExitWithMessage(f"{origin}: which datasets? give --datasets, --datasets-file or --from-inputs")
    print_notes(filtered)
    return filtered


def print_notes(filtered: "FilterResult") -> None:
    for note in filtered.notes:
        print(f"hydrator: {note}", file=sys.stderr)


def collect_dag_datasets(
    dag: "Dag",
    options: DatasetOptions,
    read: Callable[[str], bytes | None],
    datasets_by_node: "dict[str, list[Did]]",
    texts: Mapping[str, bytes],
) -> "dict[str, list[Did]]":
    """*found*, the datasets by node, with those that the nodes' inputs name, as the pool calls them.

    *texts* has, by its name, the DAG file itself.
    """
    from hydrator.submit.submit_file import check_items

    texts = dict(texts)
    for node in dag.nodes:
        origin = f"node {node.name}" + (f" ({node.file})" if node.file else "")
        texts[origin] = node.content or b""
        if node.content is None:
            print(f"hydrator: {origin}: its file cannot be read: nothing is known of it", file=sys.stderr)
        elif node.has_datasets:
            check_items(node.content, origin, read)
        else:
            datasets_by_node[node.name] += _find_input_datasets(node.content, node.variables, options, origin)
    every = sorted({did for dids in datasets_by_node.values() for did in dids})
    names = dict(zip(every, options.pseudonymize(every, texts), strict=True))
    return {node: [names[did] for did in dids] for node, dids in datasets_by_node.items()}


def _find_input_datasets(
    text: bytes, variables: Mapping[str, str], options: DatasetOptions, origin: str
) -> "list[Did]":
    from hydrator.submit.submit_file import input_names

    if not options.from_inputs:
        return []
    names = input_names(text, variables, origin=origin)
    return list(options.find_input_datasets(names).values())


def build_reader(folder: Path) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        try:
            return (folder / name).read_bytes()
        except (OSError, ValueError):
            return None

    return read


def read_input_file(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ExitWithMessage(f"cannot read {file}: {error.strerror}") from error


def _exec_condor_submit(command: Sequence[str], options: DatasetOptions, *, refuse_nowhere: bool) -> None:
    """Become the condor_submit that submits the same file with our lines before its queue statements."""
    from hydrator.submit.dag_file import is_dag

    at = _find_file(command, _SUBMIT_OPTIONS_WITH_VALUE)
    if at is None or command[at] == "-":
        raise ExitWithMessage(
            "name a submit file: condor_submit's standard input cannot be looked at; see submit filter"
        )
    file = Path(command[at])
    text = read_input_file(file)
    if is_dag(text):
        raise ExitWithMessage(f"{file} is a DAG file: give condor_submit_dag behind --")
    filtered = _add_datasets(text, file, options)
    _warn_no_site(options, should_refuse=refuse_nowhere)
    lines = [line.strip() for line in filtered.insertion.decode("utf-8").splitlines() if line.strip()]
    # what stands before the file on the command line, the file overrides
    first = filtered.first_line.decode("utf-8").strip().replace("+", "MY.", 1).replace(" = ", "=", 1)
    if any(len(line.encode()) > _MAX_ARGUMENT_BYTES for line in (*lines, first)):
        _submit_copy(command, at, filtered.text)
    appended = [word for line in lines for word in ("-append", line)]
    words = [command[0], *([first] if first else []), *appended, *command[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(words[0], words)  # noqa: S606 - no shell
    except OSError as error:
        raise ExitWithMessage(f"cannot run {words[0]}: {error.strerror}", 127) from error


def _warn_no_site(
    options: DatasetOptions, *, should_refuse: bool, nodes: "Mapping[str, Collection[Did]] | None" = None
) -> None:
    """Say why no site can start the job now, where that is known to be so, and end here if asked to.

    *nodes* of a DAG have datasets of their own each, under the names that the pool calls them by.
    """
    from hydrator.cli.commands.why import explain_groups_without_site
    from hydrator.domain.errors import HydratorError

    text = ""
    if options.settings and options.pool_names:
        groups = nodes or {"": list(options.pool_names.values())}
        try:
            text = _join_by_sentence(
                explain_groups_without_site(options.settings, options.pool_names, groups)
            )
        except HydratorError as error:  # who cannot be asked keeps nobody from submitting
            print(f"hydrator: where its data is could not be asked: {error}", file=sys.stderr)
    if text and should_refuse:
        raise ExitWithMessage(f"{text}; nothing was submitted", EXIT_NO_MATCH_NOW)
    if text:
        print(f"hydrator: {text}", file=sys.stderr)


def _join_by_sentence(sentences: Mapping[str, str]) -> str:
    """Join the *sentences* of nodes; nodes that have the same one are named together."""
    from hydrator.domain.text import shorten_list

    nodes: dict[str, list[str]] = {}
    for node, sentence in sentences.items():
        nodes.setdefault(sentence, []).append(node)
    return shorten_list(
        [
            f"node{'s' * (len(named) > 1)} {shorten_list(named)}: {sentence}" if any(named) else sentence
            for sentence, named in nodes.items()
        ],
        "; ",
    )


def _submit_copy(command: Sequence[str], file_index: int, text: bytes) -> NoReturn:
    """Submit a copy beside the file, for lists that no argument can hold; condor_submit alone reads it."""
    file = Path(command[file_index])
    try:
        descriptor, name = tempfile.mkstemp(f".{file.name[:100]}.hydrator", ".", file.parent)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(text)
            raise ExitWithStatus(run_command([*command[:file_index], name, *command[file_index + 1 :]]))
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise ExitWithMessage(
            f"cannot write beside {file}: {error.strerror}: a copy must stand there", 1
        ) from error


def _submit_dag(command: Sequence[str], options: DatasetOptions, *, refuse_nowhere: bool) -> NoReturn:
    """Run condor_submit_dag on a copy of the DAG with our lines; where it refuses, no copy is left."""
    from hydrator.cli.output.new_files import lock_folder, remove_files

    from .wrap_dag import write_copies

    places = _find_files(command, _DAG_OPTIONS_WITH_VALUE)
    if not places:
        raise ExitWithMessage("name a DAG file: condor_submit_dag FILE")
    files = [Path(command[at]) for at in places]
    beside = "-usedagdir" in [word.lower() for word in command]
    with lock_folder(files[0].parent):
        copies = write_copies(
            files,
            options,
            should_use_dag_folder=beside,
            check_nodes=lambda nodes: _warn_no_site(options, should_refuse=refuse_nowhere, nodes=nodes),
        )
        words = list(command)
        for at, file in zip(places, copies.files, strict=True):
            words[at] = str(file)
        status = 127
        try:
            status = run_command(words)
        finally:
            if status > 0:
                remove_files(copies.new_files)
    raise ExitWithStatus(status)


def run_command(argv: Sequence[str]) -> int:
    """Run *words* to their end, and return the status; a negative one is a signal's."""
    from hydrator.cli.output.new_files import run_to_completion

    sys.stdout.flush()
    sys.stderr.flush()
    try:
        return run_to_completion(argv)
    except OSError as error:
        raise ExitWithMessage(f"cannot run {argv[0]}: {error.strerror}", 127) from error


def _find_file(command: Sequence[str], options_with_value: Sequence[str]) -> int | None:
    """Return the place of the file in an HTCondor submit command."""
    return next(iter(_find_files(command, options_with_value)), None)


def _find_files(command: Sequence[str], options_with_value: Sequence[str]) -> list[int]:
    """Return the places of the files in an HTCondor submit command; its options may be shortened."""
    found = []
    at = 1
    while at < len(command):
        word = command[at]
        option = word.lstrip("-").lower()
        if word == "-" or not word.startswith("-"):
            if "=" not in word or Path(word).exists():
                found.append(at)
        elif option == "queue":
            break
        elif any(name.startswith(option) for name in options_with_value) and len(option) > (
            option[:1] in "dm"
        ):
            at += 1
        at += 1
    return found
