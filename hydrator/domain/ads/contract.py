"""The contract: version and names of the locality attributes."""

from typing import Final

CONTRACT_VERSION: Final = 1
"""The version of the attributes that the daemon computes, in ``DataLocalityVersion``."""

SET_ATTRIBUTES: Final = (
    "DataLocalitySets",
    "DataLocalitySetsAsOf",
    "DataLocalityReadSeconds",
    "DataLocalityQueueSeconds",
    "DataLocalityReadFrom",
    "DataLocalityOwnQueueSeconds",
)
"""The attributes in the content of an ad with entries by set of datasets, and the site's own queue."""
ESTIMATE_ATTRIBUTES: Final = frozenset(SET_ATTRIBUTES[2:])
"""The attributes in the content of an ad that estimates alone can change."""
