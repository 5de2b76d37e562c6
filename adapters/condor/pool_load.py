"""Jobs of all schedds: the idle and running jobs with the slots of all sites, and the jobs that need data."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hydrator.domain.ads.classad import list_literal, string_literal
from hydrator.domain.ads.openings import MAX_LANE
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, Unseen, from_unix
from hydrator.domain.ports import (
    Clock,
    ClusterJobs,
    DataNeed,
    IdleJobs,
    PoolLoad,
    Resources,
    RunningJobs,
    ScheddLoad,
    SlotGroup,
)
from hydrator.domain.untrusted import MAX_UNIX_SECONDS, valid_integer, valid_number

from .bindings.client import CondorClient, QueueClient
from .bindings.library import NOT_DYNAMIC_SLOT
from .schedd_rounds import SiteRounds

RESOURCES = ("Cpus", "Memory", "Disk", "GPUs")
"""What :class:`Resources` has, as slots name it; a partitionable slot has the whole as ``TotalSlot…``."""
SLOT_ATTRIBUTES = (
    *("Name", "State", "PartitionableSlot"),
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
"""Two and a half times UPDATE_INTERVAL, 300 s by default: the startd of an older ad ended without a word."""
MAX_CLUSTER_JOBS = 10_000
"""Jobs of one cluster in one answer."""
_MAX_SLOT_NAMES = 1000
_MAX_AMOUNT = 10**15


class ScheddLoads(SiteRounds):
    """A ``PoolLoads`` port: query the slots, and the jobs of each schedd, within the client's time limit.

    Args:
        client, clock, site_attributes, make_client: see :class:`SiteRounds`.
        max_slot_age: a slot without an update for longer does not count. A startd that is killed cannot
            withdraw its ads, and the collector keeps them for CLASSAD_LIFETIME, 15 min or longer.
    """

    def __init__(
        self,
        client: CondorClient,
        clock: Clock,
        site_attributes: Sequence[str],
        make_client: Callable[[], CondorClient] | None = None,
        max_slot_age: timedelta = MAX_SLOT_AGE,
    ) -> None:
        super().__init__(client, clock, site_attributes, make_client)
        self._usable_slot = f"{USABLE_SLOT} && {seen_within(max_slot_age)}"

    def read_load(self) -> PoolLoad:
        """See :class:`hydrator.domain.ports.PoolLoads`."""
        as_of = self._clock()
        ads = self._collector.slots([*self._site_attributes, *SLOT_ATTRIBUTES], self._usable_slot)
        slots = [(ad, site) for ad in ads if (site := self._find_site(ad)) is not None]
        sites_by_slot = {str(ad["Name"]): site for ad, site in slots}

        def query(client: QueueClient, schedd: str) -> ScheddLoad:
            idle = tuple(_parse_idle(row) for row in client.read_idle_jobs(schedd))
            rows = client.read_running_jobs(schedd, self._site_attributes)
            ahead = next((row["clock_ahead"] for row in rows), 0)
            return ScheddLoad(idle, _parse_running(rows, sites_by_slot), ahead)

        return PoolLoad(as_of, self.ask(query), _group_slots(slots))


class ScheddClusters(SiteRounds):
    """A query of the jobs of one cluster, at its schedd."""

    def read_cluster(self, cluster: int, schedd: str | None = None) -> Mapping[str, ClusterJobs | Unseen]:
        """Query all schedds, or only *schedd*; return those with jobs of *cluster*, and the silent ones.

        Raises:
            PoolError: the collector could not list the schedds.
        """
        as_of = self._clock()

        def query(client: QueueClient, name: str) -> Mapping[str, Any] | None:
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


def _group_slots(slots: Sequence[tuple[Mapping[str, Any], Site]]) -> tuple[SlotGroup, ...]:
    counts: Counter[tuple[Site, Resources, Resources]] = Counter()
    for ad, site in slots:
        is_partitionable = ad["PartitionableSlot"] is True
        left = Resources(*(_amount(ad[name]) for name in RESOURCES))
        total = (
            Resources(*(_amount(ad[f"TotalSlot{name}"]) for name in RESOURCES)) if is_partitionable else left
        )
        is_free = is_partitionable or ad["State"] == "Unclaimed"
        free = Resources(*map(min, left, total)) if is_free else Resources(0.0)
        if total.cpus:
            counts[site, total, free] += 1
    return tuple(SlotGroup(*group, count) for group, count in sorted(counts.items()))


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


class ScheddNeeds(SiteRounds):
    """A ``DataNeeds`` port: query the jobs of each schedd, and evaluate the idle ones against all slots."""

    def read_needs(self) -> Mapping[str, Sequence[DataNeed] | Unseen]:
        """See :class:`hydrator.domain.ports.DataNeeds`."""

        def query(client: QueueClient, schedd: str) -> Mapping[str, Any]:
            return client.read_data_needs(schedd, self._site_attributes, MAX_GROUPS)

        answers = self.ask(query)
        matches = self._evaluate_matches(answers)
        sites_by_slot = self._sites_by_slot(answers)
        return {
            schedd: answer
            if isinstance(answer, Unseen)
            else (
                *(self._parse_idle(row, matches.get((schedd, row["example"]))) for row in answer["idle"]),
                *(_parse_running_need(row, sites_by_slot, self._clock) for row in answer["running"]),
            )
            for schedd, answer in answers.items()
        }

    def _evaluate_matches(
        self, answers: Mapping[str, Mapping[str, Any] | Unseen]
    ) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Return the match of the first job of each idle row, by schedd and job; none if it is unknown."""
        jobs = [
            (schedd, row)
            for schedd, answer in answers.items()
            if not isinstance(answer, Unseen)
            for row in answer["idle"]
            if row["ad"] is not None
        ]
        if not jobs:
            return {}
        try:
            rows = self._collector.evaluate_sites([row["ad"] for _, row in jobs], self._site_attributes)
        except PoolError:
            return {}  # the sites are unknown: nothing is requested for these jobs
        return {(schedd, job["example"]): row for (schedd, job), row in zip(jobs, rows, strict=True)}

    def _sites_by_slot(self, answers: Mapping[str, Mapping[str, Any] | Unseen]) -> dict[str, Site]:
        """Return the site of each slot, if a running job's schedd did not record it."""
        rows = [row for each in answers.values() if not isinstance(each, Unseen) for row in each["running"]]
        if all(row["site"] for row in rows):
            return {}
        return self._read_sites_by_slot(NOT_DYNAMIC_SLOT)

    def _parse_idle(self, row: Mapping[str, Any], match: Mapping[str, Any] | None) -> DataNeed:
        now = self._clock()
        since = valid_integer(row["since"], MAX_UNIX_SECONDS)
        sites = None if match is None else frozenset(Site(str(site)) for site in match["sites"])
        return DataNeed(
            tuple(row["datasets"]),
            min(max(1, valid_integer(row["job_count"]) or 1), _MAX_JOBS),
            row["user"],
            row["example"],
            min(now, from_unix(since)) if since is not None else now,
            matching_sites=sites,
            is_data_missing=_is_data_missing(row, match),
        )


def _is_data_missing(row: Mapping[str, Any], match: Mapping[str, Any] | None) -> bool | None:
    """Return whether the jobs of *row* wait for nothing but data; held jobs wait for a person."""
    if row["is_held"]:
        return False
    return None if match is None else bool(match["sites"]) and not match["matches_now"]


def _parse_running_need(row: Mapping[str, Any], sites_by_slot: Mapping[str, Site], clock: Clock) -> DataNeed:
    times = [at for each in row["started_at"] if (at := valid_integer(each, MAX_UNIX_SECONDS)) is not None]
    site = Site(row["site"]) if row["site"] else sites_by_slot.get(row["slot"] or "")
    return DataNeed(
        tuple(row["datasets"]),
        max(1, len(row["started_at"])),
        row["user"],
        "",
        from_unix(max(times)) if times else clock(),
        is_running=True,
        running_site=site,
    )
