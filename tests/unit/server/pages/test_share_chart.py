"""The chart of shares by day, and its place on the overview page."""

import re

import pytest

from hydrator.diagnostics.overview.locality_history import DAY, WEEK, LocalityOverview
from hydrator.domain.model import Snapshot
from hydrator.server.pages.html import build_bar
from hydrator.server.pages.overview import render_overview
from hydrator.state.reports import LocalityHour
from tests.factories import NOON, server_state

TODAY = NOON.replace(hour=0)
NOTHING = "No job with datasets has ended since the daemon began to count."


def page(days) -> str:
    overview = LocalityOverview(
        days,
        LocalityHour(NOON - DAY, 3, 4, 1_800_000, 2_000_000),
        LocalityHour(NOON - WEEK, 520, 1040),
    )
    return render_overview(server_state({}, Snapshot({}), None, None, NOON, locality=overview))


def bars(text: str) -> list[tuple[str, ...]]:
    """Return left edge, height and text of each bar."""
    return re.findall(r'class="bar" x="(\d+)" y="\d+" width="\d+" height="(\d+)"><title>(.*?)</title>', text)


def test_day_has_a_bar_as_high_as_its_share_and_days_without_jobs_have_none():
    counts = enumerate(((0, 4), (0, 0), (4, 4)))
    text = page(tuple(LocalityHour(TODAY + (n - 2) * DAY, *count) for n, count in counts))
    assert bars(text) == [("1", "1", "2026-11-19: 0 %"), ("17", "40", "2026-11-21: 100 %")]
    assert "by day: from 0 % to 100 % in 3 days, lately 100 %" in text
    assert NOTHING not in text
    words = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    assert "75 % of 4 jobs in 24 h, 90 % of 2 MB 50 % of 1,040 jobs in 7 days" in words


def test_chart_has_the_day_at_both_of_its_ends():
    (axis,) = re.findall(
        r'<small class="axis">(.*?)</small>',
        page((LocalityHour(TODAY - 29 * DAY, 2, 4), LocalityHour(TODAY, 3, 4))),
    )
    assert re.sub(r"<[^>]*>", " ", axis).split() == ["2026-10-23", "2026-11-21"]


@pytest.mark.parametrize("days", [(), (LocalityHour(TODAY),)])
def test_page_without_known_shares_says_so(days):
    assert NOTHING in page(days)


def test_a_bar_has_no_part_without_a_count_and_none_too_thin_to_see():
    parts = build_bar({"bar": 1, "move": 0, "rest": 1000})
    assert parts == [("bar", 0.0, 2.0), ("rest", 2.0, 98.0)]
    assert build_bar({}) == []
