"""Step inputs: load the inputs of one CWL step, which decide on its datasets, from Toil's job store."""

from collections.abc import Mapping
from typing import Any

from toil.common import Toil
from toil.job import Job, JobDescription


class StepInputsError(Exception):
    """The inputs of a step cannot be loaded from Toil's job store; the text is the reason."""


def load_step_inputs(job_desc: JobDescription, job_store: str) -> Any:  # noqa: ANN401 - JSON
    """Return the step's CWL inputs, or None if it has none.

    The earlier steps have ended when Toil issues a step, so their outputs can be read too. An input with
    ``valueFrom`` has the value before that expression.

    Raises:
        StepInputsError: reading failed. Toil documents no such interface, so any error is possible.
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
    except Exception as error:
        raise StepInputsError(f"{type(error).__name__}: {error}") from error


def _resolve_value(value: Any) -> Any:  # noqa: ANN401 - JSON, or Toil's promise of it
    """Return *value*; if it is a promise, the output of an earlier step or an input of the workflow."""
    resolve = getattr(value, "resolve", None)
    return resolve() if callable(resolve) else value
