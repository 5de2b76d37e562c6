"""Set answers: the entries of a site's ad about each demanded set of datasets, read back from the ad's text.

The file of sites, the lists of sites for jobs, the HTTP API and the page show the same numbers that the ads
give to the negotiator. This module is pure.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.model import Site, SiteAd, to_unix

_ENTRY = re.compile(r"(?:'([^']+)'|([a-z][a-z0-9]*))=(\"[^\"]*\"|[^;\]]+)")
"""One entry of a nested ad; the name has no quotes if it is a hashed key."""
_INTEGER = re.compile(r"-?[0-9]{1,15}\Z")
_REAL = re.compile(r"[0-9]{1,4}(\.[0-9]{1,15})?\Z")


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """The entries of a site's ad about one set of datasets.

    ``share`` (0 to 1) of the set's bytes is on disk at the site; 1 means that all its datasets are usable.
    ``as_of`` (Unix s) is the time of the oldest fact. The estimates are None if unknown: a job at the site
    could have read its missing data after ``read_seconds``, from ``source``; beside the data, a slot comes
    free after ``queue_seconds``. If only ``read_seconds`` is None, the data cannot be reached from the site.
    """

    share: float
    as_of: int
    read_seconds: int | None = None
    queue_seconds: int | None = None
    source: Site | None = None

    @property
    def is_whole(self) -> bool:
        return self.share >= 1


@dataclass(frozen=True, slots=True)
class SiteAnswers:
    """The set answers of one site's ad; without valid estimates, all numbers of seconds are None or 0."""

    by_key: Mapping[SetKey, SetAnswer] = field(default_factory=dict)
    own_queue_seconds: int = 0
    estimates_until: int | None = None

    def has_cheaper_read(self, key: SetKey) -> bool:
        """Return whether a job in mode auto may run at the site although its data is not all there.

        This is the rule of the jobs' expressions: the read, and the jobs whose data is at the site, end
        before a slot beside the data comes free.
        """
        answer = self.by_key.get(key)
        if answer is None or answer.read_seconds is None or answer.queue_seconds is None:
            return False
        return answer.read_seconds + self.own_queue_seconds < answer.queue_seconds


def read_set_answers(ad: SiteAd, now: datetime, keys: Container[str] | None = None) -> SiteAnswers:
    """Return the set answers of *ad*, with the estimates only if they are valid at *now*.

    With *keys*, return only the answers of these sets. Skip entries that cannot be decoded, for example those
    of another daemon version.
    """
    lines = dict(ad.content)
    shares = _entries(lines.get(contract.SETS))
    times = _entries(lines.get(contract.SETS_AS_OF))
    site = read_site_answers(ad, now)
    is_valid = site.estimates_until is not None
    names = (contract.READ_SECONDS, contract.QUEUE_SECONDS, contract.READ_FROM)
    reads, queues, sources = (_entries(lines.get(name) if is_valid else None) for name in names)
    answers = {
        SetKey(key): SetAnswer(
            float(share),
            _integer(times.get(key)) or to_unix(ad.as_of),
            _integer(reads.get(key)),
            _integer(queues.get(key)),
            Site(sources[key].strip('"')) if key in sources else None,
        )
        for key, share in shares.items()
        if (keys is None or key in keys) and _REAL.match(share)
    }
    return replace(site, by_key=answers)


def read_site_answers(ad: SiteAd, now: datetime) -> SiteAnswers:
    """Return what *ad* says about its site as a whole, without the answers about single sets."""
    lines, until = dict(ad.content), ad.estimates_until
    if until is None or now >= until:
        return SiteAnswers()
    return SiteAnswers(
        own_queue_seconds=_integer(lines.get(contract.OWN_QUEUE_SECONDS)) or 0,
        estimates_until=to_unix(until),
    )


def _entries(nested_ad: str | None) -> dict[str, str]:
    return {quoted or bare: value for quoted, bare, value in _ENTRY.findall(nested_ad or "")}


def _integer(literal: str | None) -> int | None:
    return int(literal) if literal is not None and _INTEGER.match(literal) else None
