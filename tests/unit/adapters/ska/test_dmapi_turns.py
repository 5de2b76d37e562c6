"""Turns of DMAPI queries: names that are slow or never answer take no time from others."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from adapters.http.client import JsonClient
from adapters.ska.dmapi import DmapiCatalogue, DmapiSettings
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Seen, Unseen
from tests.contracts.test_dmapi_catalogue import FAST
from tests.factories import NOON

DEAD = [Did(f"testing:A-dead-{number:02}") for number in range(30)]
GOOD = [Did(f"testing:B-good-{number}") for number in range(5)]
WANTED = frozenset([*DEAD, *GOOD])
HANG_SECONDS = 9.0
DEADLINE_SECONDS = 120.0


class Service:
    """A DMAPI with some names that never answer; its clock advances only while one hangs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.dead = set(DEAD)
        self.lists = True
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(path)
        if path == "/data/list":
            return httpx.Response(200, json=["testing"])
        if path == "/names/testing":
            return httpx.Response(200, json=["b-GOOD-0"]) if self.lists else httpx.Response(500)
        did = path.removeprefix("/data/locate/").replace("/", ":", 1)
        if did in self.dead:
            self.now += HANG_SECONDS
            raise httpx.ReadTimeout("it hangs")
        replicas = ["davs://se.example.org/x"]
        return httpx.Response(200, json=[{"identifier": "CAM", "replicas": replicas, "is_dataset": False}])

    def catalogue(self, **changes: object) -> DmapiCatalogue:
        limits = replace(FAST, attempts=1, calls_per_second=1e6)
        server = JsonClient(
            "dmapi", "https://dm.example.org", limits=limits, transport=httpx.MockTransport(self),
            monotonic=lambda: self.now,
        )  # fmt: skip
        settings = DmapiSettings(
            "dmapi", {"CAM": ("CAM",)}, parallel=1, deadline=timedelta(seconds=DEADLINE_SECONDS)
        )
        return DmapiCatalogue(replace(settings, **changes), server, lambda: NOON, monotonic=lambda: self.now)


@pytest.fixture
def service():
    return Service()


def seen(catalogue, dids=WANTED):
    return {did for did, one in catalogue.read(dids).readings.items() if isinstance(one, Seen)}


def test_names_without_an_answer_take_no_time_from_others(service):
    catalogue = service.catalogue()
    for _ in range(2):  # all are new, the dead come first by name, and all time is theirs
        with pytest.raises(CatalogueError):
            catalogue.read(WANTED)
    assert seen(catalogue) == set(GOOD)
    begun = service.now
    for _ in range(30):
        assert seen(catalogue) == set(GOOD)
    assert service.now - begun <= 30 * HANG_SECONDS


def test_each_name_without_an_answer_has_its_turn(service):
    catalogue = service.catalogue()
    for _ in range(3):
        with suppress(CatalogueError):
            catalogue.read(WANTED)
    service.asked.clear()
    for _ in range(len(DEAD)):
        seen(catalogue)
    assert {path for path in service.asked if "dead" in path} == {
        f"/data/locate/testing/{did.partition(':')[2]}" for did in DEAD
    }
    service.dead.clear()
    assert seen(catalogue) == WANTED


def test_a_name_without_an_answer_keeps_its_reason(service):
    catalogue = service.catalogue()
    service.dead = {DEAD[0], DEAD[1]}
    for _ in range(3):
        readings = catalogue.read(WANTED).readings
    assert readings[DEAD[0]] == readings[DEAD[1]] == Unseen("it hangs")


def test_a_failing_listing_keeps_the_survey_and_backs_off(service):
    service.dead.clear()
    service.lists = False
    catalogue = service.catalogue(list_path="/names/{namespace}")

    def listings(seconds):
        before = service.asked.count("/names/testing")
        service.now += seconds
        assert seen(catalogue, {GOOD[0]}) == {GOOD[0]}
        return service.asked.count("/names/testing") - before

    assert [listings(seconds) for seconds in (0, 30, 31, 60, 61, 120, 120)] == [1, 0, 1, 0, 1, 0, 1]
    service.lists = True
    service.now += 3600
    assert catalogue.read({GOOD[0]}).readings[GOOD[0]].case_variants == {"testing:b-GOOD-0"}
    service.lists = False
    service.now += 3601
    assert catalogue.read({GOOD[0]}).readings[GOOD[0]].case_variants == {"testing:b-GOOD-0"}, (
        "what was known stands"
    )
