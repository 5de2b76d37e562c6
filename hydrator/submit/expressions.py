"""ClassAd expressions of jobs with datasets: ``DataLocalityHere`` and ``DataLocalityRank``.

A *keyed* job has a ``DataLocalityKey``. The site ads have an entry for each demanded set of datasets, so
the expressions look up one key, and their text is the same for all jobs of a mode. A *bare* job of several
datasets has no key, because a job transform cannot hash. Its ``DataLocalityShares`` is a list with one
look-up for each dataset. Pure.

The negotiator evaluates the expressions with the job as MY and the slot as TARGET. The schedd does too when
it reuses a claim, and the startd when ``START`` refers to ``DataLocalityHere``. No expression is undefined
or an error for any slot (tests/properties/test_keyed_expressions.py).
"""

import re
from typing import Literal

from hydrator.domain.ads.classad import string_literal

Mode = Literal["auto", "require", "wait"]
MODES: tuple[Mode, ...] = ("auto", "require", "wait")

_KEYED_SHARE = "TARGET.DataLocalitySets[MY.DataLocalityKey]"
_FRESH = (
    "(time() - (TARGET.DataLocalitySetsAsOf[MY.DataLocalityKey] ?: TARGET.DataLocalityAsOf))"
    " < MY.DataLocalityMaxAge"
)
"""The facts of the job's set are not too old; undefined or an error at a slot without facts."""
LOCAL_EXPRESSION = f"(({_KEYED_SHARE} >= 1.0 && {_FRESH}) =?= true)"
"""The slot's site has all datasets of the job on disk, and the facts are not too old; never undefined."""
ESTIMATED_EXPRESSION = (
    "((time() < TARGET.DataLocalityEstimatesUntil"
    " && TARGET.DataLocalityQueueSeconds[MY.DataLocalityKey] >= 0) =?= true)"
)
"""The slot has estimates for the job, and they are still valid; never undefined."""
CHEAPER_EXPRESSION = (
    "((TARGET.DataLocalityReadSeconds[MY.DataLocalityKey] + (TARGET.DataLocalityOwnQueueSeconds ?: 0)"
    " < TARGET.DataLocalityQueueSeconds[MY.DataLocalityKey] && TARGET.DataLocalityTakesReader =!= false)"
    " =?= true)"
)
"""Reading from elsewhere ends sooner than waiting for a slot beside the data; never undefined.

A slot with estimates but without ReadSeconds cannot reach the data, or the source takes no further readers.
DataLocalityTakesReader is in LIMIT_EXPRESSIONS.
"""
KNOWN_EXPRESSION = f"(({_KEYED_SHARE} >= 0.0 && {_FRESH}) =?= true)"
"""The daemon has published the job's set at this slot, so the job need not wait for it to be published."""
_WAITED_EXPRESSION = "time() >= MY.DataLocalityAnyAfter"
SETTLED_EXPRESSION = f"({_WAITED_EXPRESSION} || {KNOWN_EXPRESSION})"
KEYED_HERE: dict[Mode, str] = {
    "require": LOCAL_EXPRESSION,
    "wait": f"{LOCAL_EXPRESSION} || {_WAITED_EXPRESSION}",
    "auto": (
        f"{LOCAL_EXPRESSION}"
        f" || ifThenElse({ESTIMATED_EXPRESSION}, {CHEAPER_EXPRESSION}, {SETTLED_EXPRESSION})"
    ),
}
"""``DataLocalityHere`` by mode, for jobs with a ``DataLocalityKey``; the text is the same for all jobs."""

LEAST_LIMITED_SECONDS = 8
"""Jobs with shorter ReadSeconds are not limited: they would wait longer for a negotiation."""
KNOWN_FLOOR, UNKNOWN_FLOOR = -800_001.0, -1_000_000.0
"""``DataLocalityRank`` (s): the lowest with a known read time, and the one of a slot with nothing known.

A read of more than 800,000 s (9 days) ranks as unknown, so a known read always ranks above an unknown one.
"""
_RANK_TEMPLATE = (
    "[s = {share};"
    " r = {read};"
    " v = s >= 1.0 ? 0.0"
    " : (time() < TARGET.DataLocalityEstimatesUntil && r >= 0 && r <= 800000) =?= true"
    " ? s - 1.0 - real(r) : 100000.0 * s - 1000000.0].v"
)
KEYED_RANK = _RANK_TEMPLATE.format(
    share=f"{KNOWN_EXPRESSION} ? min({{1.0, {_KEYED_SHARE}}}) : 0.0",
    read="TARGET.DataLocalityReadSeconds[MY.DataLocalityKey]",
)
"""``DataLocalityRank`` (s) of keyed jobs, from -1e6 to 0: 0 where all datasets are, else minus the seconds.

With a valid estimate it is minus ReadSeconds, and less by a second at most:
of two slots with one class of ReadSeconds the one with more local bytes ranks higher. Without an estimate
it is -1e6 plus 1e5 times the share of the job's bytes at the site, so an unknown slot never ranks above a
known one.
"""

SETS_EXPRESSION = "TARGET.DataLocalitySets"
"""``DatasetsHere`` of bare jobs: the record of the shares at the slot's site.

It is a short name for the look-ups of DataLocalityShares, so that a job's ad is smaller. The names without
MY and TARGET in the expressions of bare jobs are attributes that the transform sets in each of these jobs.
"""
_AS_OF = 'TARGET.DataLocalitySetsAsOf["'
_FIRST, _NEXT, _LAST = (
    string_literal(text) for text in ("{TARGET.DataLocalityAsOf," + _AS_OF, '"],' + _AS_OF, '"]}')
)
OLDEST_EXPRESSION = (
    "isInteger(TARGET.DataLocalityAsOf)"
    " ? (isUndefined(TARGET.DataLocalitySetsAsOf) ? TARGET.DataLocalityAsOf"
    f' : min(eval(strcat({_FIRST}, regexps(",", regexps("(?=[A-Z])",'
    f' regexps("@", join(",", RequiredDatasets), "@!", "fg"), "@", "fg"), {_NEXT}, "fg"), {_LAST}))))'
    " : undefined"
)
"""``DataLocalityOldest`` of bare jobs (Unix s): the time of the oldest fact about one of their datasets.

Most slots have no fact that is older than DataLocalityAsOf. Only for the others the expression makes the
look-ups of the times from the names, so that a job need not carry them. In the negotiator ``unparse`` has no
value, and ``eval`` finds TARGET only within a list. The text has no backslash but before a quote: in a job's
attribute, ``\\\\1`` is two backslashes and a digit.
"""
BARE_FRESH = "(time() - DataLocalityOldest < DataLocalityMaxAge) =?= true"
"""The facts about the datasets of a bare job are not too old; never undefined."""
_BARE_LOCAL = 'allCompare(">=", DataLocalityShares, 1) =?= true'
_BARE_KNOWN = 'allCompare(">=", DataLocalityShares, 0) =?= true'
_BARE_WAITED = "time() >= DataLocalityAnyAfter"
BARE_HERE: dict[Mode, str] = {
    "require": _BARE_LOCAL,
    "wait": f"{_BARE_LOCAL} || {_BARE_WAITED}",
    "auto": f"{_BARE_KNOWN} || {_BARE_WAITED}",
}
"""``DataLocalityHere`` by mode, for bare jobs of several datasets: mode auto uses no estimates for them.

So in mode auto a job matches wherever all its datasets are published, with or without the data.
"""
BARE_RANK = (
    f"{_BARE_LOCAL} ? 0.0 : (sum(DataLocalityShares) >= 0) =?= true"
    " ? min({100000.0, 100000.0 * sum(DataLocalityShares) / size(RequiredDatasets)}) - 1000000 : -1000000.0"
)
"""``DataLocalityRank`` of bare jobs: the share of the datasets, not of the bytes, decides above the floor.

The expression has no nested ad: there, the negotiator of HTCondor 23.9 finds no TARGET for the list's items.
"""


def swap_sides(expression: str) -> str:
    """Return *expression* for the other side of a match: MY becomes TARGET, and TARGET becomes MY."""
    sides = {"MY": "TARGET", "TARGET": "MY"}
    return re.sub(r"\b(MY|TARGET)\.", lambda side: f"{sides[side[1]]}.", expression)


def _offer_expression() -> str:
    read, source, queue = (
        f"MY.DataLocality{name}[TARGET.DataLocalityKey]"
        for name in ("ReadSeconds", "ReadFrom", "QueueSeconds")
    )
    is_plain = f'regexp("^[]^-~ !#%-[]{{1,{MAX_SOURCE_CHARS}}}$", {source}) =?= true'
    reading = f'strcat("read ", {read}, " s", {is_plain} ? strcat(" from ", {source}) : "", ", ")'
    numbers = f'strcat(isInteger({read}) =?= true ? {reading} : "", "queue ", {queue}, " s")'
    is_estimated = f"{swap_sides(ESTIMATED_EXPRESSION)} && isInteger({queue}) =?= true"
    return f'{swap_sides(LOCAL_EXPRESSION)} ? "local" : {is_estimated} ? {numbers} : ""'


MAX_SOURCE_CHARS = 60
"""Longest name of a source in ``DataLocalityOffer``.

The text leaves out a longer name, and one with a quote, a backslash, a dollar sign or a letter beyond ASCII.
"""
OFFER_EXPRESSION = _offer_expression()
"""``DataLocalityOffer`` of slots: the estimates for the job, as ``read 240 s from UK, queue 720 s``.

The text is ``local`` if all data is here, and empty without valid estimates. It is a string for any slot and
any job, without quotes and backslashes: START_TEXT puts it into the job's ad, and HTCondor holds a job whose
text it cannot expand.
"""
START_TEXT = r'"$$([TARGET.DataLocalityOffer ?: \"\"])"'
"""``DataLocalityStart`` of jobs: the schedd expands it with the slot of each start.

The schedd keeps the result in ``MATCH_EXP_DataLocalityStart``. At a slot without ``DataLocalityOffer`` it is
empty.
"""

SLOT_EXPRESSIONS = {
    "DataLocalityLocal": swap_sides(LOCAL_EXPRESSION),
    "DataLocalityAuto": swap_sides(KEYED_HERE["auto"]),
    "DataLocalityOffer": OFFER_EXPRESSION,
}
"""Slot attributes from the startd's configuration: the clauses of keyed jobs, with the slot as MY.

HTCondor stores such an expression once for all slots. A schedd stores each expression of each job, at 300
bytes for each operator and name: the clause of mode auto takes 20 kB as an expression, and 1 kB as a text.
"""


_READ = "MY.DataLocalityReadSeconds[TARGET.DataLocalityKey]"
_IS_LIMITED = f"({_READ} >= {LEAST_LIMITED_SECONDS} && time() < MY.DataLocalityEstimatesUntil) =?= true"
_TURN = f"{_READ} * max({{8, $(DATALOCALITY_READERS)}}) / 16"
_READERS_OF_TURN = re.compile(r"max\(\s*\{\s*8\s*,\s*(\d+)\s*\}\s*\)")
_LONGER = f"max({{$(DATALOCALITY_TURN), {_TURN}}})"
READ_LIMIT_ATTRIBUTE = "DataLocalityReadLimit"
LIMIT_EXPRESSIONS = {
    "DataLocalityTakesReader": (
        f'{_IS_LIMITED} ? ifThenElse(MY.State =?= "Claimed", time() - MY.EnteredCurrentState < 300,'
        " (time() - max(MY.ChildEnteredCurrentState) < 10) =!= true) : true"
    ),
    READ_LIMIT_ATTRIBUTE: (
        f'{_IS_LIMITED} ? strcat("DataLocality.from_",'
        ' regexps("[^A-Za-z0-9]", MY.DataLocalityReadFrom[TARGET.DataLocalityKey], "_", "fg"),'
        f' "_", string({_LONGER}), "_", string(time() / {_LONGER} % 500),'
        f' ":", string(max({{1, 400 * ({_TURN}) / {_LONGER}}}))) : undefined'
    ),
}
"""Slot attributes from the startd's configuration that limit the jobs that begin to read from one source.

``DataLocalityReadLimit`` is the concurrency limit of a keyed job of mode auto that would read its data here;
undefined for all other jobs. Its name has the source, the length of a turn and the turn's number, so a job
counts only in the turn of its start: later it computes, and no longer reads. The weight is 400, and the limit
is 100 times DATALOCALITY_READERS, so a quarter of the readers begin in a turn. ReadSeconds are at least twice
the seconds of a lone read, so the source serves at least half of these reads in the turn. The daemon counts
the others as readers, which makes ReadSeconds and the turns longer. If the reads need less than the shortest
turn, the weight is lower in proportion. The negotiator keeps each name that it has seen, so the numbers
begin again after 500 turns.

``DataLocalityTakesReader`` is false where a schedd would start a job without the negotiator: on the other
cores of a slot that another job just got (for 10 s), and on a claim that is 300 s old. Only the negotiator
counts limits. Schedds before HTCondor 24.10 do not compare limits that are expressions.
"""


def count_readers(max_readers_per_source: int) -> int:
    """Return the readers of one source in the pool's configuration: at least 4.

    A quarter of them begin in a turn.
    """
    return max(4, max_readers_per_source)


def readers_of_limit(expression: str) -> int | None:
    """Return the readers in a slot's ``DataLocalityReadLimit``; None if the expression has another form."""
    found = _READERS_OF_TURN.search(expression)
    return int(found[1]) if found else None


def _parse_at_match(expression: str) -> str:
    return f'anyCompare("==", eval({string_literal("{" + expression + "}")}), true)'


_COMPACT_LOCAL = f"(TARGET.DataLocalityLocal ?: {_parse_at_match(LOCAL_EXPRESSION)}) =?= true"
COMPACT_HERE: dict[Mode, str] = {
    "require": _COMPACT_LOCAL,
    "wait": f"{_COMPACT_LOCAL} || {_WAITED_EXPRESSION}",
    "auto": f"(TARGET.DataLocalityAuto ?: {_parse_at_match(KEYED_HERE['auto'])}) =?= true",
}
"""``DataLocalityHere`` by mode, as the transform writes it: the value of KEYED_HERE at every slot.

The clause is in the slot, or, for slots without the startd's configuration, a text that is parsed each time.
"""


def _as_printed(expression: str) -> str:
    """Return *expression* as the ClassAd function ``unparse`` prints it: the transform compares the texts."""
    for written, printed in (("=?=", "is"), ("=!=", "isnt"), (" 1.0", " 1"), (" 0.0", " 0"), (", ", ",")):
        expression = expression.replace(written, printed)
    return expression


SUBMITTED_HERE = _as_printed(
    f"MY.DataLocalityTransformed =!= true || {LOCAL_EXPRESSION}"
    ' || MY.DataLocality =!= "require" &&'
    f' ifThenElse(MY.DataLocality =?= "auto" && {ESTIMATED_EXPRESSION}, {CHEAPER_EXPRESSION},'
    f" ({_WAITED_EXPRESSION}) =?= true"
    f' || MY.DataLocality =?= "auto" && {KNOWN_EXPRESSION})'
)
"""``DataLocalityHere`` of ``hydrator submit``: the value of KEYED_HERE[mode] for each mode of the job.

The schedd stores it once for all jobs of a submission, because it is the same for all. It is true before the
schedd's transform has changed the job, and at a schedd without the transform.
"""
