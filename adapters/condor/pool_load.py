"""The snapshot of a pool: the queues of all schedds, and the slots of all sites; and what jobs need."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hydrator.domain.ads import contract
from hydrator.domain.ads.classad import list_literal, string_literal
from hydrator.domain.ads.dataset_sets import fits
from hydrator.domain.ads.openings import MAX_LANE
from hydrator.domain.errors import PoolError
from hydrator.domain.model import QueuedJobs, ScheddDemand, Site, Unseen, from_unix
from hydrator.domain.ports import (
    MAX_LOAD_AGE,
    Clock,
    ClusterJobs,
    DataNeed,
    IdleJobs,
    PoolSnapshot,
    Resources,
    RunningJobs,
    ScheddLoad,
    ScheddQueue,
    SlotAdVersion,
    SlotGroup,
    take_turns,
)
from hydrator.domain.untrusted import MAX_UNIX_SECONDS, valid_integer, valid_number

from .bindings.client import CondorClient
from .bindings.library import NOT_DYNAMIC_SLOT, RESOURCES, job_order
from .job_history import ReportBuffer
from .schedd_rounds import SiteRounds

SLOT_ATTRIBUTES = (
    *("Name", "State", "PartitionableSlot", contract.GENERATION),
    *RESOURCES,
    *(f"TotalSlot{name}" for name in RESOURCES),
)
USABLE_SLOT = (
    f"{NOT_DYNAMIC_SLOT} && Offline =!= true && Start =!= false && Draining =!= true && BackfillSlot =!= true"
    ' && State =!= "Owner" && State =!= "Drained" && State =!= "Backfill" && SlotBrokenReason is undefined'
)
"""Slots that take jobs. The collector evaluates START without a job, so a START that tests the job counts.

The START of a broken slot of 25.14 is a text, so it would count, too.
"""
MAX_SLOT_AGE = timedelta(seconds=750)
"""Two and a half times UPDATE_INTERVAL, 300 s by default: the startd of an older ad ended without a word.

A startd that is killed cannot withdraw its ads, and the collector keeps them for 15 min or longer.
"""
MAX_CLUSTER_JOBS = 10_000
"""Jobs of one cluster in one answer."""
_MAX_SLOT_NAMES = 1000
_MAX_AMOUNT = 10**15


class CondorPool(SiteRounds):
    """A ``PoolReader``: query the slots, and the queue of each schedd, within the client's time limit.

    ``last`` is the last snapshot; None before the first.

    Args:
        client, clock, site_attributes, make_client: see :class:`SiteRounds`.
        buffers: get the reports of jobs.
    """

    def __init__(
        self,
        client: CondorClient,
        clock: Clock,
        site_attributes: Sequence[str],
        make_client: Callable[[], CondorClient] | None = None,
        *,
        buffers: Sequence[ReportBuffer] = (),
    ) -> None:
        super().__init__(client, clock, site_attributes, make_client)
        self._buffers = buffers
        self._restored: Mapping[str, ScheddQueue] = {}
        self.last: PoolSnapshot | None = None

    def restore(self, queues: Mapping[str, ScheddQueue]) -> None:
        """See :class:`hydrator.domain.ports.PoolReader`."""
        self._restored = queues

    def read_snapshot(self, *, waits: bool = False) -> PoolSnapshot:
        """See :class:`hydrator.domain.ports.PoolReader`."""
        as_of = self._clock()
        ads: Sequence[Mapping[str, Any]] = ()
        failure = None
        usable = f"{USABLE_SLOT} && {seen_within(MAX_SLOT_AGE)}"
        try:
            ads = self._client.slots([*self._site_attributes, *SLOT_ATTRIBUTES], usable)
        except PoolError as error:
            failure = Unseen(str(error))
        slots = [(ad, self._find_site(ad)) for ad in ads]
        sites_by_slot = {str(ad["Name"]): site for ad, site in slots if site}
        known_slots = {None, *(ad["Name"] for ad in ads)}

        def query(client: CondorClient, schedd: str) -> ScheddQueue:
            queried_at = self._clock()
            answer = client.read_queue(schedd, self._site_attributes)
            sites = sites_by_slot
            if not known_slots.issuperset(row["slot"] for row in answer["running"]):
                # a glidein near its end takes no more jobs, but the jobs that run there need their data
                others = self._read_sites_by_slot(f"{NOT_DYNAMIC_SLOT} && ({usable}) =!= true", client)
                sites = {**others, **sites_by_slot}
            return _parse_queue(answer, queried_at, sites)

        answers = self.ask(query, waits=waits)
        new = {name: one for name, one in answers.items() if not isinstance(one, Unseen)}
        for buffer in self._buffers:
            buffer.add({name: one.reports for name, one in new.items()})
        old = self.last.queues if self.last else self._restored
        queues = {name: queue for name in answers if (queue := new.get(name) or old.get(name))}
        silent = {name: one.reason for name, one in answers.items() if isinstance(one, Unseen)}
        versions = tuple(SlotAdVersion(site, valid_integer(ad[contract.GENERATION])) for ad, site in slots)
        self.last = PoolSnapshot(as_of, queues, silent, failure or _group_slots(slots), versions)
        return self.last


class ScheddClusters(SiteRounds):
    """A query of the jobs of one cluster, at its schedd."""

    def read_cluster(self, cluster: int, schedd: str | None = None) -> Mapping[str, ClusterJobs | Unseen]:
        """Query all schedds, or only *schedd*; return those with jobs of *cluster*, and the silent ones.

        Raises:
            PoolError: the collector could not list the schedds.
        """
        as_of = self._clock()

        def query(client: CondorClient, name: str) -> Mapping[str, Any] | None:
            if schedd not in {None, name}:
                return None
            return client.read_cluster_jobs(name, cluster, self._site_attributes, MAX_CLUSTER_JOBS)

        answers = self.ask(query)
        found: dict[str, ClusterJobs | Unseen] = {}
        for name, answer in answers.items():
            if isinstance(answer, Unseen):
                if schedd in {None, name}:
                    found[name] = answer
            elif answer and (answer["idle"] or answer["running"] or answer["held_count"]):
                found[name] = self._parse(answer, as_of)
        return found

    def _parse(self, answer: Mapping[str, Any], as_of: datetime) -> ClusterJobs:
        idle = tuple(_parse_idle(row) for row in answer["idle"])
        slots = {str(row["slot"]) for row in answer["running"] if row["slot"]}
        running = _parse_running(answer["running"], self._find_sites_of_slots(slots))
        held_count = valid_integer(answer["held_count"]) or 0
        return ClusterJobs(as_of, ScheddLoad(idle, running), held_count, answer["is_complete"] is True)

    def _find_sites_of_slots(self, names: AbstractSet[str]) -> Mapping[str, Site]:
        """Return the sites of slots whose site the schedd did not record; none if the collector fails."""
        if not names:
            return {}
        listed = list_literal(map(string_literal, sorted(names)[:_MAX_SLOT_NAMES]))
        return self._read_sites_by_slot(f"member(Name, {listed})")


def seen_within(age: timedelta) -> str:
    """Return the constraint for ads that were updated within *age*, by the clock of the collector."""
    return f"(time() - LastHeardFrom > {round(age.total_seconds())}) =!= true"


def _group_slots(slots: Sequence[tuple[Mapping[str, Any], Site | None]]) -> tuple[SlotGroup, ...]:
    counts: Counter[tuple[Site, Resources, Resources, bool]] = Counter()
    for ad, site in slots:
        is_partitionable = ad["PartitionableSlot"] is True
        left = Resources(*(_amount(ad[name]) for name in RESOURCES))
        total = (
            Resources(*(_amount(ad[f"TotalSlot{name}"]) for name in RESOURCES)) if is_partitionable else left
        )
        is_free = is_partitionable or ad["State"] == "Unclaimed"
        free = Resources(*map(min, left, total)) if is_free else Resources(0.0)
        if site and total.cpus:
            counts[site, total, free, not is_partitionable] += 1
    return tuple(
        SlotGroup(site, total, free, count, is_static)
        for (site, total, free, is_static), count in sorted(counts.items())
    )


def _amount(value: object) -> float:
    number = valid_number(value)
    return min(float(number), _MAX_AMOUNT) if number is not None and number > 0 else 0.0


def _parse_idle(row: Mapping[str, Any]) -> IdleJobs:
    cpus, *more = map(_amount, row["request"])
    return IdleJobs(
        max(1, valid_integer(row["job_count"]) or 1),
        row["key"],
        row["run"],
        Resources(cpus or 1.0, *more),
        min(valid_integer(row["lane"]) or 0, MAX_LANE),
        row["is_auto"] is True,
    )


def _parse_running(
    rows: Sequence[Mapping[str, Any]], sites_by_slot: Mapping[str, Site]
) -> tuple[RunningJobs, ...]:
    """Return the jobs in *rows* by site; jobs on slots that are unknown have no site."""
    starts: dict[RunningJobs, list[int]] = {}
    for row in rows:
        site = Site(row["site"]) if row["site"] else sites_by_slot.get(row["slot"] or "")
        group = RunningJobs((), site, row["key"], row["run"], row["offer"])
        times = [start for start in row["started_at"] if valid_integer(start, MAX_UNIX_SECONDS) is not None]
        starts.setdefault(group, []).extend(times)
    return tuple(replace(group, started_at=tuple(sorted(times))) for group, times in starts.items() if times)


MAX_GROUPS = 100
"""Groups of alike idle jobs of one schedd whose match is evaluated, in turns of the users."""
_MAX_JOBS = 10**7


def _parse_queue(
    answer: Mapping[str, Any], as_of: datetime, sites_by_slot: Mapping[str, Site]
) -> ScheddQueue:
    queued = tuple(QueuedJobs(tuple(names), count, *key) for names, count, *key in answer["queued"])
    keys = {row["key"] for row in answer["running"]}
    lists = {  # a user can write any key into a job
        jobs.key: jobs.datasets
        for jobs in queued
        if jobs.key and jobs.key in keys and fits(jobs.key, jobs.datasets)
    }
    needs = [_parse_need(row, queued[row["queued"]].datasets, as_of) for row in answer["needs"]]
    needs += [
        _parse_running_need(row, lists[row["key"]], sites_by_slot, as_of)
        for row in answer["running"]
        if row["key"] in lists
    ]
    idle = tuple(_parse_idle(row) for row in answer["idle"])
    running = _parse_running(answer["running"], sites_by_slot)
    load = ScheddLoad(idle, running, answer["clock_ahead"])
    return ScheddQueue(ScheddDemand(as_of, queued), load, tuple(needs), tuple(answer["reports"]))


def _parse_need(row: Mapping[str, Any], datasets: tuple[str, ...], as_of: datetime) -> DataNeed:
    """Return idle or held jobs; held jobs wait for a person, and the queue has no start of the wait."""
    jobs = min(max(1, valid_integer(row["job_count"]) or 1), _MAX_JOBS)
    is_data_missing = False if row["is_held"] else None
    return DataNeed(datasets, jobs, row["user"], row["example"], as_of, is_data_missing=is_data_missing)


def _parse_running_need(
    row: Mapping[str, Any], datasets: tuple[str, ...], sites_by_slot: Mapping[str, Site], as_of: datetime
) -> DataNeed:
    times = [at for each in row["started_at"] if (at := valid_integer(each, MAX_UNIX_SECONDS)) is not None]
    site = Site(row["site"]) if row["site"] else sites_by_slot.get(row["slot"] or "")
    return DataNeed(
        datasets,
        max(1, len(row["started_at"])),
        row["user"],
        "",
        from_unix(max(times)) if times else as_of,
        is_running=True,
        running_site=site,
    )


def choose_in_turns(needs: Iterable[DataNeed], max_needs: int) -> list[DataNeed]:
    """Return *max_needs* of *needs* in turns of the users."""
    oldest_first = sorted(needs, key=lambda need: job_order(need.example))
    return take_turns(oldest_first, lambda need: need.user)[:max_needs]


def _find(text: Mapping[str, str], name: str) -> str | None:
    """Return the expression of the attribute *name* in any letter case: the schedd keeps a user's."""
    return next((each for key, each in text.items() if key.casefold() == name.casefold()), None)


class ScheddNeeds:
    """The data that jobs need: the jobs of the last snapshot of *pool*, the idle ones matched with all slots.

    Only the oldest job of each of MAX_GROUPS groups is matched. One query has the ads of these jobs.
    """

    def __init__(
        self, pool: CondorPool, client: CondorClient, clock: Clock, site_attributes: Sequence[str]
    ) -> None:
        self.pool = pool
        self._client = client
        self._clock = clock
        self._site_attributes = tuple(dict.fromkeys((contract.SITE, *site_attributes)))

    def read_needs(self) -> Mapping[str, Sequence[DataNeed] | Unseen]:
        """Return, by schedd, the jobs in its queue that name datasets, or the reason why they are unknown.

        Raises:
            PoolError: there is no snapshot that is young enough.
        """
        snapshot = self.pool.last
        if snapshot is None or self._clock() - snapshot.as_of > MAX_LOAD_AGE:
            raise PoolError("pool", "the last queries of the schedds failed, or none was made yet")
        answers = snapshot.answers
        needs = {name: one.needs for name, one in answers.items() if isinstance(one, ScheddQueue)}
        matches = self._match({name: self._read_texts(name, each) for name, each in needs.items()})
        return {
            name: one
            if isinstance(one, Unseen)
            else [self._with_match(need, matches.get((name, need.example))) for need in one.needs]
            for name, one in answers.items()
        }

    def close(self) -> None:
        """Close connections, also during a query."""
        self._client.close()

    def _read_texts(self, schedd: str, needs: Iterable[DataNeed]) -> Mapping[str, Mapping[str, str]]:
        """Return the ads of the jobs to match, by id; none if *schedd* does not answer."""
        idle = (need for need in needs if need.example and need.is_data_missing is None)
        ids = [need.example for need in choose_in_turns(idle, MAX_GROUPS)]
        try:
            return self._client.read_job_texts(schedd, ids) if ids else {}
        except PoolError:
            return {}  # the sites are unknown: nothing is requested for these jobs

    def _match(
        self, texts: Mapping[str, Mapping[str, Mapping[str, str]]]
    ) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Return the match of each job, and the time since when it is idle, by schedd and id."""
        jobs = {(schedd, job): text for schedd, each in texts.items() for job, text in each.items()}
        try:
            rows = self._client.evaluate_sites(list(jobs.values()), self._site_attributes) if jobs else []
        except PoolError:
            return {}
        return {
            job: {**row, "since": text.get("EnteredCurrentStatus"), "mode": _find(text, contract.MODE)}
            for (job, text), row in zip(jobs.items(), rows, strict=True)
        }

    def _with_match(self, need: DataNeed, match: Mapping[str, Any] | None) -> DataNeed:
        if match is None:
            return need
        since = str(match["since"])
        at = valid_integer(int(since), MAX_UNIX_SECONDS) if since.isdecimal() else None
        return replace(
            need,
            queued_since=need.queued_since if at is None else min(need.queued_since, from_unix(at)),
            matching_sites=frozenset(Site(str(site)) for site in match["sites"]),
            is_data_missing=bool(match["sites"]) and not match["matches_now"],
            is_bound=match["mode"] == '"require"',
        )
