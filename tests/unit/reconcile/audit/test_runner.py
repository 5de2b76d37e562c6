"""Expensive questions beside the cycles: what an answer becomes, and what a failure does not."""

import pytest

from hydrator.domain.model import DatasetState, Did, Fact, ReplicaState, Seen
from hydrator.reconcile.audit.ledger import Audit, Claim, Correction, Verdict, VerificationMethod
from hydrator.reconcile.audit.misses import Miss
from hydrator.reconcile.audit.runner import MAX_KNOWN_MISSES, MAX_SKIPPED_TURNS, AuditRunner
from tests.factories import CAM, L1, L2, MINUTE, NOON, RAL, holding, memory, replica
from tests.memory import MemoryCatalogue

RUCIO = "rucio"
LATER = NOON + MINUTE


class Storage:
    """A probe that knows what is really there; None: it cannot tell."""

    def __init__(self, *there: tuple[Did, str], blind: bool = False):
        self.there, self.blind, self.looked = set(there), blind, []

    def can_check(self, catalogue, site):
        return site != RAL

    def check_dataset(self, catalogue, did, site):
        self.looked.append((did, site))
        return None if self.blind else (did, site) in self.there


def auditing(*claimed, truth=None, probe=None, audit=Audit(), retired=frozenset(), **more):  # noqa: B008
    """The audit over one catalogue that claims these, the *truth* being another matter."""
    catalogue = MemoryCatalogue(RUCIO, claimed, clock=lambda: NOON, **more)
    catalogue.audited_replicas = None if truth is None else tuple(truth)
    made = AuditRunner({RUCIO: catalogue}, probe, lambda: LATER, seed=1)
    made.update({RUCIO: memory(holding(*claimed))}, audit, retired)
    return made, catalogue


def good(did=L1, site=CAM, by=VerificationMethod.FILES) -> Verdict:
    return Verdict(Claim(RUCIO, did, site), by, LATER, is_true=True)


def test_audit_asks_nothing_before_the_first_cycle():
    made = AuditRunner({}, Storage(), lambda: NOON, seed=1)
    assert made.verify_next() is made.probe_next() is None
    assert made.take_verdicts() == ()


def test_one_question_finds_the_truth_of_a_dataset_at_all_its_sites():
    half = replica(L1, RAL, ReplicaState.PARTIAL, 0.5)
    made, _ = auditing(replica(L1, CAM), replica(L1, RAL), truth=[replica(L1, CAM), half])
    asked = made.verify_next()
    assert (asked.catalogue, asked.method, asked.true_count, asked.false_count) == (
        RUCIO,
        VerificationMethod.FILES,
        1,
        1,
    )
    found = Fact(DatasetState.PARTIAL, NOON, 0.5)
    bad = Verdict(Claim(RUCIO, L1, RAL), VerificationMethod.FILES, LATER, is_true=False, actual_fact=found)
    assert set(made.take_verdicts()) == {good(), bad}
    assert made.take_verdicts() == ()


def test_audit_of_an_absent_dataset_finds_it_at_no_site():
    made, _ = auditing(replica(L1), truth=[])
    made.verify_next()
    assert made.take_verdicts() == (
        Verdict(Claim(RUCIO, L1, CAM), VerificationMethod.FILES, LATER, is_true=False),
    )


def test_audit_asks_only_about_available_claims():
    made, _ = auditing(replica(L1, CAM, ReplicaState.PARTIAL))
    assert made.verify_next() is None


def test_a_site_the_operator_retired_is_not_audited():
    made, _ = auditing(replica(L1), retired={CAM})
    assert made.verify_next() is None


def test_an_error_is_no_verdict_and_after_some_fewer_questions_are_asked():
    made, catalogue = auditing(replica(L1), is_broken=True)
    answers = [made.verify_next() for _ in range(8)]
    assert [answer is not None for answer in answers] == [1, 0, 1, 0, 0, 0, 1, 0]
    assert all("broken" in answer.error for answer in answers if answer)
    assert made.take_verdicts() == ()
    catalogue.is_broken = False
    assert any(made.verify_next() for _ in range(MAX_SKIPPED_TURNS + 1))
    assert made.take_verdicts() == (good(),)
    assert made.verify_next()


def test_a_site_at_which_the_catalogue_was_blind_gets_no_verdict():
    class Blind(MemoryCatalogue):
        def verify(self, did):
            return Seen(NOON, (replica(L1, CAM),), unreachable_sites=frozenset({RAL}))

    made = AuditRunner({RUCIO: Blind(RUCIO)}, None, lambda: LATER, seed=1)
    made.update({RUCIO: memory(holding(replica(L1, CAM), replica(L1, RAL)))}, Audit(), frozenset())
    made.verify_next()
    assert made.take_verdicts() == (good(),)


def test_disproved_claim_is_asked_again_as_a_recheck():
    standing = Audit(corrections={(Claim(RUCIO, L1, CAM), VerificationMethod.FILES): Correction(NOON, NOON)})
    claimed = [replica(L1), *(replica(Did(f"lofar:T{n}")) for n in range(2000))]
    made, _ = auditing(*claimed, audit=standing)
    for _ in range(602):
        made.verify_next()
    assert [verdict.claim.did for verdict in made.take_verdicts() if verdict.is_recheck] == [L1]


def test_the_probe_looks_where_it_can_and_its_verdicts_say_so():
    probe = Storage((L1, CAM))
    made, _ = auditing(replica(L1, CAM), replica(L2, CAM), replica(L1, RAL), probe=probe)
    assert made.has_probe
    for _ in range(2):
        made.probe_next()
    assert {(verdict.claim.did, verdict.is_true) for verdict in made.take_verdicts()} == {
        (L1, True),
        (L2, False),
    }
    assert {site for _, site in probe.looked} == {CAM}


def test_a_catalogue_that_cannot_be_verified_can_still_be_probed():
    made = AuditRunner({}, Storage(), lambda: LATER, seed=1)
    made.update({"dmapi": memory(holding(replica(L1)))}, Audit(), frozenset())
    assert made.verify_next() is None
    assert made.probe_next().false_count == 1


def test_a_probe_that_could_not_tell_is_no_verdict():
    made, _ = auditing(replica(L1), probe=Storage(blind=True))
    assert "could not verify" in made.probe_next().error
    assert made.take_verdicts() == ()


@pytest.mark.parametrize("question", ["verify_next", "probe_next"])
def test_what_a_job_did_not_find_is_looked_at_soon(question):
    claimed = [replica(Did(f"lofar:T{n}")) for n in range(500)]
    probe = Storage(*((each.did, CAM) for each in claimed))
    made, _ = auditing(*claimed, probe=probe)
    getattr(made, question)()
    made.take_verdicts()
    missed = Miss(CAM, Did("lofar:T321"), NOON)
    assert made.report_misses([missed, missed]) == (missed,)
    asked = [getattr(made, question)() for _ in range(2)]
    assert [one.reported_did for one in asked if one.reported_did] == [missed.did]
    assert missed.did in {verdict.claim.did for verdict in made.take_verdicts()}
    assert made.report_misses([missed]) == ()


@pytest.mark.parametrize("question", ["verify_next", "probe_next"])
def test_miss_reported_before_the_first_cycle_is_kept(question):
    claimed = [replica(Did(f"lofar:T{n}")) for n in range(500)]
    catalogue = MemoryCatalogue(RUCIO, claimed, clock=lambda: NOON)
    made = AuditRunner({RUCIO: catalogue}, Storage(), lambda: LATER, seed=1)
    made.report_misses([Miss(CAM, Did("lofar:T321"), NOON)])
    assert getattr(made, question)() is None
    made.update({RUCIO: memory(holding(*claimed))}, Audit(), frozenset())
    assert getattr(made, question)().reported_did == Did("lofar:T321")


def test_miss_without_a_claim_changes_nothing():
    made, _ = auditing(replica(L1))
    made.report_misses([Miss(CAM, Did("lofar:made-up"), NOON)])
    made.verify_next()
    assert made.take_verdicts() == (good(),)


def test_closing_closes_the_catalogues_connections():
    class Closing(MemoryCatalogue):
        closed = False

        def close(self):
            self.closed = True

    catalogue = Closing(RUCIO)
    AuditRunner({RUCIO: catalogue}, None, lambda: NOON, seed=1).close()
    assert catalogue.closed


def test_a_flood_of_misses_makes_no_old_one_new_again():
    """A job may report another time of its miss each minute; what others still report stays known."""
    made, _ = auditing(replica(L1, CAM))
    alone = Miss(CAM, L2, NOON)
    assert made.report_misses([alone]) == (alone,)
    for turn in range(3):
        flood = [
            Miss(CAM, L1, NOON + (turn * MAX_KNOWN_MISSES + n) * MINUTE) for n in range(MAX_KNOWN_MISSES)
        ]
        assert alone not in made.report_misses([alone, *flood[:-1]])


def test_equal_misses_are_looked_at_once():
    made, _ = auditing(replica(L1, CAM), replica(L2, CAM))
    made.report_misses([Miss(CAM, L1, NOON + n * MINUTE) for n in range(1000)] + [Miss(CAM, L2, NOON)])
    assert {made.verify_next().reported_did for _ in range(2)} == {L1, L2}
