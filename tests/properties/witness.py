"""A witness of cycles: it hears every answer of every catalogue, and knows what may be said after it.

It is written against the promises in docs/explanation/reliability.md and shares no code
with what it judges: it reads ads with an expression of its own.
"""

import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.model import Did, ReplicaState, Seen, Site, SiteAd, Survey
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.breaker import HoldCause
from hydrator.reconcile.state import approved_losses

SAYS = {
    ReplicaState.COMPLETE: "AVAILABLE",
    ReplicaState.INCOMING: "STAGING",
    ReplicaState.PARTIAL: "PARTIAL",
    ReplicaState.ON_TAPE: "NEARLINE",
    ReplicaState.STUCK: "STUCK",
}
Place = tuple[Site, Did]


def lines_of(ad: SiteAd) -> dict[str, str]:
    return dict(ad.content)


def states_of(ad: SiteAd) -> dict[Did, str]:
    return {
        Did(did): state for did, state in re.findall(r"'([^']*)'=\"(\w+)\"", lines_of(ad)["DatasetStates"])
    }


def ages_of(ad: SiteAd) -> dict[Did, int]:
    return {Did(did): int(at) for did, at in re.findall(r"'([^']*)'=(\d+)", lines_of(ad)["DatasetAsOf"])}


def seconds(moment: datetime) -> int:
    return int(moment.timestamp())


@dataclass
class Witness:
    """What was really said, and when.

    ``last``: by catalogue, the places it listed when it last spoke of them.
    ``said``: all that was ever said: where, what, in which state, when.
    ``gone``: when each place was said to be empty by one while no other listed
    it, since somebody last did. ``looked``: when each site was spoken of. ``named``: by
    catalogue, the sites it names, without those that it could never look at.
    """

    last: dict[str, set[Place]] = field(default_factory=dict)
    named: dict[str, frozenset[Site]] = field(default_factory=dict)
    said: set[tuple[Site, Did, str, int]] = field(default_factory=set)
    gone: dict[Place, list[datetime]] = field(default_factory=dict)
    looked: dict[Site, set[int]] = field(default_factory=dict)
    fresh: set[Site] = field(default_factory=set)
    listed: dict[Site, frozenset[Did]] = field(default_factory=dict)
    generations: dict[tuple[str, Site], int] = field(default_factory=dict)
    contents: dict[tuple[Site, int], object] = field(default_factory=dict)

    def forget_all(self) -> None:
        """The daemon lost its state; what it once published stays said."""
        self.last, self.named, self.gone, self.listed = {}, {}, {}, {}

    def hear(self, surveys: Mapping[str, Survey], wanted: AbstractSet[Did], now: datetime) -> None:
        """Take in the answers of one cycle; a catalogue that failed is not among them."""
        said, empty = set[Place](), set[Place]()
        self.fresh = set()
        for name, survey in surveys.items():
            mine = self.last.setdefault(name, set())
            seen = {d: r for d, r in survey.readings.items() if isinstance(r, Seen) and d in wanted}
            read = {
                site
                for site in survey.sites
                if not seen or any(site not in reading.unreachable_sites for reading in seen.values())
            }
            self.named[name] = read | (survey.sites & self.named.get(name, frozenset()))
            self.fresh |= read
            for site in read:
                self.looked.setdefault(site, set()).add(seconds(now))
            for did, reading in seen.items():
                for replica in reading.replicas:
                    self.said.add((replica.site, did, SAYS[replica.state], seconds(now)))
                here = {(replica.site, did) for replica in reading.replicas}
                not_here = {(site, did) for site in survey.sites - reading.unreachable_sites} - here
                mine -= not_here
                mine |= here
                said |= here
                empty |= not_here
        for mine in self.last.values():
            mine -= {(site, did) for site, did in mine if did not in wanted}
        for place in said:
            self.gone.pop(place, None)
        for place in empty - said:
            if not self.lists(place):
                self.gone.setdefault(place, []).append(now)

    def lists(self, place: Place) -> bool:
        """Is it the last word of some catalogue that this is there?"""
        return any(place in mine for mine in self.last.values())

    # ---- what may be said after it

    def judge_departures(self, report: CycleReport, rules: ReconcilePolicy) -> None:
        """Nothing leaves but what was said to be gone; much at once only when it was said often enough."""
        wanted, view, limits = report.demand.dids, report.evaluation.snapshot.sites, rules.breaker_limits
        before = {site: dids & wanted for site, dids in self.listed.items() if not rules.is_retired(site)}
        after = {site: frozenset(facts.facts) for site, facts in view.items()}
        doubtful: dict[Site, set[Did]] = {}
        for site, dids in before.items():
            let_go = approved_losses(report.commands).get(site, frozenset())
            for did in dids - after.get(site, frozenset()) - let_go:
                assert not self.lists((site, did)), f"{did} left {site} though nobody said that it is gone"
                if len(self.gone.get((site, did), ())) <= limits.confirming_polls:
                    doubtful.setdefault(site, set()).add(did)
        for site, dids in doubtful.items():
            self._may_go(dids, before[site], limits.site_share, limits.min_datasets, f"{site}")
        self._may_go(
            [(site, did) for site, dids in doubtful.items() for did in dids],
            [(site, did) for site, dids in before.items() for did in dids],
            limits.all_share,
            limits.min_datasets,
            "all sites",
        )
        left = {did for site in before for did in after.get(site, frozenset()) & wanted}
        assert left or len(set[Did]().union(*doubtful.values())) < 2, "the last datasets of all left at once"
        self.listed = after

    @staticmethod
    def _may_go(
        gone: Collection[object], of: Collection[object], share: float, least: int, where: str
    ) -> None:
        assert len(gone) < least or len(gone) <= share * len(of), (
            f"{len(gone)} of {len(of)} left {where} at once, and nothing confirmed it"
        )

    def judge_holds(self, report: CycleReport) -> None:
        """Only what jobs want and a catalogue no longer lists is held: losing demand is no loss."""
        for site, held in report.evaluation.state.held_losses.items():
            assert held.missing_polls.keys() <= report.demand.dids, f"{site}: held, and no job wants it"
            if held.cause is HoldCause.UNNAMED:
                assert not any(site in sites for sites in self.named.values())
            else:
                assert not any(self.lists((site, did)) for did in held.missing_polls), (
                    f"{site}: held, and listed"
                )

    def judge_ad(self, ad: SiteAd) -> None:
        """Each fact was said, just so, at the time that the ad gives; at no time is it younger."""
        states, ages = states_of(ad), ages_of(ad)
        as_of = seconds(ad.as_of)
        assert as_of in self.looked[ad.site], f"{ad.site} was not looked at when its ad says so"
        assert ages.keys() <= states.keys()
        for did, state in states.items():
            at = ages.get(did, as_of)
            assert at <= as_of
            if state != "UNKNOWN":
                assert (ad.site, did, state, at) in self.said, f"nobody said so at {at}: {did} {state}"
        listed = lines_of(ad)["AvailableDatasets"].strip("{}").replace('"', "").split(",")
        assert [did for did in listed if did] == sorted(d for d, s in states.items() if s == "AVAILABLE")

    def judge_thought(self, report: CycleReport, rules: ReconcilePolicy) -> None:
        """A fact reads UNKNOWN if, and only if, it is older than the bound; no site ages for nothing."""
        thought, now, bound = report.evaluation, seconds(report.started_at), rules.max_age.total_seconds()
        for site, ad in thought.ads.items():
            self.judge_ad(ad)
            ages = ages_of(ad)
            for did, state in states_of(ad).items():
                age = now - ages.get(did, seconds(ad.as_of))
                assert (age > bound) == (state == "UNKNOWN"), f"{did} at {site} is {state} after {age} s"
            if site in thought.snapshot.sites:
                assert states_of(ad).keys() == thought.snapshot.sites[site].facts.keys()
            if site in self.fresh and site not in thought.state.held_losses:
                assert seconds(ad.as_of) == now, f"{site} was looked at, and ages"

    def judge_shown(self, publisher: str, ads: Mapping[Site, SiteAd]) -> None:
        """What is shown is true, no generation goes back, and none means two things."""
        for site, ad in ads.items():
            self.judge_ad(ad)
            assert ad.generation >= self.generations.get((publisher, site), 0)
            self.generations[publisher, site] = ad.generation
            assert self.contents.setdefault((site, ad.generation), ad.content) == ad.content
