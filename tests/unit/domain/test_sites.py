"""Site mapping: names in slots, sites that read each other's storage, and RSEs in Site Capabilities."""

from dataclasses import dataclass, field

import pytest

from adapters.http.client import JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings
from adapters.rucio.responses import Count
from adapters.rucio.rse_directory import RseDirectory
from adapters.rucio.session.settings import RucioSettings
from adapters.rucio.states import dataset_replicas
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.config import Settings
from hydrator.domain.model import DatasetState, Seen, Site
from hydrator.domain.sites import SiteMapping
from hydrator.reconcile.intake import IntakeCatalogue
from testbed.dmapi_standin import CLIENT, SC_AUDIENCE, SECRET, DmapiStandIn
from tests.contracts.test_dmapi_catalogue import ONCE
from tests.factories import CAM, HOUR, L1, L2, NOON, OSO, RAL, replica, seen
from tests.memory import MemoryCatalogue

PARTIAL, STUCK, AVAILABLE = DatasetState.PARTIAL, DatasetState.STUCK, DatasetState.AVAILABLE


def shown(reading: Seen):
    return {(one.site, one.state, one.fraction) for one in reading.replicas}


def test_alias_renames_a_site_everywhere_in_a_survey():
    known = SiteMapping(aliases={RAL: Site("RAL-LCG2")})
    assert known.map_sites({CAM, RAL}) == {CAM, "RAL-LCG2"}
    reading = known.map_reading(seen(replica(L1, RAL), unreachable_sites=frozenset({CAM, RAL})))
    assert (shown(reading), reading.unreachable_sites) == (
        {("RAL-LCG2", AVAILABLE, None)},
        {CAM, "RAL-LCG2"},
    )


@pytest.mark.parametrize("aliases", [{}, {OSO: CAM}, {RAL: CAM}])
def test_replicas_on_the_readable_storage_of_a_site_count_whatever_is_configured_of_sites(aliases):
    known = SiteMapping(aliases=aliases, reads={OSO: frozenset({RAL})})
    read = seen(replica(L1, CAM), unreachable_sites=frozenset({aliases.get(OSO, CAM), RAL}))
    reading = known.map_reading(read)
    assert shown(reading) == {(CAM, AVAILABLE, None)}
    assert CAM in reading.unreachable_sites


def test_a_neighbours_storage_counts_as_ones_own():
    known = SiteMapping(reads={CAM: frozenset({RAL})})
    reading = known.map_reading(seen(replica(L1, RAL)))
    assert shown(reading) == {(RAL, AVAILABLE, None), (CAM, AVAILABLE, None)}
    for one in reading.replicas:
        assert one.site == RAL or "complete at RAL, whose storage jobs at CAM read" in one.provenance.reason


@pytest.mark.parametrize("state", [state for state in DatasetState if state is not AVAILABLE])
def test_remote_site_reads_only_complete_datasets(state):
    known = SiteMapping(reads={CAM: frozenset({RAL})})
    assert {one.site for one in known.map_reading(seen(replica(L1, RAL, state, 0.5))).replicas} == {RAL}


def test_site_with_an_unreachable_neighbour_is_unreachable_unless_complete():
    known = SiteMapping(reads={CAM: frozenset({RAL}), OSO: frozenset({RAL})})
    reading = known.map_reading(
        seen(replica(L1, CAM), replica(L1, OSO, PARTIAL, 0.5), unreachable_sites=frozenset({RAL}))
    )
    assert (shown(reading), reading.unreachable_sites) == ({(CAM, AVAILABLE, None)}, {RAL, OSO})


def test_reading_is_not_passed_on_from_neighbour_to_neighbour():
    known = SiteMapping(reads={CAM: frozenset({RAL}), RAL: frozenset({OSO})})
    assert {one.site for one in known.map_reading(seen(replica(L1, OSO))).replicas} == {OSO, RAL}


def test_map_sites_adds_a_site_that_reads_the_storage_of_another():
    assert SiteMapping(reads={CAM: frozenset({RAL})}).map_sites({RAL}) == {CAM, RAL}
    assert SiteMapping(reads={CAM: frozenset({RAL})}).map_sites({OSO}) == {OSO}


def test_a_catalogue_reads_the_replicas_of_a_neighbour():
    known = SiteMapping(reads={CAM: frozenset({RAL})})
    inner = MemoryCatalogue("memory", [replica(L1, RAL)], [RAL], clock=lambda: NOON)

    said = IntakeCatalogue(inner, known).read({L1, L2})
    assert said.sites == {CAM, RAL}
    assert said.readings[L2] == Seen(NOON)


def test_the_configuration_says_aliases_and_shared_storage():
    settings = Settings.model_validate({"sites": {"aliases": {"UKSRC": "RAL"}, "reads": {"CAM": ["RAL"]}}})
    assert settings.sites.mapping == SiteMapping({Site("UKSRC"): RAL}, {CAM: frozenset({RAL})})
    assert not Settings().sites.mapping


# Rucio's storage elements, as Site Capabilities knows them


@pytest.fixture
def capabilities(tmp_path):
    standin = DmapiStandIn()
    (tmp_path / "secret").write_text(SECRET)
    who = ClientSettings(standin.token_url, CLIENT, tmp_path / "secret", SC_AUDIENCE, "openid")
    how = {"limits": ONCE, "transport": standin.transport}
    bearer = ClientCredentials("rucio", who, lambda: NOON, **how)
    source = SiteCapabilities(JsonClient("rucio", standin.capabilities_url, token_source=bearer, **how))
    yield standin, source
    source.close()


@dataclass
class Rucio:
    """Answers for two storage elements; only the first has a site attribute."""

    settings: RucioSettings
    name: str = "rucio"
    attributes: dict = field(default_factory=lambda: {"A": {"site": "OSO"}, "B": {"fts": "x"}})

    def ask(self, call, *arguments, read):
        return read(getattr(self, call)(*arguments))

    def list_rses(self):
        return [{"rse": name, "rse_type": "DISK"} for name in self.attributes]

    def list_rse_attributes(self, name):
        return self.attributes[name]


def elements(source, tmp_path, **sites):
    settings = RucioSettings("rucio", "https://rucio.example.org", "hydrator", tmp_path, sites=sites)
    return RseDirectory(Rucio(settings), source).read(NOON)


def test_rse_without_site_attribute_is_at_its_sites_in_site_capabilities(capabilities, tmp_path):
    standin, source = capabilities
    for site, name in (("CAM", "B"), ("RAL", "B"), ("ELSEWHERE", "A")):
        standin.add_area(site, name)
    found = elements(source, tmp_path)
    assert (found["A"].sites, found["B"].sites) == ((OSO,), (CAM, RAL))
    whole = {"B": Count(1, 1, 1, 1)}
    replicas = dataset_replicas(L1, whole, {}, found, held_until=NOON)
    assert [one.site for one in replicas] == [CAM, RAL]


def test_the_configured_site_of_an_rse_wins_over_all(capabilities, tmp_path):
    standin, source = capabilities
    standin.add_area("RAL", "B")
    assert elements(source, tmp_path, B="CAM")["B"].sites == (CAM,)


AROUND = f"{(NOON - HOUR).isoformat()} to {(NOON + HOUR).isoformat()}"


@pytest.mark.parametrize(
    "closing", [{"downtime": [{"date_range": AROUND}]}, {"is_force_disabled": True}], ids=["downtime", "off"]
)
def test_an_area_closed_in_site_capabilities_closes_the_rse_for_rucio_too(capabilities, tmp_path, closing):
    standin, source = capabilities
    standin.add_area("CAM", "A", **closing)
    standin.add_area("RAL", "B", **closing)
    standin.add_area("CAM", "B")
    found = elements(source, tmp_path)
    assert (found["A"].is_readable, found["B"].is_readable) == (False, True)


def test_rucio_lists_unmapped_storages_while_site_capabilities_is_unreachable(capabilities, tmp_path):
    standin, source = capabilities
    standin.habits.status = 500
    found = elements(source, tmp_path)
    assert (found["A"].sites, found["B"].sites) == ((OSO,), ())
