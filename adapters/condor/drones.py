"""Drones: publish an offline slot ad for each type of drones that could start at a site.

The negotiator matches waiting jobs with offline ads as with slots, and writes ``MachineLastMatchTime`` and
``MachineMatchCount`` into a matched ad, but starts no job there [1]. COBalD/TARDIS reads both, and starts
drones of that type. See docs/how-to/operate/connect/drones.md.

[1] HTCondor 25.14, src/condor_negotiator.V6/matchmaker.cpp, RegisterAttemptedOfflineMatch.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from adapters.readback import ReadBackAds, parse_published_ad
from hydrator.domain.errors import ConfigError, PoolError, PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock
from hydrator.domain.untrusted import valid_time

from .bindings.calls.drone_calls import DRONE_ATTRIBUTE
from .bindings.client import CollectorClient
from .own_identities import OwnIdentities

_SUFFIX: Final = "drone.invalid"
"""End of ``Machine`` of an offline ad; no host has such a name (RFC 2606)."""
_IDLE_SLOT: Final = {
    "MyType": "Machine",
    "MyAddress": "<0.0.0.0:0>",
    "StartdIpAddr": "<0.0.0.0:0>",
    "PartitionableSlot": True,
    "SlotType": "Partitionable",
    "SlotTypeID": 1,
    "SlotID": 1,
    "State": "Unclaimed",
    "Activity": "Idle",
    "EnteredCurrentActivity": 0,
    "OpSys": "LINUX",
    "Arch": "X86_64",
    "HasFileTransfer": True,
    "Rank": 0.0,
    "CurrentRank": 0.0,
    "WantAdRevaluate": True,
}
"""A partitionable slot without a job. WantAdRevaluate: the negotiator counts several jobs in one cycle."""
_KIB_PER_GIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DroneType:
    """A type of drones: the slot that the collector would list if such a drone ran at *site*.

    ``memory_mib`` and ``disk_gib`` are those of one drone. ``start`` is the text of a ClassAd expression,
    ``attributes`` are further attributes with plain values.
    """

    name: str
    site: Site
    cpus: int
    memory_mib: int
    disk_gib: float
    start: str = "true"
    attributes: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    @property
    def ad_name(self) -> str:
        """Return the ``Name`` of the offline ad."""
        return f"slot1@{self.name}.{_SUFFIX}"


class DronePublisher:
    """A ``Publisher`` of offline ads, one for each type of drones, with the content of the ad of its site.

    A site has an ad here if each of its types has one; the oldest of them counts. Sites without a type have
    none, so their ads must not be sent here.

    Args:
        client: sends the ads, and needs ADVERTISE_STARTD at the collector.
        name: the name of this publisher.
        types: all types of drones; an offline ad of another type, of an earlier configuration, is removed.
        expressions: the attributes that the pool configuration gives to startds, with their expressions.
        start_clause: the clause that the pool configuration adds to START.
        lifetime: time until the collector drops an ad.
        clock: aware UTC time.
        identities: further identities that may send the ads, such as that of the standby.
    """

    def __init__(
        self,
        client: CollectorClient,
        *,
        name: str = "drones",
        types: Sequence[DroneType],
        expressions: Mapping[str, str],
        start_clause: str,
        lifetime: timedelta,
        clock: Clock,
        identities: Collection[str] = (),
    ) -> None:
        self._client = client
        self.name = name
        self._types = tuple(types)
        self._expressions = dict(expressions)
        self._start_clause = start_clause
        self._lifetime = lifetime
        self._clock = clock
        self._skew = timedelta(0)
        self._identities = OwnIdentities(client, identities)
        self.rejected: Mapping[str, str] = {}

    @property
    def sites(self) -> frozenset[Site]:
        """Return the sites that have a type of drones."""
        return frozenset(each.site for each in self._types)

    def published(self) -> Mapping[Site, PublishedAd]:
        with self._translate_errors():
            ads = self._client.drone_ads()
            reasons = self._identities.foreign_sender_reasons(ads)
        by_name = {ad["Name"]: (ad, reason) for ad, reason in zip(ads, reasons, strict=True)}
        accepted: dict[Site, list[PublishedAd | None]] = {}
        rejected: dict[str, str] = {}
        for drone_type in self._types:
            read_back = ReadBackAds()
            if found := by_name.get(drone_type.ad_name):
                read_back.add(drone_type.ad_name, lambda found=found: self._parse_ad(*found))  # type: ignore[misc]
            rejected |= read_back.rejected
            own = read_back.adopted_ads.get(drone_type.site)
            accepted.setdefault(drone_type.site, []).append(own)
        self.rejected = rejected
        return {site: _oldest(ads) for site, ads in accepted.items() if None not in ads}  # type: ignore[arg-type]

    def publish(self, ads: Sequence[SiteAd]) -> None:
        by_site = {ad.site: ad for ad in ads}
        drones = [self._build(each, by_site[each.site]) for each in self._types if each.site in by_site]
        names = {each.ad_name for each in self._types}
        with self._translate_errors():
            received_at = self._client.advertise_drones(drones, self._lifetime)
            listed = {str(ad["Name"]) for ad in self._client.drone_ads()}
            self._client.invalidate_drones(sorted(listed - names))
        time = valid_time(received_at)
        if time is not None:
            skew = time - self._clock()
            self._skew = skew if abs(skew) > timedelta(seconds=5) else timedelta(0)

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        with self._translate_errors():
            self._client.invalidate_drones([each.ad_name for each in self._types if each.site in sites])

    def _build(self, drone_type: DroneType, ad: SiteAd) -> dict[str, Any]:
        """Build the parts of an offline ad: a partitionable slot without a job, which is not running."""
        literals = {
            **_IDLE_SLOT,
            "Machine": f"{drone_type.name}.{_SUFFIX}",
            "TardisDroneUuid": drone_type.name,
            **dict.fromkeys(("Cpus", "TotalCpus", "TotalSlotCpus"), drone_type.cpus),
            **dict.fromkeys(("Memory", "TotalMemory", "TotalSlotMemory"), drone_type.memory_mib),
            **dict.fromkeys(("Disk", "TotalDisk", "TotalSlotDisk"), int(drone_type.disk_gib * _KIB_PER_GIB)),
            **drone_type.attributes,
            "Offline": True,
            DRONE_ATTRIBUTE: drone_type.name,
        }
        expressions = {
            **self._expressions,
            "Start": f"({drone_type.start}) && {self._start_clause}",
            "Requirements": "START",
        }
        return {
            "name": drone_type.ad_name,
            "literals": literals,
            "expressions": expressions,
            "text": ad.text,
        }

    def _parse_ad(self, ad: Mapping[str, Any], foreign_sender_reason: str | None) -> PublishedAd:
        """Parse an offline ad; raise ValueError if this daemon cannot have sent it."""
        if foreign_sender_reason:
            raise ValueError(foreign_sender_reason)
        received_at = valid_time(ad["LastHeardFrom"])
        return parse_published_ad(
            ad["DataLocalitySite"],
            ad["DataLocalityGeneration"],
            ad["DataLocalityAsOf"],
            received_at - self._skew if received_at else None,
            self._clock(),
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (PoolError, ConfigError) as exc:
            raise PublishError(self.name, str(exc)) from exc


def _oldest(ads: Sequence[PublishedAd]) -> PublishedAd:
    return min(ads, key=lambda ad: (ad.generation, ad.as_of))
