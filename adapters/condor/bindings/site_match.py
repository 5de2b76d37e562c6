"""Match of a job with the slots of each site, as if the job's data were there, in the child process."""
# ruff: noqa: ANN401  (the bindings have no types)

import json
from collections.abc import Iterable, Sequence
from typing import Any

from .matchmaking import RESOURCES, JobMatch
from .values import Ad, expression_text

DATA_CLAUSE = "DataLocalityHere"
_IRRELEVANT = frozenset({"name", "myaddress", "state"})
"""Attributes in which slots may differ that match alike, unless the job refers to them."""
_AS_OF_SECONDS = 600
"""Slots whose facts differ in age by less than this count as alike."""


class SiteMatcher:
    """Evaluation of one job against many slots, by site; alike slots of a site are evaluated once.

    Args:
        job: the job's ad.
        site_attributes: slot attributes with the site; the first that a slot has gives its site.
    """

    def __init__(self, classad: Any, job: Any, site_attributes: Sequence[str]) -> None:
        self._job = job
        self._satisfied = classad.ClassAd(str(job))
        self._satisfied[DATA_CLAUSE] = True
        self._site_attributes = site_attributes
        self.slot_attributes = JobMatch(classad, job, (), site_attributes, ()).collect_slot_attributes()

    def evaluate_slots(self, pairs: Iterable[tuple[Any, Any]]) -> Ad:
        """Evaluate slots, each with the long attributes of its site; return ``sites`` and ``matches_now``."""
        verdicts: dict[str, tuple[bool, bool]] = {}
        sites: set[str] = set()
        matches_now = False
        for slot, carrier in pairs:
            site = self._find_site(slot)
            key = json.dumps([site, *self._signature(slot)])
            if key not in verdicts:
                verdicts[key] = self._evaluate(slot, carrier)
            is_match, would_match = verdicts[key]
            matches_now = matches_now or is_match
            if would_match and site is not None:
                sites.add(site)
        return {"sites": sorted(sites), "matches_now": matches_now}

    def _find_site(self, slot: Any) -> str | None:
        for name in self._site_attributes:
            value = slot.eval(name) if name in slot else None
            if isinstance(value, str) and value:
                return value
        return None

    def _signature(self, slot: Any) -> list[tuple[str, str]]:
        """Return the attributes in which two slots of a site must agree to match the same jobs."""
        skipped = {*(_IRRELEVANT - {name.lower() for name in self.slot_attributes}), "datalocalityasof"}
        if slot.get("PartitionableSlot") is True:
            skipped |= {name.lower() for name in RESOURCES}
        texts = [(name.lower(), expression_text(slot, name)) for name in slot if name.lower() not in skipped]
        as_of = slot.get("DataLocalityAsOf")
        age = str(as_of // _AS_OF_SECONDS) if type(as_of) is int else ""
        return [*sorted(texts), ("datalocalityasof", age)]

    def _evaluate(self, slot: Any, carrier: Any) -> tuple[bool, bool]:
        """Return whether *slot*, if it were empty, matches the job now, and would match with the data."""
        ad = carrier if carrier is not None else slot
        before = {name: ad.lookup(name) if name in ad else None for name in {*slot, *RESOURCES}}
        if carrier is not None:
            ad.update(slot)
        for name in RESOURCES:
            if f"TotalSlot{name}" in ad and ad.get("PartitionableSlot") is True:
                ad[name] = ad.lookup(f"TotalSlot{name}")
        try:
            would_match = bool(self._satisfied.symmetricMatch(ad))
            return would_match and bool(self._job.symmetricMatch(ad)), would_match
        finally:
            for name, value in before.items():
                if value is not None:
                    ad[name] = value
                elif name in ad:
                    del ad[name]
