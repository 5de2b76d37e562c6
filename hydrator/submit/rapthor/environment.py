"""Environment for a Rapthor run whose steps Toil submits: shell exports that add the datasets to every job.

The exports work because HTCondor's clients read their configuration also from ``_CONDOR_…`` variables. Pure.
"""

import shlex
from collections.abc import Mapping

from hydrator.domain.errors import ConfigError

from .job import RapthorRun

SUBMIT_ATTRS = "_CONDOR_SUBMIT_ATTRS"
MAX_VARIABLE_BYTES = 131_071
"""Maximum length of a variable with its name and ``=``, without the final NUL (Linux, MAX_ARG_STRLEN)."""


def export_lines(run: RapthorRun, environment: Mapping[str, str], configured_attrs: str) -> str:
    """Return lines for a shell: every job that a user then submits from this shell has the datasets.

    No value has a ``;``, with which it would not reach the jobs of a DAG.

    Args:
        run: the run with its datasets.
        environment: the variables of the shell; the new SUBMIT_ATTRS extends its value.
        configured_attrs: SUBMIT_ATTRS of this host's HTCondor configuration, which the variable replaces.

    Raises:
        ConfigError: a value is too long.
    """
    attributes = run.attributes
    text = environment.get(SUBMIT_ATTRS) or configured_attrs
    own = {name.lower() for name in attributes}
    others = [word for word in text.replace(",", " ").split() if word.lower().removeprefix("+") not in own]
    values = {SUBMIT_ATTRS: " ".join([*others, *attributes])}
    values |= {f"_CONDOR_{name}": literal for name, literal in attributes.items()}
    problems = [
        f"{name} would take {size} bytes, but a variable can have {MAX_VARIABLE_BYTES};"
        " submit the whole run as one job instead"
        for name, value in values.items()
        if (size := len(f"{name}={value}".encode("utf-8", "surrogateescape"))) > MAX_VARIABLE_BYTES
    ]
    if problems:
        raise ConfigError(problems)
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
