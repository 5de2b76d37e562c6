"""Calls to collectors, in the child process: ads of sites, daemons and slots."""
# ruff: noqa: ANN401  (the bindings have no types)

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hydrator.domain.ads import contract
from hydrator.domain.ads.expressions import SLOT_EXPRESSIONS

from .library import SITE_WIDE_ATTRIBUTES, Ad, Bindings, CallError, failure_of

SITE_AD_TYPE = "DataLocality"
SITE_AD_ATTRIBUTES = (
    "Name",
    contract.GENERATION,
    contract.AS_OF,
    contract.OPEN_UNTIL,
    "LastHeardFrom",
    "AuthenticatedIdentity",
)
SETTLE_SECONDS = 3.0
"""Seconds until an update may be visible: the collector answers queries from forked copies of itself."""
MERGE_ATTRIBUTES = (
    *SLOT_EXPRESSIONS,
    contract.SITE,
    *SITE_WIDE_ATTRIBUTES,
    contract.BACKLOG,
    contract.OPEN_UNTIL,
    contract.TRUNCATED,
    contract.AS_OF,
    contract.GENERATION,
    contract.VERSION,
    contract.SOURCE,
)
"""Attributes that a merge writes into a slot's ad; the withdrawal of a merge sets them to undefined.

A merge also sets those to undefined that the site's ad does not have, because the slot may have an older ad.
"""


class CollectorCalls(Bindings):
    """Queries and updates of the pool's collectors."""

    # ads of sites

    def site_ads(self) -> list[Ad]:
        """Return all site ads, as JSON."""
        return self.query_scalars("Any", SITE_AD_ATTRIBUTES, f'MyType == "{SITE_AD_TYPE}"')

    def advertise(self, ads: Sequence[tuple[str, str]], lifetime: int) -> int | None:
        """Send the ads; return the time when the collector received the last ad (by its clock), or None."""
        site_ads = [self._build_site_ad(name, text, lifetime) for name, text in ads]
        self._send(site_ads, "UPDATE_AD_GENERIC")
        times = (contract.GENERATION, contract.AS_OF, contract.OPEN_UNTIL)
        sent = {ad["Name"]: [ad.get(name) for name in times] for ad in site_ads}

        def is_visible(ads: list[Ad]) -> bool:
            current = {ad["Name"]: [ad[name] for name in times] for ad in ads}
            return all(current.get(name) == content for name, content in sent.items())

        ads_now = self._wait_until_visible(is_visible, self.site_ads)
        return max((ad["LastHeardFrom"] for ad in ads_now if ad["Name"] in sent), default=None)

    def invalidate(self, names: Sequence[str]) -> None:
        """Remove the site ads with these names."""
        self._send([self._build_invalidation(name) for name in names], "INVALIDATE_ADS_GENERIC")
        self._wait_until_visible(lambda ads: not {ad["Name"] for ad in ads} & set(names), self.site_ads)

    # ads of slots

    def slots(self, attributes: Sequence[str], constraint: str, collector: str | None) -> list[Ad]:
        """Return slot ads from the first collector that answers, or from *collector*."""
        return self.query_scalars("Slot", attributes, constraint, collector)

    def collectors(self) -> list[str]:
        """Return the addresses of all collectors."""
        return sorted(self.collector_addresses())

    def merge(
        self,
        collector: str,
        texts: Mapping[str, str | None],
        slots: Sequence[tuple[str, str, str, int]],
        since: int,
    ) -> list[str]:
        """Merge into slots' ads at *collector*, over one connection; return the names of the merged slots.

        Skip a slot that a startd updated after the caller's query. The ad with this slot's name may now be
        from another startd, and the merge would overwrite the address of that startd in the ad.

        Args:
            collector: the address of one collector.
            texts: by site, the lines of the site ad; None withdraws the merge.
            slots: name, address, site and LastHeardFrom, as the caller read them.
            since: the latest LastHeardFrom that the caller read in any slot's ad.
        """
        updates = self.query_ads(
            "Slot", ["Name", "MyAddress", "LastHeardFrom"], f"LastHeardFrom >= {since}", collector
        )
        update_times = {(ad.get("Name"), ad.get("MyAddress")): ad.get("LastHeardFrom") for ad in updates}
        updated_names = {name for name, _ in update_times}
        contents = {site: self._merge_attributes(site, text) for site, text in texts.items()}
        ads = [
            self._build_ad(contents[site], Name=name, MyAddress=address)
            for name, address, site, last_heard_from in slots
            if name not in updated_names or update_times.get((name, address)) == last_heard_from
        ]
        if ads:
            self._send_to(collector, ads, "MERGE_STARTD_AD")
        return [ad["Name"] for ad in ads]

    # updates

    def _send(self, ads: list[Any], command: str) -> None:
        """Send *ads* to every collector.

        Raises:
            CallError: a collector did not accept the ads.
        """
        collectors = self.collector_addresses()
        if not collectors:
            raise CallError("pool", "no collector is configured (COLLECTOR_HOST)")
        failures = []
        for address in collectors:
            try:
                self._send_to(address, ads, command)
            except CallError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def _send_to(self, address: str, ads: list[Any], command: str) -> None:
        try:
            self.htcondor.Collector(address).advertise(ads, command)
        except self.htcondor.HTCondorException as exc:
            raise failure_of(exc, f"collector {address}") from exc

    @staticmethod
    def _wait_until_visible(
        is_visible: Callable[[list[Ad]], bool], read_ads: Callable[[], list[Ad]]
    ) -> list[Ad]:
        """Query until *is_visible* is true or SETTLE_SECONDS are over: collectors acknowledge no update."""
        deadline = time.monotonic() + SETTLE_SECONDS
        pause = 0.01
        while True:
            ads = read_ads()
            if is_visible(ads) or time.monotonic() > deadline:
                return ads
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    # building of ads

    def _build_ad(self, attributes: Mapping[str, Any] | None = None, **more: Any) -> Any:
        ad = self.classad.ClassAd()
        ad.update(attributes or {}, **more)
        return ad

    def _parse_lines(self, site: str, text: str, shared: Sequence[str] = ()) -> dict[str, Any]:
        """Parse the lines ``Name = literal`` of a site ad; put the values of *shared* names in parentheses.

        If many ads have the same long value, a collector stores a value in parentheses only once.
        """
        lines = (line.partition(" = ")[::2] for line in text.splitlines())
        return {
            name: self.parse_expression(
                f"({literal})" if name in shared else literal, f"{name} of site {site}"
            )
            for name, literal in lines
        }

    def _build_site_ad(self, name: str, text: str, lifetime: int) -> Any:
        ad = self._parse_lines(name, text)
        return self._build_ad(ad, MyType=SITE_AD_TYPE, Name=name, ClassAdLifetime=lifetime)

    def _merge_attributes(self, site: str, text: str | None) -> dict[str, Any]:
        removed = dict.fromkeys(MERGE_ATTRIBUTES, self.classad.Value.Undefined)
        if text is None:
            return removed
        lines = self._parse_lines(site, text, SITE_WIDE_ATTRIBUTES)
        logic = {name: self.classad.ExprTree(text) for name, text in SLOT_EXPRESSIONS.items()}
        return {**removed, contract.SOURCE: "merge", **lines, **logic}

    def _build_invalidation(self, name: str) -> Any:
        """Build the query for INVALIDATE_ADS_GENERIC. TargetType is the MyType of the ads, not "Generic"."""
        own_name = self.classad.ExprTree(f"Name =?= {self.classad.quote(name)}")
        return self._build_ad(MyType="Query", TargetType=SITE_AD_TYPE, Name=name, Requirements=own_name)
