"""Publisher contract for the HTTP publisher, with a real server on loopback."""

import httpx
import pytest

from adapters.http.publisher import WebPublisher
from hydrator.domain.errors import PublishError
from hydrator.domain.model import Snapshot
from hydrator.server.view import ServerState
from tests.contracts.publisher import PublisherContract, site_ad
from tests.factories import L1, NOON, ad, demand, server_state
from tests.served import server_of

pytestmark = pytest.mark.outside


def shown(publisher: WebPublisher) -> ServerState:
    times = publisher.publish_times()
    return server_state(publisher.ads(), Snapshot({}), demand(), None, NOON, published_at=times)


@pytest.fixture
def publisher():
    made = WebPublisher(lambda: server.url, lambda: NOON)
    with server_of(lambda: shown(made)) as server:
        yield made


class TestWebPublisher(PublisherContract):
    @pytest.fixture(autouse=True)
    def _served(self, publisher):
        self.served = publisher

    def publisher(self) -> WebPublisher:
        return self.served

    def unreachable(self) -> WebPublisher:
        return WebPublisher(lambda: None, lambda: NOON)


def test_a_hook_gets_the_served_ad():
    publisher = WebPublisher(lambda: server.url, lambda: NOON)
    with server_of(lambda: shown(publisher)) as server:
        new = site_ad("CAM")
        publisher.publish([new])
        answer = httpx.get(f"{server.url}/v1/sites/CAM/ad", trust_env=False, timeout=120)
    assert answer.text == new.text


def test_a_server_that_stopped_is_an_error_and_not_empty():
    publisher = WebPublisher(lambda: server.url, lambda: NOON)
    with server_of(lambda: shown(publisher)) as server:
        publisher.publish([ad(L1)])
    with pytest.raises(PublishError, match="does not run"):
        publisher.published()
