"""Why a job does not run: what was found of it, of the slots and of its data, into reasons and ways out.

Pure. The verdicts on clauses come from the ClassAd library that the negotiator
has; what is concluded here is *which* of them keep the job away from a site
and what the cheapest change is. Sentences are for people; every one stands
beside its values.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby

from hydrator.domain.misses import MISSED_EXIT_STATUS, PATHS_ATTRIBUTE, SITES_ATTRIBUTE
from hydrator.domain.model import DaemonKnowledge, DatasetState, Site, to_unix
from hydrator.domain.text import (
    comma_separated,
    deduplicate,
    format_count,
    format_duration,
    format_percent,
    format_time,
    shorten,
    shorten_list,
)
from hydrator.domain.untrusted import nearest_moment, valid_number

from .missing_data import (
    DatasetCounts,
    MissingDataset,
    MissingReason,
    count_datasets,
    data_text,
    is_here_clause_true,
    list_missing_datasets,
)
from .pool_facts import HERE_ATTRIBUTE, Clause, JobFacts, JobStatus, SlotGroup


class MismatchCause(StrEnum):
    """What keeps a job from a slot, in the order of the funnel."""

    DATA = "data"
    UNREADABLE_DATA = "missed"  # the job ran there and could not read its data
    CORES = "cores"
    MEMORY = "memory"
    DISK = "disk"
    GPUS = "gpus"
    PLATFORM = "platform"
    PATH = "path"
    REQUIREMENT = "requirement"
    START = "start"
    BUSY = "busy"
    SLOTS = "slots"  # the site has none


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps the job from ``slots`` slots of a site; ``ours`` when it is about data."""

    cause: MismatchCause
    is_about_data: bool
    slots: int
    text: str
    clauses: tuple[str, ...] = ()
    missing_datasets: tuple[MissingDataset, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that lets the job match; the smaller the ``cost``, the sooner one would make it."""

    cost: int
    text: str


@dataclass(frozen=True, slots=True)
class SiteMatch:
    """One site: its slots, how many match now, what keeps the job from the others, what would help."""

    site: Site
    slots: int
    matching_slots: int
    reasons: tuple[Reason, ...] = ()
    remedy: Remedy | None = None
    dataset_counts: DatasetCounts | None = None
    """How many of the job's datasets count there, and what the others are; None where all count."""
    held_change: str | None = None
    """The change of the site's ad that the daemon holds back."""
    pool: str = ""
    """The collector of another pool, to which the job's schedd flocks; empty for the job's own."""

    @property
    def display_name(self) -> str:
        """The site for people, with its pool where that is another one."""
        return f"{self.site} (pool {self.pool}, by flocking)" if self.pool else self.site


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """All that can be said of one job (or of alike ones)."""

    job: JobFacts
    verdict: str
    matching_sites: tuple[str, ...]
    could_run: bool
    notes: tuple[str, ...] = ()
    wait: str | None = None
    funnel: str = ""
    remedy: str | None = None
    sites: tuple[SiteMatch, ...] = ()
    block_reason: str | None = None
    """Why no negotiator gives it a slot though some match: a limit or a priority."""


# --- answers ----------------------------------------------------------------------------------------------


def explain(
    job: JobFacts, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, *, now: datetime
) -> JobExplanation:
    """Say for every site why *job* would not match there, and what would unlock it.

    Args:
        job: a job in a queue.
        groups: the pool's slots, judged.
        beliefs: what the daemon knows; None where its state cannot be read.
        now: aware UTC time.
    """
    notes = _notes(job, now)
    wait = _wait_text(job, now)
    sites = [
        _explain_site(job, site, pool, list(those), knowledge, now)
        for (pool, site), those in _group_by_site(groups)
    ]
    sites += _sites_without_slots(job, {at.site for at in sites}, knowledge, now)
    matches = tuple(at.display_name for at in sites if at.matching_slots)
    idle = job.status in {None, JobStatus.IDLE}
    blocked = _block_reason(job, matches, now)
    return JobExplanation(
        job=job,
        verdict=_verdict(job, matches, sites, blocked, now),
        matching_sites=matches,
        could_run=(idle and bool(matches) and not blocked)
        or job.status in {JobStatus.RUNNING, JobStatus.TRANSFERRING, JobStatus.COMPLETED},
        block_reason=blocked,
        notes=notes,
        wait=wait,
        funnel=funnel(job, groups, now),
        remedy=_cheapest_remedy_text(sites) if idle and not matches else None,
        sites=tuple(sites),
    )


def explain_before_submit(
    job: JobFacts,
    groups: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    *,
    now: datetime,
    only_site: Site | None = None,
) -> JobExplanation:
    """The same before submitting: data alone counts, not cores or START, and a dataset nobody asked for yet
    counts as there when a catalogue says so, since it is published as soon as a job asks.

    Args:
        job: a job that nobody submitted, with its datasets.
        groups: the slots, judged; START and what they have are not looked at.
        beliefs: what the daemon and the catalogues know.
        now: aware UTC time.
        only: this site alone.
    """
    sites = []
    for (_, site), those in _group_by_site(groups):
        if only_site in {None, site}:
            sites.append(_explain_site_before_submit(job, site, list(those), knowledge, now))
    known = {at.site for at in sites}
    if only_site is None:
        sites += _sites_without_slots(job, known, knowledge, now)
    elif only_site not in known:
        there = _sites_without_slots(job, known, knowledge, now, only_site)
        sites += there or [SiteMatch(only_site, 0, 0, (_no_slot_reason(job, only_site, knowledge, now),))]
    good = tuple(at.site for at in sites if at.matching_slots)
    where = f"at {only_site}" if only_site else "anywhere"
    return JobExplanation(
        job=job,
        verdict=f"all data is at {comma_separated(good)}"
        if good
        else f"not all data is {where} with slots now",
        matching_sites=good,
        could_run=bool(good),
        sites=tuple(sites),
        remedy=None if good else _cheapest_remedy_text(sites),
    )


def funnel(job: JobFacts, groups: Sequence[SlotGroup], now: datetime) -> str:
    """How many slots are left after each cause, such as ``12 slots → 8 with the data → 0 with 16 cores``."""
    left = list(groups)
    parts = [format_count(sum(group.slots for group in left), "slot")]
    for cause in MismatchCause:
        kept = [group for group in left if cause not in _causes(group)]
        cut = len(kept) < len(left)
        left = kept
        if cut or (cause is MismatchCause.DATA and job.has_required_datasets):
            parts.append(f"{sum(group.slots for group in left)} {_funnel_word(cause, job, now)}")
    return " → ".join(parts)


def _funnel_word(cause: MismatchCause, job: JobFacts, now: datetime) -> str:
    match cause:
        case MismatchCause.UNREADABLE_DATA:
            return "where it has not missed its data"
        case MismatchCause.DATA:
            return "with the data" if _insists_on_data(job, now) else "where its data lets it run"
        case MismatchCause.CORES | MismatchCause.MEMORY | MismatchCause.DISK | MismatchCause.GPUS:
            return f"with {_requested_amount(cause, job)}"
        case MismatchCause.PLATFORM:
            return "of its platform"
        case MismatchCause.PATH:
            return "where it knows a path to its data"
        case MismatchCause.REQUIREMENT:
            return "that meet its requirements"
        case MismatchCause.START:
            return "whose START takes it"
        case _:
            return "free now"


def _insists_on_data(job: JobFacts, now: datetime) -> bool:
    return not job.is_released and (job.any_after is None or to_unix(now) < job.any_after)


# --- one site ---------------------------------------------------------------------------------------------


def _group_by_site(groups: Sequence[SlotGroup]) -> Iterable[tuple[tuple[str, Site], Iterable[SlotGroup]]]:
    """Group slots by their pool and site, the pool of the job first."""

    def place(group: SlotGroup) -> tuple[str, Site]:
        return group.pool, group.site

    return groupby(sorted(groups, key=place), key=place)


def _explain_site(
    job: JobFacts,
    site: Site,
    pool: str,
    groups: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    now: datetime,
) -> SiteMatch:
    matching = sum(group.slots for group in groups if group.can_run_now)
    reasons = tuple(_reasons(job, site, [g for g in groups if not g.can_run_now], knowledge, now))
    ways = [_group_remedy(job, group, reasons, now) for group in groups if not group.can_run_now]
    best = min((way for way in ways if way), key=lambda way: way.cost, default=None)
    missing = [one for reason in reasons for one in reason.missing_datasets]
    return SiteMatch(
        site,
        sum(g.slots for g in groups),
        matching,
        reasons,
        None if matching else best,
        count_datasets(job, missing) if missing else None,
        knowledge.held_reasons.get(site) if knowledge and job.has_required_datasets else None,
        pool,
    )


def _explain_site_before_submit(
    job: JobFacts, site: Site, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> SiteMatch:
    slots = sum(group.slots for group in groups)
    without = [group for group in groups if not all(told.is_usable for told in group.dataset_states.values())]
    if not without and not job.invalid_names:
        return SiteMatch(site, slots, slots)
    missing = list_missing_datasets(job, site, without or groups, knowledge, now)
    coming = all(one.reason is MissingReason.NOT_IN_DEMAND and one.state == "AVAILABLE" for one in missing)
    hydrated = all(group.generation is not None for group in without)
    text = data_text(job, missing, now)
    reason = Reason(MismatchCause.DATA, True, sum(group.slots for group in without), text, (), missing)
    way = None if coming else _data_remedy(job, (reason,), now)
    matching = slots if coming and hydrated else slots - reason.slots
    held = knowledge.held_reasons.get(site) if knowledge else None
    return SiteMatch(site, slots, matching, (reason,), way, count_datasets(job, missing), held)


def _sites_without_slots(
    job: JobFacts,
    known_sites: AbstractSet[Site],
    knowledge: DaemonKnowledge | None,
    now: datetime,
    only_site: Site | None = None,
) -> list[SiteMatch]:
    """Sites that hold some of the data and have no slot in the pool."""
    if knowledge is None or not job.datasets:
        return []
    return [
        SiteMatch(site, 0, 0, (_no_slot_reason(job, site, knowledge, now),))
        for site, facts in knowledge.snapshot.sites.items()
        if site not in known_sites
        and only_site in {None, site}
        and any(did in facts.facts for did in job.datasets)
    ]


def _no_slot_reason(job: JobFacts, site: Site, knowledge: DaemonKnowledge | None, now: datetime) -> Reason:
    facts = knowledge.snapshot.sites.get(site) if knowledge else None
    here = {did: facts.facts[did] for did in job.datasets if facts and did in facts.facts}
    text = "no slot of this site is in the pool"
    if here:
        text += f"; it has {shorten_list([f'{did} {fact.state}{format_percent(fact.fraction)}' for did, fact in here.items()])}"
    if job.datasets and is_here_clause_true(
        job.datasets,
        {did: str(fact.state) for did, fact in here.items()},
        {did: to_unix(fact.as_of) for did, fact in here.items()},
        None,
        now=to_unix(now),
        max_age_seconds=job.max_age_seconds,
    ):
        text += ": all its data, so a glidein there would do"
    return Reason(MismatchCause.SLOTS, False, 0, text)


def _reasons(
    job: JobFacts, site: Site, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> Iterable[Reason]:
    for cause in MismatchCause:
        hit = [group for group in groups if cause in _causes(group)]
        if not hit:
            continue
        failing = deduplicate(
            clause.text for group in hit for clause, found in _failing_clauses(group) if found is cause
        )
        missing = list_missing_datasets(job, site, hit, knowledge, now) if cause is MismatchCause.DATA else ()
        if missing:
            text = data_text(job, missing, now)
        elif cause is MismatchCause.UNREADABLE_DATA:
            text = _misses_text(job, site, now)
        else:
            text = _reason_text(cause, job, hit, failing)
        yield Reason(
            cause,
            cause is MismatchCause.DATA,
            sum(group.slots for group in hit),
            text,
            tuple(failing),
            missing,
        )


def _failing_clauses(group: SlotGroup) -> list[tuple[Clause, MismatchCause]]:
    """Each clause that does not hold, with its cause; BUSY when it would hold if nothing were in use."""
    found = [
        (clause, _cause_of(clause, MismatchCause.REQUIREMENT))
        for clause in group.job_clauses
        if not clause.is_true
    ]
    found += [
        (clause, _cause_of(clause, MismatchCause.START))
        for clause in group.slot_clauses
        if not clause.is_true
    ]
    return found


def _cause_of(clause: Clause, default: MismatchCause) -> MismatchCause:
    if clause.value_if_unused == "true":
        return MismatchCause.BUSY
    words = {word.lower() for word in re.findall(r"[A-Za-z_]\w*", _blank_string_literals(clause.text))}
    if words & {HERE_ATTRIBUTE.lower(), "datasetstates", "availabledatasets"}:
        return MismatchCause.DATA
    if SITES_ATTRIBUTE.lower() in words:
        return MismatchCause.UNREADABLE_DATA
    if PATHS_ATTRIBUTE.lower() in words:
        return MismatchCause.PATH
    kinds = {cause for cause, known in _RESOURCE_ATTRIBUTES.items() if words & known}
    return kinds.pop() if len(kinds) == 1 and words <= _GENERATED_WORDS else default


_RESOURCE_ATTRIBUTES: Mapping[MismatchCause, AbstractSet[str]] = {
    MismatchCause.CORES: {"cpus", "requestcpus"},
    MismatchCause.MEMORY: {"memory", "requestmemory"},
    MismatchCause.DISK: {"disk", "requestdisk"},
    MismatchCause.GPUS: {"gpus", "requestgpus"},
    MismatchCause.PLATFORM: {"arch", "opsys", "hasfiletransfer", "filesystemdomain"},
}
_GENERATED_WORDS = frozenset().union(*_RESOURCE_ATTRIBUTES.values()) | {
    *("my", "target", "is", "isnt", "undefined", "true", "false"),
    *("versionge", "split", "condorversion", "ifthenelse", "sum", "evalineachcontext", "member"),
    *("mappingmethod", "requestedcatalogs", "requestedcatalogids", "catalogs", "catalogid", "catalogsize"),
}
"""The words of clauses that condor_submit and condor_startd write; another makes a clause somebody's own."""


def _causes(group: SlotGroup) -> set[MismatchCause]:
    if group.can_run_now:
        return set()
    found = {cause for _, cause in _failing_clauses(group)}
    if group.is_match:  # and not free
        found.add(MismatchCause.BUSY)
    if found & _RESOURCE.keys():  # too small a slot would not do when nothing of it is in use
        found.discard(MismatchCause.BUSY)
    return found or {
        MismatchCause.REQUIREMENT
    }  # the whole does not hold though its parts do: too deep to evaluate


def _reason_text(
    cause: MismatchCause, job: JobFacts, groups: Sequence[SlotGroup], failing_clauses: Sequence[str]
) -> str:
    shown = shorten_list([f"`{shorten(text)}`" for text in failing_clauses])
    match cause:
        case MismatchCause.CORES | MismatchCause.MEMORY | MismatchCause.DISK | MismatchCause.GPUS if (
            _RESOURCE[cause] not in job.requests
        ):
            most = _capacity_text(cause, groups)
            return f"what it asks for depends on the slot, and is more than the {most} of the largest there"
        case MismatchCause.CORES | MismatchCause.MEMORY | MismatchCause.DISK | MismatchCause.GPUS:
            return f"it asks for {_requested_amount(cause, job)}; the largest slot there has {_capacity_text(cause, groups)}"
        case MismatchCause.BUSY:
            return f"busy: {_resource_use_text(job, groups)}"
        case MismatchCause.PLATFORM:
            return f"the slots are of another platform: {shown} does not hold"
        case MismatchCause.PATH:
            return "whoever submitted it knew no path to its data there ([[storage]] of that configuration)"
        case MismatchCause.START:
            return f"the slots refuse the job: {shown} does not hold in their START or limits"
        case _:
            if not failing_clauses:
                return "its requirements do not hold as a whole, though each part does: too deep to evaluate?"
            undefined = all(
                clause.value == "undefined"
                for group in groups
                for clause in group.job_clauses
                if clause.text in failing_clauses and not clause.is_true
            )
            why = ", the slots do not say" if undefined else ""
            return f"its own requirement {shown} does not hold{why}"


def _misses_text(job: JobFacts, site: Site, now: datetime) -> str:
    """Return what the job could not read at *site*, when, and until when it keeps away."""
    there = [miss for miss in job.misses if miss.site == site]
    if there:
        last = there[-1].missed_at
        dids = deduplicate(miss.did for miss in there if miss.missed_at == last)
        text = f"the job could not read {shorten_list(dids)} there {_ago_text(last, now)}, though its slot had it listed"
    else:
        text = f"its last run there could not read its data (it ended with status {MISSED_EXIT_STATUS})"
    if job.missed_until is not None and job.missed_until > to_unix(now) and site in job.missed_sites:
        text += f"; it keeps away until {format_time(job.missed_until, now)}"
    return f"{text}; its stderr says more"


def _ago_text(moment: datetime, now: datetime) -> str:
    return f"{format_duration((now - moment).total_seconds())} ago"


def _resource_use_text(job: JobFacts, groups: Sequence[SlotGroup]) -> str:
    parts = []
    for cause, name in _RESOURCE.items():
        asked = job.requests.get(name)
        free = max((group.largest_resources.get(name, 0) for group in groups), default=0)
        if asked is not None and free < asked and any(name in group.largest_resources for group in groups):
            total = max(group.largest_resources.get(f"TotalSlot{name}", 0) for group in groups)
            parts.append(
                f"{_amount_with_unit(cause, free)} free of {_amount_with_unit(cause, total)}, it asks for {_requested_amount(cause, job)}"
            )
    return "; ".join(parts) or "other jobs have these slots"


_RESOURCE = {
    MismatchCause.CORES: "Cpus",
    MismatchCause.MEMORY: "Memory",
    MismatchCause.DISK: "Disk",
    MismatchCause.GPUS: "GPUs",
}


def _requested_amount(cause: MismatchCause, job: JobFacts) -> str:
    asked = job.requests.get(_RESOURCE[cause])
    return f"the {cause} it asks for" if asked is None else _amount_with_unit(cause, asked)


def _capacity_text(cause: MismatchCause, groups: Sequence[SlotGroup]) -> str:
    return _amount_with_unit(cause, _capacity(cause, groups))


def _capacity(cause: MismatchCause, groups: Sequence[SlotGroup]) -> float:
    name = _RESOURCE[cause]
    return max(
        max(g.largest_resources.get(f"TotalSlot{name}", 0), g.largest_resources.get(name, 0)) for g in groups
    )


def _amount_with_unit(cause: MismatchCause, amount: float) -> str:
    match cause:
        case MismatchCause.MEMORY:
            return f"{amount:.0f} MiB of memory" if amount < 10_240 else f"{amount / 1024:.0f} GiB of memory"
        case MismatchCause.DISK:
            return (
                f"{amount / 1024:.0f} MiB of disk" if amount < 2**24 else f"{amount / 2**20:.0f} GiB of disk"
            )
        case MismatchCause.GPUS:
            return format_count(round(amount), "GPU")
        case _:
            return format_count(round(amount), "core")


# --- ways out ---------------------------------------------------------------------------------------------


def _cheapest_remedy_text(sites: Sequence[SiteMatch]) -> str | None:
    """The cheapest change, and all sites that it would open."""
    best = min((at.remedy for at in sites if at.remedy), key=lambda way: way.cost, default=None)
    if best is None:
        return None
    opened = [at.display_name for at in sites if at.remedy == best]
    return f"{best.text} (then it matches at {shorten_list(opened)})"


def _group_remedy(job: JobFacts, group: SlotGroup, reasons: Sequence[Reason], now: datetime) -> Remedy | None:
    """What would let the job match the slots of *group*: all their causes cured, each the cheapest way."""
    ways = [
        _cause_remedy(cause, job, group, reasons, now)
        for cause in sorted(_causes(group), key=list(MismatchCause).index)
    ]
    cost = sum(way.cost for way in ways)
    return Remedy(cost, " and ".join(way.text for way in sorted(ways, key=lambda way: -way.cost)))


def _cause_remedy(
    cause: MismatchCause, job: JobFacts, group: SlotGroup, reasons: Sequence[Reason], now: datetime
) -> Remedy:
    match cause:
        case MismatchCause.BUSY:
            return Remedy(1, "a slot becomes free")
        case MismatchCause.DATA:
            return _data_remedy(job, [reason for reason in reasons if reason.cause is cause], now)
        case MismatchCause.UNREADABLE_DATA:
            return _misses_remedy(job, now)
        case MismatchCause.CORES | MismatchCause.MEMORY | MismatchCause.DISK | MismatchCause.GPUS:
            return Remedy(4, f"ask for {_capacity_text(cause, [group])} or less")
        case MismatchCause.PATH:
            return Remedy(7, "submit it again with a [[storage]] for the site")
        case MismatchCause.REQUIREMENT:
            return Remedy(7, "change the job's own requirements (condor_qedit, or submit again)")
        case MismatchCause.START:
            return Remedy(8, "the site's operator changes START")
        case _:
            return Remedy(9, "build the job for that platform")


def _misses_remedy(job: JobFacts, now: datetime) -> Remedy:
    if job.missed_until is not None and job.missed_until > to_unix(now):
        return Remedy(
            3, f"the job tries the site again, in {format_duration(job.missed_until - to_unix(now))}"
        )
    return Remedy(7, "the site's operator sees why the data cannot be read there")


def _data_remedy(job: JobFacts, reasons: Sequence[Reason], now: datetime) -> Remedy:
    missing = [one for reason in reasons for one in reason.missing_datasets]
    ways = []
    if job.any_after is not None and job.any_after > to_unix(now):
        left = job.any_after - to_unix(now)
        ways.append(Remedy(2 if left <= 3600 else 3, f"the wait ends in {format_duration(left)}"))
    if missing:
        ways += _combined_arrival_remedies(missing)
    releasable = job.is_transformed and not (job.is_released or job.opens_paths)
    if job.can_release and releasable and all(one.is_at_site for one in missing):
        cluster = job.name.partition(".")[0]
        text = f"hydrator release 'ClusterId == {cluster}' lets it run anywhere, with its data or without"
        ways.append(Remedy(6, text))
    best = min(ways, key=lambda way: way.cost, default=None)
    if best is None:
        return _manual_remedy(missing)
    equal = [way.text for way in ways if way.cost == best.cost]
    return Remedy(best.cost, " or ".join(equal))


def _manual_remedy(missing: Sequence[MissingDataset]) -> Remedy:
    """Return what a person must do, by the first of *missing* that no time cures."""
    first = next((one for one in missing if _arrival_remedy(one) is None), None)
    match first.reason if first else None:
        case (
            MissingReason.NOWHERE
            | MissingReason.INVALID_NAME
            | MissingReason.PRIVATE
            | MissingReason.CASE_COLLISION
        ) if first:
            name = (
                f"with {first.similar_names[0]} instead of {first.did}"
                if first.similar_names
                else "with another name"
            )
            if first.reason is MissingReason.PRIVATE:
                name = "by `hydrator submit`"
            return Remedy(9, f"submit it again {name}")
        case _ if first and first.state == DatasetState.NEARLINE:
            return Remedy(10, "the data is brought from tape: somebody makes a rule")
        case _ if first and first.state == DatasetState.STUCK:
            return Remedy(10, "the data comes there: the owner of the stuck rule acts")
        case _:
            return Remedy(10, "the data comes there: somebody makes a rule")


def _combined_arrival_remedies(missing: Sequence[MissingDataset]) -> list[Remedy]:
    """How all of *missing* may come to count, where that can be said."""
    each = [_arrival_remedy(one) for one in missing]
    if any(way is None for way in each):
        return []
    known = [way for way in each if way is not None]
    return [
        Remedy(max(way.cost for way in known), shorten_list(deduplicate(way.text for way in known), " and "))
    ]


def _arrival_remedy(missing: MissingDataset) -> Remedy | None:
    """What makes a dataset count: time, a look at something, or a person; None: nothing we know of."""
    match missing.reason:
        case MissingReason.STATE | MissingReason.NOT_YET_IN_SLOTS | MissingReason.NOT_IN_DEMAND if (
            missing.state == DatasetState.AVAILABLE
        ):
            return Remedy(1, f"the slots hear of {missing.did} (a minute or two)")
        case MissingReason.STATE | MissingReason.NOT_YET_IN_SLOTS | MissingReason.NOT_IN_DEMAND if (
            missing.state == DatasetState.STAGING
        ):
            how = f"; {missing.explanation}" if missing.explanation else ""
            return Remedy(2, f"{missing.did} arrives (STAGING{format_percent(missing.fraction)}{how})")
        case MissingReason.NOT_IN_DEMAND if missing.state is None:
            return Remedy(3, f"the daemon looks for {missing.did} (a minute or two)")
        case MissingReason.STATE | MissingReason.NOT_YET_IN_SLOTS | MissingReason.NOT_IN_DEMAND if (
            missing.state == DatasetState.UNKNOWN
        ):
            return Remedy(5, f"fresh facts about {missing.did}")
        case MissingReason.STALE | MissingReason.NO_AGE | MissingReason.UNSEEN:
            return Remedy(5, f"fresh facts about {missing.did}")
        case MissingReason.UNHYDRATED:
            return Remedy(8, "the hook is installed there, if the data is")
        case MissingReason.MISSPELT:
            return Remedy(4, f"submit again with the catalogue's spelling of {missing.did}")
        case MissingReason.OVER_BUDGET:
            return Remedy(8, "the operator makes room (budget.line_bytes)")
        case _:
            return None


# --- the job as a whole -----------------------------------------------------------------------------------


def _verdict(
    job: JobFacts,
    matching_sites: Sequence[str],
    sites: Sequence[SiteMatch],
    block_reason: str | None,
    now: datetime,
) -> str:
    since = valid_number(job.status_attributes.get("EnteredCurrentStatus"))
    lasting = f" for {format_duration(to_unix(now) - since)}" if since else ""
    match job.status:
        case JobStatus.RUNNING | JobStatus.TRANSFERRING:
            return f"it runs{lasting} at {job.status_attributes.get('RemoteHost', 'a slot')}: nothing holds it back"
        case JobStatus.HELD:
            reason = str(job.status_attributes.get("HoldReason", "no reason given")).rstrip(".")
            return f"it is held{lasting}: {reason}. condor_release {job.name} lets it try again"
        case JobStatus.SUSPENDED:
            return f"it is suspended{lasting} at {job.status_attributes.get('RemoteHost', 'a slot')}"
        case JobStatus.REMOVED:
            return "it is being removed"
        case JobStatus.COMPLETED:
            return "it has completed and is about to leave the queue"
        case _ if block_reason and matching_sites:
            return f"{block_reason}; but for that it would match at {comma_separated(matching_sites)}"
        case _ if block_reason:
            return f"{block_reason}; and it would match nowhere now"
        case _ if matching_sites:
            return f"it would match at {comma_separated(matching_sites)}: it waits for its turn in the next negotiation cycles"
        case _ if not any(at.slots for at in sites):
            return "it cannot match: there are no slots in the pool"
        case _:
            return "it would match nowhere now"


_RECENT_SECONDS = 600
"""What the negotiator said longer ago is history: it considers jobs each minute or so."""
_NO_MATCH = "no match found"


def _block_reason(job: JobFacts, matching_sites: Sequence[str], now: datetime) -> str | None:
    """Return why an idle job lately got no slot though slots match; None where nothing says so."""
    if job.status is not JobStatus.IDLE:
        return None
    if job.max_uploads and job.uploads >= job.max_uploads:
        return (
            f"its schedd asks for no slots for its user: {format_count(job.uploads, 'job')} of the user send their"
            f" input files, or wait to, and {job.max_uploads} may (MAX_CONCURRENT_UPLOADS_PER_USER)"
        )
    reason = str(job.status_attributes.get("LastRejMatchReason") or "").partition(" |")[0].strip()
    when = valid_number(job.status_attributes.get("LastRejMatchTime"))
    if not reason or when is None or not 0 <= to_unix(now) - when <= _RECENT_SECONDS or reason == _NO_MATCH:
        return None
    said = f"the negotiator said so {format_duration(to_unix(now) - when)} ago"
    if found := re.match(r"concurrency limit (.{0,500}?)\s*reached", reason):
        names = found[1].strip() or job.concurrency_limits
        return f"it waits for a concurrency limit{f' ({names})' if names else ''}: {said}"
    if not matching_sites:
        return None
    return f"it waits for its turn ({reason}): {said}"


def _misses_note(job: JobFacts, now: datetime) -> str:
    """Return what the job could not read so far, the last first; empty where it read all."""
    if not job.misses or job.status not in {JobStatus.IDLE, JobStatus.HELD}:
        return ""
    each = [f"{miss.did} at {miss.site} {_ago_text(miss.missed_at, now)}" for miss in reversed(job.misses)]
    return f"it ran and could not read {shorten_list(deduplicate(each))}"


def _notes(job: JobFacts, now: datetime) -> tuple[str, ...]:
    notes = []
    if not job.has_required_datasets:
        notes.append("it names no datasets (RequiredDatasets): nothing of ours holds it back")
    elif not job.is_transformed:
        notes.append(
            "the schedd's transform has not been here (no DataLocalityTransformed): it was not installed when"
            " the job was submitted; the job keeps the expressions it has, and none of ours holds it back"
        )
    elif job.is_released:
        notes.append("it was released: its data no longer decides where it runs")
    if missed := _misses_note(job, now):
        notes.append(missed)
    said = job.status_attributes.get("LastRejMatchReason")
    when = valid_number(job.status_attributes.get("LastRejMatchTime"))
    if said and when and job.status is JobStatus.IDLE:
        notes.append(f"the negotiator said {format_duration(to_unix(now) - when)} ago: {str(said).strip()}")
    return tuple(notes)


def _wait_text(job: JobFacts, now: datetime) -> str | None:
    """When the job stops insisting on its data, in words."""
    if not (job.is_transformed and job.has_required_datasets) or job.is_released:
        return None
    if job.any_after is None:
        return "it runs only where all its data is (DataLocality = require)"
    at = f"{nearest_moment(job.any_after):%Y-%m-%d %H:%M} UTC"
    left = job.any_after - to_unix(now)
    if left > 0:
        return f"it insists on its data until {at} (for {format_duration(left)}), then it may run anywhere"
    return f"it may run anywhere since {at} ({format_duration(-left)} ago)"


def _blank_string_literals(text: str) -> str:
    # a string that nothing ends is none: without that, each of its quotes would be tried again
    return re.sub(r'"(?:\\.|[^"\\])*(?:"|\\?\Z)', '""', text)
