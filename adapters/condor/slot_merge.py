"""Slots without a hook, hydrated in the collector by MERGE_STARTD_AD, again after each of their updates."""

import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta

from adapters.condor.bindings.client import MERGE_ADVICE
from adapters.readback import parse_published_ad
from hydrator.domain.classad import slot_ad_text
from hydrator.domain.errors import ConfigError, PoolError, PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock, MergeResult

from . import CondorClient
from .slot_ads import (
    NOT_DYNAMIC_SLOT,
    SLOT_ATTRIBUTES,
    VIA_MERGE,
    Slot,
    SlotTime,
    content_of,
    count_confirmed_merges,
    parse_slots,
    select_due_slots,
    select_mergeable_slots,
    select_slots_to_withdraw,
    split_into_batches,
)

MAX_BATCH_SLOTS = 500
MAX_PAUSE_SECONDS = 2.0
MAX_BATCH_BYTES = 8_000_000
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
        slots_per_second: float,
        interval: timedelta,
        refresh: timedelta = timedelta(minutes=5),
        clock: Clock,
        name: str = "merge",
    ) -> None:
        self._client = client
        self._site_attributes = tuple(site_attributes)
        self._slots_per_second = slots_per_second
        self._max_slots = max(1, int(slots_per_second * interval.total_seconds()))
        self._refresh = refresh
        self._clock = clock
        self._name = name
        self._close_event = threading.Event()
        self._slot_times: dict[str, SlotTime] = {}
        self._interval = interval
        self._unconfirmed_since: dict[str, datetime] = {}
        self._failed_collectors: set[str] = set()
        self._sent_contents: dict[str, dict[Slot, tuple[object, object, object]]] = {}

    @property
    def name(self) -> str:
        return self._name

    def close(self) -> None:
        """End the client, also under a turn."""
        self._close_event.set()
        self._client.close()

    # as a merger

    def run_once(
        self, ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
    ) -> Mapping[str, MergeResult]:
        """See :class:`hydrator.domain.ports.Merger`; a collector that failed in the last turn comes last."""

        def one(collector: str) -> MergeResult:
            return self._merge_at(collector, ads, is_retired)

        return self._run_at_collectors(one)

    def _merge_at(
        self, collector: str, ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
    ) -> MergeResult:
        slots = self._query_slots(collector)
        mine = select_mergeable_slots(slots, ads)
        time = self._slot_times.setdefault(collector, SlotTime())
        covered, missed = time.measure(mine, self._clock().timestamp())
        gone = select_slots_to_withdraw(slots, ads, is_retired)
        shown, missing = count_confirmed_merges(slots, self._sent_contents.pop(collector, {}))
        if shown or not missing:
            self._unconfirmed_since.pop(collector, None)
        unheard = self._missing_merges_reason(collector, missing) if missing and not shown else None
        seen = MergeResult(
            slot_count=len(mine),
            confirmed_count=shown,
            covered_slot_seconds=covered,
            uncovered_slot_seconds=missed,
            error=unheard,
        )
        try:
            withdrawn = self._send_merges(collector, slots, gone[: self._max_slots], {})
            merged = self._send_merges(
                collector, slots, select_due_slots(slots, ads, self._refresh)[: self._max_slots], ads
            )
        except PoolError as error:
            return replace(seen, error=str(error))
        return replace(seen, merged_count=merged, withdrawn_count=withdrawn)

    def _missing_merges_reason(self, collector: str, missing: int) -> str | None:
        """Why nothing arrived: a collector may hang up on us after it took an ad.

        One that lets us merge may be slow to show it; that counts when it lasts for two intervals.
        """
        answer = self._client.ping("collector", "NEGOTIATOR", collector)
        now = self._clock()
        begun = self._unconfirmed_since.setdefault(collector, now)
        if not answer.is_allowed:
            known = f"it knows us as {answer.identity} (by {answer.method}) and denies that identity"
            return f"collector {collector}: {answer.reason or known}; {MERGE_ADVICE}"
        lasts = now - begun > 2 * self._interval
        return f"collector {collector}: of {missing} merges that it got none is there" if lasts else None

    # as a publisher

    def published(self) -> Mapping[Site, PublishedAd]:
        """By site, the oldest that one of its slots carries.

        Slots that carry nothing, or numbers that cannot be ours, do not count.
        """
        found: dict[Site, PublishedAd] = {}

        def look(collector: str) -> MergeResult:
            for slot in self._query_slots(collector):
                if shown := _parse_slot_ad(slot, self._clock()):
                    known = found.get(shown.site, shown)
                    found[shown.site] = min(known, shown, key=lambda one: (one.generation, one.as_of))
            return MergeResult()

        self._raise_errors(self._run_at_collectors(look))
        return found

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Merge *ads* into the slots of their sites."""
        wanted = {ad.site: ad for ad in ads}
        self._raise_errors(self.run_once(wanted, lambda _: False))
        self._wait_until_visible(lambda slots: not select_due_slots(slots, wanted, self._refresh))

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Take everything of ours out of the slots that carry what was merged for *sites*."""

        def one(collector: str) -> MergeResult:
            slots = self._query_slots(collector)
            gone = [
                slot for slot in slots if slot.advertised_via == VIA_MERGE and slot.advertised_site in sites
            ]
            return MergeResult(withdrawn_count=self._send_merges(collector, slots, gone, {}))

        self._raise_errors(self._run_at_collectors(one))
        self._wait_until_visible(
            lambda slots: (
                not any(slot.advertised_via == VIA_MERGE and slot.advertised_site in sites for slot in slots)
            )
        )

    def _wait_until_visible(self, is_visible: Callable[[Sequence[Slot]], bool]) -> None:
        """Wait a short time until the collectors show it: they answer from forked copies of themselves."""
        pause = 0.01
        while pause < MAX_PAUSE_SECONDS:
            shown: list[bool] = []

            def look(collector: str, shown: list[bool] = shown) -> MergeResult:
                shown.append(is_visible(self._query_slots(collector)))
                return MergeResult()

            self._run_at_collectors(look)
            if all(shown) or self._close_event.wait(pause):
                return
            pause *= 2

    # both

    def _run_at_collectors(self, work: Callable[[str], MergeResult]) -> Mapping[str, MergeResult]:
        """What *work* came to at every collector, whatever happens at another one."""
        found: dict[str, MergeResult] = {}
        try:
            collectors = self._client.collectors()
        except PoolError as error:
            return {"": MergeResult(error=str(error))}
        for collector in sorted(collectors, key=lambda one: (one in self._failed_collectors, one)):
            try:
                found[collector] = work(collector)
            except (PoolError, ConfigError) as error:
                found[collector] = MergeResult(error=str(error))
            if self._close_event.is_set():
                return {}
        self._failed_collectors = {collector for collector, merged in found.items() if merged.error}
        return found or {"": MergeResult(error="no collector is configured (COLLECTOR_HOST)")}

    def _raise_errors(self, results: Mapping[str, MergeResult]) -> None:
        if wrong := [merged.error for merged in results.values() if merged.error]:
            raise PublishError(self._name, "; ".join(wrong))

    def _query_slots(self, collector: str) -> list[Slot]:
        ads = self._client.slots_at(collector, [*SLOT_ATTRIBUTES, *self._site_attributes], NOT_DYNAMIC_SLOT)
        return parse_slots(ads, self._site_attributes)

    def _send_merges(
        self,
        collector: str,
        all_slots: Sequence[Slot],
        target_slots: Sequence[Slot],
        ads: Mapping[Site, SiteAd],
    ) -> int:
        """Send what *ads* say into the *chosen* slots, or take it back where they say nothing."""
        texts = {slot.site or Site(""): "" for slot in target_slots}
        texts |= {site: slot_ad_text(ads[site]) for site in texts if site in ads}
        since = max((slot.last_heard_from for slot in all_slots), default=0)
        time = self._slot_times.setdefault(collector, SlotTime())
        count = 0
        for batch in split_into_batches(
            target_slots, texts, max(1, min(MAX_BATCH_SLOTS, int(self._slots_per_second))), MAX_BATCH_BYTES
        ):
            if count and self._close_event.wait(len(batch) / self._slots_per_second):
                break
            sites = {slot.site or Site("") for slot in batch}
            told: dict[str, str | None] = {site: texts[site] or None for site in sites}
            rows = [(slot.name, slot.address, slot.site or Site(""), slot.last_heard_from) for slot in batch]
            sent = set(self._client.merge(collector, told, rows, since))
            reached = [slot for slot in batch if slot.name in sent]
            for slot in reached:
                ad = ads.get(slot.site) if slot.site else None
                self._sent_contents.setdefault(collector, {})[slot] = content_of(ad)
            if ads:
                time.record_merge(reached, self._clock().timestamp())
            count += len(sent)
        return count


def _parse_slot_ad(slot: Slot, now: datetime) -> PublishedAd | None:
    if slot.advertised_via != VIA_MERGE:
        return None
    try:
        return parse_published_ad(
            slot.advertised_site, slot.generation, slot.as_of, slot.last_heard_from, now
        )
    except ValueError:
        return None
