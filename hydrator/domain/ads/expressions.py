"""ClassAd expressions of the contract: the match logic in slots, and the short clauses of jobs.

A site's ad has an entry for each demanded set of datasets, and each job with datasets has the key of its
set. The logic that looks the key up is in the *slot*, once for all jobs: the hook prints SLOT_EXPRESSIONS
(the slot merge too). A job carries a clause (:data:`HERE`) and a rank of ten words, which are the same for
all jobs of a mode. The negotiator evaluates both at a match, the schedd when it reuses a claim, and the
startd in ``START``. Pure texts.

Expressions of slots name the job's key and lane, its oldest acceptable age and the rounded end of its wait,
and no other attribute of jobs: a value of its own in each job would make an autocluster for each job, because
the schedd has to send these attributes to the negotiator (SIGNIFICANT_ATTRIBUTES). No expression is undefined
or an error for any job and slot (tests/properties/test_expressions.py).
"""

import re
from typing import Final, Literal

from hydrator.domain.ads import contract

Mode = Literal["auto", "require", "wait"]
MODES: tuple[Mode, ...] = ("auto", "require", "wait")

SIGNIFICANT_ATTRIBUTES: Final = (contract.KEY, contract.LANE, contract.MAX_AGE, contract.ANY_AFTER)
"""Job attributes that only expressions of slots name, so the schedd does not see that a match needs them."""

_SHARE = "MY.DataLocalitySets[TARGET.DataLocalityKey]"
_FRESH = (
    "time() - (MY.DataLocalitySetsAsOf[TARGET.DataLocalityKey] ?: MY.DataLocalityAsOf)"
    " < TARGET.DataLocalityMaxAge"
)
"""The facts of the job's set are not too old; undefined or an error at a slot without facts."""
_NAME = 'strcat(TARGET.DataLocalityKey, "~", TARGET.DataLocalityLane)'
OPEN_SECONDS: Final = f"(MY.DataLocalityOpen[TARGET.DataLocalityKey] ?: MY.DataLocalityOpen[{_NAME}])"
"""The seconds of the read of an open set, or of the job's lane of it; else undefined or an error."""
OPEN_SOURCE: Final = f"(MY.DataLocalityReadFrom[TARGET.DataLocalityKey] ?: MY.DataLocalityReadFrom[{_NAME}])"
LOCAL_EXPRESSION: Final = f"({_SHARE} >= 1.0 && {_FRESH}) =?= true"
"""The slot's site has all datasets of the job on disk, and the facts are not too old."""
_KNOWN = f"({_SHARE} >= 0.0) =?= true"
PACED_EXPRESSION: Final = "(time() < MY.DataLocalityOpenUntil) =?= true"
"""The daemon paces the reads of this slot's site now."""
OPEN_EXPRESSION: Final = f"(time() < MY.DataLocalityOpenUntil && {OPEN_SECONDS} >= 0) =?= true"
"""The job's set, or its lane of the set, is open at the slot's site."""
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
    is_plain = f'regexp("^[]^-~ !#%-[]{{1,{MAX_SOURCE_CHARS}}}$", {OPEN_SOURCE}) =?= true'
    reading = f'strcat("read ", {OPEN_SECONDS}, " s", {is_plain} ? strcat(" from ", {OPEN_SOURCE}) : "")'
    is_open = f"{OPEN_EXPRESSION} && isInteger({OPEN_SECONDS}) =?= true"
    return f'MY.DataLocalityLocal =?= true ? "local" : {is_open} ? {reading} : ""'


SLOT_EXPRESSIONS: Final = {
    contract.LOCAL: LOCAL_EXPRESSION,
    contract.AUTO: (
        f"MY.DataLocalityLocal =?= true || {OPEN_EXPRESSION}"
        f" || (({_WAITED}) =?= true && !({PACED_EXPRESSION} && {_KNOWN}))"
    ),
    contract.RANK: (
        f"MY.DataLocalityLocal =?= true ? 0.0 : ({OPEN_EXPRESSION} && {OPEN_SECONDS} <= 800000) =?= true"
        f" ? ({_KNOWN} ? {_SHARE} : 0.0) - 1.0 - {OPEN_SECONDS}"
        f" : (({_SHARE} >= 0.0 && {_FRESH}) =?= true ? 100000.0 * {_SHARE} : 0.0) - 1000000.0"
    ),
    contract.OFFER: _offer(),
}
"""The attributes with the match logic, with the slot as MY and the job as TARGET.

- ``DataLocalityLocal`` (boolean): all datasets of the job are here, and the facts are fresh.
- ``DataLocalityAuto`` (boolean): a job of mode auto may start here: beside its data, or because its set is
  open. After the wait it may start at slots that no daemon paces, or whose daemon does not know its set.
- ``DataLocalityRank`` (real, s), -1e6 to 0: 0 where all datasets are, else minus the seconds of the read
  where the set is open, less by a second at most: of two slots with equal seconds the one with more local
  bytes ranks higher. Where it is not open, -1e6 plus 1e5 times the share of the set's bytes here.
- ``DataLocalityOffer`` (string): ``local`` if all data is here, ``read 240 s from UK`` if the set is open,
  else empty. It has no quotes and no backslashes: START_TEXT puts it into the job's ad, and HTCondor holds
  a job whose text it cannot expand.

The hook has the same texts (tests/unit/test_hook_contracts.py).
"""

HERE: Final[dict[Mode, str]] = {
    "auto": "(TARGET.DataLocalityAuto ?: (time() >= MY.DataLocalityAnyAfter)) =?= true",
    "require": "TARGET.DataLocalityLocal =?= true",
    "wait": "TARGET.DataLocalityLocal =?= true || time() >= MY.DataLocalityAnyAfter",
}
"""``DataLocalityHere`` of jobs by mode, as the schedd's transform sets it.

At a slot without the slot expressions a job of mode auto is matched when its wait is over.
The parentheses after ``?:`` are needed, because it binds closer than ``>=``.
"""
REQUIREMENT: Final = "(MY.DataLocalityHere =!= false)"
"""The clause of Requirements: condor_submit writes it by the pool configuration, else the transform adds it.

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
