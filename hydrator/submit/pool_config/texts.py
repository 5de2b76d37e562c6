# ruff: noqa: E501  (the texts are printed unchanged; a ClassAd expression has no good place to break)
"""Templates of the pool configuration: job transform, submit requirements, START, NEGOTIATOR_PRE_JOB_RANK."""

from collections.abc import Mapping, Sequence

from hydrator.domain.model import MAX_DID_CHARS

START_CLAUSE = "(TARGET.DataLocalityHere =!= false)"
PRE_JOB_TERM = "1e9 * (TARGET.DataLocalityRank ?: 0.0) + 1e8 * (TARGET.GPUPreference ?: 0.0)"
"""Term of NEGOTIATOR_PRE_JOB_RANK; a GPU that the job prefers has the weight of a tenth of the job's data."""
FORMER_PRE_JOB_TERMS = ("1e9 * (TARGET.DataLocalityRank ?: 0.0)",)
TRANSFORM_NAME = "DataLocality"
IMMUTABLE_ATTRIBUTES = (
    "RequiredDatasets",
    "RequiredBytes",
    "RequiredDatasetsCSV",
    "DataLocality",
    "DataLocalityMaxWait",
    "DataLocalityAnyAfter",
    "DataLocalityMaxAge",
    "DataLocalityRank",
    "DataLocalitySpelled",
    "DataLocalityTransformed",
)
"""Attributes that not even a super user may edit on a queued job: the job's expressions depend on them."""
PROTECTED_ATTRIBUTES = ("DataLocalityHere",)
"""Job attributes that only a queue super user may edit: ``hydrator release`` sets them to true."""
MACHINE_ATTRIBUTES = ("DataLocalitySite",)
"""Slot attributes that schedds store in a job's ad: ``hydrator report`` counts sites with them."""

HOLD_SUBCODE = 1763
"""HoldReasonSubCode of late-materialized jobs with a malformed RequiredDatasets or DataLocality attribute."""

MAX_WAIT_SECONDS = 31_536_000  # a year, s

HEAD = """\
# DataLocality for {where} ({form}).
# Printed by `hydrator submit pool-config`. Put this text into a separate file that HTCondor reads last
# (such as /etc/condor/config.d/99-datalocality.conf), then run condor_reconfig. To change a knob, edit
# the file or print the text again. To remove DataLocality, delete the file, then run condor_reconfig."""

REMOVAL = """\
# To remove DataLocality from {where}: delete the file that `hydrator submit pool-config` printed, then
# run condor_reconfig. Every parameter that the file extended then has its former value. Jobs already queued keep their
# expressions; `hydrator release` lets them run anywhere."""

SHARED_MACROS = (
    r"""# --- macros of the transform and the submit requirements; DATALOCALITY_LISTED is RequiredDatasets as
# text with a comma after each item
DATALOCALITY_LISTED = ifThenElse("$(DATALOCALITY_DEFAULT_SCOPE)" == "", strcat(join(",", RequiredDatasets), ","), \
    regexps("(^|,)([^:,]+)(?=,)", strcat(join(",", RequiredDatasets), ","), "\\1$(DATALOCALITY_DEFAULT_SCOPE):\\2", "fg"))
DATALOCALITY_STRINGS = (isList(RequiredDatasets) && allCompare(">=", RequiredDatasets, "") =?= true)
DATALOCALITY_WHOLE = size(split(join(",", RequiredDatasets), ",")) =?= size(RequiredDatasets)
DATALOCALITY_MODE_GOOD = (DataLocality is undefined || member(toLower(DataLocality), {"require", "wait", "prefer"}) =?= true)
DATALOCALITY_SECONDS_GOOD = \
    ((DataLocalityMaxWait is undefined || (isInteger(DataLocalityMaxWait) && DataLocalityMaxWait >= 0 && DataLocalityMaxWait <= <year>)) && \
     (DataLocalityMaxAge is undefined || (isInteger(DataLocalityMaxAge) && DataLocalityMaxAge > 0 && DataLocalityMaxAge <= <year>)))
DATALOCALITY_GOOD = ($(DATALOCALITY_STRINGS) && $(DATALOCALITY_WHOLE) && \
    regexp("^(?:(?=[^,]{1,<chars>},)[A-Za-z0-9._/@=+~-]++:[A-Za-z0-9._:/@=+~-]++,)++\\z", $(DATALOCALITY_LISTED)) =?= true && \
    $(DATALOCALITY_MODE_GOOD) && $(DATALOCALITY_SECONDS_GOOD)) =?= true
# true for a job of a late-materialization cluster; only the ad of the cluster itself has JobFactoryId
DATALOCALITY_LATE = (JobMaterializeDigestFile isnt undefined && JobFactoryId is undefined)
DATALOCALITY_EXEMPT = JobUniverse =!= 5 || RequiredDatasets is undefined || ($(DATALOCALITY_LATE) && PeriodicHoldSubCode =?= <held>)
""".replace("<year>", str(MAX_WAIT_SECONDS))
    .replace("<chars>", str(MAX_DID_CHARS))
    .replace("<held>", str(HOLD_SUBCODE))
)

TRANSFORM_NAMES = f"""\
# --- the job transform: it adds Requirements, Rank and attributes to jobs with RequiredDatasets
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) {TRANSFORM_NAME}
JOB_TRANSFORM_{TRANSFORM_NAME} @=end
   NAME {TRANSFORM_NAME}
"""

TRANSFORM_LIST = r"""   REQUIREMENTS JobUniverse == 5 && DataLocalityTransformed =!= true && unparse(RequiredDatasets) != ""
   # An attribute whose value is a word without quotes is undefined. SUBMIT_REQUIREMENTs cannot distinguish it from an
   # absent attribute. So replace such a value by the string "undefined", which SUBMIT_REQUIREMENTs reject.
<worded>   # transform each job of a late-materialization cluster, not the cluster's ad
   EVALMACRO dl_good JobFactoryId is undefined && $(DATALOCALITY_GOOD)
   if $(dl_good)
      # make the list of datasets: with scopes, without duplicates
      EVALMACRO dl_csv  join(",", <distinct>)
      EVALMACRO dl_n    size(split("$(dl_csv)", ","))
      # Sort the list, so that jobs with the same datasets share an autocluster. A nested ad sorts its names by length,
      # then by alphabet, without regard to case. So give all names one length, and write a capital X as @X (and @ as @!).
      EVALMACRO dl_keys regexps("([A-Z])", regexps("@", "$(dl_csv)", "@!", "fg"), "@\\1", "fg")
      EVALMACRO dl_each regexps("[^,]+", "$(dl_keys)", "size(\"\\0\")", "fg")
      EVALMACRO dl_long max({$(dl_each)})
      EVALMACRO dl_fill substr(regexps("[^!]", "$(dl_keys)", "!", "fg"), 0, $(dl_long))
      EVALMACRO dl_keys regexps("([^,]+),", "$(dl_keys),", "'\\1$(dl_fill)'=1;", "fg")
      EVALMACRO dl_keys regexps("'([^']{$(dl_long)})[^']*'", "$(dl_keys)", "'\\1'", "fg")
      EVALMACRO dl_keys eval("[$(dl_keys)]")
      EVALMACRO dl_keys regexps("[^']*'([^']*)'[^']*", "$(dl_keys)", "\\1,", "fg")
      EVALMACRO dl_keys regexps("!", regexps("@([A-Za-z])", "$(dl_keys)", "\\1", "fg"), "", "fg")
      EVALMACRO dl_csv  ifThenElse(size(split("$(dl_keys)", ",")) == $(dl_n), join(",", split("$(dl_keys)", ",")), "$(dl_csv)")
      EVALMACRO dl_letters join(",", <letters>)
      EVALSET RequiredDatasets split("$(dl_csv)", ",")
      EVALSET RequiredDatasetsCSV "$(dl_csv)"
      SET DataLocalitySpelled <spelled>
      EVALSET DataLocalityMaxAge DataLocalityMaxAge ?: $(DATALOCALITY_MAX_AGE)
"""

USER_ATTRIBUTES = ("RequiredDatasets", "DataLocality", "DataLocalityMaxWait", "DataLocalityMaxAge")
TRANSFORM_VOID_VALUE = """\
   EVALMACRO dl_void unparse({name}) != "" && {name} is undefined
   if $(dl_void)
      SET {name} "undefined"
   endif
"""

TRANSFORM_PLACE = r"""      # the slots where the job may run
      EVALMACRO dl_mode  toLower(DataLocality ?: "$(DATALOCALITY_DEFAULT_MODE)")
      EVALMACRO dl_waits "$(dl_mode)" != "require"
      EVALMACRO dl_wait  DataLocalityMaxWait ?: ifThenElse("$(dl_mode)" == "prefer", $(DATALOCALITY_SETTLE), $(DATALOCALITY_WAIT))
      EVALMACRO dl_step  ifThenElse($(dl_wait) / 12 > $(DATALOCALITY_STEP), $(dl_wait) / 12, $(DATALOCALITY_STEP))
      EVALMACRO dl_here  <here>
      EVALSET DataLocality "$(dl_mode)"
      if $(dl_waits)
         EVALSET DataLocalityMaxWait $(dl_wait)
         EVALSET DataLocalityAnyAfter $(dl_step) * ((time() + $(dl_wait) + $(dl_step) - 1) / $(dl_step))
         SET DataLocalityHere time() >= MY.DataLocalityAnyAfter || ($(dl_here))
      else
         DELETE DataLocalityAnyAfter
         SET DataLocalityHere $(dl_here)
      endif
      DEFAULT Requirements true
      SET Requirements ($(MY.Requirements)) && MY.DataLocalityHere
"""

TRANSFORM_RANK = r"""      # the job's rank of a slot: the share of its bytes at the slot's site; if a size is not known, the share of its datasets
      EVALMACRO dl_sizes <sizes>
      EVALMACRO dl_bytes sum({$(dl_sizes)})
      EVALMACRO dl_sized $(dl_bytes) > 0 && $(dl_bytes) < <most>
      if $(dl_sized)
         EVALMACRO dl_share <sized>
         SET DataLocalityRank sum({$(dl_share)}) / $(dl_bytes)
      else
         EVALMACRO dl_share <counted>
         SET DataLocalityRank sum({$(dl_share)}) / $(dl_n).0
      endif
      DEFAULT Rank 0.0
      SET Rank (isError(real($(MY.Rank))) ? 0.0 : (real($(MY.Rank)) ?: 0.0)) + $(DATALOCALITY_RANK_WEIGHT) * MY.DataLocalityRank
      SET DataLocalityTransformed true
<late>   endif
@end
"""

TRANSFORM_LATE = f"""\
   else
      # If a submit requirement refuses a late-materialized job, the schedd drops the job and only writes a line to SchedLog.
      # So hold the job, with a reason.
      EVALMACRO dl_late $(DATALOCALITY_LATE)
      if $(dl_late)
         SET PeriodicHold true
         SET PeriodicHoldSubCode {HOLD_SUBCODE}
         SET PeriodicHoldReason "RequiredDatasets, DataLocality or one of their times is malformed: submit it alone to see why, then remove this job"
         SET Requirements false
      endif
"""

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
        r'"DataLocality must be \"require\", \"wait\" or \"prefer\""',
    ),
    "DataLocalitySeconds": (
        "$(DATALOCALITY_SECONDS_GOOD)",
        (
            '"DataLocalityMaxWait and DataLocalityMaxAge must be whole numbers of seconds, up to a year;'
            ' DataLocalityMaxAge must be more than 0"'
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
SUBMIT_REQUIREMENTS = tuple(SUBMIT_REQUIREMENT_TEXTS)
"""The names of the hydrator's SUBMIT_REQUIREMENTs, in the order of evaluation."""

ATTRIBUTE_LISTS = f"""\
# --- attributes that cannot be edited after the submission, because the transform made expressions from them
IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) {" ".join(IMMUTABLE_ATTRIBUTES)}
# the attribute that only a queue super user may edit; `hydrator release` edits it
PROTECTED_JOB_ATTRS = $(PROTECTED_JOB_ATTRS) {" ".join(PROTECTED_ATTRIBUTES)}
# the slot attribute (the site) that the schedd copies into a job's ad, for `hydrator report`
SYSTEM_JOB_MACHINE_ATTRS = $(SYSTEM_JOB_MACHINE_ATTRS) {" ".join(MACHINE_ATTRIBUTES)}
"""

MATCH_LIMITS = """\
# A schedd of HTCondor 25.14 ends a user's negotiation after 20 autoclusters of idle jobs that match nothing. Each
# list of datasets is another autocluster, so the user's other jobs would starve. Older schedds ignore this parameter.
SCHEDD_ENABLE_PER_USER_MATCH_LIMITS = False
"""

LEFTOVERS_ADVICE = """\
# For DATALOCALITY_SETTLE seconds a `prefer` job starts only at a site with its data, also in a burst of jobs with several
# datasets. Later, or while observing, the schedd gives the other cores of a slot to the user's next job, even if the
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

NEGOTIATOR = """\
# With this term data locality counts more than the size of a slot. (By default the negotiator sorts slots by
# size, and a job's Rank decides among slots of equal size only.) The term is 0 for jobs without datasets. The
# GPU part of the term is 0 for jobs that request no GPU, and for jobs that run only with a GPU.
NEGOTIATOR_PRE_JOB_RANK = {term}{found}
"""

OUR_LIST_ITEMS: Mapping[str, Sequence[str]] = {
    "JOB_TRANSFORM_NAMES": (TRANSFORM_NAME,),
    "SUBMIT_REQUIREMENT_NAMES": SUBMIT_REQUIREMENTS,
    "IMMUTABLE_JOB_ATTRS": IMMUTABLE_ATTRIBUTES,
    "PROTECTED_JOB_ATTRS": PROTECTED_ATTRIBUTES,
    "SYSTEM_JOB_MACHINE_ATTRS": MACHINE_ATTRIBUTES,
}
