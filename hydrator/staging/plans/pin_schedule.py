"""Schedule of pins: which jobs' data is searched now for rules that end soon."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from hydrator.domain.model import Did, Site
from hydrator.domain.ports.staging import StagingKind

from ..ledger import EntryState, Ledger
from ..needs import LiveNeed, LiveNeeds
from ..view import DataView
from .pin_plan import PIN_INTERVAL, PinPlan, find_pinnable_sites

_Place = tuple[tuple[Did, ...], tuple[Site, ...], bool]


class PinSchedule:
    """The time of the last search, and the jobs that it covered.

    All jobs are searched every PIN_INTERVAL. Jobs with other datasets or other sites are searched at once,
    because their rules may end before the next search. So are the jobs whose data leaves before the search
    after the next one, until a rule keeps it. Data that a request of ours keeps needs no search.
    """

    def __init__(self) -> None:
        self._searched_at: datetime | None = None
        self._searched: frozenset[_Place] = frozenset()
        self._is_complete = False

    def choose(self, needs: LiveNeeds, view: DataView, ledger: Ledger, now: datetime) -> tuple[LiveNeed, ...]:
        """Return the needs to search now; none whose datasets were not seen in this cycle."""
        if view.problem:
            return ()
        own = {
            (one.did, one.site)
            for one in ledger.entries.values()
            if one.state is not EntryState.CANCELLING and (one.is_complete or one.kind is StagingKind.PIN)
        }
        places = {need: _place_of(need, view) for need in needs.current_needs if _is_seen(need, view)}
        places = {need: place for need, place in places.items() if place[1] and not _is_kept(place, own)}
        self._is_complete = self._searched_at is None or now - self._searched_at >= PIN_INTERVAL
        if self._is_complete:
            self._searched = frozenset()
        self._searched &= frozenset(places.values())
        return tuple(need for need, place in places.items() if place not in self._searched)

    def record(self, needs: Iterable[LiveNeed], view: DataView, plan: PinPlan, now: datetime) -> None:
        """Record that *needs* were searched with all facts, and that the result is *plan*."""
        if self._is_complete:
            self._searched_at = now
        latest = now + 2 * PIN_INTERVAL
        done = {
            _place_of(need, view)
            for need in needs
            if not any(plan.ends_at.get(did, latest) < latest for did in need.dids)
        }
        self._searched |= done

    def merge(self, previous: PinPlan, plan: PinPlan, needs: Sequence[LiveNeed]) -> PinPlan:
        """Return what is to be shown: *plan*, and of *previous* what this search did not cover."""
        if self._is_complete:
            return plan
        covered = {need.dids for need in needs}
        dids = {did for each in covered for did in each}
        proposals = [one for one in previous.proposals if not dids & {item.did for item in one.items}]
        others = [one for one in previous.not_pinned if one.dids not in covered]
        return PinPlan(plan.batches, (*proposals, *plan.proposals), (*others, *plan.not_pinned), plan.ends_at)


def _is_seen(need: LiveNeed, view: DataView) -> bool:
    return not any(view.unseen_reason(did) for did in need.dids)


def _place_of(need: LiveNeed, view: DataView) -> _Place:
    return need.dids, find_pinnable_sites(need, view), need.jobs.is_running


def _is_kept(place: _Place, own: set[tuple[Did, Site]]) -> bool:
    """Return whether the requests *own* keep all datasets at one site; for running jobs there is only one."""
    dids, sites, _ = place
    return any(all((did, site) in own for did in dids) for site in sites)
