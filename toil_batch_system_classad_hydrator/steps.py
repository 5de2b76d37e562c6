"""The inputs of one CWL step, from Toil's job store: they decide which datasets the step reads."""

import logging
from typing import Any

from toil.common import Toil
from toil.job import Job, JobDescription

logger = logging.getLogger(f"toil.{__name__}")  # Toil prints what is below its own


def inputs_of(job_desc: JobDescription, job_store: str) -> Any:  # noqa: ANN401 - JSON
    """The step's CWL inputs as far as the leader knows them, or None.

    Inputs that an earlier step is still to produce are promises; they are no data of a catalogue.
    This reads what the leader has written itself. Toil promises no such interface: whatever goes
    wrong here means that nothing is known of the step, and the run's own list holds.
    """
    try:
        if not job_desc.has_body():
            return None
        job = Job.loadJob(Toil.resumeJobStore(job_store), job_desc)
    except Exception as failed:  # noqa: BLE001 - see above
        logger.debug("no inputs are known of %s: %r", job_desc, failed)
        return None
    return getattr(job, "cwljob", None)
