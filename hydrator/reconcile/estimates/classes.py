"""Classes of seconds: 0, 4, 8, 16 and so on; a small change neither rewrites an ad nor splits an autocluster.

Each class has the values that are nearest to it by ratio. A class that was published before stays until
the value has left it by a quarter.
"""

import math

from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS

UNIT_SECONDS = 4
"""The smallest class above 0. Values below half of it have the class 0."""
HYSTERESIS = 1.25
"""A published class stays for values up to this factor beyond its bounds."""


def to_class(seconds: float, previous: int | None = None) -> int:
    """Return the class of *seconds*, 0 or more; infinity has the largest class, ``NO_QUEUE_SECONDS``.

    Return *previous*, the class that was published before, if *seconds* is near this class.
    """
    if previous is not None and _is_near(seconds, previous):
        return previous
    if seconds < UNIT_SECONDS / 2:
        return 0
    if seconds >= NO_QUEUE_SECONDS:
        return NO_QUEUE_SECONDS
    return int(UNIT_SECONDS * 2 ** max(0, round(math.log2(seconds / UNIT_SECONDS))))


def _is_near(seconds: float, one_class: int) -> bool:
    if one_class == 0:
        return seconds < UNIT_SECONDS / 2 * HYSTERESIS
    lower = UNIT_SECONDS / 2 if one_class == UNIT_SECONDS else one_class / math.sqrt(2)
    is_low = seconds < lower / HYSTERESIS
    is_high = one_class < NO_QUEUE_SECONDS and seconds > one_class * math.sqrt(2) * HYSTERESIS
    return not (is_low or is_high)
