"""Pure functions that build the answers of /v1/locality from the state of the server."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, SetEstimate
from hydrator.domain.model import DatasetState, Did, Fact, Site, SiteFacts, Snapshot, to_unix
from hydrator.reconcile.ads.set_rows import WHOLE, SetFacts

from ...view import ServerState, total_bytes
from .models import (
    LocalityAtSite,
    LocalityHead,
    LocalityRow,
    LocalitySite,
    SetLocality,
    SetLocalityAtSite,
)
from .request import LocalityRequest

NOT_ANSWERED: Final = "no catalogue has answered for this dataset yet"


class LocalityRows:
    """The rows of one answer, all from the same state.

    Args:
        state: the state of the server.
        snapshot: the facts of this state.
        request: the question.
    """

    def __init__(self, state: ServerState, snapshot: Snapshot, request: LocalityRequest) -> None:
        self._state = state
        self._request = request
        self._estimator = state.set_estimator
        self._demanded = state.demand.dids if state.demand else frozenset()
        given = {did: facts for did, facts in request.facts.items() if did not in self._demanded}
        self._given_dids = frozenset(given).intersection(request.dids)
        if self._given_dids:
            snapshot = _with_given_facts(snapshot, request.dids, given, state.now)
        self._snapshot = snapshot
        sites = sorted(snapshot.sites.items())
        self._sites = [(site, facts) for site, facts in sites if not request.sites or site in request.sites]
        self._names = [site for site, _ in self._sites]

    def build_head(self) -> LocalityHead:
        """Build the first line: the sites, and how old the facts are."""
        return {
            "version": 1,
            "now": to_unix(self._state.now),
            "datasets": len(self._request.dids),
            "estimates_none": self._state.no_estimates_reason,
            "unknown_sites": self._find_unknown_sites(),
            "sites": [self._build_site(site, facts) for site, facts in self._sites],
        }

    def build_row(self, did: Did) -> LocalityRow:
        """Build the row of one dataset; a site without it has a row only if the request names the site."""
        snapshot = self._snapshot
        is_read = self._is_polled(did) and did not in snapshot.unread_dids
        sites = [(site, facts.facts.get(did), facts.as_of) for site, facts in self._sites]
        is_absence_known = is_read and did not in snapshot.unseen_reasons
        if not (is_absence_known and self._request.sites):
            sites = [row for row in sites if row[1] is not None]
        estimates = self._estimate({did}, [site for site, _, _ in sites]) if is_read else {}
        size = snapshot.bytes_total.get(did)
        return {
            "did": did,
            "polled": self._is_polled(did),
            "unseen": self._unseen_reason(did),
            "bytes": size,
            "queue_seconds": _queue_seconds(estimates.values()),
            "sites": [
                self._build_fact(site, fact, read_at, size, estimates.get(site))
                for site, fact, read_at in sites
            ],
        }

    def build_set(self) -> SetLocality:
        """Build the answer about all datasets of the request as one set."""
        dids, snapshot = self._request.dids, self._snapshot
        not_polled = [did for did in dids if not (self._is_polled(did) or did in self._given_dids)]
        is_known = not not_polled and snapshot.unread_dids.isdisjoint(dids)
        estimates = self._estimate(frozenset(dids), self._names) if is_known else {}
        return {
            "version": 1,
            "now": to_unix(self._state.now),
            "key": set_key(dids),
            "datasets": len(dids),
            "bytes": total_bytes(dids, snapshot),
            "queue_seconds": _queue_seconds(estimates.values()),
            "queue_site": next((one.queue_site for one in estimates.values()), None),
            "not_polled": len(not_polled),
            "not_polled_example": not_polled[0] if not_polled else None,
            "unseen": sum(did in snapshot.unseen_reasons or did in snapshot.unread_dids for did in dids),
            "estimates_none": self._state.no_estimates_reason,
            "unknown_sites": self._find_unknown_sites(),
            "sites": [
                self._build_set_at_site(site, facts, estimates.get(site), is_known=is_known)
                for site, facts in self._sites
            ],
        }

    def _find_unknown_sites(self) -> list[str]:
        return sorted(self._request.sites - self._snapshot.sites.keys())

    def _is_polled(self, did: Did) -> bool:
        return did in self._demanded

    def _unseen_reason(self, did: Did) -> str | None:
        reason = self._snapshot.unseen_reasons.get(did)
        return NOT_ANSWERED if reason is None and did in self._snapshot.unread_dids else reason

    def _estimate(self, dids: Collection[Did], sites: Collection[Site]) -> dict[Site, SetEstimate]:
        if self._estimator is None:
            return {}
        every_site = sites or list(self._snapshot.sites)[:1]  # the queue is the same at all sites
        facts = self._snapshot if self._given_dids else None
        return dict(self._estimator.estimate_set(frozenset(dids), self._request.cpus, every_site, facts))

    def _start_seconds(self, site: Site) -> int | None:
        return self._estimator.start_seconds(site, self._request.cpus) if self._estimator else None

    def _build_site(self, site: Site, facts: SiteFacts) -> LocalitySite:
        return {
            "site": site,
            "as_of": to_unix(facts.as_of),
            "age_seconds": self._age(facts.as_of),
            "start_seconds": self._start_seconds(site),
        }

    def _build_fact(
        self, site: Site, fact: Fact | None, read_at: datetime, size: int | None, estimate: SetEstimate | None
    ) -> LocalityAtSite:
        as_of = fact.as_of if fact else read_at
        ready_at = fact.provenance.ready_at if fact else None
        fraction = _fraction(fact)
        return {
            "site": site,
            "state": fact.state if fact else "ABSENT",
            "fraction": fraction,
            "bytes": None if size is None or fraction is None else int(size * fraction),
            "as_of": to_unix(as_of),
            "age_seconds": self._age(as_of),
            "ready_at": to_unix(ready_at) if ready_at else None,
            "eta_seconds": self._seconds_until(ready_at) if ready_at else None,
            "read_seconds": estimate.read_seconds if estimate else None,
            "read_from": estimate.source if estimate else None,
        }

    def _build_set_at_site(
        self, site: Site, facts: SiteFacts, estimate: SetEstimate | None, *, is_known: bool
    ) -> SetLocalityAtSite:
        dids = self._request.dids
        row = SetFacts(facts.facts, self._snapshot.bytes_total, self._snapshot.unread_dids).build_row(dids)
        hundredths = row.hundredths if is_known else None
        as_of = min(facts.as_of, row.oldest) if row.oldest else facts.as_of
        start_seconds = self._start_seconds(site)
        ready_at = _find_ready_at(facts, dids) if is_known else None
        usable = 0 if hundredths == WHOLE else estimate.read_seconds if estimate else None
        if usable is None and ready_at is not None:
            usable = self._seconds_until(ready_at)
        return {
            "site": site,
            "share": None if hundredths is None else hundredths / WHOLE,
            "as_of": to_unix(as_of),
            "age_seconds": self._age(as_of),
            "can_run": start_seconds is not None if self._estimator else None,
            "start_seconds": start_seconds,
            "usable_seconds": usable,
            "read_seconds": estimate.read_seconds if estimate else None,
            "read_from": estimate.source if estimate else None,
            "ready_at": to_unix(ready_at) if ready_at else None,
        }

    def _age(self, as_of: datetime) -> int:
        return max(0, to_unix(self._state.now) - to_unix(as_of))

    def _seconds_until(self, moment: datetime) -> int:
        return max(0, to_unix(moment) - to_unix(self._state.now))


def _with_given_facts(
    snapshot: Snapshot,
    dids: Collection[Did],
    given: Mapping[Did, tuple[int, Mapping[Site, float]]],
    now: datetime,
) -> Snapshot:
    """Return a snapshot of *dids* only, in which the client's facts are those of the datasets in *given*."""
    sites: dict[Site, SiteFacts] = {}
    for site, known in snapshot.sites.items():
        facts = {did: known.facts[did] for did in dids if did in known.facts and did not in given}
        for did in given.keys() & set(dids):
            if share := given[did][1].get(site):
                state = DatasetState.AVAILABLE if share == 1 else DatasetState.PARTIAL
                facts[did] = Fact(state, now, share)
        sites[site] = SiteFacts(known.as_of, facts)
    sizes = {did: size for did in dids if (size := snapshot.bytes_total.get(did)) is not None}
    return Snapshot(
        sites,
        snapshot.unseen_reasons,
        bytes_total=sizes | {did: given[did][0] for did in given.keys() & set(dids)},
        unread_dids=snapshot.unread_dids.difference(given),
    )


def _queue_seconds(estimates: Iterable[SetEstimate]) -> int | None:
    """Return the queue seconds, which are equal at all sites; None if no site has data and slots."""
    seconds = next((estimate.queue_seconds for estimate in estimates), None)
    return None if seconds == NO_QUEUE_SECONDS else seconds


def _fraction(fact: Fact | None) -> float | None:
    """Return the share of a dataset on disk; None if the catalogue reported none."""
    if fact is None:
        return 0.0
    return 1.0 if fact.state is DatasetState.AVAILABLE else fact.fraction


def _find_ready_at(facts: SiteFacts, dids: Iterable[Did]) -> datetime | None:
    """Return when the last missing dataset will be on disk at a site; None if one is not on its way there."""
    times = []
    for did in dids:
        fact = facts.facts.get(did)
        if fact is None:
            return None
        if fact.state is not DatasetState.AVAILABLE:
            if fact.state is not DatasetState.STAGING or fact.provenance.ready_at is None:
                return None
            times.append(fact.provenance.ready_at)
    return max(times, default=None)
