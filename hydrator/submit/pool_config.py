# ruff: noqa: E501  (the texts are printed unchanged; a ClassAd expression has no good place to break)
"""Pool configuration as text, for ``hydrator pool-config``: schedds, startds and the negotiator. Pure.

The schedd's text is one job transform and the submit requirements. Rules of the text (tests/unit/submit):

- Nothing evaluates an attribute of a user before ``unparse`` of it matched a plain pattern: the engine of
  HTCondor 23.9 evaluates ``+RequiredDatasets = false ? {} : RequiredDatasets`` without end. So a job keeps no
  text that the negotiator or a slot would evaluate for us, unless a transform or `hydrator submit` wrote it.
- No text of a user becomes part of an expression, but Requirements and Rank, which are expressions and have no
  macro, and names of datasets, when they are known to be letters, digits and ``._:/@=+~-``.
- No pattern is recursive, and none backtracks: their repeats are possessive.
- At most 90 logical lines with all options, none longer than 200 characters, so that an operator can review them;
  many patterns of ``[publish] never`` add a line for each 120 characters.

The texts are tested on HTCondor 23.9.6 and 25.14.1 (tests/integration/test_transform.py).
"""

import re
from collections.abc import Sequence
from typing import Final

from hydrator.config import Settings
from hydrator.domain.ads.classad import string_literal
from hydrator.domain.ads.contract import GPU_PREFERENCE
from hydrator.domain.ads.dataset_sets import HASH_PATTERN, NAMES_CHARS
from hydrator.domain.ads.expressions import (
    HERE,
    JOB_RANK,
    REQUIREMENT,
    SIGNIFICANT_ATTRIBUTES,
    START_TEXT,
)
from hydrator.domain.model import MAX_DID_CHARS

TRANSFORM_NAME: Final = "DataLocality"
START_CLAUSE: Final = "(TARGET.DataLocalityHere =!= false)"
REFUSED: Final = "DataLocalityRefused"
"""The attribute in which the transform gives a submit requirement the reason why a job is refused."""
HOLD_SUBCODE: Final = 1763
"""HoldReasonSubCode of late-materialized jobs with a malformed RequiredDatasets or DataLocality attribute."""
IMMUTABLE_ATTRIBUTES: Final = (
    "RequiredDatasets",
    "DataLocality",
    "DataLocalityKey",
    "DataLocalityAnyAfter",
    "DataLocalityLane",
    "DataLocalityMaxAge",
    "DataLocalityRank",
    "DataLocalityTransformed",
)
"""Attributes that not even a super user may edit on a queued job: the match depends on them."""
MACHINE_ATTRIBUTES: Final = ("DataLocalitySite",)
"""Slot attributes that schedds store in a job's ad: ``hydrator report`` counts sites with them."""
PROTECTED_ATTRIBUTES: Final = ("DataLocalityHere", "DataLocalityStart", "MATCH_EXP_DataLocalityStart")
"""Job attributes that only a queue super user may edit: ``hydrator run-anywhere`` sets the first to true.

The schedd writes the others at each start, which it could not if they were immutable; also the site.
"""
AUTO_WAIT_SECONDS: Final = 600
"""An ``auto`` job that no daemon paces, because its datasets are not published or the daemon is dead, waits for at
least so long; then it runs anywhere.
"""
ROUNDING_SECONDS: Final = 3600
"""The schedd rounds the end of a wait up to a multiple, so that jobs share autoclusters: each end multiplies these.

A wait that a user or an operator chose ends at most half of it late, or a twelfth if that is longer than this.
The other one, of ``auto`` jobs, is a last resort: those that come within an hour have two ends at most.
"""
PATTERN_CHARS: Final = 125
"""The most characters of ``[publish] never``, as a pattern, in one line of the schedd's text."""


# --- the texts ----------------------------------------------------------------------------------------

_HEAD = """\
# DataLocality ({form}), printed by `hydrator pool-config --role {role}`.
# Put it into a file of its own that HTCondor reads last, such as /etc/condor/config.d/99-datalocality-{role}.conf, then run
# condor_reconfig. It extends your values (the last line of a schedd's replaces one). To remove it, delete the file and run
# condor_reconfig: every value is then as before. Jobs already queued keep their clause until `hydrator run-anywhere`.
"""
_RANK_ONLY = "rank only: it ranks slots for jobs; every job may use every slot, and the schedd refuses no job"

_MACROS = rf"""
# Patterns of what a user wrote. unparse(X) is the text of X, which it does not evaluate; "" if X is absent. LIST: a list of
# strings, {{ "x:a","x:b" }}. NAMES: x:a,x:b, . The repeats *+, ++ and ?+ are *, + and ? that never go back: no text takes long.
DATALOCALITY_LIST = "^\\s*\\{{\\s*\"[^\"\\\\]*+\"(?:\\s*+,\\s*+\"[^\"\\\\]*+\")*+\\s*\\}}$"
DATALOCALITY_NAMES = "^(?:(?=[^,]{{1,{MAX_DID_CHARS}}},)[A-Za-z0-9._/@=+~-]++:[A-Za-z0-9._:/@=+~-]++,)++$"
# Tests of these texts.
# NONE: the job has no list. "undefined" counts as none, too: so looks an attribute that was deleted from a single job.
# PLAIN: the list is a list of strings, or one string, or split() of one string.
# OPTIONS: the texts of the four options, with commas. VALUES: each of them is absent or plain.
# JOINED: the names with commas; a string is split at commas and blanks. It is evaluated only if the list is PLAIN.
# MACRO: Requirements or Rank has a macro, such as $(X) or $ENV(X). The transform writes Requirements (and Rank, with --job-rank)
# anew, and the schedd expands macros in what it writes: X could name itself, without end, or be a secret of its configuration.
DATALOCALITY_NONE = (unparse(RequiredDatasets) == "" || unparse(RequiredDatasets) == "undefined")
DATALOCALITY_PLAIN = (regexp($(DATALOCALITY_LIST), unparse(RequiredDatasets)) || regexp("^(?:split\\()?+\"[^\"\\\\]++\"\\)?+$", unparse(RequiredDatasets)))
DATALOCALITY_OPTIONS = strcat(unparse(DataLocality), ",", unparse(DataLocalityMaxWait), ",", unparse(DataLocalityMaxAge), ",", unparse(DataLocalityExpectedSeconds))
DATALOCALITY_VALUES = regexp("^(?:undefined|\"(?:auto|require|wait)\")?+,(?:undefined|0|[1-9][0-9]{{0,7}}+)?+(?:,(?:undefined|[1-9][0-9]{{0,7}}+)?+){{2}}$", $(DATALOCALITY_OPTIONS), "i")
<joined>DATALOCALITY_MACRO = regexp("[$][A-Za-z_]*+[(]", strcat(unparse(Requirements), unparse(Rank)))
# GPU: the job's GPUPreference, its rank of slots by their GPUs, as `hydrator submit` writes it. It looks at RequireGPUs, which
# HTCondor makes of require_gpus; GPUS lets that pass if it has signs, numbers, strings, regexp(…) and three properties only.
# The negotiator evaluates them for every job.
DATALOCALITY_GPU = "^[(]*(?:TARGET[.]GPUs|countMatches[(]MY[.]RequireGPUs, ?+TARGET[.]AvailableGPUs[)]) >= [0-9]++[)]? is true[)]? [?] 1[.0E+]*+ : 0[.0E+]*+$"
DATALOCALITY_GPUS = "^(?:[^\\w\"']|[0-9][0-9.E+]*+|\"[^\"\\\\]*+\"|(?:is|true|Capability|DeviceName|GlobalMemoryMb)\\b|regexp[(])*+$"
# Why a job is refused: the sentence for its user. WRONG: the first character that no name may have, and the names. LISTED: is
# the list wrong, an option or a macro, or a name? WHY: there is no list, or the universe is not vanilla (5), or LISTED.
DATALOCALITY_WRONG = strcat(regexps("^[A-Za-z0-9._:/@=+~,-]*+(.)", $(DATALOCALITY_JOINED), "with \\1: "), substr($(DATALOCALITY_JOINED), 0, 200))
DATALOCALITY_ALONE = "the job has an option of data locality, such as DataLocality, but not RequiredDatasets: is RequiredDatasets spelled right, with a + before it?"
DATALOCALITY_UNIVERSE = "RequiredDatasets: jobs of the java, parallel and vm universes are not sent to their data; use vanilla, or leave it out"
DATALOCALITY_NO_LIST = strcat("RequiredDatasets must be a list of strings, {{\"x:a\", \"x:b\"}}, or one string with commas; got ", substr(regexps("\\s++", unparse(RequiredDatasets), " ", "fg"), 0, 80))
DATALOCALITY_NO_VALUE = "DataLocality is \"auto\", \"require\" or \"wait\"; MaxWait, MaxAge, ExpectedSeconds are whole seconds of up to 8 digits, only MaxWait may be 0; Requirements, Rank: no macro"
DATALOCALITY_NO_NAME = strcat("every name in RequiredDatasets must be scope:name, up to {MAX_DID_CHARS} letters, digits and ._:/@=+~-, not ", $(DATALOCALITY_WRONG))
DATALOCALITY_LISTED = $(DATALOCALITY_PLAIN) ? $(DATALOCALITY_VALUES) && ! $(DATALOCALITY_MACRO) ? $(DATALOCALITY_NO_NAME) : $(DATALOCALITY_NO_VALUE) : $(DATALOCALITY_NO_LIST)
DATALOCALITY_WHY = $(DATALOCALITY_NONE) ? $(DATALOCALITY_ALONE) : unparse(JobUniverse) != "5" ? $(DATALOCALITY_UNIVERSE) : $(DATALOCALITY_LISTED)
"""

_JOINED = r"""DATALOCALITY_JOINED = join(",", isString(RequiredDatasets) ? split(RequiredDatasets, ", ") : RequiredDatasets)
"""
_SCOPED = r"""# names without a scope get the pool's
DATALOCALITY_JOINED = regexps("(^|,)([^:,]++)(?=,|$)", join(",", isString(RequiredDatasets) ? split(RequiredDatasets, ", ") : RequiredDatasets), "\\1{scope}:\\2", "fg")
"""

_TRANSFORM = rf"""
# --- the transform: a job with RequiredDatasets gets a key, a rank, the end of its wait and a clause
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) {TRANSFORM_NAME}
JOB_TRANSFORM_{TRANSFORM_NAME} @=end
   # EVALMACRO X Y gives the macro X the value of Y. The negotiator evaluates GPUPreference of every job: only ours stays.
   EVALMACRO dl_gpu ! (regexp($(DATALOCALITY_GPU), unparse(GPUPreference)) && regexp($(DATALOCALITY_GPUS), unparse(RequireGPUs)))
   if $(dl_gpu)
      DELETE GPUPreference
   endif
   # 1. From every job go the attributes that the negotiator and slots evaluate, whoever wrote them. (They look at the key and the
   # lane only for jobs with our clause, and those get their own, below.) Only a copy that a job router made keeps two things of
   # its first schedd: until, the end of its wait (Unix s), and the hash.
   EVALMACRO dl_copy regexp("^\"", unparse(RoutedFromJobId))
   EVALMACRO dl_until $(dl_copy) && regexp("^[0-9]++$", unparse(DataLocalityAnyAfter)) ? DataLocalityAnyAfter : 0
   DELETE DataLocalityRank
   DELETE DataLocalityHere
   DELETE DataLocalityAnyAfter
<own_csv>   # factory: the template of a late-materialized cluster, which the schedd marks with JobFactoryId; its jobs come here one by one,
   # and what a user marks so gets no clause and no rank. good: vanilla (5), a list, all is plain.
   # wrong: vanilla, java, parallel or vm (5, 10, 11, 13), not good, and it has a list, or an option if it is vanilla.
   EVALMACRO dl_factory unparse(JobFactoryId) == unparse(ClusterId)
   EVALMACRO dl_good unparse(JobUniverse) == "5" && $(DATALOCALITY_PLAIN) && $(DATALOCALITY_VALUES) && regexp($(DATALOCALITY_NAMES), strcat($(DATALOCALITY_JOINED), ",")) && ! $(DATALOCALITY_MACRO)
   EVALMACRO dl_wrong regexp("^(?:5|10|11|13)$", unparse(JobUniverse)) && ! ($(DATALOCALITY_NONE) && (unparse(JobUniverse) != "5" || regexp("^(?:,?+(?:undefined)?+){{4}}$", $(DATALOCALITY_OPTIONS))))
   if $(dl_factory)
   elif $(dl_good)
      # 2. The names, which are plain letters now. other: the list must be written anew, because it was a string, names got a
      # scope, or one of its strings has several names with commas. Else the job keeps its list, which its cluster shares.
      EVALMACRO dl_names $(DATALOCALITY_JOINED)
      EVALMACRO dl_other ! regexp($(DATALOCALITY_LIST), unparse(RequiredDatasets)) || join(",", RequiredDatasets) =!= "$(dl_names)" || size(RequiredDatasets) != size(split("$(dl_names)", ","))
      if $(dl_other)
         EVALSET RequiredDatasets split("$(dl_names)", ",")
      endif
      # 3. The key, by which slots know the list. hash: `hydrator submit` wrote one, and wrote it for exactly these names. Else the
      # names, if they are short, with @ before capitals, @ and ~, because ClassAd names ignore letter case. Else cluster: the
      # cluster's number, the size of the names, and the schedd's name, with which GlobalJobId begins. The daemon compares keys
      # with lists: a key that jobs with two lists have is in no slot, and `hydrator why` says so.
<private>      EVALMACRO dl_hash <public>($(dl_copy) || unparse(DataLocalityKeyFor) =?= "\"$(dl_names)\"") && regexp("^\"{HASH_PATTERN}\"$", unparse(DataLocalityKey))
      EVALMACRO dl_cluster toLower(strcat("c", ClusterId, ".", size("$(dl_names)"), "@", regexps("^\"([^#]++)#.*", unparse(GlobalJobId), "\\1")))
      EVALSET DataLocalityKey $(dl_hash) ? DataLocalityKey : <public>size("$(dl_names)") <= {NAMES_CHARS} ? regexps("([A-Z@~])", "$(dl_names)", "@\\1", "fg") : "$(dl_cluster)"
      DELETE DataLocalityKeyFor
      # 4. Where very many jobs have the same list, slots (DataLocalityAuto) let them start lane by lane: lane 0 has half of the jobs,
      # 1 a quarter, and so on up to 10. The lane is the number of trailing zeros of n = ClusterId + ProcId + 1: n's lowest bit, a
      # power of 2, is modulo 13 its place in the list. Other modes than auto have place 1, which is lane 0.
      EVALSET DataLocalityLane {{0,0,1,4,2,9,5,10,3,8,10,7,6}}[(DataLocality ?: "<mode>") == "auto" ? (~(ClusterId + ProcId) & (ClusterId + ProcId + 1)) % 13 : 1]
      # 5. What the job and a slot know of each other. MaxAge: the job ignores facts of a slot that are older than so many
      # seconds (a quarter of an hour less than the daemon's max_age_hours). Rank: how long the slot would read for this job, in
      # negative seconds, for the negotiator. Start: at each start the schedd writes there what the slot knew of the job's list
      # (DataLocalityOffer, a string), for `hydrator why` and `report`.
      EVALSET DataLocalityMaxAge DataLocalityMaxAge ?: <max_age>
      SET DataLocalityRank {JOB_RANK}
      SET DataLocalityStart {START_TEXT}
<csv><place><rank>      SET DataLocalityTransformed true
   elif $(dl_wrong)
      EVALSET {REFUSED} $(DATALOCALITY_WHY)
<hold>   endif
@end
"""

_PRIVATE = """\
      # private: the daemon must not publish one of these names, so they are no part of a key
"""
_PLACE = f"""\
      # 6. Where the job may start. require: beside its data, for ever. wait: beside its data, anywhere after <wait> s at least.
      # auto: where the slot says so (Auto is true or false where the daemon paces the list, else absent: then anywhere after at
      # least {AUTO_WAIT_SECONDS} s). for: how long it waits (s); 0 and 1: not at all. AnyAfter: when that ends, rounded up to a multiple of step,
      # so that jobs share autoclusters. step: <step> s for auto without MaxWait; else half the wait up to <step> s, or a twelfth of
      # it if that is longer.
      EVALSET DataLocality toLower(DataLocality ?: "<mode>")
      EVALMACRO dl_for DataLocalityMaxWait ?: (DataLocality == "wait" ? <wait> : {AUTO_WAIT_SECONDS})
      EVALMACRO dl_step $(dl_for) < 2 || isUndefined(DataLocalityMaxWait) && DataLocality != "wait" ? <step> : max({{$(dl_for) / 12, min({{$(dl_for) / 2, <step>}})}})
      EVALSET DataLocalityAnyAfter DataLocality == "require" ? undefined : $(dl_until) > 0 ? $(dl_until) : $(dl_step) * ((time() + ($(dl_for) < 2 ? 0 : $(dl_for) + $(dl_step) - 1)) / $(dl_step))
      EVALMACRO dl_here DataLocality == "require" ? "{HERE["require"]}" : "{HERE["auto"]}"
      EVALMACRO dl_here DataLocality == "wait" ? "{HERE["wait"]}" : "$(dl_here)"
      SET DataLocalityHere $(dl_here)
      # condor_submit wrote the clause into Requirements (unparse prints =!= as isnt) if it read APPEND_REQUIREMENTS, below.
      EVALMACRO dl_unbound ! regexp("MY[.]DataLocalityHere isnt false", unparse(Requirements))
      if $(dl_unbound)
         SET Requirements ($(MY.Requirements)) && {REQUIREMENT}
      endif
"""
_RANK = """\
      # For schedds whose negotiator has no term of ours: the job's own Rank counts the seconds of reading, too.
      DEFAULT Rank 0.0
      EVALMACRO dl_unranked ! regexp("MY[.]DataLocalityRank$", unparse(Rank))
      if $(dl_unranked)
         SET Rank ($(MY.Rank)) + MY.DataLocalityRank
      endif
"""
_HOLD = f"""\
      # condor_submit shows the reason, and the job never comes into the queue. Of a late-materialized job only SchedLog would have a
      # line, so it is not refused (below) but held, with the reason and the number by which `hydrator why` knows our holds. Until
      # the schedd holds it (a minute), it matches nothing. Its owner removes it and submits it again.
      EVALSET PeriodicHoldReason $(DATALOCALITY_WHY)
      SET PeriodicHold true
      SET PeriodicHoldSubCode {HOLD_SUBCODE}
      SET Requirements false
"""

_CHECKS = rf"""
# --- submit requirements: jobs are refused with the transform's reason, a string. The schedd evaluates a requirement with its
# own ad as MY and the job as TARGET; unparse looks at MY, so it stands in evalInEachContext(…, {{TARGET}}), a list of one.
# DataLocalityLocal warns of a list in the scheduler and local universes (7, 12), but for DAGMan, which may hand it to its jobs.
SUBMIT_REQUIREMENT_NAMES = $(SUBMIT_REQUIREMENT_NAMES) DataLocality DataLocalityLocal<enforced>
SUBMIT_REQUIREMENT_DataLocality = evalInEachContext(! regexp("^\"(?:[^\"\\\\]|\\\\.)*+\"$", unparse({REFUSED}))<or_late>, {{TARGET}})[0]
SUBMIT_REQUIREMENT_DataLocality_REASON = {REFUSED}
SUBMIT_REQUIREMENT_DataLocalityLocal = evalInEachContext(! regexp("^(?:7|12)$", unparse(JobUniverse)) || $(DATALOCALITY_NONE) || regexp("dagman", unparse(Cmd)), {{TARGET}})[0]
SUBMIT_REQUIREMENT_DataLocalityLocal_REASON = "RequiredDatasets has no effect here: jobs of the local and scheduler universes run on the access point"
SUBMIT_REQUIREMENT_DataLocalityLocal_IS_WARNING = true
<checks>"""
_CHECKS_REFUSE = rf"""
# DONE: the job was transformed, or there was nothing to transform: it is a factory or of one (both name the file of its items),
# is not vanilla, or has no list. A job that is none of these was submitted while the transform was not in force.
DATALOCALITY_DONE = unparse(DataLocalityTransformed) == "true" || unparse(JobMaterializeDigestFile) != "" || unparse(JobUniverse) != "5" || $(DATALOCALITY_NONE)
SUBMIT_REQUIREMENT_DataLocalityTransform = evalInEachContext($(DATALOCALITY_DONE), {{TARGET}})[0]
SUBMIT_REQUIREMENT_DataLocalityTransform_REASON = "the schedd did not transform this job: does JOB_TRANSFORM_NAMES have {TRANSFORM_NAME}?"
"""

_LISTS = f"""
# --- attributes that nobody can edit after the submission; the second line's: only a queue super user, or the schedd at a start
IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) {" ".join(IMMUTABLE_ATTRIBUTES)}
PROTECTED_JOB_ATTRS = $(PROTECTED_JOB_ATTRS) {" ".join(PROTECTED_ATTRIBUTES)} MachineAttr{MACHINE_ATTRIBUTES[0]}0 {GPU_PREFERENCE}
# the site of the slot, which the schedd copies into the job's ad at its start, for hydrator report
SYSTEM_JOB_MACHINE_ATTRS = $(SYSTEM_JOB_MACHINE_ATTRS) {" ".join(MACHINE_ATTRIBUTES)}
# what the slots' expressions look at, which the schedd cannot see
ADD_SIGNIFICANT_ATTRIBUTES = $(ADD_SIGNIFICANT_ATTRIBUTES) {" ".join(SIGNIFICANT_ATTRIBUTES)}
<limits>"""
_MATCH_LIMITS = f"""\
# condor_submit on this host adds the clause to Requirements of all jobs; without DataLocalityHere it is true. The jobs of a
# cluster share what condor_submit writes. A clause that the transform has to add is stored in each job: 6 kB a job. If your
# configuration sets APPEND_REQ_VANILLA, HTCondor uses that in place of this line: add the clause there, too.
APPEND_REQUIREMENTS = ($(APPEND_REQUIREMENTS:true)) && {REQUIREMENT}
# A schedd of 25.14 or later ends a user's negotiation after 20 autoclusters that match nothing. Each list of datasets, lane and
# end of a wait is an autocluster, so the user's other jobs would starve. Older schedds ignore this line. It replaces your value.
SCHEDD_ENABLE_PER_USER_MATCH_LIMITS = False
"""

_STARTD = """
# A schedd that reuses a claim matches with an old copy of the slot's ad. START sees the present one, so no job starts
# where its data has left. Only for startds with the hook (`hydrator hook`; condor_status -af DataLocalitySite shows it): without
# it jobs of mode require never start here.
# GlideinWMS: glideins do not read this file. Put the clause into start_expr of the frontend's groups.
"""

_NEGOTIATOR = r"""
# NEGOTIATOR_PRE_JOB_RANK chooses the slot for a job; the largest value wins. HTCondor's own looks at the size of slots. To it come
# TERM (by 1e9), GPUs as the job prefers them (1e8 or 0), and that offline ads are last (-4e12).
# TERM: a job with datasets counts READ, any other BACKLOG times OTHERS_WEIGHT (set it to 0 for no effect).
# READ: R is minus the seconds that the job would read at the slot, 0 to -800001, or below -900000 where nothing is known. READ
# brings it to 0 to -1111: the negotiator keeps 24 bits of a rank, and the terms for the size, up to 1e8, must still count where
# two slots have the same R.
# BACKLOG: so many jobs, up to 1,000, wait for free slots beside the data of the slot's site, by the daemon's last word, which holds
# until DataLocalityOpenUntil. Others go elsewhere if they can.
DATALOCALITY_OTHERS_WEIGHT = 1000000000
DATALOCALITY_READ = [R = TARGET.DataLocalityRank; V = R < -850000.0 ? (R + 1800000.0) / 900.0 - 2000.0 : 1000.0 * R / (600.0 - R)].V
DATALOCALITY_BACKLOG = (time() < MY.DataLocalityOpenUntil && MY.DataLocalityBacklog > 0) =?= true ? min({MY.DataLocalityBacklog, 1000}) : 0
DATALOCALITY_TERM = isUndefined(TARGET.DataLocalityRank) ? -1.0 * $(DATALOCALITY_OTHERS_WEIGHT) * ($(DATALOCALITY_BACKLOG)) : 1e9 * $(DATALOCALITY_READ)
NEGOTIATOR_PRE_JOB_RANK = ($(DATALOCALITY_TERM)) + 1e8 * (TARGET.GPUPreference ?: 0.0) + (MY.Offline =?= true ? -4e12 : 0.0) + ($(NEGOTIATOR_PRE_JOB_RANK:0.0))
"""


def schedd_config(settings: Settings, *, rank_only: bool = False, job_rank: bool = False) -> str:
    """Return the text for schedds: macros, the job transform, submit requirements, immutable attributes.

    The settings extend the schedd's values by ``X = $(X) …``, which also works for compiled-in defaults.

    Args:
        settings: the configuration.
        rank_only: the text only ranks slots for the jobs; it changes no Requirements and refuses no job.
        job_rank: the jobs' Rank has a term too, for a schedd whose negotiator is not configured.
    """
    never, scope = settings.publish.never, settings.daemon.default_scope
    parts = {
        "joined": _SCOPED.format(scope=scope) if scope else _JOINED,
        "public": "! $(dl_private) && " if never else "",
        "private": _PRIVATE + "".join(_private_lines(never)) if never else "",
        "own_csv": "   # GlideinWMS looks at the names with commas, written below.\n   DELETE RequiredDatasetsCSV\n"
        if settings.jobs.glideinwms
        else "",
        "csv": '      SET RequiredDatasetsCSV "$(dl_names)"\n' if settings.jobs.glideinwms else "",
        "place": "" if rank_only else _PLACE,
        "rank": _RANK if job_rank else "",
        "hold": "" if rank_only else _HOLD,
        "or_late": "" if rank_only else ' || unparse(JobMaterializeDigestFile) != ""',
        "enforced": "" if rank_only else " DataLocalityTransform",
        "checks": "SUBMIT_REQUIREMENT_DataLocality_IS_WARNING = true\n" if rank_only else _CHECKS_REFUSE,
        "limits": "" if rank_only else _MATCH_LIMITS,
        "mode": settings.jobs.default_mode,
        "max_age": str(int(settings.daemon.job_max_age.total_seconds())),
        "wait": str(int(settings.jobs.wait_seconds)),
        "step": str(ROUNDING_SECONDS),
    }
    text = _MACROS + _TRANSFORM + _CHECKS + _LISTS
    for name, part in parts.items():
        text = text.replace(f"<{name}>", part)
    return _format_header("schedd", rank_only) + text


def startd_config(*, rank_only: bool = False) -> str:
    """Return the text for startds that run the hook.

    With this text, a startd without the hook never starts a job of mode ``require``.
    """
    clause = f"START = ($(START)) && {START_CLAUSE}\n"
    clause = f"# (left out with --rank-only) {clause}" if rank_only else clause
    return _format_header("startd", rank_only) + _STARTD + clause


def negotiator_config(*, rank_only: bool = False) -> str:
    """Return the text for the negotiator: data locality counts more than the size of a slot."""
    return _format_header("negotiator", rank_only) + _NEGOTIATOR


def allow_lines(daemon: str, level: str, identity: str) -> list[str]:
    """Build the configuration lines that give *identity* the authorization *level* at *daemon*.

    If ``DAEMON.ALLOW_LEVEL`` is set, HTCondor does not use ``ALLOW_LEVEL``, nor ``ALLOW_WRITE`` where
    ``ALLOW_DAEMON`` is undefined. A line with *identity* alone would lock out the pool's own daemons, so the
    last line adds *identity* to what applied before. No line has a default inside a default, because HTCondor
    would leave a stray parenthesis in the value.
    """
    own = f"{daemon.upper()}.ALLOW_{level}"
    before = ["ALLOW_DAEMON = $(ALLOW_DAEMON:$(ALLOW_WRITE))"] if level == "DAEMON" else []
    return [*before, f"{own} = $({own}:$(ALLOW_{level})) {identity}"]


# --- parts of the texts ----------------------------------------------------------------------------


def _private_lines(patterns: Sequence[str]) -> list[str]:
    """Return the lines of the transform that tell whether a name of the job has one of *patterns*."""
    lines: list[str] = []
    start = 0
    for end in range(1, len(patterns) + 1):
        is_full = end < len(patterns) and len(_names_pattern(patterns[start : end + 1])) > PATTERN_CHARS
        if is_full or end == len(patterns):
            found = f'regexp({_names_pattern(patterns[start:end])}, "$(dl_names)")'
            lines.append(f"      EVALMACRO dl_private {'$(dl_private) || ' if lines else ''}{found}\n")
            start = end
    return lines


def _names_pattern(patterns: Sequence[str]) -> str:
    """Return the ClassAd string of a regex that finds a name of one of *patterns* in names with commas."""

    def one(sign: str) -> str:
        if len(sign) > 1:  # [ab], or [!ab], which no comma may match either
            letters = re.sub(r"([\\^[])", r"\\\1", sign[1:-1])
            return f"[^,{letters[1:]}]" if letters.startswith("!") else f"[{letters}]"
        return {"*": "[^,]*", "?": "[^,]"}.get(sign) or re.escape(sign)

    each = ("".join(map(one, re.findall(r"\[[^]]+\]|.", text))) for text in patterns)
    return string_literal(f"(?:^|,)(?:{'|'.join(each)})(?:,|$)")


def _format_header(role: str, rank_only: bool) -> str:
    return _HEAD.format(form=_RANK_ONLY if rank_only else "enforced", role=role)
