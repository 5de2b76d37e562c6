"""Names of private datasets over HTTP: who submits asks the daemon, with a token; nobody else gets them."""

import httpx
import pytest
from prometheus_client import CollectorRegistry

from adapters.memory import MemoryCatalogue
from hydrator.config import PrivateSettings, Settings, SubmitSettings
from hydrator.domain.errors import CatalogueUnreachable, ConfigError
from hydrator.domain.model import Did, Snapshot
from hydrator.privacy.exchange import ExchangeFailed, daemon_named, fetch_pseudonyms
from hydrator.privacy.pseudonym_store import PseudonymStore
from hydrator.privacy.pseudonyms import Privacy, Pseudonymizer
from hydrator.server.app import build_app
from hydrator.server.auth import Role, TokenAuthenticator, append_grant, create_token
from hydrator.server.handlers import TokenServices
from hydrator.server.http_server import HttpServer
from hydrator.server.limits.rate import RateLimiter
from hydrator.server.middleware import RequestPolicy
from hydrator.server.view import ServerState
from tests.factories import L1, NOON, demand, replica

pytestmark = pytest.mark.outside

CANARY, OTHER = Did("embargo:canary-1"), Did("embargo:a/b+c=1~2")
VEIL = Pseudonymizer(Privacy(("embargo:*",)), (bytes(range(40)),))


class Daemon:
    """A server that exchanges names, with a token for each role."""

    def __init__(self, folder, *, tokens=True, patterns=("embargo:*",), names=1000):
        self.register = PseudonymStore(Pseudonymizer(Privacy(patterns), VEIL.keys), folder / "names")
        text = ""
        for role in (Role.READ, Role.SUBMIT):
            token, grant = create_token(role, None, "today")
            text = append_grant(text, grant)
            (folder / role.value).write_text(token + "\n")
        (folder / "tokens").touch(mode=0o600)
        (folder / "tokens").write_text(text)
        access = TokenAuthenticator.open(folder / "tokens") if tokens else None
        view = ServerState(ads={}, snapshot=Snapshot({}), demand=demand(), not_ready_reason=None, now=NOON)
        self.folder = folder
        self.registry = CollectorRegistry()
        asgi = build_app(
            lambda: view,
            self.registry,
            authenticator=access,
            services=TokenServices(look_up_pseudonyms=self.register.exchange),
            policy=RequestPolicy(name_limiter=RateLimiter(1 / 60, names, lambda: self.seconds)),
        )
        self.server = HttpServer(asgi, "127.0.0.1", 0)

    seconds = 0.0
    """The time on the clock that the limits go by."""

    def settings(self, **submit) -> Settings:
        """The configuration of a host that submits to it."""
        given = {"daemon_url": self.server.url, "token_file": self.folder / "submit", **submit}
        return Settings(private=PrivateSettings(patterns=["embargo:*"]), submit=SubmitSettings(**given))

    def ask(self, query: str, role: str | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {(self.folder / role).read_text().strip()}"} if role else {}
        return httpx.get(
            f"{self.server.url}/v1/private?{query}", headers=headers, trust_env=False, timeout=120
        )


@pytest.fixture
def daemon(tmp_path):
    made = Daemon(tmp_path)
    with made.server:
        yield made


def test_private_datasets_are_exchanged_and_others_stay(daemon):
    names = fetch_pseudonyms({CANARY, OTHER, L1}, daemon.settings())
    assert names == {CANARY: VEIL.pseudonym(CANARY), OTHER: VEIL.pseudonym(OTHER), L1: L1}
    assert daemon.register.resolve(names[OTHER]) == OTHER


def test_a_whole_campaign_is_asked_for_in_several_requests(daemon):
    dids = {Did(f"embargo:L667526_SAP003_SB{n:03}_uv_pre-cal.MS") for n in range(300)}
    assert fetch_pseudonyms(dids, daemon.settings()) == {did: VEIL.pseudonym(did) for did in dids}


def test_without_private_datasets_nobody_is_asked():
    assert fetch_pseudonyms({L1}, Settings(private=PrivateSettings(patterns=["embargo:*"]))) == {L1: L1}


def test_who_has_no_token_to_submit_gets_no_name(daemon):
    assert daemon.ask(f"did={CANARY}", None).status_code == 401
    assert daemon.ask(f"did={CANARY}", "read").status_code == 403
    assert daemon.ask(f"did={CANARY}", "submit").json() == {
        "version": 1,
        "datasets": [{"did": CANARY, "name": VEIL.pseudonym(CANARY)}],
    }


def test_no_answer_with_a_name_is_kept_by_a_cache(daemon):
    assert daemon.ask(f"did={CANARY}", "submit").headers["Cache-Control"] == "no-store"


@pytest.fixture
def sparing(tmp_path):
    """A daemon that exchanges 100 names at once, and then one a minute."""
    made = Daemon(tmp_path, names=100)
    with made.server:
        yield made


def guesses(first, number):
    return "&".join(f"did=embargo:guess-{n}" for n in range(first, first + number))


def test_one_token_exchanges_so_many_names_and_then_a_few_a_minute(sparing):
    assert sparing.ask(guesses(0, 60), "submit").status_code == 200
    refused = sparing.ask(guesses(60, 60), "submit")
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "1200"
    assert "too many names" in refused.json()["detail"]
    assert sparing.register.resolve(VEIL.pseudonym(Did("embargo:guess-60"))) is None
    assert sparing.ask(guesses(60, 40), "submit").status_code == 200
    sparing.seconds += 59
    assert sparing.ask(guesses(100, 1), "submit").status_code == 429
    sparing.seconds += 1
    assert sparing.ask(guesses(100, 1), "submit").status_code == 200


def test_names_are_counted_whatever_they_are_so_that_a_refusal_tells_nothing(sparing):
    sparing.register.exchange([CANARY])
    for known in (CANARY, Did("embargo:not-there"), L1):
        assert sparing.ask(f"did={known}", "submit").status_code == 200
    assert sparing.ask(guesses(0, 98), "submit").status_code == 429
    assert sparing.ask(guesses(0, 97), "submit").status_code == 200


def test_a_submission_beyond_the_rate_says_so_in_one_sentence(sparing):
    dids = {Did(f"embargo:L{n}") for n in range(101)}
    with pytest.raises(ExchangeFailed, match=r"too many names: ask again in \d+ s; nothing was submitted"):
        fetch_pseudonyms(dids, sparing.settings())


def test_the_metrics_name_no_dataset(daemon):
    daemon.ask(f"did={CANARY}", "submit")
    assert "canary" not in str([metric.samples for metric in daemon.registry.collect()])


@pytest.mark.parametrize("query", ["", "did=no-scope", "name=embargo:canary-1"])
def test_a_question_without_a_did_is_refused(daemon, query):
    assert daemon.ask(query, "submit").status_code == 400


def test_a_daemon_without_tokens_gives_no_names(tmp_path):
    made = Daemon(tmp_path, tokens=False)
    with made.server, pytest.raises(ExchangeFailed, match=r"set publish.http.tokens_file"):
        fetch_pseudonyms({CANARY}, made.settings())


def test_a_catalogue_in_the_pools_names_is_asked_by_did(daemon):
    name = VEIL.pseudonym(CANARY)
    inner = MemoryCatalogue("daemon", [replica(name), replica(L1)], clock=lambda: NOON)
    readings = daemon_named(inner, daemon.settings()).read({CANARY, L1}).readings
    assert readings[CANARY].replicas == (replica(CANARY),)
    assert readings[L1].replicas == (replica(L1),)
    daemon.server.stop()
    with pytest.raises(CatalogueUnreachable, match="cannot be reached"):
        daemon_named(inner, daemon.settings(daemon_url="http://127.0.0.1:1")).read({CANARY})


# refusals, each with one sentence


def refused(kind, settings, **more) -> str:
    with pytest.raises(kind) as caught:
        fetch_pseudonyms({CANARY, L1}, settings, **more)
    said = str(caught.value)
    assert "nothing was submitted" in said
    assert "\n" not in said
    return said


def test_a_configuration_that_says_nobody_to_ask(daemon):
    assert "set daemon_url and token_file in [submit]" in refused(
        ConfigError, daemon.settings(daemon_url=None, token_file=None)
    )


def test_a_name_does_not_travel_in_clear(daemon):
    said = refused(ConfigError, daemon.settings(daemon_url="http://hydrator.example.org:8471"))
    assert "use https" in said


def test_a_token_that_cannot_be_read(daemon):
    said = refused(ConfigError, daemon.settings(token_file=daemon.folder / "absent"))
    assert "submit.token_file" in said
    assert "No such file" in said


def test_a_token_for_something_else(daemon):
    said = refused(ExchangeFailed, daemon.settings(token_file=daemon.folder / "read"))
    assert "this token has role read; role submit is required" in said


def test_a_daemon_that_is_not_there(daemon):
    settings = daemon.settings()
    daemon.server.stop()
    assert "cannot be reached" in refused(ExchangeFailed, settings)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(502, text="bad gateway"),
        httpx.Response(200, json={"datasets": [{"did": 1}]}),
        httpx.Response(200, json=[]),
    ],
)
def test_somebody_else_who_answers(daemon, answer):
    transport = httpx.MockTransport(lambda _: answer)
    assert "is not a classad-hydrator daemon" in refused(
        ExchangeFailed, daemon.settings(), transport=transport
    )


def test_a_daemon_that_does_not_hold_it_private(tmp_path):
    made = Daemon(tmp_path, patterns=("other:*",))
    with made.server:
        assert "set the same private.patterns in both" in refused(ExchangeFailed, made.settings())
