"""The page of the largest pool that the page benchmark measures."""

import asyncio

import httpx
import pytest
from prometheus_client import CollectorRegistry

from benchmarks.page import GOAL_KB, PATHS, view
from hydrator.server.app import build_app

pytestmark = pytest.mark.outside

SECTIONS = ("health", "locality", "arrivals", "sites", "datasets", "jobs", "sets", "staging", "changes")


@pytest.fixture(scope="module")
def ask():
    state = view(5000, 50)
    asgi = build_app(lambda: state, CollectorRegistry())

    def get(path: str) -> tuple[str, int]:
        """Return the page, and its bytes as they travel."""

        async def read() -> tuple[str, int]:
            transport = httpx.ASGITransport(asgi)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                answer = await client.get(path, headers={"Accept-Encoding": "gzip"})
            assert (answer.status_code, answer.headers["Content-Encoding"]) == (200, "gzip")
            return answer.text, int(answer.headers["Content-Length"])

        return asyncio.run(read())

    return get


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_page_of_5000_datasets_and_50_sites_travels_in_less_than_150_kb(ask, path):
    _, size = ask(path)
    assert 0 < size < 1000 * GOAL_KB


def test_no_section_of_the_measured_page_is_empty(ask):
    text, _ = ask("/")
    for section in SECTIONS:
        inside = text.partition(f'<section id="{section}"')[2].partition("</section>")[0]
        assert "hidden" not in inside.partition(">")[0], section
    assert "No job with datasets has ended" not in text
    assert "400 more: <code>hydrator staging list</code>" in text
    assert text.count('<svg role="img"') >= 2
    assert "catalogue dmapi: \u2716 fails since" in text
    assert "No change since" not in text
