"""The page that explains an idle job: the text of ``hydrator why``, for tokens only, one job at a time."""

import threading

import httpx
import pytest

from hydrator.cli.commands import why as command
from hydrator.diagnostics.why.query import ask_job
from hydrator.diagnostics.why.render import render_result
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import Site, Snapshot
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from hydrator.server.pages.routes import render_why_page
from hydrator.server.view import ServerState
from tests.factories import NOON, demand, server_state
from tests.served import server_of
from tests.unit.diagnostics.test_why import IDLE, FakePool, asked
from tests.unit.server.pages.test_overview import HOSTILE, Parsed

pytestmark = pytest.mark.outside

SITE_TOKEN, READ_TOKEN = "site", "read"


class Pool:
    """A stand-in for the daemon's explanation; a test may make it fail or wait."""

    def __init__(self, tokens) -> None:
        self.asked = []
        self.trouble = None
        self.patience = None
        file = tokens / "tokens"
        made = {
            SITE_TOKEN: create_token(Role.SITE, Site("CAM"), "2026-11-21"),
            READ_TOKEN: create_token(Role.READ, None, "2026-11-21"),
        }
        file.write_text("".join(grant.line for _, grant in made.values()))
        file.chmod(0o600)
        self.tokens = {name: token for name, (token, _) in made.items()}
        self.access = TokenAuthenticator(file)

    def question(self, *what):
        self.asked.append(what)
        if self.patience:
            self.patience.wait(60)
        if self.trouble:
            raise self.trouble
        return render_result(ask_job(asked(FakePool({"a": IDLE})), *what))


def view() -> ServerState:
    return server_state({}, Snapshot({}), demand(), None, NOON)


@pytest.fixture
def pool(tmp_path):
    return Pool(tmp_path)


@pytest.fixture
def get(pool):
    with (
        server_of(view, authenticator=pool.access, explain_job=pool.question) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=120) as client,
    ):

        def asking(path: str, token: str = READ_TOKEN) -> httpx.Response:
            return client.get(path, headers={"Authorization": f"Bearer {pool.tokens[token]}"})

        yield asking


def test_why_page_has_the_text_of_the_command(get, pool, capsys):
    answer = get("/why?job=7.1&schedd=a")
    found = ask_job(asked(FakePool({"a": IDLE})), 7, 1, "a")
    command.print_rendered(render_result(found))
    said = capsys.readouterr().out.splitlines()
    page = Parsed(answer.text)
    assert answer.status_code == 200
    assert pool.asked == [(7, 1, "a")]
    assert f"<h2>{said[0]}</h2>" in answer.text
    assert ["site", "slots", "match", "why not"] in page.rows
    assert [page.starting("CAM")[3]] == [why for *_, why in render_result(found)[0].rows]
    assert page.outside == []


def test_overview_has_the_why_form_only_where_jobs_can_be_explained(get):
    assert '<form method="get" action="/why"' in get("/").text
    assert '<input id="job"' in get("/why").text


def test_without_tokens_nobody_is_told_of_jobs(pool):
    server = server_of(view, explain_job=pool.question)
    with server, httpx.Client(trust_env=False, timeout=120) as client:
        refused = client.get(f"{server.url}/why?job=7")
        assert (refused.status_code, refused.json()["error"]) == (403, "no tokens")
        assert 'action="/why"' not in client.get(server.url).text
    assert pool.asked == []


def test_why_page_is_refused_for_a_token_of_one_site(get, pool):
    assert get("/why?job=7", SITE_TOKEN).status_code == 403
    assert pool.asked == []


@pytest.mark.parametrize("job", ["", "x", "7.", "-1", "7.0.0", "1" * 11, "7;rm", "%D9%A7"])
def test_why_page_rejects_a_text_that_is_not_a_job_without_asking_the_pool(get, pool, job):
    answer = get(f"/why?job={job}")
    assert (answer.status_code, "this is not a job: write 123" in answer.text) == (400, True)
    assert pool.asked == []


@pytest.mark.parametrize(
    ("trouble", "status"),
    [
        (PoolError("job 7", "no schedd has it"), 404),
        (PoolError("collector", "it does not answer"), 502),
        (ConfigError(["job 7 is at a, b: choose one with --schedd"]), 400),
    ],
)
def test_why_page_shows_a_failure_as_one_sentence(get, pool, trouble, status):
    pool.trouble = trouble
    answer = get("/why?job=7")
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert f'<p class="notice">{trouble}</p>' in answer.text


def test_why_page_answers_429_after_a_while_if_it_still_explains_another_job(get, pool):
    pool.patience = threading.Event()
    answers = []
    first = threading.Thread(target=lambda: answers.append(get("/why?job=7")))
    first.start()
    while not pool.asked:
        first.join(0.01)
    second = get("/why?job=8")
    pool.patience.set()
    first.join(60)
    assert (second.status_code, second.headers["Retry-After"]) == (429, "5")
    assert [answer.status_code for answer in answers] == [200]
    assert pool.asked == [(7, None, None)], "all jobs of the cluster, at all schedds"
    assert get("/why?job=9").status_code == 200


def test_hostile_words_are_shown_as_text():
    found = ask_job(asked(FakePool({"a": IDLE})), 7, None, None)
    shown = render_result(found, lambda _: HOSTILE)
    fields = {"job": HOSTILE, "schedd": HOSTILE}
    text = render_why_page(fields, shown, now=NOON) + render_why_page({}, HOSTILE, now=NOON)
    page = Parsed(text)
    assert page.tags.count("script") == 2  # the own script of each page
    assert HOSTILE not in text


def test_why_page_refuses_other_fields_and_without_any_it_has_the_form_alone(get, pool):
    for query in ("job=7&x=1", "schedd=a"):
        answer = get(f"/why?{query}")
        assert (answer.status_code, "this is not a job" in answer.text) == (400, True)
    answer = get("/why")
    assert (answer.status_code, "this is not a job" in answer.text) == (200, False)
    assert pool.asked == []
