"""The page that says why a job is idle, in the words of ``hydrator why``. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from urllib.parse import parse_qs

from hydrator.diagnostics.why.query import JOB_PATTERN
from hydrator.diagnostics.why.render import COLUMNS, RenderedAnswer

from .html import render_document, render_notice, render_row, render_table, render_time

BAD_JOB = "say which job: 123 for a cluster, 123.4 for one job"


@dataclass(frozen=True, slots=True)
class JobQuery:
    """What the form asks for: texts, as they came; ``schedd`` is empty for all of them."""

    job: str = ""
    schedd: str = ""

    @property
    def cluster_and_proc(self) -> tuple[int, int | None] | None:
        """Cluster and proc; None where the text is no job."""
        found = JOB_PATTERN.match(self.job)
        return (int(found[1]), None if found[2] is None else int(found[2])) if found else None


def parse_job_query(query: bytes) -> JobQuery | None:
    """What *query* asks for; None where it asks for nothing, no job where it says anything else."""
    try:
        fields = parse_qs(
            query.decode("latin-1"), keep_blank_values=True, errors="replace", max_num_fields=50
        )
    except ValueError:
        return JobQuery()
    if fields.keys() - {"job", "schedd"}:
        return JobQuery()
    given = {key: values[-1].strip()[:200] for key, values in fields.items()}
    return JobQuery(given["job"], given.get("schedd", "")) if "job" in given else None


def render_job_form(query: JobQuery | None = None) -> str:
    """The fields for a job, on this page and on the first one."""
    query = query or JobQuery()
    return (
        '<form method="get" action="/why" role="search" aria-label="Why is a job idle?">'
        f'<div><label for="job">Job</label><input id="job" name="job" required maxlength="21" '
        f'placeholder="123.0" value="{escape(query.job)}"></div>'
        '<div><label for="schedd">Schedd, if several have it</label>'
        f'<input id="schedd" name="schedd" maxlength="200" value="{escape(query.schedd)}"></div>'
        "<button>Why?</button></form>"
    )


def render_why_page(query: JobQuery | None, answers: Sequence[RenderedAnswer] | str, *, now: datetime) -> str:
    """The whole page; *told* is what was found, or one sentence on why nothing was."""
    title = f"Why is job {query.job} idle?" if query and query.cluster_and_proc else "Why is a job idle?"
    parts = render_notice(escape(answers)) if isinstance(answers, str) else "".join(_render_answers(answers))
    body = (
        f'<header><p><a href="/">Where the data is</a></p><h1>{escape(title)}</h1>'
        f'<p>Asked {render_time(now)}.</p></header><main id="main" tabindex="-1">{render_job_form(query)}{parts}</main>'
    )
    return render_document(title, body)


def _render_answers(answers: Sequence[RenderedAnswer]) -> Iterable[str]:
    for number, one in enumerate(answers, 1):
        yield f"<h2>{escape(one.lines[0])}</h2>" + "".join(f"<p>{escape(line)}</p>" for line in one.lines[1:])
        if one.rows:
            rows = (
                render_row(escape(head), map(escape, cells)) for head, *cells in _repeat_site_names(one.rows)
            )
            name = f"Sites, and why the job does not match there ({number})"
            yield render_table("Sites, and why the job does not match there", COLUMNS, rows, name)
        if one.remedy:
            yield f"<p><strong>{escape(one.remedy)}</strong></p>"


def _repeat_site_names(rows: Iterable[tuple[str, ...]]) -> Iterable[tuple[str, ...]]:
    """Every row with the name of its site: a header may not be empty."""
    site = ""
    for head, *cells in rows:
        site = head or site
        yield (site, *cells)
