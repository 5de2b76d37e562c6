"""Missing data: the reasons why a job cannot use a dataset at a site, from slot ads or the daemon. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from hydrator.diagnostics.units import Bytes, Share, UnixTime
from hydrator.domain.model import DaemonKnowledge, DatasetState, Did, Fact, Site, to_unix
from hydrator.domain.provenance import describe_provenance
from hydrator.domain.text import (
    comma_separated,
    format_bytes,
    format_duration,
    format_percent,
    format_time,
    shorten,
    shorten_list,
)

from .pool_facts import JobFacts, SlotDatasetState, SlotGroup


class MissingReason(StrEnum):
    """Reasons why a job cannot use a dataset at a slot."""

    STATE = "state"  # the slot ad gives the dataset another state than AVAILABLE
    STALE = "stale"  # the slot ad says AVAILABLE, but the fact is too old
    NO_AGE = "no age"  # the slot ad says AVAILABLE, but has no time of this fact
    NOT_YET_IN_SLOTS = "not yet"  # the daemon knows the dataset at the site; the slot ad does not list it yet
    NOT_IN_DEMAND = "not asked"  # no queued job names the dataset yet, so the daemon does not publish it
    OVER_BUDGET = "left out"  # the size budget leaves the dataset out of the site's ad
    CASE_COLLISION = "clash"  # another dataset's name differs in letter case only
    MISSPELT = "case"  # the catalogue has this name in another letter case
    INVALID_NAME = "refused"  # the name is not a DID
    NEVER = "never"  # [publish] never keeps the name out of every ad
    UNSEEN = "unseen"  # no catalogue answered about the dataset, or nobody asked one
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
        return self.reason in {MissingReason.STALE, MissingReason.NO_AGE} or self.state in {
            DatasetState.AVAILABLE,
            DatasetState.UNKNOWN,
        }

    @property
    def copy_bytes(self) -> int | None:
        """Return the bytes to copy from another site; None if unknown, or if a copy is not the cure."""
        is_absent = self.state in {None, DatasetState.PARTIAL} and self.reason in _REASONS_FOR_A_COPY
        return self.missing_bytes if is_absent else None


_REASONS_FOR_A_COPY = {MissingReason.STATE, MissingReason.ELSEWHERE, MissingReason.NOT_YET_IN_SLOTS}


def has_all_data(job: JobFacts, facts: Mapping[Did, Fact], now: datetime) -> bool:
    """Return True if a site has all datasets of *job* on disk, by *facts* that are not too old for it."""
    max_age, moment = job.max_age_seconds, to_unix(now)
    return max_age is not None and all(
        (fact := facts.get(did)) is not None
        and fact.state is DatasetState.AVAILABLE
        and moment - to_unix(fact.as_of) < max_age
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

    If several groups lack a dataset, the result has the reason at the first of these groups.
    """
    missing = [
        MissingDataset(text, MissingReason.INVALID_NAME, f"{shorten(text)} is not a DID: {reason}")
        for text, reason in job.invalid_names.items()
    ]
    for did in job.datasets:
        lacking_groups = [group for group in groups if not is_usable(group, did, knowledge)]
        if lacking_groups:
            first_missing = _explain_missing(job, did, site, lacking_groups[0], knowledge, now)
            replacement = _find_replacement(first_missing.similar_names, site, knowledge)
            arrival = _arrival_fields(first_missing, did, site, knowledge)
            missing.append(replace(first_missing, replacement=replacement, **arrival))
    return tuple(missing)


def _find_replacement(names: Sequence[Did], site: Site, knowledge: DaemonKnowledge | None) -> Did | None:
    """Return the first of *names* that is complete at *site*."""
    facts = {name: _find_fact(name, site, knowledge) for name in names}
    return next((name for name, one in facts.items() if one and one.state is DatasetState.AVAILABLE), None)


def _arrival_fields(
    missing: MissingDataset, did: Did, site: Site, knowledge: DaemonKnowledge | None
) -> dict[str, Any]:
    """Return the bytes of *did* that must still arrive at *site*, and the expected time of their arrival."""
    total = knowledge.snapshot.bytes_total.get(did) if knowledge else None
    if missing.is_at_site or total is None:
        missing_bytes = 0 if missing.is_at_site else None
    else:
        missing_bytes = round(total * (1 - (missing.fraction or 0)))
    fact = _find_fact(did, site, knowledge)
    ready_at = (
        fact.provenance.ready_at if fact and missing.state == fact.state == DatasetState.STAGING else None
    )
    return {"missing_bytes": missing_bytes, "ready_at": to_unix(ready_at) if ready_at else None}


def _explain_missing(
    job: JobFacts, did: Did, site: Site, group: SlotGroup, knowledge: DaemonKnowledge | None, now: datetime
) -> MissingDataset:
    if did in job.never_published:
        text = f"{did} is never published, by [publish] never: the job runs as in a pool without this daemon"
        return MissingDataset(did, MissingReason.NEVER, text)
    slot_state = group.dataset_states.get(did, SlotDatasetState(False))
    values: dict[str, Any] = {
        "state": slot_state.state,
        "fraction": slot_state.fraction,
        "as_of": slot_state.as_of,
    }
    if group.generation is None and slot_state.state is None:
        text = "the slots have no DataLocality attributes: no hook runs there (docs/operators/glideins.md)"
        return MissingDataset(
            did, MissingReason.UNHYDRATED, f"{did}: {text}", **_state_fields(_find_fact(did, site, knowledge))
        )
    if knowledge and did in knowledge.snapshot.misspelt_dids:
        return _explain_misspelling(did, knowledge.snapshot.misspelt_dids[did])
    if slot_state.state == DatasetState.AVAILABLE:
        return _explain_stale(job, did, slot_state, values, now)
    fact = _find_fact(did, site, knowledge)
    provenance = _provenance_fields(fact, now)
    if slot_state.state is not None:
        state = _state_text(slot_state.state, slot_state.fraction)
        text = f"{did} is {state}{_age_suffix(slot_state.as_of, now)}"
        if (
            fact and fact.state != slot_state.state
        ):  # the provenance explains the daemon's state, not the slot's
            provenance = {}
        return MissingDataset(
            did, MissingReason.STATE, text + _provenance_suffix(provenance), **values, **provenance
        )
    return _explain_absent_from_slots(did, site, knowledge, provenance)


def _explain_misspelling(did: Did, spellings: Sequence[Did]) -> MissingDataset:
    """Explain that *did* has the wrong letter case: the catalogue has only *spellings*."""
    return MissingDataset(
        did,
        MissingReason.MISSPELT,
        f"{did} is written with another letter case: the catalogue has {comma_separated(spellings)};"
        " names are case-sensitive",
        similar_names=tuple(spellings),
    )


def _find_fact(did: Did, site: Site, knowledge: DaemonKnowledge | None) -> Fact | None:
    """Return the daemon's fact about *did* at *site*."""
    facts = knowledge.snapshot.sites.get(site) if knowledge else None
    return facts.facts.get(did) if facts else None


def _provenance_fields(fact: Fact | None, now: datetime) -> dict[str, Any]:
    """Return the provenance of *fact* as fields of a MissingDataset; no fields without provenance."""
    why = describe_provenance(fact.provenance, now) if fact else ""
    return {"rule": fact.provenance.rule or None, "explanation": why} if fact and why else {}


def _provenance_suffix(provenance_fields: Mapping[str, Any]) -> str:
    return f"; {provenance_fields['explanation']}" if provenance_fields else ""


def _age_suffix(as_of: int | None, now: datetime) -> str:
    return "" if as_of is None else f", read {format_duration(to_unix(now) - as_of)} ago"


def _explain_stale(
    job: JobFacts, did: Did, slot_state: SlotDatasetState, values: dict[str, Any], now: datetime
) -> MissingDataset:
    if slot_state.as_of is None:
        return MissingDataset(
            did,
            MissingReason.NO_AGE,
            f"the slot ads list {did} as AVAILABLE, but without the time of this fact",
            **values,
        )
    limit = (
        ""
        if job.max_age_seconds is None
        else f"; the job accepts no fact older than {format_duration(job.max_age_seconds)}"
    )
    age = format_duration(to_unix(now) - slot_state.as_of)
    text = f"{did} was AVAILABLE {age} ago{limit}: find the cause with hydrator status and hydrator check"
    return MissingDataset(did, MissingReason.STALE, text, **values)


def _state_text(state: str, fraction: float | None) -> str:
    meaning = {
        DatasetState.STAGING: "on its way",
        DatasetState.PARTIAL: "the site has some files only, and no transfer runs",
        DatasetState.NEARLINE: "on tape only",
        DatasetState.STUCK: "its rule is stuck: ask the rule's owner",
        DatasetState.UNAVAILABLE: "it is there, but its storage cannot be read now",
        DatasetState.UNKNOWN: "for too long, no catalogue has answered",
    }
    words = next((text for other, text in meaning.items() if other == state), "")
    return f"{state}{format_percent(fraction)}" + (f" ({words})" if words else "")


def _explain_absent_from_slots(
    did: Did, site: Site, knowledge: DaemonKnowledge | None, provenance_fields: dict[str, Any]
) -> MissingDataset:
    """Explain why the slots of *site* do not list *did*. The answer has the daemon's state of *did*."""
    if knowledge is None:
        text = f"{did} is not listed in the slot ads of this site, and no daemon was asked about it"
        return MissingDataset(did, MissingReason.UNSEEN, text)
    fact = _find_fact(did, site, knowledge)
    if clash := knowledge.collisions_by_lower_name.get(did.lower()):
        other = comma_separated([one for one in clash if one != did])
        text = f"{did} is not advertised: only letter case distinguishes it from {other}"
        return MissingDataset(did, MissingReason.CASE_COLLISION, text, **_state_fields(fact))
    if did in knowledge.dids_without_room.get(site, ()):
        text = f"{did} is left out of the site's ad, which has no room for all wanted datasets"
        return MissingDataset(did, MissingReason.OVER_BUDGET, text, **_state_fields(fact))
    if fact is None:
        return _explain_absent_from_site(did, knowledge)
    state = _state_text(fact.state, fact.fraction) + _provenance_suffix(provenance_fields)
    if did in knowledge.demanded_dids:
        reason = MissingReason.NOT_YET_IN_SLOTS
        text = f"{did} is {state} at this site according to the daemon; the slot ads do not list it yet"
    else:
        reason = MissingReason.NOT_IN_DEMAND
        text = (
            f"{did} is {state} at this site according to the catalogue;"
            " the daemon publishes the dataset once a job names it"
        )
    return MissingDataset(did, reason, text, **provenance_fields, **_state_fields(fact))


def _explain_absent_from_site(did: Did, knowledge: DaemonKnowledge) -> MissingDataset:
    """Explain why *did* is missing at a site, if the daemon has no fact about *did* at this site."""
    if reason := knowledge.snapshot.unseen_reasons.get(did):
        return MissingDataset(did, MissingReason.UNSEEN, f"{did}: no catalogue answered ({shorten(reason)})")
    elsewhere = [
        f"{site} ({facts.facts[did].state}{format_percent(facts.facts[did].fraction)})"
        for site, facts in knowledge.snapshot.sites.items()
        if did in facts.facts
    ]
    if elsewhere:
        text = f"{did} is not at this site; it is at {shorten_list(elsewhere)}"
        return MissingDataset(did, MissingReason.ELSEWHERE, text)
    if did not in knowledge.demanded_dids | knowledge.queried_dids:
        text = "the daemon does not poll this dataset yet; its next cycle finds the datasets of new jobs"
        return MissingDataset(did, MissingReason.NOT_IN_DEMAND, f"{did}: {text}")
    near = knowledge.similar_names.get(did, ())
    advice = f"did you mean {' or '.join(near)}?" if near else "check the spelling (case matters)"
    text = f"{did} is not in any catalogue; {advice}"
    return MissingDataset(did, MissingReason.NOWHERE, text, similar_names=near)


def _state_fields(fact: Fact | None) -> dict[str, Any]:
    """Return the fields of a MissingDataset with the daemon's fact."""
    if fact is None:
        return {}
    return {"state": str(fact.state), "fraction": fact.fraction, "as_of": to_unix(fact.as_of)}


# --- counts ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DatasetCounts:
    """Counts of a job's datasets at a site: the usable datasets, and the others by their condition.

    ``missing_bytes`` must still arrive at the site; None if no size is known. The number is a lower bound
    if ``has_all_sizes`` is False. ``ready_at`` is the expected arrival of the last staging dataset, Unix s.

    Attributes:
        usable_count: number of the job's datasets that the job can use at the site.
        other_counts: number of the job's other datasets, by their condition at the site.
        missing_bytes: bytes that must still arrive at the site, of datasets of known size.
        has_all_sizes: true if the sizes of all missing datasets are known.
        ready_at: expected arrival of the last staging dataset.
    """

    usable_count: int
    other_counts: Mapping[str, int]
    missing_bytes: Bytes | None = None
    has_all_sizes: bool = True
    ready_at: UnixTime | None = None

    def text(self, now: datetime) -> str:
        """Return one line, such as ``232 here, 8 partial, 4 staging until 15:10 UTC, 360 GB missing``."""
        parts = [f"{self.usable_count} here"]
        for word, number in self.other_counts.items():
            until = f" until {format_time(self.ready_at, now)}" if word == "staging" and self.ready_at else ""
            parts.append(f"{number} {word}{until}")
        if self.missing_bytes:
            least = "" if self.has_all_sizes else "at least "
            parts.append(f"{least}{format_bytes(self.missing_bytes)} missing")
        return comma_separated(parts)


def count_datasets(job: JobFacts, missing: Sequence[MissingDataset]) -> DatasetCounts:
    """Count the datasets of *job* at a site by condition, the most frequent first."""
    counts = Counter(_status_word(one) for one in missing)
    sizes = [one.missing_bytes for one in missing]
    known_sizes = [size for size in sizes if size is not None]
    staging_ends = [one.ready_at for one in missing if _status_word(one) == "staging"]
    known_ends = [at for at in staging_ends if at is not None]
    return DatasetCounts(
        usable_count=len(job.datasets) + len(job.invalid_names) - len(missing),
        other_counts=dict(counts.most_common()),
        missing_bytes=sum(known_sizes) if known_sizes else None,
        has_all_sizes=len(known_sizes) == len(sizes),
        ready_at=max(known_ends) if known_ends and len(known_ends) == len(staging_ends) else None,
    )


def _status_word(missing: MissingDataset) -> str:
    """Return the condition of a dataset at a site, in a word or two."""
    words = {
        MissingReason.STALE: "not confirmed lately",
        MissingReason.NO_AGE: "of unknown age",
        MissingReason.OVER_BUDGET: "left out",
        MissingReason.CASE_COLLISION: "ambiguous by letter case",
        MissingReason.INVALID_NAME: "not a DID",
        MissingReason.NEVER: "never published",
        MissingReason.UNSEEN: "not known",
        MissingReason.UNHYDRATED: "without attributes",
        MissingReason.ELSEWHERE: "absent",
        MissingReason.NOWHERE: "in no catalogue",
    }
    if word := words.get(missing.reason):
        return word
    states = {DatasetState.NEARLINE: "on tape", DatasetState.AVAILABLE: "not in slot ads yet"}
    return next(
        (states.get(state, state.lower()) for state in DatasetState if state == missing.state),
        "not polled yet",
    )


def data_text(job: JobFacts, missing: Sequence[MissingDataset], now: datetime) -> str:
    """Describe the *missing* datasets in one line. If *job* names several datasets, counts come first."""
    if missing and all(one.reason is MissingReason.UNHYDRATED for one in missing):
        return missing[0].text.partition(": ")[2]
    each = shorten_list([one.text for one in missing], "; ")
    several = len(job.datasets) + len(job.invalid_names) > 1
    return f"{count_datasets(job, missing).text(now)}: {each}" if several else each
