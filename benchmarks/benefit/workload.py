"""Workloads of the experiment: jobs, their datasets and the sites of the data, generated from a seed. Pure.

Sources of the figures:

- 62/32/6: shares of the LoTSS-DR2 observations at Jülich (DE), SURF (NL) and Poznań (PL)
  (ASTRON Confluence, page 78354760).
- Runs over one field: datasets are reused by Zipf's law; exponents of 0.8 to 1.0 are usual for caches.
- HEP analysis: the histograms ``Analysis_T1`` of flops and input size of 210,896 CMS jobs at KIT
  (github.com/HEPCompSim/DCSim, data/workload-configs/T1_DE_KIT_workloads.json).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SITES = ("DE", "NL", "PL")
SLOTS = 4
"""Slots of one core at each site."""
COMPUTE_SECONDS = 6.0
"""Mean computing time of a job, unless the cell has another; it represents a real job's hours."""
JOBS = 120
JOB_BYTES = 4_000_000
"""Mean bytes that a job reads; a remote read of so many bytes takes x times the mean computing time."""
USER, OTHER_USER = "alice", "bob"

LAYOUTS: dict[str, tuple[tuple[float, ...], int]] = {
    "62/32/6": ((0.62, 0.32, 0.06), 1),
    "even": ((1.0, 1.0, 1.0), 1),
    "two replicas": ((0.62, 0.32, 0.06), 2),
    "DE drains": ((0.62, 0.32, 0.06), 1),
}
"""The weight of each site of SITES, and the number of replicas of each dataset."""
DRAINED = {"DE drains": "DE"}
"""The site of a layout whose slots take no new job after :func:`drained_after_seconds`; its storage stays."""
SUBMISSIONS = {"batch": 0.0, "stream": 1.0}
"""Seconds between two jobs of the queue."""
XS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)

Histogram = tuple[tuple[int, ...], float]
"""Counts of bins of equal width from 0 on, and that width."""
KIT_ANALYSIS_FLOPS: Histogram = ((210623, 263, 4, 6), 1.5e14)
KIT_ANALYSIS_BYTES: Histogram = ((208159, 967, 701, 447, 270, 154, 72, 31, 38, 6), 5e9)
KIT_FILES = 10
"""Input files of a job in those histograms."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the map; *x* is the remote-read time of a lone reader, in mean computing times.

    *seconds* is the mean computing time of a job.
    """

    layout: str
    mix: str
    submitted: str
    x: float
    seconds: float = COMPUTE_SECONDS

    @property
    def read_seconds(self) -> float:
        """Return the seconds of a remote read of a mean job without other readers."""
        return self.x * self.seconds


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """One dataset: its DID, the sites that have it, and its size in bytes."""

    did: str
    sites: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class BenefitJob:
    """One job: *submitted_at* in seconds from the start, *seconds* of computing, indices of its datasets."""

    number: int
    submitted_at: float
    user: str
    seconds: float
    datasets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs of one run in the order of the queue, and the datasets."""

    datasets: tuple[StoredDataset, ...]
    jobs: tuple[BenefitJob, ...]

    def bytes_of(self, job: BenefitJob) -> int:
        """Return the bytes that *job* reads."""
        return sum(self.datasets[each].bytes for each in job.datasets)

    def missing_bytes(self, job: BenefitJob, site: str) -> int:
        """Return the bytes that *job* reads from elsewhere if it runs at *site*."""
        found = (self.datasets[each] for each in job.datasets)
        return sum(each.bytes for each in found if site not in each.sites)

    def homes(self, job: BenefitJob) -> tuple[str, ...]:
        """Return the sites that have all datasets of *job*: all sites for a job without datasets."""
        return tuple(site for site in SITES if not self.missing_bytes(job, site))


@dataclass(frozen=True, slots=True)
class _Draft:
    """The jobs of a mix before they have sizes in bytes and seconds.

    ``wanted`` has for each job the indices of its datasets, ``sizes`` and ``lengths`` are relative,
    ``together`` groups datasets that were stored together, ``users`` has the user of each job.
    """

    wanted: list[tuple[int, ...]]
    sizes: list[float]
    lengths: list[float]
    together: list[int]
    users: list[str]


def generate(cell: Cell, seed: int, count: int = JOBS) -> Workload:
    """Generate the jobs of *cell* for *seed*; x does not change them, so cells of one seed are comparable.

    Raises:
        KeyError: the layout, the mix or the form of submission is unknown.
    """
    chance = random.Random(f"{cell.layout} {cell.mix} {seed}")
    draft = MIXES[cell.mix](chance, count)
    places = _place(chance, cell.layout, draft.together)
    total = sum(sum(draft.sizes[each] for each in wanted) for wanted in draft.wanted)
    readers = sum(bool(wanted) for wanted in draft.wanted)
    unit = JOB_BYTES * readers / total
    datasets = tuple(
        StoredDataset(f"benefit:d{index:03}", sites, max(1, round(unit * size)))
        for index, (sites, size) in enumerate(zip(places, draft.sizes, strict=True))
    )
    mean = sum(draft.lengths) / count
    interval = SUBMISSIONS[cell.submitted]
    jobs = tuple(
        BenefitJob(
            number,
            interval * number,
            draft.users[number],
            cell.seconds * draft.lengths[number] / mean,
            wanted,
        )
        for number, wanted in enumerate(draft.wanted)
    )
    return Workload(datasets, jobs)


def drained_after_seconds(workload: Workload) -> float:
    """Return a third of the time in which all slots can compute the jobs: the same for each arm."""
    return sum(job.seconds for job in workload.jobs) / (3 * SLOTS * len(SITES))


def link_rate(read_seconds: float) -> float:
    """Return the bytes/s of each link: a lone read of a mean job then takes *read_seconds*."""
    return JOB_BYTES / read_seconds


def _place(chance: random.Random, layout: str, together: Sequence[int]) -> list[tuple[str, ...]]:
    """Choose the sites of each dataset; datasets of one group have the same sites."""
    weights, replicas = LAYOUTS[layout]
    by_group: dict[int, tuple[str, ...]] = {}
    for group in together:
        if group not in by_group:
            rest = dict(zip(SITES, weights, strict=True))
            for _ in range(replicas):
                site = chance.choices(list(rest), list(rest.values()))[0]
                del rest[site]
            by_group[group] = tuple(site for site in SITES if site not in rest)
    return [by_group[group] for group in together]


def _one(chance: random.Random, count: int) -> _Draft:
    """Draw jobs with one dataset each."""
    del chance
    wanted = [(number,) for number in range(count)]
    return _Draft(list(wanted), [1.0] * count, [1.0] * count, list(range(count)), [USER] * count)


def _field(chance: random.Random, count: int) -> _Draft:
    """Draw several runs over each field: one dataset for five jobs, by Zipf's law with exponent 0.9."""
    fields = max(1, count // 5)
    weights = [1 / rank**0.9 for rank in range(1, fields + 1)]
    draft = _one(chance, count)
    wanted = [(each,) for each in chance.choices(range(fields), weights, k=count)]
    return _Draft(list(wanted), [1.0] * fields, draft.lengths, list(range(fields)), draft.users)


def _four_sets(chance: random.Random, count: int) -> _Draft:
    """Draw four datasets, each for a quarter of the jobs, one after the other in the queue."""
    del chance
    wanted = [(4 * number // count,) for number in range(count)]
    return _Draft(list(wanted), [1.0] * 4, [1.0] * count, list(range(4)), [USER] * count)


def _unequal(chance: random.Random, count: int) -> _Draft:
    """Draw computing times from a third to five thirds of the mean."""
    draft = _one(chance, count)
    lengths = [chance.uniform(1, 5) for _ in range(count)]
    return _Draft(draft.wanted, draft.sizes, lengths, draft.together, draft.users)


def _two(chance: random.Random, count: int) -> _Draft:
    """Draw two datasets a job; of one job in six the second dataset was stored apart from the first."""
    wanted = [(2 * number, 2 * number + 1) for number in range(count)]
    together = []
    for number in range(count):
        together += [2 * number, 2 * number + (chance.random() < 1 / 6)]
    return _Draft(list(wanted), [1.0] * 2 * count, [1.0] * count, together, [USER] * count)


def _hep(chance: random.Random, count: int) -> _Draft:
    """Draw computing times and input sizes from KIT's histograms; a job's ten files are one dataset."""
    draft = _one(chance, count)
    lengths = [_draw(chance, KIT_ANALYSIS_FLOPS) for _ in range(count)]
    sizes = [sum(_draw(chance, KIT_ANALYSIS_BYTES) for _ in range(KIT_FILES)) for _ in range(count)]
    return _Draft(draft.wanted, sizes, lengths, draft.together, draft.users)


def _draw(chance: random.Random, histogram: Histogram) -> float:
    counts, width = histogram
    return width * (chance.choices(range(len(counts)), counts)[0] + chance.uniform(0.05, 1))


def _without_data(share: float, user: str) -> Callable[[random.Random, int], _Draft]:
    def draw(chance: random.Random, count: int) -> _Draft:
        draft = _one(chance, count)
        for number in chance.sample(range(count), round(share * count)):
            draft.wanted[number] = ()
            draft.users[number] = user
        return draft

    return draw


MIXES: dict[str, Callable[[random.Random, int], _Draft]] = {
    "one": _one,
    "field": _field,
    "four sets": _four_sets,
    "unequal": _unequal,
    "two": _two,
    "hep": _hep,
    "quarter without data": _without_data(0.25, USER),
    "half without data, other user": _without_data(0.5, OTHER_USER),
}
"""The ways to draw jobs, by name."""
