"""State of the model: lines of waiting jobs, users, sites, ads and claims.

A line has the waiting jobs of one user that no expression can distinguish: equal cores, policy, holders of
the data, and nearly equal sizes. All jobs of a line match the same slots at the same time, except for the
ends of their waits, which have the order of the line.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import SiteEstimates
from hydrator.domain.model import Site
from hydrator.submit.expressions import Mode

from .expressions import TIME_BITS, AdEntry, Matcher
from .links import SharedLink
from .model import JobClass, PolicyChoice, PoolSite

SIZES_PER_DOUBLING = 2
"""Sizes in one group differ by at most a factor of 2 ** (1/2); a job still reads its own bytes."""
_ABSENT = 0
"""Number of the entry of a set that the ad does not have."""


class MatchVerdict(NamedTuple):
    """Results of the pool's expressions for one case: the match, the start, and the locality rank."""

    matches: bool
    may_start: bool
    rank: float


SiteRanking = Sequence[tuple[float, tuple[int, ...]]]
"""The indices of the sites that match, by rank; the best rank is first."""
FREE_VERDICT = MatchVerdict(True, True, 0.0)
"""The verdict of jobs without data, and of all jobs in a pool without data locality."""


class EntryNumbers:
    """Numbers of different ad entries, so that a case is one small integer."""

    def __init__(self) -> None:
        self.entries: list[AdEntry] = [AdEntry()]
        self._numbers = {AdEntry(): _ABSENT}

    def number(self, entry: AdEntry) -> int:
        """Return the number of *entry*; equal entries have equal numbers."""
        if entry not in self._numbers:
            self._numbers[entry] = len(self.entries)
            self.entries.append(entry)
        return self._numbers[entry]


@dataclass(slots=True)
class AdBatch:
    """The ads of all sites of one daemon cycle.

    ``estimates`` are by site; empty without estimates. ``rows`` has, by the index of the group of sets, the
    numbers of its entries at all sites; a row is made when a job first looks it up. A batch is never changed
    otherwise: a claim keeps the batch of its match, as the schedd keeps the slot's ad.
    """

    published_at: float
    fresh_until: float = 0.0
    estimates_until: float = 0.0
    estimates: Sequence[SiteEstimates] = ()
    rows: dict[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class SiteState:
    """A site in the model. ``free_cores`` has the free cores of each machine with free cores.

    ``expected_ends`` has the expected end of each busy core, sorted; ``expected_runs`` is the sum of the
    expected run times over these cores.
    """

    index: int
    site: PoolSite
    link: SharedLink | None
    free_cores: dict[int, int]
    free_total: int
    next_read_end: float | None = None
    expected_ends: list[float] = field(default_factory=list)
    expected_runs: float = 0.0


class ReadTurn(NamedTuple):
    """A turn in which a job begins to read: source, seconds of a turn, its number, and the job's weight.

    These are the parts of the concurrency limit ``DataLocalityReadLimit``.
    """

    source: Site
    seconds: int
    number: int
    weight: int


@dataclass(slots=True)
class SlotClaim:
    """A claimed dynamic slot of one user; ``ads`` are the ads of the time of the match.

    ``run`` is what the daemon expects of the present job. ``turn`` is the limit of the claim's first job, if
    this job began to read.
    """

    site: SiteState
    machine: int
    cores: int
    user: "UserState"
    ads: AdBatch
    began_at: float
    rank: float
    run: "ExpectedRun | None" = None
    turn: ReadTurn | None = None

    def end(self) -> None:
        """Return the claim's cores to its machine."""
        free = self.site.free_cores
        free[self.machine] = free.get(self.machine, 0) + self.cores
        self.site.free_total += self.cores
        self.user.cores_in_use -= self.cores


class ExpectedRun(NamedTuple):
    """A run as the daemon expects it: its end, its computing time (s), and its place (run_times.Place)."""

    end: float
    seconds: float
    place: str


@dataclass(slots=True)
class SetGroup:
    """Sets of datasets with the same entries in all ads: equal holders, and nearly equal sizes.

    ``typical`` is a class of jobs that need one of the sets. ``homes`` are the indices of the sites with all
    data, and ``fitting_homes`` those of them with machines that are large enough for the jobs. ``shares`` is
    DataLocalitySets by site. The estimates of the group have the key ``key``.
    """

    index: int
    key: SetKey
    cores: int
    typical: JobClass
    homes: tuple[int, ...]
    fitting_homes: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(slots=True)
class JobLine:
    """Waiting jobs that no expression can distinguish, in the order of their submission.

    ``group`` has the sets that the jobs need. Jobs without data, and all jobs of a pool without data
    locality, are free: every slot matches. In a pool with data locality, ``is_ranked``: the negotiator ranks
    the slots for them. ``results`` has the results of the expressions. ``head``
    is the first job, the end of its wait, and the time when its set was published, as far as they are known.
    """

    cores: int
    policy: PolicyChoice
    group: SetGroup
    user: "UserState"
    is_free: bool
    results: "ModeResults"
    is_ranked: bool = True
    expected_seconds: float | None = None
    head: tuple[int, float, float] = (-1, 0.0, 0.0)
    waiting: deque[int] = field(default_factory=deque)

    def release_at(self, submitted_at: float, begin_unix: int) -> float:
        """Return the end of the wait of a job that was submitted at *submitted_at* (DataLocalityAnyAfter)."""
        return self.policy.wait_end(begin_unix + submitted_at) - begin_unix

    def take_first(self) -> int:
        """Take the first job, which starts now."""
        job = self.waiting.popleft()
        if not self.waiting:
            self.user.lines.remove(self)
        return job


@dataclass(slots=True)
class UserState:
    """A user: lines with waiting jobs, cores in use, and his priority; a smaller one is better."""

    name: str
    lines: list[JobLine] = field(default_factory=list)
    cores_in_use: int = 0
    priority: float = 0.5

    def first_jobs(self) -> Iterator[tuple[int, JobLine]]:
        """Yield the first job of each line, with the line."""
        return ((line.waiting[0], line) for line in self.lines)


@dataclass(slots=True)
class ModeResults:
    """The results of the expressions of one mode.

    Attributes:
        verdicts: by case, a number: the number of the entry, and then TIME_BITS bits of the time class.
        rankings: the sites that match, by the numbers of their entries and the time class.
    """

    verdicts: dict[int, MatchVerdict] = field(default_factory=dict)
    rankings: dict[tuple[tuple[int, ...], int], SiteRanking] = field(default_factory=dict)


@dataclass(slots=True)
class VerdictCache:
    """The results of all modes, evaluated when they are first needed."""

    numbers: EntryNumbers
    build_matcher: Callable[[Mode], Matcher]
    _by_mode: dict[str, tuple[Matcher, ModeResults]] = field(default_factory=dict)

    def results_of(self, policy: PolicyChoice) -> ModeResults:
        """Return the results that lines with *policy* share; *policy* is not ``off``."""
        mode = policy.mode
        if mode == "off":
            raise ValueError("a pool without data locality evaluates no expression")
        if mode not in self._by_mode:
            self._by_mode[mode] = (self.build_matcher(mode), ModeResults())
        return self._by_mode[mode][1]

    def evaluate(self, line: JobLine, case: int) -> MatchVerdict:
        """Evaluate the expressions of *line* for *case*: the entry's number and the time class."""
        matcher, results = self._by_mode[line.policy.mode]
        entry, time_class = self.numbers.entries[case >> TIME_BITS], case & ((1 << TIME_BITS) - 1)
        verdict = MatchVerdict(
            matcher.matches(entry, time_class),
            matcher.may_start(entry, time_class),
            matcher.rank(entry, time_class),
        )
        results.verdicts[case] = verdict
        return verdict

    @property
    def evaluation_count(self) -> int:
        return sum(matcher.evaluation_count for matcher, _ in self._by_mode.values())


def build_ranking(verdicts: Iterable[MatchVerdict]) -> SiteRanking:
    """Return the ranking of the sites with these verdicts, in the order of their indices."""
    by_rank: dict[float, list[int]] = {}
    for index, verdict in enumerate(verdicts):
        if verdict.matches:
            by_rank.setdefault(verdict.rank, []).append(index)
    return [(rank, tuple(by_rank[rank])) for rank in sorted(by_rank, reverse=True)]


def begin_claim(
    line: JobLine, site: SiteState, machine: int, ads: AdBatch, now: float, rank: float
) -> SlotClaim:
    """Claim a slot for a job of *line* on *machine*, with the cores that the job needs."""
    left = site.free_cores[machine] - line.cores
    if left:
        site.free_cores[machine] = left
    else:
        del site.free_cores[machine]
    site.free_total -= line.cores
    line.user.cores_in_use += line.cores
    return SlotClaim(site, machine, line.cores, line.user, ads, now, rank)


def group_key(one: JobClass) -> tuple[object, ...]:
    """Return the key of the :class:`SetGroup` of the jobs of class *one*."""
    sizes: dict[frozenset[Site], int] = {}
    for data in one.inputs:
        sizes[data.holders] = sizes.get(data.holders, 0) + data.byte_count
    parts = frozenset(
        (holders, round(SIZES_PER_DOUBLING * math.log2(size)) if size else 0)
        for holders, size in sizes.items()
    )
    return (one.cores, parts)


def share_at(one: JobClass, site: Site) -> float:
    """Return ``DataLocalitySets`` of the jobs' set at *site*: 1.0, or less, rounded down to hundredths."""
    if one.is_local_at(site):
        return 1.0
    if one.byte_count:
        share = 1 - one.missing_at(site) / one.byte_count
    else:
        share = sum(site in data.holders for data in one.inputs) / len(one.inputs)
    return min(0.99, math.floor(share * 100) / 100)
