"""The attributes of an ad, as the hook reads them from each source, and ads of another contract."""

import time

import pytest

from hydrator import startd_cron as hook
from hydrator.config.daemon import SitesSettings
from hydrator.domain.ads.contract import CONTRACT_VERSION, ON_SLOTS, OPENING_ATTRIBUTES
from hydrator.domain.ads.openings import Opening, write_openings
from hydrator.domain.model import Site
from tests.unit.test_startd_cron import (
    NO_OPENINGS,
    NOW,
    Respond,
    ad_text,
    ask,
    ends,
    ok,
    printed,
    raw,
    run,
    server,
)
from tests.unit.test_startd_cron_parts import read, refusal

__all__ = ["run", "server"]  # fixtures

UNTIL = "DataLocalityOpenUntil"


# ------------------------------------------------------------------------------- attributes and limits


def test_hook_and_daemon_have_the_same_attributes():
    assert hook.READERS.keys() == {*ON_SLOTS}
    assert hook.OPENINGS == OPENING_ATTRIBUTES
    assert hook.CONTRACT == CONTRACT_VERSION


def test_hook_and_configuration_have_the_same_site_keys():
    assert tuple(SitesSettings().slot_attributes) == hook.SITE_KEYS


@pytest.mark.parametrize("name", hook.OPTIONAL_ATTRIBUTES)
def test_other_attributes_are_optional(name):
    assert name not in read(ad_text(**{name: None}))


def test_longest_key_and_hashed_keys_are_printed_unchanged_and_these_without_quotes():
    key = "s" + "2" * 20
    text = ad_text(DataLocalitySets=f"[{key}=1.0]")
    longest = ad_text(DataLocalitySets="['" + "x" * 500 + "'=0.99]", DataLocalityOpen="['a:1'=315360000]")
    assert hook.ad_text(read(longest)) == longest
    assert hook.ad_text(read(ad_text(DataLocalitySets=f"['{key}'=1.0]"))) == text


@pytest.mark.parametrize("key", ["a:b~3", f"s{2:020}~10", "x,y~0"])
def test_key_of_a_lane_is_printed_in_quotes_in_the_block_of_openings(key):
    ad = read(ad_text(**dict(write_openings({key: Opening(60, Site("AU"), 5)}, 8))))
    assert hook.openings_block(ad, is_update=True).decode() == (
        f"\nDataLocalityOpen = (['{key}'=60])\nDataLocalityReadFrom = (['{key}'=\"AU\"])\n"
        f"DataLocalityBacklog = 8\n{UNTIL} = {NOW + 900}\n- openings update:true\n"
    )


def test_thousand_sets_fill_no_line():
    keys = [f"s{number:020}" for number in range(1000)]
    one = {
        "DataLocalitySets": "0.25",
        "DataLocalitySetsAsOf": str(NOW),
        "DataLocalityOpen": "65536",
        "DataLocalityReadFrom": '"A-SITE-OF-20-LETTERS"',
    }
    records = {name: "[" + ";".join(f"{key}={value}" for key in keys) + "]" for name, value in one.items()}
    ad = read(ad_text(**records))
    blocks = hook.openings_block(ad, is_update=False) + hook.locality_block(ad, is_update=False)
    assert max(map(len, blocks.split(b"\n"))) < 60_000


def test_ad_of_more_than_a_mebibyte_is_rejected():
    long_record = "[" + ";".join(f"'{number:0497}'=1.0" for number in range(120)) + "]"
    ad = read(ad_text(DataLocalitySets=long_record))
    names = [f"DataLocality{number}" for number in range(20)]
    with pytest.raises(hook.InvalidAd, match="1048576 are allowed"):
        hook.locality_block({**ad, **dict.fromkeys(names, ad["DataLocalitySets"])}, is_update=False)


# ------------------------------------------------------------------------------------------------ times


def test_time_of_a_set_is_never_later_than_the_ad():
    ad = read(ad_text(DataLocalityAsOf=str(NOW + 200), DataLocalitySetsAsOf=f"['a:1'={NOW + 150}]"))
    assert (ad["DataLocalityAsOf"], ad["DataLocalitySetsAsOf"]) == (NOW, {"a:1": NOW})


def test_openings_of_a_clock_that_is_ahead_end_earlier():
    ad = read(ad_text(DataLocalityAsOf=str(NOW + 200), **{UNTIL: str(NOW + 1100)}))
    assert ad[UNTIL] == NOW + 900


def test_openings_that_ended_stay_ended():
    assert read(ad_text(**{UNTIL: "0"}))[UNTIL] == 0
    assert read(ad_text(DataLocalityAsOf=str(NOW + 200), **{UNTIL: "7"}))[UNTIL] == 0


def test_openings_that_end_more_than_a_day_ahead_are_rejected():
    latest = NOW + hook.MAX_AHEAD_SECONDS + hook.MAX_SKEW_SECONDS
    assert read(ad_text(**{UNTIL: str(latest)}))[UNTIL] == latest
    assert "the ad's openings end 86701 s in the future" in refusal(ad_text(**{UNTIL: str(latest + 1)}))


@pytest.mark.outside
@pytest.mark.parametrize(
    ("first", "then", "shown"),
    [(1800, 2700, 2700), (1800, 900, 1800), (300, None, 300), (None, None, 900)],
    ids=str,
)
def test_headers_set_the_end_of_the_openings_and_a_304_never_shortens_it(run, server, first, then, shown):
    def header(seconds: int | None) -> dict[str, str]:
        return {} if seconds is None else {"X_DataLocality_OpenUntil": str(NOW + seconds)}

    assert printed(ask(run, server, ok(**header(first))))[UNTIL] == str(NOW + (first or 900))
    done = ask(run, server, not_modified(**header(then)))
    assert (done.returncode, printed(done)[UNTIL]) == (0, str(NOW + shown))


@pytest.mark.outside
def test_end_of_openings_without_openings_is_ignored(run, server):
    done = ask(run, server, ok(ad_text(**NO_OPENINGS), X_DataLocality_OpenUntil=str(NOW + 1800)))
    assert (done.returncode, ends(done)) == (0, ["trouble", "locality update:true"])


@pytest.mark.outside
@pytest.mark.parametrize("odd", ["soon", "-1", "99999999999"])
def test_end_of_the_openings_that_is_none_leaves_the_last_answer(run, server, odd):
    ask(run, server, ok())
    done = ask(run, server, ok(X_DataLocality_OpenUntil=odd))
    assert (done.returncode, printed(done)[UNTIL]) == (1, str(NOW + 900))


@pytest.mark.outside
def test_clock_that_is_ahead_shortens_the_openings_and_does_not_shift_a_copy_twice(run, server):
    now = int(time.time())
    ahead = {"X_DataLocality_AsOf": str(now + 200), "X_DataLocality_OpenUntil": str(now + 1100)}
    text = ad_text(DataLocalityAsOf=str(now + 200), **{UNTIL: str(now + 1100)})
    first = int(printed(ask(run, server, ok(text, **ahead)))[UNTIL])
    second = int(printed(ask(run, server, raw(503, {})))[UNTIL])
    later = {**ahead, "X_DataLocality_OpenUntil": str(now + 2000)}
    third = int(printed(ask(run, server, not_modified(**later)))[UNTIL])
    assert 0 <= first - (now + 900) < 30
    assert second == first
    assert 0 <= third - (now + 1800) < 30


# ------------------------------------------------------------------------------------------- over HTTP


def not_modified(**fields: str) -> Respond:
    headers = {"ETag": '"1763690399"', "X-DataLocality-AsOf": str(NOW)}
    return raw(304, {**headers, **{name.replace("_", "-"): value for name, value in fields.items()}})
