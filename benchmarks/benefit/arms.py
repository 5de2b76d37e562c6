"""Arms of the experiment: the same jobs under different policies."""

from collections.abc import Mapping
from dataclasses import dataclass

from .workload import SITES

_NAMES = "+RequiredDatasets = {$(listed)}\n"


@dataclass(frozen=True, slots=True)
class Arm:
    """One policy.

    ``lines`` are the submit commands of jobs with datasets; without them the pool is a stock pool without
    the project. ``rotated``: the catalogue lists each dataset at the next site, so all answers are wrong.
    """

    name: str
    what: str
    lines: str = ""
    rotated: bool = False

    @property
    def is_stock(self) -> bool:
        """Return True for the pool that has never seen the project."""
        return not self.lines


def _mode(mode: str, more: str = "") -> str:
    return f'{_NAMES}+DataLocality = "{mode}"\n{more}'


def _wait(seconds: int) -> Arm:
    lines = _mode("wait", f"+DataLocalityMaxWait = {seconds}\n")
    return Arm(f"wait {seconds}", f"wait, with a DataLocalityMaxWait of {seconds} s", lines)


OFF, BEST = "off", "best"
WAITS = (6, 12, 30, 60, 120)
ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(OFF, "stock pool without the project; jobs name no datasets"),
        Arm(
            "rank only",
            "wait, with a DataLocalityMaxWait of 0",
            _mode("wait", "+DataLocalityMaxWait = 0\n"),
        ),
        *map(_wait, WAITS),
        Arm("require", "require", _mode("require")),
        Arm("auto", "auto", _mode("auto")),
        Arm(
            "wrong",
            "require, and the catalogue lists each dataset at a wrong site",
            _mode("require"),
            rotated=True,
        ),
    )
}
"""The arms that run on pools, by name; BEST is computed."""


def listed_sites(arm: Arm, sites: tuple[str, ...]) -> tuple[str, ...]:
    """Return where the catalogue of *arm* lists a dataset that is at *sites*."""
    if not arm.rotated:
        return sites
    wrong = {SITES[(SITES.index(site) + 1) % len(SITES)] for site in sites}
    return tuple(site for site in SITES if site in wrong)
