"""Ongoing failures: logged when they begin, change or end."""

import pytest

from hydrator.daemon.logs import ongoing_failures
from hydrator.domain.bugs import OngoingFailures

FAILS = {"catalogues": {"rucio": "no answer within 10 s, 3 others were due"}, "seconds": 1.0}
WELL = {"sites": 2, "changed": {}, "refused": {"x": "no colon"}}


class Failures(OngoingFailures):
    def update(self, fields: dict) -> tuple[bool, list]:
        new, ended = self.replace(ongoing_failures(fields))
        return bool(new), ended


def test_failure_is_new_once_and_ends_once():
    failures = Failures()
    assert failures.update(WELL) == (False, [])
    assert failures.update(FAILS) == (True, [])
    assert failures.update(FAILS) == (False, [])
    assert failures.update(WELL) == (False, ["catalogues: rucio"])
    assert failures.update(WELL) == (False, [])
    assert failures.update(FAILS) == (True, [])


def test_failure_with_other_numbers_is_the_same_and_with_other_words_new():
    failures = Failures()
    failures.update(FAILS)
    assert failures.update({"catalogues": {"rucio": "no answer within 11.5 s, 0 others were due"}}) == (
        False,
        [],
    )
    assert failures.update({"catalogues": {"rucio": "refused"}}) == (True, [])


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"publishers": {"file": "disk full"}}, "publishers: file"),
        ({"not_read_back": {"collector": ("UK",)}}, "not_read_back: collector"),
        ({"unsaved": "disk full"}, "unsaved"),
        ({"held": {"UK": "6 of 6 datasets would leave the ad at once"}}, "held: UK"),
    ],
)
def test_failure_of_another_part_is_new_beside_an_ongoing_one(more, name):
    failures = Failures()
    failures.update(FAILS)
    assert failures.update(FAILS | more) == (True, [])
    assert failures.update(FAILS | more) == (False, [])
    assert failures.update(FAILS) == (False, [name])
