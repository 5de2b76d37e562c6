"""Page of one dataset: where it is, since when, who said so, its requests, and the jobs that wait. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hydrator.diagnostics.overview.runs import count_idle_jobs
from hydrator.domain.model import Demand, Did, Fact, Site, Snapshot, from_unix
from hydrator.domain.provenance import describe_provenance
from hydrator.domain.text import format_count
from hydrator.server.view import ServerState
from hydrator.staging.overview import find_requests

from .html import SIGNS, PageContext, render_page

_WIDTH: Final = 100.0
_MIN_WIDTH: Final = 1.0


@dataclass(frozen=True, slots=True)
class Stay:
    """A time in which the ad of a site listed the dataset as complete; it lasts if ``until`` is None."""

    site: Site
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class StayBar:
    """One stay, in units of which the whole scale has 100."""

    left: float
    width: float


@dataclass(frozen=True, slots=True)
class StayRow:
    """The stays at one site, oldest first."""

    site: Site
    bars: tuple[StayBar, ...]


@dataclass(frozen=True, slots=True)
class StayChart:
    """Rows over the time from ``begin`` to ``end``; ``text`` says what the chart shows."""

    rows: tuple[StayRow, ...]
    begin: datetime
    end: datetime
    text: str


def build_stay_chart(stays: Sequence[Stay], *, now: datetime) -> StayChart | None:
    """Build the chart from the begin of the oldest of *stays* to *now*; None without stays."""
    if not stays:
        return None
    begin = min(stay.since for stay in stays)
    end = max(now, *(stay.until or stay.since for stay in stays))
    span = end - begin
    by_site: dict[Site, list[StayBar]] = {}
    for stay in sorted(stays, key=lambda stay: (stay.site, stay.since)):
        by_site.setdefault(stay.site, []).append(_bar(stay, begin, end, span))
    rows = tuple(StayRow(site, tuple(bars)) for site, bars in by_site.items())
    times = f"from {begin:%Y-%m-%d %H:%M} UTC to {end:%Y-%m-%d %H:%M} UTC"
    return StayChart(rows, begin, end, f"{format_count(len(rows), 'site')}, {times}; the list says the same")


def _bar(stay: Stay, begin: datetime, end: datetime, span: timedelta) -> StayBar:
    """Return the bar of *stay*, which is never too thin to see and never leaves the scale."""
    if not span:
        return StayBar(0.0, _WIDTH)
    width = max(_MIN_WIDTH, _WIDTH * (((stay.until or end) - stay.since) / span))
    left = min(_WIDTH * ((stay.since - begin) / span), _WIDTH - width)
    return StayBar(round(left, 1), round(width, 1))


MAX_SETS: Final = 20
"""Largest number of sets of datasets that the page lists."""
MAX_STAYS: Final = 50


@dataclass(frozen=True, slots=True)
class _PlaceRow:
    """The dataset at one site; ``since`` is None if it is not complete there, or if it is not known."""

    site: Site
    fact: Fact
    since: datetime | None
    source: str


def build_stays(stays: Mapping[Site, Sequence[tuple[float, float]]]) -> list[Stay]:
    """Build the stays from times in Unix s, newest first; an infinite end means that the stay lasts."""
    rows = [
        Stay(site, from_unix(since), None if until == float("inf") else from_unix(until))
        for site, times in stays.items()
        for since, until in times
    ]
    return sorted(rows, key=lambda stay: stay.since, reverse=True)


def is_dataset_known(did: Did, server_state: ServerState) -> bool:
    """Return whether a job, a pin or a pattern names *did*, or a site has it."""
    snapshot, demand = server_state.snapshot or Snapshot({}), server_state.demand or Demand()
    return (
        did in demand.dids
        or did in snapshot.unseen_reasons
        or any(did in facts.facts for facts in snapshot.sites.values())
    )


def render_dataset_page(
    did: Did, server_state: ServerState, stays: Sequence[Stay], *, context: PageContext | None = None
) -> str:
    """Render the page of *did*; *stays* are from the daemon's own history, newest first."""
    snapshot, demand = server_state.snapshot or Snapshot({}), server_state.demand or Demand()
    load = server_state.load
    since = {stay.site: stay.since for stay in stays if stay.until is None}
    places = [
        _PlaceRow(site, fact, since.get(site), describe_provenance(fact.provenance, server_state.now))
        for site, facts in sorted(snapshot.sites.items())
        if (fact := facts.facts.get(did))
    ]
    sets = sorted(
        (entry for entry in demand.entries if did in entry.dids and entry.job_count),
        key=lambda entry: (-entry.job_count, entry.dids),
    )
    return render_page(
        "dataset.html",
        f"Dataset {did}",
        context=context,
        now=server_state.now,
        did=did,
        size=snapshot.bytes_total.get(did),
        places=places,
        unseen_reason=snapshot.unseen_reasons.get(did),
        similar=snapshot.misspelt_dids.get(did, ()),
        omitted_at=sorted(site for site, dids in server_state.omitted_dids.items() if did in dids),
        job_count=sum(entry.job_count for entry in sets),
        idle_count=count_idle_jobs(did, load, demand) if load else None,
        silent_schedds=load.unseen_reason if load else None,
        sets=sets[:MAX_SETS],
        more_sets=max(0, len(sets) - MAX_SETS),
        requests=find_requests(server_state.staging, [did]) if server_state.staging else (),
        signs=SIGNS,
        stays=stays[:MAX_STAYS],
        stay_chart=build_stay_chart(stays[:MAX_STAYS], now=server_state.now),
    )
