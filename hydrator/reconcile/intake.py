"""Intake of catalogue answers, in each catalogue's process: check plugins' answers, clean texts, map sites.

A reading of a plugin that is not valid becomes Unseen with the reason. A cleaned text is one line of
printable characters, without secrets. The intake drops search results that are not valid DIDs.
"""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from math import isfinite
from typing import Any

from hydrator.domain.errors import BadDid, CatalogueGarbled
from hydrator.domain.model import (
    DatasetState,
    Did,
    Provenance,
    Reading,
    Replica,
    Seen,
    Site,
    Survey,
    Unseen,
    parse_did,
)
from hydrator.domain.ports import Catalogue
from hydrator.domain.redaction import SECRETS, escape_unprintable, sanitize
from hydrator.domain.sites import SiteMapping
from hydrator.domain.untrusted import moment_in_utc

_MOST_BYTES = 2**63 - 1
MAX_NAME_CHARS = 500
_MAX_CLEAN_TEXTS = 50_000


class IntakeCatalogue:
    """A catalogue whose answers are clean, and have the site names of slots.

    See :class:`hydrator.domain.ports.Catalogue` for the methods.

    Args:
        inner: the catalogue that answers.
        mapping: translates the sites in its answers.
        is_plugin: check each answer; a reading that is not valid becomes Unseen.
        before_query: called before each query, for example to read renewed secrets.
    """

    def __init__(
        self,
        inner: Catalogue,
        mapping: SiteMapping | None = None,
        *,
        is_plugin: bool = False,
        before_query: Callable[[], None] = lambda: None,
    ) -> None:
        self._inner = inner
        self._mapping = mapping or SiteMapping()
        self._is_plugin = is_plugin
        self._before_query = before_query
        self._clean_texts: set[str] = set()
        """Texts that were checked before and need no cleaning."""

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`.

        Raises:
            CatalogueGarbled: the whole answer of a plugin is not valid.
        """
        self._before_query()
        survey = self._inner.read(dids)
        if self._is_plugin:
            survey = _check_survey(self.name, survey, dids)
        return replace(
            survey,
            readings={did: self._take_reading(reading) for did, reading in survey.readings.items()},
            sites=self._mapping.map_sites(set(map(_clean_site, survey.sites))),
            unmapped_storages=frozenset(map(_clean_name, survey.unmapped_storages)),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :meth:`hydrator.domain.ports.Catalogue.find`; drop matches that are not DIDs."""
        self._before_query()
        matches = self._inner.find(patterns)
        if self._is_plugin and not _is_text_set(matches):
            raise CatalogueGarbled(self.name, "the plugin's find() did not return a set of names")
        return frozenset(filter(_is_did, matches))

    def close(self) -> None:
        self._inner.close()

    def _take_reading(self, reading: Reading) -> Reading:
        if isinstance(reading, Unseen):
            return Unseen(sanitize(reading.reason))
        clean = self._clean_reading(reading)
        return self._mapping.map_reading(clean) if self._mapping else clean

    def _are_clean(self, texts: AbstractSet[str]) -> bool:
        """Return True if none of *texts* needs cleaning; check only texts that no earlier answer had."""
        new = texts - self._clean_texts
        if not all(map(_is_clean, new)):
            return False
        if len(self._clean_texts) > _MAX_CLEAN_TEXTS:
            self._clean_texts.clear()
        self._clean_texts |= new
        return True

    def _clean_reading(self, reading: Seen) -> Seen:
        unreachable_sites, case_variants = reading.unreachable_sites, reading.case_variants
        is_clean = self._are_clean({text for one in reading.replicas for text in _replica_texts(one)})
        if is_clean and not unreachable_sites and not case_variants:
            return reading
        return replace(
            reading,
            replicas=reading.replicas if is_clean else tuple(map(_clean_replica, reading.replicas)),
            unreachable_sites=frozenset(map(_clean_site, unreachable_sites)),
            case_variants=frozenset(did for did in case_variants if _is_did(did)),
        )


def _check_survey(name: str, survey: Any, dids: AbstractSet[Did]) -> Survey:  # noqa: ANN401 - a plugin's
    """Return the *survey* of a plugin with the readings of *dids*; one that is not valid becomes Unseen.

    Raises:
        CatalogueGarbled: the whole answer is not valid.
    """
    if not isinstance(survey, Survey):
        raise CatalogueGarbled(name, f"the plugin returned a {type(survey).__name__}, not a Survey")
    problem = _survey_problem(survey)
    if problem:
        raise CatalogueGarbled(name, f"the plugin's answer is garbled: {problem}")
    readings = {did: survey.readings[did] for did in dids if did in survey.readings}
    return replace(survey, readings={did: _check_reading(did, reading) for did, reading in readings.items()})


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
    if not isinstance(replica.state, DatasetState) or replica.state is DatasetState.UNKNOWN:
        return "a replica has no state"
    provenance: Any = replica.provenance
    if not _is_instance(provenance, Provenance):
        return "the provenance of a replica is not a Provenance object"
    if not all(one is None or _is_time(one) for one in (provenance.expires_at, provenance.ready_at)):
        return "a time in the provenance of a replica is not a datetime with a time zone"
    share: Any = replica.fraction
    if share is None:
        return None
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    return None if is_number and isfinite(share) and 0 <= share <= 1 else "a fraction is not from 0 to 1"


def _is_instance(value: object, kind: type) -> bool:
    """Return True if *value* is of type *kind*; do not check the types of its fields."""
    return isinstance(value, kind)


def _is_time(value: object) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None and moment_in_utc(value) is not None


def _is_text_set(names: object) -> bool:
    return isinstance(names, AbstractSet) and all(isinstance(name, str) for name in names)


def _replica_texts(replica: Replica) -> tuple[str, ...]:
    provenance = replica.provenance
    return (
        replica.site,
        replica.storage,
        provenance.reason,
        provenance.rule,
        provenance.account,
    )


def _is_clean(text: str) -> bool:
    return text.isprintable() and len(text) <= MAX_NAME_CHARS and sanitize(text) == text


def _clean_replica(replica: Replica) -> Replica:
    source = replica.provenance
    return replace(
        replica,
        site=_clean_site(replica.site),
        storage=_clean_name(replica.storage),
        provenance=replace(
            source,
            reason=sanitize(source.reason),
            rule=_clean_name(source.rule),
            account=_clean_name(source.account),
        ),
    )


def _clean_site(site: Site) -> Site:
    return Site(_clean_name(site))


def _clean_name(text: str) -> str:
    return escape_unprintable(SECRETS.hide(text)[:MAX_NAME_CHARS])


def _is_did(text: str) -> bool:
    try:
        return parse_did(text) == text
    except BadDid:
        return False
