"""Types that the sections of the configuration share."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _require_printable(text: str) -> str:
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError("must be a name of printable characters, without a blank at its ends")
    return text


SiteName = Annotated[str, AfterValidator(_require_printable)]
HostName = Annotated[
    str, Field(pattern=r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$|^[0-9a-fA-F:]+$", max_length=255)
]
"""A host, an address, or ``*.`` and a domain."""


def _require_url(text: str) -> str:
    if not re.fullmatch(r"https?://\S+", text):
        raise ValueError("must begin with http:// or https://, and have no blank")
    return text


Url = Annotated[str, AfterValidator(_require_url)]


_LETTERS = r"\[!?(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9._:/@=+~])+\]"
"""A set of letters that fnmatch and the schedd's regular expressions read alike, if no range is reversed."""


def _check_pattern(pattern: str) -> str:
    """Refuse a pattern that no DID can match: it would protect, or publish, nothing."""
    plain = re.sub(rf"{_LETTERS}|[*?]", "", pattern)
    ranges = re.findall("(.)-(.)", "".join(re.findall(_LETTERS, pattern)))
    is_reversed = any(first > last for first, last in ranges)
    if is_reversed or re.search(r"[^A-Za-z0-9._:/@=+~-]", plain) or (plain == pattern and ":" not in pattern):
        raise ValueError(
            f"{pattern!r} can match no dataset: write scope:name with * and ?, such as 'embargo:*'"
        )
    return pattern


DidPattern = Annotated[str, AfterValidator(_check_pattern)]
AttributeName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of a ClassAd attribute."""


class Section(BaseModel):
    """A frozen table of the configuration that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
