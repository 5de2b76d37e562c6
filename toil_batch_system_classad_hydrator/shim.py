"""Shim between Rapthor and ``toil-cwl-runner``: ``python -m … shim REAL ARGUMENT…``.

Rapthor does not support HTCondor. So the shim changes Rapthor's call for Slurm into a call for this batch
system. It passes on a call for another batch system unchanged.

The shim disables Toil's chaining, so that each step is its own job. With chaining, several steps would be one
job with the name and the datasets of the first step. The shim also sets environment variables for the batch
system: the run, the operation and the operation's datasets.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from hydrator.domain.ads.dataset_sets import key_attributes

from . import BATCH_SYSTEM_NAME
from .affinity import SITE_FILE_VARIABLE
from .datasets import DatasetsError, NamingRules, find_required_dids, format_did_list, parse_did_list

REPLACED_BATCH_SYSTEMS = frozenset({"slurm", "slurm_static"})
_OPTIONS = ("--batchSystem=", "--disableChaining=", "--jobStore=")
_MESSAGE_PREFIX = "toil-cwl-runner (classad-hydrator)"


def translate_call(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]] | None:
    """Return the arguments and new variables for the real toil-cwl-runner; None if the call stays unchanged.

    Raises:
        DatasetsError: the configuration, the run's list of datasets or the inputs cannot be read.
    """
    # as two words, an option is found by its neighbour
    words = [
        part for word in arguments for part in (word.split("=", 1) if word.startswith(_OPTIONS) else [word])
    ]
    options = dict(pairwise(words))
    if options.get("--batchSystem") not in REPLACED_BATCH_SYSTEMS:
        return None
    words = [
        BATCH_SYSTEM_NAME if before == "--batchSystem" else word for before, word in pairwise(["", *words])
    ]
    if "--disableChaining" not in options:
        words = ["--disableChaining", "True", *words]
    store = options.get("--jobStore")
    variables = _run_variables(store, environment) if store else {}
    run_dids = parse_did_list(environment.get("_CONDOR_RequiredDatasets"))
    dids = find_required_dids(
        _load_inputs(arguments), NamingRules.load(environment.get("HYDRATOR_CONFIG")), run_dids
    )
    if dids:
        variables["_CONDOR_RequiredDatasets"] = format_did_list(dids)
        variables |= {f"_CONDOR_{name}": f'"{text}"' for name, text in key_attributes(dids).items()}
    return words, variables


def _run_variables(store: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for the run, the operation and the site file.

    Their values come from the path *store*: ``DIR_WORKING/pipelines/OPERATION/jobstore``.
    """
    operation = Path(store.removeprefix("file:")).absolute().parent
    working = operation.parent.parent
    digest = hashlib.sha256(os.fsencode(working)).hexdigest()[:8]
    variables = {
        "_CONDOR_WorkflowRun": f'"{_safe_name(working.name)}-{digest}"',
        "_CONDOR_RapthorOperation": f'"{_safe_name(operation.name)}"',
        SITE_FILE_VARIABLE: str(operation.parent / ".classad-hydrator-site.json"),
    }
    always = "_CONDOR_RapthorOperation"
    return {name: value for name, value in variables.items() if name == always or name not in environment}


def _safe_name(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name)


def _load_inputs(arguments: Sequence[str]) -> object:
    """Load the operation's inputs from the .json file that the last argument names; None if it names none."""
    if not arguments or not arguments[-1].endswith(".json"):
        return None
    try:
        inputs: object = json.loads(Path(arguments[-1]).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetsError(f"{arguments[-1]}: the operation's inputs cannot be read: {error}") from error
    return inputs


def main(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the real toil-cwl-runner.

    Exit with 2 if the call cannot be translated, with 127 if the real program cannot start.
    """
    if not arguments:
        _exit_with_message("give the path of the real toil-cwl-runner as the first argument", 2)
    real, *words = arguments
    try:
        new = translate_call(words, os.environ)
    except DatasetsError as error:
        _exit_with_message(str(error), 2)
    new_words, variables = new or (words, {})
    try:
        os.execve(real, [real, *new_words], {**os.environ, **variables})  # noqa: S606 - this is what a shim does
    except OSError as error:
        _exit_with_message(f"cannot start {real}: {error.strerror}", 127)


def _exit_with_message(sentence: str, status: int) -> NoReturn:
    print(f"{_MESSAGE_PREFIX}: {sentence}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
