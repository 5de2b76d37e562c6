"""Poller of the schedds: query the demand of their queues, and record which schedds answered."""

from collections.abc import Mapping

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PoolError
from hydrator.domain.model import ScheddDemand, Unseen
from hydrator.domain.pool_ports import Queues
from hydrator.reconcile.demand import DemandMemory

ScheddAnswers = Mapping[str, ScheddDemand | Unseen] | str
"""The demand by schedd; or, as text, the reason why the collector could not list the schedds."""
_PART = "the query of schedds"


class DemandPoller:
    """A poller of the schedds. Only :meth:`query` is thread-safe.

    Args:
        queues: the schedds' queues; None if only pins and patterns name datasets.
        bugs: counts and logs exceptions that *queues* should not raise.
    """

    def __init__(self, queues: Queues | None, bugs: BugReporter) -> None:
        self._queues = queues
        self._bugs = bugs
        self.answers: Mapping[str, ScheddDemand | Unseen] = {}
        self.error: str | None = None
        self._answered_schedds: set[str] = set()
        self._has_listed_schedds = False

    def query(self) -> ScheddAnswers:
        """Query the schedds; return their answers for :meth:`record`. The query may be slow."""
        try:
            answers = self._queues.read_demand() if self._queues else {}
        except PoolError as error:
            return str(error)
        except BaseException as error:  # noqa: BLE001 - a bug in this query must not stop the cycle
            return self._bugs.report(_PART, error)
        self._bugs.mark_resolved(_PART)
        return answers

    def record(self, answers: ScheddAnswers, memory: DemandMemory) -> None:
        """Store *answers*; if the collector did not list the schedds, store Unseen for each known schedd."""
        self.error = answers if isinstance(answers, str) else None
        self._has_listed_schedds = self._has_listed_schedds or not self.error
        if isinstance(answers, str):
            known_schedds = self.answers.keys() | {jobs.schedd for jobs in memory.entries}
            answers = {schedd: Unseen(answers) for schedd in known_schedds}
        self.answers = answers
        self._answered_schedds |= {
            schedd for schedd, answer in self.answers.items() if isinstance(answer, ScheddDemand)
        }

    def unanswered_sources(self, memory: DemandMemory) -> list[str]:
        """Return the names, such as ``schedd ap1``, of schedds without an answer and without saved demand.

        If the collector has never listed the schedds, return ``all schedds``.
        """
        known_schedds = self._answered_schedds | {jobs.schedd for jobs in memory.entries}
        if self._queues and not self._has_listed_schedds:
            return ["all schedds"]
        return sorted(
            f"schedd {schedd}"
            for schedd, answer in self.answers.items()
            if isinstance(answer, Unseen) and schedd not in known_schedds
        )
