"""Intake of catalogue answers: clean every text from an adapter or plugin before the daemon stores it.

A cleaned text is one line of printable characters, without secrets. The intake drops search results that
are not valid DIDs.
"""

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import replace

from hydrator.domain.errors import BadDid
from hydrator.domain.model import (
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

MAX_NAME_CHARS = 500
_MAX_CLEAN_TEXTS = 50_000


class CleanCatalogue:
    """A catalogue that cleans the texts in the answers of another catalogue.

    See :class:`hydrator.domain.ports.Catalogue` for the methods.

    Args:
        inner: the catalogue that answers.
        before_query: called before each query, for example to read renewed secrets.
    """

    def __init__(self, inner: Catalogue, before_query: Callable[[], None] = lambda: None) -> None:
        self._inner = inner
        self._before_query = before_query
        self._cleaned_replicas: dict[Did, tuple[tuple[Replica, ...], tuple[Replica, ...]]] = {}
        """By dataset, the replicas in the catalogue's last answer, before and after they were cleaned."""
        self._clean_texts: set[str] = set()
        """Texts that were checked before and need no cleaning."""

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`."""
        self._before_query()
        survey = self._inner.read(dids)
        readings = {did: self._clean_reading(did, reading) for did, reading in survey.readings.items()}
        self._cleaned_replicas = {
            did: (reading.replicas, clean_reading.replicas)
            for (did, reading), clean_reading in zip(survey.readings.items(), readings.values(), strict=True)
            if isinstance(reading, Seen) and isinstance(clean_reading, Seen)
        }
        return replace(
            survey,
            readings=readings,
            sites=frozenset(map(_clean_site, survey.sites)),
            unmapped_storages=frozenset(map(_clean_name, survey.unmapped_storages)),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :meth:`hydrator.domain.ports.Catalogue.find`; drop matches that are not DIDs."""
        self._before_query()
        return frozenset(did for did in self._inner.find(patterns) if _is_did(did))

    def close(self) -> None:
        self._inner.close()

    def _are_clean(self, texts: AbstractSet[str]) -> bool:
        """Return True if none of *texts* needs cleaning; check only texts that no earlier answer had."""
        new = texts - self._clean_texts
        if not all(map(_is_clean, new)):
            return False
        if len(self._clean_texts) > _MAX_CLEAN_TEXTS:
            self._clean_texts.clear()
        self._clean_texts |= new
        return True

    def _clean_reading(self, did: Did, reading: Reading) -> Reading:
        if isinstance(reading, Unseen):
            return Unseen(sanitize(reading.reason))
        unreachable_sites, case_variants = reading.unreachable_sites, reading.case_variants
        last_replicas, replicas = self._cleaned_replicas.get(did, (None, reading.replicas))
        if last_replicas is not reading.replicas:
            clean = self._are_clean({text for one in reading.replicas for text in _replica_texts(one)})
            replicas = reading.replicas if clean else tuple(map(_clean_replica, reading.replicas))
        if replicas is reading.replicas and not unreachable_sites and not case_variants:
            return reading
        return replace(
            reading,
            replicas=replicas,
            unreachable_sites=frozenset(map(_clean_site, unreachable_sites)),
            case_variants=frozenset(did for did in case_variants if _is_did(did)),
        )


def _replica_texts(replica: Replica) -> tuple[str, ...]:
    provenance = replica.provenance
    return (
        replica.site,
        replica.storage,
        provenance.call,
        provenance.reason,
        provenance.storage,
        provenance.rule,
        provenance.account,
    )


def _is_clean(text: str) -> bool:
    return text.isprintable() and len(text) <= MAX_NAME_CHARS and sanitize(text) == text


def _clean_replica(replica: Replica) -> Replica:
    return replace(
        replica,
        site=_clean_site(replica.site),
        storage=_clean_name(replica.storage),
        provenance=_clean_provenance(replica.provenance),
    )


def _clean_provenance(provenance: Provenance) -> Provenance:
    return replace(
        provenance,
        call=sanitize(provenance.call, MAX_NAME_CHARS),
        reason=sanitize(provenance.reason),
        storage=_clean_name(provenance.storage),
        rule=_clean_name(provenance.rule),
        account=_clean_name(provenance.account),
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
