"""Snapshots into ads: what is printed, what is left out for want of room, which generation it gets."""

import pytest

from hydrator.domain.ads.classad import classad_string
from hydrator.domain.model import DatasetState, Did, Origin, SiteAd, to_unix
from hydrator.reconcile.site_ads import STATE_LINES_BYTES, Budget, Draft, assign_generations, draft_site_ads
from tests.factories import CAM, HOUR, L1, L2, NOON, RAL, demand, facts, replica, want

ROOMY = Budget()
LOWER = Did("lofar:l1")


def draft(view, wanted=None, budget=ROOMY, **more) -> Draft:
    names = sorted({did for site in view.sites.values() for did in site.facts})
    return draft_site_ads(view, wanted or demand(*names), budget=budget, **more)[CAM]


def said(drafted: Draft) -> dict[str, str]:
    return dict(drafted.content)


def listed(drafted: Draft) -> set[str]:
    return set(said(drafted)["DatasetStates"].split("'")[1::2])


def test_states_are_recorded_by_name_and_the_available_are_listed_too():
    view = facts(replica("b:2"), replica("a:1"), replica("c:3", state=DatasetState.STAGING, fraction=0.25))
    assert draft(view).content == (
        ("DataLocalitySite", '"CAM"'),
        ("AvailableDatasets", '{"a:1","b:2"}'),
        ("DatasetStates", "['a:1'=\"AVAILABLE\";'b:2'=\"AVAILABLE\";'c:3'=\"STAGING\"]"),
        ("DatasetFractions", "['c:3'=0.25]"),
        ("DatasetAsOf", "[]"),
        ("DataLocalitySets", "['a:1'=1.0;'b:2'=1.0;'c:3'=0.25]"),
        ("DataLocalitySetsAsOf", "[]"),
        ("DataLocalityTruncated", "false"),
        ("DataLocalityVersion", "1"),
    )


def test_a_site_that_holds_nothing_wanted_says_so_with_its_age():
    empty = draft(facts(asked=[L1]), demand(L1))
    assert (said(empty)["AvailableDatasets"], said(empty)["DatasetStates"]) == ("{}", "[]")
    assert (empty.as_of, said(empty)["DataLocalityTruncated"]) == (NOON, "false")


@pytest.mark.parametrize(
    ("fraction", "printed"),
    [(None, "[]"), (0.0, "[]"), (1.0, "[]"), (0.004, "[]"), (0.5, "0.50"), (0.999, "0.99"), (0.01, "0.01")],
)
def test_fraction_is_listed_only_between_0_and_1_and_rounded_down(fraction, printed):
    view = facts(replica(L1, state=DatasetState.PARTIAL, fraction=fraction))
    assert said(draft(view))["DatasetFractions"] in (printed, f"['{L1}'={printed}]")


def test_every_site_of_the_snapshot_gets_a_draft_in_order():
    assert list(draft_site_ads(facts(replica(L1, RAL)), demand(L1), budget=ROOMY)) == [CAM, RAL]


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("UK", '"UK"'),
        ('a"b', '"a\\"b"'),
        ("a\\", '"a\\\\"'),
        ("a\nX = 1", '"a X = 1"'),
        ("Zürich", '"Zürich"'),
    ],
)
def test_no_text_escapes_from_its_string(text, literal):
    assert classad_string(text) == literal


# ---- the size budget of the states of datasets
#
# Names below are four characters long, a line of states grows by 20 bytes each.

NAMES = [Did(f"x:{n:02}") for n in range(40)]
STATE_ENTRY = len("'x:00'=\"AVAILABLE\";")
BASE = len("DatasetStates = []")
SET_OF_FIVE = len(f"DataLocalitySets = []DataLocalitySetsAsOf = []'{','.join(NAMES[:5])}'=1.0;")


def room_for(datasets: int) -> Budget:
    """A line that holds the states of so many datasets, and not one byte more."""
    return Budget(line_bytes=BASE + datasets * STATE_ENTRY, ad_bytes=100_000)


def everything(*wants, budget):
    return draft(facts(*(replica(did) for did in NAMES)), demand(*wants), budget)


def test_a_budget_is_used_to_its_last_byte():
    drafted = everything(want(*NAMES[:5]), budget=room_for(5))
    assert listed(drafted) == set(NAMES[:5])
    assert said(drafted)["DataLocalityTruncated"] == "false"


def test_the_least_wanted_go_first_and_pins_last():
    wants = (want(NAMES[0], origin=Origin.PIN), want(NAMES[1], jobs=9), want(NAMES[2], jobs=1))
    assert listed(everything(*wants, budget=room_for(2))) == set(NAMES[:2])
    assert listed(everything(*wants, budget=room_for(1))) == {NAMES[0]}


def test_clashing_datasets_take_no_room():
    view = facts(replica(L1), replica(LOWER), replica(L2))
    tight = Budget(line_bytes=BASE + len(f"'{L2}'=\"AVAILABLE\";"))
    assert listed(draft(view, demand(L1, LOWER, L2), tight)) == {L2}


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_the_plain_list_has_room_beside_the_states(missing_bytes):
    states = 5 * (STATE_ENTRY + len("'x:00',"))
    budget = Budget(ad_bytes=STATE_LINES_BYTES + states + SET_OF_FIVE - missing_bytes)
    drafted = everything(want(*NAMES[:5]), budget=budget)
    assert listed(drafted) == set(NAMES[: 5 - missing_bytes])
    assert said(drafted)["AvailableDatasets"].count("x:") == 5 - missing_bytes
    assert said(drafted)["DataLocalityTruncated"] == ("true" if missing_bytes else "false")


def test_the_plain_list_stays_where_only_the_line_of_states_is_full():
    drafted = everything(want(*NAMES[:5]), want(*NAMES[5:30]), budget=room_for(6))
    assert said(drafted)["AvailableDatasets"].count(",") == 5


# ---- generations


def numbered(drafted: Draft, last: SiteAd | None = None, *, published=None, now=NOON) -> SiteAd:
    there = {} if published is None else {CAM: published}
    return assign_generations(
        {CAM: drafted}, {CAM: last} if last else {}, published_generations=there, now=now
    )[CAM]


ONE, OTHER = draft(facts(replica(L1))), draft(facts(replica(L2)))


def test_the_first_generation_is_the_unix_time():
    assert numbered(ONE).generation == to_unix(NOON)


def test_a_change_of_content_gets_the_unix_time_of_the_change():
    assert numbered(OTHER, numbered(ONE), now=NOON + HOUR).generation == to_unix(NOON + HOUR)


def test_a_lost_state_sends_no_older_generation_than_was_read_back():
    ahead = to_unix(NOON) + 1000
    assert numbered(ONE, published=ahead).generation == ahead + 1
    assert numbered(ONE, published=5).generation == to_unix(NOON)


def test_an_ad_is_never_dated_in_the_future():
    assert numbered(Draft(CAM, NOON + HOUR, ONE.content)).as_of == NOON
