"""Trial of policies for ``hydrator replay``: build the workload, run the model, and write the exports."""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from hydrator import __version__
from hydrator.cli.commands.history import parse_since
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings, load
from hydrator.diagnostics.outcomes import AdHistory
from hydrator.diagnostics.replay.exports import swf_lines, wfformat
from hydrator.diagnostics.replay.expressions import TurnRules
from hydrator.diagnostics.replay.history import HistoryInputs, build_history_workload, build_recorded_run
from hydrator.diagnostics.replay.model import (
    RECORDED,
    PolicyChoice,
    PolicyDefaults,
    PoolRules,
    ReplayRun,
    Workload,
    parse_policy,
)
from hydrator.diagnostics.replay.simulation import run_replay
from hydrator.diagnostics.replay.statistics import PolicyResult, UnitKind, choose_units, summarize
from hydrator.diagnostics.replay.workload_file import WorkloadSource, load_workload_file
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Site, Unseen
from hydrator.domain.pool_ports import EndedJobs
from hydrator.domain.text import format_count

from .replay import ReplayOptions

DEFAULT_POLICIES = ("off", "prefer", "wait", "auto")
ASSUMED_HOOK_SECONDS = 300
"""Time between two runs of a hook, as the documentation of the hook has it (STARTD_CRON_LOCALITY_PERIOD)."""
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<prefix>[kMGT]?)(?P<unit>[bB])/s")
_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True)
class ReplayTable:
    """The results of all policies, and the history's own if the jobs are from a history."""

    workload: Workload
    results: tuple[PolicyResult, ...]
    units: UnitKind
    seed_count: int
    history: PolicyResult | None


def try_policies(options: ReplayOptions) -> ReplayTable:
    """Run every policy of *options* with every seed, and write the exports.

    Raises:
        ConfigError: a policy, a rate or the workload file is not valid, or an export cannot be written.
        StateError: the daemon's state cannot be read.
        PoolError: the collector could not list the schedds.
    """
    source, is_generated, defaults, rules = _choose_workload(options)
    policies = [parse_policy(text, defaults) for text in options.policy or DEFAULT_POLICIES]
    first = source(0)
    if not first.job_count:
        return ReplayTable(first, (), "seeds", options.seeds, None)
    if first.recorded and RECORDED not in policies:
        policies = [*policies, RECORDED]
    with show_progress(f"replaying {format_count(first.job_count, 'job')}", as_json=options.as_json):
        runs = _run_all(policies, source, rules, options.seeds)
    units = choose_units(first, is_generated)
    history = summarize([build_recorded_run(first)], units) if first.recorded else None
    results = tuple(summarize(each, units) for each in runs)
    _export(options, runs[0][0])
    return ReplayTable(first, results, units, options.seeds, history)


def _run_all(
    policies: Sequence[PolicyChoice], source: WorkloadSource, rules: PoolRules, seed_count: int
) -> list[list[ReplayRun]]:
    """Run each policy with each seed; all policies have the same jobs for the same seed."""
    from hydrator.wiring import build_expression_evaluator

    evaluator = build_expression_evaluator()
    return [
        [run_replay(source(seed), policy, rules, evaluator, seed) for seed in range(seed_count)]
        for policy in policies
    ]


def _choose_workload(options: ReplayOptions) -> tuple[WorkloadSource, bool, PolicyDefaults, PoolRules]:
    """Return the source of the jobs, whether it generates them, the pool's waits of jobs, and its rules."""
    rules = PoolRules(cycle_seconds=options.cycle)
    if options.workload is not None:
        if options.uplink:
            raise ConfigError(["--uplink: a workload file has the rates of its sites itself"])
        source, is_generated = load_workload_file(options.workload)
        return source, is_generated, PolicyDefaults(), replace(rules, is_published_beforehand=True)
    from hydrator.wiring import pool_policy

    settings = load(options.config)
    jobs = settings.jobs
    auto_settle_seconds = pool_policy(settings).auto_settle.total_seconds()
    defaults = PolicyDefaults(
        jobs.wait_seconds, jobs.settle_seconds, jobs.rounding_seconds, auto_settle_seconds
    )
    rules = build_rules(settings, rules)
    workload = _load_history(options, settings, defaults).with_unknowns([describe_assumed_rules(rules)])
    return (lambda _seed: workload), False, defaults, rules


def describe_assumed_rules(rules: PoolRules) -> str:
    """Return a sentence about the pool's settings that the daemon does not know."""
    return (
        f"the settings of the pool: assumed are NEGOTIATOR_INTERVAL = {rules.cycle_seconds:g} (--cycle),"
        f" NEGOTIATOR_CYCLE_DELAY = {rules.cycle_delay_seconds:g}, CLAIM_WORKLIFE ="
        f" {rules.claim_worklife_seconds:g}, STARTD_CRON_LOCALITY_PERIOD ="
        f" {2 * rules.delivery_seconds:g}, {rules.gap_seconds:g} s between two jobs of a slot, and,"
        f" from the texts of `hydrator submit pool-config`, {describe_turns(rules.turns)}"
    )


def describe_turns(turns: TurnRules | None) -> str:
    """Return the knobs of *turns*, as the pool's configuration has them."""
    if turns is None:
        return "no limit of jobs that begin to read"
    return f"DATALOCALITY_READERS = {turns.readers} and DATALOCALITY_TURN = {turns.least_seconds}"


def build_rules(settings: Settings, rules: PoolRules) -> PoolRules:
    """Return *rules* with the rules that *settings* give to the daemon and the pool."""
    from hydrator.submit.expressions import count_readers
    from hydrator.wiring import estimate_policy, pool_policy, reconcile_policy

    estimates, pool = estimate_policy(settings), pool_policy(settings)
    has_load = settings.demand.ask_schedds
    return replace(
        rules,
        publish_seconds=float(settings.daemon.poll_seconds),
        delivery_seconds=ASSUMED_HOOK_SECONDS / 2,
        estimates=replace(estimates, is_enabled=estimates.is_enabled and has_load),
        settle_seconds=reconcile_policy(settings).settle.total_seconds(),
        max_age_seconds=pool.max_age.total_seconds(),
        others_weight=pool.others_weight,
        turns=TurnRules(count_readers(pool.readers)),
    )


def _load_history(options: ReplayOptions, settings: Settings, defaults: PolicyDefaults) -> Workload:
    """Build the workload from the histories of the schedds and the daemon's state."""
    from hydrator.reconcile.snapshot.update import sizes_of
    from hydrator.state.network_rows import load_network
    from hydrator.state.store import Store
    from hydrator.wiring import build_job_history, build_rate_table, network_policy, system_clock

    now = system_clock()
    oldest = parse_since(options.since, now)
    with Store.open_to_read(settings.daemon.state_dir) as store:
        spans = store.available_spans.load()
        ad_history = AdHistory(store.load_history(), store.history_begins.load(), lambda: spans)
        sizes = sizes_of(store.load().memories)
        totals = store.slot_totals.load(oldest)
        rates = build_rate_table(load_network(store), network_policy(settings), now)
    task = "querying the histories of the schedds"
    with (
        show_progress(task, has_steps=True, as_json=options.as_json) as bar,
        closing(build_job_history(settings, system_clock, bar)) as history,
    ):
        answers = history.read_ended_jobs(oldest)
    rows = [row for answer in answers.values() if isinstance(answer, EndedJobs) for row in answer.jobs]
    uplinks = parse_rates(options.uplink or ())
    scope = settings.daemon.default_scope
    workload = build_history_workload(
        HistoryInputs(rows, ad_history, totals, sizes, uplinks, oldest, defaults, scope, rates)
    )
    gaps = [
        f"schedd {name}: {answer.reason}"
        if isinstance(answer, Unseen)
        else f"schedd {name}: only its last {len(answer.jobs)} jobs were read"
        for name, answer in sorted(answers.items())
        if isinstance(answer, Unseen) or not answer.is_complete
    ]
    return workload.with_unknowns(gaps)


def parse_rates(texts: Iterable[str]) -> dict[Site, float]:
    """Parse the values of ``--uplink``, such as ``RAL=10Gb/s``, to bytes a second by site.

    Raises:
        ConfigError: a text is not a site and a rate above 0; every problem is listed.
    """
    rates, problems = {}, []
    for text in texts:
        site, _, rate = text.partition("=")
        match = _RATE.fullmatch(rate.strip())
        number = float(match["number"]) * _PREFIXES[match["prefix"]] if match else 0.0
        if not site or match is None or not number:
            problems.append(f"--uplink {text!r}: give a site and a rate, such as RAL=10Gb/s or RAL=1.2GB/s")
        else:
            rates[Site(site)] = number / (8 if match["unit"] == "b" else 1)
    if problems:
        raise ConfigError(problems)
    return rates


def _export(options: ReplayOptions, run: ReplayRun) -> None:
    """Write the exports of *run*.

    Raises:
        ConfigError: a file cannot be written, or the run has no job for WfFormat.
    """
    try:
        if options.export_swf:
            text = "".join(f"{line}\n" for line in swf_lines(run, __version__))
            options.export_swf.write_text(text, "utf-8")
        if options.export_wfcommons:
            options.export_wfcommons.write_text(json.dumps(wfformat(run, __version__)) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError([f"{error.filename}: {error.strerror}"]) from error
    except ValueError as error:
        raise ConfigError([f"--export-wfcommons: {error}"]) from error
