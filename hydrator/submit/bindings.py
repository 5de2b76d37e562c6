"""Job attributes for programs that submit with HTCondor's Python bindings.

Example, with ``htcondor2`` of HTCondor::

    from hydrator.submit.bindings import job_attributes

    description = {"executable": "flag.sh", **job_attributes(["lofar:L1", "lofar:L2"])}
    schedd.submit(htcondor2.Submit(description))

This module is pure and imports only the standard library and :mod:`hydrator.domain`.
"""

from collections.abc import Iterable

from hydrator.domain.ads.classad import list_literal, string_literal
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import parse_did

from .expressions import MODES, SUBMITTED_HERE, Mode


def job_attributes(
    datasets: Iterable[str],
    mode: Mode | None = None,
    expected_seconds: int | None = None,
    max_wait_seconds: int | None = None,
) -> dict[str, str]:
    """Return the attributes of a job that reads *datasets*, as items of a submit description.

    The names have the prefix ``MY.``, and the values are ClassAd literals, so an ``htcondor2.Submit`` can
    contain them unchanged. ``MY.DataLocalityKey`` lets the job look up all its datasets at once. If one
    submission has many jobs, also set ``requirements`` to ``MY.DataLocalityHere``, or to
    ``MY.DataLocalityHere && (…)`` with your own. Then the schedd stores one copy of the clause for all.

    Args:
        datasets: the DIDs, each ``scope:name``, without wildcards; at least one.
        mode: the value of ``DataLocality``; None for the pool's default.
        expected_seconds: the run time that you expect where the data is on disk, at least 1.
        max_wait_seconds: the longest wait for the data, with the modes wait and auto; at least 0.

    Raises:
        ValueError: *datasets* is empty, a name is not a DID (:class:`hydrator.domain.errors.BadDid`), the
            mode is unknown, or a number is out of range.
    """
    dids = sorted({parse_did(name) for name in datasets})
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    for name, number, least in (
        ("expected_seconds", expected_seconds, 1),
        ("max_wait_seconds", max_wait_seconds, 0),
    ):
        if number is not None and number < least:
            raise ValueError(f"{name} must be {least} or more, not {number}")
    attributes = {
        "RequiredDatasets": list_literal(map(string_literal, dids)),
        "DataLocalityKey": string_literal(set_key(dids)),
        "DataLocality": None if mode is None else string_literal(mode),
        "DataLocalityExpectedSeconds": expected_seconds,
        "DataLocalityMaxWait": max_wait_seconds,
        "DataLocalityHere": SUBMITTED_HERE if len(dids) > 1 else None,
    }
    return {f"MY.{name}": str(value) for name, value in attributes.items() if value is not None}
