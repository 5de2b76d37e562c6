"""Sites that cannot start a job now: its data is at no site, or no drone runs there yet. Pure."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime

from hydrator.domain.model import DaemonKnowledge, DatasetState, Did, Fact, Site, to_unix
from hydrator.domain.text import format_count, format_duration, format_percent, shorten_list
from hydrator.submit.nearest_names import find_absent_dids

from .explanation import DroneMatch, MismatchCause, Reason, Remedy, SiteMatch
from .obstacles import list_reasons, no_slot_reason
from .pool_facts import DroneAd, JobFacts, SlotGroup

_DRONE_COST = 2
"""Cost of the remedy that a drone starts: pilots take some minutes, as a transfer does."""


def explain_no_complete_site(beliefs: DaemonKnowledge, dids: AbstractSet[Did]) -> str:
    """Explain why no site can start a job with *dids* now.

    Return an empty text if a site can start the job, or if the answer is unknown.
    """
    if absent := find_absent_dids(beliefs, dids):
        return shorten_list([_unknown_did_text(beliefs, did) for did in absent], "; ")
    looked_for = beliefs.demanded_dids | beliefs.queried_dids
    if not dids or any(did not in looked_for or did in beliefs.snapshot.unseen_reasons for did in dids):
        return ""
    site_texts = []
    for site, site_facts in sorted(beliefs.snapshot.sites.items()):
        facts = {did: site_facts.facts[did] for did in dids if did in site_facts.facts}
        lacking = [did for did in sorted(dids) if not _is_complete(facts.get(did))]
        if not lacking:
            return ""
        if facts:
            words = shorten_list([f"{did} {_state_text(facts.get(did))}" for did in lacking])
            site_texts.append(f"{site} has {len(dids) - len(lacking)} of {len(dids)} ({words})")
    return f"no site has all data of the job now: {shorten_list(site_texts, '; ')}"


def _unknown_did_text(beliefs: DaemonKnowledge, did: Did) -> str:
    near = beliefs.similar_names.get(did, ())
    return f"{did} is in no catalogue" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _is_complete(fact: Fact | None) -> bool:
    return fact is not None and fact.state is DatasetState.AVAILABLE


def _state_text(fact: Fact | None) -> str:
    return f"{fact.state}{format_percent(fact.fraction)}" if fact else "absent"


def add_drones(
    job: JobFacts,
    sites: Sequence[SiteMatch],
    drones: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    now: datetime,
) -> list[SiteMatch]:
    """Add to each site without a matching slot the types of drones that could start there.

    A site with drones and nothing else gets an entry of its own.
    """
    by_site: dict[Site, list[SlotGroup]] = {}
    for group in drones:
        by_site.setdefault(group.site, []).append(group)
    known = {at.site for at in sites if not at.pool}
    added = [
        SiteMatch(site, 0, 0, (no_slot_reason(job, site, knowledge, now),))
        for site in by_site
        if site not in known
    ]
    return [
        at
        if at.pool or at.matching_slots or at.site not in by_site
        else _add_drones_of_site(job, at, by_site[at.site], knowledge, now)
        for at in [*sites, *added]
    ]


def _add_drones_of_site(
    job: JobFacts,
    at: SiteMatch,
    drones: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    now: datetime,
) -> SiteMatch:
    matches, reasons = [], []
    for group in drones:
        drone = group.drone or DroneAd(group.example)
        matches.append(DroneMatch(drone.name, group.can_run_now, drone.matched_at, drone.matched_jobs))
        obstacles = [] if group.can_run_now else [*list_reasons(job, at.site, [group], knowledge, now)]
        text = f"a drone of type {drone.name} {_drone_text(drone, [each.text for each in obstacles], now)}"
        reasons.append(Reason(MismatchCause.SLOTS, False, 0, text))
    starting = [each.name for each in matches if each.is_match]
    remedy = at.remedy
    if starting and (remedy is None or remedy.cost > _DRONE_COST):
        remedy = Remedy(_DRONE_COST, f"a drone of type {shorten_list(starting, ' or ')} starts")
    return replace(at, reasons=(*at.reasons, *reasons), remedy=remedy, drones=tuple(matches))


def _drone_text(drone: DroneAd, obstacles: Sequence[str], now: datetime) -> str:
    """Return whether the job matches a drone, and when the negotiator last matched jobs with it."""
    if obstacles:
        return f"would not match either: {'; '.join(obstacles)}"
    if drone.matched_at is None:
        return "would match; the negotiator has matched no job with it yet"
    ago = format_duration(max(0, to_unix(now) - drone.matched_at))
    jobs = f" {format_count(drone.matched_jobs, 'job')}" if drone.matched_jobs else ""
    return f"would match; the negotiator last matched{jobs or ' a job'} with it {ago} ago"
