"""Which datasets a reader of the page wants to see: the query of its address, without any script."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlencode

from .model import DatasetState, Did, Site, Snapshot

PER_PAGE: Final = 100
NOWHERE: Final = "nowhere"
NOT_ASKED: Final = "not asked"
STATES: Final = (*(state.value.lower() for state in DatasetState), NOWHERE, NOT_ASKED)
_MOST_CHARS: Final = 500
_MOST_FIELDS: Final = 50


@dataclass(frozen=True, slots=True)
class Selection:
    """Datasets with ``find`` in their DID that are in ``state``, at ``site`` if named; pages from 1."""

    find: str = ""
    site: str = ""
    state: str = ""
    page: int = 1

    @property
    def chosen(self) -> bool:
        """Is anything left out on purpose?"""
        return bool(self.find or self.site or self.state)

    def at_page(self, page: int) -> str:
        """The query of another page of the same."""
        fields = {"find": self.find, "site": self.site, "state": self.state, "page": str(page)}
        return urlencode({key: value for key, value in fields.items() if value})

    def takes(self, did: Did, snapshot: Snapshot) -> bool:
        """Is *did* one of those?"""
        if self.find.lower() not in did.lower():
            return False
        if not self.state:
            return True
        if self.state == NOT_ASKED:
            return did in snapshot.unseen
        sites = [Site(self.site)] if self.site else list(snapshot.sites)
        facts = [snapshot.sites[site].facts.get(did) for site in sites if site in snapshot.sites]
        if self.state == NOWHERE:
            return did not in snapshot.unseen and not any(facts)
        return any(fact.state.value.lower() == self.state for fact in facts if fact)


def selection(query: bytes) -> Selection:
    """What *query* asks for; what it does not understand, of it, asks for nothing."""
    try:
        fields = parse_qs(query.decode("latin-1"), errors="replace", max_num_fields=_MOST_FIELDS)
    except ValueError:
        return Selection()
    given = {key: values[-1].strip()[:_MOST_CHARS] for key, values in fields.items()}
    page = given.get("page", "")
    return Selection(
        find=given.get("find", ""),
        site=given.get("site", ""),
        state=state if (state := given.get("state", "")) in STATES else "",
        page=max(1, int(page)) if page.isascii() and page.isdecimal() and len(page) < 8 else 1,
    )
