"""Load of a pool: the idle and running jobs of all schedds, and the slots of all sites."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from hydrator.domain.model import Site
from hydrator.domain.pool_ports import IdleJobs, PoolLoad, RunningJobs, ScheddLoad, SiteSlots
from hydrator.domain.ports import Clock
from hydrator.domain.untrusted import MAX_UNIX_SECONDS, valid_integer, valid_number

from .bindings.client import CondorClient, QueueClient
from .schedd_rounds import ScheddRounds
from .slot_ads import NOT_DYNAMIC_SLOT

SLOT_ATTRIBUTES = ("Name", "State", "PartitionableSlot", "TotalSlotCpus", "Cpus")
USABLE_SLOT = (
    f"{NOT_DYNAMIC_SLOT} && Offline =!= true && Start =!= false && Draining =!= true && BackfillSlot =!= true"
    ' && State =!= "Owner" && State =!= "Drained" && State =!= "Backfill"'
)
"""Slots that take jobs. The collector evaluates START without a job, so a START that tests the job counts."""
MAX_SLOT_AGE = timedelta(seconds=750)
"""Two and a half times UPDATE_INTERVAL, 300 s by default: the startd of an older ad ended without a word."""
_MAX_CPUS = 1_000_000
_MAX_EXPECTED_SECONDS = 10**9


class ScheddLoads(ScheddRounds):
    """A ``PoolLoads`` port: query the slots, and the jobs of each schedd, within the client's time limit.

    Args:
        client: queries the collector and the schedds.
        clock: the current time.
        site_attributes: names of slot attributes; the first that a slot has gives the slot's site.
        make_client: makes further clients, if some schedds do not answer.
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
        super().__init__(client, make_client)
        self._usable_slot = f"{USABLE_SLOT} && {seen_within(max_slot_age)}"
        self._collector = client
        self._clock = clock
        self._site_attributes = tuple(dict.fromkeys(("DataLocalitySite", *site_attributes)))

    def read_load(self) -> PoolLoad:
        """See :class:`hydrator.domain.pool_ports.PoolLoads`."""
        as_of = self._clock()
        ads = self._collector.slots([*self._site_attributes, *SLOT_ATTRIBUTES], self._usable_slot)
        slots = [(ad, site) for ad in ads if (site := self._find_site(ad)) is not None]
        sites_by_slot = {str(ad["Name"]): site for ad, site in slots}

        def query(client: QueueClient, schedd: str) -> ScheddLoad:
            idle = tuple(_parse_idle(row) for row in client.read_idle_jobs(schedd))
            rows = client.read_running_jobs(schedd, self._site_attributes)
            return ScheddLoad(idle, _parse_running(rows, sites_by_slot))

        return PoolLoad(as_of, self.ask(query), _group_slots(slots))

    def _find_site(self, ad: Mapping[str, Any]) -> Site | None:
        return next((Site(str(ad[name])) for name in self._site_attributes if ad.get(name)), None)


def seen_within(age: timedelta) -> str:
    """Return the constraint for ads that were updated within *age*, by the clock of the collector."""
    return f"(time() - LastHeardFrom > {round(age.total_seconds())}) =!= true"


def _group_slots(slots: Sequence[tuple[Mapping[str, Any], Site]]) -> tuple[SiteSlots, ...]:
    counts: dict[tuple[Site, float, float], int] = {}
    for ad, site in slots:
        is_partitionable = ad["PartitionableSlot"] is True
        total = _cpus(ad["TotalSlotCpus"] if is_partitionable else ad["Cpus"])
        is_free = is_partitionable or ad["State"] == "Unclaimed"
        free = min(_cpus(ad["Cpus"]), total) if is_free else 0.0
        if total:
            counts[site, total, free] = counts.get((site, total, free), 0) + 1
    return tuple(SiteSlots(*group, count) for group, count in sorted(counts.items()))


def _cpus(value: object) -> float:
    number = valid_number(value)
    return min(float(number), _MAX_CPUS) if number is not None and number > 0 else 0.0


def _parse_idle(row: Mapping[str, Any]) -> IdleJobs:
    return IdleJobs(max(1, valid_integer(row["job_count"]) or 1), **_shared_fields(row))


def _parse_running(
    rows: Sequence[Mapping[str, Any]], sites_by_slot: Mapping[str, Site]
) -> tuple[RunningJobs, ...]:
    """Return the jobs in *rows* by site; jobs on slots that are unknown have no site."""
    starts: dict[RunningJobs, list[int]] = {}
    for row in rows:
        site = Site(row["site"]) if row["site"] else sites_by_slot.get(row["slot"] or "")
        group = RunningJobs((), site, **_shared_fields(row))
        times = [start for start in row["started_at"] if valid_integer(start, MAX_UNIX_SECONDS) is not None]
        starts.setdefault(group, []).extend(times)
    return tuple(
        RunningJobs(
            tuple(sorted(times)),
            group.site,
            group.key,
            group.datasets,
            group.user,
            group.cpus,
            group.expected_seconds,
            group.run,
        )
        for group, times in starts.items()
        if times
    )


def _shared_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": row["key"],
        "datasets": tuple(row["datasets"]),
        "user": row["user"],
        "cpus": _cpus(row["cpus"]) or 1.0,
        "expected_seconds": valid_integer(row["expected_seconds"], _MAX_EXPECTED_SECONDS),
        "run": row["run"],
    }
