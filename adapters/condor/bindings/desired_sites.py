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

from hydrator.domain.classad import record_literal, string_literal

from .values import is_plain

ID_ATTRIBUTES = ("ClusterId", "ProcId")
DESIRED_SITES = "DESIRED_Sites"
OPT_IN_ATTRIBUTE = "DataLocalityDesiredSites"
SAVED_ATTRIBUTE = "DataLocalityDesiredSitesKept"
SAVED_FIELDS = {"value": "Value", "own": "Own", "was": "Was", "pending": "Pending"}
JOB_ATTRIBUTES = ("RequiredDatasets", "DataLocality", "DataLocalityAnyAfter", "DataLocalityMaxAge")
GROUP_BY_ATTRIBUTES = (*JOB_ATTRIBUTES, OPT_IN_ATTRIBUTE, DESIRED_SITES, SAVED_ATTRIBUTE, "JobStatus")
IDLE_CONSTRAINT = "JobStatus == 1"
QUEUED_CONSTRAINT = "JobStatus =!= 3 && JobStatus =!= 4"
EDITS_AT_ONCE = 1000
Ad = dict[str, Any]


class EditRejected(Exception):
    """The schedd did not do what it was asked; the text is why."""


class DesiredSitesEditor:
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
        error_type: type[Exception],
        queue: Any,
        group_by: Any,
        read_strings: Callable[[Any, str], list[str]],
    ) -> None:
        self._classad = classad
        self._error_type = error_type
        self._queue = queue
        self._group_by = group_by
        self._read_strings = read_strings

    def read_job_groups(self) -> list[Ad]:
        """Idle jobs that ask, or are marked, one row for those that are alike."""
        which = f"{IDLE_CONSTRAINT} && ({OPT_IN_ATTRIBUTE} =?= true || {SAVED_ATTRIBUTE} isnt undefined)"
        return [
            self._build_group_row(ad)
            for ad in self._queue.query(which, list(GROUP_BY_ATTRIBUTES), opts=self._group_by)
        ]

    def set_desired_sites(
        self, row: Ad, value: str | None, original_value: str | None, keep: bool, max_jobs: int
    ) -> int:
        """See :class:`hydrator.domain.ports.JobSites`; *row* is one of :meth:`alike`."""
        which = self._build_constraint(row) + (" && DataLocalityHere =!= true" if keep else "")
        found = self._queue.query(which, [*ID_ATTRIBUTES, DESIRED_SITES], limit=max_jobs)
        ids = [_job_id(ad) for ad in found if not self._is_expression(ad)]
        if not ids:
            return 0
        was = row["desired"]
        word = f"{os.getpid()}-{time.time_ns()}"
        marked = f"{SAVED_ATTRIBUTE}.Pending =?= {self._string_literal(word)}"
        self._edit(
            ids,
            SAVED_ATTRIBUTE,
            self._record_literal(value=value, own=original_value, was=was, pending=word),
            which,
        )
        if not self._query_ids(marked, 1):
            raise EditRejected("it did not let us edit jobs, and does not say why")
        as_it_was = f"{marked} && {DESIRED_SITES} =?= {self._string_literal(was)}"
        if value != was:
            self._edit_matching(
                f"{as_it_was} && {IDLE_CONSTRAINT}", DESIRED_SITES, self._string_literal(value)
            )
            if left := self._query_ids(f"{as_it_was} && {IDLE_CONSTRAINT}", 1):
                self._edit_matching(as_it_was, SAVED_ATTRIBUTE, self._record_literal(**row["kept"] or {}))
                raise EditRejected(f"it keeps {DESIRED_SITES} as it was submitted (of job {left[0]})")
        done = f"{marked} && {DESIRED_SITES} =?= {self._string_literal(value)}"
        edited = len(self._query_ids(done, max_jobs))
        self._edit_matching(
            done,
            SAVED_ATTRIBUTE,
            self._record_literal(value=value, own=original_value) if keep else "undefined",
        )
        return edited

    def restore(self, constraint: str, should_opt_out: bool) -> int:
        """Give back to all jobs in the queue what they had, and take the marks off; answers how many.

        A ``DESIRED_Sites`` that somebody else wrote since stays. With *asking* they ask no longer, too.
        """
        told = f"({constraint}) && {QUEUED_CONSTRAINT}"
        groups: dict[str, tuple[Ad, list[str]]] = {}
        for ad in self._queue.query(
            f"{told} && {SAVED_ATTRIBUTE} isnt undefined", [*ID_ATTRIBUTES, DESIRED_SITES, SAVED_ATTRIBUTE]
        ):
            row = self._build_group_row(ad)
            groups.setdefault(repr((row["desired"], row["kept"])), (row, []))[1].append(_job_id(ad))
        for row, ids in groups.values():
            if _is_unchanged(row):
                self._restore_group(told, row, ids)
            self._edit_all(ids, SAVED_ATTRIBUTE, "undefined")
        if should_opt_out:
            self._edit_all(
                self._query_ids(f"{told} && {OPT_IN_ATTRIBUTE} =?= true", None), OPT_IN_ATTRIBUTE, "false"
            )
        also = f" || {OPT_IN_ATTRIBUTE} =?= true" if should_opt_out else ""
        if left := self._query_ids(f"{told} && ({SAVED_ATTRIBUTE} isnt undefined{also})", 1):
            raise EditRejected(f"it did not let us edit job {left[0]}")
        return sum(len(ids) for _, ids in groups.values())

    def _restore_group(self, constraint: str, row: Ad, ids: Sequence[str]) -> None:
        own = row["kept"]["own"]
        if own == row["desired"]:
            return
        self._edit_all(ids, DESIRED_SITES, self._string_literal(own))
        as_it_was = f"{constraint} && {SAVED_ATTRIBUTE} isnt undefined && {DESIRED_SITES} =?= {self._string_literal(row['desired'])}"
        if stuck := set(self._query_ids(as_it_was, None)) & set(ids):
            raise EditRejected(f"it keeps {DESIRED_SITES} as it is (of job {min(stuck)})")

    # what a job says

    def _build_group_row(self, ad: Any) -> Ad:
        desired = self._evaluate_scalar(ad, DESIRED_SITES)
        kept = {
            name: self._evaluate_scalar(ad, f"{SAVED_ATTRIBUTE}.{field}")
            for name, field in SAVED_FIELDS.items()
        }
        marked = self._evaluate(ad, SAVED_ATTRIBUTE) is not None
        texts = [value for value in (desired, *kept.values()) if value is not None]
        odd = any(not isinstance(value, str) for value in texts) or self._is_expression(ad)
        odd = odd or (marked and not any(kept.values()))
        datasets = self._read_strings(ad, "RequiredDatasets")
        mode, after, age = (self._evaluate_scalar(ad, name) for name in JOB_ATTRIBUTES[1:])
        return {
            "datasets": datasets if all("," not in one for one in datasets) else [],
            "asks": self._evaluate_scalar(ad, OPT_IN_ATTRIBUTE) is True,
            "desired": desired if isinstance(desired, str) else None,
            "kept": kept if marked and not odd else None,
            "mode": mode if isinstance(mode, str) else None,
            "any_after": _integer_or_none(after),
            "max_age": _integer_or_none(age),
            "odd": odd,
            "jobs": _integer_or_none(self._evaluate_scalar(ad, "JobCount")) or 1,
            "example": str(self._evaluate_scalar(ad, "JobIds") or "").split(" ")[0],
        }

    def _is_expression(self, ad: Any) -> bool:
        """Whether DESIRED_Sites is an expression, whatever it comes to."""
        found = ad.get(DESIRED_SITES)
        return not (found is None or isinstance(found, str) or found is self._classad.Value.Undefined)

    def _evaluate(self, ad: Any, text: str) -> Any:
        """None for undefined; whatever cannot be said in JSON comes as the bindings have it."""
        with suppress(Exception):
            value = self._classad.ExprTree(text).eval(ad)
            return None if value is self._classad.Value.Undefined else value
        return self._classad.Value.Error

    def _evaluate_scalar(self, ad: Any, text: str) -> str | int | float | bool | None:
        """A text, number or truth value, None for undefined, 0 for what is none of these."""
        value = self._evaluate(ad, text)
        return value if value is None or is_plain(value) else 0

    # whom an edit is for

    def _build_constraint(self, row: Ad) -> str:
        """The idle jobs that this row stands for, as they are now."""
        kept = row["kept"] or {}
        parts = [
            IDLE_CONSTRAINT,
            f"({OPT_IN_ATTRIBUTE} =?= true) == {'true' if row['asks'] else 'false'}",
            f"{DESIRED_SITES} =?= {self._string_literal(row['desired'])}",
            *(
                f"{SAVED_ATTRIBUTE}.{field} =?= {self._string_literal(kept.get(name))}"
                for name, field in SAVED_FIELDS.items()
            ),
            _integer_constraint("DataLocalityAnyAfter", row["any_after"]),
            _integer_constraint("DataLocalityMaxAge", row["max_age"]),
            "isString(DataLocality) == false"
            if row["mode"] is None
            else f"DataLocality =?= {self._string_literal(row['mode'])}",
        ]
        if row["datasets"]:
            parts.append(f'join(",", RequiredDatasets) =?= {self._string_literal(",".join(row["datasets"]))}')
        else:  # garbage: what two of these have in common no expression says
            cluster, _, proc = row["example"].partition(".")
            parts.append(f"ClusterId == {int(cluster)} && ProcId == {int(proc)}")
        return " && ".join(parts)

    def _query_ids(self, constraint: str, max_jobs: int | None) -> list[str]:
        limit = {} if max_jobs is None else {"limit": max_jobs}
        return [_job_id(ad) for ad in self._queue.query(constraint, list(ID_ATTRIBUTES), **limit)]

    # edits

    def _edit_all(self, ids: Sequence[str], attribute: str, literal: str) -> None:
        for start in range(0, len(ids), EDITS_AT_ONCE):
            self._edit(ids[start : start + EDITS_AT_ONCE], attribute, literal, QUEUED_CONSTRAINT)

    def _edit(self, ids: Sequence[str], attribute: str, literal: str, constraint: str) -> None:
        """Edit jobs by id; those that left the queue meanwhile would spoil the whole transaction."""
        try:
            self._queue.edit(list(ids), attribute, literal)
        except self._error_type as failure:
            there = set(self._query_ids(constraint, None))
            rest = [one for one in ids if one in there]
            refusal = re.search(r"commit transaction: *(.+)", str(failure))
            if refusal and len(rest) == len(ids):
                raise EditRejected(refusal[1].strip()) from failure
            if len(rest) == len(ids):
                raise
            if rest:
                self._queue.edit(rest, attribute, literal)

    def _edit_matching(self, constraint: str, attribute: str, literal: str) -> None:
        """Edit all jobs that fit; that there is none, and that we may not, is one failure: look after it."""
        with suppress(self._error_type):
            self._queue.edit(constraint, attribute, literal)

    def _string_literal(self, value: str | None) -> str:
        """A literal as queues keep it: they know no escapes but these, and letters stay as they are."""
        return "undefined" if value is None else string_literal(value)

    def _record_literal(self, **fields: str | None) -> str:
        pairs = [
            (SAVED_FIELDS[name], string_literal(value)) for name, value in fields.items() if value is not None
        ]
        return record_literal(pairs) if pairs else "undefined"


def _is_unchanged(row: Ad) -> bool:
    kept = row["kept"]
    if kept is None:
        return False
    return row["desired"] == kept["value"] or bool(kept["pending"] and row["desired"] == kept["was"])


def _job_id(ad: Any) -> str:
    return f"{ad['ClusterId']}.{ad['ProcId']}"


def _integer_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _integer_constraint(attribute: str, value: int | None) -> str:
    return f"isInteger({attribute}) == false" if value is None else f"{attribute} =?= {value}"
