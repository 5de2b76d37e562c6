"""Faults: what goes wrong, where and when. Two runs of one seed differ in their list of faults only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

FAULT_SECONDS: Final = 900.0
"""Until this time there are faults; then all are switched off."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: such as ``hang``; the part says what it does with it.
        part: the name of the part, such as ``catalogue rucio``; of a kill, the part whose step it follows,
            or an empty text for any step.
        at: seconds since the start at which it begins.
        seconds: how long it lasts; 0 for what happens once.
        number: of a kill, the number of the step after ``at``; of a jump of the clock, its seconds; of a
            configuration, its number; of a slow catalogue, the seconds that each of its steps takes.
        site: the site whose datasets are lost; an empty text for all.
        then: of a kill, faults that begin with it; their ``at`` is in seconds after the kill.
    """

    kind: str
    part: str
    at: float
    seconds: float = 0.0
    number: float = 0.0
    site: str = ""
    then: tuple["Fault", ...] = ()

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        what = f"{self.kind} {self.part}".strip()
        until = f" until {self.end:.0f} s" if self.seconds else ""
        details = [f"number {self.number:g}" if self.number else "", self.site]
        details += [f"then {str(fault).strip()}" for fault in self.then]
        return f"{self.at:7.1f} s  {what}{until} {' '.join(one for one in details if one)}".rstrip()


class Faults:
    """The faults of a run, by the part that they concern."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.all = tuple(faults)
        self._by_part: dict[str, list[Fault]] = {}
        for fault in self.all:
            self._by_part.setdefault(fault.part, []).append(fault)
        self._left = {fault: int(fault.number) for fault in sorted(self.all, key=str) if fault.kind == "kill"}

    def of(self, part: str) -> Sequence[Fault]:
        """Return the faults of *part*."""
        return self._by_part.get(part, ())

    def active(self, part: str, now: float) -> dict[str, Fault]:
        """Return the faults of *part* that last at *now*, by kind."""
        found = self._by_part.get(part)
        return {fault.kind: fault for fault in found if fault.at <= now < fault.end} if found else {}

    def is_kill_due(self, part: str, now: float) -> bool:
        """Count this step of *part*; return True, and begin what follows, if the process is killed at it."""
        for fault, left in self._left.items():
            if fault.at <= now and part.startswith(fault.part):
                self._left[fault] = left - 1
                if left == 0:
                    del self._left[fault]
                    self._begin(fault.then, now)
                    return True
        return False

    def _begin(self, faults: Sequence[Fault], now: float) -> None:
        for fault in faults:
            at = min(now + fault.at, FAULT_SECONDS)
            begun = replace(fault, at=at, seconds=min(fault.seconds, FAULT_SECONDS - at))
            self._by_part.setdefault(fault.part, []).append(begun)
