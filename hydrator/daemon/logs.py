"""Trouble that lasts is told when it begins, changes or ends, not at every cycle. Pure."""

import re
from collections.abc import Mapping
from typing import Any

_FAILURE_KEYS = (
    "catalogues", "publishers", "not_read_back", "unsaved", "held", "rolled_back", "withheld", "rejected",
    "rivals", "implausible_generations",
)  # fmt: skip
"""What of a cycle's line somebody has to act on, if it lasts."""


class OngoingFailures:
    """The trouble that was told last."""

    def __init__(self) -> None:
        self._logged: Mapping[str, str] = {}

    def update(self, line: Mapping[str, Any]) -> tuple[bool, list[str]]:
        """Whether *line*, a cycle's for the log, has trouble not told yet, and what of the old ended.

        The same reason with other numbers, of seconds or of polls, is the same.
        """
        now = dict(_failures_in(line))
        new = bool(now.items() - self._logged.items())
        ended = sorted(self._logged.keys() - now.keys())
        self._logged = now
        return new, ended


def _failures_in(line: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each part that fails, such as ``catalogues: rucio``, with its reason."""
    named = []
    for kind in _FAILURE_KEYS:
        found = line.get(kind)
        parts = found.items() if isinstance(found, Mapping) else [("", found)] if found else []
        named += [(f"{kind}: {name}" if name else kind, _mask_numbers(reason)) for name, reason in parts]
    return named


def _mask_numbers(reason: object) -> str:
    return re.sub(r"\d+([.,]\d+)*", "#", str(reason))
