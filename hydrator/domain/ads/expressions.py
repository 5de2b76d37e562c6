"""ClassAd expressions of the contract: the match logic in slots, and the short clauses of jobs.

A site's ad has an entry for each demanded set of datasets, and each job with datasets has the key of its
set. The logic that looks the key up is in the *slot*, once for all jobs: SLOT_EXPRESSIONS are texts of the
hook, which is one file and prints them (the slot merge too). A job carries a clause (:data:`HERE`) and a rank
of ten words, which are the same for all jobs of a mode. The negotiator evaluates both at a match, the schedd
when it reuses a claim, and the startd in ``START``. Pure texts.

Expressions of slots name the job's key and lane, its oldest acceptable age and the rounded end of its wait,
and no other attribute of jobs: a value of its own in each job would make an autocluster for each job, because
the schedd has to send these attributes to the negotiator (SIGNIFICANT_ATTRIBUTES). No expression is undefined
or an error for any job and slot (tests/properties/test_expressions.py).
"""

import re
from typing import Final, Literal

from hydrator import startd_cron
from hydrator.domain.ads import contract

Mode = Literal["auto", "require", "wait"]
MODES: tuple[Mode, ...] = ("auto", "require", "wait")

SIGNIFICANT_ATTRIBUTES: Final = (contract.KEY, contract.LANE, contract.MAX_AGE, contract.ANY_AFTER)
"""Job attributes that only expressions of slots name, so the schedd does not see that a match needs them."""

OPEN_SECONDS, OPEN_SOURCE = startd_cron.READ_SECONDS, startd_cron.READ_SOURCE
"""The seconds and the source of the read of an open set, or of the job's lane; else no number, no text."""
PACED_EXPRESSION, OPEN_EXPRESSION = startd_cron.IS_PACED, startd_cron.IS_OPEN
"""The daemon paces the reads of the slot's site now; the job's set, or its lane of the set, is open there."""
KNOWN_FLOOR, UNKNOWN_FLOOR = -800_001.0, -1_000_000.0
"""``DataLocalityRank`` (s): the lowest with a known read time, and the one of a slot with nothing known.

A read of more than 800,000 s (9 days) ranks as unknown, so a known read always ranks above an unknown one.
"""
SLOT_EXPRESSIONS: Final = startd_cron.EXPRESSIONS
"""The attributes with the match logic, with the slot as MY and the job as TARGET.

- ``DataLocalityLocal`` (boolean): all datasets of the job are here, and the facts are fresh.
- ``DataLocalityAuto`` (boolean): a job of mode auto may start here: beside its data, or because its set is
  open. After the wait it may start at slots that no daemon paces, or whose daemon does not know its set.
- ``DataLocalityRank`` (real, s), -1e6 to 0: 0 where all datasets are, else minus the seconds of the read
  where the set is open, less by a second at most: of two slots with equal seconds the one with more local
  bytes ranks higher. Where it is not open, -1e6 plus 1e5 times the share of the set's bytes here.
- ``DataLocalityOffer`` (string): ``local`` if all data is here, ``read 240 s from UK`` if the set is open,
  else empty. It has no quotes and no backslashes: START_TEXT puts it into the job's ad, and HTCondor holds
  a job whose text it cannot expand. So it leaves out a source's name with such a character, with a dollar
  sign, beyond ASCII or of more than 60 characters.
"""
LOCAL_EXPRESSION: Final = SLOT_EXPRESSIONS[contract.LOCAL]

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
