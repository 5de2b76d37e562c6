"""/v1/openapi.json describes the answers of the server, route by route and status by status."""

import json
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter
from starlette.routing import Route

from hydrator.daemon.event_queue import EventQueue
from hydrator.diagnostics.why.render import RenderedAnswer
from hydrator.domain.events import MAX_EVENT_BYTES, RejectReason
from hydrator.domain.model import DatasetState, Fact, Site, SiteFacts, Snapshot
from hydrator.server.api import models, openapi
from hydrator.server.api.locality.request import MAX_LOCALITY_BYTES
from hydrator.server.app import build_app
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from hydrator.server.handlers import TokenServices
from hydrator.server.http_server import HttpServer
from hydrator.server.limits.rate import RateLimiter
from hydrator.server.middleware import RequestPolicy
from hydrator.server.view import ServerState
from tests.factories import CAM, L1, L2, NOON, RAL, ad, demand, want

pytestmark = pytest.mark.outside

SITES = (CAM, RAL, Site("Žilina (CZ/2) 50% ad"))
FACTS = {
    CAM: SiteFacts(NOON, {L1: Fact(DatasetState.AVAILABLE, NOON)}),
    RAL: SiteFacts(NOON, {L1: Fact(DatasetState.STAGING, NOON, 0.25)}),
}
VIEW = ServerState(
    {site: ad(L1, site=site) for site in SITES},
    Snapshot(FACTS, unseen_reasons={L2: "timeout"}, bytes_total={L1: 9}),
    demand(want(L1, L2, jobs=3)),
    None,
    NOON,
)
TEXT = openapi.build_openapi()


def posted(body: bytes) -> RejectReason | None:
    """Handle an event as the daemon does."""
    heard = EventQueue().add_event(body, frozenset({L1}))
    return heard if isinstance(heard, RejectReason) else None


def routes() -> dict[str, set[str]]:
    asgi = build_app(lambda: VIEW, CollectorRegistry(), max_age=timedelta(seconds=9))
    return {
        route.path.replace(":path", ""): {method.lower() for method in route.methods or ()}
        for route in asgi.routes
        if isinstance(route, Route)
    }


def test_every_route_and_method_is_described_and_nothing_else():
    assert {path: set(methods) for path, methods in TEXT["paths"].items()} == routes()


def test_the_text_is_openapi_3_1_and_served(served):
    assert served.get("/v1/openapi.json").json() == TEXT
    assert TEXT["openapi"] == "3.1.0"
    schemathesis.openapi.from_dict(json.loads(json.dumps(TEXT))).validate()


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/sites", models.Sites),
        (f"/v1/datasets?did={L1}&did=lofar:nowhere", models.Datasets),
        ("/healthz", models.Health),
        ("/readyz", models.Ready),
        ("/v1/sites/CAMM/ad", models.Error),
        ("/v2/sites/CAMM/ad", models.Error),
        ("/v1/datasets?x=1", models.Error),
        ("/nonsense", models.Error),
    ],
)
def test_an_answer_validates_against_its_model(served, path, model):
    TypeAdapter(model).validate_json(served.get(path).content)


def test_a_hang_validates_against_the_error_model(tmp_path):
    kept = Kept(tmp_path)
    kept.view = replace(VIEW, hang_reason="no progress")
    with kept.server:
        content = httpx.get(f"{kept.server.url}/healthz", trust_env=False, timeout=120).content
    assert TypeAdapter(models.Error).validate_json(content)["status"] == "hung"


# what is asked, with what, of a real server


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    file = tmp_path_factory.mktemp("openapi") / "tokens"
    made = {role: create_token(role, None, "2026-11-21") for role in (Role.READ, Role.SUBMIT, Role.EVENT)}
    file.write_text("".join(grant.line for _, grant in made.values()))
    file.chmod(0o600)
    return TokenAuthenticator.open(file), {role: token for role, (token, _) in made.items()}


@pytest.fixture(scope="module")
def server(tokens):
    access, _ = tokens
    asgi = build_app(
        lambda: VIEW,
        CollectorRegistry(),
        max_age=timedelta(seconds=9),
        authenticator=access,
        services=TokenServices(
            look_up_pseudonyms=lambda dids: {did: did for did in dids},
            on_event=posted,
            explain_job=lambda *_: [RenderedAnswer(("job 7.0: it matches at CAM",))],
        ),
    )
    with HttpServer(asgi) as running:
        yield running


@pytest.fixture
def served(server, tokens):
    headers = {"Authorization": f"Bearer {tokens[1][Role.READ]}"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=120) as client:
        yield client


class Kept:
    """A server that a test puts into trouble."""

    def __init__(self, folder, buckets=None) -> None:
        self.view, self.file = VIEW, folder / "tokens"
        self.file.touch(0o600)
        self.registry = CollectorRegistry()
        access = TokenAuthenticator.open(self.file)
        self.token = access.own_token
        self.drop = None
        self.server = HttpServer(
            build_app(
                self.look,
                self.registry,
                max_age=timedelta(seconds=9),
                authenticator=access,
                services=TokenServices(on_event=self.hear),
                policy=RequestPolicy(rate_limiter=buckets),
            )
        )

    def look(self) -> ServerState:
        if self.view is None:
            raise RuntimeError("a bug")
        return self.view

    def hear(self, body) -> RejectReason | None:
        if self.view is None:
            raise RuntimeError("a bug")
        return self.drop or posted(body)

    def tell(self, content=b'{"event_type": "close", "payload": {}}', token=None, more="") -> int:
        """POST an event with the only token of the file."""
        if token is None and self.file.exists():
            token, grant = create_token(Role.EVENT, None, "2026-11-21")
            self.file.write_text(grant.line)
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.server.url}/v1/events{more}"
        return httpx.post(url, content=content, headers=headers, trust_env=False, timeout=120).status_code

    def ask(self, path, token="own", method="GET", **more) -> int:
        path = path.replace("{site}", CAM)
        headers = {"Authorization": f"Bearer {self.token}"} if token == "own" else {}
        return httpx.request(
            method, self.server.url + path, headers=headers, trust_env=False, timeout=120, **more
        ).status_code


TROUBLES = {
    "no token": lambda kept, path: kept.ask(path, None),
    "a body": lambda kept, path: kept.ask(path, content=b"x"),
    "a long URL": lambda kept, path: kept.ask(f"{path}?{'x' * 9000}"),
    "a bad query": lambda kept, path: kept.ask(f"{path}?did=none"),
    "another site": lambda kept, path: kept.ask(path.replace("{site}", "NONE")),
    "a plain question": lambda kept, path: kept.ask(path),
}


@pytest.mark.parametrize("state", ["well", "not ready", "a bug", "no tokens file", "asked too often"])
def test_every_status_that_a_route_can_answer_is_described(tmp_path, caplog, state):
    kept = Kept(tmp_path, RateLimiter(0.001, 1, lambda: 0.0) if state == "asked too often" else None)
    if state == "not ready":
        kept.view = replace(VIEW, snapshot=None, not_ready_reason="no catalogue has been read yet")
    if state == "a bug":
        kept.view = None
    if state == "no tokens file":
        kept.file.unlink()
    seen = {}
    with kept.server:
        for path, methods in TEXT["paths"].items():
            if "get" not in methods:
                continue
            got = {trouble: make(kept, path) for trouble, make in TROUBLES.items()}
            seen |= {(path, trouble): status for trouble, status in got.items()}
            assert {str(status) for status in got.values()} <= set(methods["get"]["responses"]), path
    expected = {"not ready": 503, "a bug": 500, "no tokens file": 503, "asked too often": 429}
    assert seen["/v1/datasets", "a plain question"] == expected.get(state, 200)
    if state == "well":
        assert set(seen.values()) == {200, 400, 401, 403, 404, 413, 414}


@pytest.mark.parametrize("state", ["well", "a bug", "no tokens file", "asked too often", "too many events"])
def test_every_status_that_the_webhook_can_answer_is_described(tmp_path, caplog, state):
    kept = Kept(tmp_path, RateLimiter(0.001, 1, lambda: 0.0) if state == "asked too often" else None)
    kept.drop = RejectReason.TOO_MANY if state == "too many events" else None
    if state == "a bug":
        kept.view = None
    if state == "no tokens file":
        kept.file.unlink()
    with kept.server:
        got = {
            "an event": kept.tell(),
            "nonsense": kept.tell(b"nonsense"),
            "too large": kept.tell(b"x" * (MAX_EVENT_BYTES + 1)),
            "in pieces": kept.tell(iter([b"x"])),
            "a long URL": kept.tell(more=f"?{'x' * 9000}"),
            "no such token": kept.tell(token="guessed"),
            "another's token": kept.tell(token=kept.token),
        }
    assert {str(status) for status in got.values()} <= set(TEXT["paths"]["/v1/events"]["post"]["responses"])
    expected = {"a bug": 500, "no tokens file": 503, "too many events": 429}
    assert got["an event"] == expected.get(state, 202)
    assert (got["nonsense"] == 429) == (state in {"asked too often", "too many events"})
    if state == "well":
        assert list(got.values()) == [202, 400, 413, 413, 414, 401, 403]


@schemathesis.deserializer("application/x-ndjson")
def read_lines(_, response) -> list:
    """The lines of a stream, whose schema is that of their list."""
    return [json.loads(line) for line in response.content.splitlines()]


@pytest.mark.parametrize("path", ["/v1/locality", "/v1/locality/set"])
@pytest.mark.parametrize("state", ["well", "not ready", "a bug", "no tokens file", "asked too often"])
def test_every_status_that_a_locality_route_can_answer_is_described(tmp_path, caplog, state, path):
    kept = Kept(tmp_path, RateLimiter(0.001, 1, lambda: 0.0) if state == "asked too often" else None)
    if state == "not ready":
        kept.view = replace(VIEW, snapshot=None, not_ready_reason="no catalogue has been read yet")
    if state == "a bug":
        kept.view = None
    if state == "no tokens file":
        kept.file.unlink()
    body = json.dumps({"datasets": [L1, L2]})
    with kept.server:
        got = {
            "no token": kept.ask(path, None, method="POST", content=body),
            "a question": kept.ask(path, method="POST", content=body),
            "nonsense": kept.ask(path, method="POST", content="nonsense"),
            "too large": kept.ask(path, method="POST", content=b" " * (MAX_LOCALITY_BYTES + 1)),
            "in pieces": kept.ask(path, method="POST", content=iter([body.encode()])),
            "a long URL": kept.ask(f"{path}?{'x' * 9000}", method="POST", content=body),
        }
    assert {str(status) for status in got.values()} <= set(TEXT["paths"][path]["post"]["responses"])
    expected = {"not ready": 503, "a bug": 500, "no tokens file": 503, "asked too often": 429}
    assert got["a question"] == expected.get(state, 200)
    if state == "well":
        assert list(got.values()) == [401, 200, 400, 413, 413, 414]


def with_tokens() -> dict:
    """The document for a server that requires tokens on every route."""
    text = json.loads(json.dumps(TEXT))
    for methods in text["paths"].values():
        for operation in methods.values():
            operation["security"] = [each for each in operation["security"] if each]
    return text


schema = schemathesis.openapi.from_dict(with_tokens())
schema.config.checks.negative_data_rejection.expected_statuses = ["400", "401", "404", "405", "413", "414"]


@pytest.fixture(scope="module")
def session():
    with requests.Session() as made:
        made.trust_env = False  # no proxy of whoever runs the tests
        yield made


@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described_and_none_is_a_500(case, server, tokens, session):
    role = {"/v1/private": Role.SUBMIT, "/v1/events": Role.EVENT}.get(case.operation.path, Role.READ)
    headers = {"Authorization": f"Bearer {tokens[1][role]}"}
    case.call_and_validate(base_url=server.url, headers=headers, session=session)
