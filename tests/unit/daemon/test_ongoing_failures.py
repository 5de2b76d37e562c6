"""A part that goes on failing is told once, and once more when it changes or ends."""

import pytest

from hydrator.daemon.logs import OngoingFailures

FAILS = {"catalogues": {"rucio": "no answer within 10 s, 3 others were due"}, "seconds": 1.0}
WELL = {"sites": 2, "changed": {}, "refused": {"x": "no colon"}}


def test_it_is_new_once_and_its_end_is_told_once():
    lasting = OngoingFailures()
    assert lasting.update(WELL) == (False, [])
    assert lasting.update(FAILS) == (True, [])
    assert lasting.update(FAILS) == (False, [])
    assert lasting.update(WELL) == (False, ["catalogues: rucio"])
    assert lasting.update(WELL) == (False, [])
    assert lasting.update(FAILS) == (True, [])


def test_other_numbers_are_the_same_trouble_and_other_words_another():
    lasting = OngoingFailures()
    lasting.update(FAILS)
    assert lasting.update({"catalogues": {"rucio": "no answer within 11.5 s, 0 others were due"}}) == (
        False,
        [],
    )
    assert lasting.update({"catalogues": {"rucio": "refused"}}) == (True, [])


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"publishers": {"file": "disk full"}}, "publishers: file"),
        ({"not_read_back": {"collector": ("UK",)}}, "not_read_back: collector"),
        ({"unsaved": "disk full"}, "unsaved"),
        ({"held": {"UK": "6 of 6 datasets would leave at once"}}, "held: UK"),
    ],
)
def test_another_part_is_new_beside_one_that_lasts(more, name):
    lasting = OngoingFailures()
    lasting.update(FAILS)
    assert lasting.update(FAILS | more) == (True, [])
    assert lasting.update(FAILS | more) == (False, [])
    assert lasting.update(FAILS) == (False, [name])
