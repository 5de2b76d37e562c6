"""Search of the overview page: the query in the page's URL selects the datasets, without a script."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

PER_PAGE: Final = 25
_MAX_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of datasets by a part of the DID; empty for all. ``page`` counts from 1."""

    name_contains: str = ""
    page: int = 1

    def query_for_page(self, page: int) -> str:
        """Return the query of another page of the same selection."""
        find = {"find": self.name_contains} if self.name_contains else {}
        return urlencode({**find, "page": page})


def parse_selection(query: Mapping[str, str]) -> Selection:
    """Parse the query in the page's URL; ignore fields that are not valid."""
    page = query.get("page", "").strip()
    return Selection(
        query.get("find", "").strip()[:_MAX_CHARS],
        max(1, int(page)) if page.isascii() and page.isdecimal() and len(page) < 8 else 1,
    )
