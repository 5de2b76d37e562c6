"""What catalogues say, made fit to be stored and shown where it comes in: plugins and ours alike.

Texts are one line each, without our secrets, in characters that only show. What
cannot be the DID of a dataset that a job names is not passed on by a search.
"""

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import replace

from hydrator.domain.errors import BadDid
from hydrator.domain.model import (
    Did,
    Reading,
    Replica,
    Seen,
    Site,
    Survey,
    Told,
    Unseen,
    parse_did,
)
from hydrator.domain.ports import Catalogue
from hydrator.domain.redaction import SECRETS, printable, shown

MOST_NAME_CHARS = 500
_MOST_SEEN = 50_000


class CleanCatalogue:
    """Another catalogue, whose texts are made fit to be shown; see :class:`hydrator.domain.ports.Catalogue`.

    Args:
        inner: answers.
        before: what is done before each question, such as looking for renewed secrets.
    """

    def __init__(self, inner: Catalogue, before: Callable[[], None] = lambda: None) -> None:
        self._inner = inner
        self._before = before
        self._clean: dict[Did, tuple[tuple[Replica, ...], tuple[Replica, ...]]] = {}
        """By dataset, its replicas as they came last, and what was made of them."""
        self._seen: set[str] = set()
        """Texts with which there was nothing to do."""

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`."""
        self._before()
        survey = self._inner.read(dids)
        readings = {did: self._reading(did, reading) for did, reading in survey.readings.items()}
        self._clean = {
            did: (said.replicas, made.replicas)
            for (did, said), made in zip(survey.readings.items(), readings.values(), strict=True)
            if isinstance(said, Seen) and isinstance(made, Seen)
        }
        return replace(
            survey,
            readings=readings,
            sites=frozenset(map(_site, survey.sites)),
            unmapped=frozenset(map(_name, survey.unmapped)),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :meth:`hydrator.domain.ports.Catalogue.find`."""
        self._before()
        return frozenset(did for did in self._inner.find(patterns) if _is_did(did))

    def close(self) -> None:
        self._inner.close()

    def _is_clean(self, texts: AbstractSet[str]) -> bool:
        """Is there nothing to do for any of *texts*? Most were looked at for another dataset."""
        new = texts - self._seen
        if not all(map(_may_pass, new)):
            return False
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        self._seen |= new
        return True

    def _reading(self, did: Did, reading: Reading) -> Reading:
        if isinstance(reading, Unseen):
            return Unseen(shown(reading.reason))
        blind, twins = reading.blind, reading.twins
        before, replicas = self._clean.get(did, (None, reading.replicas))
        if before is not reading.replicas:
            clean = self._is_clean({text for one in reading.replicas for text in _texts(one)})
            replicas = reading.replicas if clean else tuple(map(_replica, reading.replicas))
        if replicas is reading.replicas and not blind and not twins:
            return reading
        return replace(
            reading,
            replicas=replicas,
            blind=frozenset(map(_site, blind)),
            twins=frozenset(did for did in twins if _is_did(did)),
        )


def _texts(replica: Replica) -> tuple[str, ...]:
    told = replica.told
    return replica.site, replica.storage, told.call, told.reason, told.storage, told.rule, told.account


def _may_pass(text: str) -> bool:
    return text.isprintable() and len(text) <= MOST_NAME_CHARS and shown(text) == text


def _replica(replica: Replica) -> Replica:
    return replace(
        replica, site=_site(replica.site), storage=_name(replica.storage), told=_told(replica.told)
    )


def _told(told: Told) -> Told:
    return replace(
        told,
        call=shown(told.call, MOST_NAME_CHARS),
        reason=shown(told.reason),
        storage=_name(told.storage),
        rule=_name(told.rule),
        account=_name(told.account),
    )


def _site(site: Site) -> Site:
    return Site(_name(site))


def _name(text: str) -> str:
    return printable(SECRETS.hide(text)[:MOST_NAME_CHARS])


def _is_did(text: str) -> bool:
    try:
        return parse_did(text) == text
    except BadDid:
        return False
