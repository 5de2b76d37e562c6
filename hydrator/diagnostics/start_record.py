"""Start record: why a job could start at its slot, from the job's ad. Pure.

The schedd writes the slot's ``DataLocalityOffer`` into the job's ad at each start, so the ad of a running or
an ended job says why it ran where it ran.
"""

import re
from dataclasses import dataclass

from hydrator.domain.ads import contract
from hydrator.domain.model import Site
from hydrator.domain.text import format_duration

START_ATTRIBUTE = contract.START_RECORD
_LOCAL = "local"
_READ = re.compile(r"read ([0-9]{1,9}) s(?: from (.{1,60}))?\Z")


@dataclass(frozen=True, slots=True)
class StartRecord:
    """The offer of the slot at the job's last start.

    Attributes:
        is_local: true if the site had all data of the job.
        read_seconds: seconds that the job would read its missing data.
        source: site from which the job would read; null: unknown.
    """

    is_local: bool = False
    read_seconds: int = 0
    source: Site | None = None


def parse_start_record(text: object) -> StartRecord | None:
    """Parse the value of START_ATTRIBUTE; None if the text is not the offer of a slot."""
    if text == _LOCAL:
        return StartRecord(is_local=True)
    read = _READ.match(text) if isinstance(text, str) else None
    return StartRecord(False, int(read[1]), Site(read[2]) if read[2] else None) if read else None


def start_text(record: StartRecord | None) -> str:
    """Return why the job runs, or ran, at its slot; an empty text without a record."""
    if record is None:
        return ""
    if record.is_local:
        return "all its data was there when it started"
    origin = f" from {record.source}" if record.source else ""
    return (
        f"it started away from its data, to read it{origin} in about {format_duration(record.read_seconds)}"
    )
