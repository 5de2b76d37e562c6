"""Ads that the daemon reads back from a publisher. They are untrusted: other programs may write ads, too."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from adapters.untrusted_text import quote_excerpt
from hydrator.domain.model import PublishedAd, Site, to_unix
from hydrator.domain.untrusted import MAX_NAME_CHARS, is_ahead, valid_integer, valid_time

MOST_REJECTED: Final = 100
"""The number of rejected ads that are listed by name; the others are counted."""
_MAX_REPR_CHARS: Final = 80


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


class ReadBackAds:
    """The result of reading ads back: the accepted ads, and by name the reasons why others were rejected."""

    def __init__(self) -> None:
        self.adopted_ads: dict[Site, PublishedAd] = {}
        self._rejected: dict[str, str] = {}
        self._unnamed_count = 0

    def add(self, name: object, read_ad: Callable[[], PublishedAd]) -> None:
        """Accept the ad that *read_ad* returns. If it cannot be read, reject the ad called *name*.

        Raises:
            FileNotFoundError: the ad no longer exists.
        """
        try:
            ad = read_ad()
        except FileNotFoundError:
            raise
        except (ValueError, OverflowError, OSError) as error:
            self.reject(name, str(error))
        else:
            self.adopted_ads[ad.site] = ad

    def reject(self, name: object, reason: str) -> None:
        """Store the *reason* why the ad called *name* is rejected."""
        if len(self._rejected) < MOST_REJECTED:
            is_plain = isinstance(name, str) and len(name) <= _MAX_REPR_CHARS and name.isprintable()
            self._rejected[str(name) if is_plain else quote_excerpt(name)] = reason
        else:
            self._unnamed_count += 1

    @property
    def rejected(self) -> Mapping[str, str]:
        """Return, by ad name, the reasons why ads were rejected."""
        more = {"others": f"{self._unnamed_count} more ads were rejected"} if self._unnamed_count else {}
        return {**self._rejected, **more}
