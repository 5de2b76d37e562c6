"""Ads as they are read back: untrusted, since whoever may write where they stand may have written them."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from hydrator.domain.model import PublishedAd, Site, to_unix
from hydrator.domain.untrusted import MAX_NAME_CHARS, is_ahead, valid_integer, valid_time

MOST_REJECTED: Final = 100
"""Rejected ads that are named; of more, the number is reported."""
_MAX_REPR_CHARS: Final = 80


def parse_published_ad(
    site: object, generation: object, as_of: object, received_at: object, now: datetime
) -> PublishedAd:
    """Build the ad that a publisher shows.

    Raises:
        ValueError: the name is not a text of at most 500 characters, a number is not a whole number of 0 or
            more, or the generation or the time is a day or more ahead of *now*: the daemon's own are not.
    """
    if not isinstance(site, str) or not 0 < len(site) <= MAX_NAME_CHARS:
        raise ValueError(f"its site is not a name of 1 to {MAX_NAME_CHARS} characters: {short_repr(site)}")
    known = {}
    for what, value in (("generation", generation), ("AsOf", as_of)):
        number = valid_integer(value)
        if number is None:
            raise ValueError(f"its {what} is not a whole number of 0 or more: {short_repr(value)}")
        if is_ahead(number, now):
            raise ValueError(f"its {what} {number} is a day or more ahead of the time here, {to_unix(now)}")
        known[what] = number
    read, at = (
        valid_time(known["AsOf"]),
        received_at if isinstance(received_at, datetime) else valid_time(received_at),
    )
    if read is None or at is None:
        raise ValueError(f"it was heard at a time that cannot be: {short_repr(received_at)}")
    return PublishedAd(Site(site), known["generation"], read, at)


def short_repr(value: object) -> str:
    """Return *value* for a message, short."""
    text = repr(value if not isinstance(value, str) else value[: _MAX_REPR_CHARS + 1])
    return text if len(text) <= _MAX_REPR_CHARS else text[: _MAX_REPR_CHARS - 3] + "..."


class ReadBackAds:
    """Ads that are read back one after the other: adopted, or rejected with a reason."""

    def __init__(self) -> None:
        self.adopted_ads: dict[Site, PublishedAd] = {}
        self._rejected: dict[str, str] = {}
        self._unnamed_count = 0

    def add(self, name: object, read_ad: Callable[[], PublishedAd]) -> None:
        """Adopt the ad that *read* returns; one that it cannot read is rejected under *name*, and no other.

        Raises:
            FileNotFoundError: there is none any more.
        """
        try:
            ad = read_ad()
        except FileNotFoundError:
            raise
        except (ValueError, OSError) as error:
            self.reject(name, str(error))
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            self.reject(name, repr(error))
        else:
            self.adopted_ads[ad.site] = ad

    def reject(self, name: object, reason: str) -> None:
        """Remember why the ad called *name* is not adopted."""
        if len(self._rejected) < MOST_REJECTED:
            is_plain = isinstance(name, str) and len(name) <= _MAX_REPR_CHARS and name.isprintable()
            self._rejected[str(name) if is_plain else short_repr(name)] = reason
        else:
            self._unnamed_count += 1

    @property
    def rejected(self) -> Mapping[str, str]:
        """By name, why an ad was not adopted."""
        more = {"others": f"{self._unnamed_count} more ads are not adopted"} if self._unnamed_count else {}
        return {**self._rejected, **more}
