"""The table of plan.py, row by row."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.domain.model import Hold, NoOp, Publish, Refresh, Withdraw
from hydrator.reconcile.publish import Policy, apply_plan, plan
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, ad, published
from tests.memory import MemoryPublisher

FOR_EVER = Policy(refresh_after=5 * MINUTE, has_expiring_ads=False)
EXPIRES = Policy(refresh_after=5 * MINUTE, has_expiring_ads=True)
SECOND = timedelta(seconds=1)
LATER = NOON + 5 * MINUTE
HALF = timedelta(microseconds=500_000)


def decide(there, desired, *, retired=frozenset(), now=NOON, policy=EXPIRES):
    return plan(there, {a.site: a for a in desired}, retired=retired, now=now, policy=policy)


def test_an_ad_that_is_not_there_is_published():
    assert decide({}, [ad(L1)]) == (Publish(ad(L1), "not published"),)


@pytest.mark.parametrize("there", [2, 4])
def test_another_generation_is_replaced_and_named_also_a_higher_one(there):
    wanted = ad(L1, generation=3)
    assert decide(published(ad(generation=there)), [wanted]) == (
        Publish(wanted, f"replaces generation {there}"),
    )


@pytest.mark.parametrize("policy", [EXPIRES, FOR_EVER])
def test_ad_with_a_newer_reading_is_sent_again_once_due(policy):
    new = ad(L1, at=LATER)
    assert decide(published(ad(L1)), [new], now=LATER - SECOND, policy=policy) == (NoOp(CAM),)
    assert decide(published(ad(L1)), [new], now=LATER, policy=policy) == (Refresh(new),)


def estimated(*dids, valid_for=10 * MINUTE, now=NOON, **more):
    """An ad whose estimates are valid for ten minutes from now, as the daemon makes them in each cycle."""
    return replace(ad(*dids, **more), estimates_until=now + valid_for)


@pytest.mark.parametrize("policy", [EXPIRES, FOR_EVER, Policy(HOUR, has_expiring_ads=False)])
@pytest.mark.parametrize("at", [NOON, LATER])
def test_ad_is_sent_again_after_half_the_time_of_its_estimates(policy, at):
    """With and without newer facts, and also where the publisher keeps the ad for longer."""
    policy = replace(policy, refresh_after=max(policy.refresh_after, 6 * MINUTE))
    before = estimated(L1, at=at, now=LATER - SECOND)
    assert decide(published(ad(L1)), [before], now=LATER - SECOND, policy=policy) == (NoOp(CAM),)
    (action,) = decide(published(ad(L1)), [estimated(L1, at=at, now=LATER)], now=LATER, policy=policy)
    assert isinstance(action, Refresh if at == LATER else Hold)
    assert action.ad.estimates_until == LATER + 10 * MINUTE


def test_ad_whose_estimates_ended_is_not_sent_again_for_them():
    ended = estimated(L1, now=NOON, valid_for=MINUTE)
    assert decide(published(ad(L1)), [ended], now=NOON + HOUR, policy=FOR_EVER) == (NoOp(CAM),)


def test_ad_with_estimates_is_sent_twice_in_their_time_however_often_the_daemon_decides():
    time, sent = [NOON], []
    publisher = MemoryPublisher(clock=lambda: time[0])
    for seconds in range(0, 3600, 30):
        time[0] = NOON + timedelta(seconds=seconds)
        desired = {CAM: estimated(L1, at=time[0], now=time[0], generation=3)}
        todo = plan(publisher.published(), desired, retired=set(), now=time[0], policy=FOR_EVER)
        apply_plan(todo, publisher)
        sent += [time[0] for action in todo if not isinstance(action, NoOp)]
        assert publisher.ads[CAM].estimates_until > time[0]
    assert len(sent) == 12


def test_an_ad_without_news_is_held_with_the_age_it_has_before_it_expires():
    action = decide(published(ad(L1)), [ad(L1)], now=LATER)
    assert action == (Hold(CAM, "no newer facts since 2026-11-21 12:00:00 UTC", ad(L1)),)


def test_part_of_a_second_is_no_news():
    read = ad(L1, at=NOON + HALF)
    (action,) = decide(published(ad(L1, at=NOON)), [read], now=LATER)
    assert action == Hold(CAM, "no newer facts since 2026-11-21 12:00:00 UTC", read)


@pytest.mark.parametrize("now", [NOON, LATER, NOON + 1000 * HOUR])
def test_ad_without_news_is_not_sent_again_where_ads_do_not_expire(now):
    assert decide(published(ad(L1)), [ad(L1)], now=now, policy=FOR_EVER) == (NoOp(CAM),)


def test_an_ad_that_seems_newer_there_than_here_is_put_right_when_due():
    old = ad(L1)
    there = published(ad(L1, at=NOON + MINUTE))
    hold = Hold(CAM, "no newer facts since 2026-11-21 12:00:00 UTC", old)
    assert decide(there, [old], now=LATER) == (hold,)


def test_a_site_of_which_nothing_is_known_is_held_not_emptied():
    (action,) = decide(published(ad(L1)), [], now=NOON + 1000 * HOUR)
    assert action == Hold(
        CAM, "the daemon has no facts about the site; add the site to sites.retired to remove its ad", None
    )


def test_retired_site_alone_is_withdrawn_even_with_a_desired_ad():
    there = published(ad(L1, site=CAM), ad(L1, site=RAL))
    actions = decide(there, [ad(L2, site=CAM), ad(L1, site=RAL)], retired={CAM})
    assert actions == (Withdraw(CAM, "the site is retired in the configuration"), NoOp(RAL))


def test_ad_received_shortly_after_now_is_not_due():
    assert decide(published(ad(L1), heard=NOON + MINUTE), [ad(L1)]) == (NoOp(CAM),)


def test_ad_received_far_in_the_future_is_due():
    assert decide(published(ad(L1), heard=NOON + 2 * HOUR), [ad(L1)])[0].ad == ad(L1)
