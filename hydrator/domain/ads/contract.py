"""Contract versions of the locality attributes: the form of an ad that older hooks accept.

A hook of contract 1 rejects an ad with an attribute that it does not know, and an ad with another version.
So the daemon delivers each ad in both forms until no such hook is left.

This module is pure.
"""

from dataclasses import replace
from typing import Final

from hydrator.domain.model import SiteAd

CONTRACT_VERSION: Final = 2
"""The newest contract, whose attributes the daemon computes."""

SET_ATTRIBUTES: Final = (
    "DataLocalitySets",
    "DataLocalitySetsAsOf",
    "DataLocalityReadSeconds",
    "DataLocalityQueueSeconds",
    "DataLocalityReadFrom",
    "DataLocalityOwnQueueSeconds",
)
"""The attributes in the content of an ad of contract 2 that contract 1 does not have.

Contract 1 does not have ``DataLocalityEstimatesUntil`` either; see :class:`hydrator.domain.model.SiteAd`.
"""
ESTIMATE_ATTRIBUTES: Final = frozenset(SET_ATTRIBUTES[2:])
"""The attributes in the content of an ad that estimates alone can change."""
OBSERVE_ATTRIBUTE: Final = "DataLocalityObserve"
"""True in the observe-only blocks of an experiment; other ads, and ads of contract 1, do not have it."""


def contract_1(ad: SiteAd) -> SiteAd:
    """Return *ad* as hooks of contract 1 accept it: without entries by set of datasets, without estimates.

    The generation is the same, so it may change although the content of the returned ad does not. An ad of
    contract 1 is returned unchanged.
    """
    content = tuple(
        (name, "1" if name == "DataLocalityVersion" else literal)
        for name, literal in ad.content
        if name not in SET_ATTRIBUTES and name != OBSERVE_ATTRIBUTE
    )
    return replace(ad, content=content, estimates_until=None)


def contract_of(ad: SiteAd) -> int:
    """Return the contract version of *ad*: 1 for an ad that an older daemon computed, and stored."""
    version = dict(ad.content).get("DataLocalityVersion", "")
    return CONTRACT_VERSION if version == str(CONTRACT_VERSION) else 1
