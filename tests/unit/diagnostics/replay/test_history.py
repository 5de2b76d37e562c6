"""A workload from the pool's history, and the negative control: the policy that ran gives its share again."""

import statistics
from array import array
from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.diagnostics.outcomes import AdHistory
from hydrator.diagnostics.replay.history import HistoryInputs, build_history_workload, build_recorded_run
from hydrator.diagnostics.replay.model import (
    RECORDED,
    JobClass,
    PolicyDefaults,
    PoolRules,
    PoolSite,
    ReplayRun,
    parse_policy,
)
from hydrator.diagnostics.replay.statistics import summarize
from hydrator.domain.ads.estimates import Rate
from hydrator.domain.model import Did, from_unix, to_unix
from hydrator.reconcile.ads.drafts import Draft
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.publish.experiment import mark_observed
from hydrator.state.slot_totals import SlotTotal
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, ad

from .worlds import AUTO, DE, NL, PL, REQUIRE, data, lofar, play, wait, workload

DAY = timedelta(days=1)
BEGIN = to_unix(NOON)


def row(*datasets: str, site: object = CAM, start=NOON, waits=MINUTE, runs=HOUR, **more) -> dict:
    return {
        "QDate": to_unix(start - waits),
        "JobStartDate": to_unix(start),
        "JobCurrentStartDate": to_unix(start),
        "EnteredCurrentStatus": to_unix(start + runs),
        "Owner": "alice",
        "RequestCpus": 1,
        "site": site,
        "datasets": list(datasets) or None,
        "bytes": dict.fromkeys(datasets, 1000),
        "misses": [],
    } | more


def inputs(*rows: dict, **more) -> HistoryInputs:
    shown = AdHistory(
        [HistoryEntry(NOON - DAY, ad(L1, site=CAM), ()), HistoryEntry(NOON - DAY, ad(site=RAL), ())]
    )
    values = {
        "rows": rows,
        "ad_history": shown,
        "slot_totals": [],
        "sizes": {},
        "bytes_per_second": {},
        "since": NOON - DAY,
        "defaults": PolicyDefaults(),
    }
    return HistoryInputs(**values | more)


def test_job_of_the_history_becomes_a_job_of_the_workload():
    got = build_history_workload(inputs(row(L1, site=RAL, DataLocality="wait", DataLocalityMaxWait=90)))
    (one,) = got.classes
    assert (one.user, one.cores, one.inputs[0].byte_count, one.inputs[0].holders) == ("alice", 1, 1000, {CAM})
    assert (one.policy.mode, one.policy.wait_seconds) == ("wait", 90)
    assert (list(got.submitted), list(got.compute_seconds)) == ([0], [3600])
    assert got.begin_unix == to_unix(NOON - MINUTE)


def test_job_before_the_history_of_some_site_counts_as_one_without_data():
    """RAL may have had the dataset, too; with CAM alone the policies would look better than they are."""
    entries = [HistoryEntry(NOON - DAY, ad(L1, site=CAM), ()), HistoryEntry(NOON, ad(L1, site=RAL), ())]
    lost = AdHistory(entries, {RAL: NOON})
    got = build_history_workload(inputs(row(L1, start=NOON - MINUTE), row(L1), ad_history=lost))
    assert [[one.holders for one in each.inputs] for each in got.classes] == [[], [{CAM, RAL}]]
    assert sum("1 job that started before the daemon's history" in text for text in got.unknowns) == 1


def test_read_of_a_job_is_not_part_of_its_computing():
    # 1000 bytes at 10 B/s: a lone reader needs 100 s; two readers at the same time need 200 s
    alone = inputs(row(L1, site=RAL), bytes_per_second={CAM: 10.0})
    assert list(build_history_workload(alone).compute_seconds) == [3500]
    together = inputs(row(L1, site=RAL), row(L1, site=RAL), bytes_per_second={CAM: 10.0})
    assert list(build_history_workload(together).compute_seconds) == [3400, 3400]
    local = inputs(row(L1, site=CAM), bytes_per_second={CAM: 10.0})
    assert list(build_history_workload(local).compute_seconds) == [3600]


def test_cores_of_a_site_are_the_median_of_its_samples():
    totals = [SlotTotal(NOON + n * MINUTE, CAM, 2, cores) for n, cores in enumerate((16, 16, 64))]
    got = build_history_workload(inputs(row(L1), slot_totals=totals))
    assert [(site.name, site.machine_count, site.machine_cores) for site in got.sites] == [
        (CAM, 2, 8),
        (RAL, 0, 1),
    ]


def test_without_samples_the_cores_are_the_most_that_ran_at_once():
    rows = [row(L1, start=NOON + n * 30 * MINUTE, RequestCpus=3) for n in range(3)]
    got = build_history_workload(inputs(*rows))
    assert got.sites[0].cores == 6  # the third job starts when the first ends
    assert any("no slot totals of CAM, RAL" in text for text in got.unknowns)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"Owner": None}, "1 job without an owner"),
        ({"Owner": 7}, "1 job without an owner"),
        ({"RequestCpus": "many"}, "1 job without a number of cores"),
        ({"datasets": [L2], "bytes": {}}, "1 job without a known site of their data"),
        ({"bytes": {}}, "1 job with datasets of unknown size"),
        ({"DataLocality": "sometimes"}, "1 job with data but without a mode"),
        ({"EnteredCurrentStatus": None}, "1 job without valid times"),
        ({"JobCurrentStartDate": to_unix(NOON + 2 * HOUR)}, "1 job without valid times"),
        ({}, "no rate of the uplinks of CAM, RAL"),
    ],
)
def test_unknown_fact_is_a_sentence(changes, sentence):
    got = build_history_workload(inputs(row(L1) | changes))
    assert [text for text in got.unknowns if sentence in text], got.unknowns


class Rates:
    """Rates between sites; any other pair is unknown."""

    def __init__(self, pairs: dict[tuple[str, str], float]) -> None:
        self.pairs = pairs

    def rate(self, source, destination) -> Rate | None:
        speed = self.pairs.get((source, destination))
        return None if speed is None else Rate(speed, "test")


TOTALS = [SlotTotal(NOON, CAM, 1, 8), SlotTotal(NOON, RAL, 1, 8)]


def test_rates_of_pairs_are_those_of_the_daemon():
    known = Rates({(CAM, RAL): 10.0, (RAL, CAM): 4.0})
    got = build_history_workload(inputs(row(L1, site=RAL), slot_totals=TOTALS, rates=known))
    assert [(site.name, site.bytes_per_second, site.rates_to) for site in got.sites] == [
        (CAM, None, {RAL: 10.0}),
        (RAL, None, {CAM: 4.0}),
    ]
    assert list(got.compute_seconds) == [3500]  # 1000 bytes at 10 B/s
    assert any("rates that are known now" in text for text in got.unknowns)
    assert not any("no rate" in text for text in got.unknowns)


def test_rate_of_an_uplink_overrides_those_of_the_daemon():
    known = Rates({(CAM, RAL): 10.0, (RAL, CAM): 4.0})
    told = inputs(row(L1, site=RAL), slot_totals=TOTALS, rates=known, bytes_per_second={CAM: 5.0})
    got = build_history_workload(told)
    assert [(site.bytes_per_second, site.rates_to) for site in got.sites] == [(5.0, {}), (None, {CAM: 4.0})]
    assert list(got.compute_seconds) == [3400]


def test_rate_that_is_unknown_for_one_pair_is_named():
    third = [*TOTALS, SlotTotal(NOON, "NL", 1, 8)]
    known = Rates({(CAM, RAL): 10.0, (RAL, CAM): 4.0, (RAL, "NL"): 4.0})
    got = build_history_workload(inputs(row(L1), slot_totals=third, rates=known))
    assert "no rate from CAM to NL: these reads take no time" in got.unknowns
    assert [text for text in got.unknowns if text.startswith("no rate of the uplinks of NL:")]


def test_times_that_the_user_stated_are_kept():
    (one,) = build_history_workload(inputs(row(L1, DataLocalityExpectedSeconds=90))).classes
    assert one.expected_seconds == 90
    (one,) = build_history_workload(inputs(row(L1, DataLocalityExpectedSeconds="soon"))).classes
    assert one.expected_seconds is None


def test_each_mode_has_its_own_default_wait():
    defaults = PolicyDefaults(10, 20, 1, 30)
    waits = {}
    for mode in ("wait", "prefer", "auto"):
        (one,) = build_history_workload(inputs(row(L1, DataLocality=mode), defaults=defaults)).classes
        waits[mode] = one.policy.wait_seconds
    assert waits == {"wait": 10, "prefer": 20, "auto": 30}
    assert {mode: parse_policy(mode, defaults).wait_seconds for mode in waits} == waits


def test_known_facts_are_no_sentence():
    full = inputs(row(L1, DataLocality="require"), slot_totals=TOTALS, bytes_per_second={CAM: 1e9, RAL: 1e9})
    staging, others, cores = build_history_workload(full).unknowns
    assert "staging is not replayed" in staging
    assert "have not ended" in others
    assert "came and went" in cores


@pytest.mark.parametrize(
    ("site", "mode", "start", "expected"),
    [
        (RAL, "auto", NOON, "off"),
        (RAL, "prefer", NOON - 2 * MINUTE, "prefer"),
        (RAL, "require", NOON, "require"),
        (CAM, "wait", NOON, "wait"),
        (None, "auto", NOON, "auto"),
    ],
)
def test_job_of_an_observe_only_block_had_no_data_locality(site, mode, start, expected):
    """Only require jobs use the ads of such a block."""
    observed = mark_observed({RAL: Draft(RAL, NOON, ad(site=RAL).content)})[RAL].content
    entries = [
        HistoryEntry(NOON - DAY, ad(L1, site=CAM), ()),
        HistoryEntry(NOON - DAY, ad(site=RAL), ()),
        HistoryEntry(NOON - MINUTE, replace(ad(site=RAL), content=observed), ()),
    ]
    got = build_history_workload(
        inputs(row(L1, site=site, start=start, DataLocality=mode), ad_history=AdHistory(entries))
    )
    assert [one.policy.mode for one in got.classes] == [expected]
    sentences = [text for text in got.unknowns if "1 job of observe-only blocks" in text]
    assert len(sentences) == (expected == "off")


def test_empty_history_is_an_empty_workload():
    assert build_history_workload(inputs()).job_count == 0


def slow_jobs(policy, *, seed: int):
    """Return jobs of some 10 min at three sites, as lofar() draws them, with *policy* as their own mode."""
    jobs = lofar(0.5, seed=seed, jobs=1500, spread=0.5, interval=1.0)
    sites = tuple(PoolSite(site.name, 2, 8, 1e6 / 300) for site in jobs.sites)
    classes = tuple(JobClass(one.user, one.cores, one.inputs, policy) for one in jobs.classes)
    compute = array("d", (100 * seconds for seconds in jobs.compute_seconds))
    submitted = array("d", (10 * at for at in jobs.submitted))
    return replace(jobs, sites=sites, classes=classes, compute_seconds=compute, submitted=submitted)


def as_history(run: ReplayRun) -> HistoryInputs:
    """Return what the schedds and the daemon would have recorded of *run*; times are whole seconds."""
    jobs = run.workload
    rows = []
    for job, site in enumerate(run.site_of):
        one = jobs.classes[jobs.class_of[job]]
        rows.append(
            {
                "QDate": BEGIN + int(jobs.submitted[job]),
                "JobStartDate": BEGIN + int(run.started[job]),
                "JobCurrentStartDate": BEGIN + int(run.started[job]),
                "EnteredCurrentStatus": BEGIN + int(run.ended[job]),
                "Owner": one.user,
                "RequestCpus": one.cores,
                "DataLocality": one.policy.mode,
                "DataLocalityMaxWait": int(one.policy.wait_seconds),
                "site": jobs.sites[site].name,
                "datasets": [each.name for each in one.inputs],
                "bytes": {each.name: each.byte_count for each in one.inputs},
                "misses": [],
            }
        )
    entries = []
    for site in jobs.sites:
        held = {Did(each.name) for one in jobs.classes for each in one.inputs if site.name in each.holders}
        entries.append(HistoryEntry(from_unix(BEGIN - 1), ad(*sorted(held), site=site.name), ()))
    totals = [SlotTotal(from_unix(BEGIN), site.name, site.machine_count, site.cores) for site in jobs.sites]
    rates = {site.name: site.bytes_per_second for site in jobs.sites}
    since = from_unix(BEGIN - 1)
    return HistoryInputs(
        rows, AdHistory(entries), totals, {}, rates, since, PolicyDefaults(rounding_seconds=1)
    )


@pytest.mark.outside
@pytest.mark.parametrize("policy", [wait(300), wait(0), AUTO, REQUIRE], ids=lambda policy: policy.name)
def test_replay_of_the_policy_that_ran_gives_its_local_share_again(policy):
    rules = PoolRules(is_published_beforehand=True)
    ran = play(slow_jobs(policy, seed=5), policy, rules, seed=11)
    history = build_history_workload(as_history(ran))
    recorded = summarize([build_recorded_run(history)], "seeds")
    assert recorded.share_of_jobs.value == pytest.approx(summarize([ran], "seeds").share_of_jobs.value)
    again = [play(history, RECORDED, rules, seed) for seed in range(5)]
    share = statistics.mean(summarize([run], "seeds").share_of_jobs.value for run in again)
    assert abs(share - recorded.share_of_jobs.value) <= 0.02
    other = play(history, REQUIRE if policy.mode != "require" else wait(0), rules)
    assert abs(summarize([other], "seeds").share_of_jobs.value - recorded.share_of_jobs.value) > 0.05


def test_computing_times_survive_the_way_through_the_history():
    ran = play(slow_jobs(wait(0), seed=5), wait(0), PoolRules(is_published_beforehand=True), seed=1)
    assert ran.bytes_moved > 0
    history = build_history_workload(as_history(ran))
    pairs = zip(history.compute_seconds, ran.workload.compute_seconds, strict=True)
    errors = sorted(abs(got - true) for got, true in pairs)
    assert errors[len(errors) // 2] <= 2  # whole seconds
    assert errors[int(0.95 * len(errors))] <= 20


def test_recorded_run_is_the_history_itself():
    rows = [row(L1, site=CAM), row(L1, site=RAL, waits=HOUR)]
    run = build_recorded_run(build_history_workload(inputs(*rows)))
    result = summarize([run], "seeds")
    assert (result.share_of_jobs.value, result.bytes_moved.value) == (0.5, 1000)
    assert result.wait_mean_seconds.value == (60 + 3600) / 2
    assert result.makespan_seconds.value == 2 * 3600


def test_removing_one_policy_does_not_change_another():
    jobs = workload((PoolSite(NL, 1, 2, 10.0), PoolSite(DE, 1, 2, 10.0), PoolSite(PL, 1, 1, 10.0)),
                    *[(n, 9, JobClass("a", 1, (data(NL),))) for n in range(20)])  # fmt: skip
    alone = play(jobs, AUTO)
    play(jobs, REQUIRE)
    assert play(jobs, AUTO).started == alone.started
