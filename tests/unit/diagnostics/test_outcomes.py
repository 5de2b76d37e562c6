"""Outcomes of jobs that named datasets, with any value that their owners wrote."""

import json
import math
from collections.abc import Collection
from datetime import timedelta
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from hydrator.cli.commands.outcomes.job_report import Report, ScheddHistory, describe_lost_ads, print_outcomes
from hydrator.cli.output.printing import json_value
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.job_outcomes import collect_outcomes
from hydrator.diagnostics.outcomes import (
    LocalityResult,
    LostAds,
    Waits,
    determine_outcome,
    has_possible_times,
    median,
    parse_ended_job,
    quantile,
    tally,
)
from hydrator.domain.model import Did, Site, Unseen, to_unix
from hydrator.domain.ports import EndedJobs
from hydrator.reconcile.history import AvailableSpans
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, SECOND

SIZES = {L1: 100, L2: 50}
LATER = NOON + 2 * HOUR


def row(*datasets: str, site: object = CAM, waits=MINUTE, start=NOON, **more) -> dict:
    """Return a schedd's record of a job that waited and then started once."""
    return {
        "GlobalJobId": "schedd#1.0#1",
        "QDate": to_unix(start - waits),
        "JobStartDate": to_unix(start),
        "JobCurrentStartDate": to_unix(start),
        "EnteredCurrentStatus": to_unix(start + HOUR),
        "site": site,
        "datasets": list(datasets) or None,
        "bytes": {},
        "misses": [],
        **more,
    }


class Listed(NamedTuple):
    """The datasets that the ad of a site lists from a time on."""

    dids: tuple[Did, ...]
    site: Site
    since: float


def kept(*datasets: Did, site=CAM, at=NOON - HOUR) -> Listed:
    return Listed(datasets, site, at.timestamp())


def spans_of(*ads: Listed, lost: Collection[Site] = ()) -> AvailableSpans:
    spans: dict[Site, dict[Did, list[tuple[float, float]]]] = {}
    begins = {one.site: (one.since, one.site in lost) for one in reversed(ads)}
    for one in ads:
        untils = [other.since for other in ads if other.site == one.site and other.since > one.since]
        for did in one.dids:
            stays = spans.setdefault(one.site, {}).setdefault(did, [])
            stays.append((one.since, min(untils, default=math.inf)))
    return AvailableSpans(spans, begins)


SHOWN = spans_of(kept(L1), kept(L2, site=RAL))


def found(*rows: dict, shown=SHOWN, sizes=SIZES):
    return tally(map(parse_ended_job, rows), shown, sizes)


@pytest.mark.parametrize(
    ("datasets", "site", "what", "here", "elsewhere"),
    [
        ([L1], CAM, LocalityResult.ALL, 100, 0),
        ([L1, L2], CAM, LocalityResult.SOME, 100, 50),
        ([L2], CAM, LocalityResult.NONE, 0, 50),
        ([L1], "OSO", LocalityResult.UNKNOWN, 0, 0),
        ([L1], None, LocalityResult.UNKNOWN, 0, 0),
    ],
)
def test_outcome_uses_the_sites_ad_at_the_jobs_start(datasets, site, what, here, elsewhere):
    one = determine_outcome(parse_ended_job(row(*datasets, site=site)), SHOWN, SIZES)
    assert (one.locality, one.bytes_at_site, one.bytes_elsewhere) == (what, here, elsewhere)


def test_outcome_uses_the_ad_of_that_time_and_none_before_the_first():
    shown = spans_of(kept(L1, at=NOON), kept(at=NOON + HOUR), kept(L1, at=NOON + 2 * HOUR))
    starts = [NOON - MINUTE, NOON, NOON + MINUTE, NOON + HOUR, NOON + 2 * HOUR]
    judged = [determine_outcome(parse_ended_job(row(L1, start=at)), shown, {}).locality for at in starts]
    assert judged == [
        LocalityResult.UNKNOWN,
        LocalityResult.ALL,
        LocalityResult.ALL,
        LocalityResult.NONE,
        LocalityResult.ALL,
    ]


@pytest.mark.parametrize(
    ("changes", "locality"),
    [
        ([kept(at=NOON), kept(L1, at=NOON + 0.4 * SECOND)], LocalityResult.ALL),
        ([kept(L1, at=NOON + 0.4 * SECOND)], LocalityResult.ALL),
        ([kept(L1, at=NOON), kept(at=NOON + 0.4 * SECOND)], LocalityResult.ALL),
        ([kept(at=NOON), kept(L1, at=NOON + SECOND)], LocalityResult.NONE),
        ([kept(L1, at=NOON - SECOND), kept(at=NOON)], LocalityResult.NONE),
    ],
)
def test_start_in_whole_seconds_finds_the_ads_of_its_second(changes, locality):
    """The schedd rounds the start down: an ad of the same second may have come first."""
    one = determine_outcome(parse_ended_job(row(L1, start=NOON)), spans_of(*changes), {})
    assert one.locality is locality


def test_jobs_before_the_history_of_their_site_are_counted_with_its_begin():
    shown = spans_of(kept(L1, at=NOON), kept(L2, site=RAL, at=NOON), lost={CAM})
    before = [row(L1, start=NOON - MINUTE), row(L1, L2, start=NOON - HOUR)]
    others = [row(L1), row(L1, site="OSO", start=NOON - HOUR), row(L2, site=RAL, start=NOON - HOUR)]
    results = found(*before, *others, shown=shown)
    assert results.lost_ads == {CAM: LostAds(2, NOON)}, "RAL had no ad before, and the daemon deleted none"
    assert results.total.job_counts[LocalityResult.UNKNOWN] == 4
    (sentence,) = describe_lost_ads(results)
    assert sentence.startswith(f"2 jobs of unknown result started at {CAM} before 2026-11-21 12:00 UTC")


def test_missed_dataset_was_not_at_the_site_despite_the_ad():
    def missed(site, when):
        text = f"{to_unix(when)} {L1} {site}"
        return determine_outcome(parse_ended_job(row(L1, misses=[text])), SHOWN, SIZES).locality

    assert missed(CAM, NOON + MINUTE) is LocalityResult.NONE
    assert missed(RAL, NOON + MINUTE) is LocalityResult.ALL, "another site's"
    assert missed(CAM, NOON - HOUR) is LocalityResult.ALL, "of an earlier start"


def test_waits_are_counted_separately_with_and_without_datasets():
    several = found(row(L1, waits=3 * MINUTE), row(L1, waits=5 * MINUTE), row(waits=MINUTE))
    assert (several.waits, several.other_waits) == (Waits(2, 180.0, 300.0), Waits(1, 60.0, 60.0))
    assert found(row(L1)).other_waits == Waits(0, None, None)


def test_job_that_never_started_is_counted_without_a_wait():
    one = found(row(L1, JobStartDate=None, JobCurrentStartDate=None))
    assert (one.never_started, one.waits.jobs, sum(one.total.job_counts.values())) == (1, 0, 0)


TIMES = ("QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus")


@pytest.mark.parametrize(
    "odd",
    [
        *({name: value} for name in TIMES for value in (0, -5, 2**62, "now", True, [])),
        {"JobStartDate": to_unix(NOON - HOUR)},  # before the submission
        {"JobCurrentStartDate": to_unix(NOON - SECOND)},  # before the first start
        {"EnteredCurrentStatus": to_unix(NOON - SECOND)},
        dict.fromkeys(TIMES[1:3], to_unix(NOON + 10 * HOUR)),  # starts in the future, has ended
        dict.fromkeys(TIMES, to_unix(NOON + 10 * HOUR)),
    ],
)
def test_job_with_impossible_times_is_left_out_and_counted(odd):
    rows = (row(L1), row(L1) | odd)
    assert [has_possible_times(one, LATER) for one in rows] == [True, False]
    batch = collect_outcomes(
        Told({"s1": EndedJobs(rows, is_complete=True)}), lambda _: SHOWN, SIZES, None, LATER
    )
    assert (len(batch.jobs), batch.impossible_count) == (1, 1)


def test_job_that_never_started_and_a_clock_that_is_ahead_are_possible():
    idle = row(JobStartDate=None, JobCurrentStartDate=None)
    assert has_possible_times(idle, LATER)
    assert has_possible_times(row(), NOON + HOUR - MINUTE)


def test_report_prints_the_number_of_jobs_left_out(capsys):
    print_outcomes(Report(NOON, NOON + HOUR, found(), (), 3))
    assert capsys.readouterr().out.startswith(
        "3 jobs left out, because their times in the history cannot be.\n"
    )


@pytest.mark.parametrize("value", ["now", True, -1, 1e300, float("nan"), [], {"a": 1}, 1 << 70])
def test_invalid_time_counts_as_absent(value):
    job = parse_ended_job(row(L1, QDate=value, JobStartDate=value, JobCurrentStartDate=value))
    assert (job.submitted_at, job.last_started_at, job.wait_time) == (None, None, None)


@pytest.mark.parametrize(
    "odd",
    [
        {"datasets": "lofar:L1"},
        {"datasets": [L1, "RequiredDatasets = error"]},
        {"datasets": [None]},
        {"site": 7},
        {"site": "a\nb"},
        {"bytes": {L1: -5, L2: True, "": 3, 4: 4}},
        {"bytes": {L1: 1 << 62}},
        {"misses": ["", "x y z", f"99999999999 {L1} CAM", 7]},
        {"QDate": to_unix(NOON + HOUR)},
    ],
)
def test_invalid_job_attributes_do_not_end_the_report(odd):
    counted = found(row(L1, L2) | odd, row(L1))
    assert counted.total.job_counts[LocalityResult.ALL] == 1
    assert counted.total.bytes_at_site <= 200 + counted.total.bytes_elsewhere + 100
    json.dumps(json_value(counted))


def test_site_without_an_ad_has_no_row_in_the_report():
    counted = found(row(L1, site="made up"), row(L1))
    assert list(counted.sites) == [CAM]
    assert counted.total.job_counts[LocalityResult.UNKNOWN] == 1


def test_miss_counts_at_its_own_site_not_where_the_job_ended():
    at = to_unix(NOON - HOUR)
    misses = [f"{at} {L1},{L2} {RAL}", f"{at} {L1} {RAL}", f"{at} {L1} an odd site"]
    made = found(row(L1, site=CAM, misses=misses), row(L1, site=CAM))
    assert {site: one.jobs_with_misses for site, one in made.sites.items()} == {CAM: 0, RAL: 1}
    assert made.sites[CAM].job_counts[LocalityResult.ALL] == 2
    assert sum(made.sites[RAL].job_counts.values()) == 0
    assert made.total.jobs_with_misses == 1


@pytest.mark.parametrize(
    ("values", "half", "most"), [((), None, None), ((5,), 5, 5), ((1, 2), 1, 2), (tuple(range(1, 11)), 5, 9)]
)
def test_quantiles_are_values_that_occurred(values, half, most):
    assert (median(values), quantile(values, 0.9)) == (half, most)


def test_report_names_the_schedds_without_an_answer():
    assert ScheddHistory.of("s1", EndedJobs((row(L1), row()), is_complete=False)) == ScheddHistory(
        "s1", 2, False, None
    )
    assert ScheddHistory.of("s2", Unseen("no answer within 20 s")) == ScheddHistory(
        "s2", None, False, "no answer within 20 s"
    )


class Told:
    """A history that returns each of the given answers once."""

    def __init__(self, *answers) -> None:
        self._answers = list(answers)

    def read_newly_ended_jobs(self):
        return self._answers.pop(0)

    def read_ended_jobs(self, ended_after):
        raise AssertionError("not asked while counting")

    def close(self):
        pass


def test_job_metrics_add_up_with_few_series():
    registry = CollectorRegistry()
    metrics = Metrics(registry, "0")
    history = Told(
        {
            "s1": EndedJobs((row(L1), row(L2), row(waits=timedelta(0))), is_complete=True),
            "s2": Unseen("silent"),
        },
        {"s1": EndedJobs((row(L1, site=Site("made up")),), is_complete=False)},
    )
    first = collect_outcomes(history, lambda _: spans_of(kept(L1)), SIZES, None, LATER)
    second = collect_outcomes(history, lambda _: spans_of(kept(L1)), SIZES, None, LATER)
    assert (first.unreachable_schedds, second.truncated_schedds) == ({"s2": "silent"}, ("s1",))
    metrics.record_ended_jobs(first)
    metrics.record_ended_jobs(second)

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    counts = {
        one: value("hydrator_jobs_local_total", locality=one) for one in ("all", "some", "none", "unknown")
    }
    assert counts == {"all": 1, "some": 0, "none": 1, "unknown": 1}
    assert value("hydrator_jobs_data_bytes_total", place="site") == 100
    assert value("hydrator_jobs_data_bytes_total", place="elsewhere") == 50
    assert value("hydrator_job_wait_seconds_count", datasets="named") == 3
    assert value("hydrator_job_wait_seconds_sum", datasets="none") == 0


def test_history_is_not_loaded_without_ended_jobs():
    def unread(_):
        raise AssertionError("read")

    assert (
        collect_outcomes(
            Told({"s1": EndedJobs((row(),), is_complete=True)}), unread, {}, None, LATER
        ).outcomes
        == ()
    )
