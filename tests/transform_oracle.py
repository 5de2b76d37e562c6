"""Expressions that the schedd's transform should build, written a second time in Python for comparison."""

from collections.abc import Iterable, Sequence

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.expressions import (
    BARE_FRESH,
    BARE_HERE,
    BARE_RANK,
    COMPACT_HERE,
    OLDEST_EXPRESSION,
    SETS_EXPRESSION,
    Mode,
)


def shares_expression(dids: Iterable[Did]) -> str:
    """Build ``DataLocalityShares`` of a bare job: the list of the look-ups of *dids*, in their order.

    Where the facts are too old, the value is undefined.
    """
    each = ",".join(f'DatasetsHere["{set_key([did])}"]' for did in dids)
    return f"{BARE_FRESH} ? {{{each}}} : undefined"


def locality_expressions(dids: Sequence[Did], mode: Mode, key: str | None = None) -> dict[str, str]:
    """Build the job's expressions by attribute; *key* is the DataLocalityKey that the job came with.

    One dataset always has the key of its name; several datasets keep a key that looks like one.
    """
    if len(dids) == 1:
        key = set_key(dids)
    if key is None:
        return {
            "DatasetsHere": SETS_EXPRESSION,
            "DataLocalityShares": shares_expression(dids),
            "DataLocalityOldest": OLDEST_EXPRESSION,
            "DataLocalityHere": BARE_HERE[mode],
            "DataLocalityRank": BARE_RANK,
        }
    return {
        "DataLocalityKey": f'"{key}"',
        "DataLocalityHere": COMPACT_HERE[mode],
    }


def requirements_expression(users_requirements: str) -> str:
    """Build ``Requirements`` from the user's own; the locality clause is in ``DataLocalityHere`` only."""
    return f"({users_requirements}) && MY.DataLocalityHere"


def compute_any_after(now: int, max_wait_seconds: int, floor_seconds: int = 300) -> int:
    """Return ``DataLocalityAnyAfter`` (Unix s): *now* plus *max_wait_seconds*, rounded up to the next step.

    The step is *floor_seconds*, or a twelfth of a longer wait, or half of a shorter wait, so that jobs
    submitted together share an autocluster. The end of a wait of less than 2 s is rounded down: it is over.
    """
    step = max(min(floor_seconds, max_wait_seconds // 2), max_wait_seconds // 12)
    if step == 0:
        return floor_seconds * (now // floor_seconds) + max_wait_seconds
    return step * ((now + max_wait_seconds + step - 1) // step)
