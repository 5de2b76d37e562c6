"""Start record: the slot's estimates for a job when the job last started, from the job's ad. Pure.

The schedd writes the slot's ``DataLocalityOffer`` into the job's ad at each start, so the ad of a running or
an ended job says why it ran where it ran.
"""

import re
from dataclasses import dataclass

from hydrator.domain.ads import contract
from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS
from hydrator.domain.model import Site
from hydrator.domain.text import format_duration

from .facts import queue_text

START_ATTRIBUTE = contract.START_RECORD
_LOCAL = "local"
_NUMBERS = re.compile(r"(?:read ([0-9]{1,9}) s(?: from (.{1,60}))?, )?queue ([0-9]{1,9}) s\Z")


@dataclass(frozen=True, slots=True)
class StartRecord:
    """The estimates of the slot at the job's last start.

    Attributes:
        is_local: true if the site had all data of the job.
        read_seconds: seconds until the job could have read its missing data there; null: unreachable or
            unknown.
        queue_seconds: seconds until a slot beside the data would have come free; null: unknown.
        source: site from which the job would read.
    """

    is_local: bool = False
    read_seconds: int | None = None
    queue_seconds: int | None = None
    source: Site | None = None


def parse_start_record(text: object) -> StartRecord | None:
    """Parse the value of START_ATTRIBUTE; None if the slot had no estimates, or if the text is not one."""
    if text == _LOCAL:
        return StartRecord(is_local=True)
    numbers = _NUMBERS.match(text) if isinstance(text, str) else None
    if numbers is None:
        return None
    read, source, queue = numbers.groups()
    return StartRecord(
        read_seconds=None if read is None else int(read),
        queue_seconds=min(int(queue), NO_QUEUE_SECONDS),
        source=Site(source) if source else None,
    )


def start_text(record: StartRecord | None) -> str:
    """Return why the job runs, or ran, at its slot; an empty text without a record."""
    if record is None:
        return ""
    if record.is_local:
        return "all its data was there when it started"
    queue = queue_text(record.queue_seconds).replace(" is ", " was ").replace(" has ", " had ")
    if record.read_seconds is None:
        return f"it started away from its data: {queue}, and the read time was unknown"
    origin = f" from {record.source}" if record.source else ""
    reading = f"reading{origin} would take {format_duration(record.read_seconds)}"
    return f"it started away from its data: {reading}, {queue}"
