"""Needs: the live jobs that need datasets, also of schedds that do not answer now. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Unseen, parse_did
from hydrator.domain.ports import DataNeed


@dataclass(frozen=True, slots=True)
class LiveNeed:
    """Alike jobs of one schedd, with the datasets that they need as DIDs, sorted; see :class:`DataNeed`."""

    schedd: str
    dids: tuple[Did, ...]
    jobs: DataNeed

    @property
    def user(self) -> str:
        return self.jobs.user


@dataclass(frozen=True)
class LiveNeeds:
    """The needs of all schedds: of this query, or of the last one if a schedd does not answer.

    ``unseen`` has the schedds that did not answer, with the reason; nothing is asked for on behalf of their
    jobs, and nothing is cancelled that their jobs need. ``read_at`` is by schedd the time of the answer.
    """

    needs: tuple[LiveNeed, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    read_at: Mapping[str, datetime] = field(default_factory=dict)

    @cached_property
    def by_did(self) -> Mapping[Did, tuple[LiveNeed, ...]]:
        """Return the needs by dataset."""
        found: dict[Did, list[LiveNeed]] = {}
        for need in self.needs:
            for did in need.dids:
                found.setdefault(did, []).append(need)
        return {did: tuple(needs) for did, needs in found.items()}

    @property
    def is_complete(self) -> bool:
        """Return whether all schedds answered, and there is one: only then a missing job is gone."""
        return bool(self.read_at) and not self.unseen

    @property
    def current_needs(self) -> tuple[LiveNeed, ...]:
        """Return the needs of the schedds that answered."""
        return tuple(need for need in self.needs if need.schedd not in self.unseen)


def update_needs(
    previous: LiveNeeds,
    answers: Mapping[str, Sequence[DataNeed] | Unseen] | str,
    now: datetime,
    keep_for: timedelta,
    default_scope: str | None,
) -> LiveNeeds:
    """Return the needs after the schedds' *answers*; a text says why the collector listed no schedds.

    A schedd that did not answer, or that the collector does not list any more, keeps its last needs for
    *keep_for*.
    """
    listed = {} if isinstance(answers, str) else answers
    needs: list[LiveNeed] = []
    unseen: dict[str, str] = {}
    read_at: dict[str, datetime] = {}
    for schedd, answer in listed.items():
        if isinstance(answer, Unseen):
            unseen[schedd] = answer.reason
        else:
            needs += _parse_needs(schedd, answer, default_scope)
            read_at[schedd] = now
    missing = answers if isinstance(answers, str) else "the collector does not list it any more"
    for schedd, at in previous.read_at.items():
        if schedd in read_at or now - at >= keep_for:
            continue
        unseen.setdefault(schedd, missing)
        read_at[schedd] = at
        needs += [need for need in previous.needs if need.schedd == schedd]
    return LiveNeeds(tuple(needs), unseen, read_at)


def _parse_needs(schedd: str, jobs: Iterable[DataNeed], default_scope: str | None) -> list[LiveNeed]:
    """Return *jobs* with DIDs; omit jobs with a name that is not a DID: no site could ever satisfy them."""
    needs = []
    for one in jobs:
        try:
            dids = tuple(sorted({parse_did(text, default_scope) for text in one.datasets}))
        except BadDid:
            continue
        if dids:
            needs.append(LiveNeed(schedd, dids, one))
    return needs
