"""The pool's own expressions in virtual time, evaluated once for each different case.

The texts are those that jobs get (``hydrator/submit/expressions.py``) and that startds get (START_CLAUSE).
``time()`` is the wall clock, so :func:`in_virtual_time` replaces each ``time()`` by ``MY.ReplayTime`` and
changes nothing else.

A text depends on the slot's ad only through the entries of the job's key and the site's own queue, and on the
time only through comparisons with three instants: the age limit of the facts, the end of the estimates, and
the end of the job's wait. So a :class:`Matcher` evaluates a text once for each combination of entries (an
:class:`AdEntry`) and of the answers to these comparisons, and remembers the result.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hydrator.submit.expressions import KEYED_HERE, KEYED_RANK, LIMIT_EXPRESSIONS, Mode
from hydrator.submit.pool_config import PRE_JOB_TERM, START_CLAUSE

TIME_CALL = "time()"
VIRTUAL_TIME = "MY.ReplayTime"
FRESH, ESTIMATED, RELEASED, SETTLED = 1, 2, 4, 8
"""Bits of a time class: the facts are not too old; the estimates are valid; the job's wait has ended; the
job's set is settled, so that also the ads of sites without all its datasets have its share."""
TIME_BITS = 4
READER_PAUSE_SECONDS, READER_CLAIM_SECONDS = 10, 300
"""Times in DataLocalityTakesReader: after a job's start, its machine takes no job with a read limit for the
first time; a claim takes such jobs only for the second time."""
TURN_NUMBERS = 500
"""The numbers of turns begin again after so many turns."""
_WEIGHT_MACRO = "$(DATALOCALITY_OTHERS_WEIGHT)"
_LIMIT_NAME = re.compile(r"DataLocality\.from_.*_(?P<seconds>\d+)_\d+:(?P<weight>\d+)")

_NOW, _MAX_AGE = 1_000_000, 20_700
_KEY = "k"


class AdEntry(NamedTuple):
    """The entries of one set of datasets in a site's ad; None if the ad does not have the entry."""

    share: float | None = None
    read_seconds: int | None = None
    queue_seconds: int | None = None
    own_queue_seconds: int = 0


class ExpressionEvaluator(Protocol):
    """An evaluator of ClassAd expressions."""

    def evaluate(self, text: str, my: str, target: str) -> object:
        """Return the value of *text* with the ads *my* and *target*; None if it is undefined or an error."""


def rank_of_others(evaluator: ExpressionEvaluator, own_queue_seconds: int, others_weight: float) -> float:
    """Return the negotiator's rank of a slot for jobs without datasets, the larger the better.

    Args:
        evaluator: evaluates the negotiator's term.
        own_queue_seconds: the queue of the jobs with data at the slot's site, as the site's ad has it.
        others_weight: the pool's ``DATALOCALITY_OTHERS_WEIGHT``.
    """
    term = in_virtual_time(PRE_JOB_TERM).replace(_WEIGHT_MACRO, f"{others_weight:.17g}")
    slot = slot_ad_text(AdEntry(own_queue_seconds=own_queue_seconds), FRESH | ESTIMATED).removesuffix("]")
    value = evaluator.evaluate(term, f"{slot};ReplayTime={_NOW}]", "[]")
    return float(value) if isinstance(value, int | float) else 0.0


class TurnRules(NamedTuple):
    """Readers of a source, and seconds of the shortest turn: DATALOCALITY_READERS and DATALOCALITY_TURN."""

    readers: int = 10
    least_seconds: int = 64


class ReadLimit(NamedTuple):
    """The concurrency limit of a job that begins to read: the seconds of a turn, and the job's weight."""

    turn_seconds: int
    weight: int


def read_limit(evaluator: ExpressionEvaluator, read_seconds: int, rules: TurnRules) -> ReadLimit | None:
    """Return the limit of a job at a slot with *read_seconds*; None if the job has none.

    Args:
        evaluator: evaluates DataLocalityReadLimit.
        read_seconds: DataLocalityReadSeconds of the job's set, an estimate that is valid.
        rules: the knobs in the startd's configuration.
    """
    text = in_virtual_time(LIMIT_EXPRESSIONS["DataLocalityReadLimit"])
    for knob, value in (("READERS", rules.readers), ("TURN", rules.least_seconds)):
        text = text.replace(f"$(DATALOCALITY_{knob})", str(value))
    entry = AdEntry(share=0.0, read_seconds=read_seconds, queue_seconds=0)
    slot = slot_ad_text(entry, FRESH | ESTIMATED | SETTLED).removesuffix("]")
    slot += f";DataLocalityReadFrom=['{_KEY}'=\"A\"];ReplayTime={_NOW}]"
    name = evaluator.evaluate(text, slot, f'[DataLocalityKey="{_KEY}"]')
    match = _LIMIT_NAME.fullmatch(name) if isinstance(name, str) else None
    return ReadLimit(int(match["seconds"]), int(match["weight"])) if match else None


def in_virtual_time(text: str) -> str:
    """Return *text* with the virtual time instead of the wall clock."""
    return text.replace(TIME_CALL, VIRTUAL_TIME)


def slot_ad_text(entry: AdEntry, time_class: int, key: str = _KEY) -> str:
    """Return the slot ad with *entry* under *key*, with facts and estimates as old as *time_class* says."""
    as_of = _NOW - 1 if time_class & FRESH else _NOW - _MAX_AGE
    until = _NOW + 1 if time_class & ESTIMATED else _NOW
    parts = [f"DataLocalityAsOf={as_of}", f"DataLocalityEstimatesUntil={until}", "DataLocalityVersion=2"]
    is_shown = bool(time_class & SETTLED) or entry.share == 1
    for name, value in (
        ("Sets", entry.share if is_shown else None),
        ("ReadSeconds", entry.read_seconds),
        ("QueueSeconds", entry.queue_seconds),
    ):
        parts.append(f"DataLocality{name}=[" + ("" if value is None else f"'{key}'={value}") + "]")
    if entry.own_queue_seconds:
        parts.append(f"DataLocalityOwnQueueSeconds={entry.own_queue_seconds}")
    return "[" + ";".join(parts) + "]"


def job_ad_text(mode: Mode, time_class: int, key: str = _KEY) -> str:
    """Return the ad of a job of *mode* whose wait has ended if *time_class* says so."""
    any_after = _NOW if time_class & RELEASED else _NOW + 1
    here = in_virtual_time(KEYED_HERE[mode])
    return (
        f'[DataLocalityKey="{key}";DataLocalityMaxAge={_MAX_AGE};ReplayTime={_NOW};'
        f"DataLocalityAnyAfter={any_after};DataLocalityHere={here}]"
    )


@dataclass(slots=True)
class Matcher:
    """A cache of the results of the pool's expressions, for jobs of one mode.

    Attributes:
        evaluator: evaluates a text that the cache does not have.
        mode: the mode of the jobs.
        evaluation_count: the number of evaluations, for the benchmark.
    """

    evaluator: ExpressionEvaluator
    mode: Mode
    evaluation_count: int = 0

    def matches(self, entry: AdEntry, time_class: int) -> bool:
        """Return True if the job's Requirements match the slot, as the negotiator and the schedd evaluate."""
        return self._evaluate("MY.DataLocalityHere", entry, time_class) is True

    def may_start(self, entry: AdEntry, time_class: int) -> bool:
        """Return True if the startd starts the job: START and the job's Requirements hold on the live ad."""
        job, slot = job_ad_text(self.mode, time_class), slot_ad_text(entry, time_class)
        self.evaluation_count += 1
        return self.evaluator.evaluate(START_CLAUSE, slot, job) is True and self.matches(entry, time_class)

    def rank(self, entry: AdEntry, time_class: int) -> float:
        """Return the job's locality rank of the slot, the larger the better."""
        value = self._evaluate(in_virtual_time(KEYED_RANK), entry, time_class)
        return float(value) if isinstance(value, int | float) else 0.0

    def _evaluate(self, text: str, entry: AdEntry, time_class: int) -> object:
        self.evaluation_count += 1
        job, slot = job_ad_text(self.mode, time_class), slot_ad_text(entry, time_class)
        return self.evaluator.evaluate(text, job, slot)
