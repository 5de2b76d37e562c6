"""What is looked at next: everything gets its turn, doubts come first, nobody takes it all."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator.domain.model import Site
from hydrator.reconcile.audit.priority_queue import (
    FALSE_CLAIMS_WEIGHT,
    OLDEST_MIN_TURNS,
    RECHECK_TURNS,
    RETRY_TURNS,
    AuditQueue,
)
from tests.factories import CAM, OSO, RAL


def things(site: Site, count: int) -> dict[str, frozenset[Site]]:
    return {f"{site}:{n}": frozenset({site}) for n in range(count)}


def rota(*held: dict[str, frozenset[Site]], seed: int = 1, **more) -> AuditQueue[str]:
    made: AuditQueue[str] = AuditQueue(seed)
    made.update({name: sites for each in held for name, sites in each.items()}, **more)
    return made


def drawn(from_: AuditQueue[str], turns: int) -> list[str]:
    return [turn.item for _ in range(turns) if (turn := from_.take_next())]


def by_site(names: list[str]) -> Counter[str]:
    return Counter(name.partition(":")[0] for name in names)


def test_empty_audit_queue_hands_out_nothing():
    assert rota().take_next() is None


def test_everything_is_looked_at_once_before_anything_is_looked_at_twice():
    everything = things(CAM, 40)
    first = drawn(rota(everything), 40)
    assert sorted(first) == sorted(everything)


def test_the_same_seed_gives_the_same_order_and_another_one_another():
    assert drawn(rota(things(CAM, 50), seed=1), 100) == drawn(rota(things(CAM, 50), seed=1), 100)
    assert drawn(rota(things(CAM, 50), seed=1), 50) != drawn(rota(things(CAM, 50), seed=2), 50)


def test_large_and_small_sites_are_audited_equally_for_few_false_claims():
    turns = by_site(drawn(rota(things(CAM, 200), things(RAL, 5000)), 200))
    assert abs(turns[CAM] - turns[RAL]) <= 1


def test_small_site_does_not_take_the_audit_turns_of_others():
    turns = by_site(drawn(rota(things(CAM, 5), things(RAL, 500)), 400))
    assert turns[CAM] < 400 / 10
    assert turns[CAM] >= 5


def test_item_at_several_sites_counts_for_each_of_them():
    shared = {f"both:{n}": frozenset({CAM, RAL}) for n in range(100)}
    turns = by_site(drawn(rota(shared, things(OSO, 100)), 100))
    assert turns["both"] == turns[OSO] == 50


def test_new_items_come_before_verified_ones():
    old = things(CAM, 30)
    made = rota(old)
    drawn(made, 30)
    new = {**old, "CAM:new": frozenset({CAM})}
    made.update(new)
    assert drawn(made, 1) == ["CAM:new"]


def test_oldest_item_gets_its_turn_among_many_new_ones():
    held = things(CAM, 1)
    made = rota(held)
    assert drawn(made, 1) == ["CAM:0"]
    made.update(held | {f"CAM:later-{n}": frozenset({CAM}) for n in range(5000)})
    later = drawn(made, OLDEST_MIN_TURNS + 10)
    assert "CAM:0" in later[OLDEST_MIN_TURNS - 10 :]
    assert "CAM:0" not in later[: OLDEST_MIN_TURNS - 10]


def test_a_site_that_lied_comes_up_more_often_and_no_other_is_forgotten():
    made = rota(things(CAM, 400), things(RAL, 400), sites_with_false_claims={CAM})
    turns = by_site(drawn(made, 400))
    assert turns[CAM] / turns[RAL] > FALSE_CLAIMS_WEIGHT / 2
    assert turns[RAL] > 40


def test_a_suspect_comes_up_at_once():
    made = rota(things(CAM, 1000))
    made.prioritize("CAM:777")
    assert "CAM:777" in drawn(made, 2)
    assert "CAM:777" not in drawn(made, 500)


def test_reported_item_is_marked_even_in_its_own_turn():
    made = rota(things(CAM, 20))
    for n in range(20):
        made.prioritize(f"CAM:{n}")
    turns = [made.take_next() for _ in range(20)]
    assert {turn.item for turn in turns if turn.is_reported} == set(things(CAM, 20))


def test_reported_item_that_failed_comes_up_again_and_leaves_others_their_turns():
    made = rota(things(CAM, 1000), things(RAL, 1000))
    made.prioritize("CAM:777")
    turns = []
    for _ in range(4 * RETRY_TURNS):
        turns.append(made.take_next())
        if turns[-1].is_reported:
            made.mark_failed(turns[-1].item, is_reported=True)
    assert 3 <= [turn.item for turn in turns if turn.is_reported].count("CAM:777") <= 5


def test_complaint_about_an_unknown_item_changes_nothing():
    made = rota(things(CAM, 3))
    made.prioritize("CAM:unheard-of")
    assert sorted(drawn(made, 3)) == ["CAM:0", "CAM:1", "CAM:2"]


def test_complaints_take_half_of_the_turns_at_most():
    made = rota(things(CAM, 300), things(RAL, 300))
    for n in range(300):
        made.prioritize(f"CAM:{n}")
    assert by_site(drawn(made, 200))[RAL] >= 49


def test_disputed_item_is_rechecked_and_marked_as_recheck():
    made = rota(things(CAM, 2000))
    made.prioritize("CAM:5")
    drawn(made, 2)
    made.update(things(CAM, 2000), disputed_items=["CAM:5"])
    turns = [made.take_next() for _ in range(3 * RECHECK_TURNS)]
    again = [n for n, turn in enumerate(turns) if turn and turn.is_recheck]
    assert len(again) == 2
    assert all(turns[n].item == "CAM:5" for n in again)
    made.update(things(CAM, 2000))
    assert not any(made.take_next().is_recheck for _ in range(2 * RECHECK_TURNS))


def test_failed_items_come_up_before_verified_ones():
    made = rota(things(CAM, 10))
    first = drawn(made, 5)
    made.mark_failed(first[3])
    assert drawn(made, 6)[-1] == first[3]


def test_removed_items_are_not_handed_out():
    made = rota(things(CAM, 10))
    drawn(made, 5)
    made.update(things(CAM, 3))
    assert set(drawn(made, 20)) == set(things(CAM, 3))


def test_a_site_that_comes_later_does_not_take_all_turns_to_catch_up():
    made = rota(things(CAM, 500))
    drawn(made, 300)
    made.update(things(CAM, 500) | things(RAL, 500))
    assert by_site(drawn(made, 100))[CAM] >= 49


SITES = st.sampled_from([CAM, RAL, OSO])
HELD = st.dictionaries(st.integers(0, 30).map(str), st.frozensets(SITES, min_size=1), max_size=20)


@settings(deadline=None)
@given(
    seed=st.integers(),
    worlds=st.lists(HELD, min_size=1, max_size=4),
    turns=st.integers(0, 30),
    data=st.data(),
)
def test_whatever_comes_and_goes_everything_that_stays_gets_its_turn(seed, worlds, turns, data):
    made: AuditQueue[str] = AuditQueue(seed)
    for world in worlds:
        doubted = data.draw(st.sets(st.sampled_from(sorted(world)))) if world else set()
        made.update(world, disputed_items=doubted, sites_with_false_claims=data.draw(st.frozensets(SITES)))
        for thing in data.draw(st.lists(st.integers(0, 30).map(str), max_size=3)):
            made.prioritize(thing)
        for _ in range(turns):
            turn = made.take_next()
            assert (turn is None) == (not world)
            assert turn is None or turn.item in world
            if turn and data.draw(st.booleans()):
                made.mark_failed(turn.item, is_reported=turn.is_reported)
    world = worlds[-1]
    made.update(world)
    # small sites come up seldom, so give each site its due
    assert set(drawn(made, 60 * 20 * 4)) == set(world)
