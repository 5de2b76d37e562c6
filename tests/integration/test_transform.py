"""The pool configuration on a real pool: transformed jobs, rejected jobs, and the sites where jobs run."""

import itertools
import random
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ExprTree

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.expressions import MODES
from hydrator.submit.pool_config import HOLD_SUBCODE, PoolPolicy, negotiator_config, schedd_config
from hydrator.submit.rapthor.job import RapthorRun, RunOptions, as_ad
from hydrator.submit.submit_files.keys import CLAUSE_LINES
from testbed.glideinwms_standin import groups_of
from testbed.pool import Pool
from tests.located import HELD, POLICY, Located, configured, description, record
from tests.transform_oracle import (
    compute_any_after,
    locality_expressions,
)

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

A, B = Did("ska:a"), Did("ska:b")
BOTH = '{"ska:a", "ska:b"}'


def same(found: ExprTree, wanted: str) -> bool:
    """Compare as HTCondor's tools print it: there, a backslash in a text has no meaning."""
    return str(found) == str(classad2.parseOne(f"X = {wanted}\n").lookup("X"))


@pytest.fixture(scope="module")
def shared_located(htcondor_release: str) -> Iterator[Located]:
    with Pool.start(htcondor_release) as pool:
        yield Located(pool)


@pytest.fixture
def located(shared_located: Located) -> Iterator[Located]:
    yield shared_located
    shared_located.clear()


# --- what it makes of a job


# --- jobs that `hydrator submit` has prepared


def prepared(*lines: str) -> tuple[str, ...]:
    return (HELD, f'+DataLocalityKey = "{set_key([A, B])}"', *lines, *CLAUSE_LINES)


def test_prepared_jobs_run_where_their_set_is_and_equal_keys_share_an_autocluster(located):
    """Also with late materialization, with the list in another order, and after a release."""
    whole = f"DataLocalitySets = {record({set_key([A, B]): 1.0})}\n"
    located.advertise({"AU": whole})
    strict = prepared('+DataLocality = "require"')[1:]
    late = located.submit(BOTH, *strict, "max_materialize = 2", queue="queue 3")
    assert located.ran_at(late, 3) == ["AU"] * 3
    located.advertise({})
    clusters = [located.submit(BOTH, *strict), located.submit('{"ska:b", "ska:a"}', *strict)]

    def clustered() -> list[dict]:
        jobs = located.pool.jobs("true", "ClusterId", "AutoClusterId", "LastRejMatchTime")
        is_rejected = any("LastRejMatchTime" in job for job in jobs)  # of an autocluster, the first job alone
        return jobs if is_rejected and len(jobs) == 2 and all("AutoClusterId" in job for job in jobs) else []

    jobs = located.pool.wait(clustered, 60, "the autocluster to be rejected")
    assert len({job["AutoClusterId"] for job in jobs}) == 1
    located.pool.run("condor_qedit", f"{clusters[0]}.0", "DataLocalityHere", "true")
    located.ran_at(clusters[0])
    assert located.pool.job(clusters[1], "JobStatus")["JobStatus"] == 1


def test_prepared_jobs_run_anywhere_without_the_transform_and_with_rank_only(located):
    with configured(located, rank_only=True):
        located.ran_at(located.submit(BOTH, *prepared('+DataLocality = "require"')[1:]))
    with configured(located, more={"schedd": "JOB_TRANSFORM_NAMES = \nSUBMIT_REQUIREMENT_NAMES = \n"}):
        located.ran_at(located.submit(BOTH, *prepared('+DataLocality = "require"')[1:]))


def test_key_of_one_dataset_is_always_its_name(located):
    ad = located.ad(located.submit('{"ska:A"}', HELD, f'+DataLocalityKey = "{set_key([A, B])}"'))
    assert ad["DataLocalityKey"] == set_key([Did("ska:A")]) == "ska:@A"


def test_times_that_the_user_sets_are_kept(located):
    cluster = located.submit('{"ska:a"}', HELD, "+DataLocalityMaxAge = 900", "+DataLocalityMaxWait = 50")
    ad = located.ad(cluster)
    assert (ad["DataLocalityMaxAge"], ad["DataLocalityMaxWait"]) == (900, 50)
    assert ad["QDate"] + 50 <= ad["DataLocalityAnyAfter"] <= time.time() + 50 + 5


def test_ad_of_a_job_with_50_datasets_is_small(located):
    """Keyed: at most 2 kB more than the list of names; bare: at most 7,700 bytes."""
    dids = [Did(f"lofar:L667000_SAP000_SB{number:03}_uv") for number in range(50)]
    listed = "{" + ", ".join(f'"{did}"' for did in dids) + "}"

    def ad_bytes(datasets: str | None, *lines: str) -> int:
        cluster = located.submit(datasets, HELD, *lines)
        return len(located.pool.run("condor_q", f"{cluster}.0", "-long").stdout.strip())

    with_names = ad_bytes(None, f"+ListOfNames = {listed}")
    keyed = ad_bytes(listed, f'+DataLocalityKey = "{set_key(dids)}"', *CLAUSE_LINES)
    assert keyed - with_names <= 2000
    assert ad_bytes(listed) <= 7_700


def test_frontends_of_glideinwms_get_the_datasets_as_one_text(located):
    with configured(located, PoolPolicy(glideinwms=True)):
        assert located.ad(located.submit('{"ska:b", "ska:a"}', HELD))["RequiredDatasetsCSV"] == "ska:a,ska:b"
        assert located.ad(located.submit('{"ska:b"}', HELD))["RequiredDatasetsCSV"] == "ska:b"


def test_duplicate_datasets_are_dropped_and_names_get_the_default_scope(located):
    with configured(located, PoolPolicy(default_scope="2lofar")):
        ad = located.ad(located.submit('{"L1", "ska:a", "2lofar:L1", "ska:a"}', HELD))
        assert ad["RequiredDatasets"] == ["2lofar:L1", "ska:a"]
        assert set_key([Did("2lofar:L1")]) in str(ad.lookup("DataLocalityShares"))
        assert "neither part may be empty" in located.refusal('{"L1", ":b"}')


@pytest.mark.parametrize("expression", ['split("ska:a ska:b")', '{strcat("ska", ":a"), "ska:b"}'])
def test_an_expression_that_makes_a_list_becomes_the_list(located, expression):
    ad = located.ad(located.submit(expression, HELD))
    assert str(ad.lookup("RequiredDatasets")).split() == str(ExprTree('{"ska:a","ska:b"}')).split()


def test_jobs_without_datasets_and_of_other_universes_stay_unchanged(located):
    ad = located.ad(located.submit(None, HELD))
    assert not [name for name in ad if "DataLocality" in name or "RequiredDatasets" in name]
    for universe in ("scheduler", "local"):
        ad = located.ad(located.submit("{}", HELD, f"universe = {universe}"))
        assert not [name for name in ad if "DataLocality" in name]


def test_of_what_submit_says_condor_transform_ads_makes_what_submit_computes(located):
    """A hundred random runs, through HTCondor's own tool at once."""
    chance = random.Random(4)
    names = [Did(f"ska:obs_{number}") for number in range(20)]
    names += [Did(f"{'Ska' * (number % 3)}@{chr(65 + number)}:L{number}_SB") for number in range(20)]
    runs = []
    for number in range(100):
        dids = chance.sample(names, chance.randint(1, 30))
        sizes = {did: chance.randint(0, 10**12) for did in dids if chance.random() < 0.97}
        mode = chance.choice(MODES)
        wait = None if mode == "require" else chance.choice((None, 0, 1, 2, 3, 50, 5000))
        runs.append(RapthorRun(f"r{number}", tuple(dids), sizes, RunOptions(mode, wait)))
    own = "JobUniverse = 5\nRequirements = TARGET.Cpus > 1 || false\nRank = TARGET.Mips\n"
    file = located.pool.shared / "runs.ads"
    file.write_text("\n".join(f"{own}{as_ad(run)}" for run in runs))
    begun = int(time.time())
    done = located.pool.run(
        "condor_transform_ads", "-jobtransforms", "DataLocality", "-long", file, check=False
    ).stdout
    ended = int(time.time())
    made = {ad["RapthorRun"]: ad for ad in classad2.parseAds(done)}
    assert made.keys() == {run.name for run in runs}
    for run in runs:
        ad, dids, mode = made[run.name], sorted(run.dids), run.options.mode
        assert ad["RequiredDatasets"] == dids
        submitted = classad2.parseOne(as_ad(run)).get("DataLocalityKey")
        for name, expression in locality_expressions(dids, mode, submitted).items():
            assert same(ad.lookup(name), expression), name
        assert same(ad.lookup("Requirements"), "(TARGET.Cpus > 1 || false) && MY.DataLocalityHere")
        assert same(ad.lookup("Rank"), "TARGET.Mips")
        assert (ad["DataLocality"], ad["DataLocalityTransformed"]) == (mode, True)
        assert ("ConcurrencyLimits" in ad) is (mode == "auto")
        if mode == "require":
            assert "DataLocalityAnyAfter" not in ad
        else:
            wait = ad["DataLocalityMaxWait"]
            assert run.options.max_wait_seconds in (None, wait)
            assert (
                compute_any_after(begun, wait, 5)
                <= ad["DataLocalityAnyAfter"]
                <= compute_any_after(ended, wait, 5)
            )


def test_configuration_read_twice_makes_the_same_jobs(located):
    once = located.ad(located.submit('{"ska:a"}', HELD, "rank = 3"))
    with configured(located, more={"schedd": schedd_config(POLICY, {}), "negotiator": negotiator_config({})}):
        twice = located.ad(located.submit('{"ska:a"}', HELD, "rank = 3"))
    assert "DataLocalityRank" not in {*once, *twice}
    for name in ("Requirements", "Rank", "DataLocalityHere"):
        assert str(twice.lookup(name)) == str(once.lookup(name)), name


# --- what it refuses


def test_schedd_refuses_malformed_jobs_of_each_kind(located):
    """Every other case is in tests/unit/submit/test_submit_requirements.py."""
    late = {"queue": "queue 4"}
    refusals = (
        ("ska", ("max_materialize = 2",), late, "must be a list of strings"),
        (r'{"ska:a\\b", "a"}', (), {}, "use letters"),
        ('{"ska:a"}', ("+DataLocality = require",), {}, "DataLocality must be"),
        (BOTH, (*prepared(), "+DataLocalityMaxAge = 0"), {}, "whole numbers of seconds"),
        ('{"ska:a"}', ("universe = java",), {}, "java, parallel and vm universes are not sent"),
    )
    for datasets, lines, queue, sentence in refusals:
        assert sentence in located.refusal(datasets, *lines, **queue), lines


@pytest.mark.parametrize("universe", ["local", "scheduler"])
def test_a_job_that_runs_on_the_access_point_is_taken_with_a_warning(located, universe):
    text = description('{"ska:a"}', HELD, f"universe = {universe}")
    done = located.pool.run("condor_submit", "-", user="alice", input=text)
    assert "RequiredDatasets has no effect here" in done.stdout + done.stderr
    text = description('{"ska:a"}', HELD, f"universe = {universe}", run="/usr/bin/condor_dagman 1")
    done = located.pool.run("condor_submit", "-", user="alice", input=text)
    assert "no effect" not in done.stdout + done.stderr


def test_schedd_without_an_active_transform_rejects_jobs_with_datasets(located):
    with configured(located, more={"schedd": "JOB_TRANSFORM_NAMES = \n"}):
        assert "did not transform this job" in located.refusal('{"ska:a"}')


def test_transformed_attributes_can_be_edited_by_release_alone(located):
    cluster = located.submit('{"ska:a"}', HELD)
    job = f"{cluster}.0"
    for user, name, value in (
        ("alice", "RequiredDatasets", '{"ska:b"}'),
        ("root", "RequiredDatasets", '{"ska:b"}'),
        ("alice", "DataLocalityHere", "true"),
    ):
        located.pool.run("condor_qedit", job, name, value, user=user, check=False)
        assert str(located.ad(cluster).lookup(name)) != value
    located.pool.run("condor_qedit", job, "DataLocalityHere", "true")
    assert located.ad(cluster)["DataLocalityHere"] is True


# --- kinds of submission


def test_a_bad_list_among_late_ones_is_held_not_lost(located):
    """A rejection at that time would be one line in SchedLog, and the job would be lost without a message."""
    located.holds(UK={A: "AVAILABLE"})
    cluster = located.submit(
        '{"$(did)"}', "max_materialize = 1", queue="queue did in (ska:a bad ska:a)", run="/bin/true"
    )
    held = located.pool.wait(
        lambda: located.pool.jobs(f"ClusterId == {cluster} && JobStatus == 5"), 60, "the bad one"
    )
    assert [(job["ProcId"], job["HoldReasonSubCode"]) for job in held] == [(1, HOLD_SUBCODE)]
    assert "malformed" in held[0]["HoldReason"]
    located.pool.run("condor_rm", f"{cluster}.1")
    assert located.ran_at(cluster, 2) == ["UK", "UK"]


# --- autoclusters


def clustered(located: Located, count: int) -> list[dict]:
    """Return the *count* jobs in the queue, once each is in an autocluster."""
    wanted = ("ClusterId", "RequiredDatasets", "DataLocalityAnyAfter", "AutoClusterId")

    def found() -> list[dict]:
        jobs = located.pool.jobs("true", *wanted)
        return jobs if len(jobs) == count and all("AutoClusterId" in job for job in jobs) else []

    return located.pool.wait(found, 60, "all jobs to be in autoclusters")


def test_jobs_share_an_autocluster_when_they_want_the_same(located):
    located.holds()
    submitted = {
        "equal": located.submit('{"ska:a"}', '+DataLocality = "require"'),
        "equal too": located.submit('{"ska:a"}', '+DataLocality = "require"', queue="queue 2"),
        "other list": located.submit('{"ska:b"}', '+DataLocality = "require"'),
        "other age": located.submit('{"ska:a"}', '+DataLocality = "require"', "+DataLocalityMaxAge = 60"),
        "waits": located.submit('{"ska:a"}', "+DataLocalityMaxWait = 3600"),
        "waits longer": located.submit('{"ska:a"}', "+DataLocalityMaxWait = 7200"),
    }
    of = {job["ClusterId"]: job["AutoClusterId"] for job in clustered(located, 7)}
    found = {name: of[cluster] for name, cluster in submitted.items()}
    assert found["equal"] == found["equal too"]
    assert len(set(found.values())) == len(found) - 1


def test_waiting_jobs_submitted_together_share_an_autocluster(located):
    with configured(located, PoolPolicy()):
        located.holds()
        first = located.submit('{"ska:a"}', queue="queue 3")
        second = located.submit('{"ska:a"}')
        jobs = clustered(located, 4)
        by_deadline = {}
        for job in jobs:
            by_deadline.setdefault(job["DataLocalityAnyAfter"], set()).add(job["AutoClusterId"])
        assert {job["ClusterId"] for job in jobs} == {first, second}
        assert all(len(clusters) == 1 for clusters in by_deadline.values())


def test_jobs_that_name_the_same_datasets_in_any_order_share_an_autocluster(located):
    located.holds()
    names = ["ska:a10", "Lofar:L1_SB2", "ska:a9"]
    lists = ["{" + ", ".join(f'"{name}"' for name in order) + "}" for order in itertools.permutations(names)]
    clusters = [located.submit(datasets, '+DataLocality = "require"') for datasets in lists]
    late = ('+DataLocality = "require"', "max_materialize = 3", "+RequiredDatasets = $(list)")
    clusters.append(located.submit(None, *late, queue=f"queue list from (\n{chr(10).join(lists[:3])}\n)"))
    jobs = clustered(located, 9)
    assert {job["ClusterId"] for job in jobs} == set(clusters)
    assert {tuple(job["RequiredDatasets"]) for job in jobs} == {tuple(sorted(names))}
    assert len({job["AutoClusterId"] for job in jobs}) == 1


# --- where jobs then run


def test_a_name_in_another_letter_case_than_the_sites_matches_nothing(located):
    located.holds(UK={"Lofar:L1_SB001": "AVAILABLE", "ska:Test1": "AVAILABLE", "ska:test2": "AVAILABLE"})
    strict = '+DataLocality = "require"'
    wrong = [
        located.submit(f'{{"{name}"}}', strict)
        for name in ("lofar:l1_sb001", "LOFAR:L1_SB001", "ska:test1", "ska:Test2")
    ]
    right = [
        located.submit(datasets, strict)
        for datasets in ('{"Lofar:L1_SB001"}', '{"ska:test2", "ska:Test1", "Lofar:L1_SB001"}')
    ]
    assert [located.ran_at(cluster, seconds=120) for cluster in right] == [["UK"], ["UK"]]

    def rejected() -> dict[int, int]:
        assert not any(located.pool.done(cluster) for cluster in wrong), "a wrong spelling matched"
        jobs = located.pool.jobs("LastRejMatchTime isnt undefined", "ClusterId", "JobStatus")
        found = {job["ClusterId"]: job["JobStatus"] for job in jobs}
        return found if found.keys() >= set(wrong) else {}

    assert located.pool.wait(rejected, 120, "the negotiator to reject them") == dict.fromkeys(wrong, 1)


def test_required_datasets_do_not_match_facts_that_are_too_old(located):
    located.holds(age=30000, UK={A: "AVAILABLE"})
    old = located.submit('{"ska:a"}', '+DataLocality = "require"')
    fresh = located.submit(None)
    located.ran_at(fresh)
    located.pool.wait(
        lambda: located.pool.job(old, "LastRejMatchTime"), 30, "the negotiator to have looked at it"
    )
    assert located.pool.job(old, "JobStatus")["JobStatus"] == 1
    located.holds(UK={A: "AVAILABLE"})
    assert located.ran_at(old) == ["UK"]


def test_a_job_of_many_datasets_is_matched(located):
    """More than 400, the depth at which ClassAds fail to evaluate an expression."""
    many = [f"ska:obs_{number}" for number in range(450)]
    located.holds(AU=dict.fromkeys(many, "AVAILABLE"), UK=dict.fromkeys(many[:-1], "AVAILABLE"))
    listed = ",".join(f'"{did}"' for did in many)
    assert located.ran_at(located.submit(f"{{{listed}}}", '+DataLocality = "require"')) == ["AU"]


# --- the negotiator's term


@pytest.mark.parametrize(
    ("sites", "best"),
    [
        ({"UK": {A: 1.0, B: 1.0}, "AU": {A: 1.0}}, "UK"),
        ({"UK": {A: 1.0, B: 0.02}, "AU": {A: 1.0}}, "UK"),
        ({"UK": {A: 0.02, B: 0.0}}, "UK"),
        ({"AU": {A: 1.0}, "UK": {B: 0.99}}, "AU"),
        ({"UK": {A: 0.0, B: 0.0}}, "NL"),
        ({}, "NL"),
    ],
    ids=["all at the largest", "a little more", "only a little", "half there", "nothing there", "nothing"],
)
def test_site_with_the_largest_share_wins_for_any_size_of_the_slot(located, sites, best):
    """Without the negotiator's term the smallest slot, NL, is used each time."""
    located.holds(**sites)
    cluster = located.submit('{"ska:a", "ska:b"}', HELD, '+DataLocality = "wait"', "+DataLocalityMaxWait = 0")
    deadline = located.ad(cluster)["DataLocalityAnyAfter"]
    located.pool.wait(lambda: time.time() > deadline, 15, "the job to have settled")
    located.pool.run("condor_release", str(cluster))
    assert located.ran_at(cluster) == [best]


def test_burst_runs_beside_its_data_with_a_depth_first_negotiator(located):
    with configured(located, more={"negotiator": "NEGOTIATOR_DEPTH_FIRST = true\n"}):
        located.holds(UK={A: "AVAILABLE"})
        cluster = located.submit(
            '{"ska:a"}',
            '+DataLocality = "wait"',
            "+DataLocalityMaxWait = 0",
            HELD,
            queue="queue 6",
            run="/bin/sleep 4",
        )
        deadline = located.ad(cluster)["DataLocalityAnyAfter"]
        located.pool.wait(lambda: time.time() > deadline, 15, "the jobs to have settled")
        located.pool.run("condor_release", str(cluster))
        assert located.ran_at(cluster, 6) == ["UK"] * 6


# --- who starts pilots


def test_the_queries_of_the_frontends_groups_find_who_waits_for_data_and_who_may_go_anywhere(located):
    deploy = Path(__file__).parents[2] / "deploy" / "glideinwms"
    queries = {
        name: group.job_query for name, group in groups_of(deploy / "frontend-groups.xml", deploy).items()
    }
    located.configure(PoolPolicy(rounding_floor=timedelta(seconds=5), glideinwms=True))
    require = located.submit('{"ska:a"}', HELD, '+DataLocality = "require"')
    waits = located.submit('{"ska:a", "ska:b"}', HELD, '+DataLocality = "wait"')
    waited = located.submit('{"ska:a"}', HELD, '+DataLocality = "wait"', "+DataLocalityMaxWait = 0")
    plain = located.submit(None, HELD)
    assert plain not in {require, waits, waited}

    def asked(group: str) -> set[object]:
        return {job["ClusterId"] for job in located.pool.jobs(queries[group], "ClusterId")}

    assert asked("locality_local") == {require, waits, waited}
    located.pool.wait(lambda: asked("locality_overflow") == {waited}, 120, "the one that waits no more")
    located.configure()


# --- the cautious form, and taking it out again


def test_rank_only_changes_no_requirements(located):
    with configured(located, rank_only=True):
        own = ("requirements = TARGET.Cpus > 0", "rank = 3")
        plain = located.ad(located.submit(None, HELD, *own))
        ad = located.ad(located.submit('{"ska:a"}', HELD, *own))
        assert same(ad.lookup("Requirements"), str(plain.lookup("Requirements")))
        assert same(ad.lookup("Rank"), str(plain.lookup("Rank")))
        ranked = {A: located.ad(located.submit('{"ska:a"}', HELD)), B: located.ad(located.submit(BOTH, HELD))}
        for ranking, dids in ((ranked[A], [A]), (ranked[B], [A, B])):
            wanted = locality_expressions(dids, "auto").get("DataLocalityRank")
            assert wanted is None or same(ranking.lookup("DataLocalityRank"), wanted)
            assert not {"DataLocalityHere", "DataLocality", "DataLocalityAnyAfter"} & set(ranking)
        located.holds(UK={A: "AVAILABLE"})
        assert located.ran_at(located.submit('{"ska:a"}')) == ["UK"]
        assert located.ran_at(located.submit('{"ska:b"}')) == ["NL"]


def test_rank_only_warns_where_enforcement_would_reject(located):
    with configured(located, rank_only=True):
        done = located.pool.run("condor_submit", "-", user="alice", input=description("{}", HELD))
        assert "RequiredDatasets is empty" in done.stdout + done.stderr
