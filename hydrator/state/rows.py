"""Rows of the state file: encode values of the core as JSON, and decode them.

A row that cannot be decoded raises one of :data:`DECODE_ERRORS`.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from hydrator.domain.errors import StateDamaged
from hydrator.domain.model import (
    DatasetState,
    Did,
    Fact,
    PublishedAd,
    Site,
    SiteAd,
    from_unix,
)
from hydrator.domain.provenance import provenance_from_row, provenance_to_row
from hydrator.reconcile.ads.site_ads import facts_of
from hydrator.reconcile.demand import RememberedJobs
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRecord
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause

DECODE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError)
"""The errors that a decoder can raise for a row that another program or a bug has changed."""

RecordRow = tuple[float | None, str]
"""Time and JSON body of one row: one dataset in one catalogue."""
RecordRows = dict[tuple[str, Did], RecordRow]
"""The rows of the table ``known``, by catalogue and dataset."""


@contextlib.contextmanager
def decoding(table: str) -> Iterator[None]:
    """Run the ``with`` block, which decodes rows of *table*.

    Raises:
        StateDamaged: a row cannot be decoded.
    """
    try:
        yield
    except DECODE_ERRORS as error:
        raise StateDamaged(f"a row of the table {table} cannot be decoded: {error!r}") from error


def encode_record(record: DatasetRecord, memory_at: datetime | None) -> RecordRow:
    """Encode *record* as a row.

    A record of the catalogue's last complete answer (at *memory_at*) is stored without a time. So the next
    complete answer with the same facts leaves the row unchanged.
    """
    at = None if record.read_at == memory_at else record.read_at.timestamp()
    parts = [_encode_facts(record.facts, record.read_at), record.bytes_total, sorted(record.case_variants)]
    if record.previous_facts:
        parts.append(_encode_facts(record.previous_facts, record.read_at))
    return at, json.dumps(parts)


def decode_record(row: RecordRow, memory_at: datetime | None) -> DatasetRecord:
    time, body = row
    at = memory_at if time is None else from_unix(time)
    if at is None:
        raise ValueError("neither this row nor the row of the catalogue has a time")
    facts, bytes_total, case_variants, *previous_facts = json.loads(body)
    if not isinstance(bytes_total, int | None):
        raise TypeError(bytes_total)
    return DatasetRecord(
        at,
        _decode_facts(facts, at),
        bytes_total,
        frozenset(case_variants),
        _decode_facts(previous_facts[0] if previous_facts else [], at),
    )


def encode_held_loss(loss: HeldLoss) -> str:
    return json.dumps(
        {
            "since": loss.started_at.timestamp(),
            "told": loss.last_confirmed_at.timestamp(),
            "gone": dict(loss.missing_polls),
            "of": loss.listed_count,
            "cause": loss.cause,
        }
    )


def decode_held_loss(body: str) -> HeldLoss:
    read = json.loads(body)
    return HeldLoss(
        started_at=from_unix(read["since"]),
        last_confirmed_at=from_unix(read["told"]),
        missing_polls={Did(did): int(polls) for did, polls in read["gone"].items()},
        listed_count=int(read["of"]),
        cause=HoldCause(read["cause"]),
    )


def decode_age(row: Any) -> tuple[str, Site, datetime]:  # noqa: ANN401 - any row of sqlite
    catalogue, site, at = row
    return catalogue, Site(site), from_unix(at)


def decode_memory(row: Any) -> tuple[str, CatalogueMemory]:  # noqa: ANN401
    catalogue, at, sites, unmapped, failure, unseen = row
    return catalogue, CatalogueMemory(
        answered_at=None if at is None else from_unix(at),
        sites=frozenset(json.loads(sites)),
        unseen_reasons=dict(json.loads(unseen)),
        unmapped_storages=frozenset(json.loads(unmapped)),
        failure=failure,
    )


def decode_demand(row: Any) -> RememberedJobs:  # noqa: ANN401
    schedd, dids, jobs, last, key = row
    names = tuple(Did(did) for did in json.loads(dids))
    return RememberedJobs(schedd, names, int(jobs), from_unix(last), str(key))


def decode_pair(row: Any) -> tuple[str, str]:  # noqa: ANN401
    text, reason = row
    return str(text), str(reason)


def decode_ad(row: Any) -> SiteAd:  # noqa: ANN401
    site, as_of, generation, content, openings, until = row
    lines, more = (tuple((n, v) for n, v in json.loads(text)) for text in (content, openings))
    open_until = None if until is None else from_unix(until)
    ad = SiteAd(site, from_unix(as_of), int(generation), lines, more, open_until)
    facts_of(ad)  # raises if the ad's lists cannot be decoded
    return ad


def decode_published_ad(row: Any) -> tuple[str, PublishedAd]:  # noqa: ANN401
    publisher, site, generation, as_of, received_at = row
    return publisher, PublishedAd(Site(site), int(generation), from_unix(as_of), from_unix(received_at))


def _encode_facts(here: Mapping[Site, Fact], at: datetime) -> list[list[object]]:
    return [
        [
            site,
            fact.state,
            fact.fraction,
            None if fact.as_of == at else fact.as_of.timestamp(),
            *provenance_to_row(fact.provenance),
        ]
        for site, fact in sorted(here.items())
    ]


def _decode_facts(rows: list[Any], at: datetime) -> dict[Site, Fact]:
    return {
        Site(site): Fact(
            DatasetState(state),
            at if as_of is None else from_unix(as_of),
            None if fraction is None else float(fraction),
            provenance_from_row(provenance),
        )
        for site, state, fraction, as_of, *provenance in rows
    }
