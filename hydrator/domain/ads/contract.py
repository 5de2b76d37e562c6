"""The contract: version and names of the attributes of slots, site ads and jobs.

docs/reference/attributes.md has their types and meanings. The hook of the startd is one file and has its own
list. Tests compare all three.
"""

from typing import Final

CONTRACT_VERSION: Final = 1
"""The version of the attributes that the daemon computes, in ``DataLocalityVersion``."""

AVAILABLE_DATASETS: Final = "AvailableDatasets"
DATASET_STATES: Final = "DatasetStates"
DATASET_FRACTIONS: Final = "DatasetFractions"
DATASET_AS_OF: Final = "DatasetAsOf"
SITE: Final = "DataLocalitySite"
AS_OF: Final = "DataLocalityAsOf"
GENERATION: Final = "DataLocalityGeneration"
SETS: Final = "DataLocalitySets"
SETS_AS_OF: Final = "DataLocalitySetsAsOf"
OPEN: Final = "DataLocalityOpen"
READ_FROM: Final = "DataLocalityReadFrom"
BACKLOG: Final = "DataLocalityBacklog"
OPEN_UNTIL: Final = "DataLocalityOpenUntil"
TRUNCATED: Final = "DataLocalityTruncated"
VERSION: Final = "DataLocalityVersion"
ERROR: Final = "DataLocalityError"
LOCAL: Final = "DataLocalityLocal"
AUTO: Final = "DataLocalityAuto"
OFFER: Final = "DataLocalityOffer"
SOURCE: Final = "DataLocalitySource"
REQUIRED_DATASETS: Final = "RequiredDatasets"
REQUIRED_DATASETS_CSV: Final = "RequiredDatasetsCSV"
MODE: Final = "DataLocality"
KEY: Final = "DataLocalityKey"
KEY_FOR: Final = "DataLocalityKeyFor"
LANE: Final = "DataLocalityLane"
EXPECTED_SECONDS: Final = "DataLocalityExpectedSeconds"
MAX_WAIT: Final = "DataLocalityMaxWait"
ANY_AFTER: Final = "DataLocalityAnyAfter"
MAX_AGE: Final = "DataLocalityMaxAge"
HERE: Final = "DataLocalityHere"
RANK: Final = "DataLocalityRank"
START: Final = "DataLocalityStart"
START_RECORD: Final = "MATCH_EXP_DataLocalityStart"
TRANSFORMED: Final = "DataLocalityTransformed"
WORKFLOW_RUN: Final = "WorkflowRun"
PATH_SITES: Final = "DataLocalityPathSites"
GPU_PREFERENCE: Final = "GPUPreference"

OPENING_ATTRIBUTES: Final = (OPEN, READ_FROM, BACKLOG, OPEN_UNTIL)
"""The attributes of an ad that change without a new generation, besides ``DataLocalityAsOf``."""
