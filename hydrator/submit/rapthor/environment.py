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


def export_lines(
    run: RapthorRun, environment: Mapping[str, str], current_values: Mapping[str, str | None]
) -> str:
    """Return lines for a shell: every job that a user then submits from this shell has the datasets.

    A value with ``;`` does not reach the jobs of a DAG, so no attribute has one.

    Args:
        run: the run with its datasets.
        environment: the variables of the shell; the new lines extend their values.
        current_values: the values of SUBMIT_ATTRS, APPEND_REQ_VANILLA and APPEND_RANK_VANILLA in this host's
            HTCondor configuration; the new variables replace these values, so the lines repeat them.

    Raises:
        ConfigError: a value has a ``;`` or is too long.
    """
    attributes = run.attributes
    values = {SUBMIT_ATTRS: _submit_attrs(attributes, environment, current_values)}
    values |= {f"_CONDOR_{name}": literal for name, literal in attributes.items()}
    values |= _expressions(run, environment, current_values)
    if problems := _value_problems(values):
        raise ConfigError(problems)
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def _submit_attrs(
    attributes: Mapping[str, str], environment: Mapping[str, str], current_values: Mapping[str, str | None]
) -> str:
    """Return the value of SUBMIT_ATTRS: its previous names, then the names of the run's *attributes*."""
    text = environment.get(SUBMIT_ATTRS) or current_values.get("SUBMIT_ATTRS") or ""
    own = {name.lower() for name in attributes}
    others = [word for word in text.replace(",", " ").split() if word.lower().removeprefix("+") not in own]
    return " ".join([*others, *attributes])


def _expressions(
    run: RapthorRun, environment: Mapping[str, str], current_values: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the variables that append the run's Requirements and Rank, joined to the previous values."""
    values = {}
    for name, operator, new in (
        ("APPEND_REQ_VANILLA", "&&", run.options.requirements),
        ("APPEND_RANK_VANILLA", "+", run.options.rank),
    ):
        old = environment.get(f"_CONDOR_{name}") or current_values.get(name)
        if new:
            values[f"_CONDOR_{name}"] = f"({old}) {operator} ({new})" if old and old != new else new
    return values


def _value_problems(values: Mapping[str, str]) -> list[str]:
    problems = [
        f"{name} would contain a ';', and such values do not reach the jobs of a DAG: {value[:100]}"
        for name, value in values.items()
        if ";" in value
    ]
    return problems + [
        f"{name} would take {size} bytes, but a variable can have {MAX_VARIABLE_BYTES};"
        " submit the whole run as one job instead"
        for name, value in values.items()
        if (size := len(f"{name}={value}".encode("utf-8", "surrogateescape"))) > MAX_VARIABLE_BYTES
    ]
