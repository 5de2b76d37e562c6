"""The table of plan.py, row by row."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.domain.model import Action, ActionKind
from hydrator.reconcile.publish import apply_plan, plan
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, ad, published
from tests.memory import MemoryPublisher

FOR_EVER = None
EXPIRES = 5 * MINUTE
SECOND = timedelta(seconds=1)
LATER = NOON + 5 * MINUTE
HALF = timedelta(microseconds=500_000)


def decide(there, desired, *, retired=frozenset(), now=NOON, refresh_after=EXPIRES):
    return plan(there, {a.site: a for a in desired}, retired=retired, now=now, refresh_after=refresh_after)


def test_an_ad_that_is_not_there_is_published():
    assert decide({}, [ad(L1)]) == (Action(ActionKind.PUBLISH, CAM, "not published", ad(L1)),)


@pytest.mark.parametrize("there", [2, 4])
def test_another_generation_is_replaced_and_named_also_a_higher_one(there):
    wanted = ad(L1, generation=3)
    assert decide(published(ad(generation=there)), [wanted]) == (
        Action(ActionKind.PUBLISH, CAM, f"replaces generation {there}", wanted),
    )


def test_ad_with_a_newer_reading_is_sent_again_once_due():
    new = ad(L1, at=LATER)
    for now, action in ((LATER - SECOND, Action(ActionKind.NOOP, CAM)), (LATER, refresh(new))):
        assert decide(published(ad(L1)), [new], now=now) == (action,)


def test_ad_with_a_newer_reading_is_sent_at_once_where_ads_stay():
    new = ad(L1, at=NOON + SECOND)
    assert decide(published(ad(L1)), [new], now=NOON + SECOND, refresh_after=FOR_EVER) == (refresh(new),)


def refresh(new):
    return Action(ActionKind.REFRESH, CAM, ad=new)


def opened(*dids, until=LATER, **more):
    return replace(ad(*dids, **more), openings=(("DataLocalityBacklog", "3"),), open_until=until)


@pytest.mark.parametrize("refresh_after", [EXPIRES, FOR_EVER])
@pytest.mark.parametrize("at", [NOON, NOON + SECOND])
def test_ad_with_openings_that_are_not_there_is_sent_at_once(refresh_after, at):
    """With and without newer facts: jobs that may read from elsewhere now must not wait for a refresh."""
    (action,) = decide(published(ad(L1)), [opened(L1, at=at)], now=NOON + SECOND, refresh_after=refresh_after)
    assert action.kind is (ActionKind.KEEP if at == NOON else ActionKind.REFRESH)
    assert action.ad.open_until == LATER


def test_ad_whose_openings_are_there_is_not_sent_again():
    assert decide(published(opened(L1)), [opened(L1)], now=NOON + SECOND) == (Action(ActionKind.NOOP, CAM),)
    assert decide(published(opened(L1)), [ad(L1)], now=NOON + SECOND) == (Action(ActionKind.NOOP, CAM),), (
        "they end by themselves"
    )


def test_openings_that_were_not_read_back_are_unconfirmed():
    class Forgetful(MemoryPublisher):
        def published(self):
            return {site: replace(one, open_until=None) for site, one in super().published().items()}

    for publisher, missing in ((MemoryPublisher(), ()), (Forgetful(), (CAM,))):
        assert apply_plan(decide({}, [opened(L1)]), publisher).unconfirmed_sites == missing


def test_an_ad_without_news_is_held_with_the_age_it_has_before_it_expires():
    action = decide(published(ad(L1)), [ad(L1)], now=LATER)
    assert action == (Action(ActionKind.KEEP, CAM, "no newer facts since 2026-11-21 12:00:00 UTC", ad(L1)),)


def test_part_of_a_second_is_no_news():
    read = ad(L1, at=NOON + HALF)
    (action,) = decide(published(ad(L1, at=NOON)), [read], now=LATER)
    assert action == Action(ActionKind.KEEP, CAM, "no newer facts since 2026-11-21 12:00:00 UTC", read)


@pytest.mark.parametrize("now", [NOON, LATER, NOON + 1000 * HOUR])
def test_ad_without_news_is_not_sent_again_where_ads_do_not_expire(now):
    assert decide(published(ad(L1)), [ad(L1)], now=now, refresh_after=FOR_EVER) == (
        Action(ActionKind.NOOP, CAM),
    )


def test_an_ad_that_seems_newer_there_than_here_is_put_right_when_due():
    old = ad(L1)
    there = published(ad(L1, at=NOON + MINUTE))
    hold = Action(ActionKind.KEEP, CAM, "no newer facts since 2026-11-21 12:00:00 UTC", old)
    assert decide(there, [old], now=LATER) == (hold,)


def test_a_site_of_which_nothing_is_known_is_held_not_emptied():
    (action,) = decide(published(ad(L1)), [], now=NOON + 1000 * HOUR)
    assert action == Action(
        ActionKind.KEEP,
        CAM,
        "the daemon has no facts about the site; add the site to sites.retired to remove its ad",
        None,
    )


def test_retired_site_alone_is_withdrawn_even_with_a_desired_ad():
    there = published(ad(L1, site=CAM), ad(L1, site=RAL))
    actions = decide(there, [ad(L2, site=CAM), ad(L1, site=RAL)], retired={CAM})
    assert actions == (
        Action(ActionKind.WITHDRAW, CAM, "the site is retired in the configuration"),
        Action(ActionKind.NOOP, RAL),
    )


def test_ad_received_shortly_after_now_is_not_due():
    assert decide(published(ad(L1), heard=NOON + MINUTE), [ad(L1)]) == (Action(ActionKind.NOOP, CAM),)


def test_ad_received_far_in_the_future_is_due():
    assert decide(published(ad(L1), heard=NOON + 2 * HOUR), [ad(L1)])[0].ad == ad(L1)
