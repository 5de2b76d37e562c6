"""The estimates of the report, as sentences and as JSON."""

from hydrator.cli.commands.outcomes.comparison import comparison_row, comparison_sentences
from hydrator.diagnostics.counterfactual import Counterfactual, Estimate, PlacementBasis

FULL = Counterfactual(
    Estimate(-2.4e9, -5e9, 1e9),
    Estimate(3600.0, 60.0, 7200.0),
    {PlacementBasis.SLOTS: 9, PlacementBasis.JOBS_WITH_DATA: 1},
    left_out_count=2,
    timed_count=8,
    block_count=6,
)


def test_sentences_name_the_estimates_their_intervals_and_assumptions():
    text = "\n".join(comparison_sentences(FULL))
    assert "Estimate of the bytes not moved: -2.4 GB (95 %: -5 GB to 1 GB), for 10 jobs" in text
    assert "Estimate of the time of reading that was gained: 1 h (95 %: 1 min to 2 h), for 8 jobs." in text
    assert "in proportion to the slots of the sites at that time, weighted by their turnover (9 jobs)" in text
    assert "; or where jobs with any data ran (1 job)." in text
    assert "leaves 2 jobs out" in text
    assert "An interval needs" not in text


def test_what_is_unknown_is_said():
    few = Counterfactual(Estimate(0.0), None, {PlacementBasis.SLOTS: 1}, block_count=1)
    text = "\n".join(comparison_sentences(few))
    assert "not moved: 0 B, for 1 job," in text
    assert "No estimate of the time" in text
    assert "An interval needs jobs of 5 users or days." in text
    assert "out, because" not in text
    assert list(comparison_sentences(Counterfactual(left_out_count=3))) == [
        "No estimate of the bytes not moved: the sites, data or sizes of 3 jobs are unknown."
    ]


def test_json_has_whole_numbers_and_null_for_what_is_unknown():
    row = comparison_row(FULL)
    assert row["bytes_not_moved"] == {"value": -2_400_000_000, "low": -5_000_000_000, "high": 1_000_000_000}
    assert row["jobs"] == {"slots": 9, "jobs_without_data": 0, "jobs_with_data": 1}
    empty = comparison_row(Counterfactual(Estimate(1.0)))
    assert empty["bytes_not_moved"] == {"value": 1, "low": None, "high": None}
    assert empty["seconds_gained"] is None
