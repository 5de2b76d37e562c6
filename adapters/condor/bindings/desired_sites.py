"""``DESIRED_Sites`` of queued jobs, in the child process: who is alike, and edits that spoil nobody's.

The bindings edit one attribute a transaction, of jobs by their ids or of all
that fit a constraint, and a user may edit the same job meanwhile. So first
the mark is put on jobs by their ids, with a word that nobody else has and
with what stood there; then ``DESIRED_Sites`` of those with this word that
still have what stood there; then the word is taken off. Wherever this is
broken off, what stands beside the mark is ours, or it is a user's.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .values import plain

ID = ("ClusterId", "ProcId")
ATTRIBUTE = "DESIRED_Sites"
ASKS = "DataLocalityDesiredSites"
KEPT = "DataLocalityDesiredSitesKept"
FIELDS = {"value": "Value", "own": "Own", "was": "Was", "pending": "Pending"}
OF_A_JOB = ("RequiredDatasets", "DataLocality", "DataLocalityAnyAfter", "DataLocalityMaxAge")
GROUPED = (*OF_A_JOB, ASKS, ATTRIBUTE, KEPT, "JobStatus")
IDLE = "JobStatus == 1"
QUEUED = "JobStatus =!= 3 && JobStatus =!= 4"
EDITS_AT_ONCE = 1000
Ad = dict[str, Any]


class Refused(Exception):
    """The schedd did not do what it was asked; the text is why."""


class QueuedSites:
    """The queue of one schedd.

    Args:
        classad: the bindings' module.
        failure: what the bindings raise.
        queue: their schedd.
        group_by: their option for one ad a combination of attributes.
        strings: reads an attribute that is a list of texts.
    """

    def __init__(
        self,
        classad: Any,
        failure: type[Exception],
        queue: Any,
        group_by: Any,
        strings: Callable[[Any, str], list[str]],
    ) -> None:
        self._classad = classad
        self._failure = failure
        self._queue = queue
        self._group_by = group_by
        self._strings = strings

    def alike(self) -> list[Ad]:
        """Idle jobs that ask, or are marked, one row for those that are alike."""
        which = f"{IDLE} && ({ASKS} =?= true || {KEPT} isnt undefined)"
        return [self._row(ad) for ad in self._queue.query(which, list(GROUPED), opts=self._group_by)]

    def place(self, row: Ad, value: str | None, own: str | None, keep: bool, at_most: int) -> int:
        """See :class:`hydrator.domain.ports.JobSites`; *row* is one of :meth:`alike`."""
        which = self._which(row) + (" && DataLocalityHere =!= true" if keep else "")
        found = self._queue.query(which, [*ID, ATTRIBUTE], limit=at_most)
        ids = [_id(ad) for ad in found if not self._computed(ad)]
        if not ids:
            return 0
        was = row["desired"]
        word = f"{os.getpid()}-{time.time_ns()}"
        marked = f"{KEPT}.Pending =?= {self._text(word)}"
        self._edit(ids, KEPT, self._record(value=value, own=own, was=was, pending=word), which)
        if not self._ids(marked, 1):
            raise Refused("it did not let us edit jobs, and does not say why")
        as_it_was = f"{marked} && {ATTRIBUTE} =?= {self._text(was)}"
        if value != was:
            self._edit_where(f"{as_it_was} && {IDLE}", ATTRIBUTE, self._text(value))
            if left := self._ids(f"{as_it_was} && {IDLE}", 1):
                self._edit_where(as_it_was, KEPT, self._record(**row["kept"] or {}))
                raise Refused(f"it keeps {ATTRIBUTE} as it was submitted (of job {left[0]})")
        done = f"{marked} && {ATTRIBUTE} =?= {self._text(value)}"
        edited = len(self._ids(done, at_most))
        self._edit_where(done, KEPT, self._record(value=value, own=own) if keep else "undefined")
        return edited

    def restore(self, constraint: str, asking: bool) -> int:
        """Give back to all jobs in the queue what they had, and take the marks off; answers how many.

        A ``DESIRED_Sites`` that somebody else wrote since stays. With *asking* they ask no longer, too.
        """
        told = f"({constraint}) && {QUEUED}"
        groups: dict[str, tuple[Ad, list[str]]] = {}
        for ad in self._queue.query(f"{told} && {KEPT} isnt undefined", [*ID, ATTRIBUTE, KEPT]):
            row = self._row(ad)
            groups.setdefault(repr((row["desired"], row["kept"])), (row, []))[1].append(_id(ad))
        for row, ids in groups.values():
            if _stands_as_we_wrote(row):
                self._give_back(told, row, ids)
            self._edit_all(ids, KEPT, "undefined")
        if asking:
            self._edit_all(self._ids(f"{told} && {ASKS} =?= true", None), ASKS, "false")
        also = f" || {ASKS} =?= true" if asking else ""
        if left := self._ids(f"{told} && ({KEPT} isnt undefined{also})", 1):
            raise Refused(f"it did not let us edit job {left[0]}")
        return sum(len(ids) for _, ids in groups.values())

    def _give_back(self, told: str, row: Ad, ids: Sequence[str]) -> None:
        own = row["kept"]["own"]
        if own == row["desired"]:
            return
        self._edit_all(ids, ATTRIBUTE, self._text(own))
        as_it_was = f"{told} && {KEPT} isnt undefined && {ATTRIBUTE} =?= {self._text(row['desired'])}"
        if stuck := set(self._ids(as_it_was, None)) & set(ids):
            raise Refused(f"it keeps {ATTRIBUTE} as it is (of job {min(stuck)})")

    # what a job says

    def _row(self, ad: Any) -> Ad:
        desired = self._value(ad, ATTRIBUTE)
        kept = {name: self._value(ad, f"{KEPT}.{field}") for name, field in FIELDS.items()}
        marked = self._evaluated(ad, KEPT) is not None
        texts = [value for value in (desired, *kept.values()) if value is not None]
        odd = any(not isinstance(value, str) for value in texts) or self._computed(ad)
        odd = odd or (marked and not any(kept.values()))
        datasets = self._strings(ad, "RequiredDatasets")
        mode, after, age = (self._value(ad, name) for name in OF_A_JOB[1:])
        return {
            "datasets": datasets if all("," not in one for one in datasets) else [],
            "asks": self._value(ad, ASKS) is True,
            "desired": desired if isinstance(desired, str) else None,
            "kept": kept if marked and not odd else None,
            "mode": mode if isinstance(mode, str) else None,
            "any_after": _whole(after),
            "max_age": _whole(age),
            "odd": odd,
            "jobs": _whole(self._value(ad, "JobCount")) or 1,
            "example": str(self._value(ad, "JobIds") or "").split(" ")[0],
        }

    def _computed(self, ad: Any) -> bool:
        """Whether DESIRED_Sites is an expression, whatever it comes to."""
        found = ad.get(ATTRIBUTE)
        return not (found is None or isinstance(found, str) or found is self._classad.Value.Undefined)

    def _evaluated(self, ad: Any, text: str) -> Any:
        """None for undefined; whatever cannot be said in JSON comes as the bindings have it."""
        with suppress(Exception):
            value = self._classad.ExprTree(text).eval(ad)
            return None if value is self._classad.Value.Undefined else value
        return self._classad.Value.Error

    def _value(self, ad: Any, text: str) -> str | int | float | bool | None:
        """A text, number or truth value, None for undefined, 0 for what is none of these."""
        value = self._evaluated(ad, text)
        return value if value is None or plain(value) else 0

    # whom an edit is for

    def _which(self, row: Ad) -> str:
        """The idle jobs that this row stands for, as they are now."""
        kept = row["kept"] or {}
        parts = [
            IDLE,
            f"({ASKS} =?= true) == {'true' if row['asks'] else 'false'}",
            f"{ATTRIBUTE} =?= {self._text(row['desired'])}",
            *(f"{KEPT}.{field} =?= {self._text(kept.get(name))}" for name, field in FIELDS.items()),
            _number("DataLocalityAnyAfter", row["any_after"]),
            _number("DataLocalityMaxAge", row["max_age"]),
            "isString(DataLocality) == false"
            if row["mode"] is None
            else f"DataLocality =?= {self._text(row['mode'])}",
        ]
        if row["datasets"]:
            parts.append(f'join(",", RequiredDatasets) =?= {self._text(",".join(row["datasets"]))}')
        else:  # garbage: what two of these have in common no expression says
            cluster, _, proc = row["example"].partition(".")
            parts.append(f"ClusterId == {int(cluster)} && ProcId == {int(proc)}")
        return " && ".join(parts)

    def _ids(self, which: str, at_most: int | None) -> list[str]:
        limit = {} if at_most is None else {"limit": at_most}
        return [_id(ad) for ad in self._queue.query(which, list(ID), **limit)]

    # edits

    def _edit_all(self, ids: Sequence[str], attribute: str, literal: str) -> None:
        for start in range(0, len(ids), EDITS_AT_ONCE):
            self._edit(ids[start : start + EDITS_AT_ONCE], attribute, literal, QUEUED)

    def _edit(self, ids: Sequence[str], attribute: str, literal: str, which: str) -> None:
        """Edit jobs by id; those that left the queue meanwhile would spoil the whole transaction."""
        try:
            self._queue.edit(list(ids), attribute, literal)
        except self._failure as failure:
            there = set(self._ids(which, None))
            rest = [one for one in ids if one in there]
            refusal = re.search(r"commit transaction: *(.+)", str(failure))
            if refusal and len(rest) == len(ids):
                raise Refused(refusal[1].strip()) from failure
            if len(rest) == len(ids):
                raise
            if rest:
                self._queue.edit(rest, attribute, literal)

    def _edit_where(self, which: str, attribute: str, literal: str) -> None:
        """Edit all jobs that fit; that there is none, and that we may not, is one failure: look after it."""
        with suppress(self._failure):
            self._queue.edit(which, attribute, literal)

    def _text(self, value: str | None) -> str:
        """A literal as queues keep it: they know no escapes but these, and letters stay as they are."""
        if value is None:
            return "undefined"
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    def _record(self, **fields: str | None) -> str:
        said = [
            f"{FIELDS[name]} = {self._text(value)}" for name, value in fields.items() if value is not None
        ]
        return f"[ {'; '.join(said)} ]" if said else "undefined"


def _stands_as_we_wrote(row: Ad) -> bool:
    kept = row["kept"]
    if kept is None:
        return False
    return row["desired"] == kept["value"] or bool(kept["pending"] and row["desired"] == kept["was"])


def _id(ad: Any) -> str:
    return f"{ad['ClusterId']}.{ad['ProcId']}"


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(attribute: str, value: int | None) -> str:
    return f"isInteger({attribute}) == false" if value is None else f"{attribute} =?= {value}"
