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

from .beliefs import Beliefs
from .judged import HERE, Clause, Job, JobStatus, SlotGroup
from .misses import MISSED, PATHS_ATTRIBUTE, SITES_ATTRIBUTE
from .missing import DatasetCounts, Lack, Missing, clause_holds, data_text, dataset_counts, missing_at
from .model import DatasetState, Site, unix
from .numbers import finite, nearest_moment
from .words import clock, count, listed, share, shortened, some, span, unique


class Cause(StrEnum):
    """What keeps a job from a slot, in the order of the funnel."""

    DATA = "data"
    MISSED = "missed"  # the job ran there and could not read its data
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

    cause: Cause
    ours: bool
    slots: int
    text: str
    clauses: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True)
class WayOut:
    """A change that lets the job match; the smaller the ``cost``, the sooner one would make it."""

    cost: int
    text: str


@dataclass(frozen=True, slots=True)
class AtSite:
    """One site: its slots, how many match now, what keeps the job from the others, what would help."""

    site: Site
    slots: int
    matching: int
    reasons: tuple[Reason, ...] = ()
    way_out: WayOut | None = None
    counts: DatasetCounts | None = None
    """How many of the job's datasets count there, and what the others are; None where all count."""
    held: str | None = None
    """The change of the site's ad that the daemon holds back."""
    pool: str = ""
    """The collector of another pool, to which the job's schedd flocks; empty for the job's own."""

    @property
    def where(self) -> str:
        """The site for people, with its pool where that is another one."""
        return f"{self.site} (pool {self.pool}, by flocking)" if self.pool else self.site


@dataclass(frozen=True, slots=True)
class Answer:
    """All that can be said of one job (or of alike ones)."""

    job: Job
    verdict: str
    matches_at: tuple[str, ...]
    could_run: bool
    notes: tuple[str, ...] = ()
    wait: str | None = None
    funnel: str = ""
    way_out: str | None = None
    sites: tuple[AtSite, ...] = ()
    blocked: str | None = None
    """Why no negotiator gives it a slot though some match: a limit or a priority."""


# --- answers ----------------------------------------------------------------------------------------------


def explain(job: Job, groups: Sequence[SlotGroup], beliefs: Beliefs | None, *, now: datetime) -> Answer:
    """Say for every site why *job* would not match there, and what would unlock it.

    Args:
        job: a job in a queue.
        groups: the pool's slots, judged.
        beliefs: what the daemon knows; None where its state cannot be read.
        now: aware UTC time.
    """
    notes = _notes(job, now)
    wait = _wait(job, now)
    sites = [_at_site(job, site, pool, list(those), beliefs, now) for (pool, site), those in _by_site(groups)]
    sites += _without_slots(job, {at.site for at in sites}, beliefs, now)
    matches = tuple(at.where for at in sites if at.matching)
    idle = job.status in {None, JobStatus.IDLE}
    blocked = _blocked(job, matches, now)
    return Answer(
        job=job,
        verdict=_verdict(job, matches, sites, blocked, now),
        matches_at=matches,
        could_run=(idle and bool(matches) and not blocked)
        or job.status in {JobStatus.RUNNING, JobStatus.TRANSFERRING, JobStatus.COMPLETED},
        blocked=blocked,
        notes=notes,
        wait=wait,
        funnel=funnel(job, groups, now),
        way_out=_soonest(sites) if idle and not matches else None,
        sites=tuple(sites),
    )


def foresee(
    job: Job, groups: Sequence[SlotGroup], beliefs: Beliefs | None, *, now: datetime, only: Site | None = None
) -> Answer:
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
    for (_, site), those in _by_site(groups):
        if only in {None, site}:
            sites.append(_foreseen(job, site, list(those), beliefs, now))
    known = {at.site for at in sites}
    if only is None:
        sites += _without_slots(job, known, beliefs, now)
    elif only not in known:
        there = _without_slots(job, known, beliefs, now, only)
        sites += there or [AtSite(only, 0, 0, (_no_slot_reason(job, only, beliefs, now),))]
    good = tuple(at.site for at in sites if at.matching)
    where = f"at {only}" if only else "anywhere"
    return Answer(
        job=job,
        verdict=f"all data is at {listed(good)}" if good else f"not all data is {where} with slots now",
        matches_at=good,
        could_run=bool(good),
        sites=tuple(sites),
        way_out=None if good else _soonest(sites),
    )


def funnel(job: Job, groups: Sequence[SlotGroup], now: datetime) -> str:
    """How many slots are left after each cause, such as ``12 slots → 8 with the data → 0 with 16 cores``."""
    left = list(groups)
    parts = [count(sum(group.slots for group in left), "slot")]
    for cause in Cause:
        kept = [group for group in left if cause not in _causes(group)]
        cut = len(kept) < len(left)
        left = kept
        if cut or (cause is Cause.DATA and job.names_data):
            parts.append(f"{sum(group.slots for group in left)} {_funnel_word(cause, job, now)}")
    return " → ".join(parts)


def _funnel_word(cause: Cause, job: Job, now: datetime) -> str:
    match cause:
        case Cause.MISSED:
            return "where it has not missed its data"
        case Cause.DATA:
            return "with the data" if _insists_on_data(job, now) else "where its data lets it run"
        case Cause.CORES | Cause.MEMORY | Cause.DISK | Cause.GPUS:
            return f"with {_amount(cause, job)}"
        case Cause.PLATFORM:
            return "of its platform"
        case Cause.PATH:
            return "where it knows a path to its data"
        case Cause.REQUIREMENT:
            return "that meet its requirements"
        case Cause.START:
            return "whose START takes it"
        case _:
            return "free now"


def _insists_on_data(job: Job, now: datetime) -> bool:
    return not job.released and (job.any_after is None or unix(now) < job.any_after)


# --- one site ---------------------------------------------------------------------------------------------


def _by_site(groups: Sequence[SlotGroup]) -> Iterable[tuple[tuple[str, Site], Iterable[SlotGroup]]]:
    """Group slots by their pool and site, the pool of the job first."""

    def place(group: SlotGroup) -> tuple[str, Site]:
        return group.pool, group.site

    return groupby(sorted(groups, key=place), key=place)


def _at_site(
    job: Job, site: Site, pool: str, groups: Sequence[SlotGroup], beliefs: Beliefs | None, now: datetime
) -> AtSite:
    matching = sum(group.slots for group in groups if group.free)
    reasons = tuple(_reasons(job, site, [g for g in groups if not g.free], beliefs, now))
    ways = [_way_out(job, group, reasons, now) for group in groups if not group.free]
    best = min((way for way in ways if way), key=lambda way: way.cost, default=None)
    missing = [one for reason in reasons for one in reason.missing]
    return AtSite(
        site,
        sum(g.slots for g in groups),
        matching,
        reasons,
        None if matching else best,
        dataset_counts(job, missing) if missing else None,
        beliefs.held.get(site) if beliefs and job.names_data else None,
        pool,
    )


def _foreseen(
    job: Job, site: Site, groups: Sequence[SlotGroup], beliefs: Beliefs | None, now: datetime
) -> AtSite:
    slots = sum(group.slots for group in groups)
    without = [group for group in groups if not all(told.counts for told in group.told.values())]
    if not without and not job.refused:
        return AtSite(site, slots, slots)
    missing = missing_at(job, site, without or groups, beliefs, now)
    coming = all(one.lack is Lack.NOT_ASKED and one.state == "AVAILABLE" for one in missing)
    hydrated = all(group.generation is not None for group in without)
    text = data_text(job, missing, now)
    reason = Reason(Cause.DATA, True, sum(group.slots for group in without), text, (), missing)
    way = None if coming else _data_way(job, (reason,), now)
    matching = slots if coming and hydrated else slots - reason.slots
    held = beliefs.held.get(site) if beliefs else None
    return AtSite(site, slots, matching, (reason,), way, dataset_counts(job, missing), held)


def _without_slots(
    job: Job, known: AbstractSet[Site], beliefs: Beliefs | None, now: datetime, only: Site | None = None
) -> list[AtSite]:
    """Sites that hold some of the data and have no slot in the pool."""
    if beliefs is None or not job.datasets:
        return []
    return [
        AtSite(site, 0, 0, (_no_slot_reason(job, site, beliefs, now),))
        for site, facts in beliefs.snapshot.sites.items()
        if site not in known and only in {None, site} and any(did in facts.facts for did in job.datasets)
    ]


def _no_slot_reason(job: Job, site: Site, beliefs: Beliefs | None, now: datetime) -> Reason:
    facts = beliefs.snapshot.sites.get(site) if beliefs else None
    here = {did: facts.facts[did] for did in job.datasets if facts and did in facts.facts}
    text = "no slot of this site is in the pool"
    if here:
        text += (
            f"; it has {some([f'{did} {fact.state}{share(fact.fraction)}' for did, fact in here.items()])}"
        )
    if job.datasets and clause_holds(
        job.datasets,
        {did: str(fact.state) for did, fact in here.items()},
        {did: unix(fact.as_of) for did, fact in here.items()},
        None,
        now=unix(now),
        max_age=job.max_age,
    ):
        text += ": all its data, so a glidein there would do"
    return Reason(Cause.SLOTS, False, 0, text)


def _reasons(
    job: Job, site: Site, groups: Sequence[SlotGroup], beliefs: Beliefs | None, now: datetime
) -> Iterable[Reason]:
    for cause in Cause:
        hit = [group for group in groups if cause in _causes(group)]
        if not hit:
            continue
        failing = unique(clause.text for group in hit for clause, found in _failing(group) if found is cause)
        missing = missing_at(job, site, hit, beliefs, now) if cause is Cause.DATA else ()
        if missing:
            text = data_text(job, missing, now)
        elif cause is Cause.MISSED:
            text = _missed_text(job, site, now)
        else:
            text = _text(cause, job, hit, failing)
        yield Reason(
            cause, cause is Cause.DATA, sum(group.slots for group in hit), text, tuple(failing), missing
        )


def _failing(group: SlotGroup) -> list[tuple[Clause, Cause]]:
    """Each clause that does not hold, with its cause; BUSY when it would hold if nothing were in use."""
    found = [(clause, _cause_of(clause, Cause.REQUIREMENT)) for clause in group.job if not clause.holds]
    found += [(clause, _cause_of(clause, Cause.START)) for clause in group.slot if not clause.holds]
    return found


def _cause_of(clause: Clause, default: Cause) -> Cause:
    if clause.empty == "true":
        return Cause.BUSY
    words = {word.lower() for word in re.findall(r"[A-Za-z_]\w*", _unquoted(clause.text))}
    if words & {HERE.lower(), "datasetstates", "availabledatasets"}:
        return Cause.DATA
    if SITES_ATTRIBUTE.lower() in words:
        return Cause.MISSED
    if PATHS_ATTRIBUTE.lower() in words:
        return Cause.PATH
    kinds = {cause for cause, known in _KINDS.items() if words & known}
    return kinds.pop() if len(kinds) == 1 and words <= _PLAIN else default


_KINDS: Mapping[Cause, AbstractSet[str]] = {
    Cause.CORES: {"cpus", "requestcpus"},
    Cause.MEMORY: {"memory", "requestmemory"},
    Cause.DISK: {"disk", "requestdisk"},
    Cause.GPUS: {"gpus", "requestgpus"},
    Cause.PLATFORM: {"arch", "opsys", "hasfiletransfer", "filesystemdomain"},
}
_PLAIN = frozenset().union(*_KINDS.values()) | {
    *("my", "target", "is", "isnt", "undefined", "true", "false"),
    *("versionge", "split", "condorversion", "ifthenelse", "sum", "evalineachcontext", "member"),
    *("mappingmethod", "requestedcatalogs", "requestedcatalogids", "catalogs", "catalogid", "catalogsize"),
}
"""The words of clauses that condor_submit and condor_startd write; another makes a clause somebody's own."""


def _causes(group: SlotGroup) -> set[Cause]:
    if group.free:
        return set()
    found = {cause for _, cause in _failing(group)}
    if group.matches:  # and not free
        found.add(Cause.BUSY)
    if found & _RESOURCE.keys():  # too small a slot would not do when nothing of it is in use
        found.discard(Cause.BUSY)
    return found or {Cause.REQUIREMENT}  # the whole does not hold though its parts do: too deep to evaluate


def _text(cause: Cause, job: Job, groups: Sequence[SlotGroup], failing: Sequence[str]) -> str:
    shown = some([f"`{shortened(text)}`" for text in failing])
    match cause:
        case Cause.CORES | Cause.MEMORY | Cause.DISK | Cause.GPUS if _RESOURCE[cause] not in job.requests:
            most = _largest(cause, groups)
            return f"what it asks for depends on the slot, and is more than the {most} of the largest there"
        case Cause.CORES | Cause.MEMORY | Cause.DISK | Cause.GPUS:
            return f"it asks for {_amount(cause, job)}; the largest slot there has {_largest(cause, groups)}"
        case Cause.BUSY:
            return f"busy: {_in_use(job, groups)}"
        case Cause.PLATFORM:
            return f"the slots are of another platform: {shown} does not hold"
        case Cause.PATH:
            return "whoever submitted it knew no path to its data there ([[storage]] of that configuration)"
        case Cause.START:
            return f"the slots refuse the job: {shown} does not hold in their START or limits"
        case _:
            if not failing:
                return "its requirements do not hold as a whole, though each part does: too deep to evaluate?"
            undefined = all(
                clause.value == "undefined"
                for group in groups
                for clause in group.job
                if clause.text in failing and not clause.holds
            )
            why = ", the slots do not say" if undefined else ""
            return f"its own requirement {shown} does not hold{why}"


def _missed_text(job: Job, site: Site, now: datetime) -> str:
    """Return what the job could not read at *site*, when, and until when it keeps away."""
    there = [miss for miss in job.missed if miss.site == site]
    if there:
        last = there[-1].when
        dids = unique(miss.did for miss in there if miss.when == last)
        text = f"the job could not read {some(dids)} there {_ago(last, now)}, though its slot had it listed"
    else:
        text = f"its last run there could not read its data (it ended with status {MISSED})"
    if job.missed_until is not None and job.missed_until > unix(now) and site in job.missed_sites:
        text += f"; it keeps away until {clock(job.missed_until, now)}"
    return f"{text}; its stderr says more"


def _ago(when: datetime, now: datetime) -> str:
    return f"{span((now - when).total_seconds())} ago"


def _in_use(job: Job, groups: Sequence[SlotGroup]) -> str:
    parts = []
    for cause, name in _RESOURCE.items():
        asked = job.requests.get(name)
        free = max((group.most.get(name, 0) for group in groups), default=0)
        if asked is not None and free < asked and any(name in group.most for group in groups):
            total = max(group.most.get(f"TotalSlot{name}", 0) for group in groups)
            parts.append(
                f"{_unit(cause, free)} free of {_unit(cause, total)}, it asks for {_amount(cause, job)}"
            )
    return "; ".join(parts) or "other jobs have these slots"


_RESOURCE = {Cause.CORES: "Cpus", Cause.MEMORY: "Memory", Cause.DISK: "Disk", Cause.GPUS: "GPUs"}


def _amount(cause: Cause, job: Job) -> str:
    asked = job.requests.get(_RESOURCE[cause])
    return f"the {cause} it asks for" if asked is None else _unit(cause, asked)


def _largest(cause: Cause, groups: Sequence[SlotGroup]) -> str:
    return _unit(cause, _capacity(cause, groups))


def _capacity(cause: Cause, groups: Sequence[SlotGroup]) -> float:
    name = _RESOURCE[cause]
    return max(max(g.most.get(f"TotalSlot{name}", 0), g.most.get(name, 0)) for g in groups)


def _unit(cause: Cause, amount: float) -> str:
    match cause:
        case Cause.MEMORY:
            return f"{amount:.0f} MiB of memory" if amount < 10_240 else f"{amount / 1024:.0f} GiB of memory"
        case Cause.DISK:
            return (
                f"{amount / 1024:.0f} MiB of disk" if amount < 2**24 else f"{amount / 2**20:.0f} GiB of disk"
            )
        case Cause.GPUS:
            return count(round(amount), "GPU")
        case _:
            return count(round(amount), "core")


# --- ways out ---------------------------------------------------------------------------------------------


def _soonest(sites: Sequence[AtSite]) -> str | None:
    """The cheapest change, and all sites that it would open."""
    best = min((at.way_out for at in sites if at.way_out), key=lambda way: way.cost, default=None)
    if best is None:
        return None
    opened = [at.where for at in sites if at.way_out == best]
    return f"{best.text} (then it matches at {some(opened)})"


def _way_out(job: Job, group: SlotGroup, reasons: Sequence[Reason], now: datetime) -> WayOut | None:
    """What would let the job match the slots of *group*: all their causes cured, each the cheapest way."""
    ways = [_cure(cause, job, group, reasons, now) for cause in sorted(_causes(group), key=list(Cause).index)]
    cost = sum(way.cost for way in ways)
    return WayOut(cost, " and ".join(way.text for way in sorted(ways, key=lambda way: -way.cost)))


def _cure(cause: Cause, job: Job, group: SlotGroup, reasons: Sequence[Reason], now: datetime) -> WayOut:
    match cause:
        case Cause.BUSY:
            return WayOut(1, "a slot becomes free")
        case Cause.DATA:
            return _data_way(job, [reason for reason in reasons if reason.cause is cause], now)
        case Cause.MISSED:
            return _missed_way(job, now)
        case Cause.CORES | Cause.MEMORY | Cause.DISK | Cause.GPUS:
            return WayOut(4, f"ask for {_largest(cause, [group])} or less")
        case Cause.PATH:
            return WayOut(7, "submit it again with a [[storage]] for the site")
        case Cause.REQUIREMENT:
            return WayOut(7, "change the job's own requirements (condor_qedit, or submit again)")
        case Cause.START:
            return WayOut(8, "the site's operator changes START")
        case _:
            return WayOut(9, "build the job for that platform")


def _missed_way(job: Job, now: datetime) -> WayOut:
    if job.missed_until is not None and job.missed_until > unix(now):
        return WayOut(3, f"the job tries the site again, in {span(job.missed_until - unix(now))}")
    return WayOut(7, "the site's operator sees why the data cannot be read there")


def _data_way(job: Job, reasons: Sequence[Reason], now: datetime) -> WayOut:
    missing = [one for reason in reasons for one in reason.missing]
    ways = []
    if job.any_after is not None and job.any_after > unix(now):
        left = job.any_after - unix(now)
        ways.append(WayOut(2 if left <= 3600 else 3, f"the wait ends in {span(left)}"))
    if missing:
        ways += _cures(missing)
    releasable = job.transformed and not (job.released or job.opens_paths)
    if job.may_release and releasable and all(one.is_there for one in missing):
        cluster = job.name.partition(".")[0]
        text = f"hydrator release 'ClusterId == {cluster}' lets it run anywhere, with its data or without"
        ways.append(WayOut(6, text))
    best = min(ways, key=lambda way: way.cost, default=None)
    if best is None:
        return _by_somebody(missing)
    equal = [way.text for way in ways if way.cost == best.cost]
    return WayOut(best.cost, " or ".join(equal))


def _by_somebody(missing: Sequence[Missing]) -> WayOut:
    """Return what a person must do, by the first of *missing* that no time cures."""
    first = next((one for one in missing if _arrival(one) is None), None)
    match first.lack if first else None:
        case Lack.NOWHERE | Lack.REFUSED | Lack.PRIVATE | Lack.CLASH if first:
            name = f"with {first.near[0]} instead of {first.did}" if first.near else "with another name"
            if first.lack is Lack.PRIVATE:
                name = "by `hydrator submit`"
            return WayOut(9, f"submit it again {name}")
        case _ if first and first.state == DatasetState.NEARLINE:
            return WayOut(10, "the data is brought from tape: somebody makes a rule")
        case _ if first and first.state == DatasetState.STUCK:
            return WayOut(10, "the data comes there: the owner of the stuck rule acts")
        case _:
            return WayOut(10, "the data comes there: somebody makes a rule")


def _cures(missing: Sequence[Missing]) -> list[WayOut]:
    """How all of *missing* may come to count, where that can be said."""
    each = [_arrival(one) for one in missing]
    if any(way is None for way in each):
        return []
    known = [way for way in each if way is not None]
    return [WayOut(max(way.cost for way in known), some(unique(way.text for way in known), " and "))]


def _arrival(one: Missing) -> WayOut | None:
    """What makes a dataset count: time, a look at something, or a person; None: nothing we know of."""
    match one.lack:
        case Lack.STATE | Lack.NOT_YET | Lack.NOT_ASKED if one.state == DatasetState.AVAILABLE:
            return WayOut(1, f"the slots hear of {one.did} (a minute or two)")
        case Lack.STATE | Lack.NOT_YET | Lack.NOT_ASKED if one.state == DatasetState.STAGING:
            how = f"; {one.because}" if one.because else ""
            return WayOut(2, f"{one.did} arrives (STAGING{share(one.fraction)}{how})")
        case Lack.NOT_ASKED if one.state is None:
            return WayOut(3, f"the daemon looks for {one.did} (a minute or two)")
        case Lack.STATE | Lack.NOT_YET | Lack.NOT_ASKED if one.state == DatasetState.UNKNOWN:
            return WayOut(5, f"fresh facts about {one.did}")
        case Lack.STALE | Lack.NO_AGE | Lack.UNSEEN:
            return WayOut(5, f"fresh facts about {one.did}")
        case Lack.UNHYDRATED:
            return WayOut(8, "the hook is installed there, if the data is")
        case Lack.CASE:
            return WayOut(4, f"submit again with the catalogue's spelling of {one.did}")
        case Lack.LEFT_OUT:
            return WayOut(8, "the operator makes room (budget.line_bytes)")
        case _:
            return None


# --- the job as a whole -----------------------------------------------------------------------------------


def _verdict(
    job: Job, matches: Sequence[str], sites: Sequence[AtSite], blocked: str | None, now: datetime
) -> str:
    since = finite(job.words.get("EnteredCurrentStatus"))
    lasting = f" for {span(unix(now) - since)}" if since else ""
    match job.status:
        case JobStatus.RUNNING | JobStatus.TRANSFERRING:
            return f"it runs{lasting} at {job.words.get('RemoteHost', 'a slot')}: nothing holds it back"
        case JobStatus.HELD:
            reason = str(job.words.get("HoldReason", "no reason given")).rstrip(".")
            return f"it is held{lasting}: {reason}. condor_release {job.name} lets it try again"
        case JobStatus.SUSPENDED:
            return f"it is suspended{lasting} at {job.words.get('RemoteHost', 'a slot')}"
        case JobStatus.REMOVED:
            return "it is being removed"
        case JobStatus.COMPLETED:
            return "it has completed and is about to leave the queue"
        case _ if blocked and matches:
            return f"{blocked}; but for that it would match at {listed(matches)}"
        case _ if blocked:
            return f"{blocked}; and it would match nowhere now"
        case _ if matches:
            return (
                f"it would match at {listed(matches)}: it waits for its turn in the next negotiation cycles"
            )
        case _ if not any(at.slots for at in sites):
            return "it cannot match: there are no slots in the pool"
        case _:
            return "it would match nowhere now"


_RECENT_SECONDS = 600
"""What the negotiator said longer ago is history: it considers jobs each minute or so."""
_NO_MATCH = "no match found"


def _blocked(job: Job, matches: Sequence[str], now: datetime) -> str | None:
    """Return why an idle job lately got no slot though slots match; None where nothing says so."""
    if job.status is not JobStatus.IDLE:
        return None
    if job.most_uploads and job.uploads >= job.most_uploads:
        return (
            f"its schedd asks for no slots for its user: {count(job.uploads, 'job')} of the user send their"
            f" input files, or wait to, and {job.most_uploads} may (MAX_CONCURRENT_UPLOADS_PER_USER)"
        )
    reason = str(job.words.get("LastRejMatchReason") or "").partition(" |")[0].strip()
    when = finite(job.words.get("LastRejMatchTime"))
    if not reason or when is None or abs(unix(now) - when) > _RECENT_SECONDS or reason == _NO_MATCH:
        return None  # the schedd may have been told after our clock was read, or by a clock that is ahead
    said = f"the negotiator said so {span(max(0, unix(now) - when))} ago"
    if found := re.match(r"concurrency limit (.{0,500}?)\s*reached", reason):
        names = found[1].strip() or job.limits
        return f"it waits for a concurrency limit{f' ({names})' if names else ''}: {said}"
    if not matches:
        return None
    return f"it waits for its turn ({reason}): {said}"


def _misses_note(job: Job, now: datetime) -> str:
    """Return what the job could not read so far, the last first; empty where it read all."""
    if not job.missed or job.status not in {JobStatus.IDLE, JobStatus.HELD}:
        return ""
    each = [f"{miss.did} at {miss.site} {_ago(miss.when, now)}" for miss in reversed(job.missed)]
    return f"it ran and could not read {some(unique(each))}"


def _notes(job: Job, now: datetime) -> tuple[str, ...]:
    notes = []
    if not job.names_data:
        notes.append("it names no datasets (RequiredDatasets): nothing of ours holds it back")
    elif not job.transformed:
        notes.append(
            "the schedd's transform has not been here (no DataLocalityTransformed): it was not installed when"
            " the job was submitted; the job keeps the expressions it has, and none of ours holds it back"
        )
    elif job.released:
        notes.append("it was released: its data no longer decides where it runs")
    if missed := _misses_note(job, now):
        notes.append(missed)
    said = job.words.get("LastRejMatchReason")
    when = finite(job.words.get("LastRejMatchTime"))
    if said and when and job.status is JobStatus.IDLE:
        notes.append(f"the negotiator said {span(unix(now) - when)} ago: {str(said).strip()}")
    return tuple(notes)


def _wait(job: Job, now: datetime) -> str | None:
    """When the job stops insisting on its data, in words."""
    if not (job.transformed and job.names_data) or job.released:
        return None
    if job.any_after is None:
        return "it runs only where all its data is (DataLocality = require)"
    at = f"{nearest_moment(job.any_after):%Y-%m-%d %H:%M} UTC"
    left = job.any_after - unix(now)
    if left > 0:
        return f"it insists on its data until {at} (for {span(left)}), then it may run anywhere"
    return f"it may run anywhere since {at} ({span(-left)} ago)"


def _unquoted(text: str) -> str:
    # a string that nothing ends is none: without that, each of its quotes would be tried again
    return re.sub(r'"(?:\\.|[^"\\])*(?:"|\\?\Z)', '""', text)
