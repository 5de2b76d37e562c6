"""The chart of shares by day, and its place on the overview page."""

import re
from datetime import date, timedelta

import pytest

from hydrator.diagnostics.overview.locality_history import (
    DAY,
    WEEK,
    LocalityOverview,
    LocalitySpan,
)
from hydrator.domain.model import Snapshot
from hydrator.server.pages.overview import build_day_chart, build_hour_chart, render_overview
from tests.factories import HOUR, NOON, server_state

TODAY = NOON.date()
NOTHING = "No job with datasets has ended since the daemon began to count."


def overview(days, *hours: LocalitySpan) -> LocalityOverview:
    return LocalityOverview(days, LocalitySpan(NOON - DAY), LocalitySpan(NOON - WEEK), hours)


def page(overview: LocalityOverview) -> str:
    return render_overview(server_state({}, Snapshot({}), None, None, NOON, locality=overview))


def test_day_has_a_bar_as_high_as_its_share_and_days_without_jobs_have_none():
    days = [date(2026, 11, 19) + timedelta(n) for n in range(3)]
    chart = build_day_chart(list(zip(days, (0.0, None, 1.0), strict=True)))
    assert [(bar.left, bar.height) for bar in chart.bars] == [(0, 1), (16, chart.height)]
    assert (chart.width, chart.bars[1].text) == (24, "2026-11-21: 100 %")
    assert chart.text == "from 0 % to 100 % in 3 days, lately 100 %"
    assert (chart.begin, chart.end) == (days[0], days[2])


def test_hours_have_their_place_on_the_axis_and_older_ones_are_left_out():
    now = NOON + timedelta(minutes=20)
    hours = [
        LocalitySpan(NOON - n * HOUR, 4, share) for n, share in ((60, 0.1), (47, 0.5), (2, None), (0, 1.0))
    ]
    chart = build_hour_chart([(hour.started_at, hour.share_of_jobs) for hour in hours], now=now)
    assert [bar.left for bar in chart.bars] == [0, chart.width - chart.bar_width]
    assert (chart.bars[0].text, chart.bars[1].text) == (
        "2026-11-19 13:00 UTC: 50 %",
        "2026-11-21 12:00 UTC: 100 %",
    )
    assert chart.text == "from 50 % to 100 % in 48 hours, lately 100 %"
    assert (chart.begin, chart.end) == (NOON - 47 * HOUR, now)
    assert build_hour_chart([(NOON - 60 * HOUR, 1.0)], now=NOON) is None


def test_page_shows_the_shares_of_the_last_day_and_of_the_last_week():
    days = (LocalitySpan(TODAY, 4, 0.75),)
    last_day = LocalitySpan(NOON - DAY, 4, 0.75)
    last_week = LocalitySpan(NOON - WEEK, 1040, 0.5)
    text = page(LocalityOverview(days, last_day=last_day, last_week=last_week))
    assert "by hour" not in text, "nothing is known of the last hours"
    assert NOTHING not in text
    words = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    assert "75 % of 4 jobs in 24 h 50 % of 1,040 in 7 days" in words


def test_each_chart_has_the_time_at_both_of_its_ends():
    days = (LocalitySpan(TODAY - timedelta(29), 4, 0.5), LocalitySpan(TODAY, 4, 0.75))
    text = page(overview(days, LocalitySpan(NOON - 2 * HOUR, 4, 0.5)))
    assert 'aria-label="Jobs that started beside their data, by hour: from 50 % to 50 % in 48 hours' in text
    by_day = "Jobs that started beside their data, by day: from 50 % to 75 % in 2 days, lately 75 %"
    assert f'aria-label="{by_day}"' in text
    axes = re.findall(r'<small class="axis">(.*?)</small>', text)
    ends = [" ".join(re.sub(r"<[^>]*>", " ", axis).split()) for axis in axes]
    assert ends == ["1 d 23 h ago now", "2026-10-23 2026-11-21"]
    assert '<time datetime="2026-11-19T13:00:00+00:00" data-age>' in axes[0]  # in the reader's zone


def test_days_without_any_share_give_no_chart():
    assert build_day_chart([(TODAY, None)]) is None
    assert build_day_chart([]) is None


@pytest.mark.parametrize("days", [(), (LocalitySpan(TODAY, 3),)])
def test_page_without_known_shares_says_so(days):
    assert NOTHING in page(LocalityOverview(days))
