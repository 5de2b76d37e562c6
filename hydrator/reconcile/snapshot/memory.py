"""What one catalogue said of its datasets, kept so that an answer which repeats itself costs nothing.

Nearly all that is read again is as it was, but for its age. So what was read
with the catalogue's last whole answer does not carry that time itself: its row
says :data:`THEN`, and the time stands once beside all rows. Who looks a dataset
up sees the time; only the cycle looks at rows.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from hydrator.domain.model import Did, Fact, Seen, Site

THEN: Final = datetime.max.replace(tzinfo=UTC)
"""In rows: with the last whole answer. Every time that was read is earlier, so it sorts as the newest."""


@dataclass(frozen=True, slots=True)
class Known:
    """The last thing one catalogue said of one dataset: its state at each site that has it.

    ``before`` is the last whole reading at sites that since were looked at in
    part only, where that part says something too: both stand, each with its age.
    ``said`` is the reading that all of it was made of, where it was made of one.
    """

    at: datetime
    here: Mapping[Site, Fact]
    bytes_total: int | None = None
    twins: frozenset[Did] = frozenset()
    before: Mapping[Site, Fact] = field(default_factory=dict)
    said: Seen | None = field(default=None, compare=False, repr=False)


_Row = TypeVar("_Row")


class Rows(Mapping[Did, _Row]):
    """Rows by dataset; :meth:`dated` puts in the time that a row stands for when it is looked up."""

    __slots__ = ("rows",)

    def __init__(self, rows: Mapping[Did, _Row]) -> None:
        self.rows = rows

    @abstractmethod
    def dated(self, row: _Row) -> _Row:
        """*row* with the time that it stands for."""

    def __getitem__(self, did: Did) -> _Row:
        return self.dated(self.rows[did])

    def __iter__(self) -> Iterator[Did]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, did: object) -> bool:
        return did in self.rows

    __hash__ = None  # type: ignore[assignment]


class Datasets(Rows[Known]):
    """By dataset, what is known of it; made anew for each answer, and never changed.

    Args:
        rows: by dataset; one whose ``at`` is THEN, which all its facts then share, was read at *at*.
        at: the time of the last whole answer.
        apart: the datasets whose rows have times of their own.
        since: the ``mark`` of what this was made from.
        touched: the datasets whose rows differ from what this was made from.
    """

    __slots__ = ("apart", "at", "mark", "since", "touched")

    def __init__(
        self,
        rows: Mapping[Did, Known],
        at: datetime | None,
        apart: AbstractSet[Did],
        since: object = None,
        touched: AbstractSet[Did] = frozenset(),
    ) -> None:
        super().__init__(rows)
        self.at = at
        self.apart = apart
        self.since = since
        self.touched = touched
        self.mark = object()

    @classmethod
    def of(cls, known: Mapping[Did, Known]) -> "Datasets":
        """*known*, which may be any mapping, as it came from a test or from disk."""
        return known if isinstance(known, Datasets) else cls(known, None, known.keys())

    def dated(self, row: Known) -> Known:
        if row.at is not THEN or self.at is None:
            return row
        at = self.at
        here = {site: replace(fact, as_of=at) for site, fact in row.here.items()}
        return replace(row, at=at, here=here)

    def after(self, at: datetime | None, fresh: Mapping[Did, Known], gone: Collection[Did]) -> "Datasets":
        """What an answer *at* that time leaves: *fresh* rows, none of what is *gone*, the rest as it was."""
        if not fresh and not gone:
            return Datasets(self.rows, at, self.apart, self.mark)
        rows = {**self.rows, **fresh}
        for did in gone:
            rows.pop(did, None)
        return Datasets(rows, at, self._apart(fresh, gone), self.mark, frozenset((*fresh, *gone)))

    def also(self, changed: Mapping[Did, Known]) -> "Datasets":
        """The same after the same answer, with *changed* rows, which have times of their own."""
        if not changed:
            return self
        touched = self.touched | changed.keys()
        return Datasets({**self.rows, **changed}, self.at, self._apart(changed), self.since, touched)

    def _apart(self, fresh: Mapping[Did, Known], gone: Collection[Did] = ()) -> AbstractSet[Did]:
        own = {did for did, known in fresh.items() if known.at is not THEN}
        return (self.apart - fresh.keys()).difference(gone) | own


@dataclass(frozen=True, slots=True)
class Memory:
    """What one catalogue said last: ``at`` of its last whole answer, ``unseen`` since then and why.

    ``ages`` are the sites that this answer named and did not speak of, with
    when they were last read.
    """

    at: datetime | None = None
    sites: frozenset[Site] = frozenset()
    known: Mapping[Did, Known] = field(default_factory=dict)
    unseen: Mapping[Did, str] = field(default_factory=dict)
    unmapped: frozenset[str] = frozenset()
    failure: str | None = None
    ages: Mapping[Site, datetime] = field(default_factory=dict)

    def age(self, site: Site) -> datetime | None:
        """When *site* was last read as a whole; None when it never was."""
        return self.ages.get(site, self.at if site in self.sites else None)
