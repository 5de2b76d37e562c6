"""Job attributes for programs that submit with HTCondor's Python bindings.

Example, with ``htcondor2`` of HTCondor::

    from hydrator.submit.bindings import job_attributes

    description = {"executable": "flag.sh", **job_attributes(["lofar:L1", "lofar:L2"])}
    schedd.submit(htcondor2.Submit(description))

This module is pure and needs only the standard library: other tools' environments have other packages.
"""

import operator
import re
from collections.abc import Iterable, Iterator, Mapping

from hydrator.domain.ads.classad import list_literal, string_literal
from hydrator.domain.ads.dataset_sets import key_attributes
from hydrator.domain.ads.expressions import MODES, Mode
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, parse_did

MAX_SECONDS = 99_999_999
"""Longest time that the schedd takes: 8 digits."""
_BARE_ATTRIBUTE = re.compile(r"\+|(RequiredDatasets|DataLocality\w*)\Z", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][\w.]*\Z", re.ASCII)


def job_attributes(
    datasets: Iterable[str],
    mode: Mode | None = None,
    expected_seconds: int | None = None,
    max_wait_seconds: int | None = None,
) -> dict[str, str]:
    """Return the attributes of a job that reads *datasets*, as items of a submit description.

    The names have the prefix ``MY.``, and the values are ClassAd literals, so an ``htcondor2.Submit`` can
    contain them unchanged. A long list has its key, ``MY.DataLocalityKey``, with the text that it is of; for
    a short one the schedd's transform makes the key. If the jobs of one submission read different datasets,
    use :func:`item_rows`.

    Args:
        datasets: the DIDs, each ``scope:name``, without wildcards; at least one.
        mode: the value of ``DataLocality``; None for the pool's default.
        expected_seconds: the run time that you expect where the data is on disk, at least 1.
        max_wait_seconds: the longest wait for the data, at least 0; not with the mode require.

    Raises:
        ValueError: an argument has a wrong type or value; the text names the argument and the value.
    """
    dids = _parse_datasets(datasets)
    if mode is not None and mode not in MODES:
        raise _wrong("mode", f"one of {', '.join(MODES)}", mode)
    if mode == "require" and max_wait_seconds is not None:
        raise _wrong("max_wait_seconds", "None with the mode require, which has no limit", max_wait_seconds)
    attributes = {
        "RequiredDatasets": list_literal(map(string_literal, dids)),
        **{name: string_literal(text) for name, text in key_attributes(dids).items()},
        "DataLocality": None if mode is None else string_literal(mode),
        "DataLocalityExpectedSeconds": _parse_seconds("expected_seconds", expected_seconds, 1),
        "DataLocalityMaxWait": _parse_seconds("max_wait_seconds", max_wait_seconds, 0),
    }
    return {f"MY.{name}": str(value) for name, value in attributes.items() if value is not None}


def item_rows(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """Return *rows* for ``itemdata`` of ``Schedd.submit``, with the same keys in each row.

    The bindings use the keys of the first row for all rows. Without this function, a row loses its mode or
    its datasets if the first row has none::

        rows = [
            {"arguments": "calibrate"},
            {"arguments": "flag", **job_attributes(["lofar:L1"], mode="require")},
        ]
        schedd.submit(submit, itemdata=item_rows(rows))

    An attribute (``MY.…``) that a row lacks becomes undefined in the job of this row, also if the submit
    description has the attribute. So a row without datasets makes a job without datasets.

    Raises:
        ValueError: *rows* is empty or is not a list of dictionaries of texts, or a row lacks a variable of
            another row that is not an attribute. The text names the row and the value.
    """
    spellings: dict[str, str] = {}  # letter case does not matter to HTCondor
    given = []
    for number, row in enumerate(_parse_list("rows", rows, "[{'arguments': 'flag'}]")):
        items = _parse_row(f"rows[{number}]", row)
        spellings = {name.lower(): name for name in items} | spellings
        given.append({name.lower(): value for name, value in items.items()})
        if len(given[-1]) < len(items):
            raise _wrong(f"rows[{number}]", "a dictionary without names that differ in letter case only", row)
    # the bindings drop a job whose line of items is blank or begins with '#'; attributes seldom do
    is_droppable = {
        name: any(values.get(name, "undefined").strip()[:1] in {"", "#"} for values in given)
        for name in spellings
    }
    names = sorted(spellings, key=lambda name: (is_droppable[name], not name.startswith("my.")))
    if all(is_droppable.values()):
        raise _wrong("rows", "dictionaries with a value that is not blank and does not begin with #", given)
    for number, values in enumerate(given):
        if lacking := [spellings[name] for name in names if not (name in values or name.startswith("my."))]:
            raise _wrong(f"rows[{number}]", f"a dictionary with {lacking[0]!r} like other rows", values)
    return iter([{spellings[name]: values.get(name, "undefined") for name in names} for values in given])


def _wrong(argument: str, wanted: str, value: object) -> ValueError:
    shown = " ".join(repr(value).split())[:200]
    return ValueError(f"{argument} must be {wanted}, not {shown}")


def _parse_list(argument: str, values: object, example: str) -> list[object]:
    is_one = isinstance(values, (str, bytes, Mapping))
    items = [] if is_one or not isinstance(values, Iterable) else list(values)
    if not items:
        raise _wrong(argument, f"a list such as {example}", values)
    return items


def _parse_datasets(datasets: object) -> list[Did]:
    dids = set()
    for name in _parse_list("datasets", datasets, "['lofar:L1', 'lofar:L2']"):
        if not isinstance(name, str) or ":" not in name:
            raise _wrong("datasets", "a list of texts such as 'lofar:L1'", name)
        try:
            dids.add(parse_did(name))
        except BadDid as wrong:
            raise ValueError(f"datasets: {wrong}") from wrong
    return sorted(dids)


def _parse_row(argument: str, row: object) -> dict[str, str]:
    if not isinstance(row, Mapping):
        raise _wrong(argument, "a dictionary such as {'arguments': 'flag'}", row)
    for name, value in row.items():
        if not isinstance(name, str):
            raise _wrong(argument, "a dictionary whose keys are texts", row)
        if _BARE_ATTRIBUTE.match(name):  # the bindings ignore it
            raise _wrong(argument, f"a dictionary with MY.{name.lstrip('+')}, not {name}", row)
        if not _VARIABLE.match(name):  # the bindings would split it
            raise _wrong(argument, "a dictionary whose keys are names such as 'arguments'", row)
        # a line break ends a row in the bindings, and a unit separator ends an item
        if not isinstance(value, str) or re.search(r"[\n\r\x1f]", value):
            raise _wrong(f"{argument}[{name!r}]", "a text on one line", value)
    return dict(row)


def _parse_seconds(argument: str, seconds: int | None, least: int) -> int | None:
    if seconds is None:
        return None
    try:
        number = operator.index(seconds)  # of NumPy's integers too
    except TypeError:
        number = -1
    if isinstance(seconds, bool) or not least <= number <= MAX_SECONDS:
        raise _wrong(argument, f"a whole number from {least} to {MAX_SECONDS}", seconds)
    return number
