"""Renewal of open pages: a version that changes with their content, only for clients that may read."""

from dataclasses import dataclass
from typing import Self

import httpx
import pytest

from hydrator.domain.model import Snapshot
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from tests.factories import CAM, NOON, server_state
from tests.served import server_of

pytestmark = pytest.mark.outside

STATE = server_state({}, Snapshot({}), None, None, NOON)


class Served:
    """A server whose version the test changes."""

    def __init__(self, authenticator: TokenAuthenticator | None = None) -> None:
        self.version: object = 1
        self.server = server_of(lambda: STATE, authenticator=authenticator, get_version=lambda: self.version)

    def __enter__(self) -> Self:
        self.server.start()
        self.client = httpx.Client(base_url=self.server.url, trust_env=False, timeout=60)
        return self

    def __exit__(self, *_) -> None:
        self.client.close()
        self.server.stop()


@dataclass(frozen=True)
class Part:
    """A part of the daemon's state, as the daemon has them in its version."""

    at: int


def test_the_version_changes_with_the_content_and_is_that_of_the_page():
    with Served() as served:
        seen = []
        for version in ((NOON, Part(1)), (NOON, Part(2)), (NOON, Part(2)), (None, Part(2))):
            served.version = version
            answer = served.client.get("/live")
            assert answer.headers["Cache-Control"] == "no-store"
            assert f'data-version="{answer.text}"' in served.client.get("/").text
            seen.append(answer.text)
        assert seen[1] == seen[2]
        assert len(set(seen)) == 3


def test_the_version_needs_a_token_for_reading_and_the_script_needs_none(tmp_path):
    file = tmp_path / "tokens"
    token, grant = create_token(Role.READ, None, "2026-11-21")
    site_token, site_grant = create_token(Role.SITE, CAM, "2026-11-21")
    file.write_text(grant.line + site_grant.line)
    file.chmod(0o600)
    with Served(TokenAuthenticator.open(file)) as served:
        statuses = [
            served.client.get("/live", headers={"Authorization": f"Bearer {each}"} if each else {})
            for each in ("", site_token, token)
        ]
        assert [each.status_code for each in statuses] == [401, 403, 200]
        script = served.client.get("/page.js")
        assert script.status_code == 200
        assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert "immutable" in script.headers["Cache-Control"]


def test_a_page_without_scripts_loads_itself_again_every_minute():
    with Served() as served:
        text = served.client.get("/").text
        assert '<noscript><meta http-equiv="refresh" content="60"></noscript>' in text
        assert "This page loads itself again every minute." in text
