"""Openings: the sets of datasets whose ``auto`` jobs may start away from their data now, site by site.

The daemon computes the openings in each cycle (``hydrator/reconcile/pacing.py``) and adds them to the site
ads. A new opening is not a new generation of the ad. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple

from hydrator.domain.ads import contract
from hydrator.domain.ads.classad import classad_string
from hydrator.domain.ads.dataset_sets import SetKey, quote_key
from hydrator.domain.model import Site
from hydrator.domain.text import format_bytes, format_count, format_duration, shorten_list

MAX_LANE: Final = 10
MAX_LINE_BYTES: Final = 30_000
"""The bytes of a line, half of what an ad's line may have."""
_NUMBER_BYTES, _ENTRY_BYTES = 10, 6
_HOOK_SOURCE = re.compile(r"[ !#-[\]-~]{1,200}\Z")
"""The names of sources that a hook accepts: up to 200 printable ASCII characters without ``"`` and backslash.

A hook that reads another name rejects the whole ad, so the ad omits such a source.
"""


class Opening(NamedTuple):
    """The read of one job of an open set at a site, if no other job reads.

    Most of ``missing_bytes`` come from ``source``; it is None if the job lacks only what no site has on disk.
    """

    read_seconds: int
    source: Site | None
    missing_bytes: int


_SECONDS = attrgetter("read_seconds")
"""The order of openings: sources have none, as one may be None."""


class Reason(StrEnum):
    """The kinds of prospect of waiting jobs, as ``why`` explains them."""

    BESIDE = "beside"
    """Their data is at the sites; so many idle jobs with data there wait, themselves included."""
    OPEN = "open"
    """They, or those in some lanes, may start at the sites now; their link feeds so many sets."""
    TURN = "turn"
    """Their turn to read has not come: the link of the site feeds so many sets before them."""
    ABSENT = "absent"
    """Some of their data can be read at no site; they may run anywhere so many seconds after they came."""
    NOWHERE = "nowhere"
    """No site that could read their data has large enough slots, or no job may read from the sites."""


class Outlook(NamedTuple):
    """The prospect of a set's idle jobs; :class:`Reason` says what ``sites`` and ``number`` are.

    ``lanes`` are the open ones; empty: all, if the set is open.
    """

    reason: Reason
    sites: tuple[Site, ...] = ()
    number: int = 0
    lanes: tuple[int, ...] = ()

    def is_open(self, lane: int) -> bool:
        """Return True if jobs in *lane* may start at the sites now."""
        return self.reason is Reason.OPEN and (not self.lanes or lane in self.lanes)


@dataclass(frozen=True, slots=True)
class Openings:
    """The openings of a round.

    Attributes:
        openings: the open sets by site: ``key``, or ``key~lane``. All sites with slots have an entry.
        open_until: the Unix seconds at which the openings become void if no other round follows.
        backlog: the idle jobs whose set is whole at a site.
        outlooks: the prospect of each known set with ``auto`` jobs.
    """

    openings: Mapping[Site, Mapping[str, Opening]] = field(default_factory=dict)
    open_until: float = 0.0
    backlog: Mapping[Site, int] = field(default_factory=dict)
    outlooks: Mapping[SetKey, Outlook] = field(default_factory=dict)

    def find(self, key: str, site: Site) -> Opening | None:
        """Return the shortest opening of the set *key*, or of one of its lanes, at *site*; None if closed."""
        by_name = self.openings.get(site, {})
        names = (key, *(f"{key}~{lane}" for lane in range(MAX_LANE + 1)))
        return min((by_name[name] for name in names if name in by_name), key=_SECONDS, default=None)


Lines = tuple[tuple[str, str], ...]
"""Attributes with their ClassAd literals, in the order of the ad."""


def write_openings(by_name: Mapping[str, Opening], backlog: int) -> Lines:
    """Return the lines of a site's openings; equal openings give equal lines.

    Seconds have two digits, rounded up, and the backlog is a power of two, rounded down: so the lines do not
    change in each round of a busy pool. If they do not fit into lines of MAX_LINE_BYTES, those with the
    longest reads are left out.
    """
    named: list[tuple[str, Opening]] = []
    size = 0
    for name, one in sorted(by_name.items(), key=lambda item: (item[1].read_seconds, item[0])):
        size += len(name) + max(_NUMBER_BYTES, len(one.source or "")) + _ENTRY_BYTES
        if size > MAX_LINE_BYTES:
            break
        named.append((quote_key(name), one))
    named.sort()
    sources = [(name, one.source) for name, one in named if one.source and _HOOK_SOURCE.match(one.source)]
    return (
        (contract.OPEN, f"[{';'.join([f'{name}={_round_up(one.read_seconds)}' for name, one in named])}]"),
        (
            contract.READ_FROM,
            f"[{';'.join([f'{name}={classad_string(source)}' for name, source in sources])}]",
        ),
        (contract.BACKLOG, str(1 << backlog.bit_length() - 1 if backlog > 0 else 0)),
    )


def _round_up(seconds: int) -> int:
    """Return *seconds* with two digits and zeros, or a little more."""
    unit = int(10 ** max(0, len(str(seconds)) - 2))
    return -(-seconds // unit) * unit


def describe_outlook(key: str, made: Openings, *, lane: int | None = None, is_queued: bool = True) -> str:
    """Return the prospect of an ``auto`` job of the set *key* in words; empty if it is unknown.

    Args:
        key: the set.
        made: the openings of the last round.
        lane: the job's lane, which may be closed while others of the set are open; None: any lane.
        is_queued: False for a job that is not among those that the daemon counted.
    """
    outlook = made.outlooks.get(SetKey(key))
    if outlook is None:
        return ""
    sites = shorten_list(outlook.sites)
    if outlook.reason is Reason.BESIDE:
        others = outlook.number - is_queued
        before = f"up to {format_count(others, 'job')}" if others > 0 else "no job"
        return f"its data is at {sites}, with {before} before it there"
    if outlook.reason is Reason.TURN:
        return _describe_turn(sites, outlook.number)
    if outlook.reason is Reason.ABSENT:
        wait = format_duration(outlook.number)
        return f"some of its data can be read at no site; it may run anywhere {wait} after the daemon saw it"
    if outlook.reason is Reason.NOWHERE and sites:
        return f"no job may read from {sites}, where its data is ([network] excluded_sources)"
    if outlook.reason is Reason.NOWHERE:
        return "no site that could read its data has slots that are large enough for it"
    best = min((one for site in outlook.sites if (one := made.find(key, site))), key=_SECONDS, default=None)
    if best and lane is not None and not outlook.is_open(lane):
        return _describe_turn(best.source or "", outlook.number)
    return f"it may start now at {sites}" + (f" by {describe_read(best)}" if best else "")


def _describe_turn(source: str, sets: int) -> str:
    link = f"the link of {source} feeds jobs of" if source else "the daemon opens"
    return f"its turn to read has not come: {link} {format_count(sets, 'set')} before it"


def describe_read(opening: Opening) -> str:
    """Return a read in words, such as ``reading 75 GB from UK in 20 min``."""
    if opening.source is None:
        return "reading from wherever it is what no site has on disk"
    amount = format_bytes(opening.missing_bytes)
    return f"reading {amount} from {opening.source} in {format_duration(opening.read_seconds)}"


_READ = re.compile(r"read ([0-9]{1,8}) s(?: from (.{1,60}))?\Z")


@dataclass(frozen=True, slots=True)
class StartRecord:
    """The offer of the slot at the job's last start.

    Attributes:
        is_local: true if the site had all data of the job.
        read_seconds: seconds that the job would read its missing data.
        source: site from which the job would read; null: unknown.
    """

    is_local: bool = False
    read_seconds: int = 0
    source: Site | None = None


def parse_offer(text: object) -> StartRecord | None:
    """Parse a slot's ``DataLocalityOffer``; None if *text* is none."""
    if text == "local":
        return StartRecord(is_local=True)
    read = _READ.match(text) if isinstance(text, str) else None
    return StartRecord(False, int(read[1]), Site(read[2]) if read[2] else None) if read else None


OPENINGS_REPORT: Final = "openings"
"""The name of the last :class:`PacedCycle` in the state, for ``Store.load_report``."""


@dataclass(frozen=True, slots=True)
class PacedCycle:
    """The openings of one cycle, or the reason why there are none. The state has those of the last cycle.

    ``readers`` has, by source, the jobs that started with a read from it. ``waiting`` are the sets for which
    jobs waited in the last KEEP_WAITING; None before the first round. ``absent_since`` is what the pacing
    remembers over a restart: since when (Unix s) sets have a dataset at no site.
    """

    openings: Openings | None = None
    none_reason: str | None = None
    readers: Mapping[Site, int] = field(default_factory=dict)
    waiting: frozenset[SetKey] | None = None
    absent_since: Mapping[SetKey, float] = field(default_factory=dict)
