"""DIDs in Rucio that differ from one we know in letter case only."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from os.path import commonprefix
from re import sub

from hydrator.errors import CatalogueError
from hydrator.model import Did, Reading, Seen

from ._rucio_ask import Asker, split
from ._rucio_names import Names

_SECONDS = 20.0


class Twins:
    """Looks for twins now and then.

    The search is slow on large scopes, so it has a time of its own, and when it fails what it knew
    stands: a catalogue is not given up for it.
    """

    def __init__(self, asker: Asker, names: Names) -> None:
        self._asker = asker
        self._names = names
        self._twins: dict[Did, frozenset[Did]] = {}
        self._looked_at: dict[Did, datetime] = {}

    def among(self, readings: Mapping[Did, Reading], now: datetime) -> dict[Did, Reading]:
        """*readings* with the twins of each, as last looked for."""
        every = self._asker.settings.twins_every
        for did in self._looked_at.keys() - readings.keys():
            del self._looked_at[did], self._twins[did]
        due = {
            did
            for did, reading in readings.items()
            if isinstance(reading, Seen) and every is not None and self._due(did, now, every)
        }
        if due:
            try:
                with self._asker.connection.poll(_SECONDS):
                    self._find(due)
            except CatalogueError:
                due = {did for did in due if did not in self._twins}
                self._twins.update(dict.fromkeys(due, frozenset()))
            self._looked_at.update(dict.fromkeys(due, now))
        return {
            did: replace(reading, twins=self._twins[did])
            if isinstance(reading, Seen) and self._twins.get(did)
            else reading
            for did, reading in readings.items()
        }

    def _due(self, did: Did, now: datetime, every: timedelta) -> bool:
        return did not in self._looked_at or now - self._looked_at[did] >= every

    def _find(self, dids: AbstractSet[Did]) -> None:
        scopes = self._names.scopes()
        for folded, group in groupby(
            sorted(dids, key=str.casefold), key=lambda did: split(did)[0].casefold()
        ):
            wanted = list(group)
            pattern = _any_case([split(did)[1] for did in wanted])
            names = {n for s in scopes if s.casefold() == folded for n in self._names.like(s, pattern)}
            spelled: dict[str, set[Did]] = defaultdict(set)
            for name in names:
                spelled[name.casefold()].add(name)
            self._twins.update((did, frozenset(spelled[did.casefold()] - {did})) for did in wanted)


def _any_case(names: Sequence[str]) -> str:
    """A pattern, with ``*`` only, that matches each of *names* in any spelling."""
    if len(names) == 1:
        return sub(r"[A-Za-z]+", "*", names[0])
    shared = commonprefix(list(names))  # noqa: RUF071 (of characters, which is what a pattern needs)
    return sub(r"\*+", "*", sub(r"[A-Za-z]+", "*", shared) + "*")
