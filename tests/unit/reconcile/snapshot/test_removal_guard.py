"""The removal guard: what is held, what passes, what ends a hold; and incidents of others, by name."""

import pytest

from hydrator.domain.model import DatasetState, Did, Unseen, to_unix
from hydrator.reconcile.evaluate import Evaluation, evaluate
from hydrator.reconcile.snapshot.removal_guard import HoldCause
from hydrator.reconcile.state import ReconcileState
from tests.factories import (
    CAM,
    MINUTE,
    NOON,
    OSO,
    RAL,
    demand,
    holding,
    replica,
    seen,
    settings_with,
    survey,
    with_times,
)

MANY = [Did(f"lofar:M{n:02}") for n in range(10)]
OTHERS = [Did(f"lofar:O{n:02}") for n in range(10)]
HERE = {CAM: MANY, RAL: MANY}


class Site:
    """Cycles over one catalogue, poll by poll; ``ads`` and ``held`` are what the last one left."""

    def __init__(self, *, confirm_polls=3, wanted=MANY, retired=(), **here):
        self.rules = settings_with(retired=retired, poll_seconds=120, confirm_polls=confirm_polls)
        self.wanted, self.now, self.state = list(wanted), NOON, ReconcileState()
        self.thought: Evaluation | None = None
        self.poll(HERE | here, after=0 * MINUTE)

    def poll(self, here=None, *, after=MINUTE, approved=None, answer=None, sites=(CAM, RAL)) -> Evaluation:
        """One cycle in which the catalogue says that just these datasets are *here*, by site."""
        self.now += after
        if answer is None:
            replicas = [replica(did, site) for site, dids in (here or {}).items() for did in dids]
            answer = holding(*replicas, at=self.now, sites=sites, asked=self.wanted)
        self.thought = evaluate(
            self.state,
            {"rucio": answer},
            demand(*self.wanted),
            published_generations={},
            settings=self.rules,
            now=self.now,
            approved_losses=approved,
        )
        self.state = self.thought.state
        return self.thought

    def listed(self, site=CAM) -> set[Did]:
        return set(self.thought.snapshot.sites[site].facts)

    def ad(self, site=CAM):
        return self.thought.ads[site]

    @property
    def held(self):
        return {site: (len(held.missing_polls), held.cause) for site, held in self.state.held_losses.items()}


def test_guard_holds_a_site_that_loses_more_than_its_share_with_its_age():
    pool = Site()
    before = pool.ad()
    pool.poll({CAM: MANY[:3], RAL: MANY})
    assert pool.held == {CAM: (7, HoldCause.SITE)}
    facts = with_times(pool.thought.snapshot).sites[CAM].facts
    assert {did: fact.as_of for did, fact in facts.items()} == {
        did: NOON + MINUTE if did in MANY[:3] else NOON for did in MANY
    }
    assert dict(pool.ad().content)["AvailableDatasets"] == dict(before.content)["AvailableDatasets"]
    assert f"'{MANY[9]}'={to_unix(NOON)}" in dict(pool.ad().content)["DatasetAsOf"]
    assert pool.ad(RAL).as_of == NOON + MINUTE


def test_a_site_of_which_nothing_is_left_keeps_its_very_ad():
    pool = Site()
    before = pool.ad()
    for _ in range(3):
        pool.poll({CAM: [], RAL: MANY})
        assert pool.ad() == before
    assert pool.held == {CAM: (10, HoldCause.SITE)}


@pytest.mark.parametrize(
    ("wanted", "left", "left_elsewhere"), [(10, 5, 10), (10, 6, 10), (10, 10, 10), (4, 0, 4), (1, 0, 0)]
)
def test_its_share_a_few_datasets_or_the_only_one_a_site_may_lose_at_once(wanted, left, left_elsewhere):
    pool = Site(wanted=MANY[:wanted])
    pool.poll({CAM: MANY[:left], RAL: MANY[:left_elsewhere]})
    assert (pool.held, pool.listed()) == ({}, set(MANY[:left]))


@pytest.mark.parametrize(("wanted", "left"), [(10, 6), (2, 0)])
def test_a_little_from_every_site_is_held_when_it_is_too_much_of_all(wanted, left):
    pool = Site(wanted=MANY[:wanted])
    pool.poll({CAM: MANY[:left], RAL: MANY[:left]})
    assert pool.held == dict.fromkeys((CAM, RAL), (wanted - left, HoldCause.ALL))


def test_one_dataset_that_leaves_another_site_passes_while_a_site_is_held():
    pool = Site()
    pool.poll({CAM: [], RAL: MANY[:9]})
    assert pool.held == {CAM: (10, HoldCause.SITE)}
    assert pool.listed(RAL) == set(MANY[:9])


def test_a_site_that_loses_its_few_datasets_while_another_is_held_is_held_too():
    three = (CAM, RAL, OSO)
    pool = Site(**{RAL: MANY[:3], OSO: MANY})
    pool.poll({CAM: MANY, RAL: MANY[:3], OSO: MANY}, sites=three)
    pool.poll({OSO: MANY}, sites=three)
    assert pool.held == {CAM: (10, HoldCause.SITE), RAL: (3, HoldCause.ALL)}
    assert pool.listed(RAL) == set(MANY[:3])


@pytest.mark.parametrize("state", [s for s in DatasetState if s is not DatasetState.AVAILABLE])
def test_a_dataset_that_is_listed_in_another_state_was_looked_at_and_is_no_loss(state):
    pool = Site()
    replicas = [replica(did, CAM, state) for did in MANY] + [replica(did, RAL) for did in MANY]
    pool.poll(answer=holding(*replicas, at=NOON + MINUTE, asked=MANY))
    assert pool.held == {}
    assert DatasetState.AVAILABLE not in {f.state for f in pool.thought.snapshot.sites[CAM].facts.values()}


def test_available_datasets_are_counted_apart_by_the_guard():
    """Ten datasets on tape do not hide that all five on disk vanish."""
    tape = [replica(did, CAM, DatasetState.NEARLINE) for did in MANY]
    disk = [Did(f"lofar:D{n}") for n in range(5)]
    pool = Site(wanted=[*MANY, *disk], CAM=[], RAL=[])
    both = [*tape, *(replica(did, CAM) for did in disk)]
    pool.poll(answer=holding(*both, at=pool.now + MINUTE, asked=[*MANY, *disk]))
    pool.poll(answer=holding(*tape, at=pool.now + MINUTE, asked=[*MANY, *disk]))
    assert pool.held == {CAM: (5, HoldCause.SITE)}


@pytest.mark.parametrize(("state", "on_tape"), [(DatasetState.NEARLINE, 0), (DatasetState.AVAILABLE, 20)])
def test_a_loss_beside_an_approved_one_is_compared_with_what_is_left(state, on_tape):
    """Of 20 datasets 11 are gone for sure. Then 5 are more than half of the other 9, though not of 20."""
    some, others = (
        [Did(f"lofar:{kind}{n:02}") for n in range(count)] for kind, count in (("S", 20), ("T", on_tape))
    )
    pool = Site(confirm_polls=1, wanted=[*some, *others], CAM=[], RAL=[])
    tape = [replica(did, CAM, DatasetState.NEARLINE) for did in others]
    for lost_count, held_count, approved in ((0, None, {}), (11, 11, {}), (16, 5, {CAM: {*some[:11]}})):
        left = [replica(did, CAM, state) for did in some[lost_count:]]
        answer = holding(*left, *tape, at=pool.now + MINUTE, asked=pool.wanted)
        pool.poll(answer=answer, approved=approved)
        assert pool.held == ({CAM: (held_count, HoldCause.SITE)} if held_count else {})


def test_a_retired_site_is_no_loss():
    pool = Site()
    pool.rules = settings_with(retired={CAM})
    for _ in range(3):  # the first of these withdraws its ad, so then only its old facts are left
        pool.poll({RAL: MANY}, sites=(RAL,))
        assert pool.held == {}


# ---- what ends a hold


def test_so_many_further_polls_that_say_the_same_let_it_go():
    pool = Site()
    for confirmed in range(3):
        pool.poll({CAM: [], RAL: MANY})
        assert pool.state.held_losses[CAM].confirmations == confirmed
        assert pool.listed() == set(MANY)
    pool.poll({CAM: [], RAL: MANY})
    assert (pool.held, pool.listed()) == ({}, set())
    assert pool.thought.released == {CAM: dict.fromkeys(MANY, "3 further polls said that it is gone")}
    assert pool.ad().as_of == pool.now


def test_a_further_loss_starts_the_count_of_its_site_again():
    """A list that becomes shorter with each poll is cut off somewhere; another site's loss is another's."""
    pool = Site(wanted=[*MANY, *OTHERS], CAM=[*MANY, *OTHERS], RAL=[*MANY, *OTHERS])
    counts = []
    for cam_left, ral_left in ((8, 8), (8, 8), (8, 8), (6, 8), (6, 8), (6, 8), (6, 8)):
        pool.poll({CAM: [*MANY, *OTHERS][:cam_left], RAL: [*MANY, *OTHERS][:ral_left]})
        held = pool.state.held_losses
        counts.append([held[site].confirmations if site in held else None for site in (CAM, RAL)])
    assert counts == [[0, 0], [1, 1], [2, 2], [0, None], [1, None], [2, None], [None, None]]
    assert len(pool.listed()) == 6


def test_cycles_that_follow_each_other_too_soon_are_one_poll():
    pool = Site()
    for _ in range(10):
        pool.poll({CAM: [], RAL: MANY}, after=MINUTE / 10)
    assert pool.state.held_losses[CAM].confirmations == 0
    pool.poll({CAM: [], RAL: MANY})
    assert pool.state.held_losses[CAM].confirmations == 1


def test_a_poll_that_sees_the_datasets_again_ends_the_hold_and_its_count():
    pool = Site()
    pool.poll({CAM: [], RAL: MANY})
    pool.poll({CAM: [], RAL: MANY})
    pool.poll(HERE)
    assert pool.held == {}
    assert pool.ad().as_of == pool.now
    pool.poll({CAM: [], RAL: MANY})
    assert (pool.state.held_losses[CAM].confirmations, pool.state.held_losses[CAM].started_at) == (
        0,
        pool.now,
    )


def test_a_poll_that_fails_neither_confirms_nor_ends_a_hold():
    pool = Site()
    pool.poll({CAM: [], RAL: MANY})
    since = pool.state.held_losses
    for _ in range(5):
        pool.poll(answer=Unseen("timeout"))
        assert (pool.state.held_losses, pool.listed()) == (since, set(MANY))
    half = [(did, seen(at=pool.now + MINUTE) if n < 5 else Unseen("?")) for n, did in enumerate(MANY)]
    pool.poll(answer=survey(*half, at=pool.now + MINUTE))
    assert sorted(pool.state.held_losses[CAM].missing_polls.values()) == [0] * 5 + [1] * 5


def test_rest_of_a_hold_passes_once_it_is_small_enough():
    pool = Site()
    pool.poll({CAM: MANY[:2], RAL: MANY})
    pool.poll({CAM: MANY[:8], RAL: MANY})
    assert (pool.held, pool.listed()) == ({}, set(MANY[:8]))


def test_approval_releases_only_the_approved_datasets():
    pool = Site()
    pool.poll({CAM: MANY[7:], RAL: MANY})
    pool.poll({CAM: [], RAL: MANY}, approved={CAM: frozenset(MANY[:2])})
    assert (pool.held, pool.listed()) == ({CAM: (8, HoldCause.SITE)}, set(MANY[2:]))
    assert pool.thought.released == {CAM: dict.fromkeys(MANY[:2], "gone, as the operator approved")}


def test_an_approval_holds_also_when_the_catalogue_fails_just_then():
    pool = Site()
    pool.poll({CAM: [], RAL: MANY})
    pool.poll(answer=Unseen("timeout"), approved={CAM: frozenset(MANY)})
    assert (pool.held, pool.listed()) == ({}, set())


def test_an_approval_takes_nothing_that_is_there_again_or_was_never_held():
    pool = Site()
    pool.poll({CAM: [], RAL: MANY})
    pool.poll(HERE, approved={CAM: frozenset(MANY), RAL: frozenset(MANY)})
    assert pool.listed() == pool.listed(RAL) == set(MANY)
    assert pool.thought.released == {}


def test_guard_without_confirming_polls_holds_nothing():
    pool = Site(confirm_polls=0)
    pool.poll({})
    assert (pool.held, pool.listed(), pool.listed(RAL)) == ({}, set(), set())


# ---- sites that are not named any more


def test_catalogue_that_names_no_sites_is_reported_and_loses_nothing():
    pool = Site()
    before = dict(pool.thought.ads)
    for _ in range(6):
        pool.poll({}, sites=())
        assert pool.thought.ads == before
    assert pool.held == {CAM: (10, HoldCause.UNNAMED), RAL: (10, HoldCause.UNNAMED)}
    assert pool.state.held_losses[CAM].started_at == NOON + MINUTE
    pool.poll(HERE)
    assert pool.held == {}


def test_unnamed_site_lists_nothing_after_the_operator_approves():
    pool = Site()
    pool.poll({RAL: MANY}, sites=(RAL,))
    pool.poll({RAL: MANY}, sites=(RAL,), approved={CAM: frozenset(MANY)})
    assert pool.held == {}
    assert dict(pool.ad().content)["DatasetStates"] == "[]"
    assert pool.listed(RAL) == set(MANY)


def test_a_site_that_is_unnamed_while_it_is_held_goes_on_being_held():
    pool = Site()
    pool.poll({CAM: [], RAL: MANY})
    pool.poll({RAL: MANY}, sites=(RAL,))
    assert (pool.held, pool.listed() if CAM in pool.thought.snapshot.sites else None) == (
        {CAM: (10, HoldCause.SITE)},
        set(MANY),
    )
