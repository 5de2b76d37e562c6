"""``DESIRED_Sites`` of queued jobs that ask for it: what it should say, and what must not be touched.

Pure: values in, values out. A job asks with ``DataLocalityDesiredSites = true``.
What it gets are the sites where its own clause can hold now: those that have
all its datasets, by facts young enough for it. Where there are none, or it may
run anywhere by now, it gets back what it had: no list confines a job on an
answer that is old, missing or empty.

What the job had stands in ``DataLocalityDesiredSitesKept``, with what we wrote
instead: as long as ``DESIRED_Sites`` is just that it is ours. Whoever else
writes there has the last word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.errors import BadDid
from hydrator.domain.model import DatasetState, Did, Fact, Site, parse_did, unix
from hydrator.domain.numbers import nearest_span
from hydrator.domain.ports import AlikeJobs

ASKS = "DataLocalityDesiredSites"
KEPT = "DataLocalityDesiredSitesKept"
"""On jobs: the wish for a list, and the mark beside one that is ours."""
Known = Mapping[Site, Mapping[Did, Fact]]
"""By site what its ad says."""


class Stand(StrEnum):
    """How jobs stand that ask for a list of sites."""

    SET = "set"  # it names the sites that have their data
    NOWHERE = "nowhere"  # no site has all of it, as far as is known: what they had stands
    APART = "apart"  # none of the sites that they had has it: what they had stands
    FREE = "free"  # they may run anywhere by now: what they had stands
    THEIRS = "theirs"  # somebody else wrote there: left alone


@dataclass(frozen=True, slots=True)
class Change:
    """Make *jobs* say *value* (None: nothing); *own*, what they had, is kept unless given back."""

    jobs: AlikeJobs
    value: str | None
    own: str | None
    gives_back: bool


def wish(
    jobs: AlikeJobs, known: Known, *, now: datetime, max_age: timedelta, default_scope: str | None
) -> tuple[Stand | None, Change | None]:
    """How *jobs* stand, None where they do not ask, and what to do about it.

    Args:
        jobs: alike in everything that this depends on.
        known: what site ads say.
        now: aware UTC time.
        max_age: how old a fact may be for jobs that do not say.
        default_scope: of datasets that jobs name without one.
    """
    if not _ours(jobs):
        return (Stand.THEIRS if jobs.asks else None), None
    own = jobs.kept.own if jobs.kept else jobs.desired
    stand, listed = _listed(jobs, own, known, now, max_age, default_scope) if jobs.asks else (None, None)
    if listed is None or (own is not None and set(listed) == set(_parts(own))):
        return stand, (Change(jobs, own, own, gives_back=True) if jobs.kept else None)
    value = ",".join(listed)
    rests = jobs.kept is not None and not jobs.kept.pending and jobs.desired == jobs.kept.value == value
    return stand, (None if rests else Change(jobs, value, own, gives_back=False))


def sites_with(
    datasets: Sequence[str], known: Known, *, now: datetime, max_age: timedelta, default_scope: str | None
) -> list[Site]:
    """The sites that have all *datasets* by facts younger than *max_age*, sorted; none for what is no DID."""
    try:
        dids = [parse_did(text, default_scope) for text in datasets]
    except BadDid:
        return []

    def has(facts: Mapping[Did, Fact], did: Did) -> bool:
        fact = facts.get(did)
        young = fact is not None and unix(now) - unix(fact.as_of) < max_age.total_seconds()
        return fact is not None and young and fact.state is DatasetState.AVAILABLE

    return sorted(site for site, facts in known.items() if dids and all(has(facts, did) for did in dids))


def _ours(jobs: AlikeJobs) -> bool:
    """Whether what stands there may be changed: it is the job's first one, or what we wrote."""
    if jobs.odd or (jobs.desired is not None and not (_parts(jobs.desired) and _plain(jobs.desired))):
        return False
    if jobs.kept is None:
        return True
    kept = jobs.kept
    return jobs.desired == kept.value or (kept.pending is not None and jobs.desired == kept.was)


def _listed(
    jobs: AlikeJobs,
    own: str | None,
    known: Known,
    now: datetime,
    max_age: timedelta,
    default_scope: str | None,
) -> tuple[Stand, list[Site] | None]:
    """How they stand, and the sites that they should name, if any."""
    if (jobs.mode or "").lower() != "require" and jobs.any_after is not None and jobs.any_after <= unix(now):
        return Stand.FREE, None
    age = nearest_span(jobs.max_age) if jobs.max_age is not None else max_age
    sites = sites_with(jobs.datasets, known, now=now, max_age=age, default_scope=default_scope)
    if not sites or any(not _can_be_listed(site) for site in sites):
        return Stand.NOWHERE, None
    if own is None:
        return Stand.SET, sites
    both = [site for site in sites if site in _parts(own)]
    return (Stand.SET, both) if both else (Stand.APART, None)


def _can_be_listed(site: Site) -> bool:
    """A comma ends an item of such a list, and blanks around it do not count."""
    return "," not in site and site == site.strip() != "" and _plain(site)


def _plain(text: str) -> bool:
    """Queues keep escapes in texts as they stand: what needs one would not come back as it was."""
    return text.isprintable() and not {'"', "\\"} & set(text)


def _parts(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]
