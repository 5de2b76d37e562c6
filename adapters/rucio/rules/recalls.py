"""What a recall from tape is waiting for: one request of a dataset, asked for now and then.

Rucio tells of requests file by file only, so one file speaks for its dataset.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from adapters.rucio.responses import did_of, record, text
from adapters.rucio.session.queries import Asker, split
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Replica, ReplicaState

_AGAIN_AFTER = timedelta(minutes=1)
_WAITING = frozenset({"PREPARING", "QUEUED", "WAITING"})


class Recalls:
    """Samples the requests of datasets that nobody but tape has whole."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._said: dict[tuple[Did, str], tuple[datetime, str]] = {}
        self._left = 0

    def begin(self, dids: Iterable[Did]) -> None:
        """A new poll, about *dids*."""
        kept = frozenset(dids)
        for key in [key for key in self._said if key[0] not in kept]:
            del self._said[key]
        self._left = self._asker.settings.recall_samples

    def explained(self, replicas: tuple[Replica, ...], at: datetime) -> tuple[Replica, ...]:
        """*replicas* of one dataset, those that come from tape with how far their recall is."""
        states = {replica.state for replica in replicas}
        if ReplicaState.ON_TAPE not in states or ReplicaState.COMPLETE in states:
            return replicas
        return tuple(self._explained(replica, at) for replica in replicas)

    def _explained(self, replica: Replica, at: datetime) -> Replica:
        if replica.state is not ReplicaState.INCOMING or not replica.told.rule:
            return replica
        key = (replica.did, replica.storage)
        known = self._said.get(key)
        if (known is None or at - known[0] >= _AGAIN_AFTER) and self._left > 0:
            self._left -= 1
            known = self._said[key] = (at, self._asked(replica))
        reason = known[1] if known else ""
        return replace(replica, told=replace(replica.told, reason=reason)) if reason else replica

    def _asked(self, replica: Replica) -> str:
        """What one file of it waits for; nothing where that cannot be learned: it is for people only."""
        try:
            file = self._asker.ask(
                lambda client: next(
                    (
                        row
                        for row in client.list_replica_locks(replica.told.rule)
                        if record(row, "list_replica_locks").get("state") == "REPLICATING"
                        and row.get("rse") == replica.storage
                    ),
                    None,
                ),
                lambda row: did_of(record(row, "list_replica_locks"), "list_replica_locks") if row else None,
            )
            if file is None:
                return ""
            scope, name = split(file)
            return self._asker.ask(
                lambda client: client.list_request_by_did(name, replica.storage, scope), recall_reason
            )
        except CatalogueError:
            return ""


def recall_reason(row: object) -> str:
    """What one request says of a recall.

    Raises:
        BadRow: it is not a request.
    """
    request: Mapping[str, object] = record(row, "list_request_by_did")
    state = text(request, "state", "list_request_by_did")
    source = str(request.get("source_rse") or "tape")
    if state in _WAITING:
        return "its recall from tape waits for its turn"
    if state == "SUBMITTED" and request.get("staging_started_at") and not request.get("staging_finished_at"):
        return f"{source} is reading it from tape"
    if state == "SUBMITTED":
        return f"its recall from {source} was handed to the transfer service"
    return f"its recall from tape: {state.lower().replace('_', ' ')}"
