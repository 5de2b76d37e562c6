"""A daemon's cycles with a witness that knows the truth at every moment."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import classad2

from hydrator.domain.model import Did, Replica, ReplicaState, Site, SiteAd, from_unix, to_unix
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.publish import Policy, PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.breaker import BreakerLimits
from hydrator.reconcile.snapshot.memory import DatasetRecord
from hydrator.reconcile.state import ReconcileState
from tests.factories import MINUTE, NOON
from tests.memory import MemoryCatalogue, MemoryPublisher

from .sources import Source, Truth

CAM, RAL, OSO = Site("CAM"), Site("RAL"), Site("OSO")
DIDS = tuple(Did(f"lofar:L{number}") for number in range(8))
ELSEWHERE = Did("ska:only-at-oso")
POLICY = Policy(refresh_after=5 * MINUTE, has_expiring_ads=True)
FULL: Truth = {
    did: {CAM: "available", RAL: "partial"} if number % 2 else {CAM: "available"}
    for number, did in enumerate(DIDS)
}
SHRUNK: Truth = {did: where if number < 2 else {} for number, (did, where) in enumerate(FULL.items())}
"""Most of it has left."""
CONFIRMATIONS = 3
"""How many further polls must say that so much has left."""
LONGEST_SECONDS = 60.0
"""A cycle may take as long as its catalogue's deadline; far from what a drip would take that nobody ends."""


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


def attributes(ad: SiteAd) -> dict:
    """Return the values of an ad, as HTCondor reads them."""
    parsed = classad2.ClassAd()
    for name, literal in ad.attributes:
        parsed[name] = classad2.ExprTree(literal)
    return {name: parsed.eval(name) for name in parsed}


class Watched:
    """Cycles over the catalogue of *source* and over a healthy one, with the truth by time.

    Every cycle is a minute after the last one, and every ad is checked against the time of its facts. *dids*
    are the demand for the faulty catalogue.
    """

    def __init__(self, source: Source, *, dids: Sequence[Did] = DIDS, poll: timedelta = MINUTE) -> None:
        self.dids = tuple(dids)
        self.clock = Clock()
        self.poll = poll
        self.source = source
        self.faulty = source.catalogue(self.clock)
        well = Replica(ELSEWHERE, OSO, ReplicaState.COMPLETE)
        self.well = MemoryCatalogue("well", (well,), (OSO,), clock=self.clock)
        self.collector = MemoryPublisher("collector", clock=self.clock)
        self.file = MemoryPublisher("file", clock=self.clock)
        self._truths: list[tuple[datetime, Truth]] = []
        self._rest_over: datetime | None = None
        self._has_false_answers = False
        self._broken_since = self.clock.now
        self._false_answers: list[tuple[datetime, datetime]] = []
        """The beginning and the end of each fault whose answers a healthy server could also give."""
        self.catalogues = [self.faulty, self.well]
        self.cycle = self.started(ReconcileState())

    def started(self, state: ReconcileState) -> Reconciler:
        """Start a daemon with this state."""
        return Reconciler(
            catalogues=self.catalogues,
            queues=None,
            targets=[PublishTarget(self.collector, POLICY), PublishTarget(self.file, POLICY)],
            policy=ReconcilePolicy(
                pins=frozenset({*self.dids, ELSEWHERE}),
                breaker_limits=BreakerLimits(confirming_polls=CONFIRMATIONS),
            ),
            clock=self.clock,
            state=state,
            store=None,
        )

    def hold(self, truth: Truth) -> None:
        """Make this the truth from now on, a second after everything before."""
        self.clock.now += timedelta(seconds=1)
        self._truths.append((self.clock.now, truth))
        self.source.hold(truth)

    def break_with(self, fault: str) -> None:
        """Break the source with this fault from the next poll on."""
        self.source.break_with(fault)
        self._has_false_answers = fault in self.source.believable
        self._broken_since = self.clock.now
        rest = self.source.rests.get(fault)
        self._rest_over = self.clock.now + self.poll + rest if rest else None

    def heal(self) -> None:
        """Repair the source; where a server asked for a pause, wait for as long as it asked."""
        self.source.heal()
        if self._has_false_answers:
            self._false_answers.append((self._broken_since, self.clock.now))
        self._has_false_answers = False
        asked = self.source.asked
        while self._rest_over and self.clock.now + self.poll < self._rest_over:
            assert self.run().catalogue_errors["faulty"]
            assert self.source.asked == asked, "it asked to be let alone"

    def run(self) -> CycleReport:
        """Run one cycle a minute later; fail if a published fact is false."""
        self.clock.now += self.poll
        begun = time.monotonic()
        report = self.cycle.run()
        assert time.monotonic() - begun < LONGEST_SECONDS, "the cycle was held up"
        for publisher in (self.collector, self.file):
            for ad in publisher.ads.values():
                self.judge(ad, report)
        assert self.collector.ads == self.file.ads
        self._others_are_well()
        return report

    def judge(self, ad: SiteAd, report: CycleReport) -> None:
        """Check that every fact in *ad*, also an absence, was true at the time that the ad has for it."""
        if ad.site == OSO:
            return
        ad_values = attributes(ad)
        assert ad.as_of <= self.clock.now
        ages = {did: from_unix(second) for did, second in dict(ad_values["DatasetAsOf"]).items()}
        states = dict(ad_values["DatasetStates"])
        records = self._records()
        never_seen = {did for did in report.evaluation.snapshot.unseen_reasons if did not in records}
        for did in DIDS:
            at = ages.get(did, ad.as_of)
            if did not in states and did in records:  # an absence has no age in the ad
                at = min(at, records[did].read_at)
            expected = {"available": "AVAILABLE", "partial": "PARTIAL", None: None}[
                self._truth(at).get(did, {}).get(ad.site)
            ]
            if did in never_seen or self._is_false_answer(at):
                assert did not in states
            elif states.get(did) != "UNKNOWN":
                assert states.get(did) == expected, f"{ad.site} says {states.get(did)} of {did} as of {at}"

    def _is_false_answer(self, at: datetime) -> bool:
        """Return whether a fact of this time is from a believable fault; incomplete polls keep such facts."""
        if self._has_false_answers and at > self._broken_since:
            return True
        return any(begin < at <= end for begin, end in self._false_answers)

    def published(self, site: Site) -> Mapping[str, str]:
        """Return the published DatasetStates of *site*; empty without an ad."""
        ad = self.collector.ads.get(site)
        return dict(attributes(ad)["DatasetStates"]) if ad else {}

    def ages(self, site: Site) -> Mapping[Did, int]:
        """Return the time of each published fact, by dataset."""
        return _ages(self.collector.ads[site])

    def shows(self, truth: Truth) -> bool:
        """Return whether exactly *truth* is published, with facts of the current time."""
        words = {"available": "AVAILABLE", "partial": "PARTIAL"}
        for site in (CAM, RAL):
            ad = self.cycle.state.ads.get(site)
            wanted = {did: words[where[site]] for did, where in truth.items() if site in where}
            if (
                ad is None
                or self.published(site) != wanted
                or set(_ages(ad).values()) != {to_unix(self.clock.now)}
            ):
                return False
        return True

    def _records(self) -> Mapping[Did, DatasetRecord]:
        memory = self.cycle.state.memories.get(self.faulty.name)
        return memory.records if memory else {}

    @property
    def truth(self) -> Truth:
        """Return the current truth."""
        return self._truths[-1][1]

    def _truth(self, at: datetime) -> Truth:
        """Return the truth at *at*, in whole seconds as ads have it."""
        return next((truth for since, truth in reversed(self._truths) if to_unix(since) <= to_unix(at)), {})

    def _others_are_well(self) -> None:
        """Check that the healthy catalogue was read now, and that its site's ad has this time."""
        ad = self.collector.ads[OSO]
        assert self.published(OSO) == {ELSEWHERE: "AVAILABLE"}
        assert self.clock.now - ad.as_of <= POLICY.refresh_after
        assert self.cycle.state.memories["well"].answered_at == self.clock.now


def _ages(ad: SiteAd) -> dict[Did, int]:
    ad_values = attributes(ad)
    own = dict(ad_values["DatasetAsOf"])
    return {did: own.get(did, ad_values["DataLocalityAsOf"]) for did in DIDS}
