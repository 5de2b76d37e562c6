"""Outlook of a Rapthor run: the sites that could start the run now, and why other sites could not. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hydrator.domain.model import DatasetState as State
from hydrator.domain.model import Did, Site, SiteFacts
from hydrator.domain.text import shorten_list
from hydrator.submit.outlook import describe_small_copy

from .job import RapthorRun

_ABSENT, _NOT_KNOWN = "absent", "not known"


@dataclass(frozen=True, slots=True)
class SiteOutlook:
    """One site where a Rapthor run could start.

    Attributes:
        site: its name.
        available_count: datasets of the run that are there.
        missing_states: datasets that are not known to be there, with their state.
        local_bytes: bytes of the datasets there; null: sizes unknown.
        oldest_age_seconds: age of the oldest fact; null: no dataset is there.
        has_paths: a [[storage]] names the data's path there.
        can_fetch: the job can fetch a dataset that has no path.
        can_run: the run would match there now, and find or fetch its data.
    """

    site: Site
    available_count: int
    missing_states: Mapping[Did, str]
    local_bytes: int | None
    oldest_age_seconds: int | None
    has_paths: bool
    can_fetch: bool
    can_run: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """The outlook of a Rapthor run before its submission.

    Attributes:
        run: its name.
        datasets: number of datasets that it reads.
        answers: result of each catalogue's query.
        sites: candidate sites, the best first.
    """

    run: str
    datasets: int
    answers: Mapping[str, str]
    sites: Sequence[SiteOutlook]


def rank_sites(
    run: RapthorRun,
    sites: Mapping[Site, SiteFacts],
    paths: Mapping[Site, Collection[Did]],
    *,
    now: float,
    can_fetch: bool = False,
    unanswered_dids: Collection[Did] = (),
) -> tuple[SiteOutlook, ...]:
    """Return an outlook for each site; the site with most bytes of the run's data on disk comes first.

    If the size of a dataset is not known, the site with most datasets comes first.

    Args:
        run: the run with its datasets.
        sites: the facts by site; a fact that is too old has the state UNKNOWN.
        paths: for each site, the datasets that have a local path at this site.
        now: Unix s.
        can_fetch: the job has a stage-in command.
        unanswered_dids: the datasets about which a catalogue did not answer: they may be at any site.
    """
    dids = sorted(set(run.dids))
    unlisted = {did: _NOT_KNOWN if did in unanswered_dids else _ABSENT for did in dids}
    has_all_sizes = all(did in run.sizes for did in dids)
    outlooks = []
    for site, at in sites.items():
        states = {did: str(at.facts[did].state) if did in at.facts else unlisted[did] for did in dids}
        available = [did for did in dids if states[did] == State.AVAILABLE]
        times = [(at.facts[did].as_of or at.as_of).timestamp() for did in available]
        missing = {did: states[did] for did in dids if did not in available}
        has_paths = all(did in paths.get(site, ()) for did in dids)
        outlooks.append(
            SiteOutlook(
                site,
                available_count=len(available),
                missing_states=missing,
                local_bytes=sum(run.sizes[did] for did in available) if has_all_sizes else None,
                oldest_age_seconds=int(now - min(times)) if times else None,
                has_paths=has_paths,
                can_fetch=can_fetch,
                can_run=not missing and (has_paths or can_fetch),
            )
        )
    return tuple(sorted(outlooks, key=lambda o: (-(o.local_bytes or 0), -o.available_count, o.site)))


def explain_no_qualified_site(run: RapthorRun, sites: Sequence[SiteOutlook]) -> str:
    """Return one sentence that says why no site can start the run now; empty if a site can."""
    if any(site.can_run for site in sites):
        return ""
    complete = [site.site for site in sites if not site.missing_states]
    if complete:
        return (
            f"all data is at {shorten_list(complete)}, but no [[storage]] gives the paths of the data there"
        )
    total = len(set(run.dids))
    parts = []
    for site in sites:
        if site.available_count or set(site.missing_states.values()) != {_ABSENT}:
            missing = shorten_list([f"{did} {state}" for did, state in site.missing_states.items()])
            parts.append(f"{site.site} has {site.available_count} of {total} ({missing})")
    where = shorten_list(parts, "; ") or "no site has any dataset of the run"
    return f"no site has all data of the run now: {where}{_describe_best_copy(run, sites)}"


def _describe_best_copy(run: RapthorRun, sites: Sequence[SiteOutlook]) -> str:
    """Return the copy that lets the run start at the site with most of its bytes, if it is small."""
    best = next((site for site in sites if site.local_bytes and (site.has_paths or site.can_fetch)), None)
    if best is None or not set(best.missing_states.values()) <= {_ABSENT, str(State.PARTIAL)}:
        return ""
    total = sum(run.sizes.values())
    return describe_small_copy(list(best.missing_states), total - (best.local_bytes or 0), total, best.site)
