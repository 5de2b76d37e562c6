"""Publisher contract for the HTTP publisher, with a real server on loopback."""

import httpx
import pytest

from adapters.http.publisher import ServedAds, WebPublisher
from hydrator.domain.errors import PublishError
from hydrator.domain.model import Snapshot
from hydrator.server.view import ServerState
from tests.contracts.publisher import PublisherContract, site_ad
from tests.factories import L1, NOON, ad, demand, server_state
from tests.served import server_of

pytestmark = pytest.mark.outside


def shown(board: ServedAds) -> ServerState:
    return server_state(board.ads(), Snapshot({}), demand(), None, NOON, published_at=board.publish_times())


@pytest.fixture
def board():
    return ServedAds()


@pytest.fixture
def server(board):
    with server_of(lambda: shown(board)) as running:
        yield running


@pytest.fixture
def publisher(board, server):
    return WebPublisher(board, lambda: server.url, lambda: NOON)


class TestWebPublisher(PublisherContract):
    @pytest.fixture(autouse=True)
    def _served(self, board, server):
        self.board, self.server = board, server

    def publisher(self) -> WebPublisher:
        return WebPublisher(self.board, lambda: self.server.url, lambda: NOON)

    def unreachable(self) -> WebPublisher:
        return WebPublisher(self.board, lambda: None, lambda: NOON)


def test_a_hook_gets_the_served_ad(publisher, server):
    new = site_ad("CAM")
    publisher.publish([new])
    answer = httpx.get(f"{server.url}/v1/sites/CAM/ad", trust_env=False, timeout=120)
    assert answer.text == new.text


def test_a_server_that_stopped_is_an_error_and_not_empty(board):
    with server_of(lambda: shown(board)) as server:
        publisher = WebPublisher(board, lambda: server.url, lambda: NOON)
        publisher.publish([ad(L1)])
    with pytest.raises(PublishError, match="does not run"):
        publisher.published()
