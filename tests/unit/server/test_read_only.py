"""No HTTP request changes the published ads, whatever its method, path or token."""

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from adapters.http.publisher import ServedAds
from hydrator.domain.model import Snapshot
from hydrator.server.app import build_app
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from tests.factories import CAM, L1, L2, NOON, RAL, ad, demand

pytestmark = pytest.mark.outside

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "QUERY", "get"]
BODIES = [b"", b'{"site": "CAM", "ads": []}', ad(L2, generation=99).text.encode()]


@pytest.mark.parametrize("who", ["nobody", *Role])
@pytest.mark.parametrize("guarded", [False, True])
def test_no_method_on_any_route_changes_the_board_whoever_asks(tmp_path, guarded, who):
    board = ServedAds()
    board.put([ad(L1), ad(L1, site=RAL)], NOON)
    before = (dict(board.ads()), dict(board.publish_times()))
    token, grant = create_token(Role.READ if who == "nobody" else who, CAM if who is Role.SITE else None, "x")
    (tmp_path / "tokens").write_text(grant.line)
    (tmp_path / "tokens").chmod(0o600)
    file = (tmp_path / "tokens").read_bytes()
    asgi = build_app(
        lambda: ServerState(
            board.ads(), Snapshot({}), demand(), None, NOON, published_at=board.publish_times()
        ),
        CollectorRegistry(),
        authenticator=TokenAuthenticator.open(tmp_path / "tokens") if guarded else None,
    )
    paths = [route.path.replace("{site:path}", CAM) for route in asgi.routes if isinstance(route, Route)]
    headers = {} if who == "nobody" else {"Authorization": f"Bearer {token}"}
    answered = set()
    with (
        HttpServer(asgi) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=120, headers=headers) as client,
    ):
        for path in [*paths, "/v1/sites/NEW/ad", "/nonsense"]:
            for method in METHODS:
                for body in BODIES:
                    answered.add(client.request(method, server.url + path, content=body).status_code)
    assert (dict(board.ads()), dict(board.publish_times())) == before
    assert (tmp_path / "tokens").read_bytes() == file
    assert answered & {200, 401, 403}
    assert not any(status >= 500 for status in answered)
