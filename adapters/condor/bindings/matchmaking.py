"""A job beside slots, in the child process: the value of each clause of both, as the bindings evaluate it."""
# ruff: noqa: ANN401  (the bindings have no types)

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .clauses import clauses, names
from .values import is_number, plain, unparsed

RESOURCES = ("Cpus", "Memory", "Disk", "GPUs")
"""What a partitionable slot hands out; ``TotalSlot…`` is what it has when nothing of it is in use."""
Ad = dict[str, Any]


class Match:
    """One job beside many slots."""

    def __init__(
        self, classad: Any, job: Any, facts: Sequence[str], sites: Sequence[str], whole: Sequence[str]
    ) -> None:
        self._classad = classad
        self._job = job
        self._facts = facts
        self._sites = sites
        self._clauses = clauses("Requirements", self._text_in(job), whole)
        self._parsed: dict[str, Any] = {}
        self._resourceful: dict[str, bool] = {}

    def asked_of_slots(self) -> set[str]:
        """The names that the job's expressions mention, also those that they mention by way of others."""
        return self._mentioned({"Requirements", *self._clauses, *self._facts})

    def _mentioned(self, texts: Iterable[str]) -> set[str]:
        """The names in *texts*, and those that the job's attributes of these names mention in turn."""
        found: set[str] = set()
        new = names(" ".join(texts))
        while new:
            found |= new
            text_in = self._text_in(self._job)
            mentioned = (names(text) for name in new if (text := text_in(name)) is not None)
            new = set().union(*mentioned) - found
        return found

    def answer(self, slots: Iterable[tuple[Any, Any]]) -> Ad:
        groups: dict[str, Ad] = {}
        for ad, carrier in slots:
            target = ad
            if carrier is not None:
                target = carrier
                added = [name for name in ad if name not in carrier]
                carrier.update(ad)
            self._add(groups, target)
            if carrier is not None:
                for name in added:
                    del carrier[name]
        requests = {name: self._value(f"Request{name}", self._job) for name in RESOURCES}
        return {"clauses": self._clauses, "requests": requests, "groups": list(groups.values())}

    def _add(self, groups: dict[str, Ad], slot: Any) -> None:
        one = self._judged(slot)
        key = json.dumps(one, sort_keys=True)
        group = groups.get(key)
        if group is None:
            facts = [self._value(fact, self._job, slot) for fact in self._facts]
            extra = {"as_of": self._value("DataLocalityAsOf", slot), "example": slot["Name"]}
            group = groups[key] = {**one, "facts": facts, **extra, "slots": 0, "most": {}}
        group["slots"] += 1
        for name in RESOURCES:
            for attribute in (name, f"TotalSlot{name}"):
                value = self._value(attribute, slot)
                if is_number(value):
                    group["most"][attribute] = max(value, group["most"].get(attribute, value))

    def _judged(self, slot: Any) -> Ad:
        """What makes slots alike: their site, what they are, and every clause's value."""
        text = unparsed(slot, "Requirements") if "Requirements" in slot else "undefined"
        theirs = clauses("Requirements", self._text_in(slot), ())
        site = next((value for name in self._sites if (value := self._value(name, slot))), None)
        one: Ad = {
            "site": site if site is None else str(site),
            "told_site": self._value("DataLocalitySite", slot),
            "generation": self._value("DataLocalityGeneration", slot),
            "via": self._value("DataLocalityVia", slot),
            "state": self._value("State", slot),
            "partitionable": self._value("PartitionableSlot", slot) is True,
            "dynamic": self._value("DynamicSlot", slot) is True,
            "requirements": text,
            "theirs": theirs,
            "job_values": [self._truth(clause, self._job, slot) for clause in self._clauses],
            "slot_values": [self._truth(clause, slot, self._job) for clause in theirs],
        }
        # where a clause does not hold the whole does not: long ones need not be evaluated again
        hopeful = {*one["job_values"], *one["slot_values"]} == {"true"}
        one["matches"] = hopeful and bool(self._job.symmetricMatch(slot))
        if one["partitionable"]:
            with self._emptied(slot):
                one["job_values_empty"] = self._again(self._clauses, one["job_values"], self._job, slot)
                one["slot_values_empty"] = self._again(theirs, one["slot_values"], slot, self._job)
        return one

    def _again(self, texts: Sequence[str], values: Sequence[str], my: Any, target: Any) -> list[str]:
        """The values anew, of those that depend on what the slot has."""
        return [
            self._truth(text, my, target) if self._depends_on_resources(text) else value
            for text, value in zip(texts, values, strict=True)
        ]

    def _depends_on_resources(self, clause: str) -> bool:
        if clause not in self._resourceful:
            mentioned = self._mentioned({clause})
            self._resourceful[clause] = not {name.lower() for name in RESOURCES}.isdisjoint(
                name.lower() for name in mentioned
            )
        return self._resourceful[clause]

    @contextmanager
    def _emptied(self, slot: Any) -> Iterator[None]:
        """The partitionable slot as it is when nothing of it is in use."""
        before = {name: slot.lookup(name) for name in RESOURCES if name in slot}
        for name in before:
            if f"TotalSlot{name}" in slot:
                slot[name] = slot.lookup(f"TotalSlot{name}")
        yield
        for name, value in before.items():
            slot[name] = value

    def _text_in(self, ad: Any) -> Callable[[str], str | None]:
        return lambda name: unparsed(ad, name) if name in ad else None

    def _evaluated(self, text: str, my: Any, target: Any = None) -> Any:
        if text not in self._parsed:
            self._parsed[text] = self._classad.ExprTree(text)
        return self._parsed[text].eval(my, target) if target is not None else self._parsed[text].eval(my)

    def _truth(self, text: str, my: Any, target: Any) -> str:
        """``true`` where it lets the two match, else ``false``, ``undefined`` or ``error``."""
        try:
            value = self._evaluated(text, my, target)
        except Exception:  # noqa: BLE001  (the bindings raise several kinds)
            return "error"
        if value is self._classad.Value.Undefined:
            return "undefined"
        if plain(value) and not isinstance(value, str):
            return "true" if value else "false"
        return "error"

    def _value(self, text: str, my: Any, target: Any = None) -> Any:
        """A scalar, None for anything else."""
        try:
            value = self._evaluated(text, my, target)
        except Exception:  # noqa: BLE001
            return None
        return value if plain(value) else None
