"""Decision on ``DESIRED_Sites`` of queued jobs: which sites to list, and when not to edit the list.

Pure: values in, values out. A job asks with ``DataLocalityDesiredSites = true``. It gets the sites where
its own clause can hold now: those that have all its datasets, by facts young enough for it. Without such
a site, or once it may run anywhere, it gets its own list back: no list confines a job on an answer that
is old, missing or empty.

The job's own list is saved in ``DataLocalityDesiredSitesKept``, with the list written instead. The daemon
edits ``DESIRED_Sites`` only while it equals that list. Any other writer has the last word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.errors import BadDid
from hydrator.domain.model import DatasetState, Did, Fact, Site, parse_did, to_unix
from hydrator.domain.pool_ports import JobGroup
from hydrator.domain.untrusted import nearest_span

ASKS_ATTRIBUTE = "DataLocalityDesiredSites"
SAVED_ATTRIBUTE = "DataLocalityDesiredSitesKept"
"""Job attributes: the request for a list; and the job's own list, with the list that the daemon wrote."""
FactsBySite = Mapping[Site, Mapping[Did, Fact]]
"""The facts in the ad of each site, by site."""


class DesiredSitesStatus(StrEnum):
    """The status of jobs that ask for a list of sites."""

    SET = "set"  # the list names the sites that have all data of the jobs
    NO_SITE = "no_site"  # no site is known to have all their data: the jobs keep their own list
    DISJOINT = "disjoint"  # no site of their own list has their data: the jobs keep that list
    FREE = "free"  # the jobs may run anywhere by now: they keep their own list
    FOREIGN = "foreign"  # another writer changed the list: the daemon does not edit it


@dataclass(frozen=True, slots=True)
class DesiredSitesEdit:
    """Set the list of *jobs* to *value* (None: remove it); save *original*, unless it is being restored."""

    jobs: JobGroup
    value: str | None
    original: str | None
    is_restore: bool


def decide(
    jobs: JobGroup,
    facts_by_site: FactsBySite,
    *,
    now: datetime,
    max_age: timedelta,
    default_scope: str | None,
) -> tuple[DesiredSitesStatus | None, DesiredSitesEdit | None]:
    """Return the status of *jobs* (None if they do not ask), and the edit to make.

    Args:
        jobs: alike in everything that this depends on.
        facts_by_site: the facts of the site ads.
        now: aware UTC time.
        max_age: how old a fact may be for jobs without a limit of their own.
        default_scope: of datasets that jobs name without one.
    """
    if not _is_editable(jobs):
        return (DesiredSitesStatus.FOREIGN if jobs.asks else None), None
    own = jobs.kept.own if jobs.kept else jobs.desired
    status, sites = (
        _choose_sites(jobs, own, facts_by_site, now, max_age, default_scope) if jobs.asks else (None, None)
    )
    if sites is None or (own is not None and set(sites) == set(_split_list(own))):
        return status, (DesiredSitesEdit(jobs, own, own, is_restore=True) if jobs.kept else None)
    value = ",".join(sites)
    is_current = jobs.kept is not None and not jobs.kept.pending and jobs.desired == jobs.kept.value == value
    return status, (None if is_current else DesiredSitesEdit(jobs, value, own, is_restore=False))


def sites_with(
    datasets: Sequence[str],
    facts_by_site: FactsBySite,
    *,
    now: datetime,
    max_age: timedelta,
    default_scope: str | None,
) -> list[Site]:
    """Return the sites that have all *datasets* by facts younger than *max_age*, sorted.

    A text that is not a DID is at no site.
    """
    try:
        dids = [parse_did(text, default_scope) for text in datasets]
    except BadDid:
        return []

    def has(facts: Mapping[Did, Fact], did: Did) -> bool:
        fact = facts.get(did)
        is_recent = fact is not None and to_unix(now) - to_unix(fact.as_of) < max_age.total_seconds()
        return fact is not None and is_recent and fact.state is DatasetState.AVAILABLE

    return sorted(
        site for site, facts in facts_by_site.items() if dids and all(has(facts, did) for did in dids)
    )


def _is_editable(jobs: JobGroup) -> bool:
    """Return True if the list may be changed: it is the job's first one, or the daemon wrote it."""
    if jobs.odd or (jobs.desired is not None and not (_split_list(jobs.desired) and _is_plain(jobs.desired))):
        return False
    if jobs.kept is None:
        return True
    saved = jobs.kept
    return jobs.desired == saved.value or (saved.pending is not None and jobs.desired == saved.was)


def _choose_sites(
    jobs: JobGroup,
    original: str | None,
    facts_by_site: FactsBySite,
    now: datetime,
    max_age: timedelta,
    default_scope: str | None,
) -> tuple[DesiredSitesStatus, list[Site] | None]:
    """Return the status of the jobs, and the sites that they should name, if any."""
    if (
        (jobs.mode or "").lower() != "require"
        and jobs.any_after is not None
        and jobs.any_after <= to_unix(now)
    ):
        return DesiredSitesStatus.FREE, None
    age = nearest_span(jobs.max_age) if jobs.max_age is not None else max_age
    sites = sites_with(jobs.datasets, facts_by_site, now=now, max_age=age, default_scope=default_scope)
    if not sites or any(not _can_be_listed(site) for site in sites):
        return DesiredSitesStatus.NO_SITE, None
    if original is None:
        return DesiredSitesStatus.SET, sites
    both = [site for site in sites if site in _split_list(original)]
    return (DesiredSitesStatus.SET, both) if both else (DesiredSitesStatus.DISJOINT, None)


def _can_be_listed(site: Site) -> bool:
    """Return True for a name that fits in a list: a comma ends an item, blanks around it are ignored."""
    return "," not in site and site == site.strip() != "" and _is_plain(site)


def _is_plain(text: str) -> bool:
    """Return True for a text without escapes: queues store these as they are, so it would change."""
    return text.isprintable() and not {'"', "\\"} & set(text)


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
