"""Entries of a site's ad about sets of datasets, as programs read them back."""

import tracemalloc
from datetime import timedelta

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.set_answers import SetAnswer, read_set_answers, read_site_answers
from hydrator.domain.model import SiteAd, to_unix
from tests.factories import CAM, L1, L2, MINUTE, NOON

ONE, TWO = set_key([L1]), set_key([L1, L2])


def ad(**lines: str) -> SiteAd:
    content = (
        ("DataLocalitySite", '"CAM"'),
        ("DataLocalitySets", f"['{ONE}'=1.0;'{TWO}'=0.62]"),
        *lines.items(),
        ("DataLocalityVersion", "1"),
    )
    return SiteAd(CAM, NOON, 7, content, NOON + 10 * MINUTE)


ESTIMATES = {
    "DataLocalitySetsAsOf": f"['{TWO}'={to_unix(NOON) - 60}]",
    "DataLocalityReadSeconds": f"['{TWO}'=256]",
    "DataLocalityQueueSeconds": f"['{TWO}'=1024]",
    "DataLocalityReadFrom": f"['{TWO}'=\"UK\"]",
    "DataLocalityOwnQueueSeconds": "512",
}


def test_answers_have_the_share_the_age_and_both_estimates():
    answers = read_set_answers(ad(**ESTIMATES), NOON)
    assert answers.by_key == {
        ONE: SetAnswer(1.0, to_unix(NOON)),
        TWO: SetAnswer(0.62, to_unix(NOON) - 60, 256, 1024, "UK"),
    }
    assert (answers.own_queue_seconds, answers.estimates_until) == (512, to_unix(NOON + 10 * MINUTE))
    assert answers.by_key[ONE].is_whole
    assert answers.has_cheaper_read(TWO)


def test_read_that_ends_with_the_queue_is_not_cheaper():
    answers = read_set_answers(ad(**{**ESTIMATES, "DataLocalityOwnQueueSeconds": "768"}), NOON)
    assert not answers.has_cheaper_read(TWO)
    assert not answers.has_cheaper_read(ONE)


def test_estimates_past_their_end_are_left_out():
    answers = read_set_answers(ad(**ESTIMATES), NOON + 10 * MINUTE)
    assert answers.by_key[TWO].queue_seconds is None
    assert (answers.own_queue_seconds, answers.estimates_until) == (0, None)


def test_entries_that_cannot_be_read_have_no_answers():
    odd = SiteAd(CAM, NOON, 7, (("DataLocalitySets", "[a=error;b=-1.0;c=1e999;d=0.5]"),), NOON + timedelta(1))
    assert list(read_set_answers(odd, NOON).by_key) == ["d"]


def test_numbers_of_a_site_are_read_without_reading_its_sets():
    peaks = []
    for count in (10, 10_000):
        sets = f"[{';'.join(f's{number:08}=0.5' for number in range(count))}]"
        full = ad(DataLocalitySets=sets, DataLocalityOwnQueueSeconds="768")
        tracemalloc.start()
        assert read_site_answers(full, NOON).own_queue_seconds == 768
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 1000
