"""The command line of the benchmarks, and the growth that a soak test computes."""

import pytest

from benchmarks import soak
from benchmarks.__main__ import main


def test_unknown_benchmark_name_is_rejected():
    with pytest.raises(SystemExit, match="2"):
        main(["nonsense"])


def test_memory_growth_is_computed_within_each_life_of_a_process():
    grows = [
        (float(t), 10.0 + t / 3600, life)
        for life, begin in (("a", 0), ("b", 900))
        for t in range(begin, begin + 600, 60)
    ]
    restarted = [(seconds, value - (5 if life == "b" else 0), life) for seconds, value, life in grows]
    assert soak.slope(grows) == pytest.approx(1.0)
    assert soak.slope(restarted) == pytest.approx(1.0)
    assert soak.slope([(0.0, 3.0, 0)]) == 0.0
