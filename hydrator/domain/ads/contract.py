"""The contract: version, names, types and meanings of the attributes of slots, site ads and jobs.

The text below a name is its type and its meaning; the page docs/reference/attributes.md is made from it.
The hook of the startd is one file and has its own list; a test compares both.
"""

from collections.abc import Iterable
from typing import Final

CONTRACT_VERSION: Final = 1
"""The version of the attributes that the daemon computes, in ``DataLocalityVersion``."""

AVAILABLE_DATASETS: Final = "AvailableDatasets"
"""list of string: sorted DIDs (`scope:name`) of the datasets that are complete on disk at the site"""
DATASET_STATES: Final = "DatasetStates"
"""nested ad, DID to string: state of each demanded dataset, as far as there is room: `AVAILABLE`,
`STAGING`, `PARTIAL`, `NEARLINE`, `STUCK`, `UNAVAILABLE` (there, but its storage cannot be read now),
`UNKNOWN`
"""
DATASET_FRACTIONS: Final = "DatasetFractions"
"""nested ad, DID to real: share of a dataset's bytes that is on disk; left out if it is 0 or 1"""
DATASET_AS_OF: Final = "DatasetAsOf"
"""nested ad, DID to Unix s: time at which the daemon read a dataset's fact; only for facts older than
`DataLocalityAsOf`
"""
SITE: Final = "DataLocalitySite"
"""string: site that the locality attributes of this ad describe"""
AS_OF: Final = "DataLocalityAsOf"
"""integer, Unix s: time at which the daemon last read all facts of the site; never in the future"""
GENERATION: Final = "DataLocalityGeneration"
"""integer: a number that grows when the site's facts change, and only then"""
SETS: Final = "DataLocalitySets"
"""nested ad, key to real, 0 to 1: share of a set's bytes that is on disk at the site, rounded down to 2
digits; the share of its datasets if a size is unknown. 1.0: all its datasets are `AVAILABLE`; 0.0: the
site has nothing of the set. A set without an entry: the daemon does not know, the ad has no room, or the
set is not whole here and no job waited for it in the last hour
"""
SETS_AS_OF: Final = "DataLocalitySetsAsOf"
"""nested ad, key to Unix s: time of the oldest fact about a set at the site; only if it is older than
`DataLocalityAsOf`
"""
OPEN: Final = "DataLocalityOpen"
"""nested ad, key to integer, s: sets whose `auto` jobs may start here now although data is missing, and
how long one job reads it if it is the only reader; or lanes of a set, as `key~lane`
"""
READ_FROM: Final = "DataLocalityReadFrom"
"""nested ad, key to string: site that most of the missing data would be read from; for the names in
`DataLocalityOpen`
"""
BACKLOG: Final = "DataLocalityBacklog"
"""integer: idle jobs whose set is whole at this site; jobs without datasets avoid its slots"""
OPEN_UNTIL: Final = "DataLocalityOpenUntil"
"""integer, Unix s: `DataLocalityOpen` and `DataLocalityBacklog` are void after this time; undefined
without them
"""
TRUNCATED: Final = "DataLocalityTruncated"
"""boolean: true: the daemon left datasets or sets out because the ad reached its size budget"""
VERSION: Final = "DataLocalityVersion"
"""integer: version of these attribute names and their meanings: 1"""
ERROR: Final = "DataLocalityError"
"""string: reason why the hook's last run failed; undefined if it did not fail"""
LOCAL: Final = "DataLocalityLocal"
"""expression, boolean: all datasets of the job are here, and the facts are fresh"""
AUTO: Final = "DataLocalityAuto"
"""expression, boolean: a job of mode `auto` may start here"""
OFFER: Final = "DataLocalityOffer"
"""expression, string: `local`: all datasets of the job are here; `read 240 s from UK`: its set is open;
else empty
"""
SOURCE: Final = "DataLocalitySource"
"""string: program that added the locality attributes to the slot ad: `hook`, or `merge` (the daemon)"""
REQUIRED_DATASETS: Final = "RequiredDatasets"
"""list of string: DIDs that the job reads; at submission also one string with commas"""
REQUIRED_DATASETS_CSV: Final = "RequiredDatasetsCSV"
"""string: `RequiredDatasets` as one string with commas, for GlideinWMS frontends (`[jobs].glideinwms`)"""
MODE: Final = "DataLocality"
"""string: `auto`: the job runs at sites with its data, and elsewhere when its set is open there.
`require`: the job runs only at sites with its data. `wait`: after `DataLocalityMaxWait` the job may run
anywhere
"""
KEY: Final = "DataLocalityKey"
"""string: name of the job's set of datasets in the records of slots: the hash of `hydrator submit`, the
names themselves, or a name for the list of this cluster; the schedd's job transform makes it
"""
KEY_FOR: Final = "DataLocalityKeyFor"
"""string: the list, joined by commas, that the hash in `DataLocalityKey` is of; the transform deletes it"""
LANE: Final = "DataLocalityLane"
"""integer, 0 to 10: part of a large set that the job belongs to: the trailing zeros of ClusterId + ProcId
+ 1 in binary, so half of the jobs have 0, a quarter 1, and so on; the daemon opens lanes one by one; 0 for
jobs of the modes `require` and `wait`
"""
EXPECTED_SECONDS: Final = "DataLocalityExpectedSeconds"
"""integer, s: how long the job will run, if the user knows it"""
MAX_WAIT: Final = "DataLocalityMaxWait"
"""integer, s: how long a `wait` job waits, or an `auto` job if no daemon paces it; then it runs anywhere"""
ANY_AFTER: Final = "DataLocalityAnyAfter"
"""integer, Unix s: time from which the job may run anywhere; the schedd's job transform computes it"""
MAX_AGE: Final = "DataLocalityMaxAge"
"""integer, s: the job does not use facts that are older than this"""
HERE: Final = "DataLocalityHere"
"""expression: clause of the job's Requirements, which looks at `DataLocalityLocal` or `DataLocalityAuto`
of the slot; `hydrator run-anywhere` sets this attribute to true
"""
RANK: Final = "DataLocalityRank"
"""expression, real, s: of a slot: 0 where all datasets of the job are, else minus the seconds to read the
rest, -800,001 or more; where the set is not open, -1,000,000 + 100,000 times the share of the bytes here.
Of a job: the slot's `DataLocalityRank`, or -1,000,000 at a slot without it
"""
START: Final = "DataLocalityStart"
"""string: text that the schedd expands at each start of the job, with the slot's `DataLocalityOffer`"""
START_RECORD: Final = "MATCH_EXP_DataLocalityStart"
"""string: the slot's `DataLocalityOffer` at the job's last start; the schedd writes it, and it stays in
the history. `hydrator why` explains it
"""
TRANSFORMED: Final = "DataLocalityTransformed"
"""boolean: true: the schedd's job transform has changed this job"""
WORKFLOW_RUN: Final = "WorkflowRun"
"""string: name of the Rapthor run; the page `/run?run=NAME` counts its jobs"""
PATH_SITES: Final = "DataLocalityPathSites"
"""string: sites where each input dataset of the Rapthor run has a known path"""
GPU_PREFERENCE: Final = "GPUPreference"
"""integer: weight of slots with a GPU in the job's rank; without a GPU the job uses many cores instead"""

ON_SLOTS: Final = (
    AVAILABLE_DATASETS,
    DATASET_STATES,
    DATASET_FRACTIONS,
    DATASET_AS_OF,
    SITE,
    AS_OF,
    GENERATION,
    SETS,
    SETS_AS_OF,
    OPEN,
    READ_FROM,
    BACKLOG,
    OPEN_UNTIL,
    TRUNCATED,
    VERSION,
)
"""The attributes of a site's ad; a test compares them with a generated ad."""
OPENING_ATTRIBUTES: Final = (OPEN, READ_FROM, BACKLOG, OPEN_UNTIL)
"""The attributes of an ad that change without a new generation, besides ``DataLocalityAsOf``."""
ON_SLOTS_ONLY: Final = (ERROR, LOCAL, AUTO, RANK, OFFER, SOURCE)
"""Further attributes of slots."""
ON_JOBS: Final = (
    REQUIRED_DATASETS,
    REQUIRED_DATASETS_CSV,
    MODE,
    KEY,
    KEY_FOR,
    LANE,
    EXPECTED_SECONDS,
    MAX_WAIT,
    ANY_AFTER,
    MAX_AGE,
    HERE,
    RANK,
    START,
    START_RECORD,
    TRANSFORMED,
)
"""The attributes of jobs that the transform makes or reads."""
ON_RUNS: Final = (WORKFLOW_RUN, PATH_SITES, GPU_PREFERENCE)
"""Further attributes of jobs that `hydrator submit` makes."""


def first_site(values: Iterable[object]) -> str | None:
    """Return the first of *values*, those of a slot's attributes with its site, that names one.

    GlideinWMS writes ``None`` for an attribute without a value. The hook and the job wrapper do the same.

    >>> first_site([None, "", "None", " RAL "])
    'RAL'
    """
    names = (str(value).strip() for value in values)
    return next((name for name in names if name not in ("", "None")), None)
