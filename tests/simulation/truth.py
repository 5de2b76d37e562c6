"""The truth of the simulated world: what each catalogue holds, and what jobs name; and how both change."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from hydrator.domain.model import Did, Site


@dataclass(frozen=True)
class Truth:
    """What is the case at one moment; a change makes a new truth.

    ``shares`` has, by catalogue, dataset and site, the share of the dataset that is on disk there: 1.0 is
    whole. ``sites`` has the sites of each catalogue, ``sizes`` the bytes of each dataset.
    ``queues`` has, by schedd, the sets that its jobs name with the number of jobs.
    """

    sites: Mapping[str, frozenset[Site]]
    sizes: Mapping[Did, int]
    shares: Mapping[str, Mapping[Did, Mapping[Site, float]]]
    queues: Mapping[str, Mapping[tuple[Did, ...], int]] = field(default_factory=dict)

    def with_share(self, catalogue: str, did: Did, site: Site, share: float) -> "Truth":
        """Return the truth after *share* of *did* has come to *site*; 0 means that it has left."""
        known = self.shares[catalogue]
        shares = {key: one for key, one in {**known.get(did, {}), site: share}.items() if one}
        return replace(self, shares={**self.shares, catalogue: {**known, did: shares}})

    def with_jobs(self, schedd: str, dids: tuple[Did, ...], count: int) -> "Truth":
        """Return the truth after *schedd* has *count* jobs that name *dids*."""
        queue = {**self.queues.get(schedd, {}), dids: count}
        return replace(self, queues={**self.queues, schedd: {key: one for key, one in queue.items() if one}})

    def share(self, did: Did, site: Site) -> float | None:
        """Return the largest share of *did* on disk at *site* in any catalogue; None if none has a part."""
        parts = [shares.get(did, {}).get(site) for shares in self.shares.values()]
        return max((part for part in parts if part is not None), default=None)

    @cached_property
    def all_sites(self) -> frozenset[Site]:
        """Return the sites of all catalogues."""
        return frozenset[Site]().union(*self.sites.values())
