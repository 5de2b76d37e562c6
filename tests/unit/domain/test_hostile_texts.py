"""Hostile texts of users and clients do not delay other clients: /healthz answers meanwhile."""

import json
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from prometheus_client import CollectorRegistry

from adapters.condor.bindings.values import expression_text
from adapters.ska.dmapi_responses import BadAnswer, file_name
from hydrator.diagnostics.why.explain import explain
from hydrator.diagnostics.why.pool_facts import MAX_LIST_CHARS, MAX_TEXT_CHARS, JobFacts, JobStatus, parse_job
from hydrator.diagnostics.why.query import WhyResult
from hydrator.diagnostics.why.render import render_result
from hydrator.diagnostics.why.summary import summarize_jobs
from hydrator.domain.model import (
    DaemonKnowledge,
    DatasetState,
    Did,
    Fact,
    QueuedJobs,
    ScheddDemand,
    Site,
    SiteFacts,
    Snapshot,
)
from hydrator.domain.redaction import Redactor
from hydrator.privacy.pseudonym_store import PseudonymStore
from hydrator.privacy.pseudonyms import HIDDEN_DID, Privacy, Pseudonymizer
from hydrator.privacy.wrappers import PseudonymizedQueues
from hydrator.server.app import build_app
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from hydrator.server.handlers import TokenServices
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from tests.factories import NOON, demand
from tests.slowness import grows_evenly

pytestmark = pytest.mark.outside

VEIL = Pseudonymizer(Privacy(("*:secret_*", "*a*a*b*")), (bytes(range(40)),))
HIDE = Redactor(redact_further=VEIL.redact)
PIECES = ["a.", "a/", "eyJabcde-", "token ", "%3A", ":", "\\\\", '\\"', " ", "a:secret_", "é", '"a",']


def held(size: int, piece: str) -> JobFacts:
    """A held job with hostile texts of *size* characters wherever its owner may write."""
    text = piece * (size // len(piece))
    ad = {
        "ClusterId": "7",
        "JobStatus": "5",
        "HoldReason": f'"{text}"',
        "LastRejMatchReason": f'"{text}"',
        "RequiredDatasets": f'{{"{text}", "lofar:L1"}}',
    }
    return parse_job(ad, [0], "schedd")


def explained(job: JobFacts) -> list:
    return render_result(WhyResult((explain(job, (), None, now=NOON),)), HIDE)


@pytest.mark.parametrize("piece", PIECES)
def test_time_to_explain_a_job_grows_no_faster_than_its_texts(piece):
    grows_evenly(lambda size: explained(held(size, piece)), 20_000)


@pytest.mark.parametrize("piece", PIECES)
def test_time_to_read_a_queue_grows_no_faster_than_its_texts(piece):
    class Wanting:
        def __init__(self, text):
            self.text = text

        def read_demand(self):
            return {"schedd": ScheddDemand(NOON, (QueuedJobs((self.text,), 1),))}

    def read(size):
        return PseudonymizedQueues(Wanting(piece * (size // len(piece))), VEIL, None).read_demand()

    grows_evenly(read, 100_000)


def test_texts_of_a_job_are_cut_and_no_name_in_them_is_cut_in_two():
    job = held(1_000_000, "x ")
    assert len(job.status_attributes["HoldReason"]) <= MAX_TEXT_CHARS + 1
    (name, reason), *_ = job.invalid_names.items()
    assert len(name) <= MAX_TEXT_CHARS + 1
    assert f"{MAX_LIST_CHARS} are allowed" in reason
    cut = " " * (MAX_TEXT_CHARS - 12) + "a:secret_canary"
    job = parse_job({"HoldReason": f'"{cut}"', "JobStatus": "5"}, [0], "schedd")
    assert "secret" not in "".join(explained(job)[0].lines)


def test_guesses_in_a_hold_reason_come_back_as_a_constant():
    guesses = [f"a:secret_{number}" for number in range(41)]
    job = parse_job({"JobStatus": "5", "HoldReason": f'"{" ".join(guesses)}"'}, [0], "schedd")
    (line, *_) = explained(job)[0].lines
    assert line.count(HIDDEN_DID) == 41
    assert [guess for guess in guesses if VEIL.pseudonym(Did(guess)).partition(":")[2] in line] == []


def test_time_to_sum_up_many_kinds_of_jobs_grows_no_faster_than_they_are():
    facts = {Did(f"lofar:L{number}"): Fact(DatasetState.AVAILABLE, NOON) for number in range(2000)}
    known = DaemonKnowledge(NOON, Snapshot({Site(f"S{each}"): SiteFacts(NOON, facts) for each in range(10)}))
    job = JobFacts("7.0", "schedd", 1, JobStatus.IDLE, (Did("lofar:L7"),), max_age_seconds=100)

    def jobs(size):
        return summarize_jobs([replace(job, name=str(each)) for each in range(size)], known)

    assert jobs(3).complete_by_site == dict.fromkeys(known.snapshot.sites, 3)
    begun = time.thread_time()
    jobs(1000)
    assert time.thread_time() - begun < 2


@pytest.mark.parametrize("piece", [" ", "\n", " \n", "a", '\\"'])
def test_time_to_read_an_expression_grows_no_faster_than_its_text(piece):
    class Ad:
        def __init__(self, text):
            self.text = text

        def lookup(self, _):
            return f"x{self.text}x"

    grows_evenly(lambda size: expression_text(Ad(piece * size), "HoldReason"), 50_000)
    assert expression_text(Ad(" \n\n  y\n"), "HoldReason") == "x y x"


@pytest.mark.parametrize("piece", ["/aa", "%2Faa", "/"])
def test_time_to_find_a_files_name_grows_no_faster_than_its_url(piece):
    def read(size):
        with suppress(BadAnswer):
            file_name(f"https://x/{piece * size}%0A")

    grows_evenly(read, 20_000)


# a server, with all of it at once


@pytest.fixture
def served(tmp_path):
    tokens = {role: create_token(role, None, "today") for role in (Role.READ, Role.SUBMIT, Role.EVENT)}
    (tmp_path / "tokens").touch(mode=0o600)
    (tmp_path / "tokens").write_text("".join(grant.line for _, grant in tokens.values()))

    def question(cluster, proc, schedd):
        return explained(held(1_000_000, PIECES[cluster % len(PIECES)]))

    def heard(body):
        HIDE(body.decode("utf-8", "replace"))

    asgi = build_app(
        lambda: ServerState({}, Snapshot({}), demand(), None, NOON),
        CollectorRegistry(),
        max_age=timedelta(seconds=1),
        authenticator=TokenAuthenticator.open(tmp_path / "tokens"),
        services=TokenServices(
            look_up_pseudonyms=PseudonymStore(VEIL).exchange, on_event=heard, explain_job=question
        ),
    )
    with HttpServer(asgi) as server:
        yield server.url, {role: f"Bearer {token}" for role, (token, _) in tokens.items()}


def asks(url, headers, stop, number):
    """Send hostile requests until *stop* is set; each must get an answer."""
    piece = PIECES[number % len(PIECES)].replace("%", "%25").replace("\\", "%5C").replace('"', "%22")
    dids = "&".join(f"did=a:{piece.strip() or 'a'}{'a.' * 100}{each}" for each in range(30))
    body = json.dumps({"event_type": "close", "payload": {"name": PIECES[number] * 3000}})
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        while not stop.is_set():
            client.get(f"/why?job={number}", headers={"Authorization": headers[Role.READ]})
            client.get(f"/v1/private?{dids}", headers={"Authorization": headers[Role.SUBMIT]})
            client.get(f"/v1/datasets?{dids}", headers={"Authorization": headers[Role.READ]})
            client.post("/v1/events", content=body, headers={"Authorization": headers[Role.EVENT]})


def test_healthz_answers_within_a_second_while_others_ask_hostile_things(served):
    url, headers = served
    stop = threading.Event()
    askers = [
        threading.Thread(target=asks, args=(url, headers, stop, number)) for number in range(len(PIECES))
    ]
    for asker in askers:
        asker.start()
    try:
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
            waits = []
            for _ in range(40):
                begun = time.monotonic()
                assert client.get("/healthz").status_code == 200
                waits.append(time.monotonic() - begun)
    finally:
        stop.set()
        for asker in askers:
            asker.join(60)
    assert sorted(waits)[-3] < 1, waits  # a busy machine may spoil two
