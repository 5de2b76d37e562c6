"""Page that explains why a job is idle, with the sentences of ``hydrator why``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hydrator.diagnostics.why.query import JOB_PATTERN
from hydrator.diagnostics.why.render import COLUMNS, RenderedAnswer

from .html import render_page

BAD_JOB = "this is not a job: write 123 for a cluster, 123.4 for one job"


@dataclass(frozen=True, slots=True)
class JobQuery:
    """The fields of the form as the browser sent them; an empty ``schedd`` means all schedds."""

    job: str = ""
    schedd: str = ""

    @property
    def cluster_and_proc(self) -> tuple[int, int | None] | None:
        """Cluster and proc; proc is None for a whole cluster. None if ``job`` is not a job number."""
        match = JOB_PATTERN.match(self.job)
        return (int(match[1]), None if match[2] is None else int(match[2])) if match else None


def parse_job_query(query: Mapping[str, str]) -> JobQuery | None:
    """Parse the query in the page's URL.

    Returns:
        None if the query names no job. A JobQuery with empty fields if the query has other fields.
    """
    if query.keys() - {"job", "schedd"}:
        return JobQuery()
    values = {key: text.strip()[:200] for key, text in query.items()}
    return JobQuery(values["job"], values.get("schedd", "")) if "job" in values else None


def render_why_page(query: JobQuery | None, answers: Sequence[RenderedAnswer] | str, *, now: datetime) -> str:
    """Render the page with the explanations, or with the reason why an explanation is not possible."""
    problem, listed_answers = (answers, ()) if isinstance(answers, str) else ("", answers)
    return render_page(
        "why.html",
        f"Why is job {query.job} idle?" if query and query.cluster_and_proc else "Why is a job idle?",
        now=now,
        query=query,
        problem=problem,
        answers=[(answer, _repeat_site_names(answer.rows)) for answer in listed_answers],
        columns=COLUMNS,
    )


def _repeat_site_names(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows with the name of the site in each: the header cell of a row must not be empty."""
    named_rows = []
    site = ""
    for head, *cells in rows:
        site = head or site
        named_rows.append((site, *cells))
    return named_rows
