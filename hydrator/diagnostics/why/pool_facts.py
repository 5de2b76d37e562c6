"""Pool facts: parse the pool's answers about one job and the slots, for ``hydrator why``. Pure.

This module evaluates no clause: ``evaluate_match`` (adapters/condor) has evaluated the clauses with the
negotiator's ClassAd library.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from hydrator.diagnostics.schedd_budget import ScheddBudget
from hydrator.diagnostics.start_record import START_ATTRIBUTE, parse_start_record
from hydrator.domain.ads import contract
from hydrator.domain.ads.classad import classad_string
from hydrator.domain.ads.dataset_sets import fits, set_key
from hydrator.domain.ads.expressions import (
    LOCAL_EXPRESSION,
    OPEN_EXPRESSION,
    OPEN_SECONDS,
    OPEN_SOURCE,
    PACED_EXPRESSION,
    swap_sides,
)
from hydrator.domain.ads.openings import StartRecord
from hydrator.domain.errors import BadDid
from hydrator.domain.model import DatasetState, Did, Site, parse_did
from hydrator.domain.text import shorten
from hydrator.domain.units import Bytes, Share, UnixTime
from hydrator.domain.untrusted import MAX_CLASSAD_INTEGER, valid_number
from hydrator.reconcile.misses import (
    AVOID_UNTIL_ATTRIBUTE,
    MISSES_ATTRIBUTE,
    PATHS_ATTRIBUTE,
    SITES_ATTRIBUTE,
    Miss,
    parse_misses,
)

HERE_ATTRIBUTE = contract.HERE
NO_SITE = Site("(no site)")
MAX_TEXT_CHARS = 2000
"""Longer texts of the job's owner, such as a hold reason, are cut at this length."""
MAX_LIST_CHARS = 1 << 18
"""Largest length of ``RequiredDatasets``; a longer text is not parsed as a list."""
MAX_SITES = 50
"""Largest number of sites that a job avoids after it could not read data there; more are ignored."""
_BUSY_STATES = {"Claimed", "Preempting", "Matched"}
_CLOSED_STATES = {"Drained", "Offline"}


class JobStatus(StrEnum):
    """The values of a job's ``JobStatus`` attribute in HTCondor, in the order of their numbers from 1."""

    IDLE = "idle"
    RUNNING = "running"
    REMOVED = "removed"
    COMPLETED = "completed"
    HELD = "held"
    TRANSFERRING = "transferring"
    SUSPENDED = "suspended"


STATUSES: Final[Mapping[float | None, JobStatus]] = dict(enumerate(JobStatus, 1))
"""The values by their number."""


@dataclass(frozen=True, slots=True)
class SlotDatasetState:
    """One dataset in a slot ad; ``is_usable`` is the value of the job's expression for this dataset."""

    is_usable: bool
    state: str | None = None
    fraction: float | None = None
    as_of: UnixTime | None = None


SET_EXPRESSIONS = (
    *map(swap_sides, (LOCAL_EXPRESSION, PACED_EXPRESSION, OPEN_EXPRESSION)),
    "TARGET.DataLocalitySets[MY.DataLocalityKey]",
    *map(swap_sides, (OPEN_SECONDS, OPEN_SOURCE)),
    "TARGET.DataLocalitySetsAsOf[MY.DataLocalityKey] ?: TARGET.DataLocalityAsOf",
)
"""The expressions whose values :func:`_parse_set_facts` reads: the same look-ups as in the slot's own."""
_MAX_READ_SECONDS = 10**9


@dataclass(frozen=True, slots=True)
class SlotSetFacts:
    """A slot's entries for the job's whole set, by its DataLocalityKey; None for an absent or invalid value.

    ``is_local``, ``is_paced`` and ``is_open`` are values of parts of the slot's ``DataLocalityAuto``.

    Attributes:
        is_local: true if the site has all data of the job.
        is_paced: true if the daemon paces the reads of the site's jobs now.
        is_open: true if a job in mode auto may start here now by reading from elsewhere.
        share: share of the job's data that is on disk at the site.
        open_seconds: seconds that the job would read its missing data; null: it may not.
        source: site from which the job would read.
        as_of: time of the facts about the job's data.
    """

    is_local: bool = False
    is_paced: bool = False
    is_open: bool = False
    share: Share | None = None
    open_seconds: int | None = None
    source: Site | None = None
    as_of: UnixTime | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of an expression: its text, its value now, and its value if the slot were unused."""

    text: str
    value: str
    value_if_unused: str

    @property
    def is_true(self) -> bool:
        return self.value == "true"


@dataclass(frozen=True, slots=True)
class SlotGroup:
    """Slots of one site that are equal for the job.

    ``largest_resources`` has the largest amount of each resource that one of these slots has.
    ``broken_reason`` is the startd's reason why no job can run there, ``hook_error`` the hook's last error.
    """

    site: Site
    slots: int
    state: str | None
    generation: int | None
    job_clauses: tuple[Clause, ...]
    slot_clauses: tuple[Clause, ...]
    is_match: bool
    dataset_states: Mapping[Did, SlotDatasetState] = field(default_factory=dict)
    pool: str = ""  # the collector of another pool if the schedd flocks there; else empty
    largest_resources: Mapping[str, float] = field(default_factory=dict)
    set_facts: SlotSetFacts = SlotSetFacts()
    broken_reason: str = ""
    hook_error: str = ""

    @property
    def can_run_now(self) -> bool:
        return self.is_match and not self.is_busy

    @property
    def is_busy(self) -> bool:
        """Return True if the slot takes no job now, whatever the job is."""
        return self.state in _BUSY_STATES or self.is_closed

    @property
    def is_closed(self) -> bool:
        """Return True if the slot takes no job even when its jobs have ended."""
        return self.state in _CLOSED_STATES or bool(self.broken_reason)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Attributes of a job that the explanation uses.

    Attributes:
        name: CLUSTER.PROC.
        schedd: schedd of the job.
        job_count: jobs of the cluster that share this answer.
        status: idle, running, held…
        datasets: datasets that the job names.
        invalid_names: names in the job that are not DIDs, with the reason.
        never_published: datasets of the job whose names match `[publish] never`.
        mode: require, auto or wait.
        any_after: time from which the job may run anywhere.
        max_age_seconds: largest age of a fact that the job accepts, in seconds.
        is_bound: true if the job's Requirements have the clause of data locality, DataLocalityHere.
        is_freed: true if `hydrator run-anywhere` has freed the job: it may run anywhere.
        opens_paths: true if the job opens paths at the site and cannot fetch data.
        misses: datasets that the job could not read where it ran, the oldest first.
        missed_sites: sites that the job avoids because it could not read datasets there.
        missed_until: time from which the job no longer avoids the sites in missed_sites.
        concurrency_limits: ConcurrencyLimits of the job.
        budget: jobs of the schedd, and its limit of running jobs; null: not known.
        requests: resources that the job requests.
        status_attributes: attributes of the job that explain its status.
        key: key by which the job's expressions look up its datasets; null: the job has no key.
        lane: DataLocalityLane of the job.
        total_bytes: bytes of all datasets that the job names; null: a size is unknown.
        start: offer of the slot at the job's last start; null: none, or the job never started.
        unplaced_universe: scheduler, grid or local, the universe of the job; null: a negotiator places it.
        has_foreign_key: true if the key stands for another list, by the daemon, or for none, as two have it.
    """

    name: str
    schedd: str
    job_count: int
    status: JobStatus | None
    datasets: tuple[Did, ...] = ()
    invalid_names: Mapping[str, str] = field(default_factory=dict)
    never_published: tuple[Did, ...] = ()
    mode: str | None = None
    any_after: UnixTime | None = None
    max_age_seconds: int | None = None
    is_bound: bool = False
    is_freed: bool = False
    opens_paths: bool = False
    misses: tuple[Miss, ...] = ()
    missed_sites: tuple[str, ...] = ()
    missed_until: UnixTime | None = None
    concurrency_limits: str = ""
    budget: ScheddBudget | None = None
    requests: Mapping[str, float] = field(default_factory=dict)
    status_attributes: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    lane: int = 0
    total_bytes: Bytes | None = None
    start: StartRecord | None = None
    unplaced_universe: str | None = None
    has_foreign_key: bool = False

    @property
    def has_required_datasets(self) -> bool:
        return bool(self.datasets or self.invalid_names)

    @property
    def can_wait(self) -> bool:
        """Return True if the job may still wait for a slot: it does not run, and has not ended."""
        return self.status in {None, JobStatus.IDLE, JobStatus.HELD}

    @property
    def has_wrong_key(self) -> bool:
        """Return True if the key does not stand for the datasets alone: then no site answers for them."""
        if self.key is None or not self.datasets:
            return False
        return self.has_foreign_key or not fits(self.key, self.datasets)


def parse_job(
    texts: Mapping[str, str], procs: Sequence[int], schedd: str, default_scope: str | None = None
) -> JobFacts:
    """Parse a job from its attributes as ClassAd text; a bad list of datasets counts as one invalid name."""
    ad = {name.lower(): text for name, text in texts.items()}
    number = _parse_number(ad.get("jobstatus"))
    dids, invalid_names = _parse_datasets(ad.get("requireddatasets"), default_scope)
    here = HERE_ATTRIBUTE.lower()
    return JobFacts(
        name=f"{ad.get('clusterid')}.{procs[0]}",
        schedd=schedd,
        job_count=len(procs),
        status=STATUSES.get(number),
        datasets=dids,
        invalid_names=invalid_names,
        mode=parse_string_literal(ad.get("datalocality")),
        key=parse_string_literal(ad.get("datalocalitykey")),
        lane=parse_integer(ad.get(contract.LANE.lower())) or 0,
        start=parse_start_record(
            *(
                parse_string_literal(ad.get(name.lower(), "")[:MAX_TEXT_CHARS])
                for name in (START_ATTRIBUTE, contract.START)
            )
        ),
        any_after=parse_integer(ad.get("datalocalityanyafter")),
        max_age_seconds=parse_integer(ad.get("datalocalitymaxage")),
        unplaced_universe=_UNPLACED_UNIVERSES.get(parse_integer(ad.get("jobuniverse"))),
        is_bound=here in ad and here in ad.get("requirements", "").lower(),
        is_freed=ad.get(here, "").lower() == "true",
        opens_paths=PATHS_ATTRIBUTE.lower() in ad,
        misses=parse_misses({MISSES_ATTRIBUTE: parse_string_list(ad.get(MISSES_ATTRIBUTE.lower()))}),
        missed_sites=tuple(dict.fromkeys(parse_string_list(ad.get(SITES_ATTRIBUTE.lower()))[:MAX_SITES])),
        missed_until=parse_integer(ad.get(AVOID_UNTIL_ATTRIBUTE.lower())),
        concurrency_limits=shorten(
            parse_string_literal(ad.get("concurrencylimits", "")[:MAX_TEXT_CHARS]) or "", MAX_TEXT_CHARS
        ),
        status_attributes={
            name: shorten(parse_string_literal(text) or "", MAX_TEXT_CHARS)
            if text.startswith('"')
            else _parse_number(text)
            for name in _STATUS_ATTRIBUTES
            if (text := ad.get(name.lower(), "")[: 2 * MAX_LIST_CHARS])
        },
    )


_UNPLACED_UNIVERSES: Mapping[int | None, str] = {7: "scheduler", 9: "grid", 12: "local"}
_STATUS_ATTRIBUTES = (
    "HoldReason",
    "RemoteHost",
    "LastRejMatchReason",
    "LastRejMatchTime",
    "EnteredCurrentStatus",
)


def with_requests(job: JobFacts, match_result: Mapping[str, Any]) -> JobFacts:
    """Return *job* with the amounts that it requests, as numbers.

    In the job's ad, RequestMemory, for example, may be an expression.
    """
    numbers = {name: valid_number(value) for name, value in match_result["requests"].items()}
    return replace(job, requests={name: value for name, value in numbers.items() if value is not None})


def fact_expressions(dids: Iterable[Did]) -> list[str]:
    """Return the expressions whose values ``parse_slot_groups`` reads: four for each dataset, then the set's.

    The slot's entry for a dataset alone counts as much as the dataset's state.
    """
    return [
        text
        for did in dids
        for text in (
            _usable_expression(did),
            f'TARGET.DatasetStates["{did}"]',
            f'TARGET.DatasetFractions["{did}"]',
            f'TARGET.DatasetAsOf["{did}"] ?: TARGET.DataLocalityAsOf',
        )
    ] + list(SET_EXPRESSIONS)


def _usable_expression(did: Did) -> str:
    by_set = swap_sides(LOCAL_EXPRESSION).replace("MY.DataLocalityKey", classad_string(set_key([did])))
    by_state = (
        f'TARGET.DatasetStates["{did}"] =?= "AVAILABLE"'
        f' && ((time() - (TARGET.DatasetAsOf["{did}"] ?: TARGET.DataLocalityAsOf)) < MY.DataLocalityMaxAge)'
        " =?= true"
    )
    return f"{by_set} || {by_state}"


def parse_slot_groups(match_result: Mapping[str, Any], dids: Sequence[Did]) -> list[SlotGroup]:
    """Parse the slots in an answer of ``evaluate_match``."""
    return [_parse_slot_group(row, match_result["clauses"], dids) for row in match_result["groups"]]


def _parse_slot_group(row: Mapping[str, Any], clauses: Sequence[str], dids: Sequence[Did]) -> SlotGroup:
    def values(side: str, texts: Sequence[str]) -> tuple[Clause, ...]:
        now = row[f"{side}_values"]
        return tuple(map(Clause, texts, now, row.get(f"{side}_values_empty", now)))

    facts = row["facts"]
    states = {
        did: _parse_dataset_state(facts[at : at + 4])
        for did, at in zip(dids, range(0, 4 * len(dids), 4), strict=True)
    }
    return SlotGroup(
        site=Site(str(row["advertised_site"] or row["site"] or NO_SITE)),
        slots=row["slots"],
        state=row["state"],
        generation=_to_integer(row["generation"]),
        job_clauses=values("job", clauses),
        slot_clauses=values("slot", row["theirs"]),
        is_match=row["matches"],
        dataset_states=states,
        pool=str(row.get("pool") or ""),
        largest_resources=row["largest_resources"],
        set_facts=_parse_set_facts(facts[4 * len(dids) :]),
        broken_reason=shorten(str(row.get("broken_reason") or "")),
        hook_error=shorten(str(row.get("hook_error") or "")),
    )


def _parse_dataset_state(values: Sequence[object]) -> SlotDatasetState:
    """Parse the values of the four expressions of :func:`fact_expressions` for one dataset."""
    is_usable, state, share, as_of = values
    return SlotDatasetState(is_usable is True, _valid_state(state), _valid_share(share), _to_integer(as_of))


def _parse_set_facts(values: Sequence[object]) -> SlotSetFacts:
    """Parse the values of ``SET_EXPRESSIONS`` at one slot; a startd can write any value."""
    is_local, is_paced, is_open, share, seconds, source, as_of = values
    number = valid_number(seconds) if is_open is True else None
    return SlotSetFacts(
        is_local is True,
        is_paced is True,
        is_open is True,
        _valid_share(share),
        int(number) if number is not None and 0 <= number <= _MAX_READ_SECONDS else None,
        Site(shorten(source)) if isinstance(source, str) and source else None,
        _to_integer(as_of),
    )


def parse_string_literal(text: str | None) -> str | None:
    """Return the value of a ClassAd string literal; None for another value."""
    if text is None or len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return None
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def parse_string_list(text: str | None) -> list[str]:
    """Return the strings of a ClassAd list of literals; an empty list for any other value."""
    if text is None or len(text) > MAX_LIST_CHARS or not (items := _LIST.fullmatch(text.strip())):
        return []
    return [parse_string_literal(literal.strip()) or "" for literal in re.findall(_ITEM, items[1])]


_ITEM = r'\s*"(?:\\.|[^"\\])*"\s*'
_LIST = re.compile(rf"\{{({_ITEM}(?:,{_ITEM})*)\}}")


def _parse_number(text: str | None) -> float | None:
    try:
        return None if text is None else valid_number(float(text))
    except ValueError:
        return None


def parse_integer(text: str | None) -> int | None:
    return _to_integer(_parse_number(text))


def _to_integer(value: object) -> int | None:
    """Return the integer part of a number, limited to ClassAd's integers; None if *value* is not a number."""
    number = valid_number(value)
    return None if number is None else max(-MAX_CLASSAD_INTEGER, min(int(number), MAX_CLASSAD_INTEGER))


def _valid_state(value: object) -> str | None:
    """Return a dataset's state in a slot ad; None for an invalid value: a startd can write any value."""
    return value if isinstance(value, str) and value in set(DatasetState) else None


def _valid_share(value: object) -> float | None:
    number = valid_number(value)
    return float(number) if number is not None and 0 <= number <= 1 else None


def _parse_datasets(text: str | None, default_scope: str | None) -> tuple[tuple[Did, ...], dict[str, str]]:
    if text is None or text.strip().lower() == "undefined":
        return (), {}
    if len(text) > MAX_LIST_CHARS:
        reason = f"RequiredDatasets has {len(text)} characters, {MAX_LIST_CHARS} are allowed"
        return (), {shorten(text, MAX_TEXT_CHARS): reason}
    names = parse_string_list(text)
    if not names:
        return (), {shorten(text, MAX_TEXT_CHARS): "RequiredDatasets must be a list of strings"}
    dids: list[Did] = []
    invalid = {}
    for name in names:
        try:
            dids.append(parse_did(name, default_scope))
        except BadDid as bad:
            invalid[shorten(name, MAX_TEXT_CHARS)] = bad.reason
    return tuple(dict.fromkeys(dids)), invalid
