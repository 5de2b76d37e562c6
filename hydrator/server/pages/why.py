"""Page that explains why a job is idle, with the sentences of ``hydrator why``."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from hydrator.diagnostics.why.query import parse_job_number
from hydrator.diagnostics.why.render import COLUMNS, RenderedAnswer

from .html import render_page

BAD_JOB = "this is not a job: write 123 for a cluster, 123.4 for one job"


def render_why_page(
    fields: Mapping[str, str], answers: Sequence[RenderedAnswer] | str, *, now: datetime
) -> str:
    """Render the page with the explanations, or with the reason why an explanation is not possible.

    *fields* has what the user typed into the form: ``job``, and ``schedd``, empty for all schedds.
    """
    job = fields.get("job", "")
    problem, listed_answers = (answers, ()) if isinstance(answers, str) else ("", answers)
    return render_page(
        "why.html",
        f"Why is job {job} idle?" if parse_job_number(job) else "Why is a job idle?",
        now=now,
        job=job,
        schedd=fields.get("schedd", ""),
        problem=problem,
        answers=listed_answers,
        columns=COLUMNS,
    )
