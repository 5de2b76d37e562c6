"""Values of a daemon's metrics, from its page for Prometheus."""

import re


def total(text: str, series: str) -> float:
    """Return one series in *text*, by its name with all labels; by a name alone the sum of all; else 0."""
    return sum(map(float, re.findall(rf"^{re.escape(series)}(?:{{.*}})? (\S+)$", text, re.MULTILINE)))
