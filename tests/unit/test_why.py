"""Reasons and ways out, from what the pool answered and what the daemon knows."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hydrator.commands.why import Asked, ask_dids, ask_job, row, with_news
from hydrator.crowd import crowd
from hydrator.errors import CatalogueUnreachable, ConfigError, PoolDenied, PoolError
from hydrator.judged import HERE, Clause, Job, JobStatus, SlotGroup, Told, job_from
from hydrator.missing import Beliefs, Lack
from hydrator.model import (
    DatasetState,
    Did,
    Fact,
    Replica,
    ReplicaState,
    Seen,
    Site,
    SiteFacts,
    Snapshot,
    unix,
)
from hydrator.model import Told as Catalogued
from hydrator.why import Cause, explain, foresee
from hydrator.words import span
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL

JOB = Job("7.0", "schedd", 1, JobStatus.IDLE, (L1,), mode="require", max_age=20700, transformed=True)
MISSING = Clause(f"MY.{HERE}", "false", "false")
FINE = Clause("TARGET.Memory >= RequestMemory", "true", "true")
CORES = Clause("TARGET.Cpus >= RequestCpus", "false", "false")
BUSY = Clause("TARGET.Cpus >= RequestCpus", "false", "true")


def slots(
    *clauses: Clause, site: Site = CAM, number: int = 1, told: Told | None = None, start=(), **more
) -> SlotGroup:
    matches = all(clause.holds for clause in (*clauses, *start))
    known = {did: told or Told(matches) for did in (L1, L2)}
    group = SlotGroup(site, number, "slot1@x", "Unclaimed", 1, 0, clauses, tuple(start), matches, known)
    return replace(group, **more)


def beliefs(*, demanded=(L1, L2), **sites: dict[Did, Fact]) -> Beliefs:
    known = {Site(site): SiteFacts(NOON, facts) for site, facts in sites.items()}
    return Beliefs(NOON, Snapshot(known), frozenset(demanded))


def fact(state: DatasetState, fraction: float | None = None) -> Fact:
    return Fact(state, NOON, fraction)


def lacking(job=JOB, known: Beliefs | None = None, told: Told | None = None, **more) -> Any:
    """The first reason why the job's dataset does not count at CAM."""
    group = slots(MISSING, told=told or Told(False), **more)
    (at, *_) = explain(job, [group], known, now=NOON).sites
    return at.reasons[0].missing[0]


def test_a_job_that_matches_says_where_and_needs_no_way_out():
    answer = explain(JOB, [slots(FINE), slots(MISSING, site=RAL)], None, now=NOON)
    assert (answer.matches_at, answer.could_run, answer.way_out) == ((CAM,), True, None)
    assert "would match at CAM" in answer.verdict


def test_a_private_dataset_in_plain_is_said_to_need_an_exchange_even_if_some_slot_speaks_of_it():
    job = replace(JOB, private=(L1,))
    for known in (None, beliefs(CAM={L1: fact(DatasetState.AVAILABLE)})):
        lack = lacking(job, known, generation=None)
        assert lack.lack is Lack.PRIVATE
        assert lack.text.startswith(f"{L1} is private and is never advertised under its own name")
        assert "`hydrator submit`" in lack.text


def test_a_claimed_slot_does_not_match_whatever_its_expressions_say():
    answer = explain(JOB, [slots(FINE, state="Claimed")], None, now=NOON)
    assert not answer.could_run
    assert [reason.cause for reason in answer.sites[0].reasons] == [Cause.BUSY]


def test_a_site_to_which_no_path_was_known_is_told_from_other_requirements():
    clause = Clause(
        "identicalMember((TARGET.DataLocalitySite), MY.DataLocalityPathSites) =?= true", "false", "false"
    )
    answer = explain(JOB, [slots(clause)], None, now=NOON)
    assert [reason.cause for reason in answer.sites[0].reasons] == [Cause.PATH]
    assert "[[storage]]" in answer.sites[0].reasons[0].text
    assert "submit it again with a [[storage]] for the site" in (answer.way_out or "")


def test_the_funnel_counts_slots_from_data_to_cores():
    job = replace(JOB, requests={"Cpus": 16})
    groups = [slots(CORES, number=8), slots(MISSING, CORES, site=RAL, number=4)]
    assert explain(job, groups, None, now=NOON).funnel == "12 slots → 8 with the data → 0 with 16 cores"


def test_a_request_that_depends_on_the_slot_is_told_as_such():
    choosing = Clause("TARGET.Cpus >= MY.RequestCpus", "false", "false")
    answer = explain(JOB, [slots(choosing, most={"TotalSlotCpus": 4})], None, now=NOON)
    assert answer.sites[0].reasons[0].text == (
        "what it asks for depends on the slot, and is more than the 4 cores of the largest there"
    )


def test_asking_for_fewer_cores_is_the_way_out_where_the_data_is():
    group = slots(CORES, most={"Cpus": 2, "TotalSlotCpus": 8})
    job = replace(JOB, requests={"Cpus": 16})
    answer = explain(job, [group, slots(MISSING, CORES, site=RAL)], None, now=NOON)
    assert answer.way_out == "ask for 8 cores or less (then it matches at CAM)"
    assert "asks for 16 cores; the largest slot there has 8 cores" in answer.sites[0].reasons[0].text


def test_what_comes_by_itself_is_cheaper_than_what_somebody_must_do():
    waiting = replace(JOB, any_after=unix(NOON) + 720)
    staging = Told(False, "STAGING", 0.4, unix(NOON))
    answer = explain(waiting, [slots(MISSING, told=staging), slots(CORES, site=RAL)], None, now=NOON)
    assert (
        answer.way_out == f"the wait ends in 12 min or {L1} arrives (STAGING 40 %) (then it matches at CAM)"
    )
    assert "for 12 min" in answer.wait
    requires = explain(JOB, [slots(MISSING, told=Told(False, "PARTIAL"))], None, now=NOON)
    assert "hydrator release 'ClusterId == 7'" in requires.way_out


def test_a_run_that_can_only_open_local_paths_is_not_advised_to_go_without_its_data():
    """Released, it would start, miss its data and be held."""
    partial = [slots(MISSING, told=Told(False, "PARTIAL"))]
    text = {"ClusterId": "7", "DataLocality": '"require"', "DataLocalityTransformed": "true"}
    for more, advice in (
        ({}, "hydrator release 'ClusterId == 7'"),
        ({"DataLocalityPathSites": '{"CAM"}'}, "the data comes there: somebody makes a rule"),
    ):
        job = job_from({**text, "RequiredDatasets": f'{{"{L1}"}}', **more}, [0], "schedd")
        assert explain(job, partial, None, now=NOON).way_out == f"{advice} (then it matches at CAM)"


def test_a_busy_slot_that_also_lacks_the_data_needs_both():
    answer = explain(JOB, [slots(MISSING, BUSY, told=Told(False, "STAGING"))], None, now=NOON)
    assert answer.way_out == f"{L1} arrives (STAGING) and a slot becomes free (then it matches at CAM)"


def test_a_state_is_told_with_its_share_and_its_meaning():
    assert lacking(told=Told(False, "STAGING", 0.409)).text == f"{L1} is STAGING 40 % (on its way)"
    assert lacking(told=Told(False, "STUCK")).lack is Lack.STATE


def test_a_fact_that_is_too_old_is_told_with_both_ages():
    one = lacking(told=Told(False, "AVAILABLE", None, unix(NOON - 7 * HOUR)))
    assert one.lack is Lack.STALE
    assert "7 h ago; the job takes none older than 5 h 45 min" in one.text
    assert lacking(told=Told(False, "AVAILABLE")).lack is Lack.NO_AGE


def test_a_slot_without_our_attributes_has_no_hook():
    assert lacking(generation=None).lack is Lack.UNHYDRATED


def test_what_the_slots_do_not_mention_the_daemon_explains():
    available, staging = fact(DatasetState.AVAILABLE), fact(DatasetState.STAGING, 0.5)
    known = beliefs(CAM={L1: available})
    elsewhere = beliefs(RAL={L1: staging})
    clash = replace(beliefs(), snapshot=Snapshot({}, clashes=((L1, Did("lofar:l1")),)))
    unseen = replace(beliefs(), snapshot=Snapshot({}, {L1: "rucio: timed out"}))
    assert {
        "not yet": lacking(known=known).lack,
        "published once a job asks": lacking(known=replace(known, demanded=frozenset())).lack,
        "elsewhere": lacking(known=elsewhere).lack,
        "nowhere": lacking(known=beliefs()).lack,
        "not heard of": lacking(known=beliefs(demanded=())).lack,
        "no room": lacking(known=replace(known, left_out={CAM: {L1}})).lack,
        "clash": lacking(known=clash).lack,
        "unseen": lacking(known=unseen).lack,
        "no state": lacking(known=None).lack,
    } == {
        "not yet": Lack.NOT_YET,
        "published once a job asks": Lack.NOT_ASKED,
        "elsewhere": Lack.ELSEWHERE,
        "nowhere": Lack.NOWHERE,
        "not heard of": Lack.NOT_ASKED,
        "no room": Lack.LEFT_OUT,
        "clash": Lack.CLASH,
        "unseen": Lack.UNSEEN,
        "no state": Lack.ELSEWHERE,
    }
    assert "RAL (STAGING 50 %)" in lacking(known=elsewhere).text
    assert "lofar:l1" in lacking(known=clash).text
    assert "timed out" in lacking(known=unseen).text


def test_a_site_that_has_all_the_data_and_no_slot_is_told():
    answer = explain(JOB, [], beliefs(RAL={L1: fact(DatasetState.AVAILABLE)}), now=NOON)
    assert (answer.sites[0].site, answer.sites[0].slots) == (RAL, 0)
    assert "a glidein there would do" in answer.sites[0].reasons[0].text
    assert "no slots in the pool" in answer.verdict


def test_a_requirement_that_no_slot_says_anything_about_is_told_from_one_that_is_false():
    undefined = Clause("TARGET.HasSpade > 1", "undefined", "undefined")
    answer = explain(JOB, [slots(undefined)], None, now=NOON)
    assert answer.sites[0].reasons[0].text.endswith("does not hold, the slots do not say")
    assert answer.sites[0].reasons[0].clauses == ("TARGET.HasSpade > 1",)


def test_start_that_refuses_is_the_site_operators():
    refused = Clause('TARGET.Owner == "root"', "false", "false")
    answer = explain(JOB, [slots(FINE, start=[refused])], None, now=NOON)
    assert [reason.cause for reason in answer.sites[0].reasons] == [Cause.START]
    assert answer.way_out.startswith("the site's operator changes START")


def test_parts_that_hold_and_a_whole_that_does_not_is_said_to_be_too_deep():
    answer = explain(JOB, [slots(FINE, matches=False)], None, now=NOON)
    assert "too deep" in answer.sites[0].reasons[0].text


@pytest.mark.parametrize(
    ("status", "words", "sentence", "could_run"),
    [
        (JobStatus.HELD, {"HoldReason": "no."}, "it is held: no. condor_release 7.0", False),
        (JobStatus.RUNNING, {"RemoteHost": "slot1@x"}, "it runs at slot1@x", True),
        (JobStatus.COMPLETED, {}, "it has completed", True),
        (JobStatus.REMOVED, {}, "it is being removed", False),
        (JobStatus.SUSPENDED, {}, "it is suspended", False),
    ],
)
def test_every_status_has_its_sentence(status, words, sentence, could_run):
    answer = explain(replace(JOB, status=status, words=words), [slots(FINE)], None, now=NOON)
    assert answer.verdict.startswith(sentence)
    assert answer.could_run is could_run


def test_jobs_that_nothing_of_ours_holds_back_are_told_so():
    plain = explain(replace(JOB, datasets=(), transformed=False), [slots(CORES)], None, now=NOON)
    assert "names no datasets" in plain.notes[0]
    never = explain(replace(JOB, transformed=False), [slots(CORES)], None, now=NOON)
    assert "transform has not been here" in never.notes[0]
    assert never.wait is None
    released = explain(replace(JOB, released=True), [slots(CORES)], None, now=NOON)
    assert "released" in released.notes[0]


def test_a_job_is_read_from_the_text_of_its_ad():
    texts = {
        "ClusterId": "12",
        "JobStatus": "5",
        "RequiredDatasets": '{ "lofar:L1","L2", "bad name" }',
        "DataLocalityAnyAfter": "1763700000",
        "DataLocalityTransformed": "TRUE",
        "HoldReason": '"said \\"no\\""',
    }
    job = job_from(texts, [3, 4], "schedd", "lofar")
    assert (job.name, job.alike, job.status, job.datasets) == ("12.3", 2, JobStatus.HELD, (L1, L2))
    assert list(job.refused) == ["bad name"]
    assert job.words == {"HoldReason": 'said "no"'}
    assert list(job_from({"RequiredDatasets": "lofar:L1"}, [0], "s").refused) == ["lofar:L1"]


def test_before_submitting_a_dataset_that_a_catalogue_has_counts_as_there():
    job = Job("", "", 1, None, (L1,), max_age=20700)
    known = beliefs(CAM={L1: fact(DatasetState.AVAILABLE)}, demanded=())
    groups = [slots(MISSING, told=Told(False)), slots(MISSING, site=RAL, told=Told(False))]
    assert foresee(job, groups, known, now=NOON).matches_at == (CAM,)
    assert not foresee(job, groups, known, now=NOON, only=RAL).could_run
    unhydrated = [replace(groups[0], generation=None)]
    assert not foresee(job, unhydrated, known, now=NOON).could_run
    nowhere = foresee(job, groups, known, now=NOON, only=Site("ZZ"))
    assert [at.site for at in nowhere.sites] == ["ZZ"]


# --- asking -------------------------------------------------------------------------------------------


class FakePool:
    """Schedds with jobs, histories, or a reason why they cannot be asked; one slot that lacks everything."""

    def __init__(self, queues=None, histories=None) -> None:
        self.queues = queues or {}
        self.histories = histories or {}
        self.judged: list[dict[str, str]] = []

    def schedds(self):
        return [{"Name": name} for name in self.queues]

    def jobs(self, schedd, cluster, proc=None):
        if isinstance(self.queues[schedd], Exception):
            raise self.queues[schedd]
        return self.queues[schedd]

    def ended(self, schedd, cluster, proc=None):
        return self.histories.get(schedd)

    def judge(self, job, facts, site_attributes, *, whole=(), constraint="true"):
        self.judged.append(dict(job))
        group = {
            "site": "CAM", "told_site": None, "generation": 1, "as_of": None, "via": None,
            "state": "Unclaimed", "partitionable": False, "dynamic": False, "theirs": [],
            "job_values": ["false"], "slot_values": [], "matches": False, "most": {},
            "facts": [None] * len(facts), "slots": 1, "example": "slot1@x",
        }  # fmt: skip
        return {"clauses": [f"MY.{HERE}"], "requests": {}, "groups": [group, {**group, "dynamic": True}]}


IDLE = [{"procs": [0, 1], "ad": {"ClusterId": "7", "JobStatus": "1", "RequiredDatasets": '{ "lofar:L1" }'}}]
DENIED = PoolDenied("schedd b", "it knows us as eve")


def asked(pool: FakePool, known: Beliefs | None = None) -> Asked:
    return Asked(pool, ["GLIDEIN_Site"], known, None, NOON)


def test_a_schedd_that_denies_does_not_hide_the_job_that_another_has():
    found = ask_job(asked(FakePool({"a": IDLE, "b": DENIED})), 7, None, None)
    assert found.unasked == {"b": "it knows us as eve"}
    (answer,) = found.answers
    assert (answer.job.alike, [at.slots for at in answer.sites]) == (2, [1])
    json.dumps(row(answer))


def test_a_job_that_nobody_has_names_the_schedds_that_could_not_be_asked():
    with pytest.raises(
        PoolError, match=r"job 7\.1: no schedd that answered has it.*b could not be asked.*eve"
    ):
        ask_job(asked(FakePool({"a": [], "b": DENIED})), 7, 1, None)
    with pytest.raises(PoolError, match="job 7: no schedd has it"):
        ask_job(asked(FakePool({"a": []})), 7, None, None)


def test_a_number_that_two_schedds_know_needs_a_choice():
    with pytest.raises(ConfigError, match="job 7 is at a, b: choose one with --schedd"):
        ask_job(asked(FakePool({"a": IDLE, "b": IDLE})), 7, None, None)
    assert ask_job(asked(FakePool({"a": IDLE, "b": IDLE})), 7, None, "b").answers[0].job.schedd == "b"


def test_a_job_that_left_the_queue_is_told_from_the_history():
    ended = {
        "ClusterId": 7, "ProcId": 0, "JobStatus": 4, "EnteredCurrentStatus": unix(NOON - 5 * MINUTE),
        "RemoveReason": None, "LastRemoteHost": "slot1@x",
    }  # fmt: skip
    (answer,) = ask_job(asked(FakePool({"a": []}, {"a": ended})), 7, 0, None).answers
    assert (answer.verdict, answer.could_run) == ("it completed 5 min ago, at slot1@x", True)
    removed = {**ended, "JobStatus": 3, "RemoveReason": "by alice"}
    (answer,) = ask_job(asked(FakePool({"a": []}, {"a": removed})), 7, 0, None).answers
    assert (answer.verdict, answer.could_run) == ("it was removed 5 min ago: by alice", False)


class Answering:
    """A catalogue that has L1 at CAM, or cannot be reached."""

    name = "list"

    def __init__(self, *, reachable: bool = True) -> None:
        self._reachable = reachable

    def read(self, dids):
        from hydrator.model import Survey

        if not self._reachable:
            raise CatalogueUnreachable("list", "timed out")
        here = {L1: (Replica(L1, CAM, ReplicaState.COMPLETE),)}
        return Survey("list", NOON, frozenset({CAM}), {did: Seen(NOON, here.get(did, ())) for did in dids})


def test_catalogues_are_asked_about_what_nobody_wanted_yet():
    bound = timedelta(hours=6)
    known = with_news(Beliefs(NOON, Snapshot({})), [Answering()], frozenset({L1, L2}), bound=bound)
    pool = FakePool()
    assert ask_dids(asked(pool, known), [L1], None, max_age=20700).matches_at == (CAM,)
    (at,) = ask_dids(asked(pool, known), [L1, L2], None, max_age=20700).sites
    assert [one.lack for one in at.reasons[0].missing] == [Lack.NOT_ASKED, Lack.NOWHERE]
    assert pool.judged[0]["DataLocalityMaxAge"] == "20700"
    away = with_news(known, [Answering(reachable=False)], frozenset({L2}), bound=bound)
    (at,) = ask_dids(asked(pool, away), [L2], None, max_age=20700).sites
    assert [one.lack for one in at.reasons[0].missing] == [Lack.UNSEEN]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (719, "11 min 59 s"), (90_000, "1 d 1 h"), (-5, "0 s")]
)
def test_durations_have_two_units_at_most(seconds, words):
    assert span(seconds) == words


# --- how the catalogue came to a state

TOLD = Catalogued(rule="5f3a", account="ops", reason="its rule is stuck: no quota", ready_at=NOON + HOUR)


def test_the_rule_behind_a_state_is_named_with_its_account_its_reason_and_when_it_will_be_whole():
    known = beliefs(CAM={L1: Fact(DatasetState.STAGING, NOON - MINUTE, 0.4, TOLD)})
    told = Told(False, "STAGING", 0.4, unix(NOON - MINUTE))
    answer = explain(JOB, [slots(MISSING, told=told)], known, now=NOON)
    (missing,) = answer.sites[0].reasons[0].missing
    assert missing.text == (
        "lofar:L1 is STAGING 40 % (on its way), read 1 min ago; its rule is stuck: no quota;"
        " rule 5f3a of ops; expected whole in 1 h"
    )
    assert (missing.rule, missing.as_of, missing.fraction) == ("5f3a", unix(NOON - MINUTE), 0.4)
    assert "expected whole in 1 h" in (answer.way_out or "")
    assert row(answer)["sites"][0]["reasons"][0]["missing"][0]["rule"] == "5f3a"


def test_what_is_known_of_another_state_than_the_slots_say_is_not_told_of_it():
    known = beliefs(CAM={L1: Fact(DatasetState.AVAILABLE, NOON, told=TOLD)})
    missing = lacking(known=known, told=Told(False, "STUCK", None, unix(NOON)))
    assert (missing.rule, "5f3a" in missing.text) == (None, False)


def test_a_state_that_the_slots_do_not_say_yet_has_its_rule_too():
    known = beliefs(CAM={L1: Fact(DatasetState.STUCK, NOON, told=TOLD)})
    missing = lacking(known=known)
    assert (missing.lack, missing.rule) == (Lack.NOT_YET, "5f3a")
    assert "rule 5f3a of ops" in missing.text


# --- more kinds of jobs than are explained one by one


def test_the_kinds_beyond_the_first_are_summed_up_by_status_and_by_where_their_data_is_whole():
    known = beliefs(CAM={L1: fact(DatasetState.AVAILABLE), L2: fact(DatasetState.STAGING)})
    both = replace(JOB, name="7.30", datasets=(L1, L2), alike=5)
    running = replace(JOB, name="7.40", status=JobStatus.RUNNING, alike=2)
    summed = crowd([replace(JOB, alike=3), both, running], known)
    assert (summed.kinds, summed.jobs, summed.by_status) == (3, 10, {"idle": 8, "running": 2})
    assert (summed.whole, summed.apart, summed.example) == ({CAM: 3}, 5, "7.30")
    assert summed.text == (
        "and 3 more kinds of its jobs, 10 jobs: 8 idle, 2 running;"
        " idle with all their data at one site: 3 at CAM; idle with their data whole nowhere: 5;"
        " for one of them: hydrator why 7.30"
    )


def test_without_beliefs_the_crowd_is_counted_and_nothing_is_said_of_its_data():
    summed = crowd([replace(JOB, alike=3)], None)
    assert (summed.unknown, summed.whole, summed.apart, summed.example) == (3, {}, 0, "7.0")
    assert crowd([], None).text == ""


def test_a_brief_row_of_the_queue_is_summed_up_and_not_judged():
    pool = FakePool({"a": [*IDLE, {**IDLE[0], "procs": [2, 3, 4], "brief": True}]})
    found = ask_job(asked(pool), 7, None, None)
    assert (len(found.answers), found.crowd.kinds, found.crowd.jobs) == (1, 1, 3)
