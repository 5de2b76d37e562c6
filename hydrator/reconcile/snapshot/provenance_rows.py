"""Rows of ``hydrator datasets --why``: each catalogue's answer about a dataset, with its time and query."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hydrator.domain.model import Did, Fact, to_unix
from hydrator.domain.provenance import describe_provenance, provenance_to_row

from .memory import CatalogueMemory


def provenance_rows(
    memories: Mapping[str, CatalogueMemory], dids: Sequence[Did], *, now: datetime
) -> list[dict[str, Any]]:
    """Return each catalogue's last record of each of *dids*.

    There is one row for each site with the dataset, or one row without a site. If the catalogue's last poll
    did not answer for the dataset, the row has an earlier answer, and ``unseen`` says why the last
    poll has no answer.
    """
    return [
        row
        for did in dids
        for catalogue, memory in sorted(memories.items())
        for row in _catalogue_rows(catalogue, memory, did, now)
    ]


def _catalogue_rows(catalogue: str, memory: CatalogueMemory, did: Did, now: datetime) -> list[dict[str, Any]]:
    record, unseen_reason = memory.records.get(did), memory.unseen_reasons.get(did)
    start = {"did": did, "catalogue": catalogue, "unseen": unseen_reason}
    if record is None:
        return [
            {
                **start,
                "site": None,
                "state": None,
                "as_of": None,
                "why": unseen_reason or "the catalogue was not queried yet",
            }
        ]
    if not record.facts:
        why = "the catalogue has no replica of the dataset"
        return [{**start, "site": None, "state": None, "as_of": to_unix(record.read_at), "why": why}]
    return [{**start, "site": site, **_fact_row(fact, now)} for site, fact in sorted(record.facts.items())]


def _fact_row(fact: Fact, now: datetime) -> dict[str, Any]:
    return {
        "state": fact.state.value,
        "fraction": fact.fraction,
        "as_of": to_unix(fact.as_of),
        "storage": fact.provenance.storage,
        "call": fact.provenance.call,
        "why": describe_provenance(fact.provenance, now),
        "provenance": (provenance_to_row(fact.provenance) or [{}])[0],
    }
