"""Renewal of open pages: a version that changes with their content, only for clients that may read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from hydrator.domain.model import Snapshot
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from tests.factories import CAM, NOON, server_state
from tests.served import server_of

pytestmark = pytest.mark.outside

STATE = server_state({}, Snapshot({}), None, None, NOON)


@contextmanager
def served(**parts) -> Iterator[httpx.Client]:
    """A client of a server with these parts."""
    with (
        server_of(lambda: STATE, **parts) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):
        yield client


@dataclass(frozen=True)
class Part:
    """A part of the daemon's state, as the daemon has them in its version."""

    at: int


def test_the_version_changes_with_the_content_and_is_that_of_the_page():
    version, seen = [], []
    with served(get_version=lambda: version[-1]) as client:
        for each in ((NOON, Part(1)), (NOON, Part(2)), (NOON, Part(2)), (None, Part(2))):
            version.append(each)
            answer = client.get("/live")
            assert answer.headers["Cache-Control"] == "no-store"
            assert f'data-version="{answer.text}"' in client.get("/").text
            seen.append(answer.text)
    assert seen[1] == seen[2]
    assert len(set(seen)) == 3


def test_the_version_needs_a_token_for_reading_and_the_script_needs_none(tmp_path):
    file = tmp_path / "tokens"
    token, grant = create_token(Role.READ, None, "2026-11-21")
    site_token, site_grant = create_token(Role.SITE, CAM, "2026-11-21")
    file.write_text(grant.line + site_grant.line)
    file.chmod(0o600)
    with served(authenticator=TokenAuthenticator(file)) as client:
        statuses = [
            client.get("/live", headers={"Authorization": f"Bearer {each}"} if each else {})
            for each in ("", site_token, token)
        ]
        assert [each.status_code for each in statuses] == [401, 403, 200]
        script = client.get("/page.js")
        assert script.status_code == 200
        assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert "immutable" in script.headers["Cache-Control"]


def test_a_page_without_scripts_loads_itself_again_every_minute():
    with served() as client:
        text = client.get("/").text
        assert '<noscript><meta http-equiv="refresh" content="60"></noscript>' in text
        assert "This page loads itself again every minute." in text
