"""Two daemons on one pool: which of them publishes, and when the other takes over.

Each tells the collector at every beat that it lives and whether it leads, and
reads what the others told. Ages are differences of when the collector heard
one and the other, so no two clocks are compared. There is no lock that two
hosts could both believe to hold: for some seconds two may lead, after the
collector could not be reached, and then both publish what the same catalogues
said, each generation above what it read.

Pure but for the clock that is passed in.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta

from hydrator.domain.ports import Peer


class LeaderElection:
    """Whether this daemon leads; told by what it hears of the others at each beat.

    Args:
        name: ours, another on each daemon.
        after: how long a leader may be silent; also how long nobody must have led before we do.
        monotonic: seconds, of a clock that is never set.
        unix: whole Unix seconds now, to tell who leads longer.
    """

    def __init__(
        self, name: str, lease_duration: timedelta, monotonic: Callable[[], float], unix: Callable[[], int]
    ) -> None:
        self.name = name
        self.lease_duration = lease_duration
        self.leads_since = 0
        self.leader: str | None = None
        self._monotonic = monotonic
        self._unix = unix
        self._leader_seen_at = monotonic()
        self._heartbeat_at = monotonic()

    @property
    def is_leader(self) -> bool:
        return self.leads_since > 0

    @property
    def standby_reason(self) -> str | None:
        """Why we publish nothing; None where we lead."""
        if self.is_leader:
            return None
        if self.leader:
            return f"standing by for {self.leader}, which publishes"
        return f"standing by: nobody publishes, and within {self.lease_duration.total_seconds():g} s this daemon will"

    @property
    def announced_leader_since(self) -> int:
        """What to tell the others: since when we lead, or 0.

        Who was not heard for so long that another may have taken over asks first.
        """
        return 0 if self._is_lease_expired else self.leads_since

    @property
    def _is_lease_expired(self) -> bool:
        return self._monotonic() - self._heartbeat_at > self.lease_duration.total_seconds()

    def observe_peers(self, peers: Iterable[Peer]) -> bool:
        """Decide by what the collector has, which has just heard us; True when that changed our part."""
        now, after = self._monotonic(), self.lease_duration.total_seconds()
        alive = [peer for peer in peers if peer.name != self.name and peer.age_seconds <= after]
        leaders = [peer for peer in alive if peer.leads_since > 0]
        before = self.is_leader
        if self.is_leader and leaders:
            first = min(leaders, key=lambda peer: (peer.leads_since, peer.name))
            if self._is_lease_expired or (first.leads_since, first.name) < (self.leads_since, self.name):
                self.leads_since = 0
        elif not self.is_leader and not leaders:
            next_in_turn = all(self.name < peer.name for peer in alive)
            if next_in_turn and now - self._leader_seen_at >= after:
                self.leads_since = max(1, self._unix())
        if leaders or self.is_leader:
            self._leader_seen_at = now
        self._heartbeat_at = now
        self.leader = min((peer.name for peer in leaders), default=None) if not self.is_leader else None
        return self.is_leader != before
