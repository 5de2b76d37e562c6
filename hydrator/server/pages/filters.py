"""Which datasets a reader of the page wants to see: the query of its address, without any script."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlencode

from hydrator.domain.model import DatasetState, Did, Snapshot

PER_PAGE: Final = 100
NOWHERE: Final = "nowhere"
NOT_ASKED: Final = "not asked"
STATES: Final = (*(state.value.lower() for state in DatasetState), NOWHERE, NOT_ASKED)
_MAX_CHARS: Final = 500
_MAX_FIELDS: Final = 50


@dataclass(frozen=True, slots=True)
class Selection:
    """Datasets with ``find`` in their DID that are in ``state``, at ``site`` if named; pages from 1."""

    name_contains: str = ""
    site: str = ""
    state: str = ""
    page: int = 1

    @property
    def has_filters(self) -> bool:
        """Is anything left out on purpose?"""
        return bool(self.name_contains or self.site or self.state)

    def query_for_page(self, page: int) -> str:
        """The query of another page of the same."""
        fields = {"find": self.name_contains, "site": self.site, "state": self.state, "page": str(page)}
        return urlencode({key: value for key, value in fields.items() if value})

    def filter_dids(self, dids: Iterable[Did], snapshot: Snapshot) -> list[Did]:
        """Those of *dids*."""
        find, takes = self.name_contains.lower(), self._build_state_test(snapshot)
        return [did for did in dids if find in did.lower() and takes(did)]

    def _build_state_test(self, snapshot: Snapshot) -> Callable[[Did], bool]:
        """Whether a dataset is in the state, looked up once for all of them."""
        if not self.state:
            return lambda _: True
        if self.state == NOT_ASKED:
            return lambda did: did in snapshot.unseen_reasons
        there = [facts.facts for site, facts in snapshot.sites.items() if self.site in {"", site}]
        if self.state == NOWHERE:
            return lambda did: did not in snapshot.unseen_reasons and not any(did in facts for facts in there)
        state = next((each for each in DatasetState if each.value.lower() == self.state), None)
        return lambda did: any(did in facts and facts[did].state is state for facts in there)


def parse_selection(query: bytes) -> Selection:
    """What *query* asks for; what it does not understand, of it, asks for nothing."""
    try:
        fields = parse_qs(query.decode("latin-1"), errors="replace", max_num_fields=_MAX_FIELDS)
    except ValueError:
        return Selection()
    given = {key: values[-1].strip()[:_MAX_CHARS] for key, values in fields.items()}
    page = given.get("page", "")
    return Selection(
        name_contains=given.get("find", ""),
        site=given.get("site", ""),
        state=state if (state := given.get("state", "")) in STATES else "",
        page=max(1, int(page)) if page.isascii() and page.isdecimal() and len(page) < 8 else 1,
    )
