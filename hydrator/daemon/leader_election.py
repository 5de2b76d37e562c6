"""Leader election between the daemons of one pool: one daemon publishes, the others are on standby.

At every heartbeat a daemon reports to the collector that it is alive and whether it leads, and reads the
heartbeats of the others. The age of a heartbeat is the difference between two times at which the collector
received heartbeats, so the clocks of the hosts need not agree. After an outage of the collector two daemons
may lead for some seconds. Both then publish the answers of the same catalogues. Each uses a generation number
above the number that it read from the collector.

Pure except for the clock that is passed in.
"""

import math
from collections.abc import Callable, Iterable
from datetime import timedelta

from hydrator.domain.pool_ports import Peer


class LeaderElection:
    """The election of this daemon or a peer as leader; each heartbeat decides again.

    Args:
        name: the unique name of this daemon.
        lease_duration: the longest time between two heartbeats of a leader. A daemon that sees no leader
            for this time becomes the leader.
        monotonic: a clock in seconds that cannot be set, such as ``time.monotonic``.
        unix: returns the present time in whole Unix seconds. Of two leaders, the daemon that became leader
            first stays the leader.
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
        self._lease_begins_at = -math.inf
        self._became_leader_at = self._heartbeat_at

    @property
    def is_leader(self) -> bool:
        return self.leads_since > 0

    @property
    def standby_reason(self) -> str | None:
        """Return why this daemon publishes nothing; None if this daemon is the leader."""
        if self.is_leader:
            return None
        if self.leader:
            return f"on standby: the daemon {self.leader} publishes"
        seconds = self.lease_duration.total_seconds()
        return f"on standby: no daemon publishes now; this daemon will publish within {seconds:g} s"

    @property
    def lease_seconds_left(self) -> float:
        """Return how long this daemon has the lease; 0 or less without it.

        This is stricter than ``is_leader``: of all daemons one at most has the lease at any time.
        """
        return self.lease_duration.total_seconds() - (self._monotonic() - self._lease_begins_at)

    @property
    def leads_for_seconds(self) -> float:
        """Return how long this daemon has been the leader; 0 on standby."""
        return self._monotonic() - self._became_leader_at if self.is_leader else 0.0

    @property
    def announced_leader_since(self) -> int:
        """Return the value for the next heartbeat: since when this daemon leads (Unix seconds), or 0.

        After the lease of this daemon has expired, another daemon may lead. So this daemon announces 0
        until it has read the heartbeats of the other daemons.
        """
        return 0 if self._is_lease_expired else self.leads_since

    @property
    def _is_lease_expired(self) -> bool:
        return self._monotonic() - self._heartbeat_at > self.lease_duration.total_seconds()

    def observe_peers(
        self, peers: Iterable[Peer], *, announced_since: int = 0, sent_at: float = -math.inf
    ) -> bool:
        """Elect a leader by the heartbeats of *peers*; return True if this daemon gained or lost the lead.

        This daemon sent its own heartbeat with *announced_since* after *sent_at*, a time of the monotonic
        clock, and then read *peers*. If it announced that it leads and saw no other leader, it has the lease
        from *sent_at* on: another daemon whose lease begins later would see this announcement.
        """
        now, lease_seconds = self._monotonic(), self.lease_duration.total_seconds()
        alive = [peer for peer in peers if peer.name != self.name and peer.age_seconds <= lease_seconds]
        leaders = [peer for peer in alive if peer.leads_since > 0]
        was_leader = self.is_leader
        if self.is_leader and leaders:
            first = min(leaders, key=lambda peer: (peer.leads_since, peer.name))
            if self._is_lease_expired or (first.leads_since, first.name) < (self.leads_since, self.name):
                self.leads_since = 0
        elif not self.is_leader and not leaders:
            is_next = all(self.name < peer.name for peer in alive)
            if is_next and now - self._leader_seen_at >= lease_seconds:
                self.leads_since = max(1, self._unix())
                self._became_leader_at = now
        if leaders or self.is_leader:
            self._leader_seen_at = now
        self._heartbeat_at = now
        has_lease = announced_since > 0 and self.is_leader and not leaders
        self._lease_begins_at = sent_at if has_lease else -math.inf
        self.leader = min((peer.name for peer in leaders), default=None) if not self.is_leader else None
        return self.is_leader != was_leader
