"""The charts of shares by hour and day, and their place on the overview page."""

import re
from datetime import date, timedelta

import pytest

from hydrator.diagnostics.overview.locality_history import DAY, WEEK, LocalityOverview, LocalitySpan
from hydrator.domain.model import Snapshot
from hydrator.server.pages.html import build_bar
from hydrator.server.pages.overview import render_overview
from tests.factories import HOUR, NOON, server_state

TODAY = NOON.date()
NOTHING = "No job with datasets has ended since the daemon began to count."


def page(days, *hours: LocalitySpan, now=NOON) -> str:
    overview = LocalityOverview(
        days, LocalitySpan(NOON - DAY, 4, 0.75, 2_000_000, 0.9), LocalitySpan(NOON - WEEK, 1040, 0.5), hours
    )
    return render_overview(server_state({}, Snapshot({}), None, None, now, locality=overview))


def bars(text: str) -> list[tuple[str, ...]]:
    """Return left edge, height and text of each bar."""
    return re.findall(r'class="bar" x="(\d+)" y="\d+" width="\d+" height="(\d+)"><title>(.*?)</title>', text)


def test_day_has_a_bar_as_high_as_its_share_and_days_without_jobs_have_none():
    shares = enumerate((0.0, None, 1.0))
    text = page(tuple(LocalitySpan(date(2026, 11, 19 + n), 4, share) for n, share in shares))
    assert bars(text) == [("1", "1", "2026-11-19: 0 %"), ("17", "40", "2026-11-21: 100 %")]
    assert "by day: from 0 % to 100 % in 3 days, lately 100 %" in text
    assert "by hour" not in text, "nothing is known of the last hours"
    assert NOTHING not in text
    words = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    assert "75 % of 4 jobs in 24 h, 90 % of 2 MB 50 % of 1,040 jobs in 7 days" in words


def test_hours_have_their_place_on_the_axis_and_older_ones_are_left_out():
    ages = ((60, 0.1), (47, 0.5), (2, None), (0, 1.0))
    hours = [LocalitySpan(NOON - n * HOUR, 4, share) for n, share in ages]
    text = page((), *hours, now=NOON + timedelta(minutes=20))
    assert bars(text) == [
        ("1", "20", "2026-11-19 13:00 UTC: 50 %"),
        ("236", "40", "2026-11-21 12:00 UTC: 100 %"),
    ]
    assert "by hour: from 50 % to 100 % in 48 hours, lately 100 %" in text


def test_each_chart_has_the_time_at_both_of_its_ends():
    days = (LocalitySpan(TODAY - timedelta(29), 4, 0.5), LocalitySpan(TODAY, 4, 0.75))
    axes = re.findall(r'<small class="axis">(.*?)</small>', page(days, LocalitySpan(NOON - 2 * HOUR, 4, 0.5)))
    ends = [" ".join(re.sub(r"<[^>]*>", " ", axis).split()) for axis in axes]
    assert ends == ["1 d 23 h ago now", "2026-10-23 2026-11-21"]
    assert '<time datetime="2026-11-19T13:00:00+00:00" data-age>' in axes[0]  # in the reader's zone


@pytest.mark.parametrize("days", [(), (LocalitySpan(TODAY, 3),)])
def test_page_without_known_shares_says_so(days):
    assert NOTHING in page(days)


def test_a_bar_has_no_part_without_a_count_and_none_too_thin_to_see():
    parts = build_bar({"bar": 1, "move": 0, "rest": 1000})
    assert parts == [("bar", 0.0, 2.0), ("rest", 2.0, 98.0)]
    assert build_bar({}) == []
