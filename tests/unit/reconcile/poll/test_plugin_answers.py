"""The answers of plugins: a mistake of their author costs the dataset that it concerns, and no cycle."""

from dataclasses import replace
from datetime import datetime

import pytest

from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.model import DatasetState, Provenance, Replica, Seen, Unseen
from hydrator.reconcile.intake import IntakeCatalogue
from hydrator.testing.catalogue_contract import SiteBySiteCatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from tests.factories import CAM, L1, L2, NOON, RAL, replica
from tests.memory import MemoryCatalogue

NAIVE = datetime(2026, 11, 21, 12)  # noqa: DTZ001 - a mistake, on purpose


class TestIntakeOfAPlugin(SiteBySiteCatalogueContract):
    cannot_happen = RECORDS_STATES_ONLY

    def make_catalogue(self, *replicas):
        return IntakeCatalogue(MemoryCatalogue("memory", replicas), is_plugin=True)

    def make_failing_catalogue(self):
        return IntakeCatalogue(MemoryCatalogue("memory", is_broken=True), is_plugin=True)

    def make_catalogue_with_unreachable_site(self, site, *replicas):
        return IntakeCatalogue(MemoryCatalogue("memory", replicas, unreachable_sites={site}), is_plugin=True)


def answering(change) -> IntakeCatalogue:
    """A plugin whose survey is changed by *change*."""

    class Odd(MemoryCatalogue):
        def read(self, dids):
            return change(super().read(dids))

    return IntakeCatalogue(
        Odd("odd", (replica(L1, CAM), replica(L2, RAL)), clock=lambda: NOON), is_plugin=True
    )


def about_l1(reading):
    return answering(lambda survey: replace(survey, readings={**survey.readings, L1: reading}))


GOOD = Replica(L1, CAM, DatasetState.PARTIAL, 0.5)
GARBLED = {
    "a text": "available",
    "none": None,
    "a naive time": Seen(NAIVE),
    "a number as time": Seen(12),
    "a time before 1970": Seen(NOON.replace(year=1969)),
    "an end as text": Seen(NOON, (replace(GOOD, provenance=Provenance(expires_at="soon")),)),
    "an end before 1970": Seen(
        NOON, (replace(GOOD, provenance=Provenance(expires_at=NOON.replace(year=1))),)
    ),
    "no provenance": Seen(NOON, (replace(GOOD, provenance=None),)),
    "a size below 0": Seen(NOON, bytes_total=-1),
    "a size as text": Seen(NOON, bytes_total="12"),
    "a huge size": Seen(NOON, bytes_total=2**70),
    "blind as a list": Seen(NOON, unreachable_sites=["CAM"]),
    "replicas as a list of texts": Seen(NOON, ("CAM",)),
    "replicas as a generator": Seen(NOON, (one for one in ())),
    "another dataset": Seen(NOON, (replica(L2, CAM),)),
    "a state as text": Seen(NOON, (replace(GOOD, state="lost"),)),
    "a state that only the daemon concludes": Seen(NOON, (replace(GOOD, state=DatasetState.UNKNOWN),)),
    "no site": Seen(NOON, (replace(GOOD, site=""),)),
    "a fraction that is no number": Seen(NOON, (replace(GOOD, fraction=float("nan")),)),
    "a fraction over 1": Seen(NOON, (replace(GOOD, fraction=2),)),
    "a reason that is none": Unseen(None),
}


@pytest.mark.parametrize("reading", GARBLED.values(), ids=GARBLED)
def test_a_garbled_reading_is_unseen_and_the_others_count(reading):
    readings = about_l1(reading).read({L1, L2}).readings
    assert readings[L1].reason.startswith("the catalogue's answer is garbled: ")
    assert [one.site for one in readings[L2].replicas] == [RAL]


def test_a_good_reading_is_left_as_it_is():
    seen = Seen(NOON, (GOOD,), bytes_total=12, unreachable_sites=frozenset({RAL}))
    assert about_l1(seen).read({L1}).readings[L1] == seen


@pytest.mark.parametrize(
    "change",
    [
        lambda survey: None,
        lambda survey: replace(survey, started_at=NAIVE),
        lambda survey: replace(survey, sites=["CAM"]),
        lambda survey: replace(survey, sites=frozenset({7})),
        lambda survey: replace(survey, readings=[]),
    ],
)
def test_an_answer_of_which_nothing_can_be_used_is_garbled(change):
    with pytest.raises(CatalogueGarbled):
        answering(change).read({L1})


def test_answer_omits_datasets_that_were_not_asked():
    assert answering(lambda survey: survey).read({L1}).readings.keys() == {L1}
    assert about_l1(Seen(NOON)).read({L2}).readings.keys() == {L2}


def test_found_names_that_are_none_are_garbled():
    inner = MemoryCatalogue("odd")
    inner.find = lambda patterns: ["lofar:L1"]
    with pytest.raises(CatalogueGarbled):
        IntakeCatalogue(inner, is_plugin=True).find(["*"])
