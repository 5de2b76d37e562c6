"""Reasons and ways out, from what the pool answered and what the daemon knows."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapters.condor.client import Authorization
from hydrator.asking import telling
from hydrator.beliefs import Beliefs
from hydrator.commands.why import Asked, ask_dids, ask_job, row, with_news
from hydrator.crowd import crowd
from hydrator.errors import CatalogueUnreachable, ConfigError, PoolDenied, PoolError
from hydrator.judged import HERE, Clause, Job, JobStatus, SlotGroup, Told, job_from
from hydrator.missing import Lack
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
from hydrator.nearest import nearest, with_near
from hydrator.schedd_facts import facts_from
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


RELEASE = "hydrator release 'ClusterId == 7' lets it run anywhere, with its data or without"


def test_a_run_that_can_only_open_local_paths_is_not_advised_to_go_without_its_data():
    """Released, it would start, miss its data and be held."""
    left_out = beliefs(CAM={L1: fact(DatasetState.AVAILABLE)})
    left_out = replace(left_out, left_out={CAM: {L1}})
    text = {"ClusterId": "7", "DataLocality": '"require"', "DataLocalityTransformed": "true"}
    for more, advice in (
        ({}, RELEASE),
        ({"DataLocalityPathSites": '{"CAM"}'}, "the operator makes room (budget.line_bytes)"),
    ):
        job = job_from({**text, "RequiredDatasets": f'{{"{L1}"}}', **more}, [0], "schedd")
        job = replace(job, may_release=True)
        answer = explain(job, [slots(MISSING)], left_out, now=NOON)
        assert answer.way_out == f"{advice} (then it matches at CAM)"


@pytest.mark.parametrize("state", ["PARTIAL", "NEARLINE", "STUCK"])
def test_release_is_not_offered_for_data_that_is_not_whole_there(state):
    asks = replace(JOB, may_release=True)
    answer = explain(asks, [slots(MISSING, told=Told(False, state))], None, now=NOON)
    assert "release" not in answer.way_out


def test_release_is_offered_neither_for_a_typo_nor_for_a_site_without_slots():
    asks = replace(JOB, may_release=True)
    typo = explain(asks, [slots(MISSING)], beliefs(), now=NOON)
    assert typo.way_out == "submit it again with another name (then it matches at CAM)"
    down = explain(asks, [slots(MISSING)], beliefs(RAL={L1: fact(DatasetState.AVAILABLE)}), now=NOON)
    assert "release" not in down.way_out


def test_release_is_offered_only_to_those_who_may_where_our_word_alone_is_wanting():
    known = replace(beliefs(CAM={L1: fact(DatasetState.AVAILABLE)}), left_out={CAM: {L1}})
    for may, offered in ((True, True), (False, False)):
        job = replace(JOB, may_release=may)
        assert (RELEASE in explain(job, [slots(MISSING)], known, now=NOON).way_out) is offered


MISSED_HERE = Clause(
    "member((TARGET.DataLocalitySite ?: TARGET.GLIDEIN_Site), MY.ChirpDataLocalityMissed) =!= true"
    " || time() > MY.ChirpDataLocalityMissedUntil", "false", "false",
)  # fmt: skip


def missed_job(**more: str) -> Job:
    return job_from(
        {
            "ClusterId": "7", "JobStatus": "1", "RequiredDatasets": f'{{"{L1}","{L2}"}}',
            "DataLocalityTransformed": "true",
            "ChirpDataLocalityMisses": f'{{ "{unix(NOON - 12 * MINUTE)} {L1},+2 CAM","junk" }}',
            "ChirpDataLocalityMissed": '{ "CAM" }',
            "ChirpDataLocalityMissedUntil": str(unix(NOON + 48 * MINUTE)),
            **more,
        },
        [0],
        "schedd",
    )  # fmt: skip


def test_after_a_miss_the_site_names_what_was_missed_when_and_until_when_the_job_keeps_away():
    answer = explain(missed_job(), [slots(MISSED_HERE)], None, now=NOON)
    (reason,) = answer.sites[0].reasons
    assert reason.cause is Cause.MISSED
    assert reason.text == (
        f"the job could not read {L1} there 12 min ago, though its slot had it listed;"
        " it keeps away until 12:48 UTC; its stderr says more"
    )
    assert f"it ran and could not read {L1} at CAM 12 min ago" in answer.notes
    assert answer.way_out == "the job tries the site again, in 48 min (then it matches at CAM)"
    assert answer.funnel == "1 slot → 1 with the data → 0 where it has not missed its data"


def test_a_job_that_is_held_after_misses_names_them():
    held = missed_job(JobStatus="5", HoldReason='"its datasets could not be read at CAM"')
    assert f"it ran and could not read {L1} at CAM 12 min ago" in explain(held, [], None, now=NOON).notes


def test_a_miss_that_the_job_could_not_report_is_still_no_requirement_of_its_owners():
    clause = Clause(
        "MY.ChirpDataLocalityMissed isnt undefined || MY.ExitCode =!= 85 || ! true", "false", "false"
    )
    answer = explain(JOB, [slots(clause)], None, now=NOON)
    assert [reason.cause for reason in answer.sites[0].reasons] == [Cause.MISSED]
    assert "ended with status 85" in answer.sites[0].reasons[0].text


def refused(reason: str, ago: timedelta = MINUTE, **more) -> Job:
    return replace(JOB, words={"LastRejMatchReason": reason, "LastRejMatchTime": unix(NOON - ago)}, **more)


def test_the_headline_names_the_concurrency_limit_that_a_job_waits_for():
    answer = explain(
        refused("concurrency limit license, tape reached |5|7.0|"), [slots(FINE)], None, now=NOON
    )
    assert answer.verdict == (
        "it waits for a concurrency limit (license, tape): the negotiator said so 1 min ago;"
        " but for that it would match at CAM"
    )
    assert (answer.could_run, answer.way_out, answer.matches_at) == (False, None, (CAM,))
    nowhere = explain(refused("concurrency limit license reached"), [slots(BUSY)], None, now=NOON)
    assert nowhere.verdict.startswith("it waits for a concurrency limit (license)")


def test_a_refusal_after_our_clock_was_read_is_a_refusal_too():
    job = refused("concurrency limit license reached", ago=timedelta(seconds=-1))
    answer = explain(job, [slots(FINE)], None, now=NOON)
    assert answer.verdict.startswith(
        "it waits for a concurrency limit (license): the negotiator said so 0 s ago"
    )


def test_a_limit_that_the_negotiator_does_not_name_is_named_by_the_job():
    job = refused("concurrency limit reached", limits="license:2")
    assert "concurrency limit (license:2)" in explain(job, [slots(FINE)], None, now=NOON).verdict


def test_other_refusals_of_matching_jobs_are_in_the_headline_too():
    answer = explain(refused("insufficient priority"), [slots(FINE)], None, now=NOON)
    assert answer.verdict.startswith("it waits for its turn (insufficient priority)")


@pytest.mark.parametrize(
    "job", [refused("no match found"), refused("concurrency limit x reached", 20 * MINUTE)]
)
def test_what_was_said_long_ago_or_of_slots_alone_is_no_headline(job):
    answer = explain(job, [slots(FINE)], None, now=NOON)
    assert (answer.verdict.startswith("it would match at CAM"), answer.could_run) == (True, True)


def test_too_many_uploads_of_a_user_are_in_the_headline():
    job = replace(JOB, uploads=21, most_uploads=20)
    answer = explain(job, [slots(FINE)], None, now=NOON)
    assert answer.verdict.startswith("its schedd asks for no slots for its user: 21 jobs of the user send")
    assert "MAX_CONCURRENT_UPLOADS_PER_USER" in answer.verdict
    assert not answer.could_run
    assert explain(replace(job, uploads=19), [slots(FINE)], None, now=NOON).could_run


def test_datasets_of_a_site_are_counted_by_state_with_bytes_and_an_end():
    dids = [Did(f"lofar:D{number:03}") for number in range(245)]
    ready = NOON + 190 * MINUTE
    facts = {dids[0]: fact(DatasetState.PARTIAL, 0.5), dids[1]: fact(DatasetState.NEARLINE)}
    facts |= {did: Fact(DatasetState.STAGING, NOON, 0.25, Catalogued(ready_at=ready)) for did in dids[2:6]}
    known = beliefs(demanded=dids, CAM=facts)
    sized = replace(known, snapshot=replace(known.snapshot, bytes_total=dict.fromkeys(dids, 80 * 10**9)))
    told = {did: Told(True, "AVAILABLE", None, unix(NOON)) for did in dids}
    told |= {did: Told(False, str(one.state), one.fraction, unix(NOON)) for did, one in facts.items()}
    answer = explain(
        replace(JOB, datasets=tuple(dids)), [replace(slots(MISSING), told=told)], sized, now=NOON
    )
    (at,) = answer.sites
    begin = "239 here, 4 staging until 15:10 UTC, 1 partial, 1 on tape, 360 GB missing: "
    assert at.reasons[0].text.startswith(begin)
    assert (at.counts.here, at.counts.missing_bytes, at.counts.ready_at) == (239, 360 * 10**9, unix(ready))


def test_a_size_that_is_not_known_makes_the_sum_a_least_one():
    known = beliefs(CAM={L1: fact(DatasetState.PARTIAL), L2: fact(DatasetState.PARTIAL)})
    known = replace(known, snapshot=replace(known.snapshot, bytes_total={L1: 5 * 10**9}))
    job = replace(JOB, datasets=(L1, L2))
    text = explain(job, [slots(MISSING)], known, now=NOON).sites[0].reasons[0].text
    assert text.startswith("0 here, 2 partial, at least 5 GB missing: ")


def test_a_name_that_exists_nowhere_is_followed_by_the_nearest_ones():
    right = Did("lofar:L1234_SB001.ms")
    wrong = Did("lofar:L1243_SB001.ms")
    known = beliefs(demanded=(wrong, right), RAL={right: fact(DatasetState.AVAILABLE)})
    job = replace(JOB, datasets=(wrong,))
    answer = explain(
        job, [replace(slots(MISSING), told={wrong: Told(False)})], with_near(known, [wrong]), now=NOON
    )
    (missing,) = answer.sites[0].reasons[0].missing
    assert missing.text == f"{wrong} is nowhere: no catalogue has it; did you mean {right}?"
    assert answer.way_out == f"submit it again with {right} instead of {wrong} (then it matches at CAM)"


def test_the_nearest_names_leave_out_those_that_look_like_nothing_and_long_lists_are_bounded():
    known = [Did(f"lofar:L{number}_SB001.ms") for number in range(1000, 1100)]
    assert nearest(Did("lofar:l1050_sb001.ms"), known)[0] == "lofar:L1050_SB001.ms"
    assert len(nearest(Did("lofar:L105_SB001.ms"), known)) == 3
    assert nearest(Did("ska:other"), known) == ()
    assert nearest(Did("a:" + "x" * 400), [Did("a:" + "x" * 401)]) == ()


def test_a_held_change_stands_beside_the_site_it_is_about():
    known = replace(beliefs(CAM={L1: fact(DatasetState.PARTIAL)}), held={CAM: "5 of 6 datasets would leave"})
    answer = explain(JOB, [slots(MISSING, told=Told(False, "PARTIAL"))], known, now=NOON)
    rows = telling(answer).rows
    assert rows[-1][3].startswith("data: a change of this site is held: 5 of 6 datasets would leave")
    assert answer.sites[0].held == "5 of 6 datasets would leave"
    free = explain(JOB, [slots(FINE)], known, now=NOON)
    assert "a change of this site is held" in telling(free).rows[0][3]


def test_slots_of_a_pool_that_the_schedd_flocks_to_are_a_place_of_their_own():
    away = slots(FINE, pool="cm2:9618")
    answer = explain(JOB, [slots(MISSING, told=Told(False, "PARTIAL")), away], None, now=NOON)
    assert answer.matches_at == ("CAM (pool cm2:9618, by flocking)",)
    assert [(at.pool, at.slots) for at in answer.sites] == [("", 1), ("cm2:9618", 1)]


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


@pytest.mark.parametrize("told", [Told(False, spelled=False), Told(False)])
def test_a_name_in_another_letter_case_is_said_with_the_catalogues(told):
    known = replace(beliefs(RAL={Did("LOFAR:l1"): fact(DatasetState.AVAILABLE)}))
    known = replace(known, snapshot=replace(known.snapshot, misspelt={L1: (Did("LOFAR:l1"),)}))
    one = lacking(told=told, known=known)
    assert one.lack is Lack.CASE
    assert (
        one.text
        == f"{L1} is written with another letter case: the catalogue has LOFAR:l1; names count to the letter"
    )
    answer = explain(JOB, [slots(MISSING, told=told)], known, now=NOON)
    assert answer.way_out == f"submit again with the catalogue's spelling of {L1} (then it matches at CAM)"
    assert answer.matches_at == ()


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
        self.config: dict[str, str] = {}
        self.flocked: tuple[str, ...] = ()

    def schedds(self):
        return [{"Name": name} for name in self.queues]

    def jobs(self, schedd, cluster, proc=None):
        if isinstance(self.queues[schedd], Exception):
            raise self.queues[schedd]
        return self.queues[schedd]

    def ended(self, schedd, cluster, proc=None):
        return self.histories.get(schedd)

    def config_of(self, daemon, names, name=None):
        return dict.fromkeys(names) | self.config

    def ping(self, daemon, level, name=None):
        return Authorization(level, True, "ops@pool", "IDTOKENS")

    def user_record(self, schedd, user):
        return True

    def uploads(self, schedd, user, least_bytes):
        return 30

    def judge(self, job, facts, site_attributes, *, whole=(), constraint="true", flock=()):
        self.judged.append(dict(job))
        self.flocked = tuple(flock)
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


def test_the_schedd_is_asked_where_it_flocks_how_much_it_sends_and_who_may_release():
    ad = {**IDLE[0]["ad"], "User": '"alice@pool"', "DataLocalityTransformed": "true"}
    pool = FakePool({"a": [{**IDLE[0], "ad": ad}]})
    pool.config = {
        "FLOCK_COLLECTOR_HOSTS": "cm2:9618, cm3", "QUEUE_SUPER_USERS": "condor, ops@pool",
        "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS": "true", "MAX_CONCURRENT_UPLOADS_PER_USER": "-1",
        "MAX_CONCURRENT_UPLOADS": "100",
    }  # fmt: skip
    (answer,) = ask_job(replace(asked(pool), releases=True), 7, None, None).answers
    assert pool.flocked == ("cm2:9618", "cm3")
    assert (answer.job.uploads, answer.job.most_uploads, answer.job.may_release) == (30, 20, True)
    (answer,) = ask_job(asked(pool), 7, None, None).answers
    assert not answer.job.may_release


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({}, None),
        ({"MAX_CONCURRENT_UPLOADS_PER_USER": "7"}, 7),
        ({"MAX_CONCURRENT_UPLOADS_PER_USER": "7", "CONDOR_VERSION": "23.9.6"}, None),
        ({"MAX_CONCURRENT_UPLOADS_PER_USER": "7", "CONDOR_VERSION": "25.14.1"}, 7),
        ({"MAX_CONCURRENT_UPLOADS_PER_USER": "0"}, None),
        ({"MAX_CONCURRENT_UPLOADS_PER_USER": "7", "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS": "False"}, None),
        ({"MAX_CONCURRENT_UPLOADS_PER_USER": "-1", "MAX_CONCURRENT_UPLOADS": "4"}, None),
        ({"MAX_CONCURRENT_UPLOADS_PER_USER": "-1"}, 20),
    ],
)
def test_the_limit_of_uploads_is_computed_as_the_schedd_does(config, limit):
    assert facts_from({"SCHEDD_ENABLE_PER_USER_MATCH_LIMITS": "True", **config}).most_uploads == limit


def test_a_job_chooses_among_the_pools_of_its_schedd_and_makes_none_up():
    facts = facts_from({"FLOCK_COLLECTOR_HOSTS": "cm2, cm3", "FLOCK_BY_DEFAULT": "False"})
    assert facts.pools_of("CM3, evil.example") == ("cm3",)
    assert facts.pools_of(None) == ()


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
