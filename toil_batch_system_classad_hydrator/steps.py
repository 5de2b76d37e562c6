"""The inputs of one CWL step, from Toil's job store: they decide which datasets the step reads."""

from collections.abc import Mapping
from typing import Any

from toil.common import Toil
from toil.job import Job, JobDescription


class StepInputsError(Exception):
    """Toil's job store did not say what a step reads; the text says why."""


def load_step_inputs(job_desc: JobDescription, job_store: str) -> Any:  # noqa: ANN401 - JSON
    """Return the step's CWL inputs, or None where it has none.

    When a step is issued the earlier ones have ended, so what they produced can be read, too. Of an input
    with ``valueFrom`` this is what the expression is given, not what it makes of it.

    Raises:
        InputsUnknown: reading failed. Toil promises no such interface, so anything may go wrong.
    """
    try:
        if not job_desc.has_body():
            return None
        job = Job.loadJob(Toil.resumeJobStore(job_store), job_desc)
        inputs = getattr(job, "cwljob", None)
        return (
            {name: _resolve_value(one) for name, one in inputs.items()}
            if isinstance(inputs, Mapping)
            else inputs
        )
    except Exception as failed:
        raise StepInputsError(f"{type(failed).__name__}: {failed}") from failed


def _resolve_value(value: Any) -> Any:  # noqa: ANN401 - JSON, or what Toil puts in its place
    """Return *value*, or what it stands for: the output of an earlier step, an input of the workflow."""
    resolve = getattr(value, "resolve", None)
    return resolve() if callable(resolve) else value
