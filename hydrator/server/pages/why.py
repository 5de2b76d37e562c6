"""The page that says why a job is idle, in the words of ``hydrator why``. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from urllib.parse import parse_qs

from hydrator.diagnostics.why.query import COLUMNS, JOB, Telling

from .html import document, moment, notice, row, table

BAD_JOB = "say which job: 123 for a cluster, 123.4 for one job"


@dataclass(frozen=True, slots=True)
class JobAsked:
    """What the form asks for: texts, as they came; ``schedd`` is empty for all of them."""

    job: str = ""
    schedd: str = ""

    @property
    def numbers(self) -> tuple[int, int | None] | None:
        """Cluster and proc; None where the text is no job."""
        found = JOB.match(self.job)
        return (int(found[1]), None if found[2] is None else int(found[2])) if found else None


def job_asked(query: bytes) -> JobAsked | None:
    """What *query* asks for; None where it asks for nothing, no job where it says anything else."""
    try:
        fields = parse_qs(
            query.decode("latin-1"), keep_blank_values=True, errors="replace", max_num_fields=50
        )
    except ValueError:
        return JobAsked()
    if fields.keys() - {"job", "schedd"}:
        return JobAsked()
    given = {key: values[-1].strip()[:200] for key, values in fields.items()}
    return JobAsked(given["job"], given.get("schedd", "")) if "job" in given else None


def form(asked: JobAsked | None = None) -> str:
    """The fields for a job, on this page and on the first one."""
    asked = asked or JobAsked()
    return (
        '<form method="get" action="/why" role="search" aria-label="Why is a job idle?">'
        f'<div><label for="job">Job</label><input id="job" name="job" required maxlength="21" '
        f'placeholder="123.0" value="{escape(asked.job)}"></div>'
        '<div><label for="schedd">Schedd, if several have it</label>'
        f'<input id="schedd" name="schedd" maxlength="200" value="{escape(asked.schedd)}"></div>'
        "<button>Why?</button></form>"
    )


def render(asked: JobAsked | None, told: Sequence[Telling] | str, *, now: datetime) -> str:
    """The whole page; *told* is what was found, or one sentence on why nothing was."""
    title = f"Why is job {asked.job} idle?" if asked and asked.numbers else "Why is a job idle?"
    parts = notice(escape(told)) if isinstance(told, str) else "".join(_answers(told))
    body = (
        f'<header><p><a href="/">Where the data is</a></p><h1>{escape(title)}</h1>'
        f'<p>Asked {moment(now)}.</p></header><main id="main" tabindex="-1">{form(asked)}{parts}</main>'
    )
    return document(title, body)


def _answers(told: Sequence[Telling]) -> Iterable[str]:
    for number, one in enumerate(told, 1):
        yield f"<h2>{escape(one.lines[0])}</h2>" + "".join(f"<p>{escape(line)}</p>" for line in one.lines[1:])
        if one.rows:
            rows = (row(escape(head), map(escape, cells)) for head, *cells in _filled(one.rows))
            name = f"Sites, and why the job does not match there ({number})"
            yield table("Sites, and why the job does not match there", COLUMNS, rows, name)
        if one.soonest:
            yield f"<p><strong>{escape(one.soonest)}</strong></p>"


def _filled(rows: Iterable[tuple[str, ...]]) -> Iterable[tuple[str, ...]]:
    """Every row with the name of its site: a header may not be empty."""
    site = ""
    for head, *cells in rows:
        site = head or site
        yield (site, *cells)
