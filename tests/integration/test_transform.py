"""The pool configuration on a real pool: transformed jobs, rejected jobs, and the sites where jobs run."""

import re
import time
from collections.abc import Mapping
from pathlib import Path

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ExprTree

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import hash_key, key_attributes, names_key
from hydrator.domain.ads.expressions import JOB_RANK, REQUIREMENT
from hydrator.domain.model import Did
from hydrator.submit.gpus import GpuChoice, SlotShare
from hydrator.submit.pool_config import HOLD_SUBCODE, negotiator_config, schedd_config
from testbed.glideinwms_standin import groups_of
from tests.located import (
    HELD,
    LISTED,
    LONG,
    Located,
    brisk_schedd_config,
    configured,
    description,
    record,
    same,
)
from tests.schedd_text import SYSTEM, ScheddText

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

A, B = Did("ska:a"), Did("ska:b")
BOTH = '{"ska:a", "ska:b"}'


# --- what it makes of a job


def prepared(*lines: str) -> tuple[str, ...]:
    """Return the lines of hydrator submit for LONG."""
    key = tuple(f'+{name} = "{text}"' for name, text in key_attributes(LONG).items())
    return (*key, *lines)


def test_jobs_of_hydrator_submit_run_where_their_set_is_and_share_an_autocluster(located):
    """Also with late materialization; and after run-anywhere one of them runs elsewhere."""
    whole = f"DataLocalitySets = {record({hash_key(LONG): 1.0})}\n"
    located.advertise({"AU": whole})
    strict = prepared('+DataLocality = "require"')
    late = located.submit(LISTED, *strict, "max_materialize = 2", queue="queue 3")
    assert located.pool.ran_at(late, 3) == ["AU"] * 3
    located.advertise({})
    clusters = [located.submit(LISTED, *strict), located.submit(LISTED, *strict)]
    assert len({job["AutoClusterId"] for job in clustered(located, 2)}) == 1
    located.pool.run("condor_qedit", f"{clusters[0]}.0", "DataLocalityHere", "true")
    located.pool.ran_at(clusters[0])
    assert located.pool.is_idle(clusters[1])


def test_prepared_jobs_run_anywhere_without_the_transform_and_with_rank_only(located):
    with configured(located, rank_only=True):
        located.pool.ran_at(located.submit(LISTED, *prepared('+DataLocality = "require"')))
    with configured(located, more={"schedd": "JOB_TRANSFORM_NAMES = \nSUBMIT_REQUIREMENT_NAMES = \n"}):
        located.pool.ran_at(located.submit(LISTED, *prepared('+DataLocality = "require"')))


GPUS = GpuChoice(SlotShare(1, 1000), None, 'Capability > 7.5 && DeviceName == "A"').attributes
CORPUS = (
    *(
        {"RequiredDatasets": value}
        for value in ('{"x:A","x:b@c~d"}', '"x:a, x:b"', 'split("x:a x:b")', "{}", "x")
    ),
    *(
        {"RequiredDatasets": '{"x:a"}', name: f"false ? {{}} : {name}"}
        for name in ("DataLocality", "DataLocalityKey")
    ),
    {"RequiredDatasets": "false ? {} : RequiredDatasets"},
    {"RequiredDatasets": '{"x:a"}', **GPUS},
    {"GPUPreference": "false ? {} : GPUPreference"},
    {**GPUS, "RequireGPUs": "false ? {} : RequireGPUs"},
    *(
        {"RequiredDatasets": '{"x:a"}', "DataLocalityTransformed": "true", "DataLocalityRank": rank}
        for rank in (JOB_RANK, "false ? {} : DataLocalityRank")
    ),
    {},
    *({"RequiredDatasets": '{"x:a"}', "JobFactoryId": own, "DataLocalityRank": "5"} for own in ("1", "12")),
    {"RequiredDatasets": "undefined"},
    {"RequiredDatasets": '{"x:a,x:b", "L1"}'},
    {"RequiredDatasets": '{"x:a#b"}', "JobMaterializeDigestFile": '"x"'},
    {"RequiredDatasets": '{"embargo:a"}'},
    {"RequiredDatasets": LISTED},
    {"RequiredDatasets": LISTED, **{name: f'"{text}"' for name, text in key_attributes(LONG).items()}},
    *(
        {"RequiredDatasets": LISTED, **{name: f'"{text}"' for name, text in key_attributes(dids).items()}}
        for dids in (LONG[1:], [A])
    ),
    *({"RequiredDatasets": '{"x:a"}', "DataLocality": f'"{mode}"'} for mode in ("REQUIRE", "wait", "maybe")),
    *({"RequiredDatasets": '{"x:a"}', "DataLocalityMaxWait": wait} for wait in ("0", "1", "50", "1.5", "-1")),
    {"RequiredDatasets": '{"x:a"}', "Requirements": str(ExprTree(f"(TARGET.A) && {REQUIREMENT}"))},
)


@pytest.mark.older
@pytest.mark.parametrize(
    ("policy", "how"),
    [
        (Settings(), {}),
        (Settings(), {"rank_only": True}),
        (
            Settings(
                daemon={"default_scope": "s"}, jobs={"glideinwms": True}, publish={"never": ("embargo:*",)}
            ),
            {"job_rank": True},
        ),
    ],
    ids=["default", "rank only", "everything"],
)
def test_condor_transform_ads_makes_what_classad2_makes(located, tmp_path, policy, how):
    """The corpus of jobs through HTCondor's own engine, and through the imitation that the gate uses."""
    text = schedd_config(policy, **how)
    schedd = ScheddText(text)
    ads = [f"Number = {number}\n{schedd_ad(given)}" for number, given in enumerate(CORPUS)]
    file = located.pool.shared / "corpus.ads"
    file.write_text("\n".join(ads))
    located.pool.reconfig(schedd=text, read_by=["SchedLog"])
    words = ("condor_transform_ads", "-jobtransforms", "DataLocality", "-long", file)
    done = located.pool.run(*words, check=False, timeout=60).stdout  # it ends with 1 whatever it did
    made = {ad["Number"]: ad for ad in classad2.parseAds(done)}
    located.configure()
    assert made.keys() == set(range(len(CORPUS)))
    for number, given in enumerate(CORPUS):
        wanted, found = schedd.transformed(given), made[number]
        del found["Number"]
        for ad in (wanted, found):
            for name in [name for name in ad if str(ad.lookup(name)) == "undefined"]:
                del ad[name]  # a deleted attribute
        times = [ad.pop("DataLocalityAnyAfter", None) for ad in (wanted, found)]
        assert sorted(found) == sorted(wanted), given
        for name in wanted:
            assert flat(found.lookup(name)) == flat(wanted.lookup(name)), (name, given)
        assert times == [None, None] or abs(times[0] - times[1]) <= 3600


def flat(tree: ExprTree) -> str:
    """Return the text without breaks and backslashes, which HTCondor prints in another way."""
    return re.sub(r"[\s\\]", "", str(tree))


def schedd_ad(given: Mapping[str, str]) -> str:
    return "".join(f"{name} = {text}\n" for name, text in {**SYSTEM, **given}.items())


def test_configuration_read_twice_makes_the_same_jobs(located):
    once = located.ad(located.submit('{"ska:a"}', HELD, "rank = 3"))
    again = {"schedd": brisk_schedd_config(), "negotiator": negotiator_config()}
    with configured(located, more=again):
        twice = located.ad(located.submit('{"ska:a"}', HELD, "rank = 3"))
    for name in ("Rank", "DataLocalityHere", "DataLocalityRank"):
        assert str(twice.lookup(name)) == str(once.lookup(name)), name
    counts = [str(each.lookup("Requirements")).count("DataLocalityHere") for each in (once, twice)]
    assert counts == [1, 2], "condor_submit adds the clause as often as it reads it"


# --- what it refuses


def test_schedd_refuses_malformed_jobs_of_each_kind(located):
    """More lists are in tests/gate, every other case is in tests/unit/submit/test_submit_requirements.py."""
    refusals = (
        ('{"ska:a#b", "a"}', (), "not with #: ska:a#b,a"),
        ('{"ska:a"}', ("+DataLocality = require",), "DataLocality is"),
        (BOTH, ("+DataLocalityMaxAge = 0",), "whole seconds"),
        (None, ('+DataLocality = "require"', '+RequiredDataset = {"ska:a"}'), "spelled right"),
        ('{"ska:a"}', ("universe = java",), "java, parallel and vm universes are not sent"),
    )
    for datasets, lines, sentence in refusals:
        assert sentence in located.refusal(datasets, *lines), lines


OWN = (
    *(f"DataLocality{name}" for name in ("Rank", "Here", "Lane", "AnyAfter", "Start", "Refused")),
    "GPUPreference",
)
ENDLESS = tuple(f"+{name} = false ? {{}} : {name}" for name in OWN)
"""Texts that the engine of 23.9 evaluates without end; a user may write them into any job."""


@pytest.mark.older
@pytest.mark.parametrize(
    "transformed", ["true", "false ? {} : DataLocalityTransformed"], ids=["forged", "endless"]
)
@pytest.mark.parametrize("datasets", ['{"ska:a"}', None], ids=["with datasets", "without"])
@pytest.mark.parametrize("rank_only", [False, True], ids=["in force", "rank only"])
def test_attributes_that_refer_to_themselves_stop_no_daemon(located, rank_only, datasets, transformed):
    """Case S5, with a forged mark of a transform too."""
    located.holds(UK={A: "AVAILABLE"})
    lines = (*ENDLESS, f"+DataLocalityTransformed = {transformed}")
    with configured(located, rank_only=rank_only):
        located.pool.ran_at(located.submit(datasets, *lines, queue="queue 2"), 2)
        located.pool.ran_at(located.submit(datasets, *lines, "max_materialize = 1", queue="queue 2"), 2)


@pytest.mark.older
def test_requirements_that_name_themselves_are_refused_and_stop_no_schedd(located):
    """Without the clause of condor_submit, the transform adds it to this text, which the schedd expands."""
    text = description('{"ska:a"}', HELD, 'requirements = Arch =!= "$(DOLLAR)(MY.Requirements)"')
    own = {"_CONDOR_APPEND_REQUIREMENTS": "true"}
    done = located.pool.run("condor_submit", "-", user="alice", input=text, env=own, check=False)
    assert "Requirements, Rank: no macro" in done.stderr
    located.submit('{"ska:a"}', HELD)


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
        lambda: located.pool.jobs(f"ClusterId == {cluster} && JobStatus == 5"), "the bad one"
    )
    assert [(job["ProcId"], job["HoldReasonSubCode"]) for job in held] == [(1, HOLD_SUBCODE)]
    assert "must be scope:name" in held[0]["HoldReason"]
    located.pool.run("condor_rm", f"{cluster}.1")
    assert located.pool.ran_at(cluster, 2) == ["UK", "UK"]


# --- autoclusters


def clustered(located: Located, count: int) -> list[dict]:
    """Return the *count* jobs in the queue, once each is in an autocluster."""
    wanted = (
        "ClusterId", "RequiredDatasets", "DataLocalityAnyAfter", "DataLocalityLane", "AutoClusterId",
    )  # fmt: skip

    def found() -> list[dict]:
        jobs = located.pool.jobs("true", *wanted)
        return jobs if len(jobs) == count and all("AutoClusterId" in job for job in jobs) else []

    return located.pool.wait(found, "all jobs to be in autoclusters")


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
    with configured(located, Settings()):
        located.holds()
        first = located.submit('{"ska:a"}', queue="queue 3")
        second = located.submit('{"ska:a"}')
        jobs = clustered(located, 4)
        autoclusters = {}
        for job in jobs:
            alike = job["DataLocalityAnyAfter"], job["DataLocalityLane"]
            autoclusters.setdefault(alike, set()).add(job["AutoClusterId"])
        assert {job["ClusterId"] for job in jobs} == {first, second}
        assert all(len(clusters) == 1 for clusters in autoclusters.values())


# --- where jobs then run


# --- the negotiator's term


@pytest.mark.parametrize(
    ("shares", "best"),
    [
        ({"UK": 0.51, "AU": 0.5}, "UK"),
        ({"UK": 0.01}, "UK"),
        ({}, "NL"),
    ],
    ids=["a little more", "only a little", "nothing"],
)
def test_site_with_the_largest_share_wins_for_any_size_of_the_slot(located, shares, best):
    """Without the negotiator's term the smallest slot, NL, is used each time."""
    key = names_key([A, B])
    located.advertise(
        {site: f"DataLocalitySets = {record({key: share})}\n" for site, share in shares.items()}
    )
    cluster = located.submit(BOTH, HELD, '+DataLocality = "wait"', "+DataLocalityMaxWait = 0")
    deadline = located.ad(cluster)["DataLocalityAnyAfter"]
    located.pool.wait(lambda: time.time() > deadline, "the job to have settled")
    located.pool.run("condor_release", str(cluster))
    assert located.pool.ran_at(cluster) == [best]


@pytest.mark.older
def test_rank_of_jobs_counts_where_the_negotiator_has_no_term(located):
    """--job-rank, among slots of equal size: the default rank of the negotiator sorts by size first."""
    with configured(located, job_rank=True, more={"negotiator": "NEGOTIATOR_PRE_JOB_RANK = 0\n"}):
        located.advertise({"AU": f"DataLocalitySets = {record({names_key([A]): 0.5})}\n"})
        free = ('+DataLocality = "wait"', "+DataLocalityMaxWait = 0")
        assert located.pool.ran_at(located.submit('{"ska:a"}', *free)) == ["AU"]


# --- who starts pilots


def test_the_queries_of_the_frontends_groups_find_who_waits_for_data_and_who_may_go_anywhere(located):
    deploy = Path(__file__).parents[2] / "deploy" / "glideinwms"
    queries = {
        name: group.job_query for name, group in groups_of(deploy / "frontend-groups.xml", deploy).items()
    }
    located.configure(Settings(jobs={"glideinwms": True}))
    require = located.submit('{"ska:a"}', HELD, '+DataLocality = "require"')
    waits = located.submit('{"ska:a", "ska:b"}', HELD, '+DataLocality = "wait"')
    waited = located.submit('{"ska:a"}', HELD, '+DataLocality = "wait"', "+DataLocalityMaxWait = 0")
    plain = located.submit(None, HELD)
    assert plain not in {require, waits, waited}

    def asked(group: str) -> set[object]:
        return {job["ClusterId"] for job in located.pool.jobs(queries[group], "ClusterId")}

    assert asked("locality_local") == {require, waits, waited}
    located.pool.wait(lambda: asked("locality_overflow") == {waited}, "the one that waits no more")
    located.configure()


# --- the cautious form, and taking it out again


def test_rank_only_changes_no_requirements(located):
    with configured(located, rank_only=True):
        own = ("requirements = TARGET.Cpus > 0", "rank = 3")
        plain = located.ad(located.submit(None, HELD, *own))
        ad = located.ad(located.submit('{"ska:a"}', HELD, *own))
        assert same(ad.lookup("Requirements"), str(plain.lookup("Requirements")))
        assert same(ad.lookup("Rank"), str(plain.lookup("Rank")))
        for datasets in ('{"ska:a"}', BOTH):
            ranking = located.ad(located.submit(datasets, HELD))
            assert same(ranking.lookup("DataLocalityRank"), JOB_RANK)
            assert not {"DataLocalityHere", "DataLocality", "DataLocalityAnyAfter"} & set(ranking)
        located.holds(UK={A: "AVAILABLE"})
        assert located.pool.ran_at(located.submit('{"ska:a"}')) == ["UK"]
        assert located.pool.ran_at(located.submit('{"ska:b"}')) == ["NL"]
