"""Decision on ``DESIRED_Sites`` of queued jobs: which sites to list, and when not to edit the list.

This module is pure. A job asks for a list with ``DataLocalityDesiredSites = true``. The daemon lists the
sites that have all datasets of the job, by facts that are not older than the job allows. For a job in mode
auto, it also lists the sites where reading the data ends sooner than waiting. If no site has all datasets, or
if the job may now run at any site, the daemon restores the job's own list. So facts that are old or missing
never restrict a job. In an observe-only block of an experiment only jobs in mode require get a list.

The daemon saves the job's own list in ``DataLocalityDesiredSitesKept``, together with the list that it
wrote. The daemon edits ``DESIRED_Sites`` again only while the attribute equals this written list. So it
never overwrites the edit of a user.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.ads.dataset_sets import SetKey, set_key
from hydrator.domain.ads.set_answers import SiteAnswers
from hydrator.domain.errors import BadDid
from hydrator.domain.model import DatasetState, Did, Fact, Site, parse_did, to_unix
from hydrator.domain.pool_ports import JobGroup
from hydrator.domain.untrusted import nearest_span

ASKS_ATTRIBUTE = "DataLocalityDesiredSites"
SAVED_ATTRIBUTE = "DataLocalityDesiredSitesKept"
"""The job attribute with the job's own list and the list that the daemon wrote."""
FactsBySite = Mapping[Site, Mapping[Did, Fact]]
"""The facts in the ad of each site, by site."""
AnswersBySite = Mapping[Site, SiteAnswers]
"""The entries about sets of datasets in the ad of each site, by site."""


class DesiredSitesStatus(StrEnum):
    """The status of jobs that ask for a list of sites."""

    SET = "set"  # the list names the sites that have all data of the jobs
    NO_SITE = "no_site"  # the ads show no site with all data of the jobs: the jobs keep their own list
    DISJOINT = "disjoint"  # the jobs' own list has no site with their data: the jobs keep this list
    FREE = "free"  # the jobs may now run at any site: the jobs keep their own list
    FOREIGN = "foreign"  # another writer changed the list: the daemon does not edit it


@dataclass(frozen=True, slots=True)
class DesiredSitesEdit:
    """An edit: set the list of ``jobs`` to ``value``, or remove the list if ``value`` is None.

    ``original`` is the jobs' own list. If ``is_restore``, the edit restores this list. Otherwise the schedd
    saves this list in the jobs' ads together with ``value``.
    """

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
    answers_by_site: AnswersBySite | None = None,
) -> tuple[DesiredSitesStatus | None, DesiredSitesEdit | None]:
    """Return the status of *jobs* (None if they ask for no list), and the edit to make (None for none).

    Args:
        jobs: jobs with the same datasets, settings and lists.
        facts_by_site: the facts of the site ads.
        now: aware UTC time.
        max_age: the maximum age of a fact, for jobs that set no limit.
        default_scope: the scope of datasets that jobs name without a scope.
        answers_by_site: the answers about sets of datasets in the site ads; None without such answers.
    """
    if not _is_editable(jobs):
        return (DesiredSitesStatus.FOREIGN if jobs.asks else None), None
    own = jobs.kept.own if jobs.kept else jobs.desired
    status, sites = (
        _choose_sites(jobs, own, facts_by_site, now, max_age, default_scope, answers_by_site or {})
        if jobs.asks
        else (None, None)
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
    """Return the sites where facts younger than *max_age* say that all *datasets* are AVAILABLE, sorted.

    If a name in *datasets* is not a valid DID, return no site.
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
    """Return True if the daemon may edit the list: it is the job's original list, or the daemon wrote it."""
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
    answers_by_site: AnswersBySite,
) -> tuple[DesiredSitesStatus, list[Site] | None]:
    """Return the status of *jobs*, and the sites to list; None if the jobs should have their own list."""
    is_bound = (jobs.mode or "").lower() == "require"
    if not is_bound and any(answers.is_observing for answers in answers_by_site.values()):
        return DesiredSitesStatus.FREE, None
    age = nearest_span(jobs.max_age) if jobs.max_age is not None else max_age
    sites = sites_with(jobs.datasets, facts_by_site, now=now, max_age=age, default_scope=default_scope)
    key = _set_key_of(jobs.datasets, default_scope)
    if key is not None:
        oldest = to_unix(now) - age.total_seconds()
        whole = _sites_with_set(key, answers_by_site, oldest)
        sites = sorted({*sites, *whole})
    is_auto = (jobs.mode or "").lower() == "auto"
    estimated = key is not None and is_auto and _has_estimates(key, answers_by_site)
    if estimated and key is not None:
        cheaper = (site for site, answers in answers_by_site.items() if answers.has_cheaper_read(key))
        sites = sorted({*sites, *cheaper})
    elif not is_bound and jobs.any_after is not None and jobs.any_after <= to_unix(now):
        return DesiredSitesStatus.FREE, None
    if not sites or any(not _can_be_listed(site) for site in sites):
        return DesiredSitesStatus.NO_SITE, None
    if original is None:
        return DesiredSitesStatus.SET, sites
    both = [site for site in sites if site in _split_list(original)]
    return (DesiredSitesStatus.SET, both) if both else (DesiredSitesStatus.DISJOINT, None)


def _set_key_of(datasets: Sequence[str], default_scope: str | None) -> SetKey | None:
    """Return the key of *datasets*; None if there are none, or if a name is not a valid DID."""
    try:
        return set_key(parse_did(text, default_scope) for text in datasets) if datasets else None
    except BadDid:
        return None


def _sites_with_set(key: SetKey, answers_by_site: AnswersBySite, oldest: float) -> list[Site]:
    """Return the sites whose ad says that all datasets of the set are usable, by facts after *oldest*."""
    found = ((site, answers.by_key.get(key)) for site, answers in answers_by_site.items())
    return [site for site, answer in found if answer and answer.is_whole and answer.as_of > oldest]


def _has_estimates(key: SetKey, answers_by_site: AnswersBySite) -> bool:
    found = (answers.by_key.get(key) for answers in answers_by_site.values())
    return any(answer is not None and answer.queue_seconds is not None for answer in found)


def _can_be_listed(site: Site) -> bool:
    """Return True if *site* can be an item of a list: it has no comma, and no blank at its start or end."""
    return "," not in site and site == site.strip() != "" and _is_plain(site)


def _is_plain(text: str) -> bool:
    """Return True if *text* needs no escapes, because a schedd does not decode escapes."""
    return text.isprintable() and not {'"', "\\"} & set(text)


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
