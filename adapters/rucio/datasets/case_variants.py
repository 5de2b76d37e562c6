"""DIDs in Rucio that differ from one we know in letter case only."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from os.path import commonprefix
from re import sub

from adapters.rucio.session.queries import Asker, split
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Reading, Seen

from .dids import Names

_SECONDS = 20.0
_AGAIN_AFTER = timedelta(minutes=10)
_NEVER = datetime.min.replace(tzinfo=UTC)


class Twins:
    """Looks for twins now and then.

    The search is slow on large scopes, so it has a time of its own, scope by scope. When it fails, what
    was known stays, and that scope is searched again some time later: a catalogue is not given up for it.
    """

    def __init__(self, asker: Asker, names: Names) -> None:
        self._asker = asker
        self._names = names
        self._twins: dict[Did, frozenset[Did]] = {}
        self._due_at: dict[Did, datetime] = {}

    def among(self, readings: Mapping[Did, Reading], now: datetime) -> dict[Did, Reading]:
        """*readings* with the twins of each, as last looked for."""
        every = self._asker.settings.twins_every
        for memory in (self._twins, self._due_at):
            for gone in memory.keys() - readings.keys():
                del memory[gone]
        due = {
            did
            for did, reading in readings.items()
            if isinstance(reading, Seen) and every is not None and self._due_at.get(did, now) <= now
        }
        if due and every is not None:
            self._look(due, now, every)
        return {
            did: replace(reading, twins=self._twins[did])
            if isinstance(reading, Seen) and self._twins.get(did)
            else reading
            for did, reading in readings.items()
        }

    def _look(self, due: AbstractSet[Did], now: datetime, every: timedelta) -> None:
        """Search scope by scope while there is time, those that came due longest ago first."""
        groups = defaultdict[str, list[Did]](list)
        for did in sorted(due):
            groups[split(did)[0].casefold()].append(did)
        waiting = sorted(groups, key=lambda folded: (self._since(groups[folded]), folded))
        try:
            with self._asker.connection.poll(_SECONDS):
                scopes = self._names.scopes()
                for folded in waiting:
                    wanted = groups.pop(folded)
                    self._due_at.update(dict.fromkeys(wanted, now + min(every, _AGAIN_AFTER)))
                    with suppress(CatalogueError):
                        self._find(wanted, [scope for scope in scopes if scope.casefold() == folded])
                        self._due_at.update(dict.fromkeys(wanted, now + every))
                    if self._asker.connection.deadline.passed():
                        return
        except CatalogueError:
            left = (did for wanted in groups.values() for did in wanted)
            self._due_at.update(dict.fromkeys(left, now + min(every, _AGAIN_AFTER)))

    def _since(self, dids: Sequence[Did]) -> datetime:
        return min(self._due_at.get(did, _NEVER) for did in dids)

    def _find(self, dids: Sequence[Did], scopes: Sequence[str]) -> None:
        pattern = _any_case([split(did)[1] for did in dids])
        spelled: dict[str, set[Did]] = defaultdict(set)
        for scope in scopes:
            for name in self._names.like(scope, pattern):
                spelled[name.casefold()].add(name)
        self._twins.update((did, frozenset(spelled[did.casefold()] - {did})) for did in dids)


def _any_case(names: Sequence[str]) -> str:
    """A pattern, with ``*`` only, that matches each of *names* in any spelling."""
    if len(names) == 1:
        return sub(r"[A-Za-z]+", "*", names[0])
    shared = commonprefix(list(names))  # noqa: RUF071 (of characters, which is what a pattern needs)
    return sub(r"\*+", "*", sub(r"[A-Za-z]+", "*", shared) + "*")
