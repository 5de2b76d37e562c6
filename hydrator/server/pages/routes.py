"""Routes of the pages for people, and of their script; the pages of a dataset, a run and an idle job."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from urllib.parse import quote
from zlib import crc32

from starlette.requests import Request
from starlette.responses import Response

from hydrator.diagnostics.overview.runs import RunProgress, count_idle_jobs, find_run, measure_progress
from hydrator.diagnostics.problems import describe_dataset
from hydrator.diagnostics.why.query import parse_job_number
from hydrator.diagnostics.why.render import COLUMNS, RenderedAnswer
from hydrator.domain.ads.openings import Openings, describe_outlook
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import DaemonKnowledge, Did, Site, Unseen
from hydrator.domain.ports import ClusterJobs
from hydrator.server.handlers import MAX_NAME_COMPARED, JobExplainer, Sources, find_similar_sites
from hydrator.server.limits import QuestionQueue
from hydrator.server.middleware import client_of
from hydrator.server.pages.html import SCRIPT, build_bar, render_page
from hydrator.server.pages.overview import parse_selection, render_overview
from hydrator.server.pages.site import render_site_page
from hydrator.server.responses import HttpError, bytes_response, html_response
from hydrator.server.view import ServerState, view_datasets, view_sites

MAX_SETS: Final = 20
"""Largest number of sets of datasets that the page lists."""


def render_dataset_page(did: Did, server_state: ServerState, knowledge: DaemonKnowledge) -> str:
    """Render the page of *did*."""
    load, demand = server_state.load, server_state.demand
    (dataset,) = view_datasets(server_state, knowledge, [did])
    sets = sorted(
        (entry for entry in demand.entries if did in entry.dids and entry.job_count),
        key=lambda entry: (-entry.job_count, entry.dids),
    )
    return render_page(
        "dataset.html",
        f"Dataset {did}",
        version=server_state.version,
        now=server_state.now,
        dataset=dataset,
        note=describe_dataset(dataset, server_state.now),
        idle_count=count_idle_jobs(did, load, demand) if load else None,
        silent_schedds=load.unseen_reason if load else None,
        sets=sets[:MAX_SETS],
        more_sets=max(0, len(sets) - MAX_SETS),
        requests=[row for row in staging.requests if row.did == did]
        if (staging := server_state.staging)
        else (),
    )


CLUSTER_PATTERN: Final = re.compile(r"[0-9]{1,10}\Z")


def render_run_page(
    progress: RunProgress,
    openings: Openings | None,
    *,
    note: str = "",
    kind: str = "Run",
    version: str | None = None,
) -> str:
    """Render the page of *progress*; *note* is a sentence that limits what it says."""
    elsewhere_count = progress.running_count - progress.beside_count
    idle_count = progress.job_count - progress.running_count
    bar = build_bar({"bar": progress.beside_count, "move": elsewhere_count, "rest": idle_count})
    rows = [(each, describe_outlook(each.key, openings) if openings else "") for each in progress.waiting]
    return render_page(
        "run.html",
        f"{kind} {progress.name}",
        version=version,
        now=progress.as_of,
        progress=progress,
        rows=rows,
        note=note,
        bar=bar,
    )


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


_MAX_NAME_CHARS: Final = 500
_MAX_FIELD_CHARS: Final = 200
_HELD_NOTE: Final = "Held jobs are not counted here: the page of their cluster counts them."
"""A search for the held jobs of a run would read each queue from its begin to its end."""


@dataclass(eq=False)
class PageRoutes:
    """The pages; each shows one moment of the state.

    Attributes:
        sources: the functions that the pages get their content from.
        queue: the questions about idle jobs that run or wait: each queries the whole pool.
        cluster_queue: those about clusters.
    """

    sources: Sources
    queue: QuestionQueue = field(default_factory=lambda: QuestionQueue("the daemon explains other jobs"))
    cluster_queue: QuestionQueue = field(
        default_factory=lambda: QuestionQueue("the daemon asks the schedds about other clusters")
    )

    def overview(self, request: Request) -> Response:
        """Return the overview."""
        state = self._begin()
        page = render_overview(
            state,
            parse_selection(request.query_params),
            can_explain_jobs=self.sources.explain_job is not None,
        )
        return html_response(request, page)

    def site(self, request: Request) -> Response:
        """Return the page of one site."""
        state = self._begin()
        site = Site(_find_name(request, "site"))
        sites = {each.site: each for each in view_sites(state)}
        if site not in sites:
            similar = find_similar_sites(site, sites)
            links = [(each, f"/site?site={quote(each, safe='')}") for each in similar]
            sentence = f"The daemon knows no site {site[:MAX_NAME_COMPARED]!r}."
            return _missing_response(request, "No such site", sentence, links)
        page = render_site_page(sites[site], state, self.sources.read_changes(site))
        return html_response(request, page)

    def dataset(self, request: Request) -> Response:
        """Return the page of one dataset."""
        state = self._begin()
        did = Did(_find_name(request, "did"))
        if state.knowledge is None or did not in state.known_dids:
            sentence = (
                f"No job, pin or pattern names the dataset {did[:MAX_NAME_COMPARED]!r}, so the daemon does"
                " not ask the catalogues about it. Names are scope:name, in the letter case of the catalogue."
            )
            links = [("Find datasets with a similar name", f"/?find={quote(did[-40:], safe='')}#datasets")]
            return _missing_response(request, "No such dataset", sentence, links if did else [])
        return html_response(request, render_dataset_page(did, state, state.knowledge))

    def run(self, request: Request) -> Response:
        """Return the page of one run, of the jobs with one key, or of one cluster."""
        state = self._begin()
        if "cluster" in request.query_params:
            return self._cluster(request, state)
        name = _find_name(request, "run")
        if state.load is None:
            reason = state.knowledge.no_openings_reason if state.knowledge else None
            reason = reason or "the daemon has not read the queues yet"
            sentence = f"The daemon does not know the jobs in the queues: {reason}."
            return _missing_response(request, "The jobs are not known", sentence, [])
        progress = find_run(name, state.load, state.demand, state.snapshot) if name else None
        if progress is None:
            sentence = (
                f"No queued or running job belongs to the run {name[:MAX_NAME_COMPARED]!r} or has this key."
                " Held jobs are on the page of their cluster, /run?cluster=NUMBER;"
                " jobs that have ended are in hydrator report."
            )
            return _missing_response(request, "No such run", sentence, [])
        page = render_run_page(progress, state.openings, note=_HELD_NOTE, version=state.version)
        return html_response(request, page)

    def _cluster(self, request: Request, state: ServerState) -> Response:
        """Return the page of one cluster; if several schedds have a cluster with this number, list them."""
        text, schedd = _find_name(request, "cluster"), _find_name(request, "schedd") or None
        if not CLUSTER_PATTERN.match(text):
            sentence = f"{text[:MAX_NAME_COMPARED]!r} is not a cluster: write its number, such as 123."
            return _missing_response(request, "Not a cluster", sentence, [], 400)
        read_cluster = self.sources.read_cluster
        if read_cluster is None:
            sentence = "The daemon does not ask the schedds about jobs: demand.ask_schedds is false."
            return _missing_response(request, "The jobs are not known", sentence, [])
        try:
            answers = self.cluster_queue.ask(
                client_of(request.scope), lambda: read_cluster(int(text), schedd)
            )
        except PoolError as error:
            return _missing_response(request, "The pool did not answer", f"{error}.", [], 502)
        found = {name: each for name, each in answers.items() if isinstance(each, ClusterJobs)}
        silent = "; ".join(
            f"schedd {name} did not answer: {each.reason}"
            for name, each in sorted(answers.items())
            if isinstance(each, Unseen)
        )
        if len(found) != 1:
            return _cluster_choice_response(request, int(text), sorted(found), silent)
        ((name, jobs),) = found.items()
        progress = measure_progress(f"{int(text)} at {name}", jobs, state.demand, state.snapshot)
        note = "" if jobs.is_complete else "The cluster has more jobs than are counted here."
        page = render_run_page(progress, state.openings, note=note, kind="Cluster", version=state.version)
        return html_response(request, page)

    def why(self, request: Request) -> Response:
        """Return the page; the HTTP status says whether the daemon could explain the job."""
        if self.sources.explain_job is None:
            detail = (
                "this page explains jobs only to clients with a token, and no tokens are configured:"
                " set publish.http.tokens_file, or run hydrator why"
            )
            raise HttpError(403, "no tokens", detail)
        fields = {name: text.strip()[:_MAX_FIELD_CHARS] for name, text in request.query_params.items()}
        client = client_of(request.scope)
        answers, status = self._explain(self.sources.explain_job, client, fields) if fields else ([], 200)
        page = render_why_page(fields, answers, now=self.sources.get_state().now)
        return html_response(request, page, status)

    def _explain(
        self, explain_job: JobExplainer, client: Hashable, fields: Mapping[str, str]
    ) -> tuple[list[RenderedAnswer] | str, int]:
        """Return the answers about the job in *fields*, or why there are none, and the HTTP status."""
        number = parse_job_number(fields.get("job", ""))
        if number is None or fields.keys() - {"job", "schedd"}:
            return BAD_JOB, 400
        try:
            return self.queue.ask(client, lambda: explain_job(*number, fields.get("schedd") or None)), 200
        except ConfigError as error:
            return "; ".join(error.problems), 400
        except PoolError as error:
            return str(error), 404 if error.daemon.startswith("job ") else 502

    async def script(self, request: Request) -> Response:
        """Return the script of the pages; its address changes with its content."""
        answer = bytes_response(request, SCRIPT, "text/javascript; charset=utf-8")
        answer.headers["Cache-Control"] = "public, max-age=604800, immutable"
        return answer

    async def version(self, request: Request) -> Response:
        """Return the version of the pages; an open page asks every 3 s, and loads itself again.

        It has no data of the pool: the page's script then loads the page again, with the reader's token.
        """
        return bytes_response(request, self._version_id().encode(), "text/plain")

    def _version_id(self) -> str:
        return f"{crc32(repr(self.sources.get_version()).encode()):08x}"

    def _begin(self) -> ServerState:
        """Return the state with its version, which is read first, so that no change is missed."""
        version = self._version_id()
        return replace(self.sources.get_state(), version=version)


def _cluster_choice_response(request: Request, cluster: int, schedds: Sequence[str], silent: str) -> Response:
    """Return the page of a cluster that no schedd has, or several have."""
    if not schedds:
        where = "No schedd that answered has" if silent else "No schedd has"
        sentence = f"{where} queued or running jobs of cluster {cluster}."
        more = f" {silent}." if silent else " Jobs that have ended are in hydrator report."
        return _missing_response(request, "No such cluster", sentence + more, [])
    links = [
        (f"{cluster} at {each}", f"/run?cluster={cluster}&schedd={quote(each, safe='')}") for each in schedds
    ]
    sentence = f"Several schedds have a cluster {cluster}: choose one."
    return _missing_response(request, f"Which cluster {cluster}?", sentence, links, 400)


def _missing_response(
    request: Request, title: str, sentence: str, links: Sequence[tuple[str, str]], status: int = 404
) -> Response:
    """Return a page that says in one sentence why there is nothing to show."""
    return html_response(request, render_page("missing.html", title, sentence=sentence, links=links), status)


def _find_name(request: Request, field_name: str) -> str:
    """Return a name in the query of a page; empty if the query has none."""
    return request.query_params.get(field_name, "").strip()[:_MAX_NAME_CHARS]
