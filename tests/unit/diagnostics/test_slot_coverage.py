"""Slot coverage: slots with current, outdated or no attributes."""

from prometheus_client import CollectorRegistry

from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.slot_coverage import UNKNOWN_SITE, Coverage, count_coverage
from hydrator.domain.model import to_unix
from hydrator.domain.ports import SlotAdVersion
from tests.factories import CAM, HOUR, NOON, ad

OURS = ad(generation=7)


def kinds(**counts: int) -> dict[Coverage, int]:
    return {kind: counts.get(kind.value, 0) for kind in Coverage}


def test_slots_are_counted_by_coverage():
    slots = [
        SlotAdVersion(CAM, OURS.generation),
        SlotAdVersion(CAM, OURS.generation - 1),
        SlotAdVersion(CAM, None),
    ]
    counted = count_coverage(slots * 2, {CAM: OURS})
    assert counted[CAM] == kinds(current=2, outdated=2, none=2)
    assert counted[UNKNOWN_SITE] == kinds()


def test_slots_of_foreign_sites_count_as_unknown():
    slots = [
        SlotAdVersion("elsewhere", None),
        SlotAdVersion(None, None),
        SlotAdVersion("elsewhere", OURS.generation),
    ]
    assert count_coverage(slots, {CAM: OURS}) == {CAM: kinds(), UNKNOWN_SITE: kinds(none=2, outdated=1)}


CREDENTIAL = {"credential": "token"}


def test_series_of_a_removed_site_and_credential_disappear():
    registry = CollectorRegistry()
    metrics = Metrics(registry, "0")
    metrics.set_slot_coverage(count_coverage([SlotAdVersion(CAM, OURS.generation)], {CAM: OURS}))
    metrics.set_credentials([Credential("token", "token-files", NOON + HOUR, NOON)])

    def values() -> list[float | None]:
        return [
            registry.get_sample_value("hydrator_slots", {"site": CAM, "coverage": "current"}),
            registry.get_sample_value("hydrator_credential_expiry_timestamp_seconds", CREDENTIAL),
            registry.get_sample_value("hydrator_credential_lifetime_seconds", CREDENTIAL),
        ]

    assert values() == [1, to_unix(NOON + HOUR), 3600]
    metrics.set_slot_coverage(count_coverage([], {}))
    metrics.set_credentials([])
    assert values() == [None, None, None]
