"""Size budget of a site's ad: choose the datasets whose states fit into the ad, most demanded first.

The demanded sets come before (``set_lines.py``): jobs look up their set. The choice ends when the ad is full,
so it does not read all demand entries. The daemon repeats the choice only for sites with changes; see
docs/explanation/incremental-evaluation.md.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from hydrator.domain.model import DatasetState, Did, Fact, to_unix
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL

FRACTION_DIGITS = 2
_EMPTY_LINES_BYTES = tuple(
    len(f"{name} = []") for name in ("AvailableDatasets", "DatasetStates", "DatasetFractions", "DatasetAsOf")
)
STATE_LINES_BYTES = sum(_EMPTY_LINES_BYTES)
"""The bytes of the long lines about datasets in an ad without datasets."""
_ENTRY_BYTES = 4
"""The bytes of an entry without its key and value: two quotes, the equals sign and the separator."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum bytes of one attribute's line, and of all long attributes together.

    Long are the attributes with an entry for each dataset, or for each set of datasets.
    """

    line_bytes: int = 60_000
    ad_bytes: int = 240_000


class ListedDatasets(NamedTuple):
    """The datasets whose states a site's ad lists.

    ``has_list`` is True if the attribute ``AvailableDatasets`` fits too. ``is_complete`` is True if all
    demanded datasets at the site fit.
    """

    dids: AbstractSet[Did]
    has_list: bool
    is_complete: bool


def choose_datasets(
    facts: Mapping[Did, Fact], dids: Iterable[Did], budget: Budget, as_of: datetime
) -> ListedDatasets:
    """Choose the datasets whose states fit into the ad of a site: *dids* in this order, until it is full.

    If the list ``AvailableDatasets`` of these datasets does not fit too, the ad omits it: job expressions do
    not need this attribute.

    Args:
        facts: the facts of the site.
        dids: datasets, most demanded first; those without a fact are ignored.
        budget: the maximum bytes of a line, and of the long lines about datasets together.
        as_of: the time of the site's facts, in the ad for all datasets without an older fact.
    """
    site_as_of = to_unix(as_of)
    chosen: set[Did] = set()
    list_bytes, states_bytes, fractions_bytes, ages_bytes = _EMPTY_LINES_BYTES
    chosen_bytes, is_complete = STATE_LINES_BYTES, True
    for did in dids:
        fact = facts.get(did)
        if fact is None or did in chosen:
            continue
        key = len(did) + _ENTRY_BYTES
        states_bytes += key + len(fact.state) + 2
        if is_partial(fact):
            fractions_bytes += key + 2 + FRACTION_DIGITS
        if fact.as_of is not AT_LAST_POLL and to_unix(fact.as_of) < site_as_of:
            ages_bytes += key + 10
        total_bytes = _EMPTY_LINES_BYTES[0] + states_bytes + fractions_bytes + ages_bytes
        if (
            max(states_bytes, fractions_bytes, ages_bytes) > budget.line_bytes
            or total_bytes > budget.ad_bytes
        ):
            is_complete = False
            break
        chosen.add(did)
        chosen_bytes = total_bytes
        if fact.state is DatasetState.AVAILABLE:
            list_bytes += key - 1
    all_bytes = chosen_bytes + list_bytes - _EMPTY_LINES_BYTES[0]
    has_list = list_bytes <= budget.line_bytes and all_bytes <= budget.ad_bytes
    return ListedDatasets(chosen, has_list, is_complete)


def is_partial(fact: Fact) -> bool:
    """Return True if a part of the dataset is on disk, but not all."""
    return fact.fraction is not None and 0.0 < round_down(fact.fraction) < 1.0


def round_down(fraction: float) -> float:
    """Round *fraction* down, so that an ad never claims too much and small changes do not change the ad."""
    scale: int = 10**FRACTION_DIGITS
    return int(fraction * scale) / scale
