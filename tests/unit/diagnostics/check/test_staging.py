"""`hydrator check` probes the permissions for requests of data, and says what follows without them."""

import pytest

from hydrator.diagnostics.check.findings import Finding, Level
from hydrator.domain.staging_ports import StagingPermissions
from tests.factories import NOON
from tests.memory_stager import MemoryStager
from tests.unit.diagnostics.check.test_examine import findings


def check(permissions: StagingPermissions, *, mode="request", is_broken=False, **more) -> list[Finding]:
    stager = MemoryStager(lambda: NOON, name="rucio")
    stager.permissions, stager.is_broken = permissions, is_broken
    asking = frozenset({"rucio"}) if mode == "request" else frozenset()
    found = findings(stagers=[stager], asking_catalogues=asking, **more)
    assert set(stager.calls) == {"probe_permissions"}
    return [one for one in found if one.subject.startswith("staging")]


def test_account_with_all_permissions_is_fine():
    (found,) = check(StagingPermissions(True, True, True))
    assert (found.level, found.subject) == (Level.OK, "staging rucio")
    assert found.message == "this account may request: yes, renew: yes, cancel: yes"


@pytest.mark.parametrize(("mode", "level"), [("request", Level.FAIL), ("propose", Level.WARN)])
def test_account_that_may_not_request_is_a_failure_in_the_mode_request(mode, level):
    (found,) = check(StagingPermissions(False, True, True), mode=mode)
    assert found.level is level
    assert "request: no" in found.message
    assert "pins and stages nothing here" in found.message
    assert "permissions" in found.todo


@pytest.mark.parametrize(
    ("permissions", "consequence"),
    [
        (StagingPermissions(True, False, True), "ends by its lifetime even if jobs still need the data"),
        (StagingPermissions(True, True, False), "stays until its lifetime ends"),
    ],
)
def test_missing_renewal_or_cancelling_is_a_warning_with_its_consequence(permissions, consequence):
    (found,) = check(permissions)
    assert found.level is Level.WARN
    assert consequence in found.message


def test_unknown_permission_is_advice():
    (found,) = check(StagingPermissions(None, True, True))
    assert found.level is Level.ADVICE
    assert "request: not known" in found.message
    assert "before it is used" in found.message


def test_notes_of_the_catalogue_are_in_the_finding():
    (found,) = check(StagingPermissions(False, True, True, ("account bob needs the attribute add_rule",)))
    assert "account bob needs the attribute add_rule" in found.message


def test_catalogue_without_an_answer_is_a_failure_and_the_check_goes_on():
    (found,) = check(StagingPermissions(), is_broken=True)
    assert (found.level, found.subject) == (Level.FAIL, "staging rucio")
