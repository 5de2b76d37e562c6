"""Filters of the overview page: the query in the page's URL selects the datasets, without a script."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from hydrator.domain.model import DatasetState, Did, Snapshot

PER_PAGE: Final = 25
NOWHERE: Final = "nowhere"
NOT_ANSWERED: Final = "not answered"
STATES: Final = (*(state.value.lower() for state in DatasetState), NOWHERE, NOT_ANSWERED)
_MAX_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of datasets by a part of the DID, by state and by site; an empty field allows all values.

    ``page`` counts from 1.
    """

    name_contains: str = ""
    site: str = ""
    state: str = ""
    page: int = 1

    @property
    def has_filters(self) -> bool:
        return bool(self.name_contains or self.site or self.state)

    def query_for_page(self, page: int) -> str:
        """Return the query of another page of the same selection."""
        fields = {"find": self.name_contains, "site": self.site, "state": self.state, "page": str(page)}
        return urlencode({key: value for key, value in fields.items() if value})

    def filter_dids(self, dids: Iterable[Did], snapshot: Snapshot) -> list[Did]:
        """Return the DIDs of *dids* that the filters select, for all pages together."""
        if text := self.name_contains.lower():
            dids = [did for did in dids if text in did.lower()]
        return list(filter(self._build_state_test(snapshot), dids) if self.state else dids)

    def _build_state_test(self, snapshot: Snapshot) -> Callable[[Did], bool]:
        """Return a function that says whether a dataset has the selected state, which is not empty."""
        if self.state == NOT_ANSWERED:
            return lambda did: did in snapshot.unseen_reasons
        sites = [facts.facts for site, facts in snapshot.sites.items() if self.site in {"", site}]
        if self.state == NOWHERE:
            return lambda did: did not in snapshot.unseen_reasons and not any(did in facts for facts in sites)
        state = next((each for each in DatasetState if each.value.lower() == self.state), None)
        return lambda did: any(did in facts and facts[did].state is state for facts in sites)


def parse_selection(query: Mapping[str, str]) -> Selection:
    """Parse the query in the page's URL; ignore fields that are not valid."""
    values = {key: text.strip()[:_MAX_CHARS] for key, text in query.items()}
    page = values.get("page", "")
    return Selection(
        name_contains=values.get("find", ""),
        site=values.get("site", ""),
        state=state if (state := values.get("state", "")) in STATES else "",
        page=max(1, int(page)) if page.isascii() and page.isdecimal() and len(page) < 8 else 1,
    )
