"""Authorization over HTTP: tokens, the file with their hashes, and the answers to requests with a token."""

import base64
import re
import stat

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.cli import main
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Site, Snapshot
from hydrator.domain.redaction import redact
from hydrator.server.auth import (
    HttpError,
    Role,
    TokenAuthenticator,
    append_grant,
    create_token,
    digest,
    parse_grants,
    remove_grant,
)
from tests.factories import CAM, L1, NOON, RAL, ad, demand, server_state
from tests.served import server_of

DAY = "2026-11-21"
AWKWARD = Site("Žilina (CZ/2) 50% ad:x#")


def write(file, text):
    fresh = file.with_name("fresh")
    fresh.write_text(text, "utf-8")
    fresh.chmod(0o600)
    fresh.rename(file)


@pytest.fixture
def made(tmp_path):
    """A tokens file with one token of each kind: the tokens by name, and the file."""
    kinds = {"cam": (Role.SITE, CAM), "ral": (Role.SITE, RAL), "read": (Role.READ, None)}
    tokens, text = {}, ""
    for name, (role, site) in kinds.items():
        tokens[name], grant = create_token(role, site, DAY)
        text = append_grant(text, grant)
    write(tmp_path / "tokens", text)
    return tokens, tmp_path / "tokens"


def status(access, token, need, site=None):
    try:
        access.authorize(f"Bearer {token}", need, site)
    except HttpError as refused:
        return refused.status_code
    return 200


# the decision


def test_each_role_permits_its_routes_and_no_others(made):
    tokens, file = made
    access = TokenAuthenticator(file)
    asked = [(Role.SITE, CAM), (Role.SITE, RAL), (Role.READ, None)]
    opened = {name: [status(access, token, *each) for each in asked] for name, token in tokens.items()}
    assert opened == {
        "cam": [200, 403, 403],
        "ral": [403, 200, 403],
        "read": [200, 200, 200],
    }


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Digest x", "Basic !!", "Basic eA=="])
def test_without_a_token_the_answer_is_401(made, header):
    with pytest.raises(HttpError, match="a token is required") as refused:
        TokenAuthenticator(made[1]).authorize(header, Role.READ)
    assert refused.value.status_code == 401
    assert redact(refused.value.detail) == refused.value.detail, "a client shows it"


def test_unknown_token_is_401_and_so_is_the_hash_of_a_token(made):
    tokens, file = made
    access = TokenAuthenticator(file)
    assert status(access, "hydrator_guessed", Role.READ) == 401
    assert status(access, digest(tokens["read"]), Role.READ) == 401


def test_a_browser_may_send_the_token_as_password(made):
    tokens, file = made
    basic = base64.b64encode(f"me:{tokens['read']}".encode()).decode()
    assert TokenAuthenticator(file).authorize(f"basic {basic}", Role.READ).role is Role.READ


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    file = tmp_path_factory.mktemp("access") / "tokens"
    write(file, create_token(Role.READ, None, DAY)[1].line)
    return TokenAuthenticator(file)


@given(st.text(max_size=80) | st.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode()))
def test_malformed_authorization_headers_are_refused_without_an_error(lasting, header):
    for sent in (header, f"Bearer {header}", f"Basic {header}"):
        with pytest.raises(HttpError) as refused:
            lasting.authorize(sent, Role.READ)
        assert refused.value.status_code == 401


def test_tokens_file_contains_hashes_and_no_token(made):
    tokens, file = made
    text = file.read_text()
    assert all(token not in text for token in tokens.values())
    assert all(digest(token) in text for token in tokens.values())
    assert all(re.fullmatch(r"hydrator_[A-Za-z0-9_-]{43}", token) for token in tokens.values())


# the file changes


def test_a_revoked_token_and_a_new_one_need_no_restart(made):
    tokens, file = made
    access = TokenAuthenticator(file)
    assert status(access, tokens["read"], Role.READ) == 200
    write(file, remove_grant(file.read_text(), digest(tokens["read"])[:12])[0])
    assert status(access, tokens["read"], Role.READ) == 401
    assert status(access, tokens["cam"], Role.SITE, CAM) == 200
    token, grant = create_token(Role.READ, None, DAY)
    write(file, append_grant(file.read_text(), grant))
    assert status(access, token, Role.READ) == 200


def test_missing_tokens_file_refuses_every_request_with_503_and_not_401(made):
    tokens, file = made
    access = TokenAuthenticator(file)
    file.rename(file.with_name("elsewhere"))
    assert status(access, tokens["read"], Role.READ) == 503
    file.with_name("elsewhere").rename(file)
    assert status(access, tokens["read"], Role.READ) == 200


def test_a_file_that_others_may_write_is_not_believed(made):
    tokens, file = made
    access = TokenAuthenticator(file)
    file.chmod(0o622)
    assert status(access, tokens["read"], Role.READ) == 503
    with pytest.raises(ConfigError, match="other users may write to this file: run chmod 600"):
        TokenAuthenticator(file)


def test_invalid_line_of_the_tokens_file_grants_nothing_and_the_others_stay(made):
    tokens, file = made
    broken = file.read_text().replace(" read", " root").replace("site:RAL", "site:")
    write(file, broken)
    access = TokenAuthenticator(file)
    assert status(access, tokens["read"], Role.READ) == 401
    assert status(access, tokens["ral"], Role.SITE, RAL) == 401
    assert status(access, tokens["cam"], Role.SITE, CAM) == 200
    assert parse_grants(broken)[1] == (
        "line 3 is not HASH DATE ROLE with role read or site:NAME",
        "line 4 is not HASH DATE ROLE with role read or site:NAME",
    )


@given(st.text(max_size=200))
def test_any_text_can_be_parsed_as_a_tokens_file(text):
    grants, _ = parse_grants(text)
    assert parse_grants("".join(grant.line for grant in grants)) == (grants, ())


@given(st.text(min_size=1, max_size=30).filter(lambda name: name.isprintable() and name == name.strip()))
def test_a_site_of_any_printable_name_has_its_token(name):
    _, grant = create_token(Role.SITE, Site(name), DAY)
    assert parse_grants(append_grant("# mine", grant)) == ((grant,), ())


# over HTTP


@pytest.fixture
def served(made):
    tokens, file = made
    ads = {site: ad(L1, site=site) for site in (CAM, RAL, AWKWARD)}
    view = server_state(ads=ads, snapshot=Snapshot({}), demand=demand(), not_ready_reason=None, now=NOON)
    with server_of(lambda: view, authenticator=TokenAuthenticator(file)) as server:

        def ask(path, name=None, body=None):
            headers = {"Authorization": f"Bearer {tokens[name]}"} if name else {}
            method = "GET" if body is None else "POST"
            return httpx.request(
                method, server.url + path, json=body, headers=headers, trust_env=False, timeout=120
            )

        yield ask


@pytest.mark.outside
def test_site_token_gets_equal_refusals_for_existing_and_unknown_sites(served):
    refused = served("/v1/sites/RAL/ad", "cam")
    assert (refused.status_code, refused.json()["error"]) == (403, "not authorized")
    assert refused.json() == served("/v1/sites/NONE/ad", "cam").json()


@pytest.mark.outside
def test_site_token_without_an_ad_sees_no_names_of_other_sites(served, made):
    tokens, file = made
    tokens["camm"], grant = create_token(Role.SITE, Site("CAMM"), DAY)
    write(file, append_grant(file.read_text(), grant))
    unknown = served("/v1/sites/CAMM/ad", "camm")
    assert (unknown.status_code, "'CAM'" in unknown.text) == (404, False)
    assert "did you mean 'CAM'?" in served("/v1/sites/CAMM/ad", "read").text


@pytest.mark.outside
@pytest.mark.parametrize("path", ["/", "/v1/sites", "/v1/datasets?did=a:b", "/metrics", "/v1/sites/CAM/ad"])
def test_everything_but_health_asks_for_a_token(served, path):
    answer = served(path)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    assert answer.json()["error"] == "not authenticated"
    assert served(path, "read").status_code == 200
    assert served(path, "cam").status_code == (200 if path.endswith("/ad") else 403)
    assert {served(health).status_code for health in ("/healthz", "/readyz")} == {200}


@pytest.mark.outside
def test_ads_behind_tokens_are_private_to_shared_caches(served):
    assert served("/v1/sites/CAM/ad", "cam").headers["Cache-Control"].startswith("private, ")


@pytest.mark.outside
def test_token_in_the_url_is_ignored(served, made):
    assert served(f"/v1/sites?token={made[0]['read']}").status_code == 401


# the command


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    config = tmp_path / "config.toml"
    config.write_text(
        '[[catalogue]]\ntype = "file"\npath = "c.toml"\n[publish.http]\ntokens_file = "tokens"\n'
    )

    def run(*words):
        monkeypatch.setattr("sys.argv", ["hydrator", "token", *words, "--config", str(config)])
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def test_token_new_prints_the_token_once_and_stores_its_hash_with_mode_600(command, tmp_path):
    code, out, err = command("new", "--site", AWKWARD)
    token = out.strip()
    access = TokenAuthenticator(tmp_path / "tokens")
    assert (code, status(access, token, Role.SITE, AWKWARD)) == (0, 200)
    assert token not in err + (tmp_path / "tokens").read_text()
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir() if "new" in each.name] == []


def test_tokens_are_listed_and_revoked_by_their_key(command, tmp_path):
    _, first, _ = command("new", "--role", "read")
    _, second, _ = command("new", "--site", "CAM")
    _, listed, _ = command("list")
    assert [line.split()[2] for line in listed.splitlines()] == ["read", "site:CAM"]
    code, told, _ = command("revoke", listed.split()[0])
    access = TokenAuthenticator(tmp_path / "tokens")
    assert (code, "was for read" in told) == (0, True)
    assert status(access, first.strip(), Role.READ) == 401
    assert status(access, second.strip(), Role.SITE, CAM) == 200


def test_a_change_keeps_mode_comments_and_lines_of_others(command, tmp_path):
    file = tmp_path / "tokens"
    file.write_text("# ours\nnonsense")
    file.chmod(0o640)
    command("new", "--role", "read")
    assert file.read_text().startswith("# ours\nnonsense\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["new"], "give either --site NAME or --role read"),
        (["new", "--site", "A", "--role", "read"], "give either"),
        (["new", "--site", "A\nB"], "not a valid site name"),
        (["revoke", "ab"], "is not a token's key"),
        (["revoke", "0123456789ab"], "has no token 0123456789ab"),
    ],
)
def test_a_wrong_command_is_one_sentence_and_exit_2(command, words, told):
    code, out, err = command(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_a_configuration_without_a_tokens_file_says_so(command, tmp_path):
    (tmp_path / "config.toml").write_text('[[catalogue]]\ntype = "file"\npath = "c.toml"\n')
    code, _, err = command("new", "--role", "read")
    assert (code, "publish.http.tokens_file is not set" in err) == (2, True)
