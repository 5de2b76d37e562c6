"""What an expensive answer does to what is held true, and to how far a site is trusted."""

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.model import DatasetState, Did, Fact, ReplicaState, Site, Unseen
from hydrator.reconcile.audit.ledger import (
    AUDIT_WINDOW,
    MIN_SAMPLE,
    Audit,
    AuditQuery,
    AuditTally,
    Claim,
    Verdict,
    VerificationMethod,
    apply_corrections,
    claims,
    expire_and_confirm,
    record_verdicts,
)
from hydrator.reconcile.snapshot.update import CatalogueMemory, apply_survey
from tests.factories import BOUND, CAM, HOUR, L1, L2, MINUTE, NOON, RAL, holding, memory, replica, survey

RUCIO = "rucio"


def claim(did: Did = L1, site: Site = CAM) -> Claim:
    return Claim(RUCIO, did, site)


def good(did: Did = L1, at=NOON, by: VerificationMethod = VerificationMethod.FILES, **more) -> Verdict:
    return Verdict(claim(did), by, at, is_true=True, **more)


def bad(
    did: Did = L1,
    at=NOON,
    by: VerificationMethod = VerificationMethod.FILES,
    found: Fact | None = None,
    **more,
) -> Verdict:
    return Verdict(claim(did), by, at, is_true=False, actual_fact=found, **more)


def many(count: int) -> list[Verdict]:
    return [good(Did(f"lofar:T{n}")) for n in range(count)]


def said(*replicas, at=NOON) -> dict[str, CatalogueMemory]:
    return {RUCIO: memory(holding(*replicas, at=at), now=at)}


def after(audit: Audit, memories, now=NOON):
    return expire_and_confirm(audit, memories, now=now, window=AUDIT_WINDOW, max_age=BOUND)


def lied(*verdicts: Verdict, minutes: int = 1) -> Audit:
    """What stands after *verdicts* at NOON, and the catalogue saying the same again a minute later."""
    later = NOON + minutes * MINUTE
    return after(record_verdicts(Audit(), verdicts), said(replica(L1), replica(L2), at=later), later)[0]


def test_unaudited_site_is_trusted():
    assert Audit().trust == {}
    assert AuditTally().advertised_trust == 1.0


def test_true_facts_keep_trust_whole():
    audit, lies = after(record_verdicts(Audit(), many(200)), {})
    assert audit.trust == {CAM: 1.0}
    assert audit.tallies[CAM].true_count == 200
    assert lies == ()


def test_repeated_false_claim_names_catalogue_time_and_method():
    audit, lies = after(
        record_verdicts(Audit(), [*many(99), bad()]), said(replica(L1), at=NOON + MINUTE), NOON + MINUTE
    )
    assert audit.trust == {CAM: 0.99}
    (lie,) = lies
    assert (lie.claim, lie.method, lie.repeated_at) == (claim(), VerificationMethod.FILES, NOON + MINUTE)
    assert lie.correction.found_at == NOON


def test_dataset_that_left_between_the_answers_is_not_a_false_claim():
    checked = record_verdicts(Audit(), [*many(99), bad()])
    waiting, lies = after(checked, said(replica(L1), at=NOON - MINUTE), NOON)
    assert (waiting.trust, lies) == ({CAM: 1.0}, ())
    gone, lies = after(waiting, said(replica(L2), at=NOON + MINUTE), NOON + MINUTE)
    assert (gone.trust, lies, gone.corrections) == ({CAM: 1.0}, (), {})


def test_a_catalogue_that_could_not_be_asked_repeats_nothing():
    memories = said(replica(L1), at=NOON - MINUTE)
    silent = {RUCIO: apply_survey(memories[RUCIO], Unseen("down"), {L1}, now=NOON + HOUR)}
    audit, lies = after(record_verdicts(Audit(), [bad()]), silent, NOON + HOUR)
    assert lies == ()
    assert audit.trust == {}
    assert (claim(), VerificationMethod.FILES) in audit.corrections


def test_false_claim_counts_once_however_often_it_is_repeated():
    audit = lied(*many(99), bad())
    for hour in range(1, 4):
        now = NOON + hour * HOUR
        audit, lies = after(
            record_verdicts(audit, [bad(at=now, is_recheck=True)]), said(replica(L1), at=now), now
        )
        assert lies == ()
    assert audit.tallies[CAM].false_count == 1


def test_a_claim_that_stays_false_counts_each_time_its_turn_comes():
    audit = record_verdicts(lied(*many(99), bad()), [bad(at=NOON + HOUR)])
    assert audit.tallies[CAM].false_count == 2


def test_disproved_fact_is_replaced_by_the_actual_one():
    found = Fact(DatasetState.PARTIAL, NOON, 0.75)
    memories = said(replica(L1), replica(L1, RAL), replica(L2))
    right = apply_corrections(memories, record_verdicts(Audit(), [bad(found=found)]))
    assert right[RUCIO].records[L1].facts == {CAM: found, RAL: Fact(DatasetState.AVAILABLE, NOON)}
    assert right[RUCIO].records[L2] == memories[RUCIO].records[L2]
    assert memories[RUCIO].records[L1].facts[CAM].state is DatasetState.AVAILABLE


def test_a_fact_of_which_nothing_was_found_is_taken_out():
    right = apply_corrections(said(replica(L1)), record_verdicts(Audit(), [bad()]))
    assert right[RUCIO].records[L1].facts == {}


def test_memories_without_corrections_are_unchanged():
    memories = said(replica(L1))
    assert apply_corrections(memories, record_verdicts(Audit(), [good()])) == memories


@pytest.mark.parametrize("state", [ReplicaState.PARTIAL, ReplicaState.INCOMING, None])
def test_correction_is_used_until_the_catalogue_changes_its_claim(state):
    audit = lied(bad())
    assert audit.corrections
    changed = said(*([replica(L1, CAM, state)] if state else [replica(L2)]), at=NOON + HOUR)
    assert after(audit, changed, NOON + HOUR)[0].corrections == {}


def test_repaired_dataset_is_trusted_again_after_a_true_verdict():
    audit = record_verdicts(lied(*many(99), bad()), [good(at=NOON + HOUR, is_recheck=True)])
    assert audit.corrections == {}
    assert audit.tallies[CAM].false_count == 1


def test_the_catalogue_that_counts_its_own_files_does_not_refute_the_probe():
    audit = record_verdicts(lied(bad(by=VerificationMethod.PROBE)), [good(at=NOON + HOUR)])
    assert (claim(), VerificationMethod.PROBE) in audit.corrections
    assert audit.tallies[CAM].true_count == 0
    assert audit.tallies[CAM].false_count == 2


def test_probe_outranks_the_file_listing_if_both_disprove_a_claim():
    partial = Fact(DatasetState.PARTIAL, NOON, 0.5)
    both = record_verdicts(Audit(), [bad(found=partial), bad(by=VerificationMethod.PROBE)])
    assert apply_corrections(said(replica(L1)), both)[RUCIO].records[L1].facts == {}


def test_correction_without_confirmation_expires():
    late = NOON + BOUND + MINUTE
    assert after(lied(bad()), said(replica(L1), at=late), late)[0].corrections == {}


def test_trust_recovers_once_the_false_claim_is_old():
    audit = lied(*many(99), bad())
    now = NOON + AUDIT_WINDOW + HOUR
    healed, _ = after(record_verdicts(audit, [good(L2, now)]), {}, now)
    assert healed.trust == {CAM: 1.0}


def test_a_site_of_which_nothing_counts_any_more_is_as_if_never_audited():
    assert after(record_verdicts(Audit(), many(3)), {}, NOON + 2 * AUDIT_WINDOW)[0] == Audit()


def test_one_false_claim_in_a_small_sample_costs_little_trust():
    assert lied(bad()).trust == {CAM: 1 - 1 / MIN_SAMPLE}


def test_false_claims_of_one_site_cost_no_other_site_trust():
    verdicts = [Verdict(claim(site=RAL), VerificationMethod.FILES, NOON, is_true=True), bad()]
    assert lied(*verdicts).trust == {CAM: 0.98, RAL: 1.0}


def test_more_true_facts_do_not_move_trust_at_every_turn():
    audit, shown = lied(*many(60), bad()), []
    for n in range(500):
        now = NOON + MINUTE + timedelta(seconds=n)
        verdict = bad(Did(f"lofar:F{n}"), now) if n % 100 == 99 else good(Did(f"lofar:G{n}"), now)
        claims_now = [replica(L1), *([replica(verdict.claim.did)] if not verdict.is_true else [])]
        late = now + timedelta(seconds=1)
        audit, _ = after(record_verdicts(audit, [verdict]), said(*claims_now, at=late), late)
        shown.append(audit.trust[CAM])
    changes = sum(a != b for a, b in itertools.pairwise(shown))
    assert changes <= 3
    assert 0.97 < shown[-1] < 0.99


def test_audit_covers_available_claims_of_published_sites():
    memories = {
        RUCIO: memory(holding(replica(L1), replica(L1, RAL), replica(L2, CAM, ReplicaState.PARTIAL))),
        "file": memory(holding(replica(L2))),
    }
    assert claims(memories, [RUCIO]) == {AuditQuery(RUCIO, L1): frozenset({CAM, RAL})}
    assert claims(memories, [RUCIO], retired=[RAL]) == {AuditQuery(RUCIO, L1): frozenset({CAM})}


def test_corrected_claims_are_still_audited():
    memories = said(replica(L1))
    apply_corrections(memories, lied(bad()))
    assert AuditQuery(RUCIO, L1) in claims(memories, [RUCIO])


def test_corrected_claims_are_counted_by_site():
    audit = lied(bad(), bad(by=VerificationMethod.PROBE), bad(L2))
    assert audit.count_false_claims(CAM) == 2
    assert audit.count_false_claims(RAL) == 0
    assert audit.sites_with_false_claims == {CAM}


@given(
    st.lists(
        st.tuples(
            st.sampled_from([L1, L2]), st.booleans(), st.sampled_from(VerificationMethod), st.booleans()
        ),
        max_size=30,
    )
)
def test_trust_is_a_share_and_only_disproved_facts_change(found):
    audit, now = Audit(), NOON
    for did, true, by, again in found:
        now += 5 * MINUTE
        audit = record_verdicts(audit, [Verdict(claim(did), by, now - MINUTE, true, None, again)])
        memories = said(replica(L1), replica(L2), at=now)
        audit, _ = after(audit, memories, now)
        false = {standing.did for standing, _ in audit.corrections}
        right = apply_corrections(memories, audit)[RUCIO].records
        assert {each for each in (L1, L2) if not right[each].facts} == false
    assert all(0 <= trust <= 1 for trust in audit.trust.values())
    if all(true for _, true, _, _ in found):
        assert set(audit.trust.values()) <= {1.0}


def test_a_dataset_that_is_no_longer_wanted_is_forgotten():
    audit = record_verdicts(Audit(), [bad()])
    nobody = {RUCIO: memory(survey())}
    assert after(audit, nobody, NOON + MINUTE)[0].corrections == {}
