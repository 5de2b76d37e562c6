"""``DESIRED_Sites`` of queued jobs, in the child process: groups of alike jobs and safe edits.

In one transaction the bindings can edit only one attribute, of jobs with given ids or of all jobs that
match a constraint. A user may edit the same job between two transactions. So an edit has three steps.
First this module marks the jobs, by their ids, with a unique token and with their present
``DESIRED_Sites``. Then it edits ``DESIRED_Sites`` of the jobs that have this token and an unchanged
``DESIRED_Sites``. Then it removes the token. If an edit is interrupted, the mark shows whether the present
``DESIRED_Sites`` is from the daemon or from a user.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hydrator.domain.ads.classad import record_literal, string_literal

from .library import CallError
from .values import Ad, is_plain, read_strings

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


def rejection(reason: str) -> CallError:
    """Return the exception for an edit that the schedd rejected."""
    return CallError("denied", reason)


class DesiredSitesEditor:
    """An editor of ``DESIRED_Sites`` in the queue of one schedd.

    Args:
        classad: the bindings' module.
        error_type: the class of the bindings' exceptions.
        queue: the bindings' object for the schedd.
        group_by: the bindings' option to get one ad for each combination of the attributes.
    """

    def __init__(self, classad: Any, error_type: type[Exception], queue: Any, group_by: Any) -> None:
        self._classad = classad
        self._error_type = error_type
        self._queue = queue
        self._group_by = group_by

    def read_job_groups(self) -> list[Ad]:
        """Return idle jobs that opted in, or that have the daemon's mark; alike jobs share one row."""
        constraint = f"{IDLE_CONSTRAINT} && ({OPT_IN_ATTRIBUTE} =?= true || {SAVED_ATTRIBUTE} isnt undefined)"
        return [
            self._build_group_row(ad)
            for ad in self._queue.query(constraint, list(GROUP_BY_ATTRIBUTES), opts=self._group_by)
        ]

    def set_desired_sites(
        self, row: Ad, value: str | None, original_value: str | None, keep: bool, max_jobs: int
    ) -> int:
        """See :class:`hydrator.domain.pool_ports.JobSites`; *row* is one of :meth:`read_job_groups`."""
        constraint = self._build_constraint(row) + (" && DataLocalityHere =!= true" if keep else "")
        ads = self._queue.query(constraint, [*ID_ATTRIBUTES, DESIRED_SITES], limit=max_jobs)
        ids = [_job_id(ad) for ad in ads if not self._is_expression(ad)]
        if not ids:
            return 0
        previous = row["desired"]
        token = f"{os.getpid()}-{time.time_ns()}"
        mark = _record_literal(value=value, own=original_value, was=previous, pending=token)
        self._edit(ids, SAVED_ATTRIBUTE, mark, constraint)
        has_token = f"{SAVED_ATTRIBUTE}.Pending =?= {_string_literal(token)}"
        if not self.query_ids(has_token, 1):
            raise rejection("it rejected the edit of jobs and gave no reason")
        if value != previous:
            self._replace_value(has_token, row, value)
        edited = f"{has_token} && {DESIRED_SITES} =?= {_string_literal(value)}"
        count = len(self.query_ids(edited, max_jobs))
        saved = _record_literal(value=value, own=original_value) if keep else "undefined"
        self._edit_matching(edited, SAVED_ATTRIBUTE, saved)
        return count

    def _replace_value(self, has_token: str, row: Ad, value: str | None) -> None:
        """Set DESIRED_Sites of marked jobs whose value is still that of *row*; if this fails, unmark them."""
        unchanged = f"{has_token} && {DESIRED_SITES} =?= {_string_literal(row['desired'])}"
        unchanged_idle = f"{unchanged} && {IDLE_CONSTRAINT}"
        self._edit_matching(unchanged_idle, DESIRED_SITES, _string_literal(value))
        if ids := self.query_ids(unchanged_idle, 1):
            self._edit_matching(unchanged, SAVED_ATTRIBUTE, _record_literal(**row["kept"] or {}))
            raise rejection(f"it keeps {DESIRED_SITES} of job {ids[0]} as submitted")

    def restore(self, constraint: str, should_opt_out: bool) -> int:
        """Restore the original DESIRED_Sites of queued jobs; remove the marks. Return the number of jobs.

        A ``DESIRED_Sites`` that a user set after the daemon's edit stays unchanged. With *should_opt_out*,
        also set the opt-in attribute of the jobs to false.
        """
        selection = f"({constraint}) && {QUEUED_CONSTRAINT}"
        groups: dict[str, tuple[Ad, list[str]]] = {}
        for ad in self._queue.query(
            f"{selection} && {SAVED_ATTRIBUTE} isnt undefined",
            [*ID_ATTRIBUTES, DESIRED_SITES, SAVED_ATTRIBUTE],
        ):
            row = self._build_group_row(ad)
            groups.setdefault(repr((row["desired"], row["kept"])), (row, []))[1].append(_job_id(ad))
        for row, ids in groups.values():
            if _is_unchanged(row):
                self._restore_group(selection, row, ids)
            self.edit_all(ids, SAVED_ATTRIBUTE, "undefined")
        if should_opt_out:
            self.edit_all(
                self.query_ids(f"{selection} && {OPT_IN_ATTRIBUTE} =?= true"),
                OPT_IN_ATTRIBUTE,
                "false",
            )
        also = f" || {OPT_IN_ATTRIBUTE} =?= true" if should_opt_out else ""
        if unedited := self.query_ids(f"{selection} && ({SAVED_ATTRIBUTE} isnt undefined{also})", 1):
            raise rejection(f"it rejected the edit of job {unedited[0]}")
        return sum(len(ids) for _, ids in groups.values())

    def _restore_group(self, constraint: str, row: Ad, ids: Sequence[str]) -> None:
        own = row["kept"]["own"]
        if own == row["desired"]:
            return
        self.edit_all(ids, DESIRED_SITES, _string_literal(own))
        previous = _string_literal(row["desired"])
        unchanged = f"{constraint} && {SAVED_ATTRIBUTE} isnt undefined && {DESIRED_SITES} =?= {previous}"
        if unedited := set(self.query_ids(unchanged)) & set(ids):
            raise rejection(f"it keeps {DESIRED_SITES} of job {min(unedited)} unchanged")

    # attributes of a job

    def _build_group_row(self, ad: Any) -> Ad:
        desired = self._evaluate_scalar(ad, DESIRED_SITES)
        mark = {
            name: self._evaluate_scalar(ad, f"{SAVED_ATTRIBUTE}.{field}")
            for name, field in SAVED_FIELDS.items()
        }
        marked = self._evaluate(ad, SAVED_ATTRIBUTE) is not None
        texts = [value for value in (desired, *mark.values()) if value is not None]
        odd = any(not isinstance(value, str) for value in texts) or self._is_expression(ad)
        odd = odd or (marked and not any(mark.values()))
        datasets = read_strings(ad, "RequiredDatasets")
        mode, after, age = (self._evaluate_scalar(ad, name) for name in JOB_ATTRIBUTES[1:])
        return {
            "datasets": datasets if all("," not in one for one in datasets) else [],
            "asks": self._evaluate_scalar(ad, OPT_IN_ATTRIBUTE) is True,
            "desired": desired if isinstance(desired, str) else None,
            "kept": mark if marked and not odd else None,
            "mode": mode if isinstance(mode, str) else None,
            "any_after": _integer_or_none(after),
            "max_age": _integer_or_none(age),
            "odd": odd,
            "jobs": _integer_or_none(self._evaluate_scalar(ad, "JobCount")) or 1,
            "example": str(self._evaluate_scalar(ad, "JobIds") or "").split(" ")[0],
        }

    def _is_expression(self, ad: Any) -> bool:
        """Return True if DESIRED_Sites is an expression and not a literal."""
        value = ad.get(DESIRED_SITES)
        return not (value is None or isinstance(value, str) or value is self._classad.Value.Undefined)

    def _evaluate(self, ad: Any, text: str) -> Any:
        """Evaluate *text*; None for undefined; a list, an ad or an error is an object of the bindings."""
        with suppress(Exception):
            value = self._classad.ExprTree(text).eval(ad)
            return None if value is self._classad.Value.Undefined else value
        return self._classad.Value.Error

    def _evaluate_scalar(self, ad: Any, text: str) -> str | int | float | bool | None:
        """Evaluate *text* to a text, number or truth value; return None for undefined, 0 for all else."""
        value = self._evaluate(ad, text)
        return value if value is None or is_plain(value) else 0

    # selection of jobs

    def _build_constraint(self, row: Ad) -> str:
        """Return the constraint that selects the idle jobs of *row* by the values in *row*."""
        mark = row["kept"] or {}
        parts = [
            IDLE_CONSTRAINT,
            f"({OPT_IN_ATTRIBUTE} =?= true) == {'true' if row['asks'] else 'false'}",
            f"{DESIRED_SITES} =?= {_string_literal(row['desired'])}",
            *(
                f"{SAVED_ATTRIBUTE}.{field} =?= {_string_literal(mark.get(name))}"
                for name, field in SAVED_FIELDS.items()
            ),
            _integer_constraint("DataLocalityAnyAfter", row["any_after"]),
            _integer_constraint("DataLocalityMaxAge", row["max_age"]),
            "isString(DataLocality) == false"
            if row["mode"] is None
            else f"DataLocality =?= {_string_literal(row['mode'])}",
        ]
        if row["datasets"]:
            parts.append(f'join(",", RequiredDatasets) =?= {_string_literal(",".join(row["datasets"]))}')
        else:  # no constraint can select all jobs with the same invalid value: select one job by its id
            cluster, _, proc = row["example"].partition(".")
            parts.append(f"ClusterId == {int(cluster)} && ProcId == {int(proc)}")
        return " && ".join(parts)

    def query_ids(self, constraint: str, max_jobs: int | None = None) -> list[str]:
        """Return the ids of at most *max_jobs* jobs that match *constraint*."""
        limit = {} if max_jobs is None else {"limit": max_jobs}
        return [_job_id(ad) for ad in self._queue.query(constraint, list(ID_ATTRIBUTES), **limit)]

    # edits

    def edit_all(self, ids: Sequence[str], attribute: str, literal: str) -> None:
        """Set *attribute* of the jobs with these ids, in batches; skip jobs that have left the queue."""
        for start in range(0, len(ids), EDITS_AT_ONCE):
            self._edit(ids[start : start + EDITS_AT_ONCE], attribute, literal, QUEUED_CONSTRAINT)

    def _edit(self, ids: Sequence[str], attribute: str, literal: str, constraint: str) -> None:
        """Edit jobs by id. Omit jobs that left the queue, because they would make the transaction fail."""
        try:
            self._queue.edit(list(ids), attribute, literal)
        except self._error_type as failure:
            queued = set(self.query_ids(constraint))
            remaining = [job for job in ids if job in queued]
            if len(remaining) == len(ids):
                if match := re.search(r"commit transaction: *(.+)", str(failure)):
                    raise rejection(match[1].strip()) from failure
                raise
            if remaining:
                self._queue.edit(remaining, attribute, literal)

    def _edit_matching(self, constraint: str, attribute: str, literal: str) -> None:
        """Edit all matching jobs; ignore errors. The caller must query the result.

        If no job matches, the bindings raise the same error as for a denial.
        """
        with suppress(self._error_type):
            self._queue.edit(constraint, attribute, literal)


def _string_literal(value: str | None) -> str:
    """Return *value* as a string literal for a job queue, where only quotes and backslashes need escapes."""
    return "undefined" if value is None else string_literal(value)


def _record_literal(**fields: str | None) -> str:
    pairs = [
        (SAVED_FIELDS[name], string_literal(value)) for name, value in fields.items() if value is not None
    ]
    return record_literal(pairs) if pairs else "undefined"


def _is_unchanged(row: Ad) -> bool:
    mark = row["kept"]
    if mark is None:
        return False
    return row["desired"] == mark["value"] or bool(mark["pending"] and row["desired"] == mark["was"])


def _job_id(ad: Any) -> str:
    return f"{ad['ClusterId']}.{ad['ProcId']}"


def _integer_or_none(value: object) -> int | None:
    return value if type(value) is int else None


def _integer_constraint(attribute: str, value: int | None) -> str:
    return f"isInteger({attribute}) == false" if value is None else f"{attribute} =?= {value}"
