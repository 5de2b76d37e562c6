"""The pool's slots, as far as we ask whether our attributes arrived there."""

from collections.abc import Sequence

from hydrator.domain.ports import Carried

from . import CondorClient

WHOLE = "DynamicSlot =!= true"
"""Slots that a startd has, without those it cuts off for a job: these carry what theirs carries."""


class PoolSlots:
    """Keeps ``Slots``: one query to the collector for two scalars and the names of sites.

    Its *client* is none that a cycle waits for, and ends with it.
    """

    def __init__(self, client: CondorClient, site_attributes: Sequence[str]) -> None:
        self._client = client
        self._sites = tuple(dict.fromkeys(("DataLocalitySite", *site_attributes)))

    def carried(self) -> Sequence[Carried]:
        """See :class:`hydrator.domain.ports.Slots`."""
        found = self._client.slots([*self._sites, "DataLocalityGeneration"], WHOLE)
        return [self._read(ad) for ad in found]

    def close(self) -> None:
        """End the client, also under a question."""
        self._client.close()

    def _read(self, ad: dict[str, object]) -> Carried:
        site = next((str(ad[name]) for name in self._sites if ad.get(name)), None)
        generation = ad.get("DataLocalityGeneration")
        return Carried(site, generation if isinstance(generation, int) else None)
