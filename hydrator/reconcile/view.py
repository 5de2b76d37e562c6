"""View of a cycle: the one document that the state file, metrics, log, API, pages and commands show. Pure.

A cycle makes it once (:func:`build_view`). It has counts, problems and one entry for each site; the entry of
a dataset is made for the reader who asks for it (:func:`build_datasets`), because there may be 50,000 of them
at many sites. Times are Unix seconds, so an entry is the same as an object and as JSON.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from hydrator.domain.ads import contract
from hydrator.domain.model import (
    DaemonKnowledge,
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Origin,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
    to_unix,
)
from hydrator.domain.provenance import provenance_to_row
from hydrator.domain.text import matches_any
from hydrator.domain.units import ByDid, ByName, ByPublisher, ByState, Bytes, Count, Seconds, Share, UnixTime
from hydrator.reconcile.state import DatasetChange

from .demand import KEEP_DEMAND
from .snapshot.merge import CatalogueMemory
from .snapshot.removal_guard import HeldLoss, HoldCause

if TYPE_CHECKING:  # a command that only reads the document needs no reconciler
    from .result import CycleReport

CYCLE_REPORT: Final = "cycle"
"""The name of the document in the state, for ``Store.load_report``."""
MAX_EXAMPLES: Final = 20
"""Largest number of datasets that an entry names for one held change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """A catalogue or a publisher.

    Attributes:
        name: its name.
        error: reason of its failure in the cycle; null: it works.
        failing_since: first cycle of the present failure.
        last_error: its newest error, also after the end of the failure.
        last_error_at: time of the newest error.
    """

    kind: ClassVar[str]
    name: str
    error: str | None = None
    failing_since: UnixTime | None = None
    last_error: str | None = None
    last_error_at: UnixTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueView(PartView):
    """The last answer of one catalogue.

    Attributes:
        read_at: time of its last complete answer.
        pending_since: begin of its poll that still runs.
        poll_seconds: duration of its poll; null: no poll ended in the cycle.
        sites: sites that it covers.
        datasets: datasets recorded from it.
        unmapped: storage elements without a site.
    """

    kind: ClassVar[str] = "catalogue"
    read_at: UnixTime | None = None
    pending_since: UnixTime | None = None
    poll_seconds: Seconds | None = None
    sites: tuple[Site, ...] = ()
    datasets: Count = 0
    unmapped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherView(PartView):
    """The result of one publisher.

    Attributes:
        ads: ads read back; after a failure those of the last time.
        not_read_back: sites whose ad was sent but not read back.
        rejected: ads read back there and not adopted, with the reason.
        rival: evidence that another daemon publishes there.
    """

    kind: ClassVar[str] = "publisher"
    ads: Count = 0
    not_read_back: tuple[Site, ...] = ()
    rejected: ByName[str]
    rival: str | None = None


@dataclass(frozen=True, slots=True)
class ActionView:
    """One action of a plan.

    Attributes:
        publisher: target of the action; null for held changes.
        site: site of the ad.
        action: publish, refresh, keep, withdraw, noop or held.
        why: reason; empty for routine actions.
        generation: generation of the ad; null without an ad.
        as_of: last complete read of the ad's site.
    """

    publisher: str | None
    site: Site
    action: str
    why: str
    generation: Count | None
    as_of: UnixTime | None


@dataclass(frozen=True, slots=True)
class HeldLossView:
    """Datasets that are missing at a site, and that the removal guard still publishes there.

    Attributes:
        since: first poll that showed the loss.
        cause: site or all: too many datasets would vanish; unnamed: no catalogue lists the site; clock: the
            clock was set back during the hold.
        datasets: datasets that the change would remove.
        listed_count: datasets listed now.
        polls: polls that confirmed the loss.
        polls_needed: polls that release it; null: only `hydrator approve` releases it.
        examples: some of the datasets.
    """

    since: UnixTime
    cause: HoldCause
    datasets: Count
    listed_count: Count
    polls: Count
    polls_needed: Count | None
    examples: tuple[Did, ...]


@dataclass(frozen=True, slots=True)
class LeftOutView:
    """Datasets of queued jobs, pins and patterns that the size budget left out of a site's ad.

    Attributes:
        datasets: number of these datasets.
        jobs: jobs that name them; a pin or a pattern counts as one.
        example: one of these datasets.
    """

    datasets: Count
    jobs: Count
    example: Did


@dataclass(frozen=True, slots=True)
class ReadBackView:
    """A site's ad as one publisher shows it.

    Attributes:
        generation: generation of the ad there.
        as_of: age of the facts in the ad there.
    """

    generation: Count
    as_of: UnixTime


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteView:
    """One site.

    Attributes:
        site: its name.
        as_of: time of the last complete read of the site.
        generation: a number that grows when the content of the ad changes; null without an ad.
        ad_bytes: size of the content of the ad.
        truncated: the size budget left datasets out of the ad.
        states: demanded datasets by state; null: no catalogue lists the site.
        oldest_at: time of the oldest fact.
        held: reason why the daemon does not change the ad; null: there is none.
        withheld: the daemon does not replace the published ad yet, since its own knowledge is not complete.
        loss: the datasets that the removal guard holds there.
        left_out: the datasets for which the ad has no room.
        backlog: idle jobs whose set is whole there; null: the daemon does not know them.
        open_until: time until which the openings there are valid; null: there are none.
        readers: running jobs that started with a read from there.
        read_back: publishers that show the ad; those that failed: what they showed last.
        published_at: last publication of the ad over HTTP; null in the output of commands.
        changes: last changes of the ad, newest first; null for the list of all sites.
    """

    site: Site
    as_of: UnixTime | None = None
    generation: Count | None = None
    ad_bytes: Count | None = None
    truncated: bool | None = None
    states: ByState[Count] | None = None
    oldest_at: UnixTime | None = None
    held: str | None = None
    withheld: bool = False
    loss: HeldLossView | None = None
    left_out: LeftOutView | None = None
    backlog: Count | None = None
    open_until: UnixTime | None = None
    readers: Count | None = None
    read_back: ByPublisher[ReadBackView]
    published_at: UnixTime | None = None
    changes: tuple[DatasetChange, ...] | None = None


@dataclass(frozen=True, slots=True)
class DemandView:
    """The demand of all jobs, pins and patterns.

    Attributes:
        datasets: demanded datasets.
        jobs: jobs that name datasets.
        jobs_with_site: those whose datasets are all complete at one site.
        by_origin: demanded datasets by origin: pin, job or pattern.
        kept_datasets: further datasets, which no job names any more; the daemon still publishes them.
        kept_until: time until which it does; null: there are none.
        refused: names in jobs that are not DIDs, with the reason.
        wrong_keys: each `DataLocalityKey` of jobs for whose list of datasets it does not stand alone, with
            their number.
        unseen: datasets that some catalogue gave no answer about, with the reason.
        clashes: datasets that differ in letter case only; not advertised.
        misspelt: demanded datasets that no catalogue has, with the spellings that a catalogue has.
        absent: datasets that no catalogue has at any site; check the spelling.
    """

    datasets: Count
    jobs: Count
    jobs_with_site: Count
    by_origin: ByName[Count]
    kept_datasets: Count
    kept_until: UnixTime | None
    refused: ByName[str]
    wrong_keys: ByName[Count]
    unseen: ByDid[str]
    clashes: tuple[tuple[Did, ...], ...]
    misspelt: ByDid[tuple[Did, ...]]
    absent: tuple[Did, ...]


@dataclass(frozen=True, slots=True)
class PacingView:
    """The pacing of reads from elsewhere.

    Attributes:
        none: reason why nothing is open; null if the daemon paces reads.
        open_until: time until which jobs use the openings.
        sets: sets of datasets, or lanes of sets, that are open at some site.
        backlog: idle jobs whose set is whole at a site; those of several sites count at each.
    """

    none: str | None
    open_until: UnixTime | None
    sets: Count
    backlog: Count


@dataclass(frozen=True, slots=True)
class CycleView:
    """One cycle.

    Attributes:
        at: start of the cycle.
        complete: no part of the cycle failed.
        failures: one sentence for each part that failed.
        save_error: reason why the state is not on disk; null: it is.
        invalid_commands: commands of the operator that cannot be read.
        catalogues: each configured catalogue.
        publishers: result of each publisher.
        demand: demanded datasets.
        pacing: pacing of reads from elsewhere.
        sites: each known site.
        plan: actions taken, as in `hydrator plan`.
    """

    at: UnixTime
    complete: bool
    failures: tuple[str, ...]
    save_error: str | None
    invalid_commands: tuple[str, ...]
    catalogues: tuple[CatalogueView, ...]
    publishers: tuple[PublisherView, ...]
    demand: DemandView
    pacing: PacingView
    sites: tuple[SiteView, ...]
    plan: tuple[ActionView, ...]

    @property
    def parts(self) -> tuple[PartView, ...]:
        """Return the catalogues and the publishers."""
        return (*self.catalogues, *self.publishers)


@dataclass(frozen=True, slots=True)
class FactView:
    """State of a dataset at one site.

    Attributes:
        site: the site.
        state: the state there.
        fraction: share of the bytes on disk, 0 to 1; null: unknown, or all if the state is AVAILABLE.
        as_of: time of this fact.
        provenance: the source of the state; only the fields that the catalogue gives.
    """

    site: Site
    state: DatasetState
    fraction: Share | None
    as_of: UnixTime
    provenance: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PathView:
    """The path of a dataset for jobs at one site.

    Attributes:
        site: the site.
        path: the path of the dataset, which is one file or folder.
    """

    site: Site
    path: str


@dataclass(frozen=True, slots=True)
class DatasetView:
    """One dataset and the sites that have it.

    Attributes:
        did: its name, scope:name.
        demanded: a job, pin or pattern names it, or a job did until lately; else the daemon does not poll it,
            and its sites are unknown.
        jobs: jobs that name it.
        kept_until: end of its demand if no job names it any more; null: it has no end, or there is none.
        bytes: its size; null: unknown.
        unseen: reason why no catalogue answered for this dataset; the dataset may exist.
        clashes_with: datasets that differ from it in letter case only.
        misspelt: no catalogue has this name, but one has those in `clashes_with`.
        private: a pattern of `[publish] never` matches it: the daemon does not poll or publish it.
        left_out_at: sites whose ads leave out the dataset because of the size budget.
        similar_names: similar names that exist; only if the query names this dataset and no site has it.
        sites: the sites that have it.
        paths: where jobs would find it at each site, by the daemon's [[storage]]; only over HTTP, and if the
            query names it.
    """

    did: Did
    demanded: bool
    jobs: Count
    kept_until: UnixTime | None
    bytes: Bytes | None
    unseen: str | None
    clashes_with: tuple[Did, ...]
    misspelt: bool
    private: bool
    left_out_at: tuple[Site, ...]
    similar_names: tuple[Did, ...]
    sites: tuple[FactView, ...]
    paths: tuple[PathView, ...] = ()


def build_view(report: "CycleReport", previous: CycleView | None, *, confirming_polls: int) -> CycleView:
    """Build the document of the cycle of *report*; *previous* is that of the cycle before."""
    at = to_unix(report.started_at)
    before = {(part.kind, part.name): part for part in previous.parts} if previous else {}
    shown = _view_read_back(report, previous)
    return CycleView(
        at,
        report.is_complete,
        report.failures,
        report.save_error,
        tuple(report.commands.problems),
        tuple(_continue_error(one, before, at) for one in _view_catalogues(report)),
        tuple(_continue_error(one, before, at) for one in _view_publishers(report, shown)),
        _view_demand(report),
        _view_pacing(report),
        tuple(_view_sites(report, confirming_polls, shown)),
        tuple(_view_plan(report)),
    )


_Part = TypeVar("_Part", bound=PartView)


def _continue_error(part: _Part, before: Mapping[tuple[str, str], PartView], at: UnixTime) -> _Part:
    """Return *part* with the times of its error, which may have begun in an earlier cycle."""
    last = before.get((part.kind, part.name))
    if part.error is None:
        if last is None or last.last_error is None:
            return part
        return replace(part, last_error=last.last_error, last_error_at=last.last_error_at)
    since = (last.failing_since if last else None) or at
    return replace(part, failing_since=since, last_error=part.error, last_error_at=at)


def _view_catalogues(report: "CycleReport") -> Iterator[CatalogueView]:
    for name, memory in sorted(report.evaluation.state.memories.items()):
        duration, pending_since = report.poll_durations.get(name), report.pending_since.get(name)
        yield CatalogueView(
            name=name,
            error=report.catalogue_errors[name],
            read_at=to_unix(memory.answered_at) if memory.answered_at else None,
            pending_since=to_unix(pending_since) if pending_since else None,
            poll_seconds=duration.total_seconds() if duration is not None else None,
            sites=tuple(sorted(memory.sites)),
            datasets=len(memory.records),
            unmapped=tuple(sorted(memory.unmapped_storages)),
        )


_ReadBack = Mapping[Site, ByPublisher[ReadBackView]]


def _view_read_back(report: "CycleReport", previous: CycleView | None) -> _ReadBack:
    """Return, by site, what each publisher shows; for one that failed, what it showed last."""
    shown: defaultdict[Site, ByPublisher[ReadBackView]] = defaultdict(dict)
    failed = {result.publisher for result in report.results if result.error is not None}
    for site in previous.sites if previous else ():
        shown[site.site] = {name: ad for name, ad in site.read_back.items() if name in failed}
    for result in report.results:
        for name, ad in result.published.items():
            shown[name][result.publisher] = ReadBackView(ad.generation, to_unix(ad.as_of))
    return shown


def _view_publishers(report: "CycleReport", shown: _ReadBack) -> Iterator[PublisherView]:
    for result in report.results:
        yield PublisherView(
            name=result.publisher,
            error=result.error,
            ads=sum(result.publisher in ads for ads in shown.values()),
            not_read_back=result.unconfirmed_sites,
            rejected=dict(report.rejected.get(result.publisher, {})),
            rival=report.rivals.get(result.publisher),
        )


def _view_plan(report: "CycleReport") -> Iterator[ActionView]:
    """Yield the actions of each publisher, then the held changes, which have no publisher."""
    for result in report.results:
        for action in result.plan:
            yield _view_action(result.publisher, action.site, action.kind, action.reason, action.ad)
    for site, reason in report.held_reasons.items():
        yield _view_action(None, site, "held", reason, report.evaluation.ads.get(site))


def _view_action(publisher: str | None, site: Site, action: str, why: str, ad: SiteAd | None) -> ActionView:
    generation, as_of = (ad.generation, to_unix(ad.as_of)) if ad else (None, None)
    return ActionView(publisher, site, action, why, generation, as_of)


def _view_sites(report: "CycleReport", confirming_polls: int, shown: _ReadBack) -> Iterator[SiteView]:
    evaluation, paced = report.evaluation, report.evaluation.paced
    losses, made = evaluation.state.held_losses, paced.openings
    sites = evaluation.ads.keys() | evaluation.drafts.keys() | evaluation.snapshot.sites.keys()
    sites |= report.held_reasons.keys() | (made.openings.keys() if made else set())
    for site in sorted(sites):
        ad, known = evaluation.ads.get(site), evaluation.snapshot.sites.get(site)
        draft = evaluation.drafts.get(site)
        as_of = known.as_of if known else ad.as_of if ad else None
        yield SiteView(
            site=site,
            as_of=to_unix(as_of) if as_of else None,
            generation=ad.generation if ad else None,
            ad_bytes=sum(len(f"{name} = {value}\n".encode()) for name, value in ad.content) if ad else None,
            truncated=(contract.TRUNCATED, "true") in ad.content if ad else None,
            states=_count_states(known) if known else None,
            oldest_at=_find_oldest(known) if known else None,
            held=report.held_reasons.get(site),
            withheld=site in evaluation.withheld_reasons,
            loss=_view_loss(losses[site], confirming_polls) if site in losses else None,
            left_out=_view_left_out(draft.omitted_entries) if draft else None,
            backlog=made.backlog.get(site, 0) if made else None,
            open_until=int(made.open_until) if made and site in made.openings else None,
            readers=paced.readers.get(site, 0) if made else None,
            read_back=shown.get(site, {}),
        )


def _view_loss(loss: HeldLoss, confirming_polls: int) -> HeldLossView:
    return HeldLossView(
        to_unix(loss.started_at),
        loss.cause,
        len(loss.missing_polls),
        loss.listed_count,
        loss.confirmations,
        confirming_polls if loss.can_be_confirmed else None,
        tuple(sorted(loss.missing_polls)[:MAX_EXAMPLES]),
    )


def _view_left_out(entries: Iterable[DemandEntry]) -> LeftOutView | None:
    demanded = [entry for entry in entries if not entry.is_kept]
    if not demanded:
        return None
    dids = {did for entry in demanded for did in entry.dids}
    return LeftOutView(len(dids), sum(entry.job_count or 1 for entry in demanded), demanded[0].dids[0])


def _count_states(known: SiteFacts) -> ByState[Count]:
    states = [fact.state for fact in known.facts.values()]
    counts = ((state.value, states.count(state)) for state in DatasetState)
    return {state: count for state, count in counts if count}


def _find_oldest(known: SiteFacts) -> UnixTime | None:
    """Return the time of the oldest fact of a site; None without facts."""
    times = {fact.as_of for fact in known.facts.values()}  # few, or only None
    return min((to_unix(at or known.as_of) for at in times), default=None)


def _view_demand(report: "CycleReport") -> DemandView:
    demand, snapshot = report.demand, report.evaluation.snapshot
    present = snapshot.present_dids
    unseen = find_unseen(demand, snapshot, report.evaluation.state.memories, present)
    misspelt = {did: names for did, names in snapshot.misspelt_dids.items() if did not in demand.kept_dids}
    explained = present.union(unseen, snapshot.misspelt_dids, *snapshot.case_collisions)
    return DemandView(
        len(demand.dids) - len(demand.kept_dids),
        sum(entry.job_count for entry in demand.entries),
        _count_jobs_with_site(demand, snapshot),
        {
            origin.name.lower(): len(
                {did for entry in demand.entries if entry.origin is origin for did in entry.dids}
            )
            for origin in Origin
        },
        len(demand.kept_dids),
        max(find_ends(demand).values(), default=None),
        dict(demand.rejected_texts),
        dict(demand.wrong_keys),
        unseen,
        snapshot.case_collisions,
        misspelt,
        tuple(sorted(demand.dids - demand.kept_dids - explained)),
    )


def _view_pacing(report: "CycleReport") -> PacingView:
    paced = report.evaluation.paced
    made = paced.openings
    names = {name for named in made.openings.values() for name in named} if made else set()
    return PacingView(
        paced.none_reason,
        int(made.open_until) if made else None,
        len(names),
        sum(made.backlog.values()) if made else 0,
    )


def _count_jobs_with_site(demand: Demand, snapshot: Snapshot) -> Count:
    """Count the jobs whose datasets are all complete at one site."""
    rest: Sequence[DemandEntry] = demand.entries
    for known in snapshot.sites.values():
        complete = {did for did, fact in known.facts.items() if fact.state is DatasetState.AVAILABLE}
        rest = [entry for entry in rest if not complete.issuperset(entry.dids)]
    return sum(entry.job_count for entry in demand.entries) - sum(entry.job_count for entry in rest)


def find_unseen(
    demand: Demand,
    snapshot: Snapshot,
    memories: Mapping[str, CatalogueMemory],
    present: AbstractSet[Did],
) -> dict[Did, str]:
    """Return the datasets that some catalogue gave no answer about, with the reason.

    A demanded dataset that is not *present* at any site is one of them until all catalogues have answered.
    """
    unseen = dict(snapshot.unseen_reasons)
    for did in sorted(demand.dids - present - unseen.keys()):
        pending = next((name for name, memory in sorted(memories.items()) if did not in memory.records), None)
        if pending is not None:
            unseen[did] = f"catalogue {pending} has not answered about this dataset yet"
        elif not memories:
            unseen[did] = "no catalogue was polled yet"
    return unseen


def find_ends(demand: Demand) -> dict[Did, UnixTime]:
    """Return the datasets that no job names any more, with the end of their demand."""
    ends: dict[Did, UnixTime] = {}
    for entry in demand.entries if demand.kept_dids else ():
        end = to_unix(entry.last_demanded_at + KEEP_DEMAND)
        for did in demand.kept_dids.intersection(entry.dids):
            ends[did] = max(end, ends.get(did, 0))
    return ends


def build_datasets(
    dids: Iterable[Did],
    knowledge: DaemonKnowledge,
    demand: Demand,
    unseen: Mapping[Did, str],
) -> list[DatasetView]:
    """Build the entries of *dids*; *unseen* are the datasets of :func:`find_unseen`."""
    snapshot, ends = knowledge.snapshot, find_ends(demand)
    clashes = {did: group for group in snapshot.case_collisions for did in group}
    clashes |= snapshot.misspelt_dids
    return [
        DatasetView(
            did,
            did in demand.dids,
            demand.job_counts.get(did, 0),
            ends.get(did),
            snapshot.bytes_total.get(did),
            unseen.get(did),
            tuple(other for other in clashes.get(did, ()) if other != did),
            did in snapshot.misspelt_dids,
            did not in demand.dids and matches_any(did, demand.never),
            tuple(sorted(site for site, omitted in knowledge.dids_without_room.items() if did in omitted)),
            tuple(knowledge.similar_names.get(did, ())),
            tuple(
                view_fact(site, known, did)
                for site, known in sorted(snapshot.sites.items())
                if did in known.facts
            ),
        )
        for did in dids
    ]


def view_fact(site: Site, known: SiteFacts, did: Did) -> FactView:
    """Return the entry of *did* at *site*, which has it."""
    fact = known.facts[did]
    source = provenance_to_row(fact.provenance)
    return FactView(site, fact.state, fact.fraction, to_unix(fact.as_of or known.as_of), source)
