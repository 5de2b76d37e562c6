"""Missing data: the reasons why a job cannot use a dataset at a site, from slot ads or the daemon. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from hydrator.domain.model import DaemonKnowledge, DatasetState, Did, Fact, Site, to_unix
from hydrator.domain.provenance import describe_provenance
from hydrator.domain.text import (
    comma_separated,
    did_you_mean,
    format_bytes,
    format_duration,
    format_percent,
    format_time,
    shorten,
    shorten_list,
)
from hydrator.domain.units import Bytes, Share, UnixTime
from hydrator.reconcile.demand import WRONG_KEY_TODO

from .pool_facts import JobFacts, SlotDatasetState, SlotGroup

AUTO = "auto"
RECENT_SECONDS = 600
"""Answers up to this age are of now, and have no age in a text: it would move with the clock."""
WRONG_KEY = (
    "no site answers for the job's list of datasets, because its DataLocalityKey does not stand for this list"
    f" alone; it waits, or starts where its data is not: submit it again, {WRONG_KEY_TODO}"
)
NO_ENTRY = "the slot ads have no entry for the job's set of datasets yet"


class MissingReason(StrEnum):
    """Reasons why a job cannot use a dataset at a slot."""

    STATE = "state"  # the slot ad gives the dataset another state than AVAILABLE
    STALE = "stale"  # the slot ad says AVAILABLE, but the fact is too old, or has no time
    NOT_YET_IN_SLOTS = "not yet"  # the daemon knows the dataset at the site; the slot ad does not list it yet
    NOT_IN_DEMAND = "not asked"  # no queued job names the dataset yet, so the daemon does not publish it
    OVER_BUDGET = "left out"  # the size budget leaves the dataset out of the site's ad
    CASE_COLLISION = "clash"  # another dataset's name differs in letter case only
    MISSPELT = "case"  # the catalogue has this name in another letter case
    INVALID_NAME = "refused"  # the name is not a DID
    NEVER = "never"  # [publish] never keeps the name out of every ad
    UNSEEN = "unseen"  # no catalogue answered about the dataset, or none was asked
    UNHYDRATED = "unhydrated"  # the slot has no DataLocality attributes
    ELSEWHERE = "elsewhere"  # the dataset is at other sites only
    NOWHERE = "nowhere"  # no catalogue has the dataset


@dataclass(frozen=True, slots=True)
class MissingDataset:
    """One dataset that a job cannot use at a site.

    ``state`` comes from the slot ads; from the daemon's snapshot if the slot ads do not list the dataset.

    Attributes:
        did: the dataset as the job names it.
        reason: state, stale, not yet, elsewhere…
        text: the reason in one sentence.
        state: state in the slot ads, else in the daemon's snapshot.
        fraction: share of the dataset that is on disk at the site.
        as_of: time of the fact about the dataset.
        rule: the catalogue's rule that keeps or transfers the dataset.
        explanation: the catalogue's reason for the state of the dataset.
        missing_bytes: bytes that must still arrive at the site; null: size unknown.
        ready_at: expected time at which the dataset is complete.
        similar_names: names that exist and are similar, or differ in letter case only, for a name that no
            catalogue has.
        replacement: one of similar_names that is complete at the site; null: none is known to be there.
    """

    did: str
    reason: MissingReason
    text: str
    state: str | None = None
    fraction: Share | None = None
    as_of: UnixTime | None = None
    rule: str | None = None
    explanation: str | None = None
    missing_bytes: Bytes | None = None
    ready_at: UnixTime | None = None
    similar_names: tuple[Did, ...] = ()
    replacement: Did | None = None

    @property
    def is_at_site(self) -> bool:
        """Return True if the site has or had the complete dataset. Then only a fresh fact is missing."""
        is_whole = self.state in {DatasetState.AVAILABLE, DatasetState.UNKNOWN}
        return self.reason is MissingReason.STALE or is_whole

    @property
    def ends_with_next_cycle(self) -> bool:
        """Return True if the dataset is complete at the site, and slot ads will list it or its set soon.

        The ad of a site with many datasets may never list it alone: then it stays NOT_YET_IN_SLOTS.
        """
        reasons = {MissingReason.NOT_YET_IN_SLOTS, MissingReason.NOT_IN_DEMAND}
        return self.reason in reasons and self.state == DatasetState.AVAILABLE

    @property
    def copy_bytes(self) -> int | None:
        """Return the bytes to copy from another site; None if unknown, or if a copy is not the cure."""
        is_absent = self.state in {None, DatasetState.PARTIAL} and self.reason in _REASONS_FOR_A_COPY
        return self.missing_bytes if is_absent else None


_REASONS_FOR_A_COPY = {MissingReason.STATE, MissingReason.ELSEWHERE, MissingReason.NOT_YET_IN_SLOTS}


def has_all_data(job: JobFacts, facts: Mapping[Did, Fact], now: datetime) -> bool:
    """Return True if a site has all datasets of *job* on disk, by *facts* that are not too old for it."""
    most = job.max_age_seconds
    return most is not None and all(
        (fact := facts.get(did))
        and fact.as_of is not None
        and is_complete(fact)
        and to_unix(now) - to_unix(fact.as_of) < most
        for did in job.datasets
    )


def is_usable(group: SlotGroup, did: Did, knowledge: DaemonKnowledge | None) -> bool:
    """Return True if a job could use *did* at the slots of *group*, by the dataset's entries in the slot ad.

    A look-up in ``DatasetStates`` ignores letter case, so a misspelt name finds the state of another dataset.
    """
    if knowledge and did in knowledge.snapshot.misspelt_dids:
        return False
    return group.dataset_states.get(did, SlotDatasetState(False)).is_usable


def list_missing_datasets(
    job: JobFacts, site: Site, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> tuple[MissingDataset, ...]:
    """Return every dataset that *job* cannot use at one or more of the slot *groups*.

    If several groups lack a dataset, the result has the reason at the first of these groups. The ad of a site
    with many datasets has room for the job's set, and not for each dataset: a dataset without a state of its
    own is not missing if it is complete at the site.
    """
    missing = [
        MissingDataset(text, MissingReason.INVALID_NAME, f"{shorten(text)} is not a DID: {reason}")
        for text, reason in job.invalid_names.items()
    ]
    has_entry = job.key is not None and groups[0].set_facts.share is not None
    no_room = {MissingReason.NOT_YET_IN_SLOTS, MissingReason.OVER_BUDGET} if has_entry else set()
    for did in job.datasets:
        lacking_group = next((group for group in groups if not is_usable(group, did, knowledge)), None)
        if lacking_group:
            one = _explain_missing(job, did, site, lacking_group, knowledge, now)
            if not (one.reason in no_room and one.state == DatasetState.AVAILABLE):
                missing.append(one)
    return tuple(missing)


def _explain_missing(
    job: JobFacts, did: Did, site: Site, group: SlotGroup, knowledge: DaemonKnowledge | None, now: datetime
) -> MissingDataset:
    """Explain why *job* cannot use *did* at the slots of *group*, and what would have to arrive there."""
    slot_state = _state_at(group, did)
    fact = _find_fact(did, site, knowledge)
    # the provenance explains the daemon's state, not another one in the slot
    has_cause = fact is not None and slot_state.state in {None, fact.state}
    how = describe_provenance(fact.provenance, now) if fact and has_cause else ""
    reason, text, names = _find_reason(job, did, site, group, knowledge, how, now)
    is_named = reason not in {MissingReason.NEVER, MissingReason.MISSPELT}
    seen = (slot_state if slot_state.state is not None else fact) if is_named else None
    total = knowledge.snapshot.bytes_total.get(did) if knowledge else None
    missing = MissingDataset(
        did,
        reason,
        text,
        state=seen.state if seen else None,
        fraction=seen.fraction if seen else None,
        as_of=_unix_time(seen.as_of) if seen else None,
        rule=fact.provenance.rule or None if fact and how else None,
        explanation=how or None,
        missing_bytes=None if total is None else round(total * (1 - ((seen and seen.fraction) or 0))),
        similar_names=names,
        replacement=next((name for name in names if is_complete(_find_fact(name, site, knowledge))), None),
    )
    if missing.is_at_site or missing.state == DatasetState.UNAVAILABLE:
        return replace(missing, missing_bytes=0)
    ends_at = (
        fact.provenance.ready_at if fact and fact.state == missing.state == DatasetState.STAGING else None
    )
    return replace(missing, ready_at=_unix_time(ends_at))


def _unix_time(at: datetime | int | None) -> int | None:
    return to_unix(at) if isinstance(at, datetime) else at


def _find_fact(did: Did, site: Site, knowledge: DaemonKnowledge | None) -> Fact | None:
    """Return the daemon's fact about *did* at *site*."""
    facts = knowledge.snapshot.sites.get(site) if knowledge else None
    return facts.find(did) if facts else None


def _state_at(group: SlotGroup, did: Did) -> SlotDatasetState:
    """Return the state of *did* in the slot ad, or what the entry of the whole set says of it."""
    state = group.dataset_states.get(did, SlotDatasetState(False))
    if state.state is None and group.set_facts.share == 1:
        return SlotDatasetState(False, DatasetState.AVAILABLE, None, group.set_facts.as_of)
    return state


def _find_reason(
    job: JobFacts,
    did: Did,
    site: Site,
    group: SlotGroup,
    knowledge: DaemonKnowledge | None,
    how: str,
    now: datetime,
) -> tuple[MissingReason, str, tuple[Did, ...]]:
    """Return the reason, its sentence, and names to use instead; *how* says how the state came about."""
    state = _state_at(group, did)
    spellings = knowledge.snapshot.misspelt_dids.get(did, ()) if knowledge else ()
    if did in job.never_published:
        text = f"{did} is never published, by [publish] never: the job runs as in a pool without this daemon"
        return MissingReason.NEVER, text, ()
    if spellings:
        text = f"{did} is written with another letter case: the catalogue has {comma_separated(spellings)}"
        return MissingReason.MISSPELT, f"{text}; names are case-sensitive", tuple(spellings)
    if state.state is None:
        absence = _find_reason_of_absence(did, site, knowledge, how)
        if group.generation is not None or absence[0] is MissingReason.NOWHERE:
            return absence
        hook = f"the hook there fails: {group.hook_error}" if group.hook_error else "no hook runs there"
        text = f"the slots have no DataLocality attributes: {hook} (docs/operators/glideins.md)"
        return MissingReason.UNHYDRATED, f"{did}: {text}", ()
    if state.state != DatasetState.AVAILABLE:
        seconds = 0 if state.as_of is None else to_unix(now) - state.as_of
        age = f", read {format_duration(seconds)} ago" if seconds > RECENT_SECONDS else ""
        words = _state_text(state.state, state.fraction)
        return MissingReason.STATE, f"{did} is {words}{age}{how and f'; {how}'}", ()
    most = job.max_age_seconds
    limit = (
        f"accepts no fact older than {format_duration(most)}"
        if most is not None
        else "has no DataLocalityMaxAge"
    )
    when = "at no known time" if state.as_of is None else f"{format_duration(to_unix(now) - state.as_of)} ago"
    text = f"{did} was AVAILABLE {when}; the job {limit}"
    cause = "find the cause with hydrator status and hydrator check"
    if group.hook_error:
        cause = f"the hook there fails: {group.hook_error}"
    return MissingReason.STALE, f"{text}: {cause}", ()


def _find_reason_of_absence(
    did: Did, site: Site, knowledge: DaemonKnowledge | None, how: str
) -> tuple[MissingReason, str, tuple[Did, ...]]:
    """Return why the slot ads of *site* do not list *did*."""
    if knowledge is None:
        text = f"{did} is not listed in the slot ads of this site, and no daemon was asked about it"
        return MissingReason.UNSEEN, text, ()
    if clash := knowledge.collisions_by_lower_name.get(did.lower()):
        other = comma_separated([one for one in clash if one != did])
        text = f"{did} is not advertised: only letter case distinguishes it from {other}"
        return MissingReason.CASE_COLLISION, text, ()
    if did in knowledge.dids_without_room.get(site, ()):
        text = f"{did} is left out of the site's ad, which has no room for all demanded datasets"
        return MissingReason.OVER_BUDGET, text, ()
    if fact := _find_fact(did, site, knowledge):
        state = _state_text(fact.state, fact.fraction) + (how and f"; {how}")
        if did in knowledge.demanded_dids:
            text = f"{did} is {state} at this site according to the daemon; the slot ads do not list it yet"
            return MissingReason.NOT_YET_IN_SLOTS, text, ()
        text = f"{did} is {state} at this site according to the catalogue; the daemon publishes the dataset"
        return MissingReason.NOT_IN_DEMAND, f"{text} once a job names it", ()
    if unseen := knowledge.snapshot.unseen_reasons.get(did):
        return MissingReason.UNSEEN, f"{did}: no catalogue answered ({shorten(unseen)})", ()
    sites = knowledge.snapshot.sites.items()
    elsewhere = [f"{name} ({state_words(at.facts[did])})" for name, at in sites if did in at.facts]
    if elsewhere:
        text = f"{did} is not at this site; it is at {shorten_list(elsewhere)}"
        return MissingReason.ELSEWHERE, text, ()
    if did not in knowledge.demanded_dids and did not in knowledge.queried_dids:
        text = "the daemon does not poll this dataset yet; its next cycle finds the datasets of new jobs"
        return MissingReason.NOT_IN_DEMAND, f"{did}: {text}", ()
    near = knowledge.similar_names.get(did, ())
    if did in knowledge.snapshot.bytes_total:
        return MissingReason.NOWHERE, f"{did} is at no site, though a catalogue has its name", near
    advice = did_you_mean(near) or "check the spelling (case matters)"
    return MissingReason.NOWHERE, f"{did} is not in any catalogue; {advice}", near


def list_moving_datasets(job: JobFacts, knowledge: DaemonKnowledge | None) -> list[str]:
    """Return the datasets of *job* that are complete nowhere, but may be soon, each with a site and state."""
    sites = knowledge.snapshot.sites if knowledge else {}
    found = []
    for did in job.datasets:
        facts = {site: at.facts[did] for site, at in sites.items() if did in at.facts}
        moving = [
            f"{did} ({state_words(one)} at {site})" for site, one in facts.items() if one.state in _MOVING
        ]
        found += [] if any(map(is_complete, facts.values())) else moving[:1]
    return found


_MOVING = {DatasetState.STAGING, DatasetState.UNAVAILABLE, DatasetState.UNKNOWN}


def is_complete(fact: Fact | None) -> bool:
    return fact is not None and fact.state is DatasetState.AVAILABLE


def state_words(fact: Fact | None) -> str:
    """Return the state of a dataset at a site: ``STAGING 40 %``, or ``absent``."""
    return f"{fact.state}{format_percent(fact.fraction)}" if fact else "absent"


def _state_text(state: str, fraction: float | None) -> str:
    meaning: Mapping[str, str] = {
        DatasetState.STAGING: "on its way",
        DatasetState.PARTIAL: "the site has some files only, and no transfer runs",
        DatasetState.NEARLINE: "on tape only",
        DatasetState.STUCK: "its rule is stuck: ask the rule's owner",
        DatasetState.UNAVAILABLE: "it is there, but its storage cannot be read now",
        DatasetState.UNKNOWN: "for too long, no catalogue has answered",
    }
    words = meaning.get(state)
    return f"{state}{format_percent(fraction)}" + (f" ({words})" if words else "")


# --- the job's whole set ------------------------------------------------------------------------------


def set_reason_text(job: JobFacts, group: SlotGroup, missing: Sequence[MissingDataset]) -> str:
    """Return one sentence on the job's set of datasets at a slot where the data keeps the job away.

    Return an empty text if the states of the datasets say all.
    """
    facts = group.set_facts
    if group.generation is None:
        return ""
    if job.has_wrong_key:
        return WRONG_KEY
    if job.key is not None and facts.share is None:
        # a job that insists on its data would not match with an entry either, unless all data is there
        is_all_there = all(one.ends_with_next_cycle for one in missing)
        return NO_ENTRY if job.mode == AUTO or is_all_there else ""
    if facts.is_local:
        return ""
    here = f"{format_percent(facts.share).strip() or '0 %'} of the job's data is here"
    is_part = facts.share is not None and facts.share < 1
    parts = [here] if is_part and (facts.share or not missing) else []
    if job.mode == AUTO and facts.is_paced:
        parts.append("the job may not read its data from here now")
    return "; ".join(parts)


# --- counts ------------------------------------------------------------------------------------------


def _count_text(job: JobFacts, missing: Sequence[MissingDataset], now: datetime) -> str:
    """Return one line, such as ``232 here, 8 partial, 4 staging until 15:10 UTC, 360 GB missing``.

    The datasets of *job* are counted by condition, the most frequent first. The time is that of the last
    arrival. The bytes are a lower bound, ``at least 360 GB``, if the size of a dataset is unknown.
    """
    parts = [f"{len(job.datasets) + len(job.invalid_names) - len(missing)} here"]
    staging_ends = [one.ready_at for one in missing if _status_word(one) == "staging"]
    ends_at = None if None in staging_ends else max(filter(None, staging_ends), default=None)
    for word, number in Counter(map(_status_word, missing)).most_common():
        until = f" until {format_time(ends_at, now)}" if word == "staging" and ends_at else ""
        parts.append(f"{number} {word}{until}")
    sizes = [one.missing_bytes for one in missing]
    if known_bytes := sum(filter(None, sizes)):
        parts.append(f"{'at least ' if None in sizes else ''}{format_bytes(known_bytes)} missing")
    return comma_separated(parts)


def _status_word(missing: MissingDataset) -> str:
    """Return the condition of a dataset at a site, in a word or two."""
    reasons = {
        MissingReason.STALE: "not confirmed lately",
        MissingReason.OVER_BUDGET: "left out",
        MissingReason.CASE_COLLISION: "ambiguous by letter case",
        MissingReason.INVALID_NAME: "not a DID",
        MissingReason.NEVER: "never published",
        MissingReason.UNSEEN: "not known",
        MissingReason.UNHYDRATED: "without attributes",
        MissingReason.ELSEWHERE: "absent",
        MissingReason.NOWHERE: "in no catalogue",
    }
    states: Mapping[str, str] = {
        DatasetState.NEARLINE: "on tape",
        DatasetState.AVAILABLE: "not in slot ads yet",
    }
    state = missing.state or "not polled yet"
    return reasons.get(missing.reason) or states.get(state, state.lower())


def data_text(job: JobFacts, missing: Sequence[MissingDataset], now: datetime) -> str:
    """Describe the *missing* datasets in one line. If *job* names several datasets, counts come first."""
    if missing and all(one.reason is MissingReason.UNHYDRATED for one in missing):
        return missing[0].text.partition(": ")[2]
    each = shorten_list([one.text for one in missing], "; ")
    several = len(job.datasets) + len(job.invalid_names) > 1
    return f"{_count_text(job, missing, now)}: {each}" if several else each
