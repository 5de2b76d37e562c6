"""What became of jobs that named datasets: values in, values out, whatever their owners wrote."""

import json
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from hydrator.cli.commands.report import as_rows
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.job_outcomes import count
from hydrator.diagnostics.outcomes import Found, Shown, ended_job, median, outcome, quantile, tally
from hydrator.domain.model import Site, Unseen, unix
from hydrator.domain.ports import Ended
from hydrator.reconcile.history import Entry
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, ad

SIZES = {L1: 100, L2: 50}


def row(*datasets: str, site: object = CAM, waits=MINUTE, start=NOON, **more) -> dict:
    """A job as its schedd tells of it, that waited and then started once."""
    return {
        "GlobalJobId": "schedd#1.0#1",
        "QDate": unix(start - waits),
        "JobStartDate": unix(start),
        "JobCurrentStartDate": unix(start),
        "EnteredCurrentStatus": unix(start + HOUR),
        "site": site,
        "datasets": list(datasets) or None,
        "bytes": {},
        "misses": [],
        **more,
    }


def kept(*datasets: str, site=CAM, at=NOON - HOUR) -> Entry:
    return Entry(at, ad(*datasets, site=site, at=at), ())


SHOWN = Shown([kept(L1), kept(L2, site=RAL)])


def found(*rows: dict, shown=SHOWN, sizes=SIZES):
    return tally(map(ended_job, rows), shown, sizes)


@pytest.mark.parametrize(
    ("datasets", "site", "what", "here", "elsewhere"),
    [
        ([L1], CAM, Found.ALL, 100, 0),
        ([L1, L2], CAM, Found.SOME, 100, 50),
        ([L2], CAM, Found.NONE, 0, 50),
        ([L1], "OSO", Found.UNKNOWN, 0, 0),
        ([L1], None, Found.UNKNOWN, 0, 0),
    ],
)
def test_a_job_found_what_its_site_said_when_it_started(datasets, site, what, here, elsewhere):
    one = outcome(ended_job(row(*datasets, site=site)), SHOWN, SIZES)
    assert (one.found, one.bytes_here, one.bytes_elsewhere) == (what, here, elsewhere)


def test_what_counts_is_the_ad_of_that_time_and_before_the_first_one_nothing_is_known():
    shown = Shown([kept(L1, at=NOON), kept(at=NOON + HOUR), kept(L1, at=NOON + 2 * HOUR)])
    starts = [NOON - MINUTE, NOON, NOON + MINUTE, NOON + HOUR, NOON + 2 * HOUR]
    judged = [outcome(ended_job(row(L1, start=at)), shown, {}).found for at in starts]
    assert judged == [Found.UNKNOWN, Found.ALL, Found.ALL, Found.NONE, Found.ALL]


def test_a_dataset_that_the_job_missed_was_not_there_whatever_the_ad_said():
    def missed(site, when):
        text = f"{unix(when)} {L1} {site}"
        return outcome(ended_job(row(L1, misses=[text])), SHOWN, SIZES).found

    assert missed(CAM, NOON + MINUTE) is Found.NONE
    assert missed(RAL, NOON + MINUTE) is Found.ALL, "another site's"
    assert missed(CAM, NOON - HOUR) is Found.ALL, "of an earlier start"


def test_sizes_are_the_jobs_own_else_the_catalogues_else_said_to_be_unknown():
    own = outcome(ended_job(row(L1, L2, bytes={"LOFAR:L1": 7})), SHOWN, {})
    assert (own.bytes_here, own.bytes_elsewhere, own.unsized) == (7, 0, 1)
    assert outcome(ended_job(row(L1)), SHOWN, SIZES).bytes_here == 100


def test_waits_of_jobs_with_and_without_datasets_are_told_apart():
    several = found(row(L1, waits=3 * MINUTE), row(L1, waits=5 * MINUTE), row(waits=MINUTE))
    assert (several.waits, several.other_waits, several.added) == ((180.0, 300.0), (60.0,), 120.0)
    assert found(row(L1)).added is None


def test_a_job_that_never_started_is_counted_apart_and_waited_for_nothing():
    one = found(row(L1, JobStartDate=None, JobCurrentStartDate=None))
    assert (one.never_started, one.waits, sum(one.total.found.values())) == (1, (), 0)


@pytest.mark.parametrize("value", ["now", True, -1, 1e300, float("nan"), [], {"a": 1}, 1 << 70])
def test_a_time_that_is_none_counts_as_not_there(value):
    job = ended_job(row(L1, QDate=value, JobStartDate=value, JobCurrentStartDate=value))
    assert (job.submitted, job.last_start, job.waited) == (None, None, None)


@pytest.mark.parametrize(
    "odd",
    [
        {"datasets": "lofar:L1"},
        {"datasets": 7},
        {"datasets": [L1, "RequiredDatasets = error"]},
        {"datasets": [None]},
        {"site": 7},
        {"site": "a\nb"},
        {"bytes": [1]},
        {"bytes": {L1: -5, L2: True, "": 3, 4: 4}},
        {"bytes": {L1: 1 << 62}},
        {"misses": 5},
        {"misses": ["", "x y z", f"99999999999 {L1} CAM", 7]},
        {"QDate": unix(NOON + HOUR)},
    ],
)
def test_nothing_that_an_owner_writes_ends_the_report(odd):
    counted = found(row(L1, L2) | odd, row(L1))
    assert counted.total.found[Found.ALL] == 1
    assert counted.total.bytes_here <= 200 + counted.total.bytes_elsewhere + 100
    json.dumps(as_rows(counted, {}, NOON - HOUR, NOON))


def test_an_empty_row_is_a_job_that_says_nothing():
    assert found({}).total.found == dict.fromkeys(Found, 0)


def test_a_site_that_never_had_an_ad_makes_no_row():
    counted = found(row(L1, site="made up"), row(L1))
    assert list(counted.sites) == [CAM]
    assert counted.total.found[Found.UNKNOWN] == 1


def test_a_miss_counts_at_the_site_where_it_happened_and_not_where_the_job_ended():
    at = unix(NOON - HOUR)
    misses = [f"{at} {L1},{L2} {RAL}", f"{at} {L1} {RAL}", f"{at} {L1} an odd site"]
    made = found(row(L1, site=CAM, misses=misses), row(L1, site=CAM))
    assert {site: one.missed for site, one in made.sites.items()} == {CAM: 0, RAL: 1}
    assert made.sites[CAM].found[Found.ALL] == 2
    assert sum(made.sites[RAL].found.values()) == 0
    assert made.total.missed == 1


@pytest.mark.parametrize(
    ("values", "half", "most"), [((), None, None), ((5,), 5, 5), ((1, 2), 1, 2), (tuple(range(1, 11)), 5, 9)]
)
def test_quantiles_are_values_that_occurred(values, half, most):
    assert (median(values), quantile(values, 0.9)) == (half, most)


def test_the_report_for_programs_has_these_keys_and_says_who_was_silent():
    answers = {"s1": Ended((row(L1), row()), whole=False), "s2": Unseen("no answer within 20 s")}
    made = as_rows(found(row(L1, L2), row(waits=HOUR)), answers, NOON - HOUR, NOON)
    assert made == {
        "version": 1,
        "since": unix(NOON - HOUR),
        "until": unix(NOON),
        "jobs": {"all": 0, "some": 1, "none": 0, "unknown": 0},
        "share_of_jobs": 0.0,
        "bytes_at_site": 100,
        "bytes_elsewhere": 50,
        "share_of_bytes": 100 / 150,
        "jobs_that_missed": 0,
        "never_started": 0,
        "datasets_without_size": 0,
        "missed_datasets": 0,
        "wait_seconds": {
            "named": {"jobs": 1, "median": 60.0, "p90": 60.0},
            "unnamed": {"jobs": 1, "median": 3600.0, "p90": 3600.0},
            "added": -3540.0,
        },
        "sites": [
            {
                "site": CAM,
                "jobs": {"all": 0, "some": 1, "none": 0, "unknown": 0},
                "share_of_jobs": 0.0,
                "bytes_at_site": 100,
                "bytes_elsewhere": 50,
                "share_of_bytes": 100 / 150,
                "jobs_that_missed": 0,
            }
        ],
        "schedds": [
            {"schedd": "s1", "jobs": 2, "whole": False, "failure": None},
            {"schedd": "s2", "jobs": None, "whole": False, "failure": "no answer within 20 s"},
        ],
    }


class Told:
    """A history that tells what it is given, once."""

    def __init__(self, *answers) -> None:
        self._answers = list(answers)

    def newly(self):
        return self._answers.pop(0)

    def ended(self, since):
        raise AssertionError("not asked while counting")

    def close(self):
        pass


def test_counting_adds_up_and_knows_few_series():
    registry = CollectorRegistry()
    metrics = Metrics(registry, "0")
    history = Told(
        {"s1": Ended((row(L1), row(L2), row(waits=timedelta(0))), whole=True), "s2": Unseen("silent")},
        {"s1": Ended((row(L1, site=Site("made up")),), whole=False)},
    )
    first = count(history, lambda: [kept(L1)], SIZES, None)
    second = count(history, lambda: [kept(L1)], SIZES, None)
    assert (first.unasked, second.cut) == ({"s2": "silent"}, ("s1",))
    metrics.ended(first)
    metrics.ended(second)

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    counts = {
        one: value("hydrator_jobs_local_total", found=one) for one in ("all", "some", "none", "unknown")
    }
    assert counts == {"all": 1, "some": 0, "none": 1, "unknown": 1}
    assert value("hydrator_jobs_data_bytes_total", at="site") == 100
    assert value("hydrator_jobs_data_bytes_total", at="elsewhere") == 50
    assert value("hydrator_job_wait_seconds_count", datasets="named") == 3
    assert value("hydrator_job_wait_seconds_sum", datasets="none") == 0


def test_the_archive_is_left_alone_while_no_job_ended():
    def unread():
        raise AssertionError("read")

    assert count(Told({"s1": Ended((row(),), whole=True)}), unread, {}, None).outcomes == ()
