"""Servers that send back what we sent, dressed as they like: no secret of ours is in what is said of it."""

import base64
import json
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, quote_plus

import pytest

from adapters.daemon_catalogue import DaemonCatalogue
from adapters.http.client import HttpLimits, JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings, TokenFile
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueUnreachable, HydratorError
from hydrator.domain.model import DatasetState, Did, Provenance, Replica, Seen, Site, Survey, Unseen
from hydrator.domain.redaction import SECRETS
from hydrator.reconcile.intake import IntakeCatalogue
from testbed.loopback import LoopbackRequest, LoopbackServer
from tests.memory import MemoryCatalogue
from tests.rucio_fixtures import catalogues

pytestmark = pytest.mark.outside

L1 = Did("lofar:L1")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECRET, TOKEN, LOGIN = (f"c4nary{word}-/+&=0123456789" for word in ("Secret", "Token", "Login"))
DRESSES = {
    "plain": str,
    "json": json.dumps,
    "url": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "late": lambda text: "x" * 370 + " " + text,
}


class Echo(LoopbackServer):
    """Answers every request with what it said, as *dress* makes of each header and of the body."""

    status = 403
    grants: str | None = None
    """The token that it gives at /token and at Rucio's login."""
    dress = staticmethod(str)

    def reply(self, request: LoopbackRequest) -> None:
        headers = {"Content-Type": "application/json"}
        if self.grants and request.path.startswith(("/token", "/auth")):
            body = json.dumps({"access_token": self.grants, "expires_in": 600})
            request.send(200, {**headers, "X-Rucio-Auth-Token": self.grants}, body.encode())
            return
        shown = request.headers.values()
        said = " ".join(
            self.dress(word) for word in [*shown, *map(_decoded, shown), request.sent.decode()] if word
        )
        headers |= {"ExceptionClass": "CannotAuthenticate", "ExceptionMessage": " ".join(said.splitlines())}
        request.send(self.status, headers, json.dumps({"detail": said}).encode())


def _decoded(header: str) -> str:
    """What a Basic header says: services that echo it have read it."""
    return base64.b64decode(header[6:]).decode() if header.startswith("Basic ") else header


@pytest.fixture
def echo():
    with Echo() as server:
        yield server


@pytest.fixture(params=DRESSES.values(), ids=DRESSES)
def dressed(echo, request):
    echo.dress = request.param
    return echo


def shows_nothing(text: str) -> None:
    """No eight characters of a secret, plain or coded, are in *text*, and nothing that does not show."""
    assert text.isprintable()
    for secret in (SECRET, TOKEN, LOGIN):
        coded = base64.b64encode(secret.encode()).decode()
        for form in (secret, coded, quote(secret, safe="")):
            assert [form[at : at + 8] for at in range(len(form) - 7) if form[at : at + 8] in text] == []


def failure(ask) -> HydratorError:
    with pytest.raises(HydratorError) as caught:
        ask()
    assert "status" in str(caught.value) or "HTTP" in str(caught.value)
    return caught.value


LIMITS = HttpLimits(attempts=1, timeout=timedelta(seconds=20))


@pytest.mark.parametrize("status", [403, 500, 404, 302, 400])
def test_a_service_that_echoes_its_bearer_token_shows_nothing_of_it(dressed, tmp_path, status):
    dressed.status = status
    (tmp_path / "token").write_text(TOKEN + "\n")
    server = JsonClient(
        "dmapi", dressed.url, token_source=TokenFile("dmapi", tmp_path / "token"), limits=LIMITS
    )
    try:
        shows_nothing(server.get("/x").detail)
    except CatalogueError as error:
        shows_nothing(str(error))
    finally:
        server.close()


@pytest.mark.parametrize("granted", [None, LOGIN])
def test_an_identity_provider_that_echoes_the_client_secret_shows_nothing_of_it(dressed, tmp_path, granted):
    dressed.grants = granted
    (tmp_path / "secret").write_text(SECRET)
    who = ClientSettings(f"{dressed.url}/token", "us", tmp_path / "secret", "dmapi", "read")
    bearer = ClientCredentials("dmapi", who, lambda: NOON, limits=LIMITS)
    server = JsonClient("dmapi", dressed.url, token_source=bearer, limits=LIMITS)
    try:
        shows_nothing(str(failure(lambda: server.get("/x"))))
    finally:
        server.close()


def test_a_daemon_that_echoes_the_token_shows_nothing_of_it(dressed, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    daemon = DaemonCatalogue(dressed.url, token_file=tmp_path / "token")
    shows_nothing(str(failure(lambda: daemon.read({L1}))))
    daemon.close()


@pytest.mark.parametrize("how", ["password", "login", "token_file", "token_command"])
@pytest.mark.parametrize("status", [403, 500])
def test_rucio_that_echoes_credentials_shows_none_of_them(dressed, tmp_path, how, status):
    dressed.status = status
    dressed.grants = LOGIN if how == "login" else None
    (tmp_path / "token").write_text(TOKEN)
    ways = {
        "token_file": {"auth_type": "token", "token_file": tmp_path / "token"},
        "token_command": {"auth_type": "token", "token_command": ("cat", str(tmp_path / "token"))},
    }
    given = {"auth_type": "userpass", "username": "us", "password": SECRET}
    limits = {"timeout": timedelta(seconds=20), "deadline": timedelta(seconds=20)}
    with catalogues(url=dressed.url, token_dir=tmp_path, **limits, **ways.get(how, given)) as make:
        shows_nothing(str(failure(lambda: make().read({L1}))))


@pytest.mark.parametrize("text", ["c4naryOne-0123456789\nc4naryTwo-0123456789\n", "c4naryOne\r\nc4naryTwo"])
def test_a_token_with_a_line_break_is_refused_in_one_sentence(tmp_path, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(CatalogueDenied, match=r"token_file .*one line") as caught:
        TokenFile("dmapi", tmp_path / "token").token()
    assert "c4nary" not in str(caught.value)
    with pytest.raises(HydratorError, match=r"token_file .*one line") as caught:
        DaemonCatalogue("http://127.0.0.1:1", token_file=tmp_path / "token")
    assert "c4nary" not in str(caught.value)


def test_a_renewed_token_is_hidden_as_the_first_was(dressed, tmp_path):
    file = tmp_path / "token"
    server = JsonClient("dmapi", dressed.url, token_source=TokenFile("dmapi", file), limits=LIMITS)
    for token in (SECRET, TOKEN):
        file.write_text(token)
        shows_nothing(str(failure(lambda: server.get("/x"))))
    server.close()


# what comes in as an answer


EVIL = "\x1b[2J\u202e\ud800\x00end"
SHOWN = "\\x1b[2J\\u202e\\ud800\\x00end"


class Says(MemoryCatalogue):
    """Answers as it is told."""

    def __init__(self, survey=None, found=(), error=None):
        super().__init__("plugin")
        self.survey, self.found, self.error = survey, found, error

    def read(self, dids):
        if self.error:
            raise CatalogueUnreachable(self.name, self.error)
        return self.survey

    def find(self, patterns):
        return frozenset(self.found)


def test_texts_of_an_answer_show_no_secret_and_steer_no_terminal():
    SECRETS.keep(SECRET)
    told = Provenance(f"why {SECRET}\n{EVIL}", EVIL, EVIL)
    held = Replica(L1, Site(f"UK{EVIL}"), DatasetState.STUCK, 0.5, EVIL, told)
    survey = Survey(
        "plugin",
        NOON,
        frozenset({Site(f"UK{EVIL}"), Site("AU")}),
        {
            L1: Seen(NOON, (held,), unreachable_sites=frozenset({Site(EVIL)})),
            Did("a:b"): Unseen(f"no {SECRET}\n{EVIL}"),
        },
        frozenset({EVIL}),
    )
    seen = IntakeCatalogue(Says(survey)).read({L1})
    shows_nothing(str(seen.readings[L1].replicas[0].provenance.reason))
    (replica,) = seen.readings[L1].replicas
    assert replica.site == f"UK{SHOWN}"
    assert {replica.storage, *seen.unmapped_storages, *seen.readings[L1].unreachable_sites} == {SHOWN}
    assert seen.sites == {f"UK{SHOWN}", "AU"}
    assert replica.provenance.reason == f"why [secret] {SHOWN}"
    assert seen.readings["a:b"] == Unseen(f"no [secret] {SHOWN}")
    str(seen).encode()


@pytest.mark.parametrize("field", ["reason", "rule", "account"])
def test_a_secret_in_any_text_of_an_answer_is_hidden(field):
    SECRETS.keep(SECRET)
    told = Provenance(**{field: f"x {SECRET}"})
    held = Replica(L1, Site("UK"), DatasetState.AVAILABLE, storage=f"x {SECRET}", provenance=told)
    catalogue = IntakeCatalogue(Says(Survey("plugin", NOON, frozenset(), {L1: Seen(NOON, (held,))})))
    for _ in range(2):
        (replica,) = catalogue.read({L1}).readings[L1].replicas
        assert (getattr(replica.provenance, field), replica.storage) == ("x [secret]", "x [secret]")


def test_an_answer_with_nothing_to_clean_is_passed_on_as_it_is():
    held = Replica(L1, Site("Zürich"), DatasetState.AVAILABLE)
    survey = Survey("plugin", NOON, frozenset({Site("Zürich")}), {L1: Seen(NOON, (held,))})
    catalogue = IntakeCatalogue(Says(survey))
    for _ in range(2):
        assert catalogue.read({L1}) == survey
        assert catalogue.read({L1}).readings[L1] is survey.readings[L1]


def test_search_returns_only_names_that_jobs_can_use():
    found = [
        L1,
        Did(f"lofar:{EVIL}"),
        Did("lofar:a b"),
        Did("x" * 600),
        Did("lofar:" + "x" * 600),
        Did("lofar"),
    ]
    assert IntakeCatalogue(Says(found=found)).find(["*"]) == {L1}


def test_a_plugins_secrets_are_looked_up_before_each_question(tmp_path):
    file = tmp_path / "any_name_file"

    def renew():
        SECRETS.keep(file.read_text())

    for secret in (SECRET, TOKEN):
        file.write_text(secret)
        with pytest.raises(CatalogueUnreachable) as caught:
            IntakeCatalogue(Says(error=f"you sent {secret}"), before_query=renew).read({L1})
        shows_nothing(str(caught.value))
