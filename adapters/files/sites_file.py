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
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from adapters.readback import parse_published_ad, read_back
from adapters.untrusted_text import quote_excerpt
from hydrator.domain.ads import contract
from hydrator.domain.ads.set_answers import read_backlog, read_set_answers
from hydrator.domain.errors import PublishError
from hydrator.domain.files import read_regular, replace_file
from hydrator.domain.model import PublishedAd, Site, SiteAd, to_unix
from hydrator.domain.ports import Clock
from hydrator.domain.text import reason_of
from hydrator.domain.untrusted import valid_number

from .ad_files import prepare_folder

VERSION: Final = 1
MAX_BYTES: Final = 256 * 1024 * 1024
_MODE: Final = 0o644
_AVAILABLE: Final = re.compile(r"'([^']+)'=\"AVAILABLE\"")
"""One entry of ``DatasetStates`` in a site's ad: no DID contains a quote."""
_FIELDS: Final = ("as_of", "generation", "heard", "backlog", "open_until")
"""The numbers in a site's row; a site without openings has no backlog and no end of them."""


class _Document(TypedDict):
    """The form of the file. A site's row is checked by itself: a forged one costs its own site alone."""

    version: int
    sites: dict[str, Any]
    datasets: dict[str, list[str]]
    sets: dict[str, dict[str, dict[str, Any]]]


@cache
def _document_type() -> TypeAdapter[_Document]:
    return TypeAdapter(_Document)


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
        return self._load()[1]

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`. Write all of *ads* at once, or none."""
        if not ads:
            return
        now = self._clock()
        document = _remove_sites(self._load()[0], {ad.site for ad in ads})
        for ad in ads:
            _add_ad(document, ad, now)
        self._replace(document, now)

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`."""
        document, ads = self._load()
        if sites & ads.keys():
            self._replace(_remove_sites(document, sites), self._clock())

    def _load(self) -> tuple[_Document, Mapping[Site, PublishedAd]]:
        """Read the file; return its content and its ads, both empty if the file is missing or not valid."""
        self.rejected = {}
        try:
            document, ads, self.rejected = _read_document(self._path, self._clock())
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise PublishError(self.name, f"{self._path}: {exc.strerror}") from exc
        except (ValueError, RecursionError) as exc:
            self.rejected = {self._path.name: reason_of(exc)}
        else:
            return document, ads
        return _Document(version=VERSION, sites={}, datasets={}, sets={}), {}

    def _replace(self, document: _Document, now: datetime) -> None:
        """Write *document* with the time *now* and the end of its validity."""
        text = {
            "version": VERSION,
            "written": to_unix(now),
            "valid_until": to_unix(now + self._valid_for),
            "max_age": int(self._max_age.total_seconds()),
            "sites": dict(sorted(document["sites"].items())),
            "datasets": {did: sorted(sites) for did, sites in sorted(document["datasets"].items())},
            "sets": dict(sorted(document["sets"].items())),
        }
        try:
            prepare_folder(self._path.parent, self._clock)
            replace_file(self._path, json.dumps(text, separators=(",", ":")).encode() + b"\n", mode=_MODE)
        except OSError as exc:
            raise PublishError(self.name, f"{self._path}: {exc.strerror}") from exc


def _add_ad(document: _Document, ad: SiteAd, now: datetime) -> None:
    """Add what *ad* says to *document*, which has nothing of its site; the openings also if they are void."""
    row = {"as_of": to_unix(ad.as_of), "generation": ad.generation, "heard": now.timestamp()}
    if ad.open_until is not None:
        row |= {"backlog": read_backlog(ad), "open_until": to_unix(ad.open_until)}
    document["sites"][ad.site] = row
    for did in _available_dids(ad):
        document["datasets"].setdefault(did, []).append(ad.site)
    for key, one in read_set_answers(ad, now).items():
        known = {name: value for name, value in asdict(one).items() if value is not None}
        document["sets"].setdefault(key, {})[ad.site] = known


def _remove_sites(document: _Document, sites: AbstractSet[str]) -> _Document:
    """Return *document* without *sites*, and without the datasets and sets that no other site has."""
    datasets = {
        did: [site for site in places if site not in sites] for did, places in document["datasets"].items()
    }
    sets = {
        key: {site: row for site, row in rows.items() if site not in sites}
        for key, rows in document["sets"].items()
    }
    return _Document(
        version=document["version"],
        sites={site: row for site, row in document["sites"].items() if site not in sites},
        datasets={did: places for did, places in datasets.items() if places},
        sets={key: rows for key, rows in sets.items() if rows},
    )


def _available_dids(ad: SiteAd) -> frozenset[str]:
    """Return the DIDs that are AVAILABLE in *ad*, without those that the size budget omitted from *ad*."""
    return frozenset(_AVAILABLE.findall(dict(ad.content).get(contract.DATASET_STATES, "")))


def _read_document(
    path: Path, now: datetime
) -> tuple[_Document, Mapping[Site, PublishedAd], Mapping[str, str]]:
    """Read *path*; return its content, without the sites that are rejected, its ads, and these sites.

    Raises:
        OSError: the file cannot be read.
        ValueError: another program wrote the file.
        RecursionError: its JSON is nested too deeply.
    """
    data, _ = read_regular(path, MAX_BYTES)
    document = _document_type().validate_python(json.loads(data))
    if document["version"] != VERSION:
        raise ValueError(f"the file has version {document['version']}, not {VERSION}")
    readers = [(site, partial(_read_ad, site, row, now)) for site, row in document["sites"].items()]
    ads, rejected = read_back(readers)
    places = set[str]().union(*document["datasets"].values(), *document["sets"].values())
    if unknown := places - document["sites"].keys():
        raise ValueError(f"it names {min(unknown)}, which is not among the file's sites")
    document = _remove_sites(document, document["sites"].keys() - ads.keys())
    for site, row in document["sites"].items():
        known = {name: row[name] for name in _FIELDS if valid_number(row.get(name)) is not None}
        document["sites"][site] = known
    return document, ads, rejected


def _read_ad(site: str, row: object, now: datetime) -> PublishedAd:
    if not isinstance(row, dict):
        raise ValueError(f"its row is not an object: {quote_excerpt(row)}")  # noqa: TRY004 - of the file
    return parse_published_ad(
        site, row.get("generation"), row.get("as_of"), row.get("heard"), now, row.get("open_until")
    )
