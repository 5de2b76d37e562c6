"""`hydrator check` compares the limit of readers of the daemon, the negotiator and the slots."""

from dataclasses import dataclass

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ExprTree

from hydrator.diagnostics.check.findings import Finding, Level
from hydrator.domain.errors import PoolDenied
from hydrator.submit.expressions import LIMIT_EXPRESSIONS, READ_LIMIT_ATTRIBUTE
from tests.unit.diagnostics.check.test_examine import Pool, findings, slot


def read_limit(readers: int) -> str:
    """The text of the attribute in a slot ad, as HTCondor prints it."""
    expression = LIMIT_EXPRESSIONS[READ_LIMIT_ATTRIBUTE].replace("$(DATALOCALITY_READERS)", str(readers))
    return str(ExprTree(expression.replace("$(DATALOCALITY_TURN)", "64")))


def limited_slot(readers: int | None, name="slot1@a") -> dict:
    limit = None if readers is None else read_limit(readers)
    return slot(name, DataLocalityAuto="a clause", DataLocalityReadLimit=limit)


@dataclass
class TurnPool(Pool):
    """A pool with the negotiator's limit, as HTCondor shows it: ``$(DATALOCALITY_READERS) * 100``."""

    limit: str | None = "10 * 100"

    def config_of(self, daemon, names, name=None):
        if names == ["CONCURRENCY_LIMIT_DEFAULT_DataLocality"]:
            assert daemon == "negotiator"
            return {names[0]: self.limit}
        return super().config_of(daemon, names, name)


def check(slots, limit: str | None = "10 * 100", readers: int | None = 10) -> list[Finding]:
    return findings(TurnPool(slots_there=slots, limit=limit), readers=readers)


def problems(*args, **kwargs) -> list[Finding]:
    return [finding for finding in check(*args, **kwargs) if finding.level is not Level.OK]


@pytest.mark.parametrize("limit", ["10 * 100", "1000", "10*100"])
def test_same_limit_of_readers_everywhere_is_fine(limit):
    found = check([limited_slot(10)], limit)
    assert {finding.level for finding in found} == {Level.OK}
    (turns,) = (finding for finding in found if finding.subject == "turns")
    assert turns.message.endswith("the same limit: 10 readers of a source")


@pytest.mark.parametrize(
    ("limit", "message", "todo"),
    [
        ("40 * 100", "is for 40 readers of a source, and the daemon has 10", "DATALOCALITY_READERS = 10"),
        ("4 * 100", "fewer jobs begin to read in a turn", "estimates.max_readers_per_source"),
        ("2000", "more jobs begin to read in a turn", "--role negotiator"),
        ("all", "= all is not a number of readers", "--role negotiator"),
        ("", "any number of jobs may begin to read from one source", "--role negotiator"),
        (None, "any number of jobs may begin to read from one source", "--role negotiator"),
    ],
)
def test_other_limit_of_readers_at_the_negotiator_is_a_warning(limit, message, todo):
    (found,) = problems([limited_slot(10)], limit)
    assert (found.level, found.subject) == (Level.WARN, "negotiator")
    assert message in found.message
    assert todo in found.todo


def test_slots_with_another_number_of_readers_are_named_by_number():
    slots = [limited_slot(10), limited_slot(20, "slot1@b"), limited_slot(4, "slot1@c")]
    few, many = problems(slots)
    assert {few.level, many.level} == {Level.WARN}
    assert few.message.startswith("1 slot with turns for 4 readers of a source, and the daemon has 10")
    assert few.message.endswith("shorter, so more jobs begin to read: slot1@c")
    assert many.message.endswith("longer, so fewer jobs begin to read: slot1@b")
    assert "--role startd" in many.todo


def test_slots_of_an_older_startd_configuration_have_no_turns():
    (found,) = problems([limited_slot(10), limited_slot(None, "slot1@old")])
    assert found.message.startswith("1 slot without DataLocalityReadLimit")
    assert found.message.endswith("slot1@old")
    assert "--role startd" in found.todo


def test_limit_of_readers_in_another_form_counts_as_none():
    (found,) = problems([slot(DataLocalityReadLimit="undefined")])
    assert found.message.startswith("1 slot without DataLocalityReadLimit")


def test_daemon_with_another_number_of_readers_differs_from_negotiator_and_slots():
    found = problems([limited_slot(10)], readers=40)
    assert [finding.subject for finding in found] == ["negotiator", "slots"]


@pytest.mark.parametrize("readers", [None, 10])
def test_pool_without_turns_is_fine(readers):
    """As with `pool-config --rank-only`, and without any configuration of ours."""
    assert problems([slot()], None, readers) == []


def test_turns_are_not_compared_if_the_daemon_makes_no_estimates():
    assert problems([limited_slot(4)], "20 * 100", readers=None) == []


@dataclass
class SilentNegotiatorPool(TurnPool):
    """A pool whose negotiator refuses every question."""

    def config_of(self, daemon, names, name=None):
        if daemon == "negotiator":
            raise PoolDenied("negotiator", "the client needs READ there")
        return super().config_of(daemon, names, name)


@pytest.mark.parametrize(("own", "level"), [(10, Level.OK), (20, Level.WARN)])
def test_negotiator_that_does_not_answer_is_one_finding_and_the_slots_are_compared(own, level):
    found = findings(SilentNegotiatorPool(slots_there=[limited_slot(own)]), readers=10)
    assert [each.subject for each in found if each.level is Level.FAIL] == ["negotiator"]
    (slots,) = (each for each in found if "of a source" in each.message)
    assert slots.level is level
