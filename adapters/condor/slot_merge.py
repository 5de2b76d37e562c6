"""Slots without a hook, hydrated in the collector by MERGE_STARTD_AD, again after each of their updates."""

import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta

from adapters.condor.bindings.client import MERGE
from adapters.readback import believable
from hydrator.domain.errors import ConfigError, PoolError, PublishError
from hydrator.domain.letter_case import merged_text
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock, Merged

from . import CondorClient
from .slot_ads import (
    NO_PART_OF_ANOTHER,
    OF_A_SLOT,
    OURS,
    Slot,
    SlotTime,
    arrived,
    batches,
    due,
    eligible,
    expected,
    left_over,
    slots_of,
)

AT_ONCE = 500
LONGEST_PAUSE = 2.0
BYTES_AT_ONCE = 8_000_000
"""What one connection carries: a collector takes 1,400 ads of 95 kB a second, and a call has a time limit."""


class SlotMerger:
    """Keeps ``Publisher`` and ``Merger``: each collector of the list gets its own merges.

    Only slots whose content differs, that say no ``hook``, at sites that we speak for. A collector
    acknowledges nothing: what did not arrive differs at the next look. Its *client* is its own, and ends
    with it.

    Args:
        client: asks the collectors.
        site_attributes: where a slot says its site; the first that it has counts.
        pace: slots a second, at most.
        interval: how often there is a turn; one takes no more slots than *pace* allows until the next.
        refresh: how far the age on a slot may be behind before it is sent again.
        clock: aware UTC time.
    """

    def __init__(
        self,
        client: CondorClient,
        site_attributes: Sequence[str],
        *,
        pace: float,
        interval: timedelta,
        refresh: timedelta = timedelta(minutes=5),
        clock: Clock,
        name: str = "merge",
    ) -> None:
        self._client = client
        self._attributes = tuple(site_attributes)
        self._pace = pace
        self._most = max(1, int(pace * interval.total_seconds()))
        self._refresh = refresh
        self._clock = clock
        self._name = name
        self._closed = threading.Event()
        self._times: dict[str, SlotTime] = {}
        self._interval = interval
        self._silent: dict[str, datetime] = {}
        self._failed: set[str] = set()
        self._sent: dict[str, dict[Slot, tuple[object, object, object]]] = {}

    @property
    def name(self) -> str:
        return self._name

    def close(self) -> None:
        """End the client, also under a turn."""
        self._closed.set()
        self._client.close()

    # as a merger

    def turn(self, ads: Mapping[Site, SiteAd], retires: Callable[[Site], bool]) -> Mapping[str, Merged]:
        """See :class:`hydrator.domain.ports.Merger`; a collector that failed in the last turn comes last."""

        def one(collector: str) -> Merged:
            return self._turn(collector, ads, retires)

        return self._each(one)

    def _turn(self, collector: str, ads: Mapping[Site, SiteAd], retires: Callable[[Site], bool]) -> Merged:
        slots = self._look(collector)
        mine = eligible(slots, ads)
        time = self._times.setdefault(collector, SlotTime())
        covered, missed = time.looked(mine, self._clock().timestamp())
        gone = left_over(slots, ads, retires)
        shown, missing = arrived(slots, self._sent.pop(collector, {}))
        if shown or not missing:
            self._silent.pop(collector, None)
        unheard = self._unheard(collector, missing) if missing and not shown else None
        seen = Merged(slots=len(mine), confirmed=shown, covered=covered, missed=missed, error=unheard)
        try:
            withdrawn = self._send(collector, slots, gone[: self._most], {})
            merged = self._send(collector, slots, due(slots, ads, self._refresh)[: self._most], ads)
        except PoolError as error:
            return replace(seen, error=str(error))
        return replace(seen, merged=merged, withdrawn=withdrawn)

    def _unheard(self, collector: str, missing: int) -> str | None:
        """Why nothing arrived: a collector may hang up on us after it took an ad.

        One that lets us merge may be slow to show it; that counts when it lasts for two intervals.
        """
        answer = self._client.ping("collector", "NEGOTIATOR", collector)
        now = self._clock()
        begun = self._silent.setdefault(collector, now)
        if not answer.allowed:
            known = f"it knows us as {answer.identity} (by {answer.method}) and denies that identity"
            return f"collector {collector}: {answer.reason or known}; {MERGE}"
        lasts = now - begun > 2 * self._interval
        return f"collector {collector}: of {missing} merges that it got none is there" if lasts else None

    # as a publisher

    def published(self) -> Mapping[Site, PublishedAd]:
        """By site, the oldest that one of its slots carries.

        Slots that carry nothing, or numbers that cannot be ours, do not count.
        """
        found: dict[Site, PublishedAd] = {}

        def look(collector: str) -> Merged:
            for slot in self._look(collector):
                if shown := _shown(slot, self._clock()):
                    known = found.get(shown.site, shown)
                    found[shown.site] = min(known, shown, key=lambda one: (one.generation, one.as_of))
            return Merged()

        self._told(self._each(look))
        return found

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Merge *ads* into the slots of their sites."""
        wanted = {ad.site: ad for ad in ads}
        self._told(self.turn(wanted, lambda _: False))
        self._settle(lambda slots: not due(slots, wanted, self._refresh))

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Take everything of ours out of the slots that carry what was merged for *sites*."""

        def one(collector: str) -> Merged:
            slots = self._look(collector)
            gone = [slot for slot in slots if slot.via == OURS and slot.told in sites]
            return Merged(withdrawn=self._send(collector, slots, gone, {}))

        self._told(self._each(one))
        self._settle(lambda slots: not any(slot.via == OURS and slot.told in sites for slot in slots))

    def _settle(self, done: Callable[[Sequence[Slot]], bool]) -> None:
        """Wait a short time until the collectors show it: they answer from forked copies of themselves."""
        pause = 0.01
        while pause < LONGEST_PAUSE:
            shown: list[bool] = []

            def look(collector: str, shown: list[bool] = shown) -> Merged:
                shown.append(done(self._look(collector)))
                return Merged()

            self._each(look)
            if all(shown) or self._closed.wait(pause):
                return
            pause *= 2

    # both

    def _each(self, work: Callable[[str], Merged]) -> Mapping[str, Merged]:
        """What *work* came to at every collector, whatever happens at another one."""
        found: dict[str, Merged] = {}
        try:
            collectors = self._client.collectors()
        except PoolError as error:
            return {"": Merged(error=str(error))}
        for collector in sorted(collectors, key=lambda one: (one in self._failed, one)):
            try:
                found[collector] = work(collector)
            except (PoolError, ConfigError) as error:
                found[collector] = Merged(error=str(error))
            if self._closed.is_set():
                return {}
        self._failed = {collector for collector, merged in found.items() if merged.error}
        return found or {"": Merged(error="no collector is configured (COLLECTOR_HOST)")}

    def _told(self, found: Mapping[str, Merged]) -> None:
        if wrong := [merged.error for merged in found.values() if merged.error]:
            raise PublishError(self._name, "; ".join(wrong))

    def _look(self, collector: str) -> list[Slot]:
        ads = self._client.slots_at(collector, [*OF_A_SLOT, *self._attributes], NO_PART_OF_ANOTHER)
        return slots_of(ads, self._attributes)

    def _send(
        self, collector: str, seen: Sequence[Slot], chosen: Sequence[Slot], ads: Mapping[Site, SiteAd]
    ) -> int:
        """Send what *ads* say into the *chosen* slots, or take it back where they say nothing."""
        texts = {slot.site or Site(""): "" for slot in chosen}
        texts |= {site: merged_text(ads[site]) for site in texts if site in ads}
        since = max((slot.heard for slot in seen), default=0)
        time = self._times.setdefault(collector, SlotTime())
        count = 0
        for batch in batches(chosen, texts, max(1, min(AT_ONCE, int(self._pace))), BYTES_AT_ONCE):
            if count and self._closed.wait(len(batch) / self._pace):
                break
            sites = {slot.site or Site("") for slot in batch}
            told: dict[str, str | None] = {site: texts[site] or None for site in sites}
            rows = [(slot.name, slot.address, slot.site or Site(""), slot.heard) for slot in batch]
            sent = set(self._client.merge(collector, told, rows, since))
            reached = [slot for slot in batch if slot.name in sent]
            for slot in reached:
                ad = ads.get(slot.site) if slot.site else None
                self._sent.setdefault(collector, {})[slot] = expected(ad)
            if ads:
                time.merged(reached, self._clock().timestamp())
            count += len(sent)
        return count


def _shown(slot: Slot, now: datetime) -> PublishedAd | None:
    if slot.via != OURS:
        return None
    try:
        return believable(slot.told, slot.generation, slot.as_of, slot.heard, now)
    except ValueError:
        return None
