"""The parts of the daemon in memory: catalogues, schedds, publishers and the disk, each with its faults.

They implement the ports of hydrator.domain, and pass the contract tests of ``tests/contracts`` as long as
nothing is wrong with them. What they keep (ads, files) outlives the process that uses them.
"""

import contextlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from adapters.http.publisher import WebPublisher
from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.dataset_sets import set_key as make_key
from hydrator.domain.errors import CatalogueUnreachable, PoolError, PublishError
from hydrator.domain.model import (
    DatasetState,
    Did,
    PublishedAd,
    QueuedJobs,
    Replica,
    ScheddDemand,
    Site,
    SiteAd,
    Survey,
    Unseen,
    from_unix,
    to_unix,
)
from hydrator.domain.ports import IdleJobs, PoolSnapshot, Resources, ScheddLoad, ScheddQueue, SlotGroup
from hydrator.state.store import Store
from tests.memory import MemoryCatalogue
from tests.simulation.faults import Fault
from tests.simulation.loop import Process
from tests.simulation.truth import Truth

if TYPE_CHECKING:
    from tests.simulation.world import World

AD_LIFETIME: Final = 900.0
"""Seconds after which a collector forgets an ad; as in hydrator.wiring.assembly."""
PATIENCE_SECONDS: Final = 60.0
"""Seconds after which the clients of schedds and of the collector give up; see adapters.condor.bindings."""
ANSWER_SECONDS: Final = 120.0
"""Seconds after which a part gives up on an answer that was dropped."""


@lru_cache(10_000)
def key_of(dids: tuple[Did, ...]) -> SetKey:
    """Return the key of a set."""
    return make_key(dids)


@lru_cache(10_000)
def whole_seconds(at: datetime) -> datetime:
    """Return the time that a publisher reads back from an ad of the time *at*."""
    return from_unix(to_unix(at))


class Part:
    """A part that *process* uses; each call of it is one or more steps of *world*."""

    def __init__(self, world: "World", process: Process, part: str) -> None:
        self._world = world
        self._process = process
        self._part = part

    patience: float | None = None
    """Seconds that the part may hang; None: for ever."""

    def _step(self) -> dict[str, Fault]:
        return self._world.step(self._process, self._part, patience=self.patience)


class SimulatedCatalogue(Part):
    """A catalogue that reports its share of the truth."""

    def __init__(self, world: "World", process: Process, name: str) -> None:
        super().__init__(world, process, f"catalogue {name}")
        self.name = name
        self._last: tuple[Survey, float] | None = None
        self._held: tuple[Truth, Fault | None, list[Replica]] | None = None

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :class:`hydrator.domain.ports.Catalogue`."""
        started_at, begun = self._world.clock(), self._world.loop.now
        faults = self._step()
        self._raise(faults)
        truth = self._world.truth
        if "stale" in faults:
            truth = self._world.truth_at(faults["stale"].at - faults["stale"].number)
        cut = sorted(dids)[len(dids) // 2 :] if "cut" in faults else ()
        catalogue = self._holdings(truth, started_at, faults.get("lose"))
        if "blind" in faults:
            catalogue.unreachable_sites |= {Site(faults["blind"].site)}
            self._world.laws.happened("a catalogue could not look at one site")
        survey = catalogue.read(dids)
        survey = replace(
            survey, readings={**survey.readings, **dict.fromkeys(cut, Unseen("the answer was cut"))}
        )
        if "stale" in faults or "repeat" in faults:
            self._world.laws.happened("an older view came after a newer one")
        if "repeat" in faults:
            survey, begun = self._last or (survey, begun)
            survey = Survey(
                survey.catalogue,
                survey.started_at,
                survey.sites,
                {did: survey.readings.get(did, Unseen("not in this answer")) for did in dids},
            )
        else:
            self._last = survey, begun
        self._raise(self._step())  # the answer is under way
        if "garble" in faults:
            return "garbled"  # type: ignore[return-value]
        self._world.laws.note_survey(survey, begun)
        return survey

    def _holdings(self, truth: Truth, at: datetime, lost: Fault | None) -> MemoryCatalogue:
        """Return what the catalogue holds, without what a fault lost."""
        if self._held is None or self._held[0] is not truth or self._held[1] is not lost:
            replicas = [
                Replica(did, site, DatasetState.AVAILABLE if share == 1 else DatasetState.STAGING, share)
                for did, shares in truth.shares[self.name].items()
                for site, share in sorted(shares.items())
                if lost is None or lost.site not in {"", site}
            ]
            self._held = truth, lost, replicas
        replicas = self._held[2]
        sites, sizes = truth.sites[self.name], truth.sizes
        return MemoryCatalogue(self.name, replicas, sites, clock=lambda: at, bytes_total=sizes)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :class:`hydrator.domain.ports.Catalogue`."""
        faults = self._step()
        self._raise(faults)
        if "no search" in faults:
            raise CatalogueUnreachable(self.name, "the simulation broke the search")
        return self._holdings(self._world.truth, self._world.clock(), faults.get("lose")).find(patterns)

    def _raise(self, faults: Mapping[str, Fault]) -> None:
        if "slow" in faults:
            self._world.loop.sleep(faults["slow"].number)
        if "drop" in faults:
            self._world.loop.sleep(ANSWER_SECONDS)
        if "drop" in faults or "fail" in faults:
            raise CatalogueUnreachable(self.name, "the simulation broke it")

    def close(self) -> None:
        """Do nothing: no connection is open."""


class SimulatedPool(Part):
    """The schedds and slots, as the daemon asks them: all jobs are idle, and each site has a free slot."""

    patience = PATIENCE_SECONDS

    def __init__(self, world: "World", process: Process) -> None:
        super().__init__(world, process, "schedds")
        self.last: PoolSnapshot | None = None
        self._restored: Mapping[str, ScheddQueue] = {}

    def restore(self, queues: Mapping[str, ScheddQueue]) -> None:
        """See :class:`hydrator.domain.ports.PoolReader`."""
        self._restored = queues

    def read_snapshot(self, *, waits: bool = False) -> PoolSnapshot:
        """See :class:`hydrator.domain.ports.PoolReader`."""
        if self._step():
            raise PoolError("collector", "the simulation broke it")
        as_of, truth = self._world.clock(), self._world.truth
        slots = tuple(SlotGroup(site, Resources(8), Resources(1)) for site in sorted(truth.all_sites))
        listed = [
            schedd
            for schedd in sorted(truth.queues)
            if "gone" not in self._world.faults.active(f"schedd {schedd}", self._world.loop.now)
        ]
        self._world.laws.note_listing(listed)
        answers = {schedd: self._ask(schedd) for schedd in listed}
        known = dict(self.last.queues if self.last else self._restored)
        known |= {schedd: one for schedd, one in answers.items() if one}
        queues = {schedd: known[schedd] for schedd in listed if schedd in known}
        silent = {schedd: "the simulation broke it" for schedd, one in answers.items() if not one}
        self.last = PoolSnapshot(as_of, queues, silent, slots)
        return self.last

    def _ask(self, schedd: str) -> ScheddQueue | None:
        if self._world.step(self._process, f"schedd {schedd}", patience=PATIENCE_SECONDS):
            return None
        queue = sorted(self._world.truth.queues[schedd].items())
        groups = tuple(QueuedJobs(tuple(dids), count, key_of(dids)) for dids, count in queue)
        self._world.laws.note_demand(schedd, groups)
        idle = tuple(IdleJobs(jobs.job_count, jobs.key) for jobs in groups)
        return ScheddQueue(ScheddDemand(self._world.clock(), groups), ScheddLoad(idle))

    def close(self) -> None:
        """Do nothing: no connection is open."""


@dataclass
class Shelf:
    """The ads that a publisher keeps, each with the virtual time at which it came."""

    ads: dict[Site, tuple[SiteAd, float]] = field(default_factory=dict)


class SimulatedPublisher(Part):
    """A publisher whose ads outlive the process; those of a collector expire after ``lifetime`` seconds."""

    def __init__(self, world: "World", process: Process, name: str, lifetime: float | None = None) -> None:
        super().__init__(world, process, f"publisher {name}")
        self.name = name
        self._lifetime = lifetime
        self._shelf = world.shelves.setdefault(name, Shelf())

    def published(self) -> Mapping[Site, PublishedAd]:
        """See :class:`hydrator.domain.ports.Publisher`."""
        self._raise(self._step())
        return {
            site: PublishedAd(
                site,
                ad.generation,
                whole_seconds(ad.as_of),
                self._world.clock_at(came),
                whole_seconds(ad.open_until) if ad.open_until else None,
            )
            for site, (ad, came) in sorted(self._shelf.ads.items())
            if self._lifetime is None or self._world.loop.now - came < self._lifetime
        }

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`; each ad is sent by itself."""
        for ad in ads:
            self._world.laws.check_ad(self.name, ad, self._world.shown_ad(self.name, ad.site))
        for ad in ads:
            faults = self._step()
            self._raise(faults)
            if "stall" in faults:
                self._world.loop.sleep(faults["stall"].end - self._world.loop.now)
            before, _ = self._shelf.ads.get(ad.site, (None, 0.0))
            is_lost = "lose" in faults  # a datagram that no one acknowledges
            self._world.laws.note_sent(self.name, ad, before, is_lost=is_lost)
            if not is_lost:
                self._shelf.ads[ad.site] = (ad, self._world.loop.now)
                if before is None or before.generation != ad.generation:
                    self._world.step(self._process, "news", seconds=0.0)

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`."""
        for site in sorted(sites):
            self._raise(self._step())
            self._shelf.ads.pop(site, None)
            self._world.laws.note_withdrawn(self.name, site)

    def _raise(self, faults: Mapping[str, Fault]) -> None:
        if "drop" in faults:
            self._world.loop.sleep(ANSWER_SECONDS)
        if "drop" in faults or "fail" in faults:
            raise PublishError(self.name, "the simulation broke it")


class SimulatedWebPublisher(WebPublisher):
    """The daemon's own publisher over HTTP; its ads end with the process."""

    def __init__(self, world: "World", process: Process, *rest: Any) -> None:
        super().__init__(*rest)
        self._world = world
        self._process = process

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`."""
        served = self.ads()
        for ad in ads:
            self._world.laws.check_ad(self.name, ad, served.get(ad.site))
        self._world.step(self._process, "publisher http")
        super().publish(ads)


class SimulatedStore(Store):
    """The state on disk, with a step before and after each write; both processes are set after opening."""

    world: "World | None" = None
    process: Process
    _is_saving = False

    def save(self, *arguments: Any) -> None:
        """See :class:`hydrator.state.store.Store`."""
        self._is_saving = True
        try:
            super().save(*arguments)
        finally:
            self._is_saving = False

    def _use(self, connection: sqlite3.Connection) -> None:
        self._open_transaction = self._guarded_transaction
        super()._use(connection)

    @contextlib.contextmanager
    def _guarded_transaction(self, *arguments: Any) -> Iterator[None]:
        if self.world is None:
            with Store._open_transaction(*arguments):
                yield
            return
        with Store._open_transaction(*arguments):
            db: sqlite3.Connection = arguments[0]
            changes, is_full = db.total_changes, "full" in self.world.step(self.process, "disk", seconds=0.0)
            yield
            self.world.step(self.process, "disk", seconds=0.0)
            has_written = db.total_changes > changes
            if is_full and has_written:
                raise sqlite3.OperationalError("database or disk is full")
        if self._is_saving:
            self.world.laws.saved_at = self.world.loop.now
        self.world.step(self.process, "save" if has_written else "disk", seconds=0.0)
