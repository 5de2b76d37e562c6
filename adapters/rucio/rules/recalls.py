"""Recalls from tape: find out why a recall waits, from one transfer request of the dataset.

Rucio lists transfer requests for single files only, so one file is a sample for the whole dataset.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from adapters.rucio.poll import Dids, Replicas
from adapters.rucio.responses import Record, read_did, read_text, require_record
from adapters.rucio.session.queries import QueryRunner, split_did
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Replica, ReplicaState

_RESAMPLE_AFTER = timedelta(minutes=1)
_WAITING_STATES = frozenset({"PREPARING", "QUEUED", "WAITING"})


class RecallSampler:
    """A sampler of transfer requests, for datasets whose only complete copy is on tape."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._samples: dict[tuple[Did, str], tuple[datetime, str]] = {}
        self._samples_left = 0

    def start_poll(self, dids: Dids) -> None:
        """Start a poll of *dids*: reset the number of samples, and forget the samples of other datasets."""
        self._samples = {key: each for key, each in self._samples.items() if key[0] in dids}
        self._samples_left = self._queries.settings.recall_samples

    def add_recall_reasons(self, replicas: Replicas, now: datetime) -> Replicas:
        """Return the *replicas* of one dataset; replicas coming from tape get the state of their recall."""
        states = {replica.state for replica in replicas}
        if ReplicaState.ON_TAPE not in states or ReplicaState.COMPLETE in states:
            return replicas
        return tuple(self._add_recall_reason(replica, now) for replica in replicas)

    def _add_recall_reason(self, replica: Replica, now: datetime) -> Replica:
        if replica.state is not ReplicaState.INCOMING or not replica.provenance.rule:
            return replica
        key = (replica.did, replica.storage)
        sample = self._samples.get(key)
        if (sample is None or now - sample[0] >= _RESAMPLE_AFTER) and self._samples_left > 0:
            self._samples_left -= 1
            sample = self._samples[key] = (now, self._query_reason(replica))
        reason = sample[1] if sample else ""
        return replace(replica, provenance=replace(replica.provenance, reason=reason)) if reason else replica

    def _query_reason(self, replica: Replica) -> str:
        """Return the state of the recall of one file; '' if a query fails, as the state is only a hint."""
        try:
            file = self._queries.ask(
                lambda client: next(
                    (
                        row
                        for row in client.list_replica_locks(replica.provenance.rule)
                        if require_record(row, "list_replica_locks").get("state") == "REPLICATING"
                        and row.get("rse") == replica.storage
                    ),
                    None,
                ),
                lambda row: (
                    read_did(require_record(row, "list_replica_locks"), "list_replica_locks") if row else None
                ),
            )
            if file is None:
                return ""
            scope, name = split_did(file)
            return self._queries.ask(
                lambda client: client.list_request_by_did(name, replica.storage, scope), recall_reason
            )
        except CatalogueError:
            return ""


def recall_reason(row: object) -> str:
    """Describe the state of a recall, from *row*, one transfer request.

    Raises:
        BadRow: *row* is not a request.
    """
    request: Record = require_record(row, "list_request_by_did")
    state = read_text(request, "state", "list_request_by_did")
    source = str(request.get("source_rse") or "tape")
    if state in _WAITING_STATES:
        return "its recall from tape waits for its turn"
    if state == "SUBMITTED" and request.get("staging_started_at") and not request.get("staging_finished_at"):
        return f"{source} is reading it from tape"
    if state == "SUBMITTED":
        return f"its recall from {source} was handed to the transfer service"
    return f"its recall from tape: {state.lower().replace('_', ' ')}"
