"""Measurements of the benchmarks."""

import os

import pytest

from benchmarks.measure import cpu_with_children

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("samples", "children", "threads", "seconds"),
    [
        (0, 0, [1_500_000, 500_000], 0.002),  # too short for the kernel's samples
        (3, 0, [1_500_000], 3 / TICKS),  # threads that have ended are in the samples only
        (0, 2, [1_500_000], 0.0015 + 2 / TICKS),
    ],
)
def test_the_larger_of_samples_and_threads_counts_and_ended_children_too(
    samples, children, threads, seconds, tmp_path
):
    fields = ["S", *["0"] * 10, str(samples), "0", str(children), "0", *["0"] * 20]
    (tmp_path / "7" / "task").mkdir(parents=True)
    (tmp_path / "7" / "stat").write_text(f"7 (a (name)) {' '.join(fields)}")
    for number, nanoseconds in enumerate(threads):
        (tmp_path / "7" / "task" / str(number)).mkdir()
        (tmp_path / "7" / "task" / str(number) / "schedstat").write_text(f"{nanoseconds} 0 1\n")
    (tmp_path / "7" / "task" / "99").mkdir()  # ends while it is read
    assert cpu_with_children(7, tmp_path) == pytest.approx(seconds)
