"""Withheld sites: do not replace published ads while a daemon without state collects its data again.

A daemon that lost its state does not know the demand of a schedd that does not answer, or the replicas of
a catalogue that does not answer. The ad that was published before may have these datasets. So the daemon does
not replace this ad until all schedds and catalogues have answered, or until a time limit ends.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from hydrator.domain.model import Seen, Site, Survey
from hydrator.reconcile.evaluate import Answer, Answers, ReconcilePolicy
from hydrator.reconcile.snapshot.memory import CatalogueMemory
from hydrator.reconcile.state import ReconcileState


class Withholding:
    """The choice of sites whose published ads the daemon does not replace yet.

    The daemon replaces all ads at the latest ``max_withhold`` after the first cycle that withheld a site.
    """

    def __init__(self, policy: ReconcilePolicy) -> None:
        self._policy = policy
        self._started_at: datetime | None = None

    def choose_sites(
        self,
        state: ReconcileState,
        answers: Answers,
        published_sites: Collection[Site],
        unanswered_sources: Sequence[str],
        now: datetime,
    ) -> dict[Site, str]:
        """Return the sites whose published ad must not be replaced yet, each with the reason.

        Args:
            state: the state after the last cycle.
            answers: the answers of this cycle, by catalogue.
            published_sites: the sites with an ad at any publisher.
            unanswered_sources: sources of demand, such as ``schedd ap1``, that have not answered since
                the state was lost.
            now: aware UTC time of this cycle.
        """
        lost_sites = sorted(
            site for site in published_sites if site not in state.ads and not self._policy.is_retired(site)
        )
        reason = _choose_reason(state, answers, unanswered_sources) if lost_sites else None
        if reason is None:
            self._started_at = None
            return {}
        self._started_at = self._started_at or now
        is_over = abs(now - self._started_at) >= self._policy.max_withhold
        return {} if is_over else dict.fromkeys(lost_sites, reason)


def _choose_reason(state: ReconcileState, answers: Answers, unanswered_sources: Sequence[str]) -> str | None:
    """Return a sentence with the first schedd or catalogue without an answer; None if all answered."""
    reasons = [f"the demand of {name} is not known yet" for name in unanswered_sources]
    reasons += [
        f"catalogue {name} has not answered for all datasets yet"
        for name, answer in answers.items()
        if not _has_complete_memory(state.memories.get(name), answer)
    ]
    more = f" (further missing answers: {len(reasons) - 1})" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}; until then the published ad is unchanged" if reasons else None


def _has_complete_memory(memory: CatalogueMemory | None, answer: Answer) -> bool:
    """Return True if *memory* or *answer* has an answer of the catalogue for every dataset of the query."""
    records = memory.records if memory else {}
    if isinstance(answer, Survey):
        return all(isinstance(reading, Seen) or did in records for did, reading in answer.readings.items())
    return bool(memory and memory.answered_at)
