"""What the pool answered of one job and of the slots, as values: ``hydrator why`` reasons about these.

Pure. The verdicts on clauses are the ClassAd library's that the negotiator has (adapters/condor: ``judge``).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from hydrator.domain.errors import BadDid
from hydrator.domain.misses import (
    MISSES_ATTRIBUTE,
    PATHS_ATTRIBUTE,
    SITES_ATTRIBUTE,
    UNTIL_ATTRIBUTE,
    Miss,
    misses,
)
from hydrator.domain.model import DatasetState, Did, Site, parse_did
from hydrator.domain.numbers import MOST_WHOLE, finite
from hydrator.privacy.pseudonyms import begin_of
from hydrator.reconcile.ads.site_ads import quoted
from hydrator.submit.pool_config import available_expression, spelled_expression

HERE = "DataLocalityHere"
NO_SITE = Site("(no site)")
MOST_OF_A_TEXT = 2000
"""Characters of what a job's owner wrote, such as a reason for a hold, that are looked at."""
MOST_OF_A_LIST = 1 << 18
"""Characters of ``RequiredDatasets``; what is longer counts as no list."""
MOST_SITES = 50
"""Sites of a job's misses that are looked at."""
_BUSY_STATES = {"Claimed", "Preempting", "Matched", "Drained"}


class JobStatus(IntEnum):
    """HTCondor's, as they are numbered."""

    IDLE = 1
    RUNNING = 2
    REMOVED = 3
    COMPLETED = 4
    HELD = 5
    TRANSFERRING = 6
    SUSPENDED = 7


@dataclass(frozen=True, slots=True)
class Told:
    """What a slot says of one dataset; ``counts`` is the verdict of the job's own expression.

    ``spelled`` is false where the slot has the name with another letter case only.
    """

    counts: bool
    state: str | None = None
    fraction: float | None = None
    as_of: int | None = None
    spelled: bool = True


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause: its text, its value now, and its value if nothing of the slot were in use."""

    text: str
    value: str
    empty: str

    @property
    def holds(self) -> bool:
        return self.value == "true"


@dataclass(frozen=True, slots=True)
class SlotGroup:
    """Slots of one site that are alike to the job; ``most`` is what the largest has of each resource."""

    site: Site
    slots: int
    example: str
    state: str | None
    generation: int | None
    as_of: int | None
    job: tuple[Clause, ...]
    slot: tuple[Clause, ...]
    matches: bool
    told: Mapping[Did, Told] = field(default_factory=dict)
    pool: str = ""  # the collector of another pool, to which the job's schedd flocks
    most: Mapping[str, float] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        return self.matches and self.state not in _BUSY_STATES


@dataclass(frozen=True, slots=True)
class Job:
    """What we read of a job; the rest of its ad only matters to the negotiator."""

    name: str
    schedd: str
    alike: int
    status: JobStatus | None
    datasets: tuple[Did, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    private: tuple[Did, ...] = ()  # of its datasets, those that it names in plain
    mode: str | None = None
    any_after: int | None = None
    max_age: int | None = None
    transformed: bool = False
    released: bool = False
    opens_paths: bool = False  # and cannot fetch: without its data at the site it would only fail
    missed: tuple[Miss, ...] = ()  # what its own reports say that it could not read, the oldest first
    missed_sites: tuple[str, ...] = ()  # it keeps away from these
    missed_until: int | None = None  # until then, Unix s
    limits: str = ""  # ConcurrencyLimits, as its owner wrote it
    uploads: int = 0  # jobs of its user whose input files are sent, or wait for that, at its schedd
    most_uploads: int | None = None  # from so many on its schedd asks for no slots for that user
    may_release: bool = False  # whoever asks may have `hydrator release` let it go
    requests: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names_data(self) -> bool:
        return bool(self.datasets or self.refused)


def job_from(
    texts: Mapping[str, str], procs: Sequence[int], schedd: str, default_scope: str | None = None
) -> Job:
    """A job from the text of its ad's attributes.

    A list that is no list of strings counts as one refused name.
    """
    ad = {name.lower(): text for name, text in texts.items()}
    number = _number(ad.get("jobstatus"))
    dids, refused = _datasets(ad.get("requireddatasets"), default_scope)
    return Job(
        name=f"{ad.get('clusterid')}.{procs[0]}",
        schedd=schedd,
        alike=len(procs),
        status=JobStatus(int(number)) if number in set(JobStatus) else None,
        datasets=dids,
        refused=refused,
        mode=string(ad.get("datalocality")),
        any_after=whole(ad.get("datalocalityanyafter")),
        max_age=whole(ad.get("datalocalitymaxage")),
        transformed=ad.get("datalocalitytransformed", "").lower() == "true",
        released=ad.get(HERE.lower(), "").lower() == "true",
        opens_paths=PATHS_ATTRIBUTE.lower() in ad,
        missed=misses({MISSES_ATTRIBUTE: strings(ad.get(MISSES_ATTRIBUTE.lower()))}),
        missed_sites=tuple(dict.fromkeys(strings(ad.get(SITES_ATTRIBUTE.lower()))[:MOST_SITES])),
        missed_until=whole(ad.get(UNTIL_ATTRIBUTE.lower())),
        limits=begin_of(string(ad.get("concurrencylimits", "")[:MOST_OF_A_TEXT]) or "", MOST_OF_A_TEXT),
        words={
            name: begin_of(string(text) or "", MOST_OF_A_TEXT) if text.startswith('"') else _number(text)
            for name in _WORDS
            if (text := ad.get(name.lower(), "")[: 2 * MOST_OF_A_LIST])
        },
    )


_WORDS = ("HoldReason", "RemoteHost", "LastRejMatchReason", "LastRejMatchTime", "EnteredCurrentStatus")


def with_requests(job: Job, judged: Mapping[str, Any]) -> Job:
    """The job with what it asks for, as ``judge`` evaluated it: RequestMemory may be an expression."""
    numbers = {name: finite(value) for name, value in judged["requests"].items()}
    return replace(job, requests={name: value for name, value in numbers.items() if value is not None})


def facts_wanted(dids: Iterable[Did]) -> list[str]:
    """The expressions whose values ``groups_from`` reads: five for each dataset."""
    return [
        text
        for did in dids
        for text in (
            f"{available_expression([did])} && {spelled_expression([did], quoted(did))}",
            f'TARGET.DatasetStates["{did}"]',
            f'TARGET.DatasetFractions["{did}"]',
            f'TARGET.DatasetAsOf["{did}"] ?: TARGET.DataLocalityAsOf',
            spelled_expression([did], quoted(did)),
        )
    ]


def groups_from(judged: Mapping[str, Any], dids: Sequence[Did]) -> list[SlotGroup]:
    """The slots as ``judge`` answered; without dynamic ones, which their parents have handed out."""
    return [_group(row, judged["clauses"], dids) for row in judged["groups"] if not row["dynamic"]]


def _group(row: Mapping[str, Any], clauses: Sequence[str], dids: Sequence[Did]) -> SlotGroup:
    def values(side: str, texts: Sequence[str]) -> tuple[Clause, ...]:
        now = row[f"{side}_values"]
        return tuple(map(Clause, texts, now, row.get(f"{side}_values_empty", now)))

    facts = row["facts"]
    told = {did: _told(facts[at : at + 5]) for did, at in zip(dids, range(0, len(facts), 5), strict=True)}
    return SlotGroup(
        site=Site(str(row["told_site"] or row["site"] or NO_SITE)),
        slots=row["slots"],
        example=row["example"],
        state=row["state"],
        generation=_maybe_int(row["generation"]),
        as_of=_maybe_int(row["as_of"]),
        job=values("job", clauses),
        slot=values("slot", row["theirs"]),
        matches=row["matches"],
        told=told,
        pool=str(row.get("pool") or ""),
        most=row["most"],
    )


def _told(values: Sequence[object]) -> Told:
    """Read the five values of one dataset; a state under another spelling is another dataset's."""
    counts, state, share, as_of, spelled = values
    known = _state(state)
    if known is not None and spelled is False:
        return Told(False, spelled=False)
    return Told(counts is True, known, _share(share), _maybe_int(as_of))


def string(text: str | None) -> str | None:
    """The value of a ClassAd string literal, None for anything else."""
    if text is None or len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return None
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def strings(text: str | None) -> list[str]:
    """Return the strings of a ClassAd list of literals; nothing for all else, or for a list too long."""
    if text is None or len(text) > MOST_OF_A_LIST or not (found := _LIST.fullmatch(text.strip())):
        return []
    return [string(literal.strip()) or "" for literal in re.findall(_ITEM, found[1])]


_ITEM = r'\s*"(?:\\.|[^"\\])*"\s*'
_LIST = re.compile(rf"\{{({_ITEM}(?:,{_ITEM})*)\}}")


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else finite(float(text))
    except ValueError:
        return None


def whole(text: str | None) -> int | None:
    return _maybe_int(_number(text))


def _maybe_int(value: object) -> int | None:
    """Return the whole part of a number as far as ClassAds can count; None for all else."""
    number = finite(value)
    return None if number is None else max(-MOST_WHOLE, min(int(number), MOST_WHOLE))


def _state(value: object) -> str | None:
    """Return what a slot says of a dataset; its startd's owner may have written anything there."""
    return value if isinstance(value, str) and value in set(DatasetState) else None


def _share(value: object) -> float | None:
    number = finite(value)
    return float(number) if number is not None and 0 <= number <= 1 else None


def _datasets(text: str | None, default_scope: str | None) -> tuple[tuple[Did, ...], dict[str, str]]:
    if text is None or text.strip().lower() == "undefined":
        return (), {}
    if len(text) > MOST_OF_A_LIST:
        reason = f"RequiredDatasets has {len(text)} characters, {MOST_OF_A_LIST} are allowed"
        return (), {begin_of(text, MOST_OF_A_TEXT): reason}
    names = strings(text)
    if not names:
        return (), {begin_of(text, MOST_OF_A_TEXT): "RequiredDatasets must be a list of strings"}
    found: list[Did] = []
    refused = {}
    for name in names:
        try:
            found.append(parse_did(name, default_scope))
        except BadDid as bad:
            refused[begin_of(name, MOST_OF_A_TEXT)] = bad.reason
    return tuple(dict.fromkeys(found)), refused
