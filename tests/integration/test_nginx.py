"""The shipped nginx configuration, in Debian's nginx, before a real server with tokens."""

import ssl
from collections import Counter

import httpx
import pytest
import trustme
from prometheus_client import CollectorRegistry

from hydrator.domain.model import SiteAd, Snapshot, to_unix
from hydrator.server.app import build_app
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from hydrator.server.handlers import AS_OF_HEADER, Sources
from hydrator.server.http_server import HttpServer
from hydrator.server.middleware import RequestPolicy
from hydrator.server.view import ServerState
from testbed.files import write_secret
from testbed.nginx import Nginx
from testbed.patience import wait_for
from tests.factories import CAM, L1, L2, MINUTE, NOON, RAL, ad, demand, server_state
from tests.parts import needs


class Behind:
    """The daemon's server; ``ads`` may be changed, ``asked`` counts the requests that reached it, by path."""

    def __init__(self, tokens) -> None:
        self.ads: dict[str, SiteAd] = {}
        self.asked: Counter[str] = Counter()
        self.tokens = tokens
        self.access = TokenAuthenticator(tokens)
        self.asgi = build_app(
            Sources(self.view),
            CollectorRegistry(),
            authenticator=self.access,
            policy=RequestPolicy(behind_proxy=True),
        )

    def view(self) -> ServerState:
        return server_state(dict(self.ads), Snapshot({}), demand(), None, NOON)

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            self.asked[scope["path"]] += 1
        await self.asgi(scope, receive, send)


@pytest.fixture(scope="module")
def keys():
    """Return tokens with their lines: one for each site, one to read everything, one to be revoked."""
    roles = {"CAM": (Role.SITE, CAM), "RAL": (Role.SITE, RAL), "read": (Role.READ, None)}
    made = {name: create_token(*role, "2026-11-21") for name, role in roles.items()}
    return {**made, "old": create_token(Role.SITE, CAM, "2026-11-21")}


@pytest.fixture(scope="module")
def behind(keys, tmp_path_factory):
    text = "".join(grant.line for _, grant in keys.values())
    return Behind(write_secret(tmp_path_factory.mktemp("tokens") / "tokens", text))


@pytest.fixture(scope="module")
def ask(behind, keys, tmp_path_factory):
    """Return a function that requests the ad of a site from nginx, with a token."""
    folder = tmp_path_factory.mktemp("nginx")
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    key, pem = folder / "key", folder / "pem"
    issued.private_key_pem.write_to_path(str(key))
    issued.cert_chain_pems[0].write_to_path(str(pem))
    trust = ssl.create_default_context()
    ca.configure_trust(trust)
    with HttpServer(behind) as server, needs("nginx"):
        nginx = Nginx.start(folder / "run", server.url.removeprefix("http://"), pem, key)
        with nginx, httpx.Client(base_url=nginx.url, verify=trust, trust_env=False, timeout=30) as client:

            def asking(site, who, path="/v1/sites/{}/ad", **headers):
                if who:
                    headers["Authorization"] = f"Bearer {keys[who][0]}"
                return client.get(path.format(site), headers=headers)

            asking.folder = nginx.folder
            asking.client = client
            yield asking


@pytest.fixture(autouse=True)
def fresh(behind):
    """Give every test its own generations, so that no answer cached for another one passes for its own."""
    first = max((one.generation for one in behind.ads.values()), default=0) + 1
    behind.ads = {site: ad(L1, site=site, generation=first) for site in (CAM, RAL)}
    behind.asked.clear()
    return first


def current(ask, site, who, generation, path="/v1/sites/{}/ad"):
    """Request until nginx no longer answers from the cache of an earlier test."""

    def is_now() -> bool:
        return ask(site, who, path).headers.get("ETag", "").startswith(f'"{generation}-')

    wait_for(is_now, "the ad of now")
    return ask(site, who, path)


def test_nobody_is_answered_what_was_kept_for_another_token(ask, fresh):
    path = "/v1/sites/{}/ad"
    for site, who in ((CAM, "CAM"), (RAL, "RAL"), (CAM, "read"), (RAL, "read")):
        answer = current(ask, site, who, fresh, path)
        assert f'DataLocalitySite = "{site}"' in answer.text
        # now it is kept for who may have it; all others are refused, by whichever token and without one
        assert ask(RAL, "CAM", path).status_code == 403
        assert ask(CAM, "RAL", path).status_code == 403
        assert ask(site, None, path).status_code == 401
        wrong = {"Authorization": "Bearer hydrator_wrong"}
        assert ask.client.get(path.format(site), headers=wrong).status_code == 401
        assert ask.client.get(f"{path.format(site)}?x=1").status_code == 401


def test_nginx_and_the_daemon_use_the_same_of_two_tokens_in_a_request(ask, keys, fresh):
    current(ask, CAM, "CAM", fresh)
    both = [("Authorization", f"Bearer {keys[who][0]}") for who in ("RAL", "CAM")]
    for headers in (both, both[::-1]):
        answer = ask.client.get(f"/v1/sites/{CAM}/ad", headers=headers)
        first_may = headers[0] == both[1]
        assert answer.status_code in ({200, 400} if first_may else {400, 403})


def test_cached_ad_is_answered_without_a_request_to_the_daemon_with_its_age(ask, behind, fresh):
    known = current(ask, CAM, "CAM", fresh).headers["ETag"]
    before = behind.asked.total()
    many = [ask(CAM, "CAM", **{"If-None-Match": known}) for _ in range(40)]
    assert {one.status_code for one in many} == {304}
    assert {one.headers[AS_OF_HEADER] for one in many} == {str(to_unix(NOON))}
    assert all(one.content == b"" for one in many)
    assert behind.asked.total() - before < 40, "some were answered by nginx alone"
    assert len({one.headers["X-Request-Id"] for one in many}) == 40, "each request has a name of its own"


def test_change_of_content_or_age_is_visible_once_the_cache_entry_expires(ask, behind, fresh):
    current(ask, CAM, "CAM", fresh)
    behind.ads = {**behind.ads, CAM: ad(L1, L2, site=CAM, generation=fresh + 1)}
    assert L2 in current(ask, CAM, "CAM", fresh + 1).text
    moved = ad(L1, L2, site=CAM, generation=fresh + 1, at=NOON + MINUTE)
    behind.ads = {**behind.ads, CAM: moved}
    wait_for(lambda: ask(CAM, "CAM").headers[AS_OF_HEADER] == str(to_unix(NOON + MINUTE)), "the new age")


def test_denial_is_not_cached(ask, behind, fresh):
    withdrawn = behind.ads
    behind.ads = {}
    wait_for(lambda: ask(RAL, "RAL").status_code == 404, "no ad")
    behind.ads = withdrawn
    assert ask(RAL, "RAL").status_code == 200


def test_revoked_token_works_only_until_the_cache_entry_expires(ask, behind, keys, fresh):
    current(ask, CAM, "old", fresh)
    lines = [grant.line for name, (_, grant) in keys.items() if name != "old"]
    behind.tokens.write_text("".join(lines))
    wait_for(lambda: ask(CAM, "old").status_code == 401, "a refusal")
    assert ask(CAM, "CAM").status_code == 200


def test_other_paths_are_passed_on_and_no_token_is_logged(ask, keys):
    assert ask("", "read", "/v1/sites").json()["version"] == 1
    assert ask("", None, "/v1/sites").status_code == 401
    log_bytes = b"".join(log.read_bytes() for log in ask.folder.glob("*.log"))
    assert not any(token.encode() in log_bytes for token, _ in keys.values())
    assert oct((ask.folder / "cache").stat().st_mode & 0o077) == "0o0", "keys have tokens: for nginx alone"
