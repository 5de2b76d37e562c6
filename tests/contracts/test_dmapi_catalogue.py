"""Catalogue contract for DMAPI, on a stand-in of DMAPI, Site Capabilities and IAM (testbed.dmapi_standin)."""

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.http.client import HttpLimits, JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings
from adapters.ska.dmapi import DmapiCatalogue, DmapiSettings
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.domain.model import DatasetState, Replica
from hydrator.testing.catalogue_contract import CatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from testbed.dmapi_standin import CLIENT, DM_AUDIENCE, SC_AUDIENCE, SECRET, DmapiStandIn
from tests.factories import NOON

FILES = 4
FAST = HttpLimits(
    timeout=timedelta(seconds=5), attempts=2, pause=timedelta(milliseconds=1), calls_per_second=10_000
)

ONCE = replace(FAST, attempts=1)


def dmapi(standin: DmapiStandIn, folder, *, capabilities=True, clock=lambda: NOON, limits=FAST, **changes):
    """Build a catalogue on *standin*, with a token for each of its services."""
    secret = folder / "secret"
    secret.write_text(SECRET + "\n")

    def server(url, audience):
        who = ClientSettings(standin.token_url, CLIENT, secret, audience, f"openid {audience}-service")
        token = ClientCredentials("dmapi", who, clock, limits=limits, transport=standin.transport)
        return JsonClient("dmapi", url, token_source=token, limits=limits, transport=standin.transport)

    settings = replace(DmapiSettings("dmapi", list_path="/data/list/{namespace}"), **changes)
    source = SiteCapabilities(server(standin.capabilities_url, SC_AUDIENCE)) if capabilities else None
    return DmapiCatalogue(settings, server(standin.url, DM_AUDIENCE), clock, capabilities=source)


class TestDmapiCatalogueOnTheStandIn(CatalogueContract):
    states = (DatasetState.AVAILABLE, DatasetState.PARTIAL)  # nothing that moves, and nothing of tape
    cannot_happen = RECORDS_STATES_ONLY

    @pytest.fixture(autouse=True)
    def _new(self, tmp_path):
        self.standin, self.folder = DmapiStandIn(), tmp_path

    def make_catalogue(self, *replicas: Replica):
        elements = itertools.count()
        at: dict[str, dict[str, int]] = {}
        for replica in replicas:
            storage = f"{replica.site}_SE{next(elements)}"
            self.standin.add_area(replica.site, storage)
            share = 1.0 if replica.fraction is None else replica.fraction
            at.setdefault(replica.did, {})[storage] = round(share * FILES)
        for did, where in at.items():
            self.standin.put(did, FILES, where)
        return dmapi(self.standin, self.folder)

    def make_catalogue_for_scenario(self, scenario):
        if scenario.replicas != ():
            return None
        self.standin.add_area("ELSEWHERE", "ELSEWHERE_SE")
        self.standin.put(self.did("L1"), FILES, {"SE_OF_NOBODY": FILES})
        return dmapi(self.standin, self.folder)

    def make_failing_catalogue(self):
        self.standin.habits.status = 503
        return dmapi(self.standin, self.folder, limits=ONCE)

    def make_garbled_catalogue(self):
        self.standin.put(self.did("L1"), FILES, {"CAM_SE": FILES})
        self.standin.habits.lost.add(self.did("L1"))
        return dmapi(self.standin, self.folder, limits=ONCE)

    def test_two_storage_elements_of_a_site_both_have_a_replica(self):
        two = self.open_catalogue(
            self.replica_at("L1", state=DatasetState.PARTIAL, fraction=0.5),
            self.replica_at("L1", state=DatasetState.PARTIAL, fraction=0.25),
        )
        (reading,) = two.read({self.did("L1")}).readings.values()
        assert sorted(replica.fraction for replica in reading.replicas) == [0.25, 0.5]
