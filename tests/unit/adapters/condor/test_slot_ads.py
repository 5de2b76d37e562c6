"""Selection of slots for a merge; no pool is needed."""

import pytest

from adapters.condor.slot_merge import (
    SLOT_ATTRIBUTES,
    Slot,
    SlotMerger,
    parse_slots,
    select_due_slots,
    select_slots_to_withdraw,
    split_into_batches,
)
from hydrator.domain.daemon_probe import Authorization
from hydrator.domain.model import Site, to_unix
from hydrator.domain.ports import MergeResult
from tests.contracts.publisher import MORNING, site_ad
from tests.factories import HOUR

CAM, RAL = Site("CAM"), Site("RAL")
AS_OF = to_unix(MORNING)
UNTIL = AS_OF + 900
ADS = {CAM: site_ad("CAM", 7), RAL: site_ad("RAL", 7)}
ATTRIBUTES = ("GLIDEIN_ResourceName", "GLIDEIN_Site")


def slot(name="slot1@a", *, site="CAM", told=None, via=None, heard=100, **content):
    site = Site(site) if site else None
    content = {"generation": None, "as_of": AS_OF, "open_until": None} | content
    return Slot(name, "<127.0.0.1:9000>", heard, site, told, **content, advertised_via=via)


def carrying(name="slot1@a", *, site="CAM", told=None, **more):
    content = {"generation": 7, "open_until": UNTIL} | more
    return slot(name, site=site, told=told or site, via="merge", **content)


def names(slots):
    return [one.name for one in slots]


def row(**given):
    return dict.fromkeys((*SLOT_ATTRIBUTES, *ATTRIBUTES)) | {
        "Name": "slot1@a", "MyAddress": "<127.0.0.1:9000>", "LastHeardFrom": 100, **given,
    }  # fmt: skip


def test_a_slots_site_is_the_first_attribute_that_it_has():
    (both,) = parse_slots([row(GLIDEIN_ResourceName="RAL", GLIDEIN_Site="CAM")], ATTRIBUTES)
    (one,) = parse_slots([row(GLIDEIN_ResourceName="None", GLIDEIN_Site=" CAM")], ATTRIBUTES)
    (none,) = parse_slots([row(GLIDEIN_ResourceName="None")], ATTRIBUTES)
    assert (both.site, one.site, none.site) == ("RAL", "CAM", None)


@pytest.mark.parametrize("missing", ["Name", "MyAddress", "LastHeardFrom"])
def test_a_slot_that_cannot_be_addressed_is_left_out(missing):
    assert parse_slots([row(**{missing: None})], ATTRIBUTES) == []


@pytest.mark.parametrize("via", ["hook", "Hook", "something new", 'strcat("ho", "ok")', 5])
def test_slot_with_another_source_than_a_merge_is_never_merged_into(via):
    other = slot(via=via, told="CAM", generation=1)
    assert select_due_slots([other], ADS) == []
    assert select_slots_to_withdraw([slot(via=via, told="RAL")], {}, lambda _: True) == []


@pytest.mark.parametrize("site", [None, "UNMAPPED", "cam"])
def test_slot_of_an_unknown_site_is_never_merged_into(site):
    assert select_due_slots([slot(site=site)], ADS) == []


def test_slot_is_due_unless_it_has_the_content_of_the_ad():
    slots = [
        slot("wiped"),
        carrying("same"),
        carrying("older", generation=6),
        carrying("newer", generation=8),
        carrying("closed", open_until=None),
        carrying("other openings", open_until=UNTIL - 30),
        carrying("moved", site="RAL", told="CAM"),
        carrying("odd age", as_of="time()"),
    ]
    due = ["wiped", "closed", "moved", "newer", "odd age", "older", "other openings"]
    assert names(select_due_slots(slots, ADS)) == due


@pytest.mark.parametrize(("behind", "expected"), [(299, []), (300, ["slot1@a"]), (-60, [])])
def test_an_age_is_sent_again_when_it_is_five_minutes_behind(behind, expected):
    assert names(select_due_slots([carrying(as_of=AS_OF - behind)], ADS)) == expected


def test_slots_without_content_come_first_by_their_latest_startd_update():
    slots = [carrying("differs", generation=1, heard=300), slot("early", heard=100), slot("late", heard=200)]
    assert names(select_due_slots(slots, ADS)) == ["late", "early", "differs"]


def test_merge_is_withdrawn_where_the_site_was_retired_or_the_slot_left_it():
    slots = [
        carrying("retired", site="GONE"),
        carrying("left", site="UNMAPPED", told="CAM"),
        carrying("homeless", site=None, told="CAM"),
        carrying("no ad yet", site="NEW"),
        carrying("well"),
        slot("wiped", site="GONE"),
    ]
    assert names(select_slots_to_withdraw(slots, ADS, lambda site: site == "GONE")) == [
        "retired",
        "left",
        "homeless",
    ]


def test_batches_are_bounded_by_number_and_by_size_and_none_is_empty():
    slots = [slot(str(number)) for number in range(7)]
    assert [names(batch) for batch in split_into_batches(slots, {CAM: "x" * 10}, 3, 1000)] == [
        ["0", "1", "2"], ["3", "4", "5"], ["6"],
    ]  # fmt: skip
    assert [len(batch) for batch in split_into_batches(slots, {CAM: "x" * 10}, 100, 20)] == [2, 2, 2, 1]
    assert [len(batch) for batch in split_into_batches(slots[:2], {CAM: "x" * 10}, 100, 5)] == [1, 1]
    assert split_into_batches([], {}, 3, 1000) == []


class _Collector:
    """A collector with one slot, whose answer to the question for NEGOTIATOR is *answer*."""

    def __init__(self, answer: Authorization):
        self.answer, self.merged = answer, []

    def collectors(self):
        return ["cm"]

    def ping(self, daemon, level, name):
        assert (daemon, level, name) == ("collector", "NEGOTIATOR", "cm")
        return self.answer

    def slots(self, attributes, constraint, collector):
        return [dict.fromkeys(attributes) | row(GLIDEIN_Site=CAM)]

    def merge(self, collector, texts, rows, since):
        self.merged += rows
        return [name for name, *_ in rows]


@pytest.mark.parametrize("reason", ["", "it authenticated the client as us (by IDTOKENS) and denies it"])
def test_nothing_is_sent_to_a_collector_that_denies_merges(reason):
    allows, denies = _Collector(Authorization(True)), _Collector(Authorization(False, "us", None, reason))
    allowed, denied = (
        SlotMerger(each, ATTRIBUTES, interval=HOUR).run_once(ADS, lambda _: False)["cm"]
        for each in (allows, denies)
    )
    assert (allowed, len(allows.merged)) == (MergeResult(merged_count=1), 1)
    assert "COLLECTOR.ALLOW_NEGOTIATOR" in denied.error
    assert denies.merged == []
