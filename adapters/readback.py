"""Ads that the daemon reads back from a publisher. They are untrusted: other programs may write ads, too."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from adapters.untrusted_text import quote_excerpt
from hydrator.domain.model import PublishedAd, Site, to_unix
from hydrator.domain.redaction import sanitize
from hydrator.domain.untrusted import MAX_NAME_CHARS, is_ahead, valid_integer, valid_time

MOST_REJECTED: Final = 100
"""The number of rejected ads that are listed by name; the others are counted."""
_MAX_SHOWN_CHARS: Final = 80


def parse_published_ad(
    site: object,
    generation: object,
    as_of: object,
    received_at: object,
    now: datetime,
    open_until: object = None,
) -> PublishedAd:
    """Build the ad from the values that a publisher returned; any other value of *open_until* is none.

    Raises:
        ValueError: the site's name is not a text of 1 to 500 characters; a number is not a whole number of 0
            or more; or the generation or the time is a day or more ahead of *now*.
    """
    if not isinstance(site, str) or not 0 < len(site) <= MAX_NAME_CHARS:
        raise ValueError(f"its site is not a name of 1 to {MAX_NAME_CHARS} characters: {quote_excerpt(site)}")
    numbers = {}
    for key, value in (("generation", generation), ("AsOf", as_of)):
        number = valid_integer(value)
        if number is None:
            raise ValueError(f"its {key} is not a whole number of 0 or more: {quote_excerpt(value)}")
        if is_ahead(number, now):
            raise ValueError(
                f"its {key} {number} is a day or more ahead of this host's clock, {to_unix(now)}"
            )
        numbers[key] = number
    as_of_time = valid_time(numbers["AsOf"])
    updated_at = received_at if isinstance(received_at, datetime) else valid_time(received_at)
    if as_of_time is None or updated_at is None:
        raise ValueError(f"the time of its last update is not valid: {quote_excerpt(received_at)}")
    until = valid_time(valid_integer(open_until))
    return PublishedAd(Site(site), numbers["generation"], as_of_time, updated_at, until)


def read_back(
    readers: Iterable[tuple[object, Callable[[], PublishedAd]]],
) -> tuple[Mapping[Site, PublishedAd], Mapping[str, str]]:
    """Return the ads that *readers* read, by site, and the reasons why others are rejected, by their names.

    Args:
        readers: names of ads, each with a function that reads the ad. An ad is rejected if it cannot be read;
            one whose file no longer exists is left out.
    """
    adopted: dict[Site, PublishedAd] = {}
    rejected: dict[str, str] = {}
    unnamed_count = 0
    for name, read_ad in readers:
        try:
            ad = read_ad()
        except FileNotFoundError:  # it was withdrawn meanwhile
            continue
        except (ValueError, OverflowError, OSError) as error:
            if len(rejected) < MOST_REJECTED:
                rejected[sanitize(str(name), _MAX_SHOWN_CHARS)] = str(error)
            else:
                unnamed_count += 1
        else:
            adopted[ad.site] = ad
    others = {"others": f"{unnamed_count} more ads were rejected"} if unnamed_count else {}
    return adopted, {**rejected, **others}
