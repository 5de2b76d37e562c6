"""What the state file's rows say: values of the core into JSON and back.

A row that cannot be understood raises one of :data:`UNREADABLE`; who reads
sets it aside and goes on.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from hydrator.domain.model import (
    DatasetState,
    Did,
    Fact,
    PublishedAd,
    Site,
    SiteAd,
    from_unix,
)
from hydrator.domain.provenance import told_from, told_row
from hydrator.reconcile.ads.site_ads import facts_of
from hydrator.reconcile.demand import Remembered
from hydrator.reconcile.history import Rollback
from hydrator.reconcile.snapshot.breaker import Cause, Held
from hydrator.reconcile.snapshot.memory import Known, Memory

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError)
"""What decoding another program's bytes can raise."""

Row = tuple[float | None, str]
"""Time and body of one dataset of one catalogue."""


class Dataset(NamedTuple):
    """One row of ``known``."""

    catalogue: str
    did: Did
    known: Known


def known_row(known: Known, memory_at: datetime | None) -> Row:
    """What was read with the last whole answer stores no time, so its row rests while answers repeat."""
    at = None if known.at == memory_at else known.at.timestamp()
    parts = [_facts(known.here, known.at), known.bytes_total, sorted(known.twins)]
    if known.before:
        parts.append(_facts(known.before, known.at))
    return at, json.dumps(parts)


def known_from(row: Row, memory_at: datetime | None) -> Known:
    time, body = row
    at = memory_at if time is None else from_unix(time)
    if at is None:
        raise ValueError("its time was that of a row that is lost")
    here, bytes_total, twins, *before = json.loads(body)
    if not isinstance(bytes_total, int | None):
        raise TypeError(bytes_total)
    return Known(
        at, _facts_from(here, at), bytes_total, frozenset(twins), _facts_from(before[0] if before else [], at)
    )


def held_row(held: Held) -> str:
    return json.dumps(
        {
            "since": held.since.timestamp(),
            "told": held.told.timestamp(),
            "gone": dict(held.gone),
            "of": held.of,
            "cause": held.cause,
        }
    )


def held_from(body: str) -> Held:
    read = json.loads(body)
    return Held(
        since=from_unix(read["since"]),
        told=from_unix(read["told"]),
        gone={Did(did): int(polls) for did, polls in read["gone"].items()},
        of=int(read["of"]),
        cause=Cause(read["cause"]),
    )


def age_of(row: Any) -> tuple[str, Site, datetime]:  # noqa: ANN401 - whatever sqlite gives
    catalogue, site, at = row
    return catalogue, Site(site), from_unix(at)


def memory_of(row: Any) -> tuple[str, Memory]:  # noqa: ANN401
    catalogue, at, sites, unmapped, failure, unseen = row
    return catalogue, Memory(
        at=None if at is None else from_unix(at),
        sites=frozenset(json.loads(sites)),
        unseen=dict(json.loads(unseen)),
        unmapped=frozenset(json.loads(unmapped)),
        failure=failure,
    )


def dataset_of(row: Any, times: Mapping[str, datetime | None]) -> Dataset:  # noqa: ANN401
    catalogue, did, at, body = row
    return Dataset(catalogue, Did(did), known_from((at, body), times.get(catalogue)))


def as_listed(rows: Iterable[str], listed: Mapping[Site, Mapping[Did, Fact]]) -> Iterator[Dataset]:
    """What the ads *listed* of the datasets of unreadable rows, where at least their keys can be read."""
    for row in rows:
        catalogue, did, *_ = json.loads(row)
        try:
            refuse_broken_text([catalogue, did])
        except ValueError:
            continue
        here = {site: facts[did] for site, facts in listed.items() if did in facts}
        at = max((fact.as_of for fact in here.values()), default=from_unix(0))
        yield Dataset(str(catalogue), Did(str(did)), Known(at, here))


def as_known(known: Mapping[Did, Known]) -> Memory:
    """What a catalogue's lost row must have said of it, as far as its datasets tell."""
    facts = [pair for one in known.values() for pair in one.here.items()]
    at = max((fact.as_of for _, fact in facts), default=None)
    return Memory(at, frozenset(site for site, _ in facts), failure="its last answer was lost with its state")


def remembered_of(row: Any) -> Remembered:  # noqa: ANN401
    schedd, dids, jobs, last = row
    return Remembered(schedd, tuple(Did(did) for did in json.loads(dids)), int(jobs), from_unix(last))


def pair_of(row: Any) -> tuple[str, str]:  # noqa: ANN401
    text, reason = row
    return str(text), str(reason)


def ad_of(row: Any) -> SiteAd:  # noqa: ANN401
    site, as_of, generation, content = row
    ad = SiteAd(site, from_unix(as_of), int(generation), tuple((n, v) for n, v in json.loads(content)))
    facts_of(ad)  # what it lists can be understood too
    return ad


def rollback_row(site: Site, rollback: Rollback) -> tuple[str, float, float, int, str]:
    ad = rollback.ad
    return site, rollback.since.timestamp(), ad.as_of.timestamp(), ad.generation, json.dumps(ad.content)


def rollback_of(row: Any) -> tuple[Site, Rollback]:  # noqa: ANN401
    site, since, as_of, generation, content = row
    return Site(site), Rollback(from_unix(since), ad_of((site, as_of, generation, content)))


def published_of(row: Any) -> tuple[str, PublishedAd]:  # noqa: ANN401
    publisher, site, generation, as_of, heard = row
    return publisher, PublishedAd(Site(site), int(generation), from_unix(as_of), from_unix(heard))


def refuse_broken_text(row: object) -> None:
    """Raise UnicodeEncodeError, a ValueError, for text that is no UTF-8: it could not be saved again."""
    json.dumps(row, ensure_ascii=False).encode()


def _facts(here: Mapping[Site, Fact], at: datetime) -> list[list[object]]:
    return [
        [
            site,
            fact.state,
            fact.fraction,
            None if fact.as_of == at else fact.as_of.timestamp(),
            *told_row(fact.told),
        ]
        for site, fact in sorted(here.items())
    ]


def _facts_from(rows: list[Any], at: datetime) -> dict[Site, Fact]:
    return {
        Site(site): Fact(
            DatasetState(state),
            at if as_of is None else from_unix(as_of),
            None if fraction is None else float(fraction),
            told_from(told),
        )
        for site, state, fraction, as_of, *told in rows
    }
