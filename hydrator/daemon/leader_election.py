"""Leader election between daemons of one pool: one publishes, the others stand by.

At every heartbeat a daemon reports to the collector that it is alive and whether it leads, and reads the
heartbeats of the others. The age of a heartbeat is the difference between two times at which the collector
received heartbeats, so the clocks of the hosts need not agree. After an outage of the collector two daemons
may lead for some seconds. Both then publish the answers of the same catalogues, each with a generation above
the one that it read.

Pure except for the clock that is passed in.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta

from hydrator.domain.pool_ports import Peer


class LeaderElection:
    """Leadership of this daemon, decided at each heartbeat by the heartbeats of its peers.

    Args:
        name: the name of this daemon, different on each.
        lease_duration: how long a leader may send no heartbeat. A daemon that sees no leader for that long
            becomes the leader.
        monotonic: seconds of a clock that is never set.
        unix: whole Unix seconds now. Of two leaders, the one that has led longest stays.
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
        """Return why this daemon publishes nothing; None for the leader."""
        if self.is_leader:
            return None
        if self.leader:
            return f"standing by for {self.leader}, which publishes"
        seconds = self.lease_duration.total_seconds()
        return f"standing by: no daemon publishes, and within {seconds:g} s this daemon will"

    @property
    def announced_leader_since(self) -> int:
        """Return since when this daemon leads (Unix seconds), or 0, for its next heartbeat.

        Once its lease has expired, another daemon may lead. So this daemon announces 0, and first
        reads the heartbeats of the others.
        """
        return 0 if self._is_lease_expired else self.leads_since

    @property
    def _is_lease_expired(self) -> bool:
        return self._monotonic() - self._heartbeat_at > self.lease_duration.total_seconds()

    def observe_peers(self, peers: Iterable[Peer]) -> bool:
        """Decide by the heartbeats from the collector; return True if the leadership changed."""
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
        if leaders or self.is_leader:
            self._leader_seen_at = now
        self._heartbeat_at = now
        self.leader = min((peer.name for peer in leaders), default=None) if not self.is_leader else None
        return self.is_leader != was_leader
