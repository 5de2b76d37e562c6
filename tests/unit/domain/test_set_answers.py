"""Entries of a site's ad about sets of datasets, as programs read them back."""

import tracemalloc
from dataclasses import replace

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Opening, write_openings
from hydrator.domain.ads.set_answers import SetAnswer, read_backlog, read_set_answers
from hydrator.domain.model import Site, SiteAd, to_unix
from tests.factories import CAM, L1, L2, MINUTE, NOON

ONE, TWO = set_key([L1]), set_key([L1, L2])
UK = Site("UK")
OPENINGS = write_openings({TWO: Opening(240, UK, 10**9)}, 512)


def ad(**lines: str) -> SiteAd:
    content = (
        ("DataLocalitySite", '"CAM"'),
        ("DataLocalitySets", f"['{ONE}'=1.0;'{TWO}'=0.62]"),
        *lines.items(),
        ("DataLocalityVersion", "1"),
    )
    return SiteAd(CAM, NOON, 7, content, OPENINGS, NOON + 10 * MINUTE)


AGES = {"DataLocalitySetsAsOf": f"['{TWO}'={to_unix(NOON) - 60}]"}


def test_answers_have_the_share_the_age_and_the_opening():
    assert read_set_answers(ad(**AGES), NOON) == {
        ONE: SetAnswer(1.0, to_unix(NOON)),
        TWO: SetAnswer(0.62, to_unix(NOON) - 60, 240, UK),
    }


def test_set_is_open_if_one_of_its_lanes_is():
    one = replace(ad(), openings=write_openings({f"{TWO}~10": Opening(64, UK, 1)}, 0))
    assert read_set_answers(one, NOON)[TWO].open_seconds == 64


def test_openings_past_their_end_are_left_out():
    assert read_set_answers(ad(**AGES), NOON + 10 * MINUTE)[TWO].open_seconds is None


def test_entries_that_cannot_be_read_have_no_answers():
    odd = SiteAd(CAM, NOON, 7, (("DataLocalitySets", "[a=error;b=-1.0;c=1e999;d=0.5]"),))
    assert list(read_set_answers(odd, NOON)) == ["d"]


def test_backlog_of_a_site_is_read_without_reading_its_sets():
    peaks = []
    for count in (10, 10_000):
        sets = f"[{';'.join(f's{number:08}=0.5' for number in range(count))}]"
        full = ad(DataLocalitySets=sets)
        tracemalloc.start()
        assert read_backlog(full) == 512
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 1000
