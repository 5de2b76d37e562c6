"""Provenance: it survives the state file and reads as a sentence."""

import pytest

from hydrator.diagnostics.overview.facts import provenance_rows
from hydrator.domain.model import NO_PROVENANCE, DatasetState, Provenance, Replica
from hydrator.domain.provenance import describe_provenance, provenance_from_row, provenance_to_row
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey, build_snapshot
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store
from tests.factories import BOUND, CAM, HOUR, L1, L2, L3, MINUTE, NOON, seen, survey

FULL = Provenance(
    reason="no quota left",
    rule="r1",
    account="anna",
    expires_at=NOON + HOUR,
    ready_at=NOON + 2 * HOUR,
)


@pytest.mark.parametrize(
    "told", [NO_PROVENANCE, FULL, Provenance(reason="x"), Provenance(rule="r", expires_at=NOON)]
)
def test_provenance_survives_the_conversion_to_a_row_and_back(told):
    assert provenance_from_row(provenance_to_row(told)) == told


def test_words_of_a_newer_version_are_passed_over():
    assert provenance_from_row({"reason": "x", "mood": "sad"}) == Provenance(reason="x")


def test_provenance_is_described_in_one_line():
    assert describe_provenance(FULL, NOON) == (
        "no quota left; rule r1 of anna; its rule ends in 1 h; expected to be complete in 2 h"
    )
    assert describe_provenance(FULL, NOON + 90 * MINUTE).count("its rule ends 30 min ago") == 1
    assert describe_provenance(NO_PROVENANCE, NOON) == ""


def told_memory() -> CatalogueMemory:
    replica = Replica(L1, CAM, DatasetState.STUCK, 0.5, "CAM-DISK", FULL)
    return apply_survey(
        CatalogueMemory(), survey((L1, seen(replica)), (L2, seen())), frozenset({L1, L2}), now=NOON
    )


def test_provenance_reaches_the_snapshot_and_survives_a_restart(tmp_path):
    memories = {"rucio": told_memory()}
    view = build_snapshot(memories, {L1}, now=NOON, max_age=BOUND)
    assert view.sites[CAM].facts[L1].provenance == FULL
    with Store.open_to_write(tmp_path) as store:
        store.save(ReconcileState(memories=memories))
    with Store.open_to_read(tmp_path) as store:
        assert store.load().memories == memories


def test_each_catalogue_says_its_part():
    rows = provenance_rows({"rucio": told_memory(), "dmapi": CatalogueMemory()}, [L1, L2, L3], now=NOON)
    said = [(row.did, row.catalogue, row.site, row.state, row.why) for row in rows]
    assert said == [
        (L1, "dmapi", None, None, "the catalogue was not queried yet"),
        (L1, "rucio", CAM, "STUCK", describe_provenance(FULL, NOON)),
        (L2, "dmapi", None, None, "the catalogue was not queried yet"),
        (L2, "rucio", None, None, "the catalogue has no replica of the dataset"),
        (L3, "dmapi", None, None, "the catalogue was not queried yet"),
        (L3, "rucio", None, None, "the catalogue was not queried yet"),
    ]
    assert rows[1].storage == "CAM-DISK"
