"""Set facts: the entries of slot ads about a job's whole set of datasets, by its ``DataLocalityKey``. Pure.

A slot has an entry for each demanded set: the share of the bytes on disk, and the estimates of the time to
read the rest and of the time to a slot beside the data. The negotiator's ClassAd library
evaluates the same look-ups that the slot's own expressions make.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydrator.diagnostics.units import Share
from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS
from hydrator.domain.ads.expressions import (
    CHEAPER_EXPRESSION,
    ESTIMATED_EXPRESSION,
    LOCAL_EXPRESSION,
    swap_sides,
)
from hydrator.domain.model import Site
from hydrator.domain.text import format_bytes, format_duration, shorten
from hydrator.domain.untrusted import valid_number

SET_EXPRESSIONS = (
    *map(swap_sides, (LOCAL_EXPRESSION, ESTIMATED_EXPRESSION, CHEAPER_EXPRESSION)),
    "TARGET.DataLocalitySets[MY.DataLocalityKey]",
    "TARGET.DataLocalityReadSeconds[MY.DataLocalityKey]",
    "TARGET.DataLocalityQueueSeconds[MY.DataLocalityKey]",
    "TARGET.DataLocalityReadFrom[MY.DataLocalityKey]",
    "TARGET.DataLocalityOwnQueueSeconds",
)
"""The expressions whose values :func:`parse_set_facts` reads."""


@dataclass(frozen=True, slots=True)
class SlotSetFacts:
    """The values of a slot's entries for the job's set; None for an absent or an invalid value.

    ``is_local``, ``is_estimated`` and ``is_cheaper`` are values of parts of the slot's ``DataLocalityAuto``.

    Attributes:
        is_local: true if the site has all data of the job, or the part that is enough for it.
        is_estimated: true if the slot has valid estimates for the job.
        is_cheaper: true if reading from elsewhere ends sooner than waiting for a slot beside the data.
        share: share of the job's data that is on disk at the site.
        read_seconds: seconds until a job at the site could have read its missing data; null: unreachable or
            unknown.
        queue_seconds: seconds until a slot beside the data comes free for the job.
        source: site from which the job would read.
        own_queue_seconds: seconds until the site has worked off the queued jobs whose data it has.
        missing_bytes: bytes that a job at the site would read; null: unknown.
        queue_site: site of the next slot beside the data; null: unknown, or no site with slots has all the
            data.
    """

    is_local: bool = False
    is_estimated: bool = False
    is_cheaper: bool = False
    share: Share | None = None
    read_seconds: int | None = None
    queue_seconds: int | None = None
    source: Site | None = None
    own_queue_seconds: int = 0
    missing_bytes: int | None = None
    queue_site: Site | None = None


NO_SLOT_SET_FACTS = SlotSetFacts()


def parse_set_facts(values: Sequence[object]) -> SlotSetFacts:
    """Parse the values of ``SET_EXPRESSIONS`` at one slot; a startd can write any value."""
    if not values:
        return NO_SLOT_SET_FACTS
    is_local, is_estimated, is_cheaper, share, read, queue, source, own = values
    return SlotSetFacts(
        is_local is True,
        is_estimated is True,
        is_cheaper is True,
        _share(share),
        _seconds(read),
        _seconds(queue),
        Site(shorten(source)) if isinstance(source, str) and source else None,
        _seconds(own) or 0,
    )


def reading_text(facts: SlotSetFacts) -> str:
    """Return what a job at the slot would read and from where: ``reading 31 GB from UK``."""
    amount = format_bytes(facts.missing_bytes) if facts.missing_bytes else "its missing data"
    return f"reading {amount}" + (f" from {facts.source}" if facts.source else "")


def queue_text(queue_seconds: int | None, site: Site | None = None) -> str:
    """Return when a slot beside the data, at *site*, comes free for the job; None: the site is unknown."""
    if queue_seconds is None or queue_seconds >= NO_QUEUE_SECONDS:
        return "no site with slots has all the data"
    if queue_seconds == 0:
        return f"{site} has a free slot" if site else "a slot beside the data is free"
    slot = f"{site}'s next slot" if site else "the next slot beside the data"
    return f"{slot} is {format_duration(queue_seconds)} away"


def estimate_text(facts: SlotSetFacts) -> str:
    """Return one sentence with the two numbers that decide if a job in mode auto may run at the slot.

    Return an empty text without valid estimates, or if the slot's site has all data.
    """
    if facts.is_local or not facts.is_estimated:
        return ""
    queue = queue_text(facts.queue_seconds, facts.queue_site)
    if facts.read_seconds is None:
        return f"the sources of the data take no further readers or cannot be reached from here; {queue}"
    reading = f"{reading_text(facts)} takes {format_duration(facts.read_seconds)}"
    own = facts.own_queue_seconds
    ahead = f" after {format_duration(own)} of other jobs whose data is here" if own else ""
    return f"{reading}{ahead}, {queue}"


def _seconds(value: object) -> int | None:
    number = valid_number(value)
    return int(number) if number is not None and 0 <= number <= NO_QUEUE_SECONDS * 64 else None


def _share(value: object) -> float | None:
    number = valid_number(value)
    return float(number) if number is not None and 0 <= number <= 1 else None
