"""ClassAd expressions of the contract: the match logic in slots, and the short clauses of jobs.

A site's ad has an entry for each demanded set of datasets, and each job with datasets has the key of its
set. The logic that looks the key up is in the *slot*, once for all jobs: the hook prints SLOT_EXPRESSIONS
(the slot merge too). A job carries a clause (:data:`HERE`) and a rank of ten words, which are the same for
all jobs of a mode. The negotiator evaluates both at a match, the schedd when it reuses a claim, and the
startd in ``START``. Pure texts.

Expressions of slots name the job's key, its oldest acceptable age and the rounded end of its wait, and no
other attribute of jobs: a value of its own in each job would make an autocluster for each job, because the
schedd has to send these attributes to the negotiator (SIGNIFICANT_ATTRIBUTES). No expression is undefined or
an error for any job and slot (tests/properties/test_expressions.py).
"""

import re
from typing import Final, Literal

from hydrator.domain.ads import contract

Mode = Literal["auto", "require", "wait"]
MODES: tuple[Mode, ...] = ("auto", "require", "wait")

SIGNIFICANT_ATTRIBUTES: Final = (contract.KEY, contract.MAX_AGE, contract.ANY_AFTER)
"""Job attributes that only expressions of slots name, so the schedd does not see that a match needs them."""

_SHARE = "MY.DataLocalitySets[TARGET.DataLocalityKey]"
_FRESH = (
    "time() - (MY.DataLocalitySetsAsOf[TARGET.DataLocalityKey] ?: MY.DataLocalityAsOf)"
    " < TARGET.DataLocalityMaxAge"
)
"""The facts of the job's set are not too old; undefined or an error at a slot without facts."""
_READ = "MY.DataLocalityReadSeconds[TARGET.DataLocalityKey]"
_QUEUE = "MY.DataLocalityQueueSeconds[TARGET.DataLocalityKey]"
LOCAL_EXPRESSION: Final = f"({_SHARE} >= 1.0 && {_FRESH}) =?= true"
"""The slot's site has all datasets of the job on disk, and the facts are not too old."""
KNOWN_EXPRESSION: Final = f"({_SHARE} >= 0.0 && {_FRESH}) =?= true"
"""The daemon has published the job's set at this slot, so the job need not wait for it to be published."""
ESTIMATED_EXPRESSION: Final = f"(time() < MY.DataLocalityEstimatesUntil && {_QUEUE} >= 0) =?= true"
"""The slot has estimates for the job, and they are still valid."""
CHEAPER_EXPRESSION: Final = f"({_READ} + (MY.DataLocalityOwnQueueSeconds ?: 0) < {_QUEUE}) =?= true"
"""Reading from elsewhere ends sooner than waiting for a slot beside the data.

A slot with estimates but without ReadSeconds cannot reach the data, or the source takes no further readers.
"""
_WAITED = "time() >= TARGET.DataLocalityAnyAfter"
KNOWN_FLOOR, UNKNOWN_FLOOR = -800_001.0, -1_000_000.0
"""``DataLocalityRank`` (s): the lowest with a known read time, and the one of a slot with nothing known.

A read of more than 800,000 s (9 days) ranks as unknown, so a known read always ranks above an unknown one.
"""
MAX_SOURCE_CHARS = 60
"""Longest name of a source in ``DataLocalityOffer``.

The text leaves out a longer name, and one with a quote, a backslash, a dollar sign or a letter beyond ASCII.
"""


def _offer() -> str:
    source = "MY.DataLocalityReadFrom[TARGET.DataLocalityKey]"
    is_plain = f'regexp("^[]^-~ !#%-[]{{1,{MAX_SOURCE_CHARS}}}$", {source}) =?= true'
    reading = f'strcat("read ", {_READ}, " s", {is_plain} ? strcat(" from ", {source}) : "", ", ")'
    numbers = f'strcat(isInteger({_READ}) =?= true ? {reading} : "", "queue ", {_QUEUE}, " s")'
    is_estimated = f"{ESTIMATED_EXPRESSION} && isInteger({_QUEUE}) =?= true"
    return f'MY.DataLocalityLocal =?= true ? "local" : {is_estimated} ? {numbers} : ""'


SLOT_EXPRESSIONS: Final = {
    contract.LOCAL: LOCAL_EXPRESSION,
    contract.AUTO: (
        f"MY.DataLocalityLocal =?= true || ifThenElse({ESTIMATED_EXPRESSION}, {CHEAPER_EXPRESSION},"
        f" {KNOWN_EXPRESSION} || ({_WAITED}) =?= true)"
    ),
    contract.RANK: (
        f"MY.DataLocalityLocal =?= true ? 0.0 : (time() < MY.DataLocalityEstimatesUntil"
        f" && {_READ} >= 0 && {_READ} <= 800000) =?= true"
        f" ? ({KNOWN_EXPRESSION} ? {_SHARE} : 0.0) - 1.0 - {_READ}"
        f" : ({KNOWN_EXPRESSION} ? 100000.0 * {_SHARE} : 0.0) - 1000000.0"
    ),
    contract.OFFER: _offer(),
}
"""The attributes with the match logic, with the slot as MY and the job as TARGET.

- ``DataLocalityLocal`` (boolean): all datasets of the job are here, and the facts are fresh.
- ``DataLocalityAuto`` (boolean): a job of mode auto may start here.
- ``DataLocalityRank`` (real, s), -1e6 to 0: 0 where all datasets are, else minus the seconds to read the
  rest, less by a second at most: of two slots with one class of ReadSeconds the one with more local bytes
  ranks higher. Without an estimate it is -1e6 plus 1e5 times the share of the set's bytes here.
- ``DataLocalityOffer`` (string): the estimates for the job, as ``read 240 s from UK, queue 720 s``; ``local``
  if all data is here, empty without valid estimates. It has no quotes and no backslashes: START_TEXT puts it
  into the job's ad, and HTCondor holds a job whose text it cannot expand.

The hook has the same texts (tests/unit/test_hook_contracts.py).
"""

HERE: Final[dict[Mode, str]] = {
    "auto": "(TARGET.DataLocalityAuto ?: (time() >= MY.DataLocalityAnyAfter)) =?= true",
    "require": "TARGET.DataLocalityLocal =?= true",
    "wait": "TARGET.DataLocalityLocal =?= true || time() >= MY.DataLocalityAnyAfter",
}
"""``DataLocalityHere`` of jobs by mode, as the schedd's transform sets it.

At a slot without the slot expressions a job of mode auto is matched when its wait is over.
"""
REQUIREMENT: Final = "(MY.DataLocalityHere =!= false)"
"""The clause of Requirements; ``hydrator submit`` writes it, else the schedd's transform adds it.

It is true at a schedd without the transform, which does not set ``DataLocalityHere``.
"""
JOB_RANK: Final = f"TARGET.DataLocalityRank ?: {UNKNOWN_FLOOR}"
"""``DataLocalityRank`` of jobs: the slot's rank, or the floor."""
START_TEXT: Final = r'"$$([TARGET.DataLocalityOffer ?: \"\"])"'
"""``DataLocalityStart`` of jobs: the schedd expands it with the slot of each start.

The schedd keeps the result in ``MATCH_EXP_DataLocalityStart``. At a slot without ``DataLocalityOffer`` it is
empty.
"""


def swap_sides(expression: str) -> str:
    """Return *expression* for the other side of a match: MY becomes TARGET, and TARGET becomes MY."""
    sides = {"MY": "TARGET", "TARGET": "MY"}
    return re.sub(r"\b(MY|TARGET)\.", lambda side: f"{sides[side[1]]}.", expression)
