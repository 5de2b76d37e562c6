"""In-memory Catalogue, Publisher and PoolReader, for tests.

These classes implement the ports of ``hydrator.domain`` and pass the same contract tests as other
adapters. If ``is_broken``, their methods raise the error of a server that does not answer.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from adapters.did_matching import case_variants, filter_by_patterns, group_by_lower_case
from hydrator.domain.errors import CatalogueUnreachable, PoolError, PublishError
from hydrator.domain.model import (
    Did,
    PublishedAd,
    Replica,
    ScheddDemand,
    Seen,
    Site,
    SiteAd,
    Survey,
    Unseen,
    from_unix,
    to_unix,
)
from hydrator.domain.ports import Clock, PoolSnapshot, ScheddQueue, SlotAdVersion, SlotGroup
from hydrator.wiring import system_clock
from tests.factories import NOON

_BROKEN_REASON = "it is set to fail (is_broken)"


class TurnedClock:
    """A clock that a test turns: ``now`` is its time."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class MemoryCatalogue:
    """A catalogue in memory that has exactly *replicas*.

    Args:
        name: the catalogue's name in the configuration.
        replicas: the catalogue's records; a test may assign the attribute ``replicas`` again at any time.
        sites: the catalogue's sites, in addition to the sites of *replicas*.
        clock: the clock for the time of the readings.
        is_broken: whether the catalogue fails to answer now; a test may change it at any time.
        unseen_reasons: by DID, the reason why the DID is Unseen.
        bytes_total: known sizes by DID; each of these DIDs exists even without a replica.
        unreachable_sites: sites that the catalogue cannot reach now; a test may change it at any time.
    """

    def __init__(
        self,
        name: str,
        replicas: Iterable[Replica] = (),
        sites: Collection[Site] = (),
        *,
        clock: Clock = system_clock,
        is_broken: bool = False,
        unseen_reasons: Mapping[Did, str] | None = None,
        bytes_total: Mapping[Did, int] | None = None,
        unreachable_sites: Collection[Site] = (),
    ) -> None:
        self.name = name
        self.unreachable_sites = frozenset(unreachable_sites)
        self.replicas: tuple[Replica, ...] = tuple(replicas)
        self.sites = frozenset(sites)
        self.is_broken = is_broken
        self.unseen_reasons: Mapping[Did, str] = unseen_reasons or {}
        self.bytes_total: Mapping[Did, int] = bytes_total or {}
        self._clock = clock

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Return a survey; see :class:`hydrator.domain.ports.Catalogue`."""
        now = self._clock()
        groups = group_by_lower_case(self._existing_dids())
        replicas: dict[Did, list[Replica]] = {}
        for replica in self.replicas:
            if replica.site not in self.unreachable_sites:
                replicas.setdefault(replica.did, []).append(replica)
        return Survey(
            catalogue=self.name,
            started_at=now,
            sites=self.sites | {replica.site for replica in self.replicas},
            readings={did: self._reading(did, now, groups, replicas.get(did, ())) for did in sorted(dids)},
        )

    def _reading(
        self, did: Did, now: datetime, groups: Mapping[str, frozenset[Did]], replicas: Iterable[Replica]
    ) -> Seen | Unseen:
        if did in self.unseen_reasons:
            return Unseen(self.unseen_reasons[did])
        return Seen(
            as_of=now,
            replicas=tuple(replicas),
            bytes_total=self.bytes_total.get(did),
            unreachable_sites=self.unreachable_sites,
            case_variants=case_variants(did, groups),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return the matching DIDs; see :class:`hydrator.domain.ports.Catalogue`."""
        return filter_by_patterns(self._existing_dids(), patterns)

    def _existing_dids(self) -> frozenset[Did]:
        if self.is_broken:
            raise CatalogueUnreachable(self.name, _BROKEN_REASON)
        return frozenset(replica.did for replica in self.replicas) | self.bytes_total.keys()

    def close(self) -> None:
        """Do nothing: no connection is open."""


class MemoryPublisher:
    """A publisher that stores ads in ``ads``; if ``is_broken``, all its methods raise PublishError."""

    def __init__(self, name: str = "memory", *, clock: Clock = system_clock, is_broken: bool = False) -> None:
        self.name = name
        self.is_broken = is_broken
        self.ads: dict[Site, SiteAd] = {}
        self._published_at: dict[Site, datetime] = {}
        self._clock = clock

    def published(self) -> Mapping[Site, PublishedAd]:
        """Return the ads, with times in whole seconds; see :class:`hydrator.domain.ports.Publisher`."""
        self._check_working()
        return {
            site: PublishedAd(
                site,
                ad.generation,
                from_unix(to_unix(ad.as_of)),
                self._published_at[site],
                from_unix(to_unix(ad.open_until)) if ad.open_until else None,
            )
            for site, ad in sorted(self.ads.items())
        }

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Store *ads*; see :class:`hydrator.domain.ports.Publisher`."""
        self._check_working()
        for ad in ads:
            self.ads[ad.site] = ad
            self._published_at[ad.site] = self._clock()

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Remove the ads of *sites*; see :class:`hydrator.domain.ports.Publisher`."""
        self._check_working()
        for site in sites:
            self.ads.pop(site, None)
            self._published_at.pop(site, None)

    def _check_working(self) -> None:
        if self.is_broken:
            raise PublishError(self.name, _BROKEN_REASON)


class MemoryPool:
    """A pool; a test may assign ``queues`` and ``slots`` again at any time.

    A queue is a ScheddQueue, its demand alone, or Unseen.
    """

    def __init__(
        self,
        queues: Mapping[str, ScheddQueue | ScheddDemand | Unseen] | None = None,
        slots: tuple[SlotGroup, ...] | Unseen = (),
        slot_ads: tuple[SlotAdVersion, ...] = (),
        *,
        clock: Clock = system_clock,
        is_broken: bool = False,
    ) -> None:
        self.queues: Mapping[str, ScheddQueue | ScheddDemand | Unseen] = queues or {}
        self.slots, self.slot_ads = slots, slot_ads
        self.is_broken = is_broken
        self._clock = clock
        self.last: PoolSnapshot | None = None
        self._restored: Mapping[str, ScheddQueue] = {}

    def restore(self, queues: Mapping[str, ScheddQueue]) -> None:
        """See :class:`hydrator.domain.ports.PoolReader`."""
        self._restored = queues

    def read_snapshot(self, *, waits: bool = False) -> PoolSnapshot:
        """Return the snapshot; see :class:`hydrator.domain.ports.PoolReader`."""
        if self.is_broken:
            raise PoolError("collector", _BROKEN_REASON)
        known = dict(self.last.queues if self.last else self._restored)
        silent = {}
        for schedd, queue in self.queues.items():
            if isinstance(queue, Unseen):
                silent[schedd] = queue.reason
            else:
                known[schedd] = ScheddQueue(queue) if isinstance(queue, ScheddDemand) else queue
        queues = {schedd: known[schedd] for schedd in sorted(self.queues) if schedd in known}
        self.last = PoolSnapshot(self._clock(), queues, silent, self.slots, self.slot_ads)
        return self.last

    def close(self) -> None:
        """Do nothing: no connection is open."""
