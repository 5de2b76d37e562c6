"""Check of plugins' answers: replace each reading that is not valid by Unseen with the reason."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from math import isfinite
from typing import Any

from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.model import Did, Reading, Replica, ReplicaState, Seen, Survey, Unseen
from hydrator.domain.ports import Catalogue

_MOST_BYTES = 2**63 - 1


class CheckedCatalogue:
    """A wrapper that checks each answer of a catalogue that a plugin provides.

    See :class:`hydrator.domain.ports.Catalogue` for the methods.
    """

    def __init__(self, inner: Catalogue) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`; a reading that is not valid becomes Unseen.

        Raises:
            CatalogueGarbled: the whole answer is not valid.
        """
        survey: Any = self._inner.read(dids)
        if not isinstance(survey, Survey):
            raise CatalogueGarbled(self.name, f"the plugin returned a {type(survey).__name__}, not a Survey")
        problem = _survey_problem(survey)
        if problem:
            raise CatalogueGarbled(self.name, f"the plugin's answer is garbled: {problem}")
        readings = {did: survey.readings[did] for did in dids if did in survey.readings}
        return replace(
            survey, readings={did: _check_reading(did, reading) for did, reading in readings.items()}
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :meth:`hydrator.domain.ports.Catalogue.find`."""
        matches = self._inner.find(patterns)
        if not _is_text_set(matches):
            raise CatalogueGarbled(self.name, "the plugin's find() did not return a set of names")
        return frozenset(matches)

    def close(self) -> None:
        self._inner.close()


def _check_reading(did: Did, reading: Reading) -> Reading:
    problem = _reading_problem(did, reading)
    return Unseen(f"the catalogue's answer is garbled: {problem}") if problem else reading


def _survey_problem(survey: Any) -> str | None:  # noqa: ANN401 - a plugin may return any value
    if not _is_time(survey.started_at):
        return "Survey.started_at is not a datetime with a time zone"
    if not _is_text_set(survey.sites):
        return "Survey.sites is not a set of names"
    return None if isinstance(survey.readings, Mapping) else "Survey.readings is not a mapping"


def _reading_problem(did: Did, reading: Any) -> str | None:  # noqa: ANN401 - a plugin may return any value
    if _is_instance(reading, Unseen):
        return None if isinstance(reading.reason, str) else "Unseen.reason is not a text"
    if not _is_instance(reading, Seen):
        return f"the reading is a {type(reading).__name__}, not Seen or Unseen"
    if not _is_time(reading.as_of):
        return "Seen.as_of is not a datetime with a time zone"
    if not _is_text_set(reading.unreachable_sites) or not _is_text_set(reading.case_variants):
        return "Seen.unreachable_sites or Seen.case_variants is not a set of names"
    size: Any = reading.bytes_total
    if size is not None and (type(size) is not int or not 0 <= size <= _MOST_BYTES):
        return "Seen.bytes_total is not a number of bytes"
    if not isinstance(reading.replicas, tuple):
        return "Seen.replicas is not a tuple"
    return next((problem for one in reading.replicas if (problem := _replica_problem(did, one))), None)


def _replica_problem(did: Did, replica: Any) -> str | None:  # noqa: ANN401 - a plugin may return any value
    if not _is_instance(replica, Replica) or replica.did != did:
        return "a replica is not a Replica object, or belongs to another dataset"
    if not isinstance(replica.site, str) or not replica.site:
        return "a replica has no site"
    if not isinstance(replica.state, ReplicaState):
        return "a replica has no state"
    share: Any = replica.fraction
    if share is None:
        return None
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    return None if is_number and isfinite(share) and 0 <= share <= 1 else "a fraction is not from 0 to 1"


def _is_instance(value: object, kind: type) -> bool:
    """Return True if *value* is of type *kind*; do not check the types of its fields."""
    return isinstance(value, kind)


def _is_time(value: object) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


def _is_text_set(names: object) -> bool:
    return isinstance(names, AbstractSet) and all(isinstance(name, str) for name in names)
