"""Unreadable rows of Site Capabilities: they affect only areas that depend on them."""

import copy

import pytest

from adapters.ska.site_capabilities import build_areas
from hydrator.domain.model import DatasetState, Did, Seen, Unseen
from testbed.dmapi_standin import DmapiStandIn
from tests.contracts.test_dmapi_catalogue import dmapi
from tests.factories import NOON

L1, L2 = Did("testing:L1"), Did("testing:L2")


def listed():
    """Return the lists of the service: two areas, each at its own site, and compute that reads the first."""
    standin = DmapiStandIn()
    standin.add_area("CAM", "CAM-DISK")
    standin.add_area("RAL", "RAL-DISK")
    reader = {"type": "prepare_data", "associated_storage_area_id": "area-0", "parent_site_name": "OSO"}
    return {
        "nodes": standin.nodes,
        "sites": standin.sites,
        "storages": standin.storages,
        "areas": standin.areas,
        "services": [reader, {"type": "jupyter", "parent_site_name": 7, "associated_storage_area_id": None}],
    }


def read(kind="nodes", **changes):
    """Build the areas, with *changes* to the first row of *kind*."""
    rows = copy.deepcopy(listed())
    rows[kind][0].update(changes)
    return build_areas(**rows)


def test_a_good_answer_has_no_faults():
    areas = read()
    assert areas.faults == {}
    assert {key: sorted(area.sites) for key, area in areas.by_id.items()} == {
        "area-0": ["CAM", "OSO"],
        "area-1": ["RAL"],
    }


@pytest.mark.parametrize(
    "garble",
    [
        ("areas", {"parent_site_name": '"CAM"'}),
        ("areas", {"parent_site_name": "CAM'"}),
        ("areas", {"parent_site_name": " CAM"}),
        ("areas", {"parent_site_name": "CAM\n"}),
        ("areas", {"parent_site_name": "C\u202eAM"}),
        ("areas", {"parent_site_name": 7}),
        ("areas", {"parent_site_name": None}),
        ("areas", {"parent_site_name": "a" * 300}),
        ("areas", {"parent_storage_id": 7}),
        ("areas", {"parent_site_id": ["site-CAM"]}),
        ("areas", {"is_force_disabled": "true"}),
        ("storages", {"is_force_disabled": 1}),
        ("sites", {"is_force_disabled": "no"}),
        ("sites", {"parent_node_name": 7}),
        ("services", {"parent_site_name": '"OSO"'}),
        ("services", {"type": 7}),
        ("services", {"is_force_disabled": "yes"}),
    ],
    ids=str,
)
def test_a_garbled_row_makes_only_its_area_unknown(garble):
    kind, changes = garble
    areas = read(kind, **changes)
    assert set(areas.faults) == {"area-0", "CAM-DISK"}
    assert set(areas.by_id) == {"area-1"}
    assert all(why.isprintable() for why in areas.faults.values())


def test_a_garbled_node_makes_all_areas_below_it_unknown():
    assert set(read("nodes", is_force_disabled="x").faults) == {"area-0", "CAM-DISK", "area-1", "RAL-DISK"}


def test_an_area_with_an_unreadable_name_is_found_by_its_id():
    assert set(read("areas", name=7).faults) == {"area-0"}


@pytest.mark.parametrize("kind", ["nodes", "sites", "storages", "areas", "services"])
@pytest.mark.parametrize("row", [7, None, "x", [], {}])
def test_a_row_without_a_readable_key_makes_the_answer_unreadable(kind, row):
    rows = listed()
    rows[kind].append(row)
    if kind == "services" and row == {}:  # it reads no area
        assert build_areas(**rows).faults == {}
        return
    with pytest.raises(ValueError, match=r"is not a record|has no readable"):
        build_areas(**rows)


def test_an_impossible_downtime_closes_no_area_and_raises_no_error():
    texts = ["0001-01-01T00:00+23:59 to 9999-12-31T23:59-23:59", "soon to late", 7, "x" * 10_000]
    area = read("areas", downtime=texts).by_id["area-0"]
    assert area.closure_reason(NOON) == ""


def test_a_dataset_in_a_garbled_area_is_unseen_and_others_are_read(tmp_path):
    standin = DmapiStandIn()
    standin.add_area("CAM", "CAM-DISK")
    standin.add_area("RAL", "RAL-DISK")
    standin.put(L1, 1, {"CAM-DISK": 1, "RAL-DISK": 1}, kind="FILE")
    standin.put(L2, 1, {"RAL-DISK": 1}, kind="FILE")
    standin.areas[0]["parent_site_name"] = '"CAM"'
    catalogue = dmapi(standin, tmp_path)
    readings = catalogue.read({L1, L2}).readings
    catalogue.close()
    assert isinstance(readings[L1], Unseen)
    assert "parent_site_name is not the name of a site: '\"CAM\"'" in readings[L1].reason
    assert isinstance(readings[L2], Seen)
    assert [(one.site, one.state) for one in readings[L2].replicas] == [("RAL", DatasetState.AVAILABLE)]
