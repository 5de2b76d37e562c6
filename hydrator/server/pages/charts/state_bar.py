"""Bar of a site: its datasets that are complete, on their way, and others, as parts of one bar."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hydrator.domain.model import DatasetState

_WIDTH: Final = 100.0
_KIND: Final = {DatasetState.AVAILABLE: "bar", DatasetState.STAGING: "move", DatasetState.STUCK: "late"}


@dataclass(frozen=True, slots=True)
class StateBar:
    """Parts of a bar of 100 units: class, left edge and width of each."""

    parts: tuple[tuple[str, float, float], ...]


def build_state_bar(counts: Mapping[DatasetState, int]) -> StateBar | None:
    """Build the bar; a state that some dataset has is never too thin to see. None without datasets."""
    kinds: dict[str, int] = {}
    for state in DatasetState:
        if counts.get(state):
            kind = _KIND.get(state, "rest")
            kinds[kind] = kinds.get(kind, 0) + counts[state]
    total = sum(kinds.values())
    if not total:
        return None
    widths = {kind: max(2.0, _WIDTH * count / total) for kind, count in kinds.items()}
    scale = _WIDTH / sum(widths.values())
    parts, left = [], 0.0
    for kind, width in widths.items():
        parts.append((kind, round(left, 1), round(width * scale, 1)))
        left += width * scale
    return StateBar(tuple(parts))
