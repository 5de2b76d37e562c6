"""Behind the veil: catalogues are asked about DIDs, everybody else sees opaque names."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from adapters.memory import MemoryCatalogue, MemoryPublisher, MemoryQueues
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import CatalogueDenied, CatalogueUnreachable
from hydrator.domain.model import (
    DatasetState,
    Did,
    Fact,
    Provenance,
    QueuedJobs,
    ScheddDemand,
    Seen,
    SiteAd,
    Unseen,
)
from hydrator.privacy.pseudonym_store import PseudonymStore
from hydrator.privacy.pseudonyms import Privacy, Pseudonymizer, is_masked
from hydrator.privacy.withheld import NOT_SHOWN, redact_names, redact_provenance
from hydrator.privacy.wrappers import (
    PseudonymizedAuditor,
    PseudonymizedCatalogue,
    PseudonymizedProbe,
    PseudonymizedQueues,
)
from hydrator.reconcile.audit.ledger import Audit, Claim, Correction, VerificationMethod
from hydrator.reconcile.demand import DemandMemory, RememberedJobs
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.publish.plan import Policy
from hydrator.reconcile.publish.targets import PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import summary
from hydrator.reconcile.snapshot.breaker import HeldLoss, HoldCause
from hydrator.reconcile.snapshot.update import CatalogueMemory, DatasetRecord
from hydrator.reconcile.state import ReconcileState
from hydrator.state.pseudonymize import pseudonymize_state
from hydrator.testing.catalogue_contract import CatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from tests.factories import CAM, L1, MINUTE, NOON, RAL, ad, replica

KEY, OLD = b"k" * 16 + bytes(range(16)), b"o" * 16 + bytes(range(16))
CANARY = Did("embargo:canary-1")
TWIN = Did("embargo:CANARY-1")
VEIL = Pseudonymizer(Privacy(("embargo:*",)), (KEY, OLD))
NAME, OLD_NAME = VEIL.pseudonyms(CANARY)


class TestVeiledCatalogue(CatalogueContract):
    """A veil keeps the promises of what is behind it, for datasets that are not private."""

    cannot_happen = RECORDS_STATES_ONLY

    def make_catalogue(self, *replicas):
        return PseudonymizedCatalogue(MemoryCatalogue("memory", replicas), PseudonymStore(VEIL), lambda: NOON)

    def make_failing_catalogue(self):
        return PseudonymizedCatalogue(
            MemoryCatalogue("memory", is_broken=True), PseudonymStore(VEIL), lambda: NOON
        )


class Counting(MemoryCatalogue):
    """Counts how often it was searched, and remembers what it was asked about."""

    searches = 0
    asked = frozenset()

    def find(self, patterns):
        self.searches += 1
        return super().find(patterns)

    def read(self, dids):
        self.asked = frozenset(dids)
        return super().read(dids)


class Failing(MemoryCatalogue):
    """Fails with a sentence that names what it was asked about, as real ones do."""

    error = CatalogueUnreachable

    def read(self, dids):
        raise self.error(self.name, f"GET https://rucio/dids/embargo/canary-1: 500 ({', '.join(dids)})")


@pytest.fixture
def register():
    return PseudonymStore(VEIL)


@pytest.fixture
def inner():
    return Counting("rucio", [replica(CANARY, CAM), replica(L1, RAL)], (CAM, RAL), clock=lambda: NOON)


@pytest.fixture
def catalogue(inner, register):
    return PseudonymizedCatalogue(inner, register, lambda: NOON)


def test_an_opaque_name_is_answered_from_the_dataset_it_stands_for(catalogue, inner, register):
    register.exchange([CANARY])
    readings = catalogue.read({NAME, L1}).readings
    assert inner.asked == {CANARY, L1}
    assert readings[NAME].replicas == (replica(NAME, CAM),)
    assert readings[L1].replicas == (replica(L1, RAL),)
    assert "canary" not in str(readings)
    assert inner.searches == 0


def test_names_by_the_old_and_the_new_key_both_stand_for_it(catalogue, register):
    register.exchange([CANARY])
    readings = catalogue.read({NAME, OLD_NAME}).readings
    assert readings[NAME].replicas == (replica(NAME, CAM),)
    assert readings[OLD_NAME].replicas == (replica(OLD_NAME, CAM),)


def test_private_dataset_asked_for_in_plain_text_is_at_no_site(catalogue, inner):
    readings = catalogue.read({CANARY, VEIL.mask(CANARY), L1}).readings
    assert readings[CANARY] == readings[VEIL.mask(CANARY)] == Seen(NOON)
    assert inner.asked == {L1}


def test_a_name_that_the_register_lost_is_found_again_in_the_catalogue(catalogue, inner):
    assert catalogue.read({NAME}).readings[NAME].replicas == (replica(NAME, CAM),)
    catalogue.read({NAME})
    assert inner.searches == 1


def test_name_that_was_never_exchanged_is_unseen_and_rarely_searched(inner, register):
    now = [NOON]
    catalogue = PseudonymizedCatalogue(inner, register, lambda: now[0])
    made_up = Did("private:" + "0" * 32)
    for _ in range(3):
        reading = catalogue.read({made_up}).readings[made_up]
        assert isinstance(reading, Unseen)
        now[0] += MINUTE
    assert inner.searches == 1
    now[0] += timedelta(minutes=10)
    catalogue.read({made_up})
    assert inner.searches == 2


def test_a_name_that_is_new_is_searched_for_at_once(catalogue, inner):
    held, inner.replicas = inner.replicas, ()
    catalogue.read({Did("private:" + "0" * 32)})
    inner.replicas = held
    assert isinstance(catalogue.read({NAME}).readings[NAME], Seen)
    assert inner.searches == 2


def test_failed_search_leaves_the_name_unseen_and_is_repeated(inner, register):
    now = [NOON]
    catalogue = PseudonymizedCatalogue(inner, register, lambda: now[0])
    inner.unseen_reasons = {}
    find, inner.find = inner.find, lambda patterns: Failing("rucio").read({CANARY})
    reading = catalogue.read({NAME}).readings[NAME]
    assert isinstance(reading, Unseen)
    assert "could not be looked up" in reading.reason
    assert "canary" not in reading.reason
    inner.find = find
    now[0] += MINUTE
    assert isinstance(catalogue.read({NAME}).readings[NAME], Seen)


@pytest.mark.parametrize(
    "error", [CatalogueUnreachable("rucio", "timeout"), OverflowError("no place for canary-1")]
)
def test_a_search_that_fails_is_not_repeated_in_each_poll_whatever_names_come(inner, register, error):
    now, searches = [NOON], []

    def find(patterns):
        searches.append(now[0])
        raise error

    inner.find = find
    catalogue = PseudonymizedCatalogue(inner, register, lambda: now[0])
    with capture_logs() as logged:
        for poll in range(120):  # one hour
            made_up = Did(f"private:{poll:032x}")
            reading = catalogue.read({made_up, L1}).readings
            assert isinstance(reading[L1], Seen)
            assert "could not be looked up" in reading[made_up].reason
            assert "canary" not in reading[made_up].reason
            now[0] += MINUTE / 2
    rests = [later - sooner for sooner, later in pairwise(searches)]
    assert rests[:5] == [MINUTE, 2 * MINUTE, 4 * MINUTE, 8 * MINUTE, 10 * MINUTE]
    assert len(searches) <= 9
    assert len(logged) == (not isinstance(error, CatalogueUnreachable))
    assert all("canary" not in str(line["exc_info"]) for line in logged)


def test_names_that_somebody_makes_up_cost_no_search_in_each_poll(inner, register):
    now = [NOON]
    catalogue = PseudonymizedCatalogue(inner, register, lambda: now[0])
    for poll in range(120):
        catalogue.read({Did(f"private:{poll:032x}")})
        now[0] += MINUTE / 2
    assert inner.searches <= 10


def test_a_bug_of_the_catalogue_itself_names_no_private_dataset(inner, register):
    register.exchange([CANARY])

    def read(dids):
        raise KeyError(CANARY)

    inner.read = read
    with pytest.raises(RuntimeError) as caught:
        PseudonymizedCatalogue(inner, register, lambda: NOON).read({NAME})
    assert "canary" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("error", [CatalogueUnreachable, CatalogueDenied])
def test_an_error_keeps_its_kind_and_loses_the_name(register, error):
    register.exchange([CANARY])
    inner = Failing("rucio")
    inner.error = error
    with pytest.raises(error) as caught:
        PseudonymizedCatalogue(inner, register, lambda: NOON).read({NAME, L1})
    assert "canary" not in str(caught.value)
    assert "GET https://rucio/" in str(caught.value)
    assert NAME in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no such file: sb17.ms of canary-1", NOT_SHOWN),
        ("DataIdentifierNotFound: sb17.ms (status 404)", f"HTTP 404; {NOT_SHOWN}"),
        ("there was no time left in this poll", "there was no time left in this poll"),
    ],
)
def test_the_reason_of_an_unseen_private_dataset_is_one_of_our_own_sentences(
    catalogue, inner, register, said, shown
):
    register.exchange([CANARY])
    inner.unseen_reasons = {CANARY: said, L1: said}
    readings = catalogue.read({NAME, L1}).readings
    assert readings[NAME] == Unseen(shown)
    assert readings[L1] == Unseen(VEIL.redact(said))


FILE = "sb17_embargoed.ms"
"""A file of the private dataset; no pattern matches it."""
TOLD = Provenance(f"stat /data/{FILE}", "CAM_DISK", f"its rule is stuck: no route to {FILE}", FILE, FILE)


def test_how_a_state_came_about_names_no_file_of_a_private_dataset(catalogue, inner, register):
    register.exchange([CANARY])
    inner.replicas = (
        replace(replica(CANARY, CAM), provenance=TOLD),
        replace(replica(L1, CAM), provenance=TOLD),
    )
    readings = catalogue.read({NAME, L1}).readings
    (hidden,), (shown,) = readings[NAME].replicas, readings[L1].replicas
    assert "sb17" not in str(hidden)
    assert hidden.provenance.reason == f"its rule is stuck; {NOT_SHOWN}"
    assert hidden.provenance.storage == "CAM_DISK"
    assert shown.provenance == TOLD


def test_our_own_sentences_keep_the_storage_element_and_rules_their_id():
    told = Provenance(
        "list_replicas", "CAM_DISK", "CAM_DISK cannot be read (availability_read, or a downtime)", "ab-12"
    )
    assert redact_provenance(told) == told


@pytest.mark.parametrize(
    "said",
    [
        f"HTTP 500 DataIdentifierNotFound Data identifier 'lofar:{FILE}' not found",
        f"GET https://rucio.example.org:443/replicas/lofar/{FILE}?x=1: timed out",
        f'cannot open "/data/{FILE}"',
        f"{FILE}",
        "no replica of 'embargoed'",
    ],
)
def test_an_error_over_private_datasets_names_none_of_their_files(register, said):
    register.exchange([CANARY])

    class Says(MemoryCatalogue):
        def read(self, dids):
            raise CatalogueUnreachable(self.name, said)

        def find(self, patterns):
            raise CatalogueUnreachable(self.name, said)

    catalogue = PseudonymizedCatalogue(Says("rucio"), register, lambda: NOON)
    for ask in (lambda: catalogue.read({NAME, L1}), lambda: catalogue.find(["*"])):
        with pytest.raises(CatalogueUnreachable) as caught:
            ask()
        assert "embargoed" not in str(caught.value)


def test_an_error_keeps_the_words_that_cannot_be_names():
    said = "ConnectionError: GET https://rucio.example.org:443/ping failed after 3.5 s (HTTP 503)"
    assert redact_names(said) == (
        "ConnectionError: GET https://rucio.example.org:443/private:[hidden] failed after 3.5 s (HTTP 503)"
    )


def test_words_on_private_datasets_that_an_older_version_kept_are_forgotten():
    fact = Fact(DatasetState.STUCK, NOON, provenance=TOLD)
    memory = CatalogueMemory(
        records={
            NAME: DatasetRecord(NOON, {CAM: fact}, previous_facts={RAL: fact}),
            L1: DatasetRecord(NOON, {CAM: fact}),
        },
        unseen_reasons={NAME: f"no {FILE}"},
        failure=f"no {FILE}",
    )
    after = pseudonymize_state(ReconcileState(memories={"rucio": memory}), VEIL).memories["rucio"]
    assert after.records[L1].facts[CAM] == fact
    assert "embargoed" not in str((after.records[NAME], after.unseen_reasons, after.failure))


def test_what_a_pattern_finds_has_opaque_names_that_are_understood(catalogue, register):
    assert catalogue.find(["*"]) == {NAME, L1}
    assert register.resolve(NAME) == CANARY


# jobs that name a private dataset in plain


def wanting(*datasets, jobs=1):
    return MemoryQueues({"schedd": ScheddDemand(NOON, (QueuedJobs(datasets, jobs),))})


def test_in_a_queue_a_plain_private_name_is_masked_and_others_stay():
    queues = PseudonymizedQueues(wanting("embargo:canary-1", "lofar:L1", NAME), VEIL, None)
    (group,) = queues.read_demand()["schedd"].job_groups
    assert group.datasets == (VEIL.mask(CANARY), "lofar:L1", NAME)


def test_key_of_a_private_set_is_not_passed_on_and_other_keys_are():
    answer = ScheddDemand(
        NOON,
        (
            QueuedJobs(("embargo:canary-1",), 1, set_key(["embargo:canary-1"])),
            QueuedJobs((NAME,), 1, set_key([NAME])),
        ),
    )
    queues = PseudonymizedQueues(MemoryQueues({"schedd": answer}), VEIL, None)
    groups = queues.read_demand()["schedd"].job_groups
    assert [group.key for group in groups] == [None, set_key([NAME])]


def test_a_name_that_the_default_scope_makes_private_is_masked_too():
    (group,) = PseudonymizedQueues(wanting("canary-1"), VEIL, "embargo").read_demand()["schedd"].job_groups
    assert group.datasets == (VEIL.mask(CANARY),)


def test_a_text_that_is_no_did_loses_the_private_name_in_it():
    (group,) = (
        PseudonymizedQueues(wanting("embargo:canary-1 and more"), VEIL, None)
        .read_demand()["schedd"]
        .job_groups
    )
    assert "canary" not in group.datasets[0]


def test_a_schedd_that_fails_says_why_without_names():
    queues = PseudonymizedQueues(
        MemoryQueues({"schedd": Unseen("garbled near embargo:canary-1")}), VEIL, None
    )
    assert "canary" not in queues.read_demand()["schedd"].reason


# the audit


class Asked:
    """An auditor and a probe that remember what they were asked about."""

    name = "rucio"
    did: Did | None = None
    fails = False

    def verify(self, did):
        self.did = did
        if self.fails:
            raise CatalogueDenied(self.name, f"no rights on {did}")
        return Seen(NOON, (replica(did, CAM),), case_variants=frozenset({TWIN}))

    def can_check(self, catalogue, site):
        return site == CAM

    def check_dataset(self, catalogue, did, site):
        self.did = did
        return True

    def close(self):
        self.did = None


def test_an_auditor_verifies_the_dataset_behind_the_name(register):
    inner = Asked()
    auditor = PseudonymizedAuditor(inner, register)
    with pytest.raises(CatalogueUnreachable, match="was not exchanged"):
        auditor.verify(NAME)
    register.exchange([CANARY])
    assert auditor.verify(NAME) == Seen(
        NOON, (replica(NAME, CAM),), case_variants=frozenset({VEIL.pseudonym(TWIN)})
    )
    assert inner.did == CANARY
    assert auditor.verify(L1).replicas == (replica(L1, CAM),)
    inner.fails = True
    with pytest.raises(CatalogueDenied) as caught:
        auditor.verify(NAME)
    assert "canary" not in str(caught.value)
    with pytest.raises(CatalogueUnreachable):
        auditor.verify(VEIL.mask(CANARY))


def test_a_probe_looks_for_the_dataset_behind_the_name(register):
    inner = Asked()
    probe = PseudonymizedProbe(inner, register)
    assert probe.check_dataset("rucio", NAME, CAM) is None
    register.exchange([CANARY])
    assert probe.check_dataset("rucio", NAME, CAM) is True
    assert inner.did == CANARY
    assert probe.can_check("rucio", CAM)
    assert not probe.can_check("rucio", RAL)


# whole cycles


def run(register, *names, replicas, outlet=None):
    """A cycle for a job that names *names*; its report, its state and what was published."""
    collector = outlet or MemoryPublisher("collector", clock=lambda: NOON)
    inner = MemoryCatalogue("rucio", replicas, (CAM, RAL), clock=lambda: NOON)
    cycle = Reconciler(
        catalogues=[PseudonymizedCatalogue(inner, register, lambda: NOON)],
        queues=PseudonymizedQueues(wanting(*names, jobs=2), VEIL, None),
        targets=[PublishTarget(collector, Policy(refresh_after=MINUTE, has_expiring_ads=True))],
        policy=ReconcilePolicy(),
        clock=lambda: NOON,
        state=ReconcileState(),
        store=None,
    )
    cycle.refresh_demand()
    return cycle.run(), cycle.state, collector.ads


def test_a_private_dataset_is_advertised_under_its_opaque_name_with_its_state(register):
    register.exchange([CANARY])
    report, state, ads = run(register, NAME, "lofar:L1", replicas=[replica(CANARY, CAM), replica(L1, CAM)])
    assert dict(ads[CAM].content)["DatasetStates"] == f"['lofar:L1'=\"AVAILABLE\";'{NAME}'=\"AVAILABLE\"]"
    for text in (ads, state, summary(report), report.demand):
        assert "canary" not in str(text).lower()


def test_a_plain_private_name_is_known_demand_and_never_advertised(register):
    report, state, ads = run(
        register, "embargo:canary-1", "lofar:L1", replicas=[replica(CANARY, CAM), replica(L1, CAM)]
    )
    assert dict(ads[CAM].content)["DatasetStates"] == "['lofar:L1'=\"AVAILABLE\"]"
    (want,) = report.demand.entries
    assert want.job_count == 2
    assert any(is_masked(did) for did in want.dids)
    for text in (ads, state, summary(report), report.demand):
        assert "canary" not in str(text).lower()


def test_private_case_twins_are_both_advertised_since_their_opaque_names_differ(register):
    names = register.exchange([CANARY, TWIN])
    report, _, ads = run(register, *names.values(), replicas=[replica(CANARY, CAM), replica(TWIN, RAL)])
    assert report.evaluation.snapshot.case_collisions == ()
    assert names[CANARY] in dict(ads[CAM].content)["DatasetStates"]
    assert names[TWIN] in dict(ads[RAL].content)["DatasetStates"]


# what was remembered before a dataset became private


def test_saved_ad_with_the_key_of_a_dataset_that_became_private_is_dropped():
    plain, private = (Did("vip:A1"), Did("vip:B1"))
    veil = Pseudonymizer(Privacy(("vip:B*",)), VEIL.keys)
    content = tuple(
        (name, f"['{set_key([did])}'=1.0]" if name == "DataLocalitySets" else "[]")
        for did in (plain, private)
        for name in ("DataLocalitySets", "DatasetStates")
    )
    ads = {CAM: SiteAd(CAM, NOON, 1, content[:2]), RAL: SiteAd(RAL, NOON, 1, content[2:])}
    assert pseudonymize_state(ReconcileState(ads=ads), veil).ads.keys() == {CAM}


def test_what_was_remembered_in_plain_forgets_the_name_and_keeps_the_demand():
    before = ReconcileState(
        memories={
            "rucio": CatalogueMemory(
                answered_at=NOON,
                records={
                    CANARY: DatasetRecord(NOON, {}),
                    L1: DatasetRecord(NOON, {}, case_variants=frozenset({TWIN})),
                },
                unseen_reasons={CANARY: "why", L1: "beside embargo:canary-1"},
                failure="embargo:canary-1 is odd",
            )
        },
        demand=DemandMemory(
            (RememberedJobs("schedd", (CANARY, L1), 3, NOON),), {"embargo:canary-1 x": "why"}
        ),
        pattern_matches={"rucio": frozenset({CANARY})},
        ads={CAM: ad(CANARY, site=CAM), RAL: ad(L1, site=RAL)},
        held_losses={CAM: HeldLoss(NOON, NOON, {CANARY: 1, L1: 2}, listed_count=3, cause=HoldCause.SITE)},
        audit=Audit(
            corrections={
                (Claim("rucio", did, CAM), VerificationMethod.FILES): Correction(NOON, NOON)
                for did in (CANARY, L1)
            }
        ),
    )
    after = pseudonymize_state(before, VEIL)
    assert "canary" not in str(after).lower()
    assert after.demand.entries == (
        RememberedJobs("schedd", tuple(sorted((VEIL.mask(CANARY), L1))), 3, NOON, has_unkeyed_jobs=True),
    )
    assert after.memories["rucio"].records.keys() == {L1}
    assert after.pattern_matches == {"rucio": {NAME}}
    assert after.ads.keys() == {RAL}
    assert after.held_losses[CAM].missing_polls == {L1: 2}
    assert [claim.did for claim, _ in after.audit.corrections] == [L1]
    assert pseudonymize_state(after, VEIL) == after
    assert pseudonymize_state(replace(before, memories={}), Pseudonymizer(Privacy(), (KEY,))) == replace(
        before, memories={}
    )
