"""Outcomes of ended jobs, with any value that their owners wrote."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry
from pydantic_core import to_json

from hydrator.cli.commands.report import Report, find_problems, parse_since, print_report
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.outcomes import (
    MAX_ROWS,
    Outcomes,
    Quantiles,
    ScheddHistory,
    Start,
    StartCounts,
    parse_ended_job,
    parse_histories,
    summarize,
)
from hydrator.diagnostics.start_record import ASKED
from hydrator.domain.ads.dataset_sets import hash_key, names_key, set_key
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Unseen, from_unix, to_unix
from hydrator.domain.ports import EndedJobs
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, SECOND

LATER = NOON + 2 * HOUR
LOCAL, READ = "local", "read 240 s from UK"


def row(*datasets: str, site: object = CAM, waits=MINUTE, runs=HOUR, start: object = LOCAL, **more) -> dict:
    """Return a schedd's record of a job that waited and then started once, at noon."""
    return {
        "GlobalJobId": "schedd#1.0#1",
        "JobStatus": 4,
        "QDate": to_unix(NOON - waits),
        "JobStartDate": to_unix(NOON),
        "JobCurrentStartDate": to_unix(NOON),
        "EnteredCurrentStatus": to_unix(NOON + runs),
        "site": site,
        "datasets": list(datasets) or None,
        "key": set_key(datasets) if datasets else None,
        "is_of_cluster": False,
        "asked": ASKED,
        "start": start,
        "misses": [],
        "read_bytes": 0,
        **more,
    }


def found(*rows: dict) -> Outcomes:
    return summarize(map(parse_ended_job, rows))


def batch_of(*rows: dict):
    return parse_histories({"ap1": EndedJobs(rows, is_complete=True)}, None, LATER)


NEVER = row(L1, start=None, JobStartDate=None, JobCurrentStartDate=None, JobStatus=3)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (LOCAL, Start.LOCAL),
        (READ, Start.READ),
        ("", Start.UNKNOWN),
        (None, Start.UNKNOWN),
        ("read my lips", Start.UNKNOWN),
        (7, Start.UNKNOWN),
    ],
)
def test_start_is_what_the_slot_offered_to_the_job(text, start):
    assert parse_ended_job(row(L1, start=text)).start is start
    assert parse_ended_job(row(start=text)).start is Start.NO_DATASETS


def test_starts_and_bytes_are_counted_by_site_and_by_set():
    counted = found(
        row(L2, L1, site=RAL, start=READ, read_bytes=30),
        row(L1),
        row(L1, site=RAL, start=READ, read_bytes=70),
        row(L1, L2, site=None, start=""),
        row(),
        NEVER,
    )
    assert counted.total == StartCounts(1, 2, 1, 100)
    assert counted.sites == {CAM: StartCounts(1), RAL: StartCounts(0, 2, 0, 100)}
    both = f"{L1}, {L2}"
    assert counted.sets == {L1: StartCounts(1, 1, 0, 70), both: StartCounts(0, 1, 1, 30)}
    assert list(counted.sets) == [L1, both], "the most bytes first"
    assert (len(counted.sets), counted.never_started) == (2, 1)


def test_waits_and_runs_are_counted_by_the_way_a_job_started():
    counted = found(
        row(L1, waits=3 * MINUTE),
        row(L1, waits=5 * MINUTE, JobStatus=3),
        row(waits=SECOND, runs=2 * HOUR),
        NEVER,
    )
    assert counted.waits[Start.LOCAL] == Quantiles(2, 180.0, 300.0, 300.0)
    assert counted.runs[Start.LOCAL] == Quantiles(1, 3600.0, 3600.0, 3600.0), "not of the removed job"
    assert (counted.waits[Start.NO_DATASETS].median, counted.runs[Start.NO_DATASETS].median) == (1, 7200)
    assert counted.waits[Start.READ] == counted.waits[Start.UNKNOWN] == Quantiles()


@pytest.mark.parametrize(
    ("values", "expected"),
    [((5,), (1, 5, 5, 5)), ((2, 1), (2, 1, 2, 2)), (range(1000, 0, -1), (1000, 500, 900, 990))],
)
def test_quantiles_are_values_that_occurred(values, expected):
    assert Quantiles.of(values) == Quantiles(*expected)


def test_miss_counts_at_its_own_site_not_where_the_job_ended():
    at = to_unix(NOON - HOUR)
    counted = found(row(L1, misses=[f"{at} {L1},{L2} {RAL}", f"{at} {L1} {RAL}"]), row(L1))
    assert {site: one.jobs_with_misses for site, one in counted.sites.items()} == {CAM: 0, RAL: 1}
    assert (counted.sites[CAM].local, counted.sites[RAL].job_count) == (2, 0)
    assert (counted.total.jobs_with_misses, counted.missed_datasets) == (1, 2)


def test_invented_sites_do_not_push_out_the_sites_of_many_jobs():
    at = to_unix(NOON)
    invented = [row(L1, site=f"x{n}", misses=[f"{at} {L1} y{n}"]) for n in range(MAX_ROWS)]
    counted = found(*invented, row(L1), row(L1))
    assert len(counted.sites) == MAX_ROWS
    assert counted.sites[CAM].job_count == 2


def test_all_jobs_of_a_large_pool_are_counted_though_few_sets_are_named():
    """10,000 jobs of 250 sets, of which 10 of 40 read."""
    rows = [
        row(f"x:{n // 40}", site=f"S{n % 150}", start=LOCAL if n % 4 else READ, read_bytes=0 if n % 4 else n)
        for n in range(10_000)
    ]
    counted = found(*rows)
    assert counted.total == StartCounts(7500, 2500, 0, sum(range(0, 10_000, 4)))
    assert (counted.waits[Start.LOCAL].jobs, counted.waits[Start.READ].jobs) == (7500, 2500)
    most_bytes = {
        f"x:{n}": StartCounts(30, 10, 0, sum(range(40 * n, 40 * n + 40, 4))) for n in range(249, 149, -1)
    }
    assert list(counted.sets.items()) == list(most_bytes.items())
    assert len(counted.sites) == MAX_ROWS


TIMES = ("QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus")


@pytest.mark.parametrize(
    "odd",
    [
        *({name: value} for name in TIMES for value in (0, -5, 2**62, "now", True, [], float("nan"))),
        {"JobStartDate": to_unix(NOON - HOUR)},  # before the submission
        {"JobCurrentStartDate": to_unix(NOON - SECOND)},  # before the first start
        {"EnteredCurrentStatus": to_unix(NOON - SECOND)},
        dict.fromkeys(TIMES[1:3], to_unix(NOON + 10 * HOUR)),  # starts in the future, has ended
        dict.fromkeys(TIMES, to_unix(NOON + 10 * HOUR)),
    ],
)
def test_job_with_impossible_times_is_left_out_and_counted(odd):
    """P8."""
    batch = batch_of(row(L1), row(L1) | odd)
    assert (len(batch.jobs), batch.left_out) == (1, 1)


def test_job_that_never_started_and_a_clock_that_is_ahead_are_possible():
    ahead = dict.fromkeys(TIMES, to_unix(LATER + MINUTE))
    assert batch_of(NEVER, row(L1) | ahead).left_out == 0


@pytest.mark.parametrize(
    ("own", "is_counted"),
    [
        ({}, True),
        ({"key": hash_key([L1])}, True),
        ({"key": "c7.8@ap1", "is_of_cluster": True}, True),
        ({"asked": None, "key": None, "start": None}, True),  # submitted before the installation
        ({"asked": None}, False),  # the owner wrote MATCH_EXP_DataLocalityStart, and DataLocalityTransformed
        ({"asked": LOCAL}, False),
        ({"key": None}, False),
        ({"key": names_key([L2])}, False),
        ({"key": hash_key([L2])}, False),
        ({"key": "c7.8@ap1"}, False),
        ({"key": "c7.8@ap1", "start": READ}, False),
    ],
)
def test_start_counts_only_if_the_schedd_wrote_its_record_for_the_jobs_datasets(own, is_counted):
    batch = batch_of(row(L1), row(L1) | own)
    assert (len(batch.jobs), batch.left_out) == (1 + is_counted, not is_counted)


@pytest.mark.parametrize(
    "odd",
    [
        {"datasets": "lofar:L1"},
        {"datasets": [L1, "RequiredDatasets = error"]},
        {"datasets": [None]},
        {"site": 7},
        {"site": "a\nb"},
        {"site": "a" * 1000},
        {"read_bytes": -5},
        {"read_bytes": "many"},
        {"misses": ["", "x y z", f"99999999999 {L1} CAM", 7]},
        {"JobStatus": "done"},
    ],
)
def test_invalid_job_attributes_do_not_end_the_report(odd):
    counted = found(row(L1, L2) | odd, row(L1))
    assert counted.total.local in {1, 2}
    assert counted.total.read_bytes == 0
    assert list(counted.sites) == [CAM]
    to_json(counted)


def printed(capsys, made: Report) -> str:
    print_report(made)
    return " ".join(capsys.readouterr().out.split())


def test_report_prints_starts_times_sets_and_what_it_left_out(capsys):
    sets = [row(f"lofar:M{n}", start="") for n in range(12)]
    counted = found(row(L1), row(L1, L2, start=READ, read_bytes=2 * 10**9), row(), NEVER, *sets)
    text = printed(capsys, Report(NOON, NOON + HOUR, counted, (), 3))
    assert text.startswith("3 jobs left out: the times cannot be, the schedd did not write the record")
    assert "CAM 14 1 (7 %) 1 12 2 GB 0 all 14 1 (7 %) 1 12 2 GB 0" in text
    assert "beside its data 1 min 1 min 1 min 1 h 1 h 1 h" in text
    assert f"{L1}, and 1 more 1 0 (0 %) 1 0 2 GB 0" in text
    assert "14 jobs with datasets started and ended in 1 h; 1 more never started." in text
    assert "could not read" not in text


def test_report_without_a_started_job_says_so_and_counts_the_others(capsys):
    text = printed(capsys, Report(NOON, NOON + HOUR, found(row(), NEVER), ()))
    assert text == (
        "No job that names datasets started and ended since 2026-11-21 12:00 UTC; 1 job without datasets did."
    )


def test_report_names_the_schedds_without_a_whole_answer():
    answers = {"s1": EndedJobs((row(L1), row()), is_complete=False), "s2": Unseen("no answer within 20 s")}
    schedds = parse_histories(answers, None, LATER).schedds
    assert schedds == (
        ScheddHistory("s1", 2, is_complete=False),
        ScheddHistory("s2", None, is_complete=False, failure="no answer within 20 s"),
    )
    cut, silent = find_problems(schedds)
    assert "only the last 2 jobs" in cut
    assert silent == "schedd s2: no answer within 20 s"
    assert find_problems(batch_of().schedds) == []
    assert len(find_problems(())) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6h", NOON - 6 * HOUR),
        (" 90 min ", NOON - 90 * MINUTE),
        ("99999d", from_unix(0)),
        ("2026-11-21T13:00:00+02:00", datetime(2026, 11, 21, 11, tzinfo=UTC)),
    ],
)
def test_since_is_a_span_before_now_or_a_time(text, expected):
    assert parse_since(text, NOON) == expected
    assert parse_since(text, NOON).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "-1h",
        "1.5h",
        "999999d",
        "2026-11-21T11:00:00",
        "2026-11-21T12:00:01Z",
        "1969-12-31T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_bad_since_is_one_sentence(text):
    with pytest.raises(ConfigError) as caught:
        parse_since(text, NOON)
    (problem,) = caught.value.problems
    assert problem.startswith(f"--since {text!r}: ")


def test_job_metrics_add_up_with_few_series():
    registry = CollectorRegistry()
    metrics = Metrics(registry, "0")
    metrics.record_ended_jobs(batch_of(row(L1), row(L2, start=READ), row(waits=timedelta(0)), NEVER))
    metrics.record_ended_jobs(batch_of(row(L1, start="")))

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    assert [value("hydrator_job_starts_total", start=one) for one in Start] == [1, 1, 1, 1]
    assert value("hydrator_job_wait_seconds_count", datasets="named") == 3
    assert value("hydrator_job_wait_seconds_sum", datasets="none") == 0
