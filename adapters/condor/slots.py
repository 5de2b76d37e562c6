"""The pool's slots, as far as we ask whether our attributes arrived there."""

from collections.abc import Sequence

from hydrator.domain.ports import SlotAdVersion

from . import CondorClient

NOT_DYNAMIC_SLOT = "DynamicSlot =!= true"
"""Slots that a startd has, without those it cuts off for a job: these carry what theirs carries."""


class PoolSlots:
    """Keeps ``Slots``: one query to the collector for two scalars and the names of sites.

    Its *client* is none that a cycle waits for, and ends with it.
    """

    def __init__(self, client: CondorClient, site_attributes: Sequence[str]) -> None:
        self._client = client
        self._site_attributes = tuple(dict.fromkeys(("DataLocalitySite", *site_attributes)))

    def read_ad_versions(self) -> Sequence[SlotAdVersion]:
        """See :class:`hydrator.domain.ports.Slots`."""
        found = self._client.slots([*self._site_attributes, "DataLocalityGeneration"], NOT_DYNAMIC_SLOT)
        return [self._parse_slot_version(ad) for ad in found]

    def close(self) -> None:
        """End the client, also under a question."""
        self._client.close()

    def _parse_slot_version(self, ad: dict[str, object]) -> SlotAdVersion:
        site = next((str(ad[name]) for name in self._site_attributes if ad.get(name)), None)
        generation = ad.get("DataLocalityGeneration")
        return SlotAdVersion(site, generation if isinstance(generation, int) else None)
