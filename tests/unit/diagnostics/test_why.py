"""Reasons and remedies for an idle job, from the pool's answers and the daemon's knowledge."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic_core import to_json, to_jsonable_python

from hydrator.cli.commands.why import (
    WhyQuery,
    ask_job,
    explain_dids,
    gather_knowledge,
    parse_words,
    with_catalogue_answers,
)
from hydrator.config import parse
from hydrator.diagnostics.start_record import ASKED, START_ATTRIBUTE
from hydrator.diagnostics.why.explain import explain, explain_before_submit
from hydrator.diagnostics.why.explanation import MismatchCause
from hydrator.diagnostics.why.missing_data import MissingReason
from hydrator.diagnostics.why.nowhere import add_similar_names
from hydrator.diagnostics.why.pool_facts import (
    HERE_ATTRIBUTE,
    Clause,
    JobFacts,
    JobStatus,
    SlotDatasetState,
    SlotGroup,
    parse_job,
)
from hydrator.diagnostics.why.render import render_answer, render_result
from hydrator.diagnostics.why.schedd_facts import fetch_schedd_facts
from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import hash_key, set_key
from hydrator.domain.ads.expressions import START_TEXT
from hydrator.domain.errors import CatalogueUnreachable, ConfigError, PoolDenied, PoolError
from hydrator.domain.model import (
    DaemonKnowledge,
    DatasetState,
    Did,
    Fact,
    Replica,
    Seen,
    Site,
    SiteFacts,
    Snapshot,
    to_unix,
)
from hydrator.domain.model import Provenance as Catalogued
from hydrator.domain.text import format_duration
from hydrator.reconcile.demand import WRONG_KEY_TODO
from hydrator.staging.overview import explain_for_job
from hydrator.wiring import system_clock
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL
from tests.staging_world import StagingWorld, need, policy

JOB = JobFacts(
    "7.0", "schedd", 1, JobStatus.IDLE, (L1,), mode="require", max_age_seconds=20700, is_bound=True
)
BOUND = {HERE_ATTRIBUTE: "false", "Requirements": f"MY.{HERE_ATTRIBUTE} =!= false"}
"""The attributes of a job that its data restricts, as texts."""
MISSING = Clause(f"MY.{HERE_ATTRIBUTE}", "false", "false")
FINE = Clause("TARGET.Memory >= RequestMemory", "true", "true")
CORES = Clause("TARGET.Cpus >= RequestCpus", "false", "false")
BUSY = Clause("TARGET.Cpus >= RequestCpus", "false", "true")


def slots(
    *clauses: Clause,
    site: Site = CAM,
    number: int = 1,
    told: SlotDatasetState | None = None,
    start=(),
    **more,
) -> SlotGroup:
    matches = all(clause.is_true for clause in (*clauses, *start))
    known = {did: told or SlotDatasetState(matches) for did in (L1, L2)}
    group = SlotGroup(site, number, "Unclaimed", 1, clauses, tuple(start), matches, known)
    return replace(group, **more)


def beliefs(
    *, demanded=(L1, L2), sizes=None, unseen=None, misspelt=None, more=None, **sites: dict[Did, Fact]
) -> DaemonKnowledge:
    """Return what a daemon knows of these sites; *more* has other fields."""
    known = {Site(site): SiteFacts(NOON, facts) for site, facts in sites.items()}
    snapshot = Snapshot(known, unseen or {}, (), sizes or {}, misspelt or {})
    return DaemonKnowledge(NOON, snapshot, frozenset(demanded), **(more or {}))


def fact(state: DatasetState, fraction: float | None = None) -> Fact:
    return Fact(state, NOON, fraction)


def why(*groups: SlotGroup, known: DaemonKnowledge | None = None, job=JOB, **changes) -> Any:
    """Explain a job with these *changes*."""
    return explain(replace(job, **changes), list(groups), known, now=NOON)


def lacking(
    job=JOB, known: DaemonKnowledge | None = None, told: SlotDatasetState | None = None, **more
) -> Any:
    """Return the first dataset of the job that does not count at CAM, with its reason."""
    at, *_ = why(slots(MISSING, told=told or SlotDatasetState(False), **more), known=known, job=job).sites
    return at.reasons[0].missing_datasets[0]


def test_matching_job_names_its_sites_and_needs_no_remedy():
    answer = why(slots(FINE), slots(MISSING, site=RAL))
    assert (answer.matching_sites, answer.could_run, answer.remedy) == ((CAM,), True, None)
    assert "would match at CAM" in answer.verdict


def test_dataset_that_is_never_published_is_explained():
    lack = lacking(replace(JOB, never_published=(L1,)), None, generation=None)
    assert lack.reason is MissingReason.NEVER
    assert "[publish] never" in lack.text


@pytest.mark.parametrize(
    ("idle", "running", "words"),
    [
        (58, 2, "it waits for its turn in the next negotiation cycles"),
        (59, 2, "for 58 jobs only (2 run, MAX_JOBS_RUNNING = 60), and 59 are idle: if 58 of its owner wait"),
        (59, 2, "(HTCONDOR-3855); give the waiting jobs a lower JobPrio, an accounting_group of their own"),
        (1, 60, "its schedd asks for no further slot: 60 run, MAX_JOBS_RUNNING = 60"),
    ],
)
def test_job_that_waiting_jobs_of_its_owner_starve_is_told_so_with_the_cures(idle, running, words):
    """P5: 57 other jobs that wait stop none if the schedd asks for 58 jobs, 58 others stop it."""
    pool = FakePool({"a": IDLE})
    pool.counts = {"TotalIdleJobs": idle, "TotalRunningJobs": running, "MaxJobsRunning": 60}
    (asked_answer,) = ask_job(asked(pool), 7, None, "a").answers
    answer = why(slots(FINE), budget=asked_answer.job.budget)
    assert answer.could_run
    assert words in answer.verdict


NO_PATH = "identicalMember((TARGET.DataLocalitySite), MY.DataLocalityPathSites) =?= true"
UNREPORTED = "MY.ChirpDataLocalityMissed isnt undefined || MY.ExitCode =!= 85 || ! true"


@pytest.mark.parametrize(
    ("clause", "cause", "text", "remedy"),
    [
        (NO_PATH, MismatchCause.PATH, "[[storage]]", "again after adding a [[storage]] table for the site"),
        (UNREPORTED, MismatchCause.UNREADABLE_DATA, "exit status 85", ""),
    ],
    ids=["no path", "unreported miss"],
)
def test_clause_of_ours_has_a_cause_of_its_own_and_is_not_the_owners(clause, cause, text, remedy):
    answer = why(slots(Clause(clause, "false", "false")))
    assert [reason.cause for reason in answer.sites[0].reasons] == [cause]
    assert text in answer.sites[0].reasons[0].text
    assert remedy in (answer.remedy or "")


def test_the_funnel_counts_slots_from_data_to_cores():
    job = replace(JOB, requests={"Cpus": 16})
    groups = [slots(CORES, number=8), slots(MISSING, CORES, site=RAL, number=4)]
    assert explain(job, groups, None, now=NOON).funnel == "12 slots → 8 with the data → 0 with 16 cores"


@pytest.mark.parametrize(
    ("free", "state", "more"),
    [
        (8, "Unclaimed", ""),
        (2, "Unclaimed", ", and a slot becomes free"),
        (8, "Claimed", ", and a slot becomes free"),
    ],
)
def test_remedy_is_fewer_cores_at_the_site_with_the_data(free, state, more):
    group = slots(CORES, largest_resources={"Cpus": free, "TotalSlotCpus": 8}, state=state)
    job = replace(JOB, requests={"Cpus": 16})
    answer = why(group, slots(MISSING, CORES, site=RAL), job=job)
    assert answer.remedy == f"ask for 8 cores or less{more} (then the job matches at CAM)"
    assert "requests 16 cores; the largest slot there has 8 cores" in answer.sites[0].reasons[0].text


def test_waiting_is_a_cheaper_remedy_than_manual_action():
    waiting = replace(JOB, any_after=to_unix(NOON) + 720)
    staging = SlotDatasetState(False, "STAGING", 0.4, to_unix(NOON))
    answer = why(slots(MISSING, told=staging), slots(CORES, site=RAL), job=waiting)
    ways = f"the job's wait for its data ends in 12 min or {L1} arrives (STAGING 40 %)"
    assert answer.remedy == f"{ways} (then the job matches at CAM)"
    assert "for 12 min" in answer.wait


def test_data_that_arrives_is_a_cheaper_remedy_than_a_wait_of_an_hour():
    """A job of the mode wait has an hour, rounded up: the advice must not depend on the rounding."""
    staging = SlotDatasetState(False, "STAGING", None, to_unix(NOON))
    for left in (3590, 3610):
        answer = why(slots(MISSING, told=staging), any_after=to_unix(NOON) + left)
        assert answer.remedy == f"{L1} arrives (STAGING) (then the job matches at CAM)"


def big_and_small(big: int) -> tuple[list[SlotGroup], DaemonKnowledge]:
    """P4: L1, of *big* bytes, is at RAL, L2 with 10 MB at CAM; also the slots of both sites."""
    there, absent = SlotDatasetState(True, "AVAILABLE"), SlotDatasetState(False)
    here = fact(DatasetState.AVAILABLE)
    known = beliefs(RAL={L1: here}, CAM={L2: here}, sizes={L1: big, L2: 10**7})
    ral = slots(MISSING, site=RAL, dataset_states={L1: there, L2: absent})
    return [ral, slots(MISSING, dataset_states={L1: absent, L2: there})], known


COPY = f"ask the data manager to copy {L2} (10 MB) to RAL"


@pytest.mark.parametrize(
    ("left", "big", "remedy"),
    [
        (None, 500 * 10**9, COPY),
        (None, 10**7 + 1, COPY),
        (3000, 500 * 10**9, f"the job's wait for its data ends in 50 min or {COPY}"),
    ],
)
def test_cheapest_copy_is_that_of_the_fewest_bytes(left, big, remedy):
    groups, known = big_and_small(big)
    job = replace(JOB, datasets=(L1, L2), any_after=None if left is None else to_unix(NOON) + left)
    answer = why(*groups, known=known, job=job)
    assert answer.remedy == f"{remedy} (then the job matches at RAL)"
    before = explain_before_submit(replace(job, name="", status=None), groups, known, now=NOON)
    assert before.remedy == answer.remedy
    unknown = replace(known, snapshot=replace(known.snapshot, bytes_total={}))
    assert "bring the data to one site" in why(*groups, known=unknown, datasets=(L1, L2)).remedy


RUN_ANYWHERE = "a queue super user runs hydrator run-anywhere 7: then its data counts no more"


@pytest.mark.parametrize(
    ("state", "more", "is_offered"),
    [
        ("AVAILABLE", {}, True),
        ("UNKNOWN", {}, True),
        ("PARTIAL", {}, False),
        ("NEARLINE", {}, False),
        ("STUCK", {}, False),
        ("AVAILABLE", {"opens_paths": True}, False),
        ("AVAILABLE", {"is_freed": True}, False),
        ("AVAILABLE", {"is_bound": False}, False),
    ],
)
def test_run_anywhere_is_offered_for_complete_data_that_the_job_need_not_open(state, more, is_offered):
    """A freed job that opens local paths would start, not find its data and be held."""
    known = replace(beliefs(CAM={L1: fact(DatasetState(state))}), dids_without_room={CAM: {L1}})
    answer = why(slots(MISSING), known=known, **more)
    assert (RUN_ANYWHERE in answer.remedy) is is_offered


def test_run_anywhere_is_offered_neither_for_a_typo_nor_for_a_site_without_slots():
    typo = why(slots(MISSING), known=beliefs())
    assert typo.remedy == "submit the job again with a dataset name that exists"
    down = why(slots(MISSING), known=beliefs(RAL={L1: fact(DatasetState.AVAILABLE)}))
    assert RUN_ANYWHERE not in down.remedy


OLD = SlotDatasetState(False, "AVAILABLE", None, to_unix(NOON - 6 * HOUR))
FAILS = "CAM denies access (401)"


@pytest.mark.parametrize(
    ("group", "remedy"),
    [
        ({"hook_error": FAILS}, f"the site's operator repairs the hook: {FAILS}"),
        (
            {"hook_error": FAILS, "told": OLD, "generation": 7},
            f"the site's operator repairs the hook: {FAILS}",
        ),
        ({}, "install the hook at the site, or repair it (then the job matches at CAM)"),
    ],
    ids=["no ad in the slot", "an old ad in the slot", "no hook"],
)
def test_hook_is_repaired_or_installed_before_a_job_runs_without_its_data(group, remedy):
    known = beliefs(CAM={L1: fact(DatasetState.AVAILABLE)})
    answer = why(slots(MISSING, **{"generation": None, **group}), known=known)
    assert answer.remedy.startswith(remedy)
    assert "run-anywhere" not in answer.remedy
    assert (f"the hook there fails: {FAILS}" in answer.sites[0].reasons[0].text) == ("hook_error" in group)


@pytest.mark.parametrize(("key", "words"), [(None, "transform was not installed"), (L1, "only ranks slots")])
def test_job_that_its_data_does_not_bind_has_no_slots_with_the_data(key, words):
    answer = why(slots(FINE, number=2), is_bound=False, key=key)
    assert answer.funnel == "2 slots"
    assert words in answer.notes[0]


MISSED_HERE = Clause(
    "member((TARGET.DataLocalitySite ?: TARGET.GLIDEIN_Site), MY.ChirpDataLocalityMissed) =!= true"
    " || time() > MY.ChirpDataLocalityMissedUntil", "false", "false",
)  # fmt: skip


def missed_job(**more: str) -> JobFacts:
    return parse_job(
        {
            "ClusterId": "7", "JobStatus": "1", "RequiredDatasets": f'{{"{L1}","{L2}"}}', **BOUND,
            "ChirpDataLocalityMisses": f'{{ "{to_unix(NOON - 12 * MINUTE)} {L1},+2 CAM","junk" }}',
            "ChirpDataLocalityMissed": '{ "CAM" }',
            "ChirpDataLocalityMissedUntil": str(to_unix(NOON + 48 * MINUTE)),
            **more,
        },
        [0],
        "schedd",
    )  # fmt: skip


def test_missed_site_names_the_dataset_the_time_and_the_end_of_avoidance():
    answer = why(slots(MISSED_HERE), job=missed_job())
    (reason,) = answer.sites[0].reasons
    assert reason.cause is MismatchCause.UNREADABLE_DATA
    assert reason.text == (
        f"the job could not read {L1} at this site 12 min ago, although the slot ad listed it;"
        " the job avoids the site until 12:48 UTC; see the job's stderr"
    )
    assert f"the job ran and could not read {L1} at CAM 12 min ago" in answer.notes
    assert answer.remedy == "the job tries the site again, in 48 min (then the job matches at CAM)"
    assert answer.funnel == "1 slot → 1 with the data → 0 where the job could read its data"
    assert why(job=missed_job(JobStatus="5")).notes[-1:] == answer.notes[-1:]


def refused(reason: str, ago: timedelta = MINUTE, **more) -> JobFacts:
    return replace(
        JOB, status_attributes={"LastRejMatchReason": reason, "LastRejMatchTime": to_unix(NOON - ago)}, **more
    )


def test_verdict_names_the_concurrency_limit_of_a_waiting_job():
    answer = why(slots(FINE), job=refused("concurrency limit license, tape reached |5|7.0|"))
    assert answer.verdict == (
        "it waits for a concurrency limit (license, tape), the negotiator reports;"
        " otherwise it would match at CAM"
    )
    assert (answer.could_run, answer.remedy, answer.matching_sites) == (False, None, (CAM,))
    nowhere = why(slots(BUSY), job=refused("concurrency limit license reached"))
    assert nowhere.verdict.startswith("it waits for a concurrency limit (license)")


@pytest.mark.parametrize(
    ("job", "verdict"),
    [
        (
            refused("concurrency limit license reached", ago=timedelta(seconds=-1)),
            "it waits for a concurrency limit (license), the negotiator reports",
        ),
        (
            refused("concurrency limit reached", concurrency_limits="license:2"),
            "it waits for a concurrency limit (license:2)",
        ),
        (refused("insufficient priority"), "it waits for its turn (insufficient priority)"),
    ],
    ids=["later than the answer", "name from the job", "other rejection"],
)
def test_verdict_names_the_rejection_of_a_matching_job(job, verdict):
    assert why(slots(FINE), job=job).verdict.startswith(verdict)


@pytest.mark.parametrize(
    "job", [refused("no match found"), refused("concurrency limit x reached", 20 * MINUTE)]
)
def test_verdict_ignores_old_rejections_and_no_match_found(job):
    answer = why(slots(FINE), job=job)
    assert (answer.verdict.startswith("it would match at CAM"), answer.could_run) == (True, True)


def test_datasets_of_a_site_are_counted_by_state_with_bytes_and_arrival():
    dids = [Did(f"lofar:D{number:03}") for number in range(245)]
    ready = NOON + 190 * MINUTE
    facts = {dids[0]: fact(DatasetState.PARTIAL, 0.5), dids[1]: fact(DatasetState.NEARLINE)}
    facts |= {did: Fact(DatasetState.STAGING, NOON, 0.25, Catalogued(ready_at=ready)) for did in dids[2:6]}
    sized = beliefs(demanded=dids, CAM=facts, sizes=dict.fromkeys(dids, 80 * 10**9))
    at = to_unix(NOON)
    told = dict.fromkeys(dids, SlotDatasetState(True, "AVAILABLE", None, at))
    told |= {did: SlotDatasetState(False, str(one.state), one.fraction, at) for did, one in facts.items()}
    answer = why(slots(MISSING, dataset_states=told), known=sized, datasets=tuple(dids))
    (at,) = answer.sites
    begin = "239 here, 4 staging until 15:10 UTC, 1 partial, 1 on tape, 360 GB missing: "
    assert at.reasons[0].text.startswith(begin)


def test_unknown_size_makes_the_missing_bytes_a_lower_bound():
    known = beliefs(CAM=dict.fromkeys((L1, L2), fact(DatasetState.PARTIAL)), sizes={L1: 5 * 10**9})
    text = why(slots(MISSING), known=known, datasets=(L1, L2)).sites[0].reasons[0].text
    assert text.startswith("0 here, 2 partial, at least 5 GB missing: ")


def test_unknown_name_is_followed_by_similar_names():
    right = Did("lofar:L1234_SB001.ms")
    wrong = Did("lofar:L1243_SB001.ms")
    known = beliefs(demanded=(wrong, right), RAL={right: fact(DatasetState.AVAILABLE)})
    group = slots(MISSING, dataset_states={wrong: SlotDatasetState(False)})
    answer = why(group, known=add_similar_names(known, [wrong]), datasets=(wrong,))
    (missing,) = answer.sites[0].reasons[0].missing_datasets
    assert missing.text == f"{wrong} is not in any catalogue; did you mean {right}?"


@pytest.mark.parametrize(
    ("facts", "ending"),
    [
        ({"CAM": DatasetState.AVAILABLE, "RAL": DatasetState.NEARLINE}, " (then the job matches at CAM)"),
        (
            {"RAL": DatasetState.AVAILABLE, "CAM": DatasetState.AVAILABLE},
            " (then the job matches at CAM, RAL)",
        ),
        ({"RAL": DatasetState.PARTIAL}, ""),
        ({"NL": DatasetState.AVAILABLE}, ""),
        ({}, ""),
    ],
)
@pytest.mark.parametrize("is_case", [False, True])
def test_site_is_promised_for_another_name_only_if_that_name_is_there(facts, ending, is_case):
    """Case S26 of cases/submit.md."""
    right = Did("lofar:l1") if is_case else Did("lofar:L11")
    names = {"misspelt": {L1: (right,)}} if is_case else {"more": {"similar_names": {L1: (right,)}}}
    known = beliefs(demanded=(L1,), **names, **{site: {right: fact(state)} for site, state in facts.items()})
    answer = why(slots(MISSING), slots(MISSING, site=RAL), known=known)
    assert answer.remedy == f"submit the job again with {right} instead of {L1}{ending}"


@pytest.mark.parametrize("state", [DatasetState.UNKNOWN, None])
def test_no_site_is_promised_where_nobody_knows_the_data(state):
    known = beliefs(CAM={L1: fact(state)}) if state else beliefs(unseen={L1: "timeout"})
    answer = why(slots(MISSING), known=known)
    assert answer.remedy == f"the daemon gets fresh facts about {L1}"


RENAME = "submit the job again with a dataset name that exists"


@pytest.mark.parametrize(
    ("job", "group", "known", "remedy"),
    [
        pytest.param(
            {"mode": "wait", "any_after": to_unix(NOON + MINUTE)},
            {},
            {"CAM": {}},
            RENAME,
            id="wait, no such name",
        ),
        pytest.param({}, {"generation": None}, {"CAM": {}}, RENAME, id="no hook, no such name"),
        pytest.param(
            {},
            {"generation": None},
            {"CAM": {L2: fact(DatasetState.AVAILABLE)}, "more": {"similar_names": {L1: (L2,)}}},
            f"submit the job again with {L2} instead of {L1}",
            id="no hook, another name",
        ),
        pytest.param(
            {},
            {},
            {"CAM": {}, "sizes": {L1: 1}},
            f"ask the data manager why no site has {L1}",
            id="name only",
        ),
        pytest.param(
            {"key": "lofar:@l2@"},
            {},
            {"CAM": {L1: fact(DatasetState.STAGING)}},
            f"submit the job again: {WRONG_KEY_TODO} (then the job matches at CAM)",
            id="wrong key",
        ),
        pytest.param(
            {},
            {"hook_error": "401"},
            {"CAM": {L1: fact(DatasetState.AVAILABLE)}},
            "the site's operator repairs the hook: 401 (then the job matches at CAM)",
            id="hook fails",
        ),
        pytest.param({"datasets": (), "invalid_names": {"L1": "no scope"}}, {}, {}, RENAME, id="no DID"),
        pytest.param(
            {"never_published": (L1,)},
            {},
            {"CAM": {}},
            "submit the job again: a dataset that is never published keeps no job from a slot",
            id="private",
        ),
    ],
)
def test_remedy_is_one_that_can_work(job, group, known, remedy):
    group = slots(MISSING, told=SlotDatasetState(False), **group)
    assert why(group, known=beliefs(**known), **job).remedy == remedy


def test_remedy_is_for_all_datasets_that_a_site_lacks():
    right = Did("lofar:L11")
    here, similar = fact(DatasetState.AVAILABLE), {"similar_names": {L1: (right,)}}
    known = beliefs(CAM={right: here}, RAL={L2: here}, more=similar)
    assert why(slots(MISSING), known=known, datasets=(L1, L2)).remedy == (
        f"submit the job again with {right} instead of {L1} and ask the data manager to bring the data to one"
        " site (then the job matches at CAM)"
    )


@pytest.mark.outside
def test_similar_name_is_looked_up_in_the_catalogue_before_it_is_advised(tmp_path):
    """Case S26 of cases/submit.md."""
    (tmp_path / "catalogue.toml").write_text(
        'sites = ["DE", "UK"]\n[datasets."x:Case"]\nsites.UK = "available"\n'
    )
    table = {"catalogue": [{"type": "file", "path": "catalogue.toml"}]}
    settings = parse(table, folder=tmp_path, origin="test")
    typed, now = Did("x:Casse"), system_clock()
    known = gather_knowledge(settings, frozenset({typed}), now)
    groups = [
        replace(slots(MISSING, site=Site(site)), dataset_states={typed: SlotDatasetState(False)})
        for site in ("DE", "UK")
    ]
    answer = explain(replace(JOB, datasets=(typed,)), groups, known, now=now)
    assert answer.remedy == "submit the job again with x:Case instead of x:Casse (then the job matches at UK)"


def test_held_change_is_shown_at_its_site():
    held = {"held_reasons": {CAM: "5 of 6 datasets would leave"}}
    known = beliefs(CAM={L1: fact(DatasetState.PARTIAL)}, more=held)
    answer = why(slots(MISSING, told=SlotDatasetState(False, "PARTIAL")), known=known)
    rows = render_answer(answer).rows
    assert rows[-1][3].startswith(
        "data: the daemon holds back a change of this site: 5 of 6 datasets would leave"
    )
    assert answer.sites[0].held_change == "5 of 6 datasets would leave"
    free = why(slots(FINE), known=known)
    assert "the daemon holds back a change of this site" in render_answer(free).rows[0][3]


def test_slots_of_a_flocked_pool_are_listed_separately():
    away = slots(FINE, pool="cm2:9618")
    answer = why(slots(MISSING, told=SlotDatasetState(False, "PARTIAL")), away)
    assert answer.matching_sites == ("CAM (pool cm2:9618, by flocking)",)
    assert [(at.pool, at.slots) for at in answer.sites] == [("", 1), ("cm2:9618", 1)]


def test_busy_slot_without_the_data_needs_both_remedies():
    answer = why(slots(MISSING, BUSY, told=SlotDatasetState(False, "STAGING")))
    assert answer.remedy == f"{L1} arrives (STAGING) and a slot becomes free (then the job matches at CAM)"


AT_5, TOO_OLD = to_unix(NOON - 7 * HOUR), "the job accepts no fact older than 5 h 45 min: find"


@pytest.mark.parametrize(
    ("state", "reason", "text"),
    [
        (("STAGING", 0.409), MissingReason.STATE, f"{L1} is STAGING 40 % (on its way)"),
        (("STUCK",), MissingReason.STATE, f"{L1} is STUCK (its rule is stuck: ask the rule's owner)"),
        (("AVAILABLE", None, AT_5), MissingReason.STALE, f"{L1} was AVAILABLE 7 h ago; {TOO_OLD}"),
        (("AVAILABLE",), MissingReason.STALE, f"{L1} was AVAILABLE at no known time; {TOO_OLD}"),
    ],
)
def test_state_in_the_slot_ad_has_its_reason_and_meaning(state, reason, text):
    one = lacking(told=SlotDatasetState(False, *state))
    assert (one.reason, one.text[: len(text)]) == (reason, text)


AVAILABLE_AT_CAM = beliefs(CAM={L1: fact(DatasetState.AVAILABLE)})
CLASHING = replace(beliefs(), snapshot=Snapshot({}, case_collisions=((L1, Did("lofar:l1")),)))


@pytest.mark.parametrize(
    ("known", "reason", "words"),
    [
        (AVAILABLE_AT_CAM, MissingReason.NOT_YET_IN_SLOTS, "the slot ads do not list it yet"),
        (replace(AVAILABLE_AT_CAM, demanded_dids=frozenset()), MissingReason.NOT_IN_DEMAND, "once a job"),
        (replace(AVAILABLE_AT_CAM, dids_without_room={CAM: {L1}}), MissingReason.OVER_BUDGET, "no room"),
        (beliefs(RAL={L1: fact(DatasetState.STAGING, 0.5)}), MissingReason.ELSEWHERE, "RAL (STAGING 50 %)"),
        (beliefs(), MissingReason.NOWHERE, "not in any catalogue; check the spelling"),
        (beliefs(demanded=()), MissingReason.NOT_IN_DEMAND, "does not poll this dataset yet"),
        (CLASHING, MissingReason.CASE_COLLISION, "lofar:l1"),
        (beliefs(unseen={L1: "timed out"}), MissingReason.UNSEEN, "timed out"),
        (None, MissingReason.UNSEEN, "no daemon was asked"),
    ],
)
def test_dataset_absent_from_slots_is_explained_by_the_daemons_knowledge(known, reason, words):
    one = lacking(known=known)
    assert one.reason is reason
    assert words in one.text


@pytest.mark.parametrize("told", [SlotDatasetState(True, "AVAILABLE"), SlotDatasetState(False)])
def test_misspelt_name_has_the_catalogues_spelling(told):
    right = Did("LOFAR:l1")
    known = beliefs(RAL={right: fact(DatasetState.AVAILABLE)}, misspelt={L1: (right,)})
    one = lacking(told=told, known=known)
    assert one.reason is MissingReason.MISSPELT
    told_case = "is written with another letter case: the catalogue has LOFAR:l1; names are case-sensitive"
    assert one.text == f"{L1} {told_case}"
    assert why(slots(MISSING, told=told), known=known).matching_sites == ()


def test_site_with_all_data_and_no_slot_is_listed():
    answer = why(known=beliefs(RAL={L1: fact(DatasetState.AVAILABLE)}))
    assert (answer.sites[0].site, answer.sites[0].slots) == (RAL, 0)
    assert "the job could run on a glidein there" in answer.sites[0].reasons[0].text
    assert "the pool has no slots" in answer.verdict


def test_undefined_requirement_differs_from_a_false_one():
    undefined = Clause("TARGET.HasSpade > 1", "undefined", "undefined")
    answer = why(slots(undefined))
    assert (
        answer.sites[0]
        .reasons[0]
        .text.endswith("is not true: the slots do not define the attributes of this clause")
    )
    assert answer.sites[0].reasons[0].clauses == ("TARGET.HasSpade > 1",)


def test_start_that_refuses_the_job_is_for_the_sites_operator():
    refused = Clause('TARGET.Owner == "root"', "false", "false")
    answer = why(slots(FINE, start=[refused]))
    assert [reason.cause for reason in answer.sites[0].reasons] == [MismatchCause.START]
    assert answer.remedy.startswith("the site's operator changes START")


def test_true_clauses_with_a_false_whole_are_called_too_deep():
    answer = why(slots(FINE, is_match=False))
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
def test_every_job_status_has_its_verdict(status, words, sentence, could_run):
    answer = why(slots(FINE), status=status, status_attributes=words)
    assert answer.verdict.startswith(sentence)
    assert answer.could_run is could_run
    assert (answer.wait is not None) == (status is JobStatus.HELD), "a job that has started waits for nothing"


def test_job_without_locality_requirement_has_a_note():
    plain = why(slots(CORES), datasets=(), is_bound=False)
    assert "names no datasets" in plain.notes[0]
    never = why(slots(CORES), is_bound=False)
    assert "its Requirements have no DataLocalityHere" in never.notes[0]
    assert never.wait is None
    freed = why(slots(CORES), is_freed=True)
    assert "freed" in freed.notes[0]


@pytest.mark.parametrize("mode", ["wait", "auto"])
@pytest.mark.parametrize("status", ["1", "5"])
def test_wait_that_has_ended_says_from_when_it_counts(status, mode):
    """P6. A job in mode auto waits so long if no daemon paces its reads."""
    texts = {"JobStatus": status, "RequiredDatasets": f'{{"{L1}"}}', **BOUND}
    waited = {"DataLocality": f'"{mode}"', "DataLocalityAnyAfter": str(to_unix(NOON) - 600)}
    job = parse_job({**texts, **waited, "DataLocalityKey": f'"{set_key([L1])}"'}, [0], "s")
    answer = why(slots(FINE), job=job)
    head = "the job" if mode == "wait" else "no daemon paces the reads of the job (see hydrator status): it"
    ended = f"{head} may run anywhere since 2026-11-21 11:50 UTC (10 min ago)"
    counts = "its wait counts from its submission, also while it is held, and for each later run"
    assert answer.wait == f"{ended}: {counts}"


def test_job_is_parsed_from_the_text_of_its_ad():
    texts = {
        "ClusterId": "12",
        "JobStatus": "5",
        "RequiredDatasets": '{ "lofar:L1","L2", "bad name" }',
        "DataLocalityAnyAfter": "1763700000",
        "HoldReason": '"said \\"no\\""',
    }
    job = parse_job(texts, [3, 4], "schedd", "lofar")
    assert (job.name, job.job_count, job.status, job.datasets) == ("12.3", 2, JobStatus.HELD, (L1, L2))
    assert list(job.invalid_names) == ["bad name"]
    assert job.status_attributes == {"HoldReason": 'said "no"'}
    assert list(parse_job({"RequiredDatasets": "lofar:L1"}, [0], "s").invalid_names) == ["lofar:L1"]
    assert not parse_job({"RequiredDatasets": "UNDEFINED"}, [0], "s").has_required_datasets


def test_dataset_outside_demand_counts_before_submission_if_a_catalogue_has_it():
    job = JobFacts("", "", 1, None, (L1,), max_age_seconds=20700)
    known = beliefs(CAM={L1: fact(DatasetState.AVAILABLE)}, demanded=())
    groups = [
        slots(MISSING, told=SlotDatasetState(False)),
        slots(MISSING, site=RAL, told=SlotDatasetState(False)),
    ]
    assert explain_before_submit(job, groups, known, now=NOON).matching_sites == (CAM,)
    unhydrated = replace(groups[0], generation=None, slots=5)
    assert not explain_before_submit(job, [unhydrated], known, now=NOON).could_run
    (at,) = explain_before_submit(job, [groups[0], unhydrated], known, now=NOON).sites
    assert (at.slots, at.matching_slots) == (6, 1)
    lacking = explain_before_submit(job, groups, beliefs(demanded=()), now=NOON)
    assert lacking.remedy == f"the daemon asks the catalogues about {L1} once a job names it"


# --- asking -------------------------------------------------------------------------------------------


class FakePool:
    """Schedds with jobs, histories, or a failure; and one slot without any data, which may match."""

    matches = False

    def __init__(self, queues=None, histories=None) -> None:
        self.queues = queues or {}
        self.histories = histories or {}
        self.judged: list[dict[str, str]] = []
        self.config: dict[str, str] = {}
        self.flocked: tuple[str, ...] = ()
        self.counts: dict[str, int] = {}
        self.asked: list[str] = []

    def schedds(self):
        self.asked.append("schedds")
        return [{"Name": name, **self.counts} for name in self.queues]

    def jobs(self, schedd, cluster, proc=None):
        if isinstance(self.queues[schedd], Exception):
            raise self.queues[schedd]
        return self.queues[schedd]

    def find_ended_job(self, schedd, cluster, proc=None):
        return self.histories.get(schedd)

    def config_of(self, daemon, names, name=None):
        self.asked.append(f"configuration of {name}")
        return dict.fromkeys(names) | self.config

    def evaluate_match(self, job, facts, site_attributes, *, atomic_attributes=(), flock=()):
        self.judged.append(dict(job))
        self.flocked = tuple(flock)
        group = {
            "site": "CAM", "advertised_site": None, "generation": 1,
            "state": "Unclaimed", "partitionable": False, "theirs": [],
            "job_values": [f"{self.matches}".lower()], "slot_values": [], "matches": self.matches,
            "largest_resources": {},
            "facts": [None] * len(facts), "slots": 1,
        }  # fmt: skip
        return {
            "clauses": [f"MY.{HERE_ATTRIBUTE}"],
            "requests": {},
            "groups": [group],
        }


IDLE = [{"procs": [0, 1], "ad": {"ClusterId": "7", "JobStatus": "1", "RequiredDatasets": '{ "lofar:L1" }'}}]
DENIED = PoolDenied("schedd b", "it authenticated the client as eve")


def asked(pool: FakePool, known: DaemonKnowledge | None = None) -> WhyQuery:
    return WhyQuery(pool, ["GLIDEIN_Site"], lambda *_: known, None, NOON)


def test_denying_schedd_does_not_hide_a_job_of_another_schedd():
    found = ask_job(asked(FakePool({"a": IDLE, "b": DENIED})), 7, None, None)
    assert found.unreachable_schedds == {"b": "it authenticated the client as eve"}
    (answer,) = found.answers
    assert (answer.job.job_count, [at.slots for at in answer.sites]) == (2, [1])
    to_json(answer)


def test_unknown_job_names_the_unreachable_schedds():
    with pytest.raises(
        PoolError, match=r"job 7\.1: no schedd that answered has the job.*b did not answer.*eve"
    ):
        ask_job(asked(FakePool({"a": [], "b": DENIED})), 7, 1, None)
    with pytest.raises(PoolError, match="job 7: no schedd has the job"):
        ask_job(asked(FakePool({"a": []})), 7, None, None)


def test_collector_without_a_schedd_is_not_called_a_missing_job():
    with pytest.raises(PoolError, match="job 7: the collector lists no schedd"):
        ask_job(asked(FakePool()), 7, None, None)


def test_job_number_at_two_schedds_needs_the_option_schedd():
    with pytest.raises(ConfigError, match="job 7 is at a, b: choose one with --schedd"):
        ask_job(asked(FakePool({"a": IDLE, "b": IDLE})), 7, None, None)
    assert ask_job(asked(FakePool({"a": IDLE, "b": IDLE})), 7, None, "b").answers[0].job.schedd == "b"


def test_ended_job_is_explained_from_the_history():
    ended = {
        "ClusterId": 7, "ProcId": 0, "JobStatus": 4, "EnteredCurrentStatus": to_unix(NOON - 5 * MINUTE),
        "RemoveReason": None, "LastRemoteHost": "slot1@x", "start": None, "asked": None,
    }  # fmt: skip
    (answer,) = ask_job(asked(FakePool({"a": []}, {"a": ended})), 7, 0, None).answers
    assert (answer.verdict, answer.could_run) == ("it completed 5 min ago, at slot1@x", True)
    removed = {**ended, "JobStatus": 3, "RemoveReason": "by alice"}
    (answer,) = ask_job(asked(FakePool({"a": []}, {"a": removed})), 7, 0, None).answers
    assert (answer.verdict, answer.could_run) == ("it was removed 5 min ago: by alice", False)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ("local", "all its data was there when it started"),
        ("read 240 s from UK", "it started away from its data, to read it from UK in about 4 min"),
        ("read 240 s", "it started away from its data, to read it in about 4 min"),
        ("", ""),
        ("read 99999999999999999999 s from UK", ""),
        ("read 1 s from UK, and more", "from UK, and more in about 1 s"),
        (7, ""),
    ],
)
def test_running_and_ended_jobs_say_why_they_started_where_they_did(record, sentence):
    ended = {
        "ClusterId": 7, "ProcId": 0, "JobStatus": 4, "EnteredCurrentStatus": to_unix(NOON),
        "RemoveReason": None, "LastRemoteHost": "slot1@x", "start": record, "asked": ASKED,
        "key": set_key([L1]), "datasets": [L1],
    }  # fmt: skip
    text = f'"{record}"' if isinstance(record, str) else str(record)
    ad = {**IDLE[0]["ad"], "JobStatus": "2", **BOUND, START_ATTRIBUTE: text}
    ad[contract.START] = START_TEXT
    pools = FakePool({"a": []}, {"a": ended}), FakePool({"a": [{"procs": [0], "ad": ad}]})
    for pool in pools:
        (answer,) = ask_job(asked(pool), 7, 0, None).answers
        assert [note for note in answer.notes if note.endswith(sentence)] == list(answer.notes)
        assert len(answer.notes) == (sentence != "")
        to_json(answer)


def test_idle_job_that_ran_before_has_no_sentence_about_its_start():
    ad = {**IDLE[0]["ad"], **BOUND, START_ATTRIBUTE: '"local"'}
    ad[contract.START] = START_TEXT
    (answer,) = ask_job(asked(FakePool({"a": [{"procs": [0], "ad": ad}]})), 7, 0, None).answers
    assert answer.notes == ()


def test_daemon_is_asked_by_the_job_s_own_key():
    """A list in another order, or a long one, has another key than a set of ``hydrator submit``."""
    ad = {**IDLE[0]["ad"], "DataLocalityKey": '"c7.8@a"'}
    keys: list[str | None] = []
    query = replace(
        asked(FakePool({"a": [{**IDLE[0], "ad": ad}]})),
        get_knowledge=lambda _, of_jobs: keys.extend(of_jobs),
        explain_staging=lambda _, key: (f"staged for {key}",),
    )
    (answer,) = ask_job(query, 7, None, None).answers
    assert (keys, answer.staging) == (["c7.8@a"], ("staged for c7.8@a",))


def test_figures_and_settings_of_a_schedd_are_read_once_for_all_kinds_of_jobs():
    pool = FakePool({"a": [*IDLE, {**IDLE[0], "procs": [2]}, {**IDLE[0], "procs": [3]}]})
    assert len(ask_job(asked(pool), 7, None, None).answers) == 3
    assert pool.asked == ["schedds", "configuration of a"]


@pytest.mark.parametrize("status", ["1", "2"])
@pytest.mark.parametrize(
    ("key", "list_of_key", "is_wrong"),
    [
        ("c9.8@other", hash_key([L2]), True),
        ("c9.8@other", None, True),
        ("c9.8@other", hash_key([L1]), False),
        (set_key([L1]), hash_key([L1]), False),
    ],
    ids=["of another cluster's list", "of two lists", "of this list", "names"],
)
def test_key_that_stands_for_another_list_is_named_with_the_cure(status, key, list_of_key, is_wrong):
    """S3: the daemon answers for the list of the cluster whose key it is; the job may start beside that."""
    ad = {
        **IDLE[0]["ad"], "JobStatus": status, "DataLocalityKey": f'"{key}"', "DataLocality": '"auto"',
        **BOUND, START_ATTRIBUTE: '"local"', contract.START: START_TEXT,
    }  # fmt: skip
    known = replace(beliefs(), lists_of_wrong_keys={key: list_of_key})
    (answer,) = ask_job(asked(FakePool({"a": [{**IDLE[0], "ad": ad}]}), known), 7, None, None).answers
    text = "\n".join(render_answer(answer).lines)
    assert ("its DataLocalityKey does not stand for this list alone" in text) == is_wrong
    assert ("submit it again, without DataLocalityKey and DataLocalityTransformed" in text) == is_wrong
    if status == "2":
        assert ("all its data was there when it started" in text) != is_wrong


def test_schedd_is_queried_for_flocking():
    pool = FakePool({"a": IDLE})
    pool.config = {"FLOCK_COLLECTOR_HOSTS": "cm2:9618, cm3"}
    ask_job(asked(pool), 7, None, None)
    assert pool.flocked == ("cm2:9618", "cm3")


@pytest.mark.parametrize(
    ("value", "is_named"), [("true", True), (" Yes", True), ("False", False), (None, False)]
)
def test_limits_of_a_users_matches_are_named_for_a_job_that_matches(value, is_named):
    """Issue 32, 7: other jobs of its user may keep the job waiting, and check says what to do."""
    pool = FakePool({"a": IDLE})
    pool.config = {"SCHEDD_ENABLE_PER_USER_MATCH_LIMITS": value}
    (without_slot,) = ask_job(asked(pool), 7, None, None).answers
    pool.matches = True
    (answer,) = ask_job(asked(pool), 7, None, None).answers
    assert "MATCH_LIMITS" not in " ".join(without_slot.notes)
    assert ("SCHEDD_ENABLE_PER_USER_MATCH_LIMITS is on" in " ".join(answer.notes)) is is_named


def test_flocking_uses_only_pools_of_the_schedds_own_list():
    pool = FakePool()
    pool.config = {"FLOCK_COLLECTOR_HOSTS": "cm2, cm3", "FLOCK_BY_DEFAULT": "False"}
    facts = fetch_schedd_facts(pool, "a", {})
    assert facts.pools_of("CM3, evil.example") == ("cm3",)
    assert facts.pools_of(None) == ()


class Answering:
    """A catalogue that has L1 at CAM, or is unreachable."""

    name = "list"

    def __init__(self, *, reachable: bool = True) -> None:
        self._reachable = reachable

    def read(self, dids):
        from hydrator.domain.model import Survey

        if not self._reachable:
            raise CatalogueUnreachable("list", "timed out")
        here = {L1: (Replica(L1, CAM, DatasetState.AVAILABLE),)}
        return Survey("list", NOON, frozenset({CAM}), {did: Seen(NOON, here.get(did, ())) for did in dids})


def test_catalogues_are_queried_about_datasets_outside_demand():
    bound = timedelta(hours=6)
    known = with_catalogue_answers(
        DaemonKnowledge(NOON, Snapshot({})), [Answering()], frozenset({L1, L2}), max_age=bound
    )
    pool = FakePool()
    assert explain_dids(asked(pool, known), [L1], max_age=20700).matching_sites == (CAM,)
    (at,) = explain_dids(asked(pool, known), [L1, L2], max_age=20700).sites
    assert [one.reason for one in at.reasons[0].missing_datasets] == [
        MissingReason.NOT_IN_DEMAND,
        MissingReason.NOWHERE,
    ]
    assert pool.judged[0]["DataLocalityMaxAge"] == "20700"
    away = with_catalogue_answers(known, [Answering(reachable=False)], frozenset({L2}), max_age=bound)
    (at,) = explain_dids(asked(pool, away), [L2], max_age=20700).sites
    assert [one.reason for one in at.reasons[0].missing_datasets] == [MissingReason.UNSEEN]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (719, "11 min 59 s"), (90_000, "1 d 1 h"), (-5, "0 s")]
)
def test_durations_have_two_units_at_most(seconds, words):
    assert format_duration(seconds) == words


# --- how the catalogue came to a state

TOLD = Catalogued(rule="5f3a", account="ops", reason="its rule is stuck: no quota", ready_at=NOON + HOUR)


def test_state_names_the_rule_with_account_reason_and_completion_time():
    read_at = NOON - 20 * MINUTE
    known = beliefs(CAM={L1: Fact(DatasetState.STAGING, read_at, 0.4, TOLD)})
    told = SlotDatasetState(False, "STAGING", 0.4, to_unix(read_at))
    answer = why(slots(MISSING, told=told), known=known)
    (missing,) = answer.sites[0].reasons[0].missing_datasets
    assert missing.text == (
        "lofar:L1 is STAGING 40 % (on its way), read 20 min ago; its rule is stuck: no quota;"
        " rule 5f3a of ops; expected to be complete in 1 h"
    )
    assert (missing.rule, missing.as_of, missing.fraction) == ("5f3a", to_unix(read_at), 0.4)
    assert "expected to be complete in 1 h" in (answer.remedy or "")
    assert to_jsonable_python(answer)["sites"][0]["reasons"][0]["missing_datasets"][0]["rule"] == "5f3a"


@pytest.mark.parametrize(
    ("state", "told", "is_named"), [("AVAILABLE", "STUCK", False), ("STUCK", None, True)]
)
def test_rule_is_named_unless_it_explains_another_state_than_the_slots(state, told, is_named):
    known = beliefs(CAM={L1: Fact(DatasetState(state), NOON, provenance=TOLD)})
    missing = lacking(known=known, told=SlotDatasetState(False, told))
    assert (missing.rule, "rule 5f3a of ops" in missing.text) == ("5f3a" if is_named else None, is_named)


# --- more kinds of jobs than are explained one by one


def test_kinds_of_jobs_without_an_ad_are_counted_in_one_line():
    found = ask_job(asked(FakePool({"a": [*IDLE, {"procs": [40, 41]}, {"procs": [42]}]})), 7, None, None)
    assert len(found.answers) == 1
    assert render_result(found)[-1].lines == (
        "and 2 more kinds of the cluster's jobs, 3 jobs; for one of them: hydrator why 7.40",
    )
    assert ask_job(asked(FakePool({"a": IDLE})), 7, None, None).others == ""


def test_unsubmitted_job_is_not_submitted_again():
    """Case S28 of cases/submit.md."""
    nowhere = beliefs(demanded=(L1,))
    answer = explain_dids(asked(FakePool(), nowhere), [L1], max_age=20700)
    assert answer.remedy == "submit the job with a dataset name that exists"


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        (["178"], ((178, None), [])),
        (["178.3"], ((178, 3), [])),
        (["L2", "lofar:L1", "lofar:178"], (None, ["lofar:178", L1, L2])),
        (["178", "179"], None),
        (["L1", "178.0"], None),
    ],
)
def test_words_are_one_job_or_datasets_and_a_number_is_a_job(words, parsed):
    """Case S28 of cases/submit.md."""
    if parsed:
        assert parse_words(words, "lofar") == parsed
        return
    with pytest.raises(ConfigError, match="is a job"):
        parse_words(words, "lofar")


# what the daemon requested for a job's data


def staging_of(world: StagingWorld) -> list[str]:
    """Return what `hydrator why` prints for the idle jobs 7 that need L1."""

    def staging(dids, _):
        return explain_for_job(world.overview, dids, world.clock.now)

    query = replace(asked(FakePool({"a": IDLE})), explain_staging=staging)
    (answer,) = ask_job(query, 7, None, None).answers
    lines = render_answer(answer).lines
    assert set(answer.staging) <= set(lines)
    return list(answer.staging)


def world_with(terabytes: float, *, rules=None, jobs=3) -> StagingWorld:
    world = StagingWorld(rules, L1=terabytes, L2=1)
    world.queue(need(L1, jobs=jobs))
    world.step()
    return world


def test_why_shows_the_request_its_progress_and_its_jobs():
    world = world_with(1)
    (handle,) = world.stager.rules
    world.stager.set(handle, files_done=81)
    world.ready_at = NOON + timedelta(hours=3)
    world.step(timedelta(minutes=5))
    (line,) = staging_of(world)
    assert line.startswith(f"{L1}: asked ")
    for part in (f"request {handle}", "81 of 100 files", "ready about 15:00 UTC", "3 jobs need it"):
        assert part in line


def test_why_shows_the_limit_that_prevents_a_request():
    (line,) = staging_of(world_with(6.1))
    assert line.startswith("not asked: 6.1 TB")
    assert "5 TB" in line


def test_why_shows_what_the_mode_propose_would_request():
    (line,) = staging_of(world_with(1, rules=policy("propose")))
    assert "would ask for 1 TB" in line


def test_why_of_a_stopped_daemon_says_that_it_is_stopped():
    world = world_with(1)
    world.control.stop_reason = "stopped by the operator"
    world.step()
    assert any(line.startswith("stopped by the operator") for line in staging_of(world))
