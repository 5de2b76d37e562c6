"""What stands between Rapthor and ``toil-cwl-runner``: ``python -m … shim REAL ARGUMENT…``.

Rapthor knows nothing of HTCondor, so its call for Slurm is changed into one for us: each step a job
of its own (no chaining, or several steps would be one job with the first one's name and data), with
the run, the operation and the operation's datasets in the environment, where the batch system looks.
A call for another batch system is passed on as it is.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from . import BATCH_SYSTEM_NAME
from .affinity import SITE_FILE_VARIABLE
from .datasets import DatasetsError, NamingRules, find_required_dids, format_did_list, parse_did_list

REPLACED_BATCH_SYSTEMS = frozenset({"slurm", "slurm_static"})
_MESSAGE_PREFIX = "toil-cwl-runner (classad-hydrator)"


def translate_call(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]] | None:
    """Arguments and additions to the environment for the real program, or None to leave all as it is.

    Raises:
        DatasetsWrong: the configuration, the run's list or the inputs cannot be read.
    """
    if _option_value(arguments, "--batchSystem") not in REPLACED_BATCH_SYSTEMS:
        return None
    kept = [
        BATCH_SYSTEM_NAME if _is_batch_system_value(arguments, index) else word
        for index, word in enumerate(arguments)
    ]
    kept = [
        f"--batchSystem={BATCH_SYSTEM_NAME}" if word.startswith("--batchSystem=") else word for word in kept
    ]
    if _option_value(arguments, "--disableChaining") is None:
        kept = ["--disableChaining", "True", *kept]
    store = _option_value(arguments, "--jobStore")
    more = _run_variables(store, environment) if store else {}
    run = parse_did_list(environment.get("_CONDOR_RequiredDatasets"))
    own = find_required_dids(
        _load_inputs(arguments), NamingRules.load(environment.get("HYDRATOR_CONFIG")), run
    )
    if own:
        more["_CONDOR_RequiredDatasets"] = format_did_list(own)
    return kept, more


def _run_variables(store: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Run, operation and the file of the run's site, from ``DIR_WORKING/pipelines/OPERATION/jobstore``."""
    operation = Path(store.removeprefix("file:")).absolute().parent
    working = operation.parent.parent
    digest = hashlib.sha256(str(working).encode()).hexdigest()[:8]
    wanted = {
        "_CONDOR_RapthorRun": f'"{_safe_name(working.name)}-{digest}"',
        "_CONDOR_RapthorOperation": f'"{_safe_name(operation.name)}"',
        SITE_FILE_VARIABLE: str(operation.parent / ".classad-hydrator-site.json"),
    }
    always = "_CONDOR_RapthorOperation"
    return {name: value for name, value in wanted.items() if name == always or name not in environment}


def _safe_name(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name)


def _option_value(arguments: Sequence[str], name: str) -> str | None:
    for index, word in enumerate(arguments):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name and index + 1 < len(arguments):
            return arguments[index + 1]
    return None


def _is_batch_system_value(arguments: Sequence[str], index: int) -> bool:
    return index > 0 and arguments[index - 1] == "--batchSystem"


def _load_inputs(arguments: Sequence[str]) -> object:
    """The operation's inputs: the last argument, where that is a JSON file."""
    if not arguments or not arguments[-1].endswith(".json"):
        return None
    try:
        found: object = json.loads(Path(arguments[-1]).read_text("utf-8"))
    except (OSError, ValueError) as wrong:
        raise DatasetsError(f"{arguments[-1]}: the operation's inputs cannot be read: {wrong}") from wrong
    return found


def main(arguments: Sequence[str]) -> NoReturn:
    """Become the real program, or end with one sentence: status 2, or 127 where it cannot be started."""
    if not arguments:
        _exit_with_message("name the real toil-cwl-runner first", 2)
    real, *words = arguments
    try:
        new = translate_call(words, os.environ)
    except DatasetsError as wrong:
        _exit_with_message(str(wrong), 2)
    kept, more = new or (words, {})
    try:
        os.execve(real, [real, *kept], {**os.environ, **more})  # noqa: S606 - this is what a shim does
    except OSError as failed:
        _exit_with_message(f"cannot start {real}: {failed.strerror}", 127)


def _exit_with_message(sentence: str, status: int) -> NoReturn:
    print(f"{_MESSAGE_PREFIX}: {sentence}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
