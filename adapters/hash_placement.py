"""Hash catalogue: sites with caches and no catalogue, where a hash of the DID chooses the dataset's home.

The catalogue computes the home of each dataset and queries no service. It uses weighted rendezvous hashing
(Thaler and Ravishankar, 1998): each site gets a score for the dataset, and the ``copies`` sites with the
highest scores are its homes. If a site is added or removed, only the datasets that move to or from this site
change their home. The catalogue does not know whether a cache has a dataset now, so by default a home has the
state PARTIAL with a share of one half: jobs that may start anywhere prefer the site.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hydrator.domain.model import Did, Replica, ReplicaState, Seen, Site, Survey
from hydrator.domain.ports import Clock

_FIRST_CHOICE_FRACTION = 0.5
_SCORE_BITS = 53  # a float has this many bits without rounding


class HashOptions(BaseModel):
    """Options of a [[catalogue]] with ``type = "hash"``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sites: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")], Annotated[float, Field(gt=0, le=1e6)]
    ] = Field(
        min_length=1,
        description="the sites and their weights; a site of weight 2 is the home of twice as many datasets"
        " as a site of weight 1",
    )
    patterns: list[str] = Field(
        default=["*"], min_length=1, description="the DIDs with a home, as patterns with * and ?"
    )
    copies: int = Field(1, ge=1, le=100, description="the number of homes of each dataset")
    state: Literal["first choice", "available"] = Field(
        "first choice",
        description='"first choice": the home has half of the dataset, so jobs that may start anywhere prefer'
        ' it; "available": the home counts as a site with the dataset on disk',
    )

    @model_validator(mode="after")
    def _check_copies(self) -> "HashOptions":
        if self.copies > len(self.sites):
            raise ValueError(f"copies is {self.copies}, but sites has {len(self.sites)} sites")
        return self


def catalogue(name: str, options: Mapping[str, Any], clock: Clock) -> "HashCatalogue":
    """Build the catalogue for ``type = "hash"``; raise ValueError if *options* are not valid."""
    return HashCatalogue(name, HashOptions(**options), clock)


def score(did: str, site: str, weight: float) -> float:
    """Return the score (more than 0) of *site* for *did*; the sites with the highest scores are its homes.

    The share of all DIDs for which a site has the highest score is its weight divided by all weights.
    """
    digest = hashlib.sha256(f"{site}\n{did}".encode()).digest()
    number = int.from_bytes(digest[:8], "big") >> (64 - _SCORE_BITS)
    return weight / -math.log((number + 0.5) / 2**_SCORE_BITS)


class HashCatalogue:
    """A catalogue that computes the homes of datasets; see the module's docstring."""

    def __init__(self, name: str, options: HashOptions, clock: Clock) -> None:
        self.name = name
        self._options = options
        self._clock = clock

    def homes(self, did: Did) -> tuple[Site, ...]:
        """Return the homes of *did*, first choice first; none if no pattern matches *did*."""
        if not any(fnmatchcase(did, pattern) for pattern in self._options.patterns):
            return ()
        sites = self._options.sites
        ordered = sorted(sites, key=lambda site: (-score(did, site, sites[site]), site))
        return tuple(Site(site) for site in ordered[: self._options.copies])

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :class:`hydrator.domain.ports.Catalogue`."""
        at = self._clock()
        readings = {
            did: Seen(at, tuple(self._replica(did, site) for site in self.homes(did))) for did in sorted(dids)
        }
        return Survey(self.name, at, frozenset(map(Site, self._options.sites)), readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:  # noqa: ARG002
        """Return no datasets: a hash has a home for every name and knows no names."""
        return frozenset()

    def close(self) -> None:
        """Do nothing: the catalogue has no connections."""

    def _replica(self, did: Did, site: Site) -> Replica:
        if self._options.state == "available":
            return Replica(did, site, ReplicaState.COMPLETE)
        return Replica(did, site, ReplicaState.PARTIAL, _FIRST_CHOICE_FRACTION)
