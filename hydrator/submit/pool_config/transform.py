# ruff: noqa: E501  (the texts are printed unchanged; a ClassAd expression has no good place to break)
"""The schedd's job transforms: texts and the regular expressions in them. Pure.

There are two. The first is for jobs that ``hydrator submit`` has prepared: its REQUIREMENTS, which the schedd
parses once, test all that must be true of such a job. Its body is short, because the schedd reads all lines of
a transform again for each job. The second is for all other jobs with RequiredDatasets.
"""

import textwrap

from hydrator.domain.ads.classad import string_literal
from hydrator.domain.ads.dataset_sets import HASHED_KEY_CHARS
from hydrator.domain.model import MAX_DID_CHARS
from hydrator.submit.expressions import (
    BARE_FRESH,
    BARE_HERE,
    BARE_RANK,
    COMPACT_HERE,
    MODES,
    OLDEST_EXPRESSION,
    SETS_EXPRESSION,
    START_TEXT,
    SUBMITTED_HERE,
)

from .texts import (
    HOLD_SUBCODE,
    MAX_WAIT_SECONDS,
    PREPARED_TRANSFORM_NAME,
    SECONDS,
    TRANSFORM_NAME,
    TRANSFORM_NAMES,
)

USER_ATTRIBUTES = (
    "RequiredDatasets",
    "DataLocality",
    "DataLocalityMaxWait",
    "DataLocalityMaxAge",
    "DataLocalityExpectedSeconds",
)

_DID = f'(?=[^"]{{1,{MAX_DID_CHARS}}}")' + "[A-Za-z0-9._/@=+~-]++:[A-Za-z0-9._:/@=+~-]++"
WRITTEN_LIST = rf'^\s*+\{{\s*+"{_DID}"(?:,\s*+"{_DID}")++\s*+\}}\z'
"""Regex of the list of several datasets, as ``unparse`` prints it."""
_PARENTHESES = r"""(\((?:[^()"']++|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|(?1))*+\))"""
BOUND_REQUIREMENTS = (
    rf"^(?(DEFINE){_PARENTHESES})\(MY\.DataLocalityHere(?: && (?1))?\)(?: && (?:(?1)|[A-Za-z0-9_.]++))*+\z"
)
"""Regex of Requirements that are false wherever DataLocalityHere is: it is joined to the rest by ``&&`` alone.

``(?1)`` is any text in parentheses. condor_submit adds its own clauses to those of the description.
"""


_KEY = rf"^s[a-z2-7]{{{HASHED_KEY_CHARS - 1}}}\z"
_VOID_TEST = '({name} is undefined && unparse({name}) != "")'
_VOID_VALUE = """\
      EVALMACRO dl_void {void}
      if $(dl_void)
         SET {name} "undefined"
      endif
"""
_NO_VOID = " && ".join(f"! {_VOID_TEST.format(name=name)}" for name in USER_ATTRIBUTES[1:])

_TIMES = r"""      EVALMACRO dl_auto   "$(dl_mode)" == "auto"
      EVALMACRO dl_strict "$(dl_mode)" == "require"
      EVALMACRO dl_knob   ifThenElse($(dl_auto), $(DATALOCALITY_AUTO_SETTLE), $(DATALOCALITY_WAIT))
      EVALMACRO dl_wait   DataLocalityMaxWait ?: $(dl_knob)
      # the end of the wait is a multiple of the step
      EVALMACRO dl_after  [w = $(dl_wait); f = $(DATALOCALITY_STEP); h = w / 2 < f ? w / 2 : f; s = w / 12 > h ? w / 12 : h; \
         a = s == 0 ? f * (time() / f) + w : s * ((time() + w + s - 1) / s)].a
      if $(dl_strict)
         DELETE DataLocalityAnyAfter
      else
         SET DataLocalityMaxWait $(dl_wait)
         SET DataLocalityAnyAfter $(dl_after)
      endif
"""
_LIMIT = """\
      # Jobs of mode auto have a concurrency limit if they read from another site; the slot's ad has its name.
      # A job from another schedd has it already.
      EVALMACRO dl_own unparse(ConcurrencyLimits) != ""
      EVALMACRO dl_has $(dl_own) && regexp("DataLocalityReadLimit", unparse(ConcurrencyLimits))
      EVALMACRO dl_adds $(dl_auto) && $(dl_own) && $(DATALOCALITY_ADDS_LIMITS)
      if $(dl_has)
      elif $(dl_adds)
         EVALMACRO dl_limits unparse(ConcurrencyLimits)
         # The negotiator evaluates limits for each slot only if they have no value without a slot.
         SET ConcurrencyLimits isUndefined(TARGET.Name) ? undefined : isUndefined(TARGET.DataLocalityReadLimit) ? $(dl_limits) : strcat($(dl_limits), ",", TARGET.DataLocalityReadLimit)
      elif $(dl_own)
      elif $(dl_auto)
         SET ConcurrencyLimits TARGET.DataLocalityReadLimit
      endif
"""
_AGE_AND_TEXT = """\
      EVALSET DataLocalityMaxAge DataLocalityMaxAge ?: $(DATALOCALITY_MAX_AGE)
      if $(DATALOCALITY_GLIDEINWMS)
         EVALSET RequiredDatasetsCSV join(",", RequiredDatasets)
      endif
"""


_START = f"""\
      # the schedd stores the estimates of the slot at each start in MATCH_EXP_DataLocalityStart
      SET DataLocalityStart {START_TEXT}
"""


def _plain_literal(text: str) -> str:
    r"""Return *text* as a string in REQUIREMENTS, where HTCondor knows ``\"`` as the only escape."""
    if '\\"' in text:
        raise ValueError(f"no string of REQUIREMENTS can have a backslash before a quote: {text}")
    return '"' + text.replace('"', '\\"') + '"'


_IS_PREPARED = (
    "JobUniverse == 5 && DataLocalityTransformed =!= true && JobFactoryId is undefined",
    f"regexp({_plain_literal(_KEY)}, DataLocalityKey) =?= true",
    f"regexp({_plain_literal(WRITTEN_LIST)}, unparse(RequiredDatasets)) =?= true",
    '(DataLocality is undefined || member(DataLocality, {"auto", "require", "wait"}) =?= true)',
    *(
        f"(isInteger({name}) ? {name} >= {least} && {name} <= {MAX_WAIT_SECONDS} : {name} is undefined)"
        for name, least in SECONDS.items()
    ),
    _NO_VOID,
    f"unparse(DataLocalityHere) =?= {_plain_literal(SUBMITTED_HERE)}",
    f"regexp({_plain_literal(BOUND_REQUIREMENTS)}, unparse(Requirements)) =?= true",
)
"""The conditions for the first transform, which the configuration has on one line and without macros."""
_PREPARED = rf"""\
# --- the job transforms: they add Requirements and attributes to jobs with RequiredDatasets; they do not change Rank
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) {" ".join(TRANSFORM_NAMES)}
# Jobs that `hydrator submit` has prepared: they have a key, the clause for all modes, and Requirements that are false
# wherever the clause is. They share one copy of both; a copy in each job takes 300 bytes for each operator and name.
JOB_TRANSFORM_{PREPARED_TRANSFORM_NAME} @=end
   NAME {PREPARED_TRANSFORM_NAME}
   REQUIREMENTS {" && ".join(_IS_PREPARED)}
      EVALMACRO dl_mode   toLower(DataLocality ?: "$(DATALOCALITY_DEFAULT_MODE)")
      SET DataLocality "$(dl_mode)"
{_TIMES}{_LIMIT}{_AGE_AND_TEXT}{_START}      SET DataLocalityTransformed true
@end
"""

_HEAD = f"""\
# all other jobs
JOB_TRANSFORM_{TRANSFORM_NAME} @=end
   NAME {TRANSFORM_NAME}
"""

_LIST = r"""   REQUIREMENTS JobUniverse == 5 && DataLocalityTransformed =!= true && (RequiredDatasets isnt undefined || unparse(RequiredDatasets) != "")
   # An attribute whose value is a word without quotes is undefined. SUBMIT_REQUIREMENTs cannot distinguish it from an
   # absent attribute. So replace such a value by the string "undefined", which SUBMIT_REQUIREMENTs reject.
   EVALMACRO dl_void <void>
   if $(dl_void)
<worded>   endif
   # transform each job of a late-materialization cluster, not the cluster's ad
   EVALMACRO dl_good JobFactoryId is undefined && $(DATALOCALITY_GOOD)
   if $(dl_good)
      # The submitting program makes the key of several datasets, because a transform cannot compute a hash.
      EVALMACRO dl_hashed regexp(<key>, DataLocalityKey) =?= true
      # make the list of datasets: with scopes, without duplicates
      EVALMACRO dl_csv  join(",", <distinct>)
      EVALMACRO dl_n    size(split("$(dl_csv)", ","))
      EVALMACRO dl_single $(dl_n) == 1
      EVALMACRO dl_keyed $(dl_single) || $(dl_hashed)
      EVALMACRO dl_kept $(dl_hashed) && join(",", RequiredDatasets) =?= "$(dl_csv)"
      if $(dl_kept)
      else
         EVALSET RequiredDatasets split("$(dl_csv)", ",")
      endif
      if $(dl_single)
         # The key of one dataset is its name, with @ before each capital letter and @! for @: names in ClassAds ignore case.
         EVALSET DataLocalityKey regexps("([A-Z])", regexps("@", "$(dl_csv)", "@!", "fg"), "@\\1", "fg")
      elif $(dl_keyed)
      else
         EVALMACRO dl_wrong unparse(DataLocalityKey) != ""
         if $(dl_wrong)
            SET DataLocalityKey undefined
         endif
         EVALMACRO dl_names regexps("([A-Z])", regexps("@", "$(dl_csv)", "@!", "fg"), "@\\1", "fg")
         # Sort the list, so that jobs with the same datasets share an autocluster. A nested ad sorts its names by length,
         # then by alphabet, without regard to case. So give all names one length.
         EVALMACRO dl_each regexps("[^,]+", "$(dl_names)", "size(\"\\0\")", "fg")
         EVALMACRO dl_long max({$(dl_each)})
         EVALMACRO dl_fill substr(regexps("[^!]", "$(dl_names)", "!", "fg"), 0, $(dl_long))
         EVALMACRO dl_keys regexps("([^,]+),", "$(dl_names),", "'\\1$(dl_fill)'=1;", "fg")
         EVALMACRO dl_keys regexps("'([^']{$(dl_long)})[^']*'", "$(dl_keys)", "'\\1'", "fg")
         EVALMACRO dl_keys eval("[$(dl_keys)]")
         EVALMACRO dl_keys regexps("[^']*'([^']*)'[^']*", "$(dl_keys)", "\\1,", "fg")
         EVALMACRO dl_keys regexps("!", regexps("@([A-Za-z])", "$(dl_keys)", "\\1", "fg"), "", "fg")
         EVALMACRO dl_csv  ifThenElse(size(split("$(dl_keys)", ",")) == $(dl_n), join(",", split("$(dl_keys)", ",")), "$(dl_csv)")
         EVALMACRO dl_names regexps("([A-Z])", regexps("@", "$(dl_csv)", "@!", "fg"), "@\\1", "fg")
         EVALMACRO dl_shares regexps("[^,]+", "$(dl_names)", "DatasetsHere[\"\\0\"]", "fg")
         SET DatasetsHere <sets>
         SET DataLocalityShares <fresh> ? {$(dl_shares)} : undefined
         SET DataLocalityOldest <oldest>
         EVALSET RequiredDatasets split("$(dl_csv)", ",")
      endif
<age>"""

_PLACE = r"""      # the slots where the job may run
      EVALMACRO dl_mode   toLower(DataLocality ?: "$(DATALOCALITY_DEFAULT_MODE)")
      SET DataLocality "$(dl_mode)"
<times>      if $(dl_keyed)
<limit>         if $(dl_strict)
            SET DataLocalityHere <keyed_require>
         elif $(dl_auto)
            SET DataLocalityHere <keyed_auto>
         else
            SET DataLocalityHere <keyed_wait>
         endif
      else
         if $(dl_strict)
            SET DataLocalityHere <bare_require>
         elif $(dl_auto)
            SET DataLocalityHere <bare_auto>
         else
            SET DataLocalityHere <bare_wait>
         endif
      endif
      DEFAULT Requirements true
      SET Requirements ($(MY.Requirements)) && MY.DataLocalityHere
"""

_RANK_ONLY = """\
      # a clause of `hydrator submit` has no effect with --rank-only
      EVALMACRO dl_own unparse(DataLocalityHere) != ""
      if $(dl_own)
         SET DataLocalityHere true
      endif
"""

_RANK = r"""      # The rank of a slot is minus the seconds until the job could have read its data there. NEGOTIATOR_PRE_JOB_RANK
      # computes it for a job with a key.
      if $(dl_keyed)
      else
         SET DataLocalityRank <bare_rank>
      endif
<start>      SET DataLocalityTransformed true
<late>   endif
@end
"""

_LATE = f"""\
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


def _unique_items_expression(items: str) -> str:
    """Return the ClassAd expression that removes duplicates from *items*, a text of ``ITEM,ITEM,``."""
    return rf'split(regexps("(?<![^,])([^,]+),(?=(?:[^,]*,)*?\\1,)", {items}, "", "fg"), ",")'


def format_transforms(rank_only: bool) -> str:
    """Return the text of the transforms; with *rank_only*, of the one that only ranks slots for the jobs."""
    voids = {name: _VOID_TEST.format(name=name) for name in USER_ATTRIBUTES}
    parts = {
        "void": " || ".join(voids.values()),
        "worded": "".join(_VOID_VALUE.format(name=name, void=test) for name, test in voids.items()),
        "distinct": _unique_items_expression("$(DATALOCALITY_LISTED)"),
        "key": string_literal(_KEY),
        "sets": SETS_EXPRESSION,
        "fresh": BARE_FRESH,
        "oldest": OLDEST_EXPRESSION,
        "bare_rank": BARE_RANK,
        "age": _AGE_AND_TEXT,
        "times": _TIMES,
        "start": _START,
        "limit": textwrap.indent(_LIMIT, "   "),
        **{f"keyed_{mode}": COMPACT_HERE[mode] for mode in MODES},
        **{f"bare_{mode}": BARE_HERE[mode] for mode in MODES},
        "late": "" if rank_only else _LATE,
    }
    names = f"JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) {TRANSFORM_NAME}\n"
    text = (names if rank_only else _PREPARED) + _HEAD + _LIST + (_RANK_ONLY if rank_only else _PLACE) + _RANK
    for name, part in parts.items():
        text = text.replace(f"<{name}>", part)
    return text
