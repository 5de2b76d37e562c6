# ruff: noqa: E501  (the texts are printed unchanged; a ClassAd expression has no good place to break)
"""Pool configuration as text: the schedd's transform and refusals, START, the negotiator's term.

``hydrator submit pool-config`` prints these texts. The expressions are functions in expressions.py, so that
other programs can write the same ones. The texts are tested on HTCondor 23.9.6 and 25.14.1
(tests/integration). Pure: values in, text out.

Two limits of ClassAds shape the expressions:

- HTCondor does not evaluate an expression more than 400 operators deep, and it matches nothing. So long chains
  of ``&&`` are cut into groups, and sums use a list.
- An expression must have a value for any slot. So comparisons with attributes of a slot are closed with
  ``=?= true``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from hydrator.domain.model import MAX_DID_CHARS
from hydrator.submit.expressions import (
    _AVAILABLE_CLAUSE,
    _BYTES_TEMPLATE,
    _CREDIT_TEMPLATE,
    _GROUP_SIZE,
    _MAX_BYTES,
    _NAMES_EXPRESSION,
    _SIZE_TEMPLATE,
    _SPELLING_CLAUSE,
    _SPELLING_TEMPLATE,
    MODES,
    Mode,
    _classad_real,
)

START_CLAUSE = "(TARGET.DataLocalityHere =!= false)"
PRE_JOB_TERM = "1e9 * (TARGET.DataLocalityRank ?: 0.0) + 1e8 * (TARGET.GPUPreference ?: 0.0)"
"""Term of the negotiator: a GPU, if the job prefers one, counts as much as a tenth of its data."""
_FORMER_PRE_JOB_TERMS = ("1e9 * (TARGET.DataLocalityRank ?: 0.0)",)
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
"""Job attributes that no user may edit on a queued job, not even a super user: expressions depend on them."""
PROTECTED_ATTRIBUTES = ("DataLocalityHere",)
"""Job attributes that only a queue super user may edit: ``hydrator release`` sets them to true."""
MACHINE_ATTRIBUTES = ("DataLocalitySite",)
"""Slot attributes that schedds store in a job's ad: ``hydrator report`` counts sites with them."""

SCHEDD_PARAMETERS = (
    "JOB_TRANSFORM_NAMES",
    "SUBMIT_REQUIREMENT_NAMES",
    "IMMUTABLE_JOB_ATTRS",
    "PROTECTED_JOB_ATTRS",
    "SYSTEM_JOB_MACHINE_ATTRS",
    "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS",
)
STARTD_PARAMETERS = ("START",)
NEGOTIATOR_PARAMETERS = ("NEGOTIATOR_PRE_JOB_RANK",)
"""The parameters of each role whose current values the texts show."""

HOLD_SUBCODE = 1763
"""HoldReasonSubCode of late-materialized jobs whose list is malformed."""

_MAX_WAIT_SECONDS = 31_536_000  # a year, s


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """The choices of a pool's operator; printed as knobs at the top of the schedd's text.

    ``max_age`` is the daemon's limit (6 h) less 15 min. ``wait`` and ``settle`` are the default times that
    ``wait`` and ``prefer`` jobs wait for their data. ``rounding_floor`` is the step of their deadlines, for
    autoclusters. ``staging_credit`` (0 to 1) is the weight of a dataset that is being staged.
    """

    default_mode: Mode = "wait"
    default_scope: str | None = None
    max_age: timedelta = timedelta(hours=6) - timedelta(minutes=15)
    wait: timedelta = timedelta(hours=1)
    settle: timedelta = timedelta(minutes=10)
    rounding_floor: timedelta = timedelta(minutes=5)
    rank_weight: float = 1000.0
    staging_credit: float = 0.5

    def __post_init__(self) -> None:
        """Check that a schedd can read the values.

        Raises:
            ValueError: one sentence with the field's name.
        """
        if self.default_mode not in MODES:
            raise ValueError(f"default_mode must be one of {', '.join(MODES)}, not {self.default_mode!r}")
        if self.default_scope is not None and not re.fullmatch(r"[A-Za-z0-9._/@=+~-]+", self.default_scope):
            raise ValueError(
                f"default_scope {self.default_scope!r} is not a scope: use letters, digits and . _ / @ = + ~ -"
            )
        if not 0 <= self.staging_credit <= 1:
            raise ValueError(f"staging_credit must be from 0 to 1, not {self.staging_credit}")
        if not 0 <= self.rank_weight < 1e15:
            raise ValueError(f"rank_weight must be from 0 to 1e15, not {self.rank_weight}")
        for name, least in (("max_age", 1), ("wait", 0), ("settle", 0), ("rounding_floor", 1)):
            if not least <= getattr(self, name).total_seconds() <= _MAX_WAIT_SECONDS:
                raise ValueError(f"{name} must be from {least} s to {_MAX_WAIT_SECONDS} s")


# --- the texts ----------------------------------------------------------------------------------------


def schedd_config(
    policy: PoolPolicy, current_values: Mapping[str, str | None], *, observe: bool = False
) -> str:
    """Return the text for schedds: knobs, transform, refusals, immutable attributes.

    Args:
        policy: the operator's choices.
        current_values: values of SCHEDD_PARAMETERS at this schedd now; None, or left out, if they could not
            be read. The text shows them without the hydrator's own parts. The text itself extends any value
            that it finds (``X = $(X) …`` also finds compiled-in defaults).
        observe: only rank; change no Requirements and refuse nothing.
    """
    return "\n".join(
        (
            _format_header("the schedds", observe),
            *_comment_current_values(SCHEDD_PARAMETERS[:-1], current_values),
            _format_knobs(policy, observe),
            _SHARED_MACROS,
            _format_transform(observe),
            _format_submit_requirements(observe),
            _ATTRIBUTE_LISTS,
            *(() if observe else (_MATCH_LIMITS,)),
            _LEFTOVERS_ADVICE,
        )
    )


def startd_config(current_values: Mapping[str, str | None], *, observe: bool = False) -> str:
    """Return the text for startds that run the hook; never use it for slots hydrated by merge only."""
    clause = f"START = ($(START)) && {START_CLAUSE}"
    return "\n".join(
        (
            _format_header("the startds that run the hook", observe),
            *_comment_current_values(STARTD_PARAMETERS, current_values),
            _STARTD,
            f"# (left out while observing) {clause}" if observe else clause,
            "",
        )
    )


def negotiator_config(current_values: Mapping[str, str | None], *, observe: bool = False) -> str:
    """Return the text for the negotiator: locality before slot size."""
    value = current_values.get("NEGOTIATOR_PRE_JOB_RANK")
    previous = (
        ""
        if value is not None and not remove_our_parts("NEGOTIATOR_PRE_JOB_RANK", value).strip()
        else " + ($(NEGOTIATOR_PRE_JOB_RANK))"
    )
    return "\n".join(
        (
            _format_header("the negotiator", observe),
            *_comment_current_values(NEGOTIATOR_PARAMETERS, current_values),
            _NEGOTIATOR.format(term=PRE_JOB_TERM, found=previous),
        )
    )


def removal_texts(current_values: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
    """Return by role (``schedd``, ``startd``, ``negotiator``) how to remove the text, and which parts remain.

    The result has comments only. The text extends existing values, so without it every value is as before. A
    text with the current values would fix these permanently.

    Args:
        current_values: the values now, by role, as for :func:`schedd_config`.
    """
    roles = {
        "schedd": ("the schedds", SCHEDD_PARAMETERS[:-1]),
        "startd": ("the startds", STARTD_PARAMETERS),
        "negotiator": ("the negotiator", NEGOTIATOR_PARAMETERS),
    }
    return {
        role: "\n".join(
            (_REMOVAL.format(where=where), _comment_remaining_parts(names, current_values.get(role, {})), "")
        )
        for role, (where, names) in roles.items()
    }


def allow_line(daemon: str, level: str, identity: str) -> str:
    """Build the line that adds *identity* to those with *level* at *daemon*.

    A list for one daemon replaces the list for all daemons. So a line with *identity* alone would lock out the
    pool's own daemons. A nested default does not work: HTCondor leaves a stray parenthesis.
    """
    own = f"{daemon.upper()}.ALLOW_{level}"
    return f"{own} = $({own}:$(ALLOW_{level})) {identity}"


def remove_our_parts(name: str, value: str) -> str:
    """Return the *value* of parameter *name* without the hydrator's parts."""
    if name == "START":
        return _unwrap(
            value, lambda text: re.fullmatch(rf"\((.*)\) && {re.escape(START_CLAUSE)}", text, re.DOTALL)
        )
    if name == "NEGOTIATOR_PRE_JOB_RANK":
        term = f"(?:{'|'.join(map(re.escape, (PRE_JOB_TERM, *_FORMER_PRE_JOB_TERMS)))})"
        return _unwrap(value, lambda text: re.fullmatch(rf"{term}(?: \+ \((.*)\))?", text, re.DOTALL))
    if name == "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS":
        return ""  # empty is HTCondor's default
    words = re.split(r"[\s,]+", value.strip())
    our_words = {word.lower() for word in _OUR_LIST_ITEMS.get(name, ())}
    if our_words.isdisjoint(word.lower() for word in words):
        return value
    return " ".join(word for word in words if word.lower() not in our_words)


# --- parts of the texts ----------------------------------------------------------------------------


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())


def _unwrap(value: str, match: Callable[[str], re.Match[str] | None]) -> str:
    """Return *value* without all layers that *match* finds; its first group is the inner value."""
    while wrapped := match(value.strip()):
        value = wrapped[1] or ""
    return value


def _format_header(where: str, observe: bool) -> str:
    form = (
        "observing: jobs are ranked, no job is kept from any slot, nothing is refused"
        if observe
        else "in force"
    )
    return _HEAD.format(where=where, form=form)


def _comment_current_values(names: Sequence[str], current_values: Mapping[str, str | None]) -> list[str]:
    """Return a comment line for each value without the hydrator's parts: the same before and after installation."""
    lines = []
    for name in names:
        value = current_values.get(name)
        text = "(could not be read)" if value is None else " ".join(remove_our_parts(name, value).split())
        lines.append(f"#   {name} = {text}".rstrip())
    return ["# Found there, and extended below:", *lines, ""]


def _comment_remaining_parts(names: Sequence[str], current_values: Mapping[str, str | None]) -> str:
    """Return a comment with those of *names* that have the hydrator's parts at the queried daemon."""
    values = {name: value for name in names if (value := current_values.get(name)) is not None}
    names_with_parts = [name for name, value in values.items() if remove_our_parts(name, value) != value]
    if names_with_parts:
        return f"# Our parts are in: {', '.join(names_with_parts)}."
    return "# Nothing of ours is there." if values else "# What is there could not be read."


def _format_knobs(policy: PoolPolicy, observe: bool) -> str:
    knobs: list[tuple[str, str, str | int]] = [
        (
            "the scope of a dataset named without one; empty: such a job is refused",
            "DEFAULT_SCOPE",
            policy.default_scope or "",
        ),
        (
            "s: facts older than this do not count; the daemon's bound (6 h) less 15 min",
            "MAX_AGE",
            _seconds(policy.max_age),
        ),
        (
            "0 to 1: what a dataset counts that is on its way to the site",
            "STAGING_CREDIT",
            _classad_real(policy.staging_credit),
        ),
        ("what having all data adds to the job's own Rank", "RANK_WEIGHT", _classad_real(policy.rank_weight)),
    ]
    placing: list[tuple[str, str, str | int]] = [
        ("for jobs that do not say: require, wait or prefer", "DEFAULT_MODE", policy.default_mode),
        ("s: how long `wait` holds out for a site that has the data", "WAIT", _seconds(policy.wait)),
        (
            "s: how long `prefer` does; the first job for a dataset must not race its publication",
            "SETTLE",
            _seconds(policy.settle),
        ),
        (
            "s: deadlines are rounded up to this (or WAIT/12), so that jobs share an autocluster",
            "STEP",
            _seconds(policy.rounding_floor),
        ),
    ]
    lines = ["# --- knobs"]
    for comment, name, value in knobs if observe else placing + knobs:
        lines += [f"# {comment}", f"DATALOCALITY_{name} = {value}".rstrip()]
    return "\n".join((*lines, ""))


def _map_dids_expression(template: str, items: str = '"$(dl_csv)"') -> str:
    """Return the ClassAd expression that applies *template* to each DID in *items*, separated by commas."""
    quoted = template.format(did=r"\\0", credit="$(DATALOCALITY_STAGING_CREDIT)").replace('"', r"\"")
    return f'regexps("[^,]+", {items}, "{quoted}", "fg")'


def _group_expression(items: str) -> str:
    """Return the ClassAd expression that joins *items*, separated by commas, in groups by ``&&``."""
    grouped = f'regexps("((?:[^,]+,){{{_GROUP_SIZE - 1}}}[^,]+),", {items}, "\\\\1) && (", "fg")'
    return f'strcat("(", regexps(",", {grouped}, " && ", "fg"), ") && {_SPELLING_CLAUSE}")'


def _unique_items_expression(items: str) -> str:
    """Return the ClassAd expression for *items*, each with a comma after it, without duplicates."""
    return rf'split(regexps("(?<![^,])([^,]+),(?=(?:[^,]*,)*?\\1,)", {items}, "", "fg"), ",")'


def _format_transform(observe: bool) -> str:
    worded = "".join(_TRANSFORM_VOID_VALUE.format(name=name) for name in _USER_ATTRIBUTES)
    listed = _TRANSFORM_LIST.replace("<worded>", worded)
    listed = listed.replace("<distinct>", _unique_items_expression("$(DATALOCALITY_LISTED)"))
    listed = listed.replace(
        "<letters>", _unique_items_expression('regexps("[^A-Za-z,]+", "$(dl_csv),", "", "fg")')
    )
    listed = listed.replace(
        "<spelled>", _SPELLING_TEMPLATE.format(letters="$(dl_letters)", names=_NAMES_EXPRESSION)
    )
    parts = [_TRANSFORM_NAMES, listed]
    if not observe:
        parts.append(
            _TRANSFORM_PLACE.replace("<here>", _group_expression(_map_dids_expression(_AVAILABLE_CLAUSE)))
        )
    ranks = _TRANSFORM_RANK.replace("<sizes>", _map_dids_expression(_SIZE_TEMPLATE))
    ranks = ranks.replace("<most>", _classad_real(_MAX_BYTES))
    ranks = ranks.replace("<sized>", _map_dids_expression(_BYTES_TEMPLATE + _CREDIT_TEMPLATE)).replace(
        "<counted>", _map_dids_expression(_CREDIT_TEMPLATE)
    )
    ranks = ranks.replace("<late>", "" if observe else _TRANSFORM_LATE)
    return "".join((*parts, ranks))


def _format_submit_requirements(observe: bool) -> str:
    names = [name for name in SUBMIT_REQUIREMENTS if not (observe and name == "DataLocalityTransform")]
    lines = [
        "# --- refusals, each with its sentence",
        f"SUBMIT_REQUIREMENT_NAMES = $(SUBMIT_REQUIREMENT_NAMES) {' '.join(names)}",
    ]
    for name in names:
        test, reason = _SUBMIT_REQUIREMENT_TEXTS[name]
        exempt = "RequiredDatasets is undefined" if name in _UNIVERSES else "$(DATALOCALITY_EXEMPT)"
        lines.append(f"SUBMIT_REQUIREMENT_{name} = {exempt} || {test}")
        lines.append(f"SUBMIT_REQUIREMENT_{name}_REASON = {reason}")
        if observe or name == _WARNING_ONLY:
            lines.append(f"SUBMIT_REQUIREMENT_{name}_IS_WARNING = true")
    return "\n".join((*lines, ""))


_HEAD = """\
# DataLocality for {where} ({form}).
# Printed by `hydrator submit pool-config`. Keep it in a file of its own, read after the others
# (such as /etc/condor/config.d/99-datalocality.conf), then condor_reconfig. To change it, change
# the knobs or print it again. To take it out, delete the file, then condor_reconfig."""

_REMOVAL = """\
# To take DataLocality out of {where}: delete the file that has its text, then condor_reconfig.
# Every value that it extended is then what it was. Jobs already queued keep the expressions they
# were given; `hydrator release` lets them go anywhere."""

_SHARED_MACROS = (
    r"""# --- what the transform and the refusals share (RequiredDatasets as text, a comma after each item)
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
# a job of a late-materialization cluster; JobFactoryId is only in the ad that stands for the whole cluster
DATALOCALITY_LATE = (JobMaterializeDigestFile isnt undefined && JobFactoryId is undefined)
DATALOCALITY_EXEMPT = JobUniverse =!= 5 || RequiredDatasets is undefined || ($(DATALOCALITY_LATE) && PeriodicHoldSubCode =?= <held>)
""".replace("<year>", str(_MAX_WAIT_SECONDS))
    .replace("<chars>", str(MAX_DID_CHARS))
    .replace("<held>", str(HOLD_SUBCODE))
)

_TRANSFORM_NAMES = f"""\
# --- the transform: a bare RequiredDatasets becomes all a job needs
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) {TRANSFORM_NAME}
JOB_TRANSFORM_{TRANSFORM_NAME} @=end
   NAME {TRANSFORM_NAME}
"""

_TRANSFORM_LIST = r"""   REQUIREMENTS JobUniverse == 5 && DataLocalityTransformed =!= true && unparse(RequiredDatasets) != ""
   # what is there but has no value (a word without quotes) must not pass for absent: SUBMIT_REQUIREMENTs cannot tell
<worded>   # the jobs of a late-materialization cluster are transformed one by one
   EVALMACRO dl_good JobFactoryId is undefined && $(DATALOCALITY_GOOD)
   if $(dl_good)
      # the list: scopes added, doubles dropped
      EVALMACRO dl_csv  join(",", <distinct>)
      EVALMACRO dl_n    size(split("$(dl_csv)", ","))
      # sorted, so that jobs with the same datasets share an autocluster: a nested ad keeps its names by length, then
      # alphabet, without regard to case. So all get one length, and a capital X becomes @X (and @ becomes @!).
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

_USER_ATTRIBUTES = ("RequiredDatasets", "DataLocality", "DataLocalityMaxWait", "DataLocalityMaxAge")
_TRANSFORM_VOID_VALUE = """\
   EVALMACRO dl_void unparse({name}) != "" && {name} is undefined
   if $(dl_void)
      SET {name} "undefined"
   endif
"""

_TRANSFORM_PLACE = r"""      # where it may run
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

_TRANSFORM_RANK = r"""      # how well it runs there: the share of its bytes, or of its datasets where a size is not known
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

_TRANSFORM_LATE = f"""\
   else
      # a refusal here would be a line in SchedLog and a job lost without a word: it is held instead, with a word
      EVALMACRO dl_late $(DATALOCALITY_LATE)
      if $(dl_late)
         SET PeriodicHold true
         SET PeriodicHoldSubCode {HOLD_SUBCODE}
         SET PeriodicHoldReason "RequiredDatasets, DataLocality or one of their times is malformed: submit it alone to see why, then remove this job"
         SET Requirements false
      endif
"""

_LIST_EXCERPT = 'substr(join(", ", RequiredDatasets) ?: "?", 0, 200)'
_UNIVERSES: Mapping[str, tuple[str, str]] = {
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
_WARNING_ONLY = "DataLocalityLocal"
"""Requirement that only warns: such a job loses nothing, and may set RequiredDatasets for its own jobs."""
_SUBMIT_REQUIREMENT_TEXTS: Mapping[str, tuple[str, str]] = {
    **_UNIVERSES,
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
            'strcat("RequiredDatasets: every item must be scope:name, neither part empty",'
            f' ifThenElse("$(DATALOCALITY_DEFAULT_SCOPE)" == "", " (there is no default scope here)", ""), "; got ", {_LIST_EXCERPT})'
        ),
    ),
    "DataLocalityLength": (
        f'! $(DATALOCALITY_STRINGS) || regexp("[^,]{{{MAX_DID_CHARS + 1}}}", $(DATALOCALITY_LISTED)) =!= true',
        f'"RequiredDatasets: an item has more than {MAX_DID_CHARS} characters, its scope counted"',
    ),
    "DataLocalityMode": (
        "$(DATALOCALITY_MODE_GOOD)",
        r'"DataLocality must be \"require\", \"wait\" or \"prefer\""',
    ),
    "DataLocalitySeconds": (
        "$(DATALOCALITY_SECONDS_GOOD)",
        (
            '"DataLocalityMaxWait and DataLocalityMaxAge must be whole numbers of seconds, up to a year;'
            ' DataLocalityMaxAge more than 0"'
        ),
    ),
    "DataLocalityTransform": (
        "JobFactoryId isnt undefined || (DataLocalityTransformed =?= true && DataLocalityHere isnt undefined)",
        (
            f'"RequiredDatasets was not worked on: leave DataLocalityTransformed out of the job;'
            f' if it is not there, the operator must see that JOB_TRANSFORM_NAMES has {TRANSFORM_NAME}"'
        ),
    ),
}
SUBMIT_REQUIREMENTS = tuple(_SUBMIT_REQUIREMENT_TEXTS)
"""The names of the hydrator's SUBMIT_REQUIREMENTs, in the order of evaluation."""

_ATTRIBUTE_LISTS = f"""\
# --- what stays as it was submitted: expressions were made from it
IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) {" ".join(IMMUTABLE_ATTRIBUTES)}
# what only `hydrator release` (a queue super user) may edit
PROTECTED_JOB_ATTRS = $(PROTECTED_JOB_ATTRS) {" ".join(PROTECTED_ATTRIBUTES)}
# what is kept in a job's ad of the slot where it ran: the site, for `hydrator report`
SYSTEM_JOB_MACHINE_ATTRS = $(SYSTEM_JOB_MACHINE_ATTRS) {" ".join(MACHINE_ATTRIBUTES)}
"""

_MATCH_LIMITS = """\
# A 25.14 schedd stops a user's cycle after 20 kinds of idle jobs that match nothing, and each list of datasets
# is a kind of its own: jobs behind them would starve. Older schedds do not know it.
SCHEDD_ENABLE_PER_USER_MATCH_LIMITS = False
"""

_LEFTOVERS_ADVICE = """\
# While `prefer` jobs settle (DATALOCALITY_SETTLE) they start beside their data only, also in bursts of several datasets. After
# that, or while observing, the schedd gives a slot's other cores, and a claim whose job has ended, to any next job of the
# user, whatever its datasets: of 30 jobs with three datasets 7 to 26 ran beside their data. Without leftovers it was 26 to
# 30, but every burst of the pool, ours or not, takes 1.7 to 1.9 times as long with a negotiation cycle of 5 s, and more
# with the usual 60 s: your choice. Leave NEGOTIATOR_DEPTH_FIRST off: with it only 4 to 14 of the 30 ran beside their data.
# CLAIM_PARTITIONABLE_LEFTOVERS = False
"""

_STARTD = """\
# A schedd reuses a claim by the ad it saw when it claimed; the startd looks at START for every job.
# Without this a job may start where its data was. Only where the hook runs: a startd hydrated from
# outside knows nothing of datasets and would refuse every job. GlideinWMS: put the clause into start_expr."""

_NEGOTIATOR = """\
# Where its data is comes before how large a slot is (the default sorts by size, a job's Rank only
# decides among equals). Jobs without datasets add 0, and so do those that ask for no GPU or must have one.
NEGOTIATOR_PRE_JOB_RANK = {term}{found}
"""

_OUR_LIST_ITEMS: Mapping[str, Sequence[str]] = {
    "JOB_TRANSFORM_NAMES": (TRANSFORM_NAME,),
    "SUBMIT_REQUIREMENT_NAMES": SUBMIT_REQUIREMENTS,
    "IMMUTABLE_JOB_ATTRS": IMMUTABLE_ATTRIBUTES,
    "PROTECTED_JOB_ATTRS": PROTECTED_ATTRIBUTES,
    "SYSTEM_JOB_MACHINE_ATTRS": MACHINE_ATTRIBUTES,
}
