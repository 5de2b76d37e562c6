"""The comparison with a stock negotiator, against cases computed by hand."""

from datetime import timedelta

import pytest

from hydrator.cli.commands.outcomes.comparison import comparison_row, comparison_sentences
from hydrator.diagnostics.counterfactual import MIN_BLOCKS, PlacementBasis, compare
from hydrator.diagnostics.counterfactual.placement import MIN_WEIGHT_JOBS
from hydrator.diagnostics.outcomes import AdHistory, parse_ended_job
from hydrator.domain.ads.estimates import Rate
from hydrator.domain.model import Site, to_unix
from hydrator.reconcile.history import HistoryEntry
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, OSO, RAL, ad

SIZES = {L1: 100, L2: 50}
DAY = timedelta(days=1)
SLOTS = {NOON - MINUTE: {CAM: 6.0, RAL: 3.0, OSO: 1.0}}


def job(*datasets: str, site: object = CAM, start=NOON, owner="ann", **more):
    row = {"QDate": to_unix(start), "JobStartDate": to_unix(start), "site": site, "Owner": owner}
    return parse_ended_job({**row, "datasets": list(datasets) or None, **more})


def entry(*datasets: str, site=CAM, at=NOON - 9 * DAY) -> HistoryEntry:
    return HistoryEntry(at, ad(*datasets, site=site), ())


ADS = AdHistory([entry(L1), entry(L2, site=RAL), entry(site=OSO)])


class Rates:
    """Rates by source and destination."""

    def __init__(self, **rates: float) -> None:
        self.rates = rates

    def rate(self, source: Site, destination: Site) -> Rate | None:
        known = self.rates.get(f"{source}_{destination}") or self.rates.get(source)
        return Rate(known, "test") if known else None


def compared(*jobs, slots=SLOTS, ads=ADS, rates=None):
    return compare(jobs, ads, SIZES, slots, rates)


@pytest.mark.parametrize(
    ("ended", "moved"),
    [
        (job(L1), 0.4 * 100),  # 4 of 10 slots are at sites without it
        (job(L1, site=RAL), 0.4 * 100 - 100),
        (job(L1, L2), 0.6 * 50 + 0.3 * 100 + 0.1 * 150 - 50),
        (job(L1, L3), 0.4 * 100),  # the size of L3 is unknown
        (job(L1, bytes={L1: 10}), 4),
    ],
)
def test_part_of_a_job_is_the_expected_missing_bytes_minus_its_own(ended, moved):
    result = compared(ended)
    assert result.bytes_not_moved.value == pytest.approx(moved)
    assert result.job_counts == {PlacementBasis.SLOTS: 1}
    assert result.left_out_count == 0


def test_missed_dataset_counts_as_moved_at_the_jobs_own_site():
    miss = f"{to_unix(NOON + MINUTE)} {L1} {CAM}"
    assert compared(job(L1, misses=[miss])).bytes_not_moved.value == 0  # missing at each of the sites


def test_sites_without_an_ad_at_that_time_do_not_count():
    later = AdHistory([entry(L1), entry(L2, site=RAL), entry(site=OSO, at=NOON + HOUR)])
    assert compared(job(L1), ads=later).bytes_not_moved.value == pytest.approx(100 * 3 / 9)


def test_jobs_before_the_history_of_any_site_do_not_count():
    """Without OSO's deleted ad the stock negotiator would seem to start no job there."""
    entries = [entry(L1), entry(L2, site=RAL), entry(site=OSO, at=NOON + HOUR)]
    lost = AdHistory(entries, {OSO: NOON + HOUR})
    slots = {NOON + HOUR: SLOTS[NOON - MINUTE]}
    result = compared(job(L1), job(L1, start=NOON + HOUR), slots=slots, ads=lost)
    assert result.bytes_not_moved.value == pytest.approx(40), "of the second job"
    assert (result.left_out_count, result.lost_count) == (1, 1)
    assert comparison_row(result)["lost_ads"] == 1
    text = " ".join(comparison_sentences(result))
    assert "1 job of these started before the history of some site's ads" in text
    nothing = compared(job(L1), ads=lost)
    assert nothing.bytes_not_moved is None
    assert "before the history" in " ".join(comparison_sentences(nothing))


def test_jobs_without_a_site_a_start_data_or_a_known_size_do_not_count():
    unstarted = parse_ended_job({"QDate": to_unix(NOON), "site": CAM, "datasets": [L1]})
    jobs = [job(L1, site=None), job(L1, site="ELSEWHERE"), job(L3), job(), unstarted]
    result = compared(*jobs, rates=Rates(CAM=10.0))
    assert (result.bytes_not_moved, result.seconds_gained, result.left_out_count) == (None, None, 3)


@pytest.mark.parametrize(("age", "basis"), [(HOUR, True), (HOUR + MINUTE, False), (-MINUTE, False)])
def test_sample_of_the_slots_is_from_the_hour_before_the_start(age, basis):
    result = compared(job(L1), slots={NOON - age: {CAM: 1.0, RAL: 1.0}})
    assert (PlacementBasis.SLOTS in result.job_counts) is basis


def test_without_samples_the_probabilities_are_those_of_jobs_without_data():
    others = [job(site=CAM, owner="bob")] * 15 + [job(site=RAL, owner="bob")] * 5
    result = compared(job(L1), *others, slots={})
    assert result.bytes_not_moved.value == pytest.approx(25)
    assert result.job_counts == {PlacementBasis.JOBS_WITHOUT_DATA: 1}


def test_few_jobs_without_data_do_not_show_the_placement_so_jobs_of_other_blocks_do():
    others = [job(site=RAL, owner="bob")] * 19
    jobs = [job(L1), job(L1), job(L2, site=RAL, owner="eve"), job(L2, site=CAM, owner="eve")]
    result = compared(*jobs, *others, slots={})
    # ann's two jobs meet eve's two sites, and eve's two jobs meet ann's site: 100 for ann, 50 for eve
    assert result.bytes_not_moved.value == pytest.approx(2 * 50 + 50)
    assert result.job_counts == {PlacementBasis.JOBS_WITH_DATA: 4}
    alone = compared(*jobs[:2], slots={})
    assert (alone.bytes_not_moved, alone.left_out_count) == (None, 2)


def test_seconds_are_the_bytes_by_the_best_rate_from_a_site_with_the_data():
    rates = Rates(CAM=10.0)
    assert compared(job(L1), rates=rates).seconds_gained.value == pytest.approx(0.4 * 10)
    two = AdHistory([entry(L1), entry(L1, site=RAL), entry(site=OSO)])
    assert compared(job(L1), ads=two, rates=Rates(CAM=10.0, RAL=50.0)).seconds_gained.value == 0.1 * 2


def turned_over(*jobs, rates):
    """Compare *jobs* at two sites with one slot each; only CAM has the data."""
    slots = {NOON - MINUTE: {CAM: 1.0, RAL: 1.0}}
    return compared(*jobs, slots=slots, ads=AdHistory([entry(L1), entry(site=RAL)]), rates=rates)


def test_slots_beside_the_data_turn_over_faster():
    # one slot a site; at RAL a job reads for 10 s and computes for 10 s, alone on the link: half the starts
    count, rates = MIN_WEIGHT_JOBS, Rates(CAM=10.0)
    ended = [job(L1, EnteredCurrentStatus=to_unix(NOON) + 10)] * count
    result = turned_over(*ended, rates=rates)
    assert result.bytes_not_moved.value == pytest.approx(count * 100 / 3)
    assert result.seconds_gained.value == pytest.approx(count * 10 / 3)
    # its run at RAL has the same 10 s of computing and 10 s of reading
    away = [job(L1, site=RAL, EnteredCurrentStatus=to_unix(NOON) + 20)] * count
    assert turned_over(*away, rates=rates).bytes_not_moved.value == pytest.approx(count * (100 / 3 - 100))
    for unknown in (None, Rates(RAL=10.0)):
        assert turned_over(*ended, rates=unknown).bytes_not_moved.value == pytest.approx(count * 50)
    assert turned_over(*[job(L1)] * count, rates=rates).bytes_not_moved.value == count * 50


def test_few_jobs_do_not_show_the_turnover_of_slots():
    few = [job(L1, EnteredCurrentStatus=to_unix(NOON) + 10)] * (MIN_WEIGHT_JOBS - 1)
    assert turned_over(*few, rates=Rates(CAM=10.0)).bytes_not_moved.value == pytest.approx(len(few) * 50)


def test_interval_contains_that_of_slots_without_turnover():
    def days(**more):
        return [
            job(L1, start=NOON + MINUTE, owner=f"u{n}", bytes={L1: 100 * n}, **more)
            for n in range(MIN_WEIGHT_JOBS)
        ]

    plain = compared(*days(), rates=Rates(CAM=10.0)).bytes_not_moved
    turned = compared(
        *days(EnteredCurrentStatus=to_unix(NOON + 2 * MINUTE)), rates=Rates(CAM=10.0)
    ).bytes_not_moved
    assert turned.value < plain.value
    assert turned.low < plain.low
    assert turned.high == plain.high


def test_job_with_an_unknown_rate_counts_for_the_bytes_only():
    result = compared(job(L1), job(L2, site=RAL), rates=Rates(CAM=10.0))
    assert result.timed_count == 1
    assert result.seconds_gained.value == pytest.approx(4)
    assert result.bytes_not_moved.value == pytest.approx(40 + 0.7 * 50)
    assert compared(job(L1)).seconds_gained is None


def test_dataset_at_no_site_takes_no_part_in_the_seconds():
    nowhere = AdHistory([entry(L1), entry(site=RAL), entry(site=OSO)])
    result = compared(job(L1, L2), ads=nowhere, rates=Rates(CAM=10.0))
    assert result.seconds_gained.value == pytest.approx(4)
    assert result.bytes_not_moved.value == pytest.approx(40)


def test_interval_needs_some_blocks_and_is_the_same_each_time():
    def days(count):
        return [job(L1, start=NOON + MINUTE, owner=f"u{n}", bytes={L1: 100 * n}) for n in range(count)]

    few, many = compared(*days(MIN_BLOCKS - 1)), compared(*days(MIN_BLOCKS))
    assert (few.bytes_not_moved.low, few.bytes_not_moved.high) == (None, None)
    interval = many.bytes_not_moved
    assert 0 <= interval.low < interval.value < interval.high <= 0.4 * 100 * 4 * MIN_BLOCKS
    assert compared(*days(MIN_BLOCKS)) == many


def test_jobs_of_one_user_and_day_are_one_block():
    users = [job(L1, owner=owner) for owner in "abc"]
    assert compared(*users, *users).block_count == 3
    later = {NOON + DAY - MINUTE: SLOTS[NOON - MINUTE], **SLOTS}
    assert compared(*users, job(L1, owner="a", start=NOON + DAY), slots=later).block_count == 4
