"""Outlook of a Rapthor run: the sites that could start the run now, the best first. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hydrator.domain.model import DatasetState as State
from hydrator.domain.model import Did, Site, SiteFacts

from .job import RapthorRun

_NOT_KNOWN = "not known"


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
        can_run: the run would match there now, and find or fetch its data.
    """

    site: Site
    available_count: int
    missing_states: Mapping[Did, str]
    local_bytes: int | None
    oldest_age_seconds: int | None
    has_paths: bool
    can_run: bool

    @property
    def may_have_all(self) -> bool:
        """True if no catalogue answered about any of the missing datasets, so all may be there."""
        return {*self.missing_states.values()} == {_NOT_KNOWN}


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
    unlisted = {did: _NOT_KNOWN if did in unanswered_dids else "absent" for did in dids}
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
                can_run=not missing and (has_paths or can_fetch),
            )
        )
    return tuple(sorted(outlooks, key=lambda o: (-(o.local_bytes or 0), -o.available_count, o.site)))
