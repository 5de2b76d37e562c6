"""Slots as the hook leaves them."""

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree

from hydrator.domain.ads.expressions import SLOT_EXPRESSIONS


def hooked(ad: ClassAd) -> ClassAd:
    """Return *ad* with the match logic that the hook adds to each slot."""
    slot = ClassAd(str(ad))
    for name, expression in SLOT_EXPRESSIONS.items():
        slot[name] = ExprTree(expression)
    return slot
