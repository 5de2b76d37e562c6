"""Expressions that the schedd's transform should build, written a second time in Python for comparison."""

from collections.abc import Mapping, Sequence

from hydrator.domain.model import Did
from hydrator.submit.expressions import _BYTES_TEMPLATE, _CREDIT_TEMPLATE, _MAX_BYTES, _classad_real


def rank_expression(dids: Sequence[Did], sizes: Mapping[Did, int], staging_credit: float = 0.5) -> str:
    """Build ``DataLocalityRank``: the share (0 to 1) of the required bytes at the slot's site.

    If a size is missing or negative, or all are zero, it counts datasets instead. It ignores letter case:
    one spelling term for all names would also remove the share of the datasets that are there.
    """
    known_sizes = [sizes.get(did, -1) for did in dids]
    sized = min(known_sizes) >= 0 and 0 < sum(known_sizes) < _MAX_BYTES
    each = (_BYTES_TEMPLATE if sized else "") + _CREDIT_TEMPLATE
    total = float(sum(known_sizes) if sized else len(dids))
    listed = ",".join(each.format(did=did, credit=_classad_real(staging_credit)) for did in dids)
    return f"sum({{{listed}}}) / {_classad_real(total)}"


def requirements_expression(users_requirements: str) -> str:
    """Build ``Requirements`` from the user's own; the locality clause is in ``DataLocalityHere`` only."""
    return f"({users_requirements}) && MY.DataLocalityHere"


def job_rank_expression(users_rank: str, weight: float) -> str:
    """Build ``Rank`` from the user's own, which counts 0 if it is not a number."""
    own = f"isError(real({users_rank})) ? 0.0 : (real({users_rank}) ?: 0.0)"
    return f"({own}) + {_classad_real(weight)} * MY.DataLocalityRank"


def compute_any_after(now: int, max_wait_seconds: int, floor_seconds: int = 300) -> int:
    """Return ``DataLocalityAnyAfter`` (Unix s): *now* plus *max_wait_seconds*, rounded up to the next step.

    The step is *floor_seconds* or a twelfth of the wait, so that jobs submitted together share an
    autocluster.
    """
    step = max(floor_seconds, max_wait_seconds // 12)
    return step * ((now + max_wait_seconds + step - 1) // step)
