# ruff: noqa: E501  (the texts are printed unchanged; a ClassAd expression has no good place to break)
"""Pool configuration as text: schedd transform and submit requirements, START, NEGOTIATOR_PRE_JOB_RANK.

``hydrator submit pool-config`` prints these texts. The expressions are functions in expressions.py, so that
other programs can print the same expressions. The texts are tested on HTCondor 23.9.6 and 25.14.1
(tests/integration). Pure: values in, text out.

Two limits of ClassAds shape the expressions:

- HTCondor does not evaluate an expression more than 400 operators deep; such an expression matches no slot.
  So the texts cut long chains of ``&&`` into groups, and compute sums over a list.
- An expression must not be undefined for any slot. So comparisons with slot attributes end with ``=?= true``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from hydrator.submit.expressions import MODES, Mode, count_readers

from .texts import (
    ATTRIBUTE_LISTS,
    EXEMPT_MACROS,
    HEAD,
    HOLD_SUBCODE,
    IMMUTABLE_ATTRIBUTES,
    LEFTOVERS_ADVICE,
    MACHINE_ATTRIBUTES,
    MATCH_LIMITS,
    MAX_WAIT_SECONDS,
    NEGOTIATOR,
    OUR_LIST_ITEMS,
    PRE_JOB_TERM,
    PROTECTED_ATTRIBUTES,
    READ_LIMIT,
    REMOVAL,
    SHARED_MACROS,
    START_CLAUSE,
    STARTD,
    STARTD_EXPRESSIONS,
    SUBMIT_REQUIREMENT_TEXTS,
    SUBMIT_REQUIREMENTS,
    TRANSFORM_NAME,
    WARNING_ONLY,
)
from .transform import format_transforms

__all__ = [
    "HOLD_SUBCODE",
    "IMMUTABLE_ATTRIBUTES",
    "MACHINE_ATTRIBUTES",
    "NEGOTIATOR_PARAMETERS",
    "PRE_JOB_TERM",
    "PROTECTED_ATTRIBUTES",
    "SCHEDD_PARAMETERS",
    "STARTD_PARAMETERS",
    "START_CLAUSE",
    "SUBMIT_REQUIREMENTS",
    "TRANSFORM_NAME",
    "PoolPolicy",
    "allow_line",
    "negotiator_config",
    "removal_texts",
    "remove_our_parts",
    "schedd_config",
    "startd_attributes",
    "startd_config",
]

SCHEDD_PARAMETERS = (
    "JOB_TRANSFORM_NAMES",
    "SUBMIT_REQUIREMENT_NAMES",
    "IMMUTABLE_JOB_ATTRS",
    "PROTECTED_JOB_ATTRS",
    "SYSTEM_JOB_MACHINE_ATTRS",
    "ADD_SIGNIFICANT_ATTRIBUTES",
    "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS",
)
STARTD_PARAMETERS = ("START", "STARTD_ATTRS")
NEGOTIATOR_PARAMETERS = ("NEGOTIATOR_PRE_JOB_RANK",)
"""The parameters of schedds, startds and the negotiator whose current values the texts show."""


_LEAST_SECONDS = {"max_age": 1, "wait": 0, "auto_settle": 0, "rounding_floor": 1}


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """The choices of a pool's operator; the text for schedds has them as knobs (macros) at its top.

    Jobs do not use facts older than ``max_age``: the daemon's limit (6 h) less 15 min. A ``wait`` job waits
    for its data for the time ``wait``. An ``auto`` job waits for ``auto_settle`` until its datasets are
    published; then it decides by the estimates, if there are any. The schedd rounds the end of a wait up to a
    multiple of ``rounding_floor``, so that jobs share an autocluster.
    ``others_weight`` (per second) keeps jobs without datasets away from sites with queued jobs for their data.
    ``readers`` jobs of mode auto may read from one source at a time.
    ``glideinwms``: jobs carry their datasets also as a text, because a GlideinWMS frontend cannot read lists.
    """

    default_mode: Mode = "auto"
    default_scope: str | None = None
    max_age: timedelta = timedelta(hours=6) - timedelta(minutes=15)
    wait: timedelta = timedelta(hours=1)
    auto_settle: timedelta = timedelta(minutes=10)
    rounding_floor: timedelta = timedelta(minutes=5)
    others_weight: float = 1e6
    readers: int = 10
    glideinwms: bool = False

    def __post_init__(self) -> None:
        """Check that a schedd can parse the values of the policy.

        Raises:
            ValueError: one sentence with the field's name.
        """
        if self.default_mode not in MODES:
            raise ValueError(f"default_mode must be one of {', '.join(MODES)}, not {self.default_mode!r}")
        if self.default_scope is not None and not re.fullmatch(r"[A-Za-z0-9._/@=+~-]+", self.default_scope):
            raise ValueError(
                f"default_scope {self.default_scope!r} is not a scope: use letters, digits and . _ / @ = + ~ -"
            )
        if not 0 <= self.others_weight <= 1e9:
            raise ValueError(f"others_weight must be from 0 to 1e9, not {self.others_weight}")
        if not 1 <= self.readers <= 1_000_000:
            raise ValueError(f"readers must be from 1 to 1000000, not {self.readers}")
        for name, least in _LEAST_SECONDS.items():
            if not least <= getattr(self, name).total_seconds() <= MAX_WAIT_SECONDS:
                raise ValueError(f"{name} must be from {least} s to {MAX_WAIT_SECONDS} s")


# --- the texts ----------------------------------------------------------------------------------------


def schedd_config(
    policy: PoolPolicy, current_values: Mapping[str, str | None], *, rank_only: bool = False
) -> str:
    """Return the text for schedds: knobs, job transform, submit requirements, immutable attributes.

    Args:
        policy: the operator's choices.
        current_values: the present values of SCHEDD_PARAMETERS at this schedd; a value that could not be read
            is None or absent. The text shows these values as comments, without the hydrator's own parts. The
            settings in the text extend the values by ``X = $(X) …``, which also works for compiled-in defaults.
        rank_only: the text only ranks slots for the jobs; it changes no Requirements and refuses no job.
    """
    return "\n".join(
        (
            _format_header("the schedds", rank_only),
            *_comment_current_values(SCHEDD_PARAMETERS[:-1], current_values),
            _format_knobs(policy, rank_only),
            SHARED_MACROS,
            format_transforms(rank_only),
            _format_submit_requirements(rank_only),
            ATTRIBUTE_LISTS,
            *(() if rank_only else (MATCH_LIMITS,)),
            LEFTOVERS_ADVICE,
        )
    )


def startd_config(
    current_values: Mapping[str, str | None],
    *,
    rank_only: bool = False,
    policy: PoolPolicy = PoolPolicy(),
) -> str:
    """Return the text for startds that run the hook.

    With this text, a startd without the hook would refuse every job with datasets.
    """
    clause = f"START = ($(START)) && {START_CLAUSE}"
    return "\n".join(
        (
            _format_header("the startds that run the hook", rank_only),
            *_comment_current_values(STARTD_PARAMETERS, current_values),
            STARTD,
            f"# (left out with --rank-only) {clause}" if rank_only else clause,
            *(() if rank_only else (startd_attributes(policy),)),
            "",
        )
    )


def startd_attributes(policy: PoolPolicy = PoolPolicy()) -> str:
    """Return the part of the startds' text that adds the clauses and the limit of readers to slot ads.

    Files in ``deploy/`` for startds that have START elsewhere repeat it (scripts/startd_files.py).
    """
    return STARTD_EXPRESSIONS.format(readers=count_readers(policy.readers))


def negotiator_config(
    current_values: Mapping[str, str | None],
    *,
    rank_only: bool = False,
    policy: PoolPolicy = PoolPolicy(),
) -> str:
    """Return the text for the negotiator: data locality counts more than the size of a slot."""
    value = current_values.get("NEGOTIATOR_PRE_JOB_RANK")
    previous = (
        ""
        if value is not None and not remove_our_parts("NEGOTIATOR_PRE_JOB_RANK", value).strip()
        else " + ($(NEGOTIATOR_PRE_JOB_RANK))"
    )
    return "\n".join(
        (
            _format_header("the negotiator", rank_only),
            *_comment_current_values(NEGOTIATOR_PARAMETERS, current_values),
            NEGOTIATOR.format(
                term=PRE_JOB_TERM,
                found=previous,
                others_weight=f"{policy.others_weight:.17g}",
            ),
            *(() if rank_only else (READ_LIMIT.format(readers=count_readers(policy.readers)),)),
        )
    )


def removal_texts(current_values: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
    """Return for ``schedd``, ``startd`` and ``negotiator`` comments on how to remove the pool configuration.

    The comments name the parameters that still have the hydrator's parts. The comments have no setting: if the
    operator deletes the printed text, every parameter has its earlier value again.

    Args:
        current_values: the present values by role, as for :func:`schedd_config`.
    """
    roles = {
        "schedd": ("the schedds", SCHEDD_PARAMETERS[:-1]),
        "startd": ("the startds", STARTD_PARAMETERS),
        "negotiator": ("the negotiator", NEGOTIATOR_PARAMETERS),
    }
    return {
        role: "\n".join(
            (REMOVAL.format(where=where), _comment_remaining_parts(names, current_values.get(role, {})), "")
        )
        for role, (where, names) in roles.items()
    }


def allow_line(daemon: str, level: str, identity: str) -> str:
    """Build the configuration line that gives *identity* the authorization *level* at *daemon*.

    If ``DAEMON.ALLOW_LEVEL`` is set, HTCondor does not use ``ALLOW_LEVEL``. A line with *identity* alone
    would lock out the pool's own daemons, so this line adds *identity* to the earlier value. The line has no
    default inside a default, because HTCondor would leave a stray parenthesis in the value.
    """
    own = f"{daemon.upper()}.ALLOW_{level}"
    return f"{own} = $({own}:$(ALLOW_{level})) {identity}"


def remove_our_parts(name: str, value: str) -> str:
    """Return the *value* of parameter *name* without the hydrator's parts."""
    if name == "START":
        return _unwrap(value, rf"\((.*)\) && {re.escape(START_CLAUSE)}")
    if name == "NEGOTIATOR_PRE_JOB_RANK":
        weight = re.escape("$(DATALOCALITY_OTHERS_WEIGHT)")
        term = re.escape(PRE_JOB_TERM).replace(weight, r"[^ ()]*(?:\(\w+\))?")
        return _unwrap(value, rf"{term}(?: \+ \((.*)\))?")
    if name == "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS":
        return ""  # empty is HTCondor's default
    words = re.split(r"[\s,]+", value.strip())
    our_words = {word.lower() for word in OUR_LIST_ITEMS.get(name, ())}
    if our_words.isdisjoint(word.lower() for word in words):
        return value
    return " ".join(word for word in words if word.lower() not in our_words)


# --- parts of the texts ----------------------------------------------------------------------------


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())


def _unwrap(value: str, layer: str) -> str:
    """Remove the layers around *value* that match the regex *layer*; its first group is the inner value."""
    while wrapped := re.fullmatch(layer, value.strip(), re.DOTALL):
        value = wrapped[1] or ""
    return value


def _format_header(where: str, rank_only: bool) -> str:
    form = (
        "rank only: DataLocality only ranks slots for jobs; every job may use every slot, and the schedd refuses no job"
        if rank_only
        else "in force"
    )
    return HEAD.format(where=where, form=form)


def _comment_current_values(names: Sequence[str], current_values: Mapping[str, str | None]) -> list[str]:
    """Return a comment line for each of *names* with its value, but without the hydrator's parts."""
    lines = []
    for name in names:
        value = current_values.get(name)
        text = "(could not be read)" if value is None else " ".join(remove_our_parts(name, value).split())
        lines.append(f"#   {name} = {text}".rstrip())
    return ["# Current values, which this text extends:", *lines, ""]


def _comment_remaining_parts(names: Sequence[str], current_values: Mapping[str, str | None]) -> str:
    """Return a comment that lists the parameters *names* whose current value has parts of the hydrator."""
    values = {name: value for name in names if (value := current_values.get(name)) is not None}
    names_with_parts = [name for name, value in values.items() if remove_our_parts(name, value) != value]
    if names_with_parts:
        return f"# Parameters that still have parts of DataLocality: {', '.join(names_with_parts)}."
    return (
        "# No parameter has a part of DataLocality." if values else "# The current values could not be read."
    )


_PLACING_KNOBS = ("DEFAULT_MODE", "WAIT", "AUTO_SETTLE", "STEP")
"""Knobs of the job's Requirements; with ``--rank-only`` the text does not have these knobs."""


def _format_knobs(policy: PoolPolicy, rank_only: bool) -> str:
    """Return the macro definitions with the values of *policy*, each below a comment line."""
    knobs: dict[str, tuple[str | int, str]] = {
        "DEFAULT_MODE": (
            policy.default_mode,
            "the mode of jobs without DataLocality: auto, require or wait",
        ),
        "WAIT": (_seconds(policy.wait), "s: a `wait` job waits this long for a site with its data"),
        "AUTO_SETTLE": (
            _seconds(policy.auto_settle),
            "s: an `auto` job without estimates waits this long until its datasets are published, then it runs anywhere",
        ),
        "STEP": (
            _seconds(policy.rounding_floor),
            "s: the end of a wait is a multiple of this, of 1/12 of a longer wait or 1/2 of a shorter one: jobs share autoclusters",
        ),
        "DEFAULT_SCOPE": (
            policy.default_scope or "",
            "the scope for dataset names without a scope; if it is empty, the schedd refuses such names",
        ),
        "MAX_AGE": (
            _seconds(policy.max_age),
            "s: jobs do not use facts that are older; the default is the daemon's limit (6 h) less 15 min",
        ),
        "GLIDEINWMS": (
            str(policy.glideinwms).lower(),
            "true: jobs carry RequiredDatasetsCSV, the datasets as one text, which a GlideinWMS frontend needs",
        ),
    }
    lines = ["# --- knobs"]
    for name, (value, comment) in knobs.items():
        if not (rank_only and name in _PLACING_KNOBS):
            lines += [f"# {comment}", f"DATALOCALITY_{name} = {value}".rstrip()]
    return "\n".join((*lines, ""))


def _format_submit_requirements(rank_only: bool) -> str:
    names = [name for name in SUBMIT_REQUIREMENTS if not (rank_only and name == "DataLocalityTransform")]
    lines = [
        "# --- submit requirements, each with the reason of a refusal",
        f"SUBMIT_REQUIREMENT_NAMES = $(SUBMIT_REQUIREMENT_NAMES) {' '.join(names)}",
    ]
    for name in names:
        test, reason = SUBMIT_REQUIREMENT_TEXTS[name]
        exempt = EXEMPT_MACROS.get(name, "$(DATALOCALITY_EXEMPT)")
        lines.append(f"SUBMIT_REQUIREMENT_{name} = {exempt} || {test}")
        lines.append(f"SUBMIT_REQUIREMENT_{name}_REASON = {reason}")
        if rank_only or name == WARNING_ONLY:
            lines.append(f"SUBMIT_REQUIREMENT_{name}_IS_WARNING = true")
    return "\n".join((*lines, ""))
