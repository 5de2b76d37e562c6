"""Snapshots into ads: what is printed, what is left out for want of room, which generation it gets."""

from datetime import timedelta

import pytest

from hydrator.domain.ads.classad import classad_string
from hydrator.domain.model import Did, Origin, ReplicaState, SiteAd, Unseen, to_unix
from hydrator.reconcile.ads.site_ads import Budget, Draft, assign_generations, draft_site_ads
from hydrator.reconcile.snapshot.merge import apply_survey, build_snapshot
from tests.factories import (
    BOUND,
    CAM,
    HOUR,
    L1,
    L2,
    L3,
    MINUTE,
    NOON,
    RAL,
    demand,
    facts,
    holding,
    memory,
    replica,
    seen,
    survey,
    want,
)

ROOMY = Budget()
LOWER = Did("lofar:l1")


def draft(view, wanted=None, budget=ROOMY, **more) -> Draft:
    names = sorted({did for site in view.sites.values() for did in site.facts})
    return draft_site_ads(view, wanted or demand(*names), budget=budget, **more)[CAM]


def said(drafted: Draft) -> dict[str, str]:
    return dict(drafted.content)


def listed(drafted: Draft) -> set[str]:
    return set(said(drafted)["DatasetStates"].split("'")[1::2])


def longest(drafted: Draft) -> int:
    return max(len(f"{name} = {literal}".encode()) for name, literal in drafted.content)


def test_states_are_recorded_by_name_and_the_available_are_listed_too():
    view = facts(replica("b:2"), replica("a:1"), replica("c:3", state=ReplicaState.INCOMING, fraction=0.25))
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


def test_undemanded_dataset_is_not_listed_in_the_ad():
    assert listed(draft(facts(replica(L1), replica(L2)), demand(L1))) == {L1}


@pytest.mark.parametrize(
    ("fraction", "printed"),
    [(None, "[]"), (0.0, "[]"), (1.0, "[]"), (0.004, "[]"), (0.5, "0.50"), (0.999, "0.99"), (0.01, "0.01")],
)
def test_fraction_is_listed_only_between_0_and_1_and_rounded_down(fraction, printed):
    view = facts(replica(L1, state=ReplicaState.PARTIAL, fraction=fraction))
    assert said(draft(view))["DatasetFractions"] in (printed, f"['{L1}'={printed}]")


def test_ad_lists_the_age_of_facts_older_than_their_site():
    later = NOON + MINUTE
    answer = survey((L1, Unseen("timeout")), (L2, seen(replica(L2), at=later)), at=later)
    known = apply_survey(memory(holding(replica(L1), replica(L2))), answer, {L1, L2}, now=later)
    drafted = draft(build_snapshot({"rucio": known}, {L1, L2}, now=later, max_age=BOUND))
    assert (drafted.as_of, said(drafted)["DatasetAsOf"]) == (later, f"['{L1}'={to_unix(NOON)}]")


def test_a_fact_past_the_bound_is_still_listed_as_unknown_with_its_time():
    later = NOON + BOUND + MINUTE
    known = apply_survey(
        memory(holding(replica(L1))), survey((L1, Unseen("timeout")), at=later), {L1}, now=later
    )
    drafted = draft(build_snapshot({"rucio": known}, {L1}, now=later, max_age=BOUND))
    assert said(drafted)["DatasetStates"] == f"['{L1}'=\"UNKNOWN\"]"
    assert said(drafted)["DatasetAsOf"] == f"['{L1}'={to_unix(NOON)}]"
    assert said(drafted)["AvailableDatasets"] == "{}"


def test_datasets_that_collide_by_letter_case_are_in_no_ad():
    view = facts(replica(L1, CAM), replica(LOWER, RAL), replica(L2, CAM))
    ads = draft_site_ads(view, demand(L1, LOWER, L2), budget=ROOMY)
    assert [listed(ads[site]) for site in (CAM, RAL)] == [{L2}, set()]
    assert said(ads[CAM])["AvailableDatasets"] == f'{{"{L2}"}}'


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
SET_OF_FIVE = len("DataLocalitySets = []DataLocalitySetsAsOf = []s234567abcdefghijklmn=1.0;")


def room_for(datasets: int) -> Budget:
    """A line that holds the states of so many datasets, and not one byte more."""
    return Budget(line_bytes=BASE + datasets * STATE_ENTRY, ad_bytes=100_000)


def everything(*wants, budget):
    return draft(facts(*(replica(did) for did in NAMES)), demand(*wants), budget)


def test_states_fill_the_line_the_most_demanded_first():
    drafted = everything(want(*NAMES[:3], jobs=2), want(*NAMES[3:6], jobs=1), budget=room_for(5))
    assert (listed(drafted), drafted.omitted_entries) == (set(NAMES[:5]), ())
    assert said(drafted)["DataLocalityTruncated"] == "true"


def test_a_budget_is_used_to_its_last_byte():
    drafted = everything(want(*NAMES[:5]), budget=room_for(5))
    assert listed(drafted) == set(NAMES[:5])
    assert said(drafted)["DataLocalityTruncated"] == "false"


def test_the_least_wanted_go_first_and_pins_last():
    wants = (want(NAMES[0], origin=Origin.PIN), want(NAMES[1], jobs=9), want(NAMES[2], jobs=1))
    assert listed(everything(*wants, budget=room_for(2))) == set(NAMES[:2])
    assert listed(everything(*wants, budget=room_for(1))) == {NAMES[0]}


def test_datasets_that_jobs_share_take_room_once():
    wants = [want(*NAMES[:4], jobs=3), want(*NAMES[:5], jobs=2), want(*NAMES[1:3], jobs=1)]
    assert said(everything(*wants, budget=room_for(5)))["DataLocalityTruncated"] == "false"
    assert listed(everything(*wants, budget=room_for(4))) == set(NAMES[:4])


def test_datasets_elsewhere_take_no_room():
    drafted = draft(facts(replica(NAMES[0])), demand(want(*NAMES[1:30]), want(NAMES[0])), room_for(3))
    assert (listed(drafted), drafted.omitted_entries) == ({NAMES[0]}, ())


def test_clashing_datasets_take_no_room():
    view = facts(replica(L1), replica(LOWER), replica(L2))
    tight = Budget(line_bytes=BASE + len(f"'{L2}'=\"AVAILABLE\";"))
    assert listed(draft(view, demand(L1, LOWER, L2), tight)) == {L2}


def test_the_plain_list_is_dropped_before_a_state_is():
    drafted = everything(want(*NAMES[:5]), budget=Budget(ad_bytes=5 * STATE_ENTRY + 100 + SET_OF_FIVE))
    assert listed(drafted) == set(NAMES[:5])
    assert "AvailableDatasets" not in said(drafted)
    assert said(drafted)["DataLocalityTruncated"] == "true"


def test_the_plain_list_stays_where_only_the_line_of_states_is_full():
    drafted = everything(want(*NAMES[:5]), want(*NAMES[5:30]), budget=room_for(6))
    assert said(drafted)["AvailableDatasets"].count(",") == 5


@pytest.mark.parametrize("line", ["DatasetAsOf", "DatasetFractions"])
def test_the_lines_of_ages_and_fractions_count_too(line):
    later = NOON + MINUTE
    partial = [replica(did, state=ReplicaState.PARTIAL, fraction=0.5) for did in NAMES]
    known = memory(holding(*partial))
    known = apply_survey(
        known, survey(*((did, Unseen("x")) for did in NAMES), at=later), set(NAMES), now=later
    )
    view = build_snapshot({"rucio": known}, set(NAMES), now=later, max_age=BOUND)
    drafted = draft(view, demand(*NAMES), Budget(line_bytes=300))
    assert said(drafted)[line].count("'") > 2
    assert longest(drafted) <= 300
    assert said(drafted)["DataLocalityTruncated"] == "true"


def long_lines(drafted: Draft) -> list[int]:
    return [len(f"{name} = {text}") for name, text in drafted.content if text[0] in "[{"]


@pytest.mark.parametrize(
    ("limited", "used", "sizes"),
    [("line_bytes", max, range(100, 1100)), ("ad_bytes", sum, range(130, 1500))],
    ids=["one line", "all lines together"],
)
def test_no_budget_is_ever_exceeded_not_by_one_byte(limited, used, sizes):
    later = NOON + MINUTE
    partial = [replica(did, state=ReplicaState.PARTIAL, fraction=0.5) for did in NAMES[:5]]
    known = memory(holding(*partial, *(replica(did) for did in NAMES[5:15])))
    known = apply_survey(known, survey(at=later), set(NAMES[:15]), now=later)
    view = build_snapshot({"rucio": known}, set(NAMES[:15]), now=later, max_age=BOUND)
    made = [draft(view, demand(*NAMES[:15]), Budget(**{limited: size})) for size in sizes]
    assert all(used(long_lines(drafted)) <= size for drafted, size in zip(made, sizes, strict=True))
    assert {len(listed(drafted)) for drafted in made} >= set(range(5, 16))


# ---- generations


def numbered(drafted: Draft, last: SiteAd | None = None, *, published=None, now=NOON) -> SiteAd:
    there = {} if published is None else {CAM: published}
    return assign_generations(
        {CAM: drafted}, {CAM: last} if last else {}, published_generations=there, now=now
    )[CAM]


ONE, OTHER = draft(facts(replica(L1))), draft(facts(replica(L2)))


def test_the_first_generation_is_the_unix_time():
    assert numbered(ONE).generation == to_unix(NOON)


def test_a_generation_stays_while_the_content_does_also_when_the_age_moves():
    first = numbered(ONE)
    later = draft(facts(replica(L1), at=NOON + HOUR, now=NOON + HOUR))
    again = numbered(later, first, published=first.generation, now=NOON + HOUR)
    assert (again.generation, again.as_of) == (first.generation, NOON + HOUR)


def test_a_change_of_content_gets_the_unix_time_of_the_change():
    assert numbered(OTHER, numbered(ONE), now=NOON + HOUR).generation == to_unix(NOON + HOUR)


@pytest.mark.parametrize("back", [timedelta(0), HOUR])
def test_two_changes_in_a_second_or_a_clock_that_went_back_still_count_up(back):
    first = numbered(ONE)
    assert numbered(OTHER, first, now=NOON - back).generation == first.generation + 1


def test_a_change_and_its_undoing_are_two_changes():
    first = numbered(ONE)
    second = numbered(OTHER, first)
    assert numbered(ONE, second).generation == first.generation + 2


def test_a_lost_state_sends_no_older_generation_than_was_read_back():
    ahead = to_unix(NOON) + 1000
    assert numbered(ONE, published=ahead).generation == ahead + 1
    assert numbered(ONE, published=5).generation == to_unix(NOON)


def test_an_old_state_sends_no_older_generation_than_was_read_back():
    first = numbered(ONE)
    ahead = first.generation + 1000
    assert numbered(ONE, first, published=ahead).generation == ahead + 1
    assert numbered(OTHER, first, published=ahead).generation == ahead + 1


def test_a_publisher_that_lags_changes_no_generation():
    first = numbered(ONE)
    assert numbered(ONE, first, published=first.generation - 10, now=NOON + HOUR) == first


def test_an_ad_is_never_dated_in_the_future():
    assert numbered(Draft(CAM, NOON + HOUR, ONE.content)).as_of == NOON


def test_a_small_step_of_a_transfer_changes_no_ad():
    steps = [
        draft(facts(replica(L3, state=ReplicaState.INCOMING, fraction=fraction))).content
        for fraction in (0.501, 0.509)
    ]
    assert steps[0] == steps[1]
