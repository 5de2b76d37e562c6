"""Trust of a site in rows and cells, and the time until the real audit finds a site with false facts."""

import pytest

from adapters.condor.schedds import OVERLAP, ScheddMisses
from benchmarks.trust import GOAL_SECONDS, Case, seconds_until_found
from hydrator.cli.output.rows import trust_row
from hydrator.cli.output.tables import trust_cell
from hydrator.diagnostics.check.trust import find_distrusted_sites
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Unseen
from hydrator.reconcile.audit.ledger import Audit, AuditTally, Claim, Correction, VerificationMethod
from tests.factories import CAM, HOUR, L1, MINUTE, NOON, OSO, RAL

pytestmark = pytest.mark.outside

LIED = Audit(
    {CAM: AuditTally({1: (97, 3)}, 0.97, NOON), RAL: AuditTally({1: (5, 0)}, 1.0, NOON)},
    {(Claim("rucio", L1, CAM), VerificationMethod.FILES): Correction(NOON, NOON)},
)


def test_trust_row_has_the_counts_of_the_audit():
    row = trust_row(LIED, CAM)
    assert {key: row[key] for key in ("trust", "audited", "false", "corrected")} == {
        "trust": 0.97,
        "audited": 100,
        "false": 3,
        "corrected": 1,
    }
    assert trust_cell(row) == "0.97 (100 audited)"
    assert trust_cell(trust_row(LIED, OSO)) == "not audited"


def test_only_sites_below_the_trust_threshold_are_reported():
    assert dict(find_distrusted_sites(LIED, 1.0)) == {
        CAM: "trust 0.97: 3 of 100 audited facts were false; the daemon now corrects 1 dataset"
    }
    assert dict(find_distrusted_sites(LIED, 0.9)) == {}


@pytest.mark.parametrize("per_site", [500, 2000, 10_000])
def test_audit_finds_one_false_fact_in_100_within_15_minutes(per_site):
    taken = sorted(seconds_until_found(Case(1, per_site), seed) for seed in range(20))
    assert taken[18] <= GOAL_SECONDS  # 95 %


def test_audit_meets_its_goal_for_six_sites_with_two_calls_a_second():
    taken = sorted(seconds_until_found(Case(6, 500, calls_per_second=2), seed) for seed in range(20))
    assert taken[18] <= GOAL_SECONDS


def test_misses_of_jobs_speed_up_the_audit():
    def median(jobs: int) -> int:
        case = Case(20, 500, jobs_per_hour=jobs)
        return sorted(seconds_until_found(case, seed) for seed in range(15))[7]

    assert median(1200) < median(0)


class Schedds:
    """A client of schedds, one of which may be down."""

    def __init__(self):
        self.asked, self.down = [], set()

    def schedds(self):
        return [{"Name": "ap1"}, {"Name": "ap2"}]

    def query_misses(self, schedd, since):
        self.asked.append((schedd, since))
        if schedd in self.down:
            raise PoolError(schedd, "down")
        return [[f"1 {L1} {CAM}"]]


def test_each_schedd_is_queried_since_its_last_answer():
    client, now = Schedds(), [NOON]
    misses = ScheddMisses(client, lambda: now[0])
    client.down = {"ap2"}
    answers = misses.read_reports()
    assert answers["ap1"] == [[f"1 {L1} {CAM}"]]
    assert answers["ap2"] == Unseen("down")
    now[0] += MINUTE
    client.asked.clear()
    misses.read_reports()
    assert client.asked == [("ap1", NOON - OVERLAP), ("ap2", NOON - HOUR - OVERLAP)]
