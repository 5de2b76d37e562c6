# ruff: noqa: E501  (the texts are printed unchanged; a ClassAd expression has no good place to break)
"""Templates of the pool configuration: job transform, submit requirements, START, NEGOTIATOR_PRE_JOB_RANK."""

from collections.abc import Mapping, Sequence

from hydrator.domain.model import MAX_DID_CHARS
from hydrator.submit.expressions import KEYED_RANK, LIMIT_EXPRESSIONS, SLOT_EXPRESSIONS, swap_sides

START_CLAUSE = "(TARGET.DataLocalityHere =!= false)"
_OWN_QUEUE = (
    "((MY.DataLocalityOwnQueueSeconds > 0 && time() < MY.DataLocalityEstimatesUntil) =?= true"
    " ? MY.DataLocalityOwnQueueSeconds : 0)"
)
_UNKNOWN, _KNOWN = "1000.0 * (R + 1800000.0) / 900000.0 - 2000.0", "1000.0 * R / (600.0 - R)"
_SECONDS = f"isUndefined(TARGET.DataLocalityKey) ? TARGET.DataLocalityRank : {swap_sides(KEYED_RANK)}"
PRE_JOB_TERM = (
    f"[R = {_SECONDS}; V = isUndefined(R) ? -1.0 * $(DATALOCALITY_OTHERS_WEIGHT) * {_OWN_QUEUE}"
    f" : 1e9 * (R < -850000.0 ? {_UNKNOWN} : {_KNOWN})].V + 1e8 * (TARGET.GPUPreference ?: 0.0)"
    " + (MY.Offline =?= true ? -4e12 : 0.0)"
)
"""Term of NEGOTIATOR_PRE_JOB_RANK; a GPU that the job prefers has the weight of a tenth of a second.

R are the seconds of DataLocalityRank. The negotiator stores ranks with 24 bits, so the term compresses R:
known seconds to a number from -1000 to 0, and unknown slots to one from -1111 to -1000. So the terms for
the size of a slot, up to 1e8, still choose among slots with the same R.
For jobs without datasets, the queue of the jobs that have their data at the slot's site lowers the rank
until the end of the estimates.
A job that matches an offline ad starts nowhere in this negotiation cycle, so offline ads come after all slots.
"""
TRANSFORM_NAME = "DataLocality"
PREPARED_TRANSFORM_NAME = "DataLocalityPrepared"
TRANSFORM_NAMES = (PREPARED_TRANSFORM_NAME, TRANSFORM_NAME)
"""The names of the transforms, in the order in which the schedd applies them; at most one changes a job."""
IMMUTABLE_ATTRIBUTES = (
    "RequiredDatasets",
    "RequiredBytes",
    "RequiredDatasetsCSV",
    "DataLocality",
    "DataLocalityKey",
    "DataLocalityMaxWait",
    "DataLocalityAnyAfter",
    "DataLocalityMaxAge",
    "DataLocalityExpectedSeconds",
    "DataLocalityRank",
    "DatasetsHere",
    "DataLocalityShares",
    "DataLocalityOldest",
    "DataLocalityStart",
    "DataLocalityTransformed",
)
"""Attributes that not even a super user may edit on a queued job: the job's expressions depend on them."""
PROTECTED_ATTRIBUTES = ("DataLocalityHere",)
"""Job attributes that only a queue super user may edit: ``hydrator run-anywhere`` sets them to true."""
MACHINE_ATTRIBUTES = ("DataLocalitySite",)
"""Slot attributes that schedds store in a job's ad: ``hydrator report`` counts sites with them."""
SIGNIFICANT_ATTRIBUTES = ("DataLocalityKey", "DataLocalityMaxAge", "DataLocalityAnyAfter")
"""Job attributes that COMPACT_HERE names within a text, where HTCondor finds no reference.

The negotiator gets only significant attributes, and jobs with different ones are in different autoclusters.
"""

HOLD_SUBCODE = 1763
"""HoldReasonSubCode of late-materialized jobs with a malformed RequiredDatasets or DataLocality attribute."""

MAX_WAIT_SECONDS = 31_536_000  # a year, s

SECONDS = {"DataLocalityMaxWait": 0, "DataLocalityMaxAge": 1, "DataLocalityExpectedSeconds": 1}
"""Job attributes with a number of seconds, and the least number; the greatest is MAX_WAIT_SECONDS."""

HEAD = """\
# DataLocality for {where} ({form}).
# Printed by `hydrator submit pool-config`. Put this text into a separate file that HTCondor reads last
# (such as /etc/condor/config.d/99-datalocality.conf), then run condor_reconfig. To change a knob, edit
# the file or print the text again. To remove DataLocality, delete the file, then run condor_reconfig."""

REMOVAL = """\
# To remove DataLocality from {where}: delete the file that `hydrator submit pool-config` printed, then
# run condor_reconfig. Every parameter that the file extended then has its former value. Jobs already queued keep their
# expressions; `hydrator run-anywhere` lets them run anywhere."""

SHARED_MACROS = (
    r"""# --- macros of the transform and the submit requirements; DATALOCALITY_LISTED is RequiredDatasets as
# text with a comma after each item
DATALOCALITY_LISTED = ifThenElse("$(DATALOCALITY_DEFAULT_SCOPE)" == "", strcat(join(",", RequiredDatasets), ","), \
    regexps("(^|,)([^:,]+)(?=,)", strcat(join(",", RequiredDatasets), ","), "\\1$(DATALOCALITY_DEFAULT_SCOPE):\\2", "fg"))
DATALOCALITY_STRINGS = (isList(RequiredDatasets) && allCompare(">=", RequiredDatasets, "") =?= true)
DATALOCALITY_WHOLE = size(split(join(",", RequiredDatasets), ",")) =?= size(RequiredDatasets)
DATALOCALITY_MODE_GOOD = (DataLocality is undefined || member(toLower(DataLocality), {"auto", "require", "wait"}) =?= true)
DATALOCALITY_SECONDS_GOOD = \
    ((DataLocalityMaxWait is undefined || (isInteger(DataLocalityMaxWait) && DataLocalityMaxWait >= 0 && DataLocalityMaxWait <= <year>)) && \
     (DataLocalityMaxAge is undefined || (isInteger(DataLocalityMaxAge) && DataLocalityMaxAge > 0 && DataLocalityMaxAge <= <year>)) && \
     (DataLocalityExpectedSeconds is undefined || (isInteger(DataLocalityExpectedSeconds) && DataLocalityExpectedSeconds > 0 && DataLocalityExpectedSeconds <= <year>)))
DATALOCALITY_GOOD = ($(DATALOCALITY_STRINGS) && $(DATALOCALITY_WHOLE) && \
    regexp("^(?:(?=[^,]{1,<chars>},)[A-Za-z0-9._/@=+~-]++:[A-Za-z0-9._:/@=+~-]++,)++\\z", $(DATALOCALITY_LISTED)) =?= true && \
    $(DATALOCALITY_MODE_GOOD) && $(DATALOCALITY_SECONDS_GOOD)) =?= true
# true for a job of a late-materialization cluster; only the ad of the cluster itself has JobFactoryId
DATALOCALITY_LATE = (JobMaterializeDigestFile isnt undefined && JobFactoryId is undefined)
# jobs that the transform leaves alone, and jobs that it holds
DATALOCALITY_APART = JobUniverse =!= 5 || RequiredDatasets is undefined || ($(DATALOCALITY_LATE) && PeriodicHoldSubCode =?= <held>)
# The transform has already checked a job that it changed. A job whose user sets DataLocalityTransformed is refused if
# it has no DataLocalityHere; with DataLocalityHere it gets no more than a job without RequiredDatasets: it runs anywhere.
DATALOCALITY_EXEMPT = DataLocalityTransformed =?= true || $(DATALOCALITY_APART)
# true: jobs with concurrency limits of their own have the limit of readers too. An older schedd does not compare limits
# that are expressions, and would start such jobs on claims without these limits.
if version >= 24.10.0
   DATALOCALITY_ADDS_LIMITS = true
else
   DATALOCALITY_ADDS_LIMITS = false
endif
""".replace("<year>", str(MAX_WAIT_SECONDS))
    .replace("<chars>", str(MAX_DID_CHARS))
    .replace("<held>", str(HOLD_SUBCODE))
)

_LIST_EXCERPT = 'substr(join(", ", RequiredDatasets) ?: "?", 0, 200)'
UNIVERSES: Mapping[str, tuple[str, str]] = {
    "DataLocalityUniverse": (
        "(JobUniverse =!= 10 && JobUniverse =!= 11 && JobUniverse =!= 13)",
        (
            '"RequiredDatasets: jobs of the java, parallel and vm universes are not sent to their data;'
            ' use the vanilla universe, or leave RequiredDatasets out"'
        ),
    ),
    "DataLocalityLocal": (
        '((JobUniverse =!= 7 && JobUniverse =!= 12) || regexp("dagman", Cmd) =?= true)',
        '"RequiredDatasets has no effect here: jobs of the local and scheduler universes run on the access point"',
    ),
}
WARNING_ONLY = "DataLocalityLocal"
"""Submit requirement that only warns: the job may have RequiredDatasets for the jobs that it submits."""
SUBMIT_REQUIREMENT_TEXTS: Mapping[str, tuple[str, str]] = {
    **UNIVERSES,
    "DataLocalityList": (
        "isList(RequiredDatasets)",
        r'"RequiredDatasets must be a list of strings, such as {\"scope:name1\", \"scope:name2\"}"',
    ),
    "DataLocalityEmpty": (
        "(size(RequiredDatasets) == 0) =!= true",
        '"RequiredDatasets is empty: name the datasets the job reads, or leave the attribute out"',
    ),
    "DataLocalityStrings": (
        "! isList(RequiredDatasets) || $(DATALOCALITY_STRINGS)",
        r'"RequiredDatasets: every item must be a string in double quotes, such as \"scope:name\""',
    ),
    "DataLocalityText": (
        (
            '! $(DATALOCALITY_STRINGS) || (regexp("[^A-Za-z0-9._:/@=+~,-]", join(",", RequiredDatasets)) =?= false'
            ' && ($(DATALOCALITY_WHOLE) || member("", RequiredDatasets) =!= false))'
        ),
        f'strcat("RequiredDatasets: use letters, digits and . _ : / @ = + ~ - only; got ", {_LIST_EXCERPT})',
    ),
    "DataLocalityScope": (
        (
            r"! $(DATALOCALITY_STRINGS) || size(RequiredDatasets) == 0"
            r' || regexp("(^|,)(?:,|:|[^:,]+:,|[^:,]+,)", $(DATALOCALITY_LISTED)) =!= true'
        ),
        (
            'strcat("RequiredDatasets: every item must be scope:name, and neither part may be empty",'
            f' ifThenElse("$(DATALOCALITY_DEFAULT_SCOPE)" == "", " (this schedd has no default scope)", ""), "; got ", {_LIST_EXCERPT})'
        ),
    ),
    "DataLocalityLength": (
        f'! $(DATALOCALITY_STRINGS) || regexp("[^,]{{{MAX_DID_CHARS + 1}}}", $(DATALOCALITY_LISTED)) =!= true',
        f'"RequiredDatasets: an item has more than {MAX_DID_CHARS} characters (with its scope)"',
    ),
    "DataLocalityMode": (
        "$(DATALOCALITY_MODE_GOOD)",
        r'"DataLocality must be \"auto\", \"require\" or \"wait\""',
    ),
    "DataLocalitySeconds": (
        "$(DATALOCALITY_SECONDS_GOOD)",
        (
            '"DataLocalityMaxWait, DataLocalityMaxAge and DataLocalityExpectedSeconds must be whole numbers of seconds,'
            ' up to a year; DataLocalityMaxAge and DataLocalityExpectedSeconds must be more than 0"'
        ),
    ),
    "DataLocalityTransform": (
        "JobFactoryId isnt undefined || (DataLocalityTransformed =?= true && DataLocalityHere isnt undefined)",
        (
            f'"RequiredDatasets: the schedd did not transform this job;'
            f" leave DataLocalityTransformed out of the job,"
            f' or ask the operator to check that JOB_TRANSFORM_NAMES has {TRANSFORM_NAME}"'
        ),
    ),
}
EXEMPT_MACROS = {
    **dict.fromkeys(UNIVERSES, "RequiredDatasets is undefined"),
    "DataLocalityTransform": "$(DATALOCALITY_APART)",
}
"""The jobs that a submit requirement does not check; for all others the macro DATALOCALITY_EXEMPT."""
SUBMIT_REQUIREMENTS = tuple(SUBMIT_REQUIREMENT_TEXTS)
"""The names of the hydrator's SUBMIT_REQUIREMENTs, in the order of evaluation."""

ATTRIBUTE_LISTS = f"""\
# --- attributes that cannot be edited after the submission, because the transform made expressions from them
IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) {" ".join(IMMUTABLE_ATTRIBUTES)}
# the attribute that only a queue super user may edit; `hydrator run-anywhere` edits it
PROTECTED_JOB_ATTRS = $(PROTECTED_JOB_ATTRS) {" ".join(PROTECTED_ATTRIBUTES)}
# the slot attribute (the site) that the schedd copies into a job's ad, for `hydrator report`
SYSTEM_JOB_MACHINE_ATTRS = $(SYSTEM_JOB_MACHINE_ATTRS) {" ".join(MACHINE_ATTRIBUTES)}
# the attributes that the schedd sends to negotiators although it does not see that the jobs' expressions use them
ADD_SIGNIFICANT_ATTRIBUTES = $(ADD_SIGNIFICANT_ATTRIBUTES) {" ".join(SIGNIFICANT_ATTRIBUTES)}
"""

MATCH_LIMITS = """\
# A schedd of HTCondor 25.14 ends a user's negotiation after 20 autoclusters of idle jobs that match nothing. Each
# list of datasets is another autocluster, so the user's other jobs would starve. Older schedds ignore this parameter.
SCHEDD_ENABLE_PER_USER_MATCH_LIMITS = False
"""

READ_LIMIT = """\
# --- jobs with mode `auto` that may read from one source at a time (max_readers_per_source of the daemon). The startds' text
# has the same knob, and the names of the limits, DataLocality.from_SITE_…; other limits keep their default.
DATALOCALITY_READERS = {readers}
CONCURRENCY_LIMIT_DEFAULT_DataLocality = $(DATALOCALITY_READERS) * 100
"""

LEFTOVERS_ADVICE = """\
# For DATALOCALITY_WAIT seconds a `wait` job starts only at a site with its data, also in a burst of jobs with several
# datasets. Later, or with --rank-only, the schedd gives the other cores of a slot to the user's next job, even if the
# site does not have this job's datasets. The schedd reuses the claim of an ended job in the same way. Of 30 jobs with
# three datasets, 7 to 26 then ran at a site with their data. With the line below, 26 to 30 ran at a site with their
# data. But with the line below every burst of jobs, with or without datasets,
# takes 1.7 to 1.9 times as long with a negotiation cycle of 5 s, and longer with the usual 60 s. So the line is a comment:
# remove the # if you want it.
# Leave NEGOTIATOR_DEPTH_FIRST off: if it is on, only 4 to 14 of the 30 jobs ran at a site with their data.
# CLAIM_PARTITIONABLE_LEFTOVERS = False
"""

STARTD = """\
# A schedd that reuses a claim matches the next job with an old copy of the slot ad. The startd evaluates START for every
# job, with the present slot ad. Without this clause a job may start at a site that no longer has its data.
# Use this clause only at startds that run the hook. Without the hook the slot ad in the startd has no datasets, even if
# the daemon merges datasets into the copy in the collector. Such a startd would refuse every job with datasets.
# GlideinWMS: put the clause into start_expr."""

STARTD_EXPRESSIONS = "\n".join(
    (
        "# The clauses of jobs with a DataLocalityKey. Without them in the slot's ad, each match parses the job's own copy.",
        "# DataLocalityOffer is the text of the estimates that the schedd stores in a job's ad at its start.",
        *(
            f"{name} = {expression}".replace("{", "{{").replace("}", "}}")
            for name, expression in SLOT_EXPRESSIONS.items()
        ),
        "# The limit of jobs that begin to read from one source; the negotiator's text needs the same knob.",
        "DATALOCALITY_READERS = {readers}",
        "# s: the shortest turn; a quarter of the readers begin in a turn, or more if their reads are short",
        "DATALOCALITY_TURN = 64",
        *(
            f"{name} = {expression}".replace("{", "{{").replace("}", "}}")
            for name, expression in LIMIT_EXPRESSIONS.items()
        ),
        f"STARTD_ATTRS = $(STARTD_ATTRS) {' '.join((*SLOT_EXPRESSIONS, *LIMIT_EXPRESSIONS))}",
        "",
    )
)

NEGOTIATOR = """\
# --- knobs
# Jobs without datasets avoid sites with a queue of jobs that have their data there, while other slots are free:
# each second of this queue (DataLocalityOwnQueueSeconds) lowers the rank of a slot by this number; 0: no effect
DATALOCALITY_OTHERS_WEIGHT = {others_weight}

# With this term data locality counts more than the size of a slot. By default the negotiator sorts slots by
# size, and a job's Rank decides among slots of equal size only. DataLocalityRank is in seconds; of slots with the
# same DataLocalityRank the former terms choose. The GPU part is 0 for jobs that request no GPU, and for jobs that
# run only with a GPU. Offline ads (machines that do not run yet) come last: a job matches one only if it
# matches no slot.
NEGOTIATOR_PRE_JOB_RANK = {term}{found}
"""

OUR_LIST_ITEMS: Mapping[str, Sequence[str]] = {
    "JOB_TRANSFORM_NAMES": TRANSFORM_NAMES,
    "SUBMIT_REQUIREMENT_NAMES": SUBMIT_REQUIREMENTS,
    "IMMUTABLE_JOB_ATTRS": IMMUTABLE_ATTRIBUTES,
    "PROTECTED_JOB_ATTRS": PROTECTED_ATTRIBUTES,
    "SYSTEM_JOB_MACHINE_ATTRS": MACHINE_ATTRIBUTES,
    "ADD_SIGNIFICANT_ATTRIBUTES": SIGNIFICANT_ATTRIBUTES,
    "STARTD_ATTRS": (*SLOT_EXPRESSIONS, *LIMIT_EXPRESSIONS),
}
