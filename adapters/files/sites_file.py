"""Sites file: publish one JSON file with the sites of each AVAILABLE dataset, for programs that start pilots.

A GlideinWMS frontend sees jobs and factory entries, but no slots. So it reads this
file once in each of its cycles to learn which datasets the slots of a site have::

    {"version": 1, "written": 1763690400, "valid_until": 1763694000, "max_age": 20700,
     "sites": {"UK": {"as_of": 1763690395, "generation": 1763690000, …}},
     "datasets": {"lofar:L1": ["UK"]},
     "sets": {"lofar:@L1": {"UK": {"share": 1.0, "as_of": 1763690395},
                            "DE": {"share": 0.0, "as_of": 1763690395, "open_seconds": 256,
                                   "read_from": "UK"}}}}

Times are Unix seconds. A dataset that no site has is not listed.
The key of a set is the ``DataLocalityKey`` of the jobs. With openings, a site's row has ``backlog`` and
``open_until``: after this time a reader must ignore the seconds of the site.
After ``valid_until`` a reader must ignore the file. If the daemon has no new facts about a site, the
site's entry with its ``as_of`` stays unchanged. When ``as_of`` is ``max_age`` seconds old, jobs no longer
use the site's facts, and a reader should not use them either. The daemon replaces the file by a rename and
never writes in place.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from adapters.readback import ReadBackAds, parse_published_ad
from adapters.untrusted_text import quote_excerpt
from hydrator.domain.ads import contract
from hydrator.domain.ads.set_answers import SetAnswer, SiteAnswers, read_set_answers
from hydrator.domain.errors import PublishError
from hydrator.domain.files import read_regular, replace_file
from hydrator.domain.model import PublishedAd, Site, SiteAd, to_unix
from hydrator.domain.ports import Clock
from hydrator.domain.text import reason_of
from hydrator.domain.untrusted import valid_integer

from .ad_files import prepare_folder

VERSION: Final = 1
MAX_BYTES: Final = 256 * 1024 * 1024
_MODE: Final = 0o644
_AVAILABLE: Final = re.compile(r"'([^']+)'=\"AVAILABLE\"")
"""One entry of ``DatasetStates`` in a site's ad: no DID contains a quote."""
_EXTRA_FIELDS: Final = ("backlog", "open_until")
"""Whole numbers in a site's row that it does not always have."""


class _Document(TypedDict):
    """The form of the file. A site's row is checked by itself: a forged one costs its own site alone."""

    version: int
    sites: dict[str, Any]
    datasets: dict[str, list[str]]
    sets: dict[str, dict[str, dict[str, Any]]]


@cache
def _document_type() -> TypeAdapter[_Document]:
    return TypeAdapter(_Document)


@dataclass(frozen=True, slots=True)
class _SiteContents:
    """The content of the file for one site: its ad, the DIDs of its AVAILABLE datasets, and its sets by key.

    ``extras`` has the fields of the site's row about openings.
    """

    ad: PublishedAd
    available_dids: frozenset[str]
    extras: Mapping[str, int]
    sets: Mapping[str, Mapping[str, Any]]


_Contents = Mapping[Site, _SiteContents]


class SitesFilePublisher:
    """A publisher that writes the file *path*, ``sites_by_dataset.json``, and reads the file back.

    Args:
        path: the file. If its folder is missing, the publisher creates a folder that all users can read.
        valid_for: the time from the writing of the file to ``valid_until``.
        max_age: the largest age of facts that jobs accept.
        clock: a function that returns the present time, aware UTC.

    ``rejected`` has the reasons why the last read-back rejected the file or a site in it. For example, the
    file is incomplete, from another program, or has another version. The daemon then replaces the whole
    file.
    """

    name = "sites"

    def __init__(self, path: Path, *, valid_for: timedelta, max_age: timedelta, clock: Clock) -> None:
        self._path = path
        self._valid_for = valid_for
        self._max_age = max_age
        self._clock = clock
        self.rejected: Mapping[str, str] = {}

    def published(self) -> Mapping[Site, PublishedAd]:
        """See :class:`hydrator.domain.ports.Publisher`. If the file is missing or invalid, return no ads."""
        return {site: each.ad for site, each in self._load().items()}

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`. Write all of *ads* at once, or none."""
        if not ads:
            return
        contents, now = self._load(), self._clock()
        self._replace({**contents, **{ad.site: _site_contents(ad, now) for ad in ads}}, now)

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`."""
        contents = self._load()
        if sites & contents.keys():
            left = {site: each for site, each in contents.items() if site not in sites}
            self._replace(left, self._clock())

    def _load(self) -> _Contents:
        """Read the file; return empty contents if the file is missing or not valid."""
        contents: _Contents = {}
        self.rejected = {}
        try:
            contents, self.rejected = _read_back(self._path, self._clock())
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise PublishError(self.name, f"{self._path}: {exc.strerror}") from exc
        except (ValueError, RecursionError) as exc:
            self.rejected = {self._path.name: reason_of(exc)}
        return contents

    def _replace(self, contents: _Contents, now: datetime) -> None:
        text = _to_json(contents, now, self._valid_for, self._max_age)
        folder = self._path.parent
        try:
            prepare_folder(folder, self._clock)
            replace_file(self._path, text, mode=_MODE)
        except OSError as exc:
            raise PublishError(self.name, f"{self._path}: {exc.strerror}") from exc


def _site_contents(ad: SiteAd, now: datetime) -> _SiteContents:
    answers = read_set_answers(ad, now)
    published = PublishedAd(ad.site, ad.generation, ad.as_of, now, ad.open_until)
    sets: dict[str, Mapping[str, Any]] = {key: _set_row(one) for key, one in answers.by_key.items()}
    return _SiteContents(published, _available_dids(ad), _extra_fields(ad, answers), sets)


def _available_dids(ad: SiteAd) -> frozenset[str]:
    """Return the DIDs that are AVAILABLE in *ad*, without those that the size budget omitted from *ad*."""
    return frozenset(_AVAILABLE.findall(dict(ad.content).get(contract.DATASET_STATES, "")))


def _extra_fields(ad: SiteAd, answers: SiteAnswers) -> dict[str, int]:
    """Return the fields of a site's row about openings, also if they are void: they are read back."""
    if ad.open_until is None:
        return {}
    return {"backlog": answers.backlog, "open_until": to_unix(ad.open_until)}


def _set_row(answer: SetAnswer) -> dict[str, Any]:
    row = {
        "share": answer.share,
        "as_of": answer.as_of,
        "open_seconds": answer.open_seconds,
        "read_from": answer.read_from,
    }
    return {name: value for name, value in row.items() if value is not None}


def _to_json(contents: _Contents, now: datetime, valid_for: timedelta, max_age: timedelta) -> bytes:
    datasets: dict[str, list[str]] = {}
    sites: dict[str, dict[str, float]] = {}
    sets: dict[str, dict[str, Mapping[str, Any]]] = {}
    for site, each in sorted(contents.items(), key=itemgetter(0)):
        sites[site] = {
            "as_of": to_unix(each.ad.as_of),
            "generation": each.ad.generation,
            "heard": each.ad.received_at.timestamp(),
            **each.extras,
        }
        for did in each.available_dids:
            datasets.setdefault(did, []).append(site)
        for key, row in each.sets.items():
            sets.setdefault(key, {})[site] = row
    document = {
        "version": VERSION,
        "written": to_unix(now),
        "valid_until": to_unix(now + valid_for),
        "max_age": int(max_age.total_seconds()),
        "sites": sites,
        "datasets": dict(sorted(datasets.items())),
        "sets": dict(sorted(sets.items())),
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _read_back(path: Path, now: datetime) -> tuple[_Contents, Mapping[str, str]]:
    """Read *path*; return its contents, and the rejected sites with the reasons.

    Raises:
        OSError: the file cannot be read.
        ValueError: another program wrote the file.
        RecursionError: its JSON is nested too deeply.
    """
    data, _ = read_regular(path, MAX_BYTES)
    document = _document_type().validate_python(json.loads(data))
    if document["version"] != VERSION:
        raise ValueError(f"the file has version {document['version']}, not {VERSION}")
    read_back = ReadBackAds()
    for site, row in document["sites"].items():
        read_back.add(site, partial(_read_ad, site, row, now))
    dids = _dids_by_site(document["sites"], document["datasets"])
    sets: dict[str, dict[str, Mapping[str, Any]]] = {}
    for key, rows in document["sets"].items():
        for place, row in rows.items():
            sets.setdefault(place, {})[key] = row
    contents = {
        site: _SiteContents(
            ad,
            frozenset(dids[site]),
            {
                name: document["sites"][site][name]
                for name in _EXTRA_FIELDS
                if valid_integer(document["sites"][site].get(name)) is not None
            },
            sets.get(site, {}),
        )
        for site, ad in read_back.adopted_ads.items()
    }
    return contents, read_back.rejected


def _read_ad(site: str, row: object, now: datetime) -> PublishedAd:
    if not isinstance(row, dict):
        raise ValueError(f"its row is not an object: {quote_excerpt(row)}")  # noqa: TRY004 - of the file
    return parse_published_ad(
        site, row.get("generation"), row.get("as_of"), row.get("heard"), now, row.get("open_until")
    )


def _dids_by_site(
    sites: Iterable[str], datasets: Mapping[str, Sequence[str]]
) -> Mapping[str, AbstractSet[str]]:
    """Return the datasets of each of *sites*; raise ValueError if a dataset's site is another."""
    listed: dict[str, set[str]] = {site: set() for site in sites}
    for did, places in datasets.items():
        for place in places:
            if place not in listed:
                raise ValueError(f"{did} is at {place}, which is not among the file's sites")
            listed[place].add(did)
    return listed
