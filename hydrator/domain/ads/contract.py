"""The contract: version, names, types and meanings of the attributes of slots, site ads and jobs.

The hook of the startd is one file and has its own list; a test compares both.
"""

from collections.abc import Iterable
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

ON_SLOTS: Final = {
    AVAILABLE_DATASETS: (
        "list of string",
        "sorted DIDs (`scope:name`) of the datasets that are complete on disk at the site",
    ),
    DATASET_STATES: (
        "nested ad, DID to string",
        (
            "state of each demanded dataset, as far as there is room: `AVAILABLE`, `STAGING`, `PARTIAL`,"
            " `NEARLINE`, `STUCK`, `UNAVAILABLE` (there, but its storage cannot be read now), `UNKNOWN`"
        ),
    ),
    DATASET_FRACTIONS: (
        "nested ad, DID to real",
        "share of a dataset's bytes that is on disk; left out if it is 0 or 1",
    ),
    DATASET_AS_OF: (
        "nested ad, DID to Unix s",
        "time at which the daemon read a dataset's fact; only for facts older than `DataLocalityAsOf`",
    ),
    SITE: ("string", "site that the locality attributes of this ad describe"),
    AS_OF: (
        "integer, Unix s",
        "time at which the daemon last read all facts of the site; never in the future",
    ),
    GENERATION: ("integer", "a number that grows when the site's facts change, and only then"),
    SETS: (
        "nested ad, key to real, 0 to 1",
        (
            "share of a set's bytes that is on disk at the site, rounded down to 2 digits; the share of its"
            " datasets if a size is unknown. 1.0: all its datasets are `AVAILABLE`; 0.0: the site has nothing"
            " of the set. A set without an entry: the daemon does not know, the ad has no room, or the set is"
            " not whole here and no job waited for it in the last hour"
        ),
    ),
    SETS_AS_OF: (
        "nested ad, key to Unix s",
        "time of the oldest fact about a set at the site; only if it is older than `DataLocalityAsOf`",
    ),
    OPEN: (
        "nested ad, key to integer, s",
        (
            "sets whose `auto` jobs may start here now although data is missing, and how long one job reads"
            " it if it is the only reader; or lanes of a set, as `key~lane`"
        ),
    ),
    READ_FROM: (
        "nested ad, key to string",
        "site that most of the missing data would be read from; for the names in `DataLocalityOpen`",
    ),
    BACKLOG: ("integer", "idle jobs whose set is whole at this site; jobs without datasets avoid its slots"),
    OPEN_UNTIL: (
        "integer, Unix s",
        "`DataLocalityOpen` and `DataLocalityBacklog` are void after this time; undefined without them",
    ),
    TRUNCATED: (
        "boolean",
        "true: the daemon left datasets or sets out because the ad reached its size budget",
    ),
    VERSION: ("integer", "version of these attribute names and their meanings: 1"),
}
"""Type and meaning of each attribute of a site's ad; a test compares the names with a generated ad."""
ON_SLOTS_ONLY: Final = {
    ERROR: ("string", "reason why the hook's last run failed; undefined if it did not fail"),
    LOCAL: ("expression, boolean", "all datasets of the job are here, and the facts are fresh"),
    AUTO: ("expression, boolean", "a job of mode `auto` may start here"),
    RANK: (
        "expression, real, s",
        (
            "0 where all datasets of the job are, else minus the seconds to read the rest, -800,001 or more;"
            " where the set is not open, -1,000,000 + 100,000 times the share of the bytes here"
        ),
    ),
    OFFER: (
        "expression, string",
        ("`local`: all datasets of the job are here; `read 240 s from UK`: its set is open; else empty"),
    ),
    SOURCE: (
        "string",
        "program that added the locality attributes to the slot ad: `hook`, or `merge` (the daemon)",
    ),
}
ON_JOBS: Final = {
    REQUIRED_DATASETS: (
        "list of string",
        "DIDs that the job reads; at submission also one string with commas",
    ),
    REQUIRED_DATASETS_CSV: (
        "string",
        "`RequiredDatasets` as one string with commas, for GlideinWMS frontends (`[jobs].glideinwms`)",
    ),
    MODE: (
        "string",
        (
            "`auto`: the job runs at sites with its data, and elsewhere when its set is open there."
            " `require`: the job runs only at sites with its data. `wait`: after"
            " `DataLocalityMaxWait` the job may run anywhere"
        ),
    ),
    KEY: (
        "string",
        (
            "name of the job's set of datasets in the records of slots: the hash of `hydrator submit`, the"
            " names themselves, or a name for the list of this cluster; the schedd's job transform makes it"
        ),
    ),
    KEY_FOR: (
        "string",
        "the list, joined by commas, that the hash in `DataLocalityKey` is of; the transform deletes it",
    ),
    LANE: (
        "integer, 0 to 10",
        (
            "part of a large set that the job belongs to: the trailing zeros of ClusterId + ProcId + 1 in"
            " binary, so half of the jobs have 0, a quarter 1, and so on; the daemon opens lanes one by one;"
            " 0 for jobs of the modes `require` and `wait`"
        ),
    ),
    EXPECTED_SECONDS: ("integer, s", "how long the job will run, if the user knows it"),
    MAX_WAIT: (
        "integer, s",
        "how long a `wait` job waits, or an `auto` job if no daemon paces it; then it runs anywhere",
    ),
    ANY_AFTER: (
        "integer, Unix s",
        "time from which the job may run anywhere; the schedd's job transform computes it",
    ),
    MAX_AGE: ("integer, s", "the job does not use facts that are older than this"),
    HERE: (
        "expression",
        (
            "clause of the job's Requirements, which looks at `DataLocalityLocal` or `DataLocalityAuto` of"
            " the slot; `hydrator run-anywhere` sets this attribute to true"
        ),
    ),
    RANK: ("expression, real, s", "the slot's `DataLocalityRank`, or -1,000,000 at a slot without it"),
    START: (
        "string",
        "text that the schedd expands at each start of the job, with the slot's `DataLocalityOffer`",
    ),
    START_RECORD: (
        "string",
        (
            "the slot's `DataLocalityOffer` at the job's last start; the schedd writes it, and it stays in"
            " the history. `hydrator why` explains it"
        ),
    ),
    TRANSFORMED: ("boolean", "true: the schedd's job transform has changed this job"),
}

ON_RUNS: Final = {
    WORKFLOW_RUN: (
        "string",
        "name of the Rapthor run; the page `/run?run=NAME` counts its jobs",
    ),
    PATH_SITES: ("string", "sites where each input dataset of the Rapthor run has a known path"),
    GPU_PREFERENCE: (
        "integer",
        "weight of slots with a GPU in the job's rank; without a GPU the job uses many cores instead",
    ),
}
"""Further attributes of jobs that `hydrator submit` makes."""


def first_site(values: Iterable[object]) -> str | None:
    """Return the first of *values*, those of a slot's attributes with its site, that names one.

    GlideinWMS writes ``None`` for an attribute without a value. The hook and the job wrapper do the same.

    >>> first_site([None, "", "None", " RAL "])
    'RAL'
    """
    names = (str(value).strip() for value in values)
    return next((name for name in names if name not in ("", "None")), None)
