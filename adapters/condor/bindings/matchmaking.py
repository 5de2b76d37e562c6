"""Match of a job with slots, in the child process that runs HTCondor's bindings.

The match evaluates each clause of the job and of the slot.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from .clauses import find_names, split_into_clauses
from .values import Ad, expression_text, is_number, is_plain

RESOURCES = ("Cpus", "Memory", "Disk", "GPUs")
"""Resources of a partitionable slot; ``TotalSlot…`` is the amount when nothing of it is in use."""


class JobMatch:
    """Evaluation of one job against many slots."""

    def __init__(
        self,
        classad: Any,
        job: Any,
        facts: Sequence[str],
        site_attributes: Sequence[str],
        atomic_attributes: Sequence[str],
    ) -> None:
        self._classad = classad
        self._job = job
        self._facts = facts
        self._site_attributes = site_attributes
        self._clauses = split_into_clauses("Requirements", self._text_reader(job), atomic_attributes)
        self._parse = cache(classad.ExprTree)
        self._depends_on_resources = cache(self._mentions_resources)

    def collect_slot_attributes(self) -> set[str]:
        """Return the attribute names that the job's expressions use, directly or through other attributes."""
        return self._collect_names({"Requirements", *self._clauses, *self._facts})

    def _collect_names(self, texts: Iterable[str]) -> set[str]:
        """Return the names in *texts*, the names in the job's attributes with these names, and so on."""
        names: set[str] = set()
        new = find_names(" ".join(texts))
        while new:
            names |= new
            text_in = self._text_reader(self._job)
            mentioned = (find_names(text) for name in new if (text := text_in(name)) is not None)
            new = set().union(*mentioned) - names
        return names

    def evaluate_slots(self, slots: Iterable[tuple[Any, Any]]) -> Ad:
        """Evaluate slots, each with the long attributes of its site; return groups of alike slots."""
        groups: dict[str, Ad] = {}
        for ad, carrier in slots:
            if carrier is None:
                self._add_to_group(groups, ad)
                continue
            added = [name for name in ad if name not in carrier]
            carrier.update(ad)
            self._add_to_group(groups, carrier)
            for name in added:
                del carrier[name]
        requests = {name: self._evaluate_scalar(f"Request{name}", self._job) for name in RESOURCES}
        return {"clauses": self._clauses, "requests": requests, "groups": list(groups.values())}

    def _add_to_group(self, groups: dict[str, Ad], slot: Any) -> None:
        one = self._evaluate_slot(slot)
        key = json.dumps(one, sort_keys=True)
        group = groups.get(key)
        if group is None:
            facts = [self._evaluate_scalar(fact, self._job, slot) for fact in self._facts]
            extra = {"as_of": self._evaluate_scalar("DataLocalityAsOf", slot), "example": slot["Name"]}
            group = groups[key] = {**one, "facts": facts, **extra, "slots": 0, "largest_resources": {}}
        group["slots"] += 1
        for name in RESOURCES:
            for attribute in (name, f"TotalSlot{name}"):
                value = self._evaluate_scalar(attribute, slot)
                if is_number(value):
                    group["largest_resources"][attribute] = max(
                        value, group["largest_resources"].get(attribute, value)
                    )

    def _evaluate_slot(self, slot: Any) -> Ad:
        """Return the values that define a group of alike slots: site, kind, and the value of every clause."""
        text = expression_text(slot, "Requirements") if "Requirements" in slot else "undefined"
        theirs = split_into_clauses("Requirements", self._text_reader(slot), ())
        site = next(
            (value for name in self._site_attributes if (value := self._evaluate_scalar(name, slot))), None
        )
        one: Ad = {
            "site": site if site is None else str(site),
            "advertised_site": self._evaluate_scalar("DataLocalitySite", slot),
            "generation": self._evaluate_scalar("DataLocalityGeneration", slot),
            "via": self._evaluate_scalar("DataLocalityVia", slot),
            "state": self._evaluate_scalar("State", slot),
            "partitionable": self._evaluate_scalar("PartitionableSlot", slot) is True,
            "dynamic": self._evaluate_scalar("DynamicSlot", slot) is True,
            "requirements": text,
            "theirs": theirs,
            "job_values": [self._truth_value(clause, self._job, slot) for clause in self._clauses],
            "slot_values": [self._truth_value(clause, slot, self._job) for clause in theirs],
        }
        # if one clause is not true, Requirements is not true: skip the costly evaluation
        all_true = {*one["job_values"], *one["slot_values"]} == {"true"}
        one["matches"] = all_true and bool(self._job.symmetricMatch(slot))
        if one["partitionable"]:
            with self._assume_empty(slot):
                one["job_values_empty"] = self._reevaluate(self._clauses, one["job_values"], self._job, slot)
                one["slot_values_empty"] = self._reevaluate(theirs, one["slot_values"], slot, self._job)
        return one

    def _reevaluate(self, texts: Sequence[str], values: Sequence[str], my: Any, target: Any) -> list[str]:
        """Evaluate clauses again if they depend on the slot's resources; return the values of *texts*."""
        return [
            self._truth_value(text, my, target) if self._depends_on_resources(text) else value
            for text, value in zip(texts, values, strict=True)
        ]

    def _mentions_resources(self, clause: str) -> bool:
        resources = {name.lower() for name in RESOURCES}
        return any(name.lower() in resources for name in self._collect_names({clause}))

    @contextmanager
    def _assume_empty(self, slot: Any) -> Iterator[None]:
        """Set the resources of a partitionable slot to the values of an empty slot."""
        before = {name: slot.lookup(name) for name in RESOURCES if name in slot}
        for name in before:
            if f"TotalSlot{name}" in slot:
                slot[name] = slot.lookup(f"TotalSlot{name}")
        yield
        for name, value in before.items():
            slot[name] = value

    def _text_reader(self, ad: Any) -> Callable[[str], str | None]:
        return lambda name: expression_text(ad, name) if name in ad else None

    def _truth_value(self, text: str, my: Any, target: Any) -> str:
        """Evaluate a clause: return ``true`` (it allows the match), ``false``, ``undefined`` or ``error``."""
        try:
            value = self._parse(text).eval(my, target)
        except Exception:  # noqa: BLE001  (the bindings raise several kinds of errors)
            return "error"
        if value is self._classad.Value.Undefined:
            return "undefined"
        if is_plain(value) and not isinstance(value, str):
            return "true" if value else "false"
        return "error"

    def _evaluate_scalar(self, text: str, my: Any, target: Any = None) -> Any:
        """Evaluate *text* to a scalar; None for any other value."""
        try:
            value = self._parse(text).eval(my, target)
        except Exception:  # noqa: BLE001
            return None
        return value if is_plain(value) else None
