"""Ads as they are read back: untrusted, since whoever may write where they stand may have written them."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from hydrator.domain.model import PublishedAd, Site, unix
from hydrator.domain.numbers import MOST_NAME, is_ahead, moment, whole

MOST_REJECTED: Final = 100
"""Rejected ads that are named; of more, the number is reported."""
_SHOWN: Final = 80


def believable(site: object, generation: object, as_of: object, heard: object, now: datetime) -> PublishedAd:
    """Build the ad that a publisher shows.

    Raises:
        ValueError: the name is not a text of at most 500 characters, a number is not a whole number of 0 or
            more, or the generation or the time is a day or more ahead of *now*: the daemon's own are not.
    """
    if not isinstance(site, str) or not 0 < len(site) <= MOST_NAME:
        raise ValueError(f"its site is not a name of 1 to {MOST_NAME} characters: {shown(site)}")
    known = {}
    for what, value in (("generation", generation), ("AsOf", as_of)):
        number = whole(value)
        if number is None:
            raise ValueError(f"its {what} is not a whole number of 0 or more: {shown(value)}")
        if is_ahead(number, now):
            raise ValueError(f"its {what} {number} is a day or more ahead of the time here, {unix(now)}")
        known[what] = number
    read, at = moment(known["AsOf"]), heard if isinstance(heard, datetime) else moment(heard)
    if read is None or at is None:
        raise ValueError(f"it was heard at a time that cannot be: {shown(heard)}")
    return PublishedAd(Site(site), known["generation"], read, at)


def shown(value: object) -> str:
    """Return *value* for a message, short."""
    text = repr(value if not isinstance(value, str) else value[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


class Sorted:
    """Ads that are read back one after the other: adopted, or rejected with a reason."""

    def __init__(self) -> None:
        self.adopted: dict[Site, PublishedAd] = {}
        self._rejected: dict[str, str] = {}
        self._more = 0

    def add(self, name: object, read: Callable[[], PublishedAd]) -> None:
        """Adopt the ad that *read* returns; one that it cannot read is rejected under *name*, and no other.

        Raises:
            FileNotFoundError: there is none any more.
        """
        try:
            ad = read()
        except FileNotFoundError:
            raise
        except (ValueError, OSError) as error:
            self.reject(name, str(error))
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            self.reject(name, repr(error))
        else:
            self.adopted[ad.site] = ad

    def reject(self, name: object, why: str) -> None:
        """Remember why the ad called *name* is not adopted."""
        if len(self._rejected) < MOST_REJECTED:
            is_plain = isinstance(name, str) and len(name) <= _SHOWN and name.isprintable()
            self._rejected[str(name) if is_plain else shown(name)] = why
        else:
            self._more += 1

    @property
    def rejected(self) -> Mapping[str, str]:
        """By name, why an ad was not adopted."""
        more = {"others": f"{self._more} more ads are not adopted"} if self._more else {}
        return {**self._rejected, **more}
