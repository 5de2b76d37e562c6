"""Start record: why a job could start at its slot, from the job's ad. Pure.

At each start the schedd expands ``DataLocalityStart``, which the transform has set, with the slot's
``DataLocalityOffer``, and writes the result into the job's ad. So the ad of a running or an ended job says
why it ran where it ran. If a job does not have the transform's text, its owner wrote the record.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import fits, is_cluster_key
from hydrator.domain.ads.expressions import START_TEXT
from hydrator.domain.ads.openings import StartRecord, parse_offer
from hydrator.domain.text import format_duration

START_ATTRIBUTE = contract.START_RECORD
ASKED: Final = START_TEXT[1:-1].replace("\\", "")
"""The value of ``DataLocalityStart`` of each job that a transform has changed."""


def parse_start_record(text: object, asked: object) -> StartRecord | None:
    """Parse the value of START_ATTRIBUTE; None if the text is not the offer of a slot.

    The schedd wrote it only if *asked*, the value of the job's ``DataLocalityStart``, is ASKED.
    """
    return parse_offer(text) if asked == ASKED else None


_fits = lru_cache(maxsize=10_000)(fits)


def has_own_record(row: Mapping[str, Any]) -> bool:
    """Return False if the offer in *row* is not of a slot, or is for other datasets than the job's.

    A job without an offer has no false one. A cluster's key that Condor-C brought from another schedd may be
    of this list, but the job alone does not show it.

    Args:
        row: of an ended job: ``datasets``, ``key``, ``is_of_cluster``, ``asked``, ``start``.
    """
    names, key = row.get("datasets"), row.get("key")
    if not names or parse_offer(row.get("start")) is None:
        return True
    if row.get("asked") != ASKED or key is None:
        return False
    return bool(row.get("is_of_cluster")) if is_cluster_key(key) else _fits(key, tuple(names))


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
