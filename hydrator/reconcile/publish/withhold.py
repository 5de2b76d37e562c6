"""Withheld sites: leave published ads unchanged while a daemon that lost its state reads it again.

A daemon without its state knows neither the demand of a silent schedd nor the replicas of a silent
catalogue. A published ad of a site that the state does not have was made of both. So the ad is left
unchanged until all schedds and catalogues have answered, or for a limited time.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from hydrator.domain.model import Seen, Site, Survey
from hydrator.reconcile.evaluate import Answer, Answers, ReconcilePolicy
from hydrator.reconcile.snapshot.memory import CatalogueMemory
from hydrator.reconcile.state import ReconcileState


class Withholding:
    """Chooses the sites to withhold, for ``max_withhold`` at most from the first cycle that withholds one."""

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
            state: the state that the last cycle left.
            answers: those of this cycle, by catalogue.
            published_sites: the sites that any publisher shows.
            unanswered_sources: sources of demand, such as ``schedd ap1``, without an answer since the
                state was lost.
            now: aware UTC time of this cycle.
        """
        known_sites = state.ads.keys() | state.rollbacks.keys()
        lost_sites = sorted(
            site for site in published_sites if site not in known_sites and not self._policy.is_retired(site)
        )
        reason = _choose_reason(state, answers, unanswered_sources) if lost_sites else None
        if reason is None:
            self._started_at = None
            return {}
        self._started_at = self._started_at or now
        is_over = abs(now - self._started_at) >= self._policy.max_withhold
        return {} if is_over else dict.fromkeys(lost_sites, reason)


def _choose_reason(state: ReconcileState, answers: Answers, unanswered_sources: Sequence[str]) -> str | None:
    """Return the sentence that names the first source without an answer; None if all have answered."""
    reasons = [f"the demand of {name} is not known yet" for name in unanswered_sources]
    reasons += [
        f"catalogue {name} has not answered for everything yet"
        for name, answer in answers.items()
        if not _has_complete_memory(state.memories.get(name), answer)
    ]
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}; what is published stays as it is" if reasons else None


def _has_complete_memory(memory: CatalogueMemory | None, answer: Answer) -> bool:
    """Return True if the catalogue has ever answered for every dataset that it was asked about."""
    records = memory.records if memory else {}
    if isinstance(answer, Survey):
        return all(isinstance(reading, Seen) or did in records for did, reading in answer.readings.items())
    return bool(memory and memory.answered_at)
