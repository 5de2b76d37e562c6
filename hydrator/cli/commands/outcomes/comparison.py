"""The estimates of ``hydrator report``: gains against a stock negotiator, and errors of estimates."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from hydrator.diagnostics.counterfactual import MIN_BLOCKS, Counterfactual, Estimate, PlacementBasis
from hydrator.diagnostics.overview.locality_history import describe_bytes, describe_seconds
from hydrator.diagnostics.prediction_errors import ErrorSummary
from hydrator.domain.text import format_count
from hydrator.reconcile.estimates.predictions import EstimateKind

_ASSUMPTIONS = {
    PlacementBasis.SLOTS: "in proportion to the slots of the sites at that time, weighted by their turnover",
    PlacementBasis.JOBS_WITHOUT_DATA: "where jobs without data ran",
    PlacementBasis.JOBS_WITH_DATA: "where jobs with any data ran",
}

_PREDICTED = {EstimateKind.QUEUE: "wait beside the data", EstimateKind.READ: "read from elsewhere"}


def comparison_row(comparison: Counterfactual) -> dict[str, Any]:
    """Return the key ``estimate`` of the report as JSON values."""
    return {
        "bytes_not_moved": _round(comparison.bytes_not_moved),
        "seconds_gained": _round(comparison.seconds_gained),
        "jobs": {basis.value: comparison.job_counts.get(basis, 0) for basis in PlacementBasis},
        "left_out": comparison.left_out_count,
        "lost_ads": comparison.lost_count,
        "jobs_with_rates": comparison.timed_count,
        "blocks": comparison.block_count,
    }


def _round(estimate: Estimate | None) -> dict[str, int | None] | None:
    if estimate is None:
        return None
    low, high = estimate.low, estimate.high
    return {
        "value": round(estimate.value),
        "low": None if low is None else round(low),
        "high": None if high is None else round(high),
    }


def error_row(errors: Mapping[EstimateKind, ErrorSummary]) -> dict[str, Any]:
    """Return the key ``estimate_error_factor`` of the report as JSON values."""
    found = {kind: errors.get(kind, ErrorSummary()) for kind in EstimateKind}
    return {kind.value: asdict(each) for kind, each in found.items()}


def error_sentence(errors: Mapping[EstimateKind, ErrorSummary]) -> str:
    """Say by which factor predicted and real seconds differ."""
    parts = []
    for kind in EstimateKind:
        each = errors.get(kind, ErrorSummary())
        if each.median is not None and each.p90 is not None:
            counted = format_count(each.samples, "sample")
            parts.append(f"{_PREDICTED[kind]} {each.median:.1f} (90 % at most {each.p90:.1f}; {counted})")
    if not parts:
        return "Predicted against real seconds: no sample in this time."
    return f"Predicted against real seconds, the median factor between them: {', '.join(parts)}."


def comparison_sentences(comparison: Counterfactual) -> Iterator[str]:
    """Describe the estimates in sentences, with what they assume and leave out."""
    saved_bytes, seconds = comparison.bytes_not_moved, comparison.seconds_gained
    left_out = format_count(comparison.left_out_count, "job")
    if saved_bytes is None:
        yield f"No estimate of the bytes not moved: the sites, data or sizes of {left_out} are unknown."
        yield from _describe_lost_ads(comparison)
        return
    counted = sum(comparison.job_counts.values())
    yield (
        f"Estimate of the bytes not moved: {describe_bytes(saved_bytes)}, for {format_count(counted, 'job')},"
        " compared with\na stock negotiator."
    )
    if seconds:
        timed = format_count(comparison.timed_count, "job")
        yield f"Estimate of the time of reading that was gained: {describe_seconds(seconds)}, for {timed}."
    else:
        yield "No estimate of the time that was gained: the rates between the sites are unknown."
        yield "So the turnover of slots is unknown, and the bytes not moved are too high, by up to a third."
    assumptions = [
        f"{text} ({format_count(comparison.job_counts[basis], 'job')})"
        for basis, text in _ASSUMPTIONS.items()
        if comparison.job_counts.get(basis)
    ]
    yield f"The estimate assumes that a stock negotiator starts jobs {'; or '.join(assumptions)}."
    if comparison.left_out_count:
        yield f"The estimate leaves {left_out} out, because their site, its data or the sizes are unknown."
    yield from _describe_lost_ads(comparison)
    if comparison.block_count < MIN_BLOCKS:
        yield f"An interval needs jobs of {MIN_BLOCKS} users or days."


def _describe_lost_ads(comparison: Counterfactual) -> Iterator[str]:
    if comparison.lost_count:
        lost = format_count(comparison.lost_count, "job")
        yield f"{lost} of these started before the history of some site's ads, so the data there is unknown."
