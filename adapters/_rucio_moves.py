"""What Rucio's rules do about datasets: their locks, and which of them stand still."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from hydrator.errors import CatalogueError
from hydrator.model import Did

from ._rucio_ask import Asker, split
from ._rucio_poll import Poll
from ._rucio_rows import Lock, Movement, locks, movements, record, text


class Moves:
    """Asks what moves."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def read(self, poll: Poll, dids: AbstractSet[Did]) -> Mapping[Did, Mapping[str, Movement]]:
        """By dataset and storage element, what rules do."""
        found: dict[Did, list[Lock]] = {did: [] for did in dids}
        answers = self._asker.in_batches(
            dids,
            poll.lost,
            lambda client, batch: client.get_locks_for_dids([{**did, "type": "dataset"} for did in batch]),
            lambda answer: locks(answer, "get_locks_for_dids"),
        )
        for lock in answers:
            if lock.did in found:
                found[lock.did].append(lock)
        for did in sorted(dids - poll.lost.keys()):
            if not found[did]:
                try:
                    found[did] = self._file_locks(did)
                except CatalogueError as exc:
                    poll.lost[did] = exc
        suspended = self._suspended(poll, found)
        return {did: movements(rows, suspended) for did, rows in found.items()}

    def _file_locks(self, did: Did) -> list[Lock]:
        """Locks of rules that spread files over elements: those (grouping NONE) have none for the dataset."""
        scope, name = split(did)
        rules = self._asker.ask(lambda client: list(client.list_did_rules(scope, name)), _active_rules)
        found = []
        for rule in rules:
            found += [Lock(did, storage, state, rule) for storage, state in sorted(self._locks_of(rule))]
        return found

    def _locks_of(self, rule: str) -> set[tuple[str, str]]:
        return self._asker.ask(lambda client: list(client.list_replica_locks(rule)), _file_lock_rows)

    def _suspended(self, poll: Poll, found: Mapping[Did, Sequence[Lock]]) -> frozenset[str]:
        """The rules that are suspended; where that cannot be learned, what they would move is lost."""
        moving = {did for did, rows in found.items() if any(lock.state == "REPLICATING" for lock in rows)}
        if not moving:
            return frozenset()
        try:
            return self._asker.ask(
                lambda client: list(client.list_replication_rules({"state": "U"})),
                lambda rows: frozenset(text(record(row, "rules"), "id", "rules") for row in rows),
            )
        except CatalogueError as exc:
            poll.lost.update(dict.fromkeys(moving, exc))
            return frozenset()


def _active_rules(rows: Iterable[object]) -> list[str]:
    """The rules that have file locks only, and are not done."""
    found = []
    for each in rows:
        row = record(each, "list_did_rules")
        if row.get("grouping") == "NONE" and row.get("state") in {"REPLICATING", "STUCK", "SUSPENDED"}:
            found.append(text(row, "id", "list_did_rules"))
    return found


def _file_lock_rows(rows: Iterable[object]) -> set[tuple[str, str]]:
    what = "list_replica_locks"
    each = (record(row, what) for row in rows)
    return {(text(row, "rse", what), text(row, "state", what)) for row in each}
