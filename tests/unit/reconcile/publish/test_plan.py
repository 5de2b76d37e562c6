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


def opened(*dids, until=LATER, **more):
    return replace(ad(*dids, **more), openings=(("DataLocalityBacklog", "3"),), open_until=until)


PUBLISH, REFRESH, KEEP, NOOP = ActionKind.PUBLISH, ActionKind.REFRESH, ActionKind.KEEP, ActionKind.NOOP
STAYS = "no newer facts since 2026-11-21 12:00:00 UTC"
UNKNOWN = "the daemon has no facts about the site; add the site to sites.retired to remove its ad"
SOON, LATE = NOON + SECOND, NOON + 1000 * HOUR
OLD, HALF_NEWER, NEWER, NEW = (ad(L1, at=at) for at in (NOON, NOON + HALF, SOON, LATER))
ROWS = {
    "not there": ({}, OLD, {}, (PUBLISH, "not published")),
    "a lower generation": (
        published(ad(generation=2)),
        ad(generation=3),
        {},
        (PUBLISH, "replaces generation 2"),
    ),
    "a higher one": (published(ad(generation=4)), ad(generation=3), {}, (PUBLISH, "replaces generation 4")),
    "newer, before it is due": (published(OLD), NEW, {"now": LATER - SECOND}, (NOOP,)),
    "newer, once it is due": (published(OLD), NEW, {"now": LATER}, (REFRESH,)),
    "newer, where ads stay": (published(OLD), NEWER, {"now": SOON, "refresh_after": FOR_EVER}, (REFRESH,)),
    "no news, before it expires": (published(OLD), OLD, {"now": LATER}, (KEEP, STAYS)),
    "part of a second is no news": (published(OLD), HALF_NEWER, {"now": LATER}, (KEEP, STAYS)),
    "no news, where ads stay": (published(OLD), OLD, {"refresh_after": FOR_EVER}, (NOOP,)),
    "the same after long": (published(OLD), OLD, {"now": LATE, "refresh_after": FOR_EVER}, (NOOP,)),
    "newer there than here": (published(ad(L1, at=NOON + MINUTE)), OLD, {"now": LATER}, (KEEP, STAYS)),
    "from the future there, so jobs take it for fresh": (published(NEW), OLD, {}, (KEEP, STAYS)),
    "nothing is known, so it is not emptied": (published(OLD), None, {"now": LATE}, (KEEP, UNKNOWN)),
    "received shortly after now": (published(OLD, heard=NOON + MINUTE), OLD, {}, (NOOP,)),
    "received far in the future": (published(OLD, heard=NOON + 2 * HOUR), OLD, {}, (KEEP, STAYS)),
    "its openings are there": (published(opened(L1)), opened(L1), {"now": SOON}, (NOOP,)),
    "its openings end by themselves": (published(opened(L1)), OLD, {"now": SOON}, (NOOP,)),
}


@pytest.mark.parametrize(("there", "desired", "when", "action"), ROWS.values(), ids=ROWS.keys())
def test_each_row_of_the_table_has_its_action(there, desired, when, action):
    sent = desired if action[0] is not NOOP else None
    assert decide(there, [desired] if desired else [], **when) == (
        Action(action[0], CAM, *action[1:], ad=sent),
    )


@pytest.mark.parametrize("refresh_after", [EXPIRES, FOR_EVER])
@pytest.mark.parametrize(("at", "kind"), [(NOON, KEEP), (SOON, REFRESH)])
def test_ad_with_openings_that_are_not_there_is_sent_at_once(refresh_after, at, kind):
    """With and without newer facts: jobs that may read from elsewhere now must not wait for a refresh."""
    (action,) = decide(published(OLD), [opened(L1, at=at)], now=SOON, refresh_after=refresh_after)
    assert (action.kind, action.ad.open_until) == (kind, LATER)


def test_openings_that_were_not_read_back_are_unconfirmed():
    class Forgetful(MemoryPublisher):
        def published(self):
            return {site: replace(one, open_until=None) for site, one in super().published().items()}

    for publisher, missing in ((MemoryPublisher(), ()), (Forgetful(), (CAM,))):
        assert apply_plan(decide({}, [opened(L1)]), publisher).unconfirmed_sites == missing


def test_retired_site_alone_is_withdrawn_even_with_a_desired_ad():
    there = published(ad(L1, site=CAM), ad(L1, site=RAL))
    actions = decide(there, [ad(L2, site=CAM), ad(L1, site=RAL)], retired={CAM})
    assert actions == (
        Action(ActionKind.WITHDRAW, CAM, "the site is retired in the configuration"),
        Action(ActionKind.NOOP, RAL),
    )
