"""Set facts: the entries of slot ads about a job's whole set of datasets, by its ``DataLocalityKey``. Pure.

A slot has an entry for each demanded set: the share of the bytes on disk; and for each open set, the time of
the read from elsewhere. The negotiator's ClassAd library evaluates the same look-ups that the slot's own
expressions make.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydrator.diagnostics.units import Share
from hydrator.domain.ads.expressions import (
    LOCAL_EXPRESSION,
    OPEN_EXPRESSION,
    OPEN_SECONDS,
    OPEN_SOURCE,
    PACED_EXPRESSION,
    swap_sides,
)
from hydrator.domain.model import Site
from hydrator.domain.text import format_bytes, format_duration, shorten
from hydrator.domain.untrusted import valid_number

SET_EXPRESSIONS = (
    *map(swap_sides, (LOCAL_EXPRESSION, PACED_EXPRESSION, OPEN_EXPRESSION)),
    "TARGET.DataLocalitySets[MY.DataLocalityKey]",
    *map(swap_sides, (OPEN_SECONDS, OPEN_SOURCE)),
)
"""The expressions whose values :func:`parse_set_facts` reads."""
_MAX_SECONDS = 10**9


@dataclass(frozen=True, slots=True)
class SlotSetFacts:
    """The values of a slot's entries for the job's set; None for an absent or an invalid value.

    ``is_local``, ``is_paced`` and ``is_open`` are values of parts of the slot's ``DataLocalityAuto``.

    Attributes:
        is_local: true if the site has all data of the job.
        is_paced: true if the daemon paces the reads of the site's jobs now.
        is_open: true if a job in mode auto may start here now by reading from elsewhere.
        share: share of the job's data that is on disk at the site.
        open_seconds: seconds that the job would read its missing data; null: it may not.
        source: site from which the job would read.
        missing_bytes: bytes that a job at the site would read; null: unknown.
    """

    is_local: bool = False
    is_paced: bool = False
    is_open: bool = False
    share: Share | None = None
    open_seconds: int | None = None
    source: Site | None = None
    missing_bytes: int | None = None


NO_SLOT_SET_FACTS = SlotSetFacts()


def parse_set_facts(values: Sequence[object]) -> SlotSetFacts:
    """Parse the values of ``SET_EXPRESSIONS`` at one slot; a startd can write any value."""
    if not values:
        return NO_SLOT_SET_FACTS
    is_local, is_paced, is_open, share, seconds, source = values
    return SlotSetFacts(
        is_local is True,
        is_paced is True,
        is_open is True,
        _number(share, 1),
        int(number) if is_open is True and (number := _number(seconds, _MAX_SECONDS)) is not None else None,
        Site(shorten(source)) if isinstance(source, str) and source else None,
    )


def reading_text(facts: SlotSetFacts) -> str:
    """Return what a job would read at a slot where its set is open: ``reading 31 GB from UK in 4 min``."""
    amount = format_bytes(facts.missing_bytes) if facts.missing_bytes else "its missing data"
    origin = f" from {facts.source}" if facts.source else ""
    return f"reading {amount}{origin} in {format_duration(facts.open_seconds or 0)}"


def _number(value: object, largest: float) -> float | None:
    number = valid_number(value)
    return float(number) if number is not None and 0 <= number <= largest else None
