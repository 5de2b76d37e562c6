"""Readings into facts: what replaces, what keeps its age, what folds, what clashes."""

from itertools import permutations

import pytest

from hydrator.domain.model import DatasetState, Did, Fact, SiteFacts, Unseen
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey, build_snapshot
from tests.factories import (
    BEST_FIRST,
    BOUND,
    CAM,
    HOUR,
    L1,
    L2,
    L3,
    MINUTE,
    NOON,
    OSO,
    RAL,
    facts,
    holding,
    memory,
    replica,
    seen,
    survey,
    with_times,
)

AVAILABLE, STAGING, UNKNOWN = DatasetState.AVAILABLE, DatasetState.STAGING, DatasetState.UNKNOWN
LATER = NOON + MINUTE


def view(*memories: CatalogueMemory, now=NOON, wanted=frozenset({L1, L2, L3}), bound=BOUND):
    by_name = {f"c{n}": m for n, m in enumerate(memories)}
    return with_times(build_snapshot(by_name, wanted, now=now, max_age=bound))


@pytest.mark.parametrize("state", BEST_FIRST)
def test_dataset_state_follows_from_the_replica_state(state):
    assert facts(replica(state=state)).sites[CAM].facts == {L1: Fact(state, NOON)}


@pytest.mark.parametrize("better", range(5))
def test_storage_elements_and_catalogues_fold_best_first_in_any_order(better):
    for worse in BEST_FIRST[better + 1 :]:
        for one, other in permutations([BEST_FIRST[better], worse]):
            both = facts(replica(state=one), replica(state=other)).sites[CAM].facts
            apart = view(memory(holding(replica(state=one))), memory(holding(replica(state=other))))
            alone = facts(replica(state=BEST_FIRST[better])).sites[CAM].facts
            assert both == apart.sites[CAM].facts == alone


def test_the_largest_fraction_goes_with_the_state_but_not_with_a_complete_one():
    partial = [replica(state=DatasetState.PARTIAL, fraction=f) for f in (0.2, 0.7)]
    assert facts(*partial).sites[CAM].facts[L1].fraction == 0.7
    assert facts(*partial, replica()).sites[CAM].facts[L1].fraction is None


def test_a_catalogue_that_names_no_fraction_takes_none_away():
    moving = replica(state=DatasetState.STAGING)
    assert facts(moving, replica(state=DatasetState.PARTIAL, fraction=0.4)).sites[CAM].facts[L1] == Fact(
        STAGING, NOON, 0.4
    )


def test_newer_fact_of_two_equal_ones_is_used():
    old = memory(holding(replica(), at=NOON - HOUR))
    for pair in permutations([old, memory(holding(replica()))]):
        assert view(*pair).sites[CAM] == SiteFacts(NOON, {L1: Fact(AVAILABLE, NOON)})


def test_a_dataset_left_out_of_an_answer_is_unseen_not_absent():
    before = memory(holding(replica(L1)))
    after = view(apply_survey(before, survey(at=LATER), {L1}, now=LATER), now=LATER)
    assert after.sites[CAM].facts == {L1: Fact(AVAILABLE, NOON)}
    assert "does not have this dataset" in after.unseen_reasons[L1]


def test_a_catalogue_that_fails_leaves_everything_standing_with_its_age():
    before = memory(holding(replica(L1)))
    failed = apply_survey(before, Unseen("down"), {L1, L2}, now=NOON + HOUR)
    after = view(failed, now=NOON + HOUR)
    assert after.sites == view(before).sites
    assert after.unseen_reasons == {L1: "c0: down", L2: "c0: down"}
    assert (failed.failure, before.failure) == ("down", None)


def test_a_catalogue_that_recovers_forgets_its_failure():
    failed = apply_survey(memory(holding(replica(L1))), Unseen("down"), {L1}, now=LATER)
    again = apply_survey(failed, holding(replica(L1), at=LATER), {L1}, now=LATER)
    assert (again.failure, again.unseen_reasons) == (None, {})


def test_a_catalogue_that_never_answered_says_nothing_of_any_site():
    assert view(apply_survey(CatalogueMemory(), Unseen("down"), {L1}, now=NOON)).sites == {}


def test_partly_read_site_merges_the_new_facts_with_its_old_ones():
    before = memory(holding(replica(state=DatasetState.PARTIAL)))
    moving = replica(state=DatasetState.STAGING)
    answer = survey((L1, seen(moving, at=LATER, unreachable_sites=frozenset({CAM}))), at=LATER)
    after = view(apply_survey(before, answer, {L1}, now=LATER), now=LATER)
    assert after.sites[CAM].facts == {L1: Fact(STAGING, LATER)}


BLIND = frozenset({CAM})


def blinded(before: CatalogueMemory, *replicas, at) -> CatalogueMemory:
    """What follows when a part of CAM cannot be looked at and the rest of it holds *replicas*."""
    return apply_survey(
        before, survey((L1, seen(*replicas, at=at, unreachable_sites=BLIND)), at=at), {L1}, now=at
    )


def test_site_that_was_never_read_as_a_whole_has_what_a_part_of_it_reported():
    after = blinded(CatalogueMemory(), replica(), at=NOON)
    assert view(after).sites[CAM] == SiteFacts(NOON, {L1: Fact(AVAILABLE, NOON)})


def test_old_fact_of_a_partly_read_site_yields_to_the_new_one_past_max_age():
    late = NOON + BOUND + MINUTE
    partial = replica(state=DatasetState.PARTIAL, fraction=0.5)
    after = blinded(memory(holding(replica())), partial, at=late)
    assert view(after, now=NOON + BOUND).sites[CAM].facts == {L1: Fact(AVAILABLE, NOON)}
    assert view(after, now=late).sites[CAM].facts == {L1: Fact(DatasetState.PARTIAL, late, 0.5)}


def test_partly_read_site_keeps_its_old_facts_until_a_whole_reading():
    partial = replica(state=DatasetState.PARTIAL)
    twice = blinded(blinded(memory(holding(replica())), partial, at=LATER), at=LATER + MINUTE)
    assert view(twice, now=LATER + MINUTE).sites[CAM].facts == {L1: Fact(AVAILABLE, NOON)}
    again = blinded(twice, partial, at=LATER + 2 * MINUTE)
    assert view(again, now=LATER + 2 * MINUTE).sites[CAM].facts == {L1: Fact(AVAILABLE, NOON)}
    read = apply_survey(again, holding(asked=[L1], at=NOON + HOUR), {L1}, now=NOON + HOUR)
    assert view(read, now=NOON + HOUR).sites[CAM].facts == {}


def test_a_site_that_could_not_be_looked_at_at_all_is_as_old_as_before():
    before = memory(holding(replica(L1, CAM), replica(L2, CAM)))
    readings = [(did, seen(at=LATER, unreachable_sites=BLIND)) for did in (L1, L2)]
    once = apply_survey(before, survey(*readings, at=LATER), {L1, L2}, now=LATER)
    twice = apply_survey(once, survey(*readings, at=LATER), {L1, L2}, now=LATER)
    for after in (once, twice):
        assert view(after, now=LATER).sites[CAM] == view(before).sites[CAM]
        assert view(after, now=LATER).sites[RAL].as_of == LATER
    in_part = survey((L1, seen(at=LATER, unreachable_sites=BLIND)), (L2, seen(at=LATER)), at=LATER)
    read = view(apply_survey(twice, in_part, {L1, L2}, now=LATER), now=LATER).sites[CAM]
    assert read == SiteFacts(LATER, {L1: Fact(AVAILABLE, NOON)})


def test_a_fact_past_the_bound_says_no_fraction():
    old = memory(holding(replica(state=DatasetState.PARTIAL, fraction=0.5)))
    assert view(old, now=NOON + BOUND + MINUTE).sites[CAM].facts == {L1: Fact(UNKNOWN, NOON)}


@pytest.mark.parametrize("state", BEST_FIRST)
def test_a_fresh_fact_of_one_catalogue_beats_the_outdated_one_of_another(state):
    now = NOON + BOUND + MINUTE
    old, new = memory(holding(replica())), memory(holding(replica(state=state), at=now), now=now)
    for pair in permutations([old, new]):
        assert view(*pair, now=now).sites[CAM].facts == view(new, now=now).sites[CAM].facts


def test_dataset_that_is_no_longer_demanded_is_forgotten():
    before = memory(holding(replica(L1), replica(L2)))
    after = apply_survey(before, Unseen("down"), {L2}, now=NOON)
    assert (set(after.records), set(after.unseen_reasons)) == ({L2}, {L2})


def test_site_that_one_catalogue_no_longer_names_is_not_as_old_as_the_last_answer_of_another():
    silent = memory(holding(replica(L1, OSO), sites=[OSO]))
    before = memory(holding(replica(L1, OSO), sites=[OSO], at=LATER), now=LATER)
    answer = survey((L1, seen(at=LATER + MINUTE)), at=LATER + MINUTE, sites=[CAM])
    after = view(silent, apply_survey(before, answer, {L1}, now=LATER + MINUTE), now=LATER + MINUTE)
    assert after.sites[OSO] == SiteFacts(LATER, {L1: Fact(AVAILABLE, LATER)})


LOWER = Did("lofar:l1")


def test_dids_that_differ_in_letter_case_only_clash_wherever_they_are_also_without_demand():
    here = facts(replica(L1, CAM), replica(LOWER, RAL), replica(L2))
    pair = [memory(holding(replica(L1))), memory(holding(replica(LOWER)))]
    without_demand = memory(survey((L1, seen(replica(L1), case_variants=frozenset({LOWER})))))
    for clash in (here, view(*pair, wanted={L1, LOWER}), view(without_demand)):
        assert clash.case_collisions == ((L1, LOWER),)


def test_a_did_that_does_not_exist_clashes_with_nothing():
    assert facts(replica(L1), asked=[LOWER]).case_collisions == ()
    assert view(memory(survey((L1, seen(case_variants=frozenset({LOWER})))))).case_collisions == ()


def test_a_wanted_name_that_a_catalogue_has_in_another_letter_case_is_misspelt():
    by_demand = facts(replica(L1), asked=[LOWER])
    by_twin = view(memory(survey((LOWER, seen(case_variants=frozenset({L1}))))), wanted={LOWER})
    for here in (by_demand, by_twin):
        assert here.misspelt_dids == {LOWER: (L1,)}
        assert here.case_collisions == ()
    assert facts(replica(L1), asked=[L2]).misspelt_dids == {}


def test_a_name_that_one_catalogue_has_is_not_misspelt():
    pair = [memory(holding(replica(L1), asked=[LOWER])), memory(holding(replica(LOWER)))]
    assert view(*pair, wanted={L1, LOWER}).misspelt_dids == {}


def test_a_name_that_could_not_be_asked_about_is_not_misspelt():
    one = memory(survey((L1, seen(replica())), (LOWER, Unseen("busy"))))
    assert view(one, wanted={L1, LOWER}).misspelt_dids == {}


def test_a_misspelt_name_that_comes_to_exist_is_a_clash():
    wanted = frozenset({L1, LOWER})
    first = memory(holding(replica(L1), asked=[LOWER]))
    then = apply_survey(first, holding(replica(L1), replica(LOWER), at=LATER), wanted, now=LATER)
    assert view(first, wanted=wanted).misspelt_dids == {LOWER: (L1,)}
    again = view(then, wanted=wanted)
    assert (again.misspelt_dids, again.case_collisions) == ({}, ((L1, LOWER),))


def test_undemanded_dataset_collides_with_nothing():
    assert view(memory(holding(replica(L1), replica(LOWER))), wanted={L1}).case_collisions == ()


def test_the_larger_size_counts_where_catalogues_differ():
    sizes = [memory(survey((L1, seen(replica(), bytes_total=size)))) for size in (5, 9, None)]
    for order in permutations(sizes):
        assert view(*order).bytes_total == {L1: 9}


def test_all_unseen_reasons_are_listed_with_their_catalogues():
    failed = apply_survey(CatalogueMemory(), Unseen("down"), {L1}, now=NOON)
    assert view(failed, failed).unseen_reasons == {L1: "c0: down; c1: down"}
