"""The chart of shares by day, and its place on the overview page."""

from datetime import date, timedelta

import pytest

from hydrator.diagnostics.counterfactual import Estimate
from hydrator.diagnostics.locality_history import LocalityDay, LocalityOverview
from hydrator.domain.model import Snapshot
from hydrator.server.pages.overview import render_overview
from hydrator.server.pages.share_chart import build_share_chart
from hydrator.server.view import ServerState
from tests.factories import NOON

TODAY = NOON.date()
NOTHING = "No job with datasets has ended since the daemon began to count."


def page(overview: LocalityOverview) -> str:
    return render_overview(ServerState({}, Snapshot({}), None, None, NOON, locality=overview))


def test_day_has_a_bar_as_high_as_its_share_and_days_without_jobs_have_none():
    chart = build_share_chart(
        [(date(2026, 11, 19) + timedelta(n), s) for n, s in enumerate((0.0, None, 1.0))]
    )
    assert [(bar.left, bar.height) for bar in chart.bars] == [(0, 1), (16, chart.height)]
    assert (chart.width, chart.bars[1].text) == (24, "2026-11-21: 100 %")
    assert chart.text == "from 0 % to 100 % in 3 days, lately 100 %"


def test_days_without_any_share_give_no_chart():
    assert build_share_chart([(TODAY, None)]) is None
    assert build_share_chart([]) is None


def test_page_shows_both_shares_and_the_estimates():
    days = (LocalityDay(TODAY - timedelta(1), 4, 0.5, 0.25), LocalityDay(TODAY, 4, 0.75, 0.8))
    text = page(LocalityOverview(days, Estimate(2e12, -1e9, 3e12), Estimate(7200.0)))
    assert (
        'aria-label="Jobs with all their data at their site: from 50 % to 75 % in 2 days, lately 75 %"'
        in text
    )
    assert 'aria-label="Bytes at the job&#39;s site: from 25 % to 80 %' in text.replace("'", "&#39;")
    assert "<dd>2 TB (95 %: -1 GB to 3 TB)</dd>" in text
    assert "<dd>2 h</dd>" in text
    assert NOTHING not in text


@pytest.mark.parametrize("days", [(), (LocalityDay(TODAY, 3),)])
def test_page_without_known_shares_says_so(days):
    assert NOTHING in page(LocalityOverview(days))


def test_page_without_an_estimate_says_so():
    assert "<dd>none yet</dd>" in page(LocalityOverview((LocalityDay(TODAY, 4, 0.5),)))
