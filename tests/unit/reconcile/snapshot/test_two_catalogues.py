"""Several catalogues about one site: row by row, docs/operators/catalogue-dmapi.md's table."""

from datetime import timedelta

import pytest

from hydrator.diagnostics.overview.facts import provenance_rows
from hydrator.domain.model import DatasetState, Did, Replica, Seen, Site, Survey, Unseen
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey, build_snapshot
from tests.factories import BOUND, MINUTE, NOON

DID, CAM = Did("testing:L1"), Site("CAM")
AVAILABLE, STAGING, PARTIAL, STUCK = (
    DatasetState.AVAILABLE, DatasetState.STAGING, DatasetState.PARTIAL, DatasetState.STUCK,
)  # fmt: skip


def memory(name, *readings, at=NOON):
    replicas = tuple(Replica(DID, CAM, state, fraction, f"{name}-element") for state, fraction in readings)
    survey = Survey(name, at, frozenset({CAM}), {DID: Seen(at, replicas)})
    return apply_survey(CatalogueMemory(), survey, {DID}, now=at)


def shown(one, other, now=NOON):
    """Return state and fraction at CAM, the same for either order of the catalogues."""
    found = set()
    for memories in ({"dmapi": one, "rucio": other}, {"rucio": other, "dmapi": one}):
        fact = build_snapshot(memories, {DID}, now=now, max_age=BOUND).sites[CAM].facts.get(DID)
        found.add((fact.state.value, fact.fraction) if fact else None)
    (same,) = found
    return same


@pytest.mark.parametrize(
    ("dmapi", "rucio", "expected"),
    [
        ([(PARTIAL, None)], [(AVAILABLE, 1.0)], ("AVAILABLE", 1.0)),
        ([(PARTIAL, None)], [(STAGING, 0.5)], ("STAGING", 0.5)),
        ([(PARTIAL, None)], [(PARTIAL, 0.25)], ("PARTIAL", 0.25)),
        ([(PARTIAL, 0.5)], [(PARTIAL, 0.75)], ("PARTIAL", 0.75)),
        ([(PARTIAL, None)], [], ("PARTIAL", None)),
        ([(STUCK, 0.0)], [(AVAILABLE, 1.0)], ("AVAILABLE", 1.0)),
        ([], [], None),
    ],
)
def test_dmapis_location_and_rucios_completeness(dmapi, rucio, expected):
    assert shown(memory("dmapi", *dmapi), memory("rucio", *rucio)) == expected


def test_error_of_one_catalogue_keeps_its_last_state_and_the_other_counts():
    rucio = apply_survey(memory("rucio", (AVAILABLE, 1.0)), Unseen("down"), {DID}, now=NOON + MINUTE)
    assert shown(memory("dmapi", (PARTIAL, None)), rucio, NOON + MINUTE) == ("AVAILABLE", 1.0)
    never = apply_survey(CatalogueMemory(), Unseen("down"), {DID}, now=NOON)
    assert shown(memory("dmapi", (PARTIAL, None)), never) == ("PARTIAL", None)


def test_state_older_than_the_age_limit_loses_to_any_newer_one():
    later = NOON + BOUND + timedelta(seconds=1)
    old, new = memory("rucio", (AVAILABLE, 1.0)), memory("dmapi", (PARTIAL, 0.5), at=later)
    assert shown(new, old, later) == ("PARTIAL", 0.5)


def test_why_lists_the_state_of_every_catalogue_also_the_one_that_lost():
    memories = {"dmapi": memory("dmapi", (PARTIAL, None)), "rucio": memory("rucio", (AVAILABLE, 1.0))}
    rows = provenance_rows(memories, [DID], now=NOON)
    assert [(r.catalogue, r.site, r.state, r.storage, r.as_of) for r in rows] == [
        ("dmapi", CAM, "PARTIAL", "dmapi-element", int(NOON.timestamp())),
        ("rucio", CAM, "AVAILABLE", "rucio-element", int(NOON.timestamp())),
    ]
