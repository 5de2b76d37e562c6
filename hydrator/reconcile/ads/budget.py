"""Size budget of a site's ad: choose the datasets whose states fit into the ad, most demanded first.

The demanded sets come before (``set_lines.py``). The datasets of a demand entry fit if all of them at the
site fit. The choice ends soon after the ad is full, so it does not read all demand entries. The daemon
repeats the choice only for sites with changes; see docs/explanation/incremental-evaluation.md.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.model import DatasetState, Did, Fact, to_unix
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL

from .demand_index import DemandIndex

FRACTION_DIGITS = 2
STATE_LINES_BYTES = sum(
    len(f"{name} = []") for name in ("AvailableDatasets", "DatasetStates", "DatasetFractions", "DatasetAsOf")
)
"""The bytes of the long lines about datasets in an ad without datasets."""
_MAX_MISFITS = 20
"""The choice ends after so many entries of keyed jobs without room: their states are for people only."""
_ENTRY_BYTES = 4
"""The bytes of an entry without its key and value: two quotes, the equals sign and the separator."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum bytes of one attribute's line, and of all long attributes together.

    Long are the attributes with an entry for each dataset, or for each set of datasets.
    """

    line_bytes: int = 60_000
    ad_bytes: int = 240_000


@dataclass(frozen=True, slots=True)
class BudgetFit:
    """The datasets that fit into a site's ad, and the positions of the demand entries that fit.

    ``has_list`` is True if the attribute ``AvailableDatasets`` fits too.
    """

    dids: AbstractSet[Did]
    positions: AbstractSet[int]
    has_list: bool


def fit_to_budget(
    facts: Mapping[Did, Fact],
    demand_index: DemandIndex,
    positions: Sequence[int],
    budget: Budget,
    as_of: datetime,
) -> BudgetFit:
    """Choose the demand entries at *positions*, in this order, whose states fit into the ad of a site.

    Entries with unkeyed jobs come first.
    If not all entries fit, first omit the attribute ``AvailableDatasets``. Job expressions do not
    need this attribute: they look up their set, or the states in ``DatasetStates``.
    """
    room = _SizeCounter(facts, demand_index, budget, as_of, has_list=True)
    choice = room.fill(positions)
    if not room.is_list_too_long:
        return choice
    return _SizeCounter(facts, demand_index, budget, as_of, has_list=False).fill(positions)


class _SizeCounter:
    """A counter of the bytes of the four long attributes while datasets are added."""

    def __init__(
        self,
        facts: Mapping[Did, Fact],
        demand_index: DemandIndex,
        budget: Budget,
        as_of: datetime,
        *,
        has_list: bool,
    ) -> None:
        self.is_list_too_long = False
        self._facts = facts
        self._demand_index = demand_index
        self._budget = budget
        self._as_of = to_unix(as_of)
        self._has_list = has_list
        self._dids: set[Did] = set()
        self._list_bytes = len("AvailableDatasets = {}")
        self._states_bytes = len("DatasetStates = []")
        self._fractions_bytes = len("DatasetFractions = []")
        self._ages_bytes = len("DatasetAsOf = []")
        self._min_entry_bytes = (
            demand_index.shortest_did_chars + _ENTRY_BYTES + min(len(state) for state in DatasetState) + 2
        )

    def fill(self, positions: Sequence[int]) -> BudgetFit:
        inside: set[int] = set()
        facts, fitting_dids = self._facts, self._dids
        misfits = 0
        for place in positions:
            if self._is_full or misfits == _MAX_MISFITS:
                inside |= self._find_covered_positions()
                break
            new = [
                did
                for did in self._demand_index.entries[place].dids
                if did in facts and did not in fitting_dids
            ]
            if not new or self._try_add(new):
                inside.add(place)
            elif self.is_list_too_long:
                break
            elif not self._demand_index.entries[place].has_unkeyed_jobs:
                misfits += 1
        return BudgetFit(fitting_dids, inside, self._has_list)

    @property
    def _is_full(self) -> bool:
        """Return True if the ad has no room for another dataset, not even for one with the shortest name."""
        if self._states_bytes + self._min_entry_bytes > self._budget.line_bytes:
            return True
        return not self._has_list and self._total_bytes + self._min_entry_bytes > self._budget.ad_bytes

    @property
    def _total_bytes(self) -> int:
        return self._list_bytes + self._states_bytes + self._fractions_bytes + self._ages_bytes

    def _try_add(self, new_dids: Sequence[Did]) -> bool:
        list_bytes, states_bytes, fractions_bytes, ages_bytes = (
            self._list_bytes,
            self._states_bytes,
            self._fractions_bytes,
            self._ages_bytes,
        )
        line_bytes, ad_bytes = self._budget.line_bytes, self._budget.ad_bytes
        for did in new_dids:
            fact, key = self._facts[did], len(did) + _ENTRY_BYTES
            states_bytes += key + len(fact.state) + 2
            if self._has_list and fact.state is DatasetState.AVAILABLE:
                list_bytes += key - 1
            if is_partial(fact):
                fractions_bytes += key + 2 + FRACTION_DIGITS
            if fact.as_of is not AT_LAST_POLL and to_unix(fact.as_of) < self._as_of:
                ages_bytes += key + 10
            if max(states_bytes, fractions_bytes, ages_bytes) > line_bytes or (
                states_bytes + fractions_bytes + ages_bytes > ad_bytes
            ):
                return False  # without reading the other facts
        total = list_bytes + states_bytes + fractions_bytes + ages_bytes
        if list_bytes > line_bytes or total > ad_bytes:
            self.is_list_too_long = self._has_list
            return False
        self._list_bytes, self._states_bytes, self._fractions_bytes, self._ages_bytes = (
            list_bytes,
            states_bytes,
            fractions_bytes,
            ages_bytes,
        )
        self._dids.update(new_dids)
        return True

    def _find_covered_positions(self) -> set[int]:
        """Return the positions of entries whose datasets at the site are all in the ad already."""
        entries, facts, fitting_dids = self._demand_index.entries, self._facts, self._dids
        positions = {place for did in fitting_dids for place in self._demand_index.positions_by_did[did]}
        return {
            p for p in positions if all(did in fitting_dids or did not in facts for did in entries[p].dids)
        }


def is_partial(fact: Fact) -> bool:
    """Return True if a part of the dataset is on disk, but not all."""
    return fact.fraction is not None and 0.0 < round_down(fact.fraction) < 1.0


def round_down(fraction: float) -> float:
    """Round *fraction* down, so that an ad never claims too much and small changes do not change the ad."""
    scale: int = 10**FRACTION_DIGITS
    return int(fraction * scale) / scale
