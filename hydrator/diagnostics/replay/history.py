"""A workload from the pool's own history: ended jobs, the sites' past ads, and sampled slot totals.

What the history does not have is assumed, and each assumption is a sentence in ``Workload.unknowns``.
The owner of a job can write any value into the job's ad, so a value of the wrong type counts as absent.
"""

import heapq
import statistics
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from hydrator.diagnostics.outcomes import AdHistory, EndedJob, parse_ended_job
from hydrator.domain.ads.estimates import RateLookup
from hydrator.domain.model import Did, Site
from hydrator.domain.text import format_count
from hydrator.domain.untrusted import valid_integer, valid_time
from hydrator.state.slot_totals import SlotTotal

from .lines import SiteState
from .links import build_link
from .model import (
    OFF,
    InputData,
    JobClass,
    PolicyChoice,
    PolicyDefaults,
    PoolSite,
    RecordedRun,
    ReplayRun,
    Workload,
    build_policy,
)
from .transfers import Transfers

_MAX_CORES = 100_000
ASSUMED_MACHINE_CORES = 8
"""Cores of a machine, if the daemon has not sampled the slots."""
_COUNTED = {
    "user": "without an owner: they count as jobs of one user",
    "cores": "without a number of cores: assumed 1",
    "lost": "that started before the daemon's history of some site: they count as jobs without data",
    "place": "without a known site of their data: they run anywhere, and count as jobs without data",
    "mode": "with data but without a mode: with the policy recorded they run anywhere",
    "observed": "of observe-only blocks of an experiment: with the policy recorded they run anywhere",
    "size": "with datasets of unknown size: these count as empty",
}
"""Kinds of jobs with an unknown fact, and the sentence of each."""


@dataclass(frozen=True, slots=True)
class HistoryInputs:
    """The pool's history, as a replay needs it.

    ``rows`` are those of the ``JobHistory`` port. ``ad_history`` has the datasets of each site over time,
    ``slot_totals`` the cores of each site over time. ``sizes`` has the bytes of datasets for jobs without
    sizes of their own. ``bytes_per_second`` are the operator's rates of sites' uplinks; for other sites,
    ``rates`` are those between two sites that the daemon knows. ``since`` is the begin of the period;
    ``defaults`` are the pool's waits of jobs.
    """

    rows: Sequence[Mapping[str, Any]]
    ad_history: AdHistory
    slot_totals: Sequence[SlotTotal]
    sizes: Mapping[Did, int]
    bytes_per_second: Mapping[Site, float]
    since: datetime
    defaults: PolicyDefaults
    default_scope: str | None = None
    rates: RateLookup | None = None


@dataclass(frozen=True, slots=True)
class _PastJob:
    """A job of the history with valid times, in Unix seconds."""

    submitted: float
    started: float
    ended: float
    site: Site | None
    job_class: JobClass


def build_history_workload(inputs: HistoryInputs) -> Workload:
    """Build the workload of all jobs that started and ended in the period; see the module's text."""
    unknowns: list[str] = []
    jobs = _select_jobs(inputs, unknowns)
    jobs.sort(key=lambda job: job.submitted)
    begin = int(jobs[0].submitted) if jobs else int(inputs.since.timestamp())
    sites = _build_sites(jobs, inputs, unknowns)
    classes: dict[JobClass, int] = {}
    class_of = array("i", (classes.setdefault(job.job_class, len(classes)) for job in jobs))
    read_ends = _replay_reads(jobs, sites, list(classes), class_of)
    compute = array(
        "d", (max(1.0, job.ended - max(job.started, end)) for job, end in zip(jobs, read_ends, strict=True))
    )
    return Workload(
        sites,
        tuple(classes),
        array("d", (job.submitted - begin for job in jobs)),
        compute,
        class_of,
        tuple(unknowns),
        begin,
        [RecordedRun(job.site, job.started - begin, job.ended - begin) for job in jobs],
    )


def _select_jobs(inputs: HistoryInputs, unknowns: list[str]) -> list[_PastJob]:
    """Return the jobs with valid times; say how many others there are, and what the jobs do not have."""
    jobs, left_out, counts = [], 0, dict.fromkeys(_COUNTED, 0)
    for row in inputs.rows:
        ended_job = parse_ended_job(row, inputs.default_scope)
        ended_at = valid_time(row.get("EnteredCurrentStatus"))
        submitted, started = ended_job.submitted_at, ended_job.last_started_at
        if submitted is None or started is None or ended_at is None or not submitted <= started <= ended_at:
            left_out += 1
            continue
        job_class = _build_class(row, ended_job, inputs, counts)
        at, begin, end = submitted.timestamp(), started.timestamp(), ended_at.timestamp()
        jobs.append(_PastJob(at, begin, end, ended_job.site, job_class))
    if left_out:
        unknowns.append(
            f"{format_count(left_out, 'job')} without valid times, or that never started: left out"
        )
    unknowns += [
        f"{format_count(counts[key], 'job')} {text}" for key, text in _COUNTED.items() if counts[key]
    ]
    if jobs:
        unknowns.append(
            "the sites of a job's data are those of the ads when the job started: staging is not replayed"
        )
        unknowns.append(
            "jobs that have not ended, or that ran before the period: they are left out, so the pool begins"
            " empty, and waits are too short where such jobs held many slots"
        )
    return jobs


def _build_class(
    row: Mapping[str, Any], job: EndedJob, inputs: HistoryInputs, counts: dict[str, int]
) -> JobClass:
    user = row.get("Owner")
    cores = valid_integer(row.get("RequestCpus"), _MAX_CORES)
    counts["user"] += not isinstance(user, str)
    counts["cores"] += not cores
    data: tuple[InputData, ...] = ()
    policy = None
    if job.datasets and job.last_started_at and inputs.ad_history.has_lost(job.last_started_at):
        counts["lost"] += 1
    elif job.datasets and job.last_started_at:
        data = tuple(_find_input(did, job, inputs) for did in sorted(job.datasets))
        if not all(one.holders for one in data):
            counts["place"] += 1
            data = ()
        else:
            counts["size"] += any(not one.byte_count for one in data)
            policy = _parse_recorded_policy(row, inputs.defaults)
            counts["mode"] += policy is None
            if policy and policy.mode != "require" and _was_observed(job, inputs.ad_history):
                counts["observed"] += 1
                policy = OFF
    expected = valid_integer(row.get("DataLocalityExpectedSeconds"))
    return JobClass(user if isinstance(user, str) else "unknown", cores or 1, data, policy, expected)


def _was_observed(job: EndedJob, history: AdHistory) -> bool:
    """Return True if *job* started in an observe-only block, in which only require jobs use the ads."""
    return bool(job.site and job.last_started_at and history.is_observing(job.site, job.last_started_at))


def _find_input(did: Did, job: EndedJob, inputs: HistoryInputs) -> InputData:
    history, started_at = inputs.ad_history, job.last_started_at
    holders = frozenset(
        site
        for site in history.sites
        if started_at and did in (history.available_datasets(site, started_at) or ())
    )
    return InputData(job.sizes.get(did, inputs.sizes.get(did, 0)), holders, did)


def _parse_recorded_policy(row: Mapping[str, Any], defaults: PolicyDefaults) -> PolicyChoice | None:
    """Return the mode of the job as the transform stored it, with its wait."""
    mode = row.get("DataLocality")
    wait = valid_integer(row.get("DataLocalityMaxWait"))
    seconds = float(defaults.wait_of(mode) if wait is None else wait)
    try:
        return build_policy("recorded", str(mode), seconds, defaults.rounding_seconds)
    except ValueError:
        return None


def _build_sites(
    jobs: Sequence[_PastJob], inputs: HistoryInputs, unknowns: list[str]
) -> tuple[PoolSite, ...]:
    """Return the sites with their cores: the median of the samples, or the most cores that ran at once."""
    names = {job.site for job in jobs if job.site} | set(inputs.ad_history.sites)
    names |= {total.site for total in inputs.slot_totals}
    peaks = _peak_cores(jobs)
    sites, without_totals, has_totals = [], [], False
    for name in sorted(names):
        totals = [one for one in inputs.slot_totals if one.site == name and one.slot_count and one.core_count]
        has_totals = has_totals or bool(totals)
        if totals:
            machines = round(statistics.median(one.slot_count for one in totals))
            cores = round(statistics.median(one.core_count for one in totals) / machines)
        else:
            machines = -(-peaks.get(name, 0) // ASSUMED_MACHINE_CORES)
            cores = -(-peaks.get(name, 0) // machines) if machines else 1
            without_totals.append(name)
        sites.append(PoolSite(name, machines, max(1, cores)))
    if has_totals:
        unknowns.append(
            "slots that came and went: each site has the median of its sampled cores all the time"
        )
    if without_totals:
        unknowns.append(
            f"no slot totals of {', '.join(without_totals)} in this period: assumed the largest number of"
            f" cores that jobs used at once, in machines of {ASSUMED_MACHINE_CORES} cores"
        )
    return tuple(_add_rates(sites, inputs, unknowns))


def _add_rates(sites: Sequence[PoolSite], inputs: HistoryInputs, unknowns: list[str]) -> Iterator[PoolSite]:
    """Yield *sites* with the rates at which jobs read from there; say which rates are unknown."""
    readers = [site.name for site in sites if site.cores]
    without_rates, without_pairs, are_present_rates = [], [], False
    for site in sites:
        if (uplink := inputs.bytes_per_second.get(site.name)) is not None:
            yield replace(site, bytes_per_second=uplink)
            continue
        others = [other for other in readers if other != site.name]
        found = {
            other: rate.bytes_per_second
            for other in others
            if inputs.rates and (rate := inputs.rates.rate(site.name, other)) and rate.bytes_per_second > 0
        }
        are_present_rates = are_present_rates or bool(found)
        if not found:
            without_rates.append(site.name)
        else:
            without_pairs += [f"{site.name} to {other}" for other in others if other not in found]
        yield replace(site, rates_to=found)
    if without_rates:
        unknowns.append(
            f"no rate of the uplinks of {', '.join(without_rates)}: reads from there take no time, so"
            " makespan and waits do not show the network"
        )
    if without_pairs:
        unknowns.append(f"no rate from {', '.join(without_pairs)}: these reads take no time")
    if are_present_rates:
        unknowns.append("the rates between the sites in the period: assumed are the rates that are known now")


def _peak_cores(jobs: Sequence[_PastJob]) -> dict[Site, int]:
    """Return the largest number of cores that jobs used at once, by site."""
    changes = [
        (at, change, job.site)
        for job in jobs
        if job.site
        for at, change in ((job.started, job.job_class.cores), (job.ended, -job.job_class.cores))
    ]
    used: dict[Site, int] = {}
    peaks: dict[Site, int] = {}
    for _, change, site in sorted(changes):
        used[site] = used.get(site, 0) + change
        peaks[site] = max(peaks.get(site, 0), used[site])
    return peaks


def _replay_reads(
    jobs: Sequence[_PastJob],
    sites: Sequence[PoolSite],
    classes: Sequence[JobClass],
    class_of: Sequence[int],
) -> list[float]:
    """Return the time when each job had read its data, if the reads shared the links as in the model.

    The starts of the jobs are known, so the ends of their reads follow; the rest of a run is computing.
    """
    states = {site.name: SiteState(index, site, build_link(site), {}, 0) for index, site in enumerate(sites)}
    events: list[tuple[float, int]] = []
    transfers = Transfers(list(states.values()), classes, array("d", bytes(8 * len(jobs))), events)
    read_ends = [job.started for job in jobs]

    def run_until(limit: float) -> None:
        while events and events[0][0] <= limit:
            now, number = heapq.heappop(events)
            if number < 0:
                transfers.end_read(-1 - number, now)
            else:
                read_ends[number] = now

    for number in sorted(range(len(jobs)), key=lambda one: jobs[one].started):
        job = jobs[number]
        run_until(job.started)
        if job.site:
            transfers.begin(number, class_of[number], states[job.site], job.started, 0.0)
    run_until(float("inf"))
    return read_ends


def build_recorded_run(workload: Workload) -> ReplayRun:
    """Return the history of *workload* itself as a run, to compare the policies with it."""
    numbers = {site.name: number for number, site in enumerate(workload.sites)}
    runs = [run or RecordedRun(None, 0.0, 0.0) for run in workload.recorded]
    site_of = array("i", (numbers.get(run.site, -1) if run.site else -1 for run in runs))
    started, ended = array("d", (run.started_at for run in runs)), array("d", (run.ended_at for run in runs))
    return ReplayRun(workload, PolicyChoice("history", "off"), 0, started, ended, site_of)
