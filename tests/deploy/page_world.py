"""A pool for the pictures and the tests of the pages: fifty sites, data on its way, a month of ended jobs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from hydrator.diagnostics.overview.locality_history import build_overview
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Openings, Outlook, Reason
from hydrator.domain.model import DatasetState, Did, Fact, Provenance, Site, SiteFacts, Snapshot, to_unix
from hydrator.domain.ports import IdleJobs, PoolLoad, RunningJobs, ScheddLoad
from hydrator.domain.staging_ports import RequestState, StagingKind
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause
from hydrator.reconcile.state import DatasetChange, HistoryEntry
from hydrator.reconcile.view import CatalogueView, PublisherView
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview
from hydrator.staging.table import Request
from hydrator.state.reports import LocalityHour
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, RAL, ad, demand, server_state, want

OSO = Site("OSO")
RUN = "cygnus-a"
NEW = tuple(Did(f"lofar:L{number}") for number in (999_983, 999_991, 999_997))
SITES = (CAM, RAL, OSO, *map(Site, (
    "SURF", "JSC", "PSNC", "LBNL", "CSCS", "INAF-TRIESTE", "IAA-GRANADA", "NAC", "CFHT", "DESY-ZN",
    "IRFU", "OBSPM", "SARA", "TLS", "UCT-IDIA", "UNIGE", "VIRAC", *(f"CESNET-{n:02}" for n in range(30)),
)))  # fmt: skip
DATASETS = [Did(f"lofar:L{200_000 + n * 37}") for n in range(250)]
MANY_DATASETS = [Did(f"lofar:L{200_000 + n * 37}") for n in range(5000)]
SIZES = {did: 40_000_000_000 + 1_000_000 * n for n, did in enumerate(DATASETS)}
OUTLOOKS = {
    set_key([L2, L3]): Outlook(Reason.TURN, (RAL,), 3),
    set_key([DATASETS[3]]): Outlook(Reason.BESIDE, (CAM,), 12),
    **{set_key([did]): Outlook(Reason.ABSENT) for did in NEW},
}


def _facts(number: int, dids: Sequence[Did]) -> SiteFacts:
    """Facts of a site: most datasets are complete; at one site of three some have any other state."""
    states = (
        list(DatasetState)
        if number < 3 or number % 3 == 0
        else [*[DatasetState.AVAILABLE] * 5, DatasetState.STAGING]
    )
    facts = {}
    for n, did in enumerate(dids):
        if (n + number) % 4 == 0 or (number > 12 and n % number):
            continue
        state = states[0 if n % 4 else (n // 4 + number) % 6]
        age = ((n * 7 + number) % 380) * MINUTE if state is DatasetState.UNKNOWN else number * MINUTE / 4
        reason = "the rule is OK" if state is DatasetState.AVAILABLE else "the rule is REPLICATING"
        provenance = Provenance(reason=reason, rule="a1b2c3", account="lofar_ops")
        facts[did] = Fact(state, NOON - age, 1.0 if state is DatasetState.AVAILABLE else 0.4, provenance)
    return SiteFacts(NOON - (number + 1) * MINUTE / 4, facts)


def request(did: Did, site: Site, share: float, *, minutes: int | None, jobs: int = 3) -> Request:
    """A request of data that is *share* done and ready after *minutes*."""
    ready = None if minutes is None else NOON + minutes * MINUTE
    size = SIZES.get(did, 10**12)
    return Request(
        batch=f"b-{did[-4:]}",
        catalogue="rucio",
        kind=StagingKind.STAGE,
        site=site,
        did=did,
        state=RequestState.MOVING,
        bytes=size,
        files=244,
        files_done=int(244 * share),
        rule="a1b2c3",
        job_count=jobs,
        asked_at=NOON - HOUR,
        lifetime_seconds=1_296_000,
        ready_at=ready,
        description=f"asked 11:00 UTC at {site}, request a1b2c3, {int(244 * share)} of 244 files",
    )


def _hours() -> list[LocalityHour]:
    """A month of ended jobs: the share of those beside their data grows."""
    dice = random.Random(1)
    hours = []
    for age in range(30 * 24, 0, -1):
        share = min(0.97, 0.55 + 0.42 * (1 - age / 720) + dice.uniform(-0.06, 0.06))
        jobs = dice.randint(20, 60)
        local = int(jobs * share)
        hours.append(LocalityHour(NOON - age * HOUR, local, jobs, 5 * local * 10**11, 5 * jobs * 10**11))
    return hours


def changes() -> list[HistoryEntry]:
    """Some changes of ads, oldest first."""
    came = (DATASETS[1], None, "AVAILABLE", "its catalogue says so")
    left = (DATASETS[4], "AVAILABLE", None, "its catalogue says that it is gone")
    return [
        HistoryEntry(at, site, (DatasetChange(to_unix(at), *change),))
        for at, site, change in (
            (NOON - 5 * HOUR, RAL, came),
            (NOON - 3 * HOUR, OSO, left),
            (NOON - HOUR, RAL, came),
        )
    ]


def queues() -> PoolLoad:
    """A run with 24 jobs: 18 run beside their data, and 6 wait for 3 datasets."""
    waiting = (
        *(IdleJobs(2, set_key([did]), run=RUN) for did in NEW),
        IdleJobs(38, set_key([L2, L3])),
        IdleJobs(5, set_key([DATASETS[3]])),
        IdleJobs(3, set_key([DATASETS[4]]), is_auto=False),
    )
    start = int(NOON.timestamp()) - 1200
    running = (
        RunningJobs((start,) * 11, CAM, set_key([DATASETS[1]]), run=RUN),
        RunningJobs((start,) * 7, RAL, set_key([DATASETS[2]]), run=RUN),
    )
    return PoolLoad(NOON - MINUTE, {"ap1": ScheddLoad(waiting, running)}, ())


def world(dids: Sequence[Did] = DATASETS) -> ServerState:
    """Fifty sites with all kinds of facts about *dids*, a change that is held, and a catalogue that fails."""
    facts = {site: _facts(number, dids) for number, site in enumerate(SITES)}
    coming = {
        did: Fact(DatasetState.STAGING, NOON, share, Provenance(ready_at=NOON + minutes * MINUTE))
        for did, share, minutes in zip(NEW, (0.81, 0.35, 0.02), (25, 70, 190), strict=True)
    }
    facts[CAM] = replace(facts[CAM], facts=facts[CAM].facts | coming)
    held = HeldLoss(NOON - HOUR, NOON, dict.fromkeys(DATASETS[:30], 3), 166, HoldCause.SITE)
    error = "no answer within 10 s"
    failing = to_unix(NOON - 12 * MINUTE)
    dmapi = CatalogueView(
        name="dmapi", error=error, failing_since=failing, last_error=error, last_error_at=to_unix(NOON)
    )
    rucio = CatalogueView(name="rucio", last_error="HTTP 503", last_error_at=to_unix(NOON - 7 * HOUR))
    publishers = [PublisherView(name=name, rejected={}) for name in ("collector", "http")]
    staging = StagingOverview(
        NOON - MINUTE,
        "request",
        requests=(
            request(NEW[0], CAM, 0.81, minutes=25, jobs=2),
            request(NEW[1], CAM, 0.35, minutes=70, jobs=2),
            request(NEW[2], CAM, 0.02, minutes=190, jobs=2),
            request(DATASETS[8], OSO, 0.0, minutes=None, jobs=1),
        ),
    )
    wants = [
        *(want(did, jobs=n % 9 + 1) for n, did in enumerate(dids)),
        *(want(did, jobs=2) for did in NEW),
        want(L2, L3, jobs=40),
    ]
    return server_state(
        ads={site: ad(L1, site=site, generation=1_700_000_000 + k) for k, site in enumerate(SITES[:48])},
        snapshot=Snapshot(
            facts, unseen_reasons={L2: "the catalogue did not answer within 10 s"}, bytes_total=SIZES
        ),
        demand=demand(*wants),
        not_ready_reason=None,
        now=NOON,
        held_losses={CAM: held},
        changes=changes(),
        catalogues=(dmapi, rucio),
        publishers=publishers,
        staging=staging,
        locality=build_overview(_hours(), NOON),
        load=queues(),
        openings=Openings(outlooks=OUTLOOKS),
    )


@dataclass
class LivePool:
    """A pool whose state a test replaces, as a cycle of the daemon does."""

    state: ServerState = field(default_factory=world)
    version: int = 0

    def get_state(self) -> ServerState:
        return self.state

    def get_version(self) -> int:
        return self.version

    def change(self, **changed: object) -> None:
        """Replace some values, as a cycle does: all at once, and with a new version."""
        self.state = replace(self.state, now=self.state.now + timedelta(seconds=30), **changed)
        self.version += 1
