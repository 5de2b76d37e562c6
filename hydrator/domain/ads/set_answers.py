"""Set answers: the entries of a site's ad about each demanded set of datasets, read back from the ad's text.

The file of sites, the lists of sites for jobs, the HTTP API and the page show the same numbers that the ads
give to the negotiator. This module is pure.
"""

import re
from collections.abc import Container
from dataclasses import dataclass, replace
from datetime import datetime

from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.model import Site, SiteAd, to_unix
from hydrator.domain.untrusted import MAX_UNIX_SECONDS, valid_integer

_ENTRY = re.compile(r"(?:'([^']+)'|([a-z][a-z0-9]*))=(\"[^\"]*\"|[^;\]]+)")
"""One entry of a nested ad; the name has no quotes if it is a hashed key."""
_LANE = re.compile(r"~[0-9]{1,2}\Z")
_INTEGER = re.compile(r"-?[0-9]{1,15}\Z")
_REAL = re.compile(r"[0-9]{1,4}(\.[0-9]{1,15})?\Z")


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """The entries of a site's ad about one set of datasets.

    ``share`` (0 to 1) of the set's bytes is on disk at the site; 1 means that all its datasets are usable.
    ``as_of`` (Unix s) is the time of the oldest fact. If the set, or a lane of it, is open at the site,
    ``open_seconds`` are the seconds of a read, from ``read_from``; else they are None.
    """

    share: float
    as_of: int
    open_seconds: int | None = None
    read_from: Site | None = None


def read_set_answers(
    ad: SiteAd, now: datetime, keys: Container[str] | None = None
) -> dict[SetKey, SetAnswer]:
    """Return the set answers of *ad*, with the openings only if they are valid at *now*.

    With *keys*, return only the answers of these sets. Skip entries that cannot be decoded, for example those
    of another daemon version.
    """
    shares = read_shares(ad)
    answers = {key: one for key, one in shares.items() if keys is None or key in keys}
    if ad.open_until is not None and now < ad.open_until:
        openings = dict(ad.openings)
        sources = parse_entries(openings.get(contract.READ_FROM))
        for name, text in parse_entries(openings.get(contract.OPEN)).items():
            key = SetKey(name if name in shares else _LANE.sub("", name))
            seconds = _integer(text)
            if seconds is not None and (keys is None or key in keys):
                source = Site(sources[name].strip('"')) if name in sources else None
                # the entry of an open set may have had no room in the ad
                answer = answers.get(key, SetAnswer(0.0, to_unix(ad.as_of)))
                answers[key] = replace(answer, open_seconds=seconds, read_from=source)
    return answers


def read_shares(ad: SiteAd) -> dict[SetKey, SetAnswer]:
    """Return the answers of *ad* about its sets without the openings; skip those that cannot be decoded."""
    lines = dict(ad.content)
    times = parse_entries(lines.get(contract.SETS_AS_OF))
    answers = {}
    for key, share in parse_entries(lines.get(contract.SETS)).items():
        given = _integer(times[key]) if key in times else to_unix(ad.as_of)
        if _REAL.match(share) and (as_of := valid_integer(given, MAX_UNIX_SECONDS)) is not None:
            answers[SetKey(key)] = SetAnswer(float(share), as_of)
    return answers


def read_backlog(ad: SiteAd) -> int:
    """Return the backlog in *ad*; 0 without one."""
    return _integer(dict(ad.openings).get(contract.BACKLOG)) or 0


def parse_entries(nested_ad: str | None) -> dict[str, str]:
    """Return the literals of a nested ad, such as ``['lofar:L1'="STAGING"]``, by their names."""
    return {quoted or bare: value for quoted, bare, value in _ENTRY.findall(nested_ad or "")}


def _integer(literal: str | None) -> int | None:
    return int(literal) if literal is not None and _INTEGER.match(literal) else None
