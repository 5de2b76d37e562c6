"""The pool configuration on a real pool: transformed jobs, rejected jobs, and the sites where jobs run.

The sites' ads come from a STARTD_CRON job that prints a file, so that each test sets each site's datasets.
"""

import itertools
import random
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree

from hydrator.domain.classad import spellings
from hydrator.domain.model import Did
from hydrator.submit.expressions import here_expression, spelling_expression
from hydrator.submit.pool_config import (
    HOLD_SUBCODE,
    PoolPolicy,
    negotiator_config,
    schedd_config,
    startd_config,
)
from hydrator.submit.rapthor.job import RapthorRun, RunOptions, as_ad
from testbed.glideinwms_standin import groups_of
from testbed.pool import Pool
from tests.transform_oracle import compute_any_after, job_rank_expression, rank_expression

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

POLICY = PoolPolicy(rounding_floor=timedelta(seconds=5))
HELD = "hold = true\n"
CRON = """#!/bin/sh
# the file, and time for the startd to read it
cat "$1"
sleep 0.5
"""
QUICK = "PERIODIC_EXPR_INTERVAL = 3\nMAX_PERIODIC_EXPR_INTERVAL = 3\n"
A, B = Did("ska:a"), Did("ska:b")


class Located:
    """A pool with the generated configuration, and sites with the datasets that a test sets."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._counter = itertools.count(1)
        script = pool.shared / "print_ad"
        script.write_text(CRON)
        script.chmod(0o755)
        self._cron = "STARTD_CRON_JOBLIST = LOCALITY\nSTARTD_CRON_LOCALITY_PERIOD = 1s\n"
        self._cron += f"STARTD_CRON_LOCALITY_EXECUTABLE = {script}\n"
        for site in pool.sites:
            (pool.shared / f"{site.name}.ad").write_text("\n")
            self._cron += f"{site.name}.STARTD_CRON_LOCALITY_ARGS = {pool.shared / site.name}.ad\n"
        self.configure()

    def configure(
        self, policy: PoolPolicy = POLICY, *, observe: bool = False, more: Mapping[str, str] | None = None
    ) -> None:
        """Apply the generated configuration, as an operator would; *more* is read after it, by role."""
        more = more or {}
        daemons = ["SchedLog", "negotiator", *(f"startd:{site.local}" for site in self.pool.sites)]
        before = {name: self._times_read(name) for name in daemons}
        self.pool.reconfig(
            schedd=QUICK + schedd_config(policy, {}, observe=observe) + more.get("schedd", ""),
            startd=self._cron + startd_config({}, observe=observe) + more.get("startd", ""),
            negotiator=negotiator_config({}, observe=observe) + more.get("negotiator", ""),
        )
        for name, times in before.items():
            self.pool.wait(
                lambda name=name, times=times: self._times_read(name) > times, 20, f"{name} to read the texts"
            )

    def _times_read(self, daemon: str) -> int:
        return self.pool.logs(daemon).count("Re-reading config files")

    def holds(self, age: int = 0, **sites: Mapping[str, str]) -> None:
        """Set the datasets of every site (dataset -> state), and wait until the collector has them."""
        generation = next(self._counter)
        for site in self.pool.sites:
            entries = ";".join(f"'{did}'=\"{state}\"" for did, state in sites.get(site.name, {}).items())
            text = f"\nDatasetStates = [{entries}]\nDataLocalityAsOf = {int(time.time()) - age}\n"
            text += f'DatasetLetters = "{spellings(map(Did, sites.get(site.name, {})))}"\n'
            text += f"DataLocalityGeneration = {generation}\n- locality update:true\n"
            new = self.pool.shared / f"{site.name}.new"
            new.write_text(text)
            new.rename(self.pool.shared / f"{site.name}.ad")
        wanted = {generation}
        self.pool.wait(
            lambda: (
                {slot.get("DataLocalityGeneration") for slot in self.pool.slots("DataLocalityGeneration")}
                == wanted
            ),
            30,
            f"the slots to be of generation {generation}",
        )

    def submit(
        self, datasets: str | None, *lines: str, queue: str = "queue", run: str = "/bin/sleep 1"
    ) -> int:
        """Submit as alice with +RequiredDatasets = *datasets*; ToolFailed has the sentence of a rejection."""
        return self.pool.submit(description(datasets, *lines, queue=queue, run=run))

    def refusal(self, datasets: str | None, *lines: str, queue: str = "queue") -> str:
        """Return condor_submit's message of a rejection; empty if it accepts the job."""
        done = self.pool.run(
            "condor_submit",
            "-",
            user="alice",
            input=description(datasets, HELD, *lines, queue=queue),
            check=False,
        )
        return done.stderr if done.returncode else ""

    def ad(self, cluster: int, proc: int = 0) -> ClassAd:
        """Return the job's ad with unevaluated expressions."""
        text = self.pool.run("condor_q", f"{cluster}.{proc}", "-long").stdout
        return classad2.parseOne(text)

    def clear(self) -> None:
        """Remove all jobs and wait until all cores are free again."""
        self.pool.empty_queue()
        self.pool.wait(
            lambda: not self.pool.slots("Name", constraint='SlotType == "Dynamic"'),
            60,
            "all cores to be free",
        )

    def ran_at(self, cluster: int, jobs: int = 1, seconds: float = 60) -> list[str]:
        self.pool.wait(lambda: self.pool.done(cluster, jobs), seconds, f"job {cluster} to end")
        return self.pool.ran_at(cluster)


def description(datasets: str | None, *lines: str, queue: str = "queue", run: str = "/bin/sleep 1") -> str:
    executable, _, arguments = run.partition(" ")
    return "\n".join(
        (
            f"executable = {executable}\narguments = {arguments}\nlog = jobs.log\nshould_transfer_files = no",
            "request_cpus = 1\nrequest_memory = 16\nrequest_disk = 16",
            *([f"+RequiredDatasets = {datasets}"] if datasets is not None else []),
            *(line.strip() for line in lines),
            f"{queue}\n",
        )
    )


def expressions(ad: ClassAd) -> dict[str, str]:
    return {name: str(ad.lookup(name)) for name in ad}


def same(found: ExprTree, wanted: str) -> bool:
    return str(found) == str(ExprTree(wanted))


@pytest.fixture(scope="module")
def shared_located(htcondor_release: str) -> Iterator[Located]:
    with Pool.start(htcondor_release) as pool:
        yield Located(pool)


@pytest.fixture
def located(shared_located: Located) -> Iterator[Located]:
    yield shared_located
    shared_located.clear()


@contextmanager
def configured(located: Located, policy: PoolPolicy = POLICY, **how) -> Iterator[None]:
    located.configure(policy, **how)
    try:
        yield
    finally:
        located.configure()


# --- what it makes of a job


@pytest.mark.parametrize("mode", ["require", "wait", "prefer"])
def test_list_of_datasets_alone_gets_all_attributes_of_the_contract(located, mode):
    before = int(time.time())
    cluster = located.submit('{"ska:b", "ska:a"}', HELD, f'+DataLocality = "{mode.capitalize()}"')
    ad = located.ad(cluster)
    dids = [A, B]
    assert ad["RequiredDatasets"] == dids
    assert ad["RequiredDatasetsCSV"] == "ska:a,ska:b"
    assert same(ad.lookup("DataLocalitySpelled"), spelling_expression(dids))
    assert ad["DataLocality"] == mode
    assert ad["DataLocalityMaxAge"] == 20700
    assert ad["DataLocalityTransformed"] is True
    assert same(ad.lookup("DataLocalityHere"), here_expression(dids, mode))
    assert same(ad.lookup("DataLocalityRank"), rank_expression(dids, {}))
    assert same(ad.lookup("Rank"), job_rank_expression("0.0", 1000.0))
    if mode == "require":
        assert "DataLocalityAnyAfter" not in ad
    else:
        wait = {"wait": 3600, "prefer": 600}[mode]
        step = max(5, wait // 12)
        assert ad["DataLocalityMaxWait"] == wait
        assert ad["DataLocalityAnyAfter"] % step == 0
        assert before + wait <= ad["DataLocalityAnyAfter"] <= time.time() + wait + step


def test_job_without_a_mode_waits(located):
    assert located.ad(located.submit('{"ska:a"}', HELD))["DataLocality"] == "wait"


def test_times_that_the_user_sets_are_kept(located):
    cluster = located.submit('{"ska:a"}', HELD, "+DataLocalityMaxAge = 900", "+DataLocalityMaxWait = 50")
    ad = located.ad(cluster)
    assert (ad["DataLocalityMaxAge"], ad["DataLocalityMaxWait"]) == (900, 50)
    assert ad["QDate"] + 50 <= ad["DataLocalityAnyAfter"] <= time.time() + 50 + 5


def test_rank_counts_bytes_if_all_datasets_have_sizes(located):
    sized = "+RequiredBytes = ['ska:a' = 900; 'ska:b' = 100]"
    ad = located.ad(located.submit('{"ska:a", "ska:b"}', HELD, sized))
    assert same(ad.lookup("DataLocalityRank"), rank_expression([A, B], {A: 900, B: 100}))
    for wrong in (
        "['ska:a' = 900]",
        "['ska:a' = 900; 'ska:b' = -1]",
        "['ska:a' = 900; 'ska:b' = \"1\"]",
        "5",
        "[]",
    ):
        ad = located.ad(located.submit('{"ska:a", "ska:b"}', HELD, f"+RequiredBytes = {wrong}"))
        assert same(ad.lookup("DataLocalityRank"), rank_expression([A, B], {})), wrong


def test_the_users_requirements_and_rank_are_kept_in_parentheses(located):
    own = (
        r'requirements = TARGET.Cpus > 99 || regexp("^a\\.\"b\"", TARGET.Machine)',
        "rank = TARGET.Mips - 5",
    )
    plain = located.ad(located.submit(None, HELD, *own))
    ad = located.ad(located.submit('{"ska:a"}', HELD, *own))
    assert same(ad.lookup("Requirements"), f"({plain.lookup('Requirements')}) && MY.DataLocalityHere")
    assert same(ad.lookup("Rank"), job_rank_expression(str(plain.lookup("Rank")), 1000.0))


def test_duplicate_datasets_are_dropped_and_names_get_the_default_scope(located):
    with configured(located, PoolPolicy(default_scope="2lofar")):
        ad = located.ad(located.submit('{"L1", "ska:a", "2lofar:L1", "ska:a"}', HELD))
        assert ad["RequiredDatasets"] == ["2lofar:L1", "ska:a"]
        assert "2lofar:L1" in str(ad.lookup("DataLocalityHere"))
        assert "neither part may be empty" in located.refusal('{"L1", ":b"}')


@pytest.mark.parametrize("name", ["a/b:c/d", "a::b", "a:b@c=d+e~f-g.h_i", f"a:{'x' * 498}"])
def test_any_did_that_the_model_accepts_is_accepted(located, name):
    assert located.ad(located.submit(f'{{"{name}"}}', HELD))["RequiredDatasets"] == [name]


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


def test_transformed_job_is_not_transformed_again(located):
    cluster = located.submit('{"ska:a", "ska:b"}', HELD, "rank = TARGET.Mips")
    once = located.pool.run("condor_q", f"{cluster}.0", "-long").stdout
    file = located.pool.shared / "once.ad"
    file.write_text(once)
    done = located.pool.run(  # it ends with 1 whatever it did
        "condor_transform_ads", "-jobtransforms", "DataLocality", "-long", file, check=False
    )
    again = done.stdout
    assert expressions(classad2.parseOne(again)) == expressions(classad2.parseOne(once))


def test_of_what_the_companion_says_condor_transform_ads_makes_what_the_companion_computes(located):
    """A hundred random runs, through HTCondor's own tool at once."""
    chance = random.Random(4)
    names = [Did(f"ska:obs_{number}") for number in range(20)]
    names += [Did(f"{'Ska' * (number % 3)}@{chr(65 + number)}:L{number}_SB") for number in range(20)]
    runs = []
    for number in range(100):
        dids = chance.sample(names, chance.randint(1, 30))
        sizes = {did: chance.randint(0, 10**12) for did in dids if chance.random() < 0.97}
        mode = chance.choice(("require", "wait", "prefer"))
        wait = None if mode == "require" else chance.choice((None, 0, 50, 5000))
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
        assert same(ad.lookup("DataLocalityHere"), here_expression(dids, mode))
        assert same(ad.lookup("DataLocalitySpelled"), spelling_expression(dids))
        assert same(ad.lookup("DataLocalityRank"), rank_expression(dids, run.sizes))
        assert same(ad.lookup("Requirements"), "(TARGET.Cpus > 1 || false) && MY.DataLocalityHere")
        assert same(ad.lookup("Rank"), job_rank_expression("TARGET.Mips", 1000.0))
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
    for name in ("Requirements", "Rank", "DataLocalityHere", "DataLocalityRank"):
        assert str(twice.lookup(name)) == str(once.lookup(name)), name


# --- what it refuses


@pytest.mark.parametrize(
    ("datasets", "sentence"),
    [
        ("ska", "must be a list of strings"),
        ("undefined", "must be a list of strings"),
        ('"ska:a"', "must be a list of strings"),
        ("5", "must be a list of strings"),
        ("{}", "is empty"),
        ('{"ska:a", 5}', "every item must be a string"),
        ('{"ska:a", true}', "every item must be a string"),
        ('{"ska:a", undefined}', "every item must be a string"),
        ('{{"ska:a"}}', "every item must be a string"),
        ('{"ska:a b"}', "use letters, digits and . _ : / @ = + ~ - only; got ska:a b"),
        (r'{"ska:\"a"}', "use letters"),
        (r'{"ska:a\\b"}', "use letters"),
        ('{"ska:é"}', "use letters"),
        ('{"ska:a,ska:b"}', "use letters"),
        ('{","}', "use letters"),
        (
            '{"a"}',
            (
                "every item must be scope:name, and neither part may be empty"
                " (this schedd has no default scope); got a"
            ),
        ),
        ('{""}', "every item must be scope:name"),
        ('{"ska:a", ""}', "every item must be scope:name"),
        ('{"ska:a,"}', "every item must be scope:name"),
        ('{"ska:a,ska:b", ""}', "every item must be scope:name"),
        ('{":a"}', "every item must be scope:name"),
        ('{"ska:"}', "every item must be scope:name"),
        (f'{{"ska:{"x" * 497}"}}', "more than 500 characters"),
    ],
)
def test_invalid_list_of_datasets_is_rejected_with_a_sentence(located, datasets, sentence):
    assert sentence in located.refusal(datasets)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('+DataLocality = "maybe"', 'DataLocality must be "require", "wait" or "prefer"'),
        ("+DataLocality = 5", "DataLocality must be"),
        ("+DataLocality = require", "DataLocality must be"),
        ("+DataLocalityMaxWait = -1", "whole numbers of seconds"),
        ("+DataLocalityMaxWait = 1.5", "whole numbers of seconds"),
        ('+DataLocalityMaxWait = "1h"', "whole numbers of seconds"),
        ("+DataLocalityMaxWait = hour", "whole numbers of seconds"),
        ("+DataLocalityMaxAge = 0", "whole numbers of seconds"),
        ("+DataLocalityMaxAge = 99999999999", "whole numbers of seconds"),
        ("+DataLocalityTransformed = true", "leave DataLocalityTransformed out"),
    ],
)
def test_invalid_options_beside_the_list_are_rejected_with_a_sentence(located, line, sentence):
    assert sentence in located.refusal('{"ska:a"}', line)


@pytest.mark.parametrize("lines", [("universe = java",), ("universe = parallel", "machine_count = 1")])
def test_jobs_of_a_universe_that_no_transform_reaches_are_refused(located, lines):
    assert "java, parallel and vm universes are not sent" in located.refusal('{"ska:a"}', *lines)
    assert located.refusal(None, *lines) == ""


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


def test_a_dagman_node_is_transformed_and_the_dag_is_not(located):
    located.holds(UK={A: "AVAILABLE"})
    home = located.pool.user_home("alice")
    (home / "node.sub").write_text(description('{"ska:a"}', '+DataLocality = "require"'))
    (home / "first.dag").write_text("JOB N node.sub\n")
    output = located.pool.run("condor_submit_dag", "-force", "first.dag", user="alice", cwd=home).stdout
    dag = int(re.search(r"cluster (\d+)", output)[1])
    assert "DataLocalityTransformed" not in located.ad(dag)
    node = located.pool.wait(
        lambda: located.pool.history(f"DAGManJobId == {dag}", "ClusterId", "DataLocalityTransformed"),
        60,
        "the node",
    )[0]
    assert node["DataLocalityTransformed"] is True
    assert located.ran_at(node["ClusterId"]) == ["UK"]
    located.pool.wait(lambda: not located.pool.jobs(f"ClusterId == {dag}", "ClusterId"), 40, "the DAG to end")


def test_late_materialization_with_one_list_for_all(located):
    located.holds(UK={A: "AVAILABLE"})
    cluster = located.submit('{"ska:a"}', '+DataLocality = "require"', "max_materialize = 2", queue="queue 4")
    assert located.ran_at(cluster, 4) == ["UK"] * 4


def test_late_materialization_with_a_list_for_each(located):
    located.holds(UK={A: "AVAILABLE"}, AU={B: "AVAILABLE"})
    cluster = located.submit(
        '{"$(did)"}',
        '+DataLocality = "require"',
        "max_materialize = 2",
        queue="queue did in (ska:a ska:b ska:a ska:b)",
        run="/bin/sleep 0",
    )
    located.pool.wait(lambda: located.pool.done(cluster, 4), 60, "four jobs to end")
    jobs = located.pool.history(f"ClusterId == {cluster}", "ProcId", "RequiredDatasetsCSV", "LastRemoteHost")
    went = {job["ProcId"]: (job["RequiredDatasetsCSV"], job["LastRemoteHost"].split("@")[1]) for job in jobs}
    assert went == {0: (A, "UK"), 1: (B, "AU"), 2: (A, "UK"), 3: (B, "AU")}


@pytest.mark.parametrize(
    ("datasets", "sentence"), [("{}", "is empty"), ("ska", "must be a list"), ('{"a"}', "scope:name")]
)
def test_late_materialization_of_a_bad_list_is_rejected_at_once(located, datasets, sentence):
    assert sentence in located.refusal(datasets, "max_materialize = 2", queue="queue 4")


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

    def clusters() -> dict[str, int]:
        of = {
            job["ClusterId"]: job.get("AutoClusterId")
            for job in located.pool.jobs("true", "ClusterId", "AutoClusterId")
        }
        found = {name: of[cluster] for name, cluster in submitted.items()}
        return found if all(found.values()) else {}

    found = located.pool.wait(clusters, 30, "all jobs to be in autoclusters")
    assert found["equal"] == found["equal too"]
    assert len(set(found.values())) == len(found) - 1


def test_waiting_jobs_submitted_together_share_an_autocluster(located):
    with configured(located, PoolPolicy()):
        located.holds()
        first = located.submit('{"ska:a"}', queue="queue 3")
        second = located.submit('{"ska:a"}')

        def clustered() -> list[dict]:
            jobs = located.pool.jobs("true", "ClusterId", "DataLocalityAnyAfter", "AutoClusterId")
            return jobs if all("AutoClusterId" in job for job in jobs) else []

        jobs = located.pool.wait(clustered, 30, "all jobs to be in autoclusters")
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

    def clustered() -> list[dict]:
        jobs = located.pool.jobs("true", "ClusterId", "RequiredDatasets", "AutoClusterId")
        return jobs if len(jobs) == 9 and all("AutoClusterId" in job for job in jobs) else []

    jobs = located.pool.wait(clustered, 60, "all jobs to be in autoclusters")
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


def test_required_datasets_run_only_at_a_site_with_all_of_them(located):
    located.holds(UK={A: "AVAILABLE", B: "AVAILABLE"}, AU={A: "AVAILABLE", B: "STAGING"}, NL={A: "AVAILABLE"})
    cluster = located.submit('{"ska:a", "ska:b"}', '+DataLocality = "require"', queue="queue 5")
    assert located.ran_at(cluster, 5) == ["UK"] * 5


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


@pytest.mark.parametrize("mode", ["wait", "prefer"])
def test_a_job_first_waits_and_then_runs_elsewhere(located, mode):
    located.holds(UK={B: "AVAILABLE"})
    cluster = located.submit('{"ska:a"}', f'+DataLocality = "{mode}"', "+DataLocalityMaxWait = 15")
    deadline = located.ad(cluster)["DataLocalityAnyAfter"]
    located.ran_at(cluster)
    job = located.pool.history(f"ClusterId == {cluster}", "JobStartDate")[0]
    assert deadline <= job["JobStartDate"] <= deadline + 100


def test_a_released_job_goes_anywhere(located):
    located.holds()
    cluster = located.submit('{"ska:a"}', '+DataLocality = "require"')
    located.pool.wait(
        lambda: located.pool.job(cluster, "LastRejMatchTime"), 30, "the negotiator to have looked at it"
    )
    located.pool.run("condor_qedit", f"{cluster}.0", "DataLocalityHere", "true")
    assert len(located.ran_at(cluster)) == 1


def test_better_analyze_shows_the_clause_and_how_many_slots_fail_it(located):
    located.holds(UK={B: "AVAILABLE"})
    cluster = located.submit('{"ska:a"}', '+DataLocality = "require"')
    output = located.pool.run("condor_q", "-better-analyze", str(cluster)).stdout
    assert "DataLocalityHere" in output


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
        ({"UK": {A: "AVAILABLE", B: "AVAILABLE"}, "AU": {A: "AVAILABLE"}}, "UK"),
        ({"UK": {A: "AVAILABLE", B: "STAGING"}, "AU": {A: "AVAILABLE"}}, "UK"),
        ({"UK": {A: "STAGING", B: "PARTIAL"}}, "UK"),
        ({"AU": {A: "AVAILABLE"}, "UK": {B: "STAGING"}}, "AU"),
        ({}, "NL"),
    ],
    ids=["all at the largest", "half on its way", "only on its way", "half there", "nothing anywhere"],
)
def test_site_with_the_largest_share_wins_for_any_size_of_the_slot(located, sites, best):
    """Without the negotiator's term the smallest slot, NL, is used each time."""
    located.holds(**sites)
    cluster = located.submit(
        '{"ska:a", "ska:b"}', HELD, '+DataLocality = "prefer"', "+DataLocalityMaxWait = 0"
    )
    deadline = located.ad(cluster)["DataLocalityAnyAfter"]
    located.pool.wait(lambda: time.time() > deadline, 15, "the job to have settled")
    located.pool.run("condor_release", str(cluster))
    assert located.ran_at(cluster) == [best]


def test_burst_runs_beside_its_data_with_a_depth_first_negotiator(located):
    with configured(located, more={"negotiator": "NEGOTIATOR_DEPTH_FIRST = true\n"}):
        located.holds(UK={A: "AVAILABLE"})
        cluster = located.submit(
            '{"ska:a"}',
            '+DataLocality = "prefer"',
            "+DataLocalityMaxWait = 0",
            HELD,
            queue="queue 6",
            run="/bin/sleep 4",
        )
        deadline = located.ad(cluster)["DataLocalityAnyAfter"]
        located.pool.wait(lambda: time.time() > deadline, 15, "the jobs to have settled")
        located.pool.run("condor_release", str(cluster))
        assert located.ran_at(cluster, 6) == ["UK"] * 6


# --- START


def test_reused_claim_starts_no_job_after_its_dataset_left(located):
    located.holds(UK={A: "AVAILABLE"})
    cluster = located.submit(
        '{"ska:a"}', '+DataLocality = "require"', "request_cpus = 8", queue="queue 8", run="/bin/sleep 2"
    )
    located.pool.wait(
        lambda: located.pool.history(f"ClusterId == {cluster}", "ProcId"), 60, "a first job to end"
    )
    located.holds(UK={})
    left = time.time()
    other = located.submit(None, queue="queue 3")
    located.ran_at(other, 3)
    located.pool.wait(
        lambda: not located.pool.jobs("JobStatus == 2", "ClusterId"), 30, "the last started job to end"
    )
    started = [job["JobStartDate"] for job in located.pool.history(f"ClusterId == {cluster}", "JobStartDate")]
    assert 1 <= len(started) < 8
    assert not [when for when in started if when > left + 1]
    located.holds(UK={A: "AVAILABLE"})
    assert located.ran_at(cluster, 8) == ["UK"] * 8


# --- who starts pilots


def test_the_queries_of_the_frontends_groups_find_who_waits_for_data_and_who_may_go_anywhere(located):
    deploy = Path(__file__).parents[2] / "deploy" / "glideinwms"
    queries = {
        name: group.job_query for name, group in groups_of(deploy / "frontend-groups.xml", deploy).items()
    }
    require = located.submit('{"ska:a"}', HELD, '+DataLocality = "require"')
    waits = located.submit('{"ska:a", "ska:b"}', HELD, '+DataLocality = "wait"')
    waited = located.submit('{"ska:a"}', HELD, '+DataLocality = "prefer"', "+DataLocalityMaxWait = 0")
    plain = located.submit(None, HELD)
    assert plain not in {require, waits, waited}

    def asked(group: str) -> set[object]:
        return {job["ClusterId"] for job in located.pool.jobs(queries[group], "ClusterId")}

    assert asked("locality_local") == {require, waits, waited}
    located.pool.wait(lambda: asked("locality_overflow") == {waited}, 120, "the one that waits no more")


# --- the cautious form, and taking it out again


def test_observe_mode_only_ranks(located):
    with configured(located, observe=True):
        own = ("requirements = TARGET.Cpus > 0", "rank = 3")
        plain = located.ad(located.submit(None, HELD, *own))
        ad = located.ad(located.submit('{"ska:a"}', HELD, *own))
        assert same(ad.lookup("Requirements"), str(plain.lookup("Requirements")))
        assert same(ad.lookup("Rank"), job_rank_expression("3", 1000.0))
        assert same(ad.lookup("DataLocalityRank"), rank_expression([A], {}))
        assert ad["RequiredDatasetsCSV"] == "ska:a"
        assert not {"DataLocalityHere", "DataLocality", "DataLocalityAnyAfter"} & set(ad)
        located.holds(UK={A: "AVAILABLE"})
        assert located.ran_at(located.submit('{"ska:a"}')) == ["UK"]
        assert located.ran_at(located.submit('{"ska:b"}')) == ["NL"]


def test_observe_mode_warns_where_enforcement_would_reject(located):
    with configured(located, observe=True):
        done = located.pool.run("condor_submit", "-", user="alice", input=description("{}", HELD))
        assert "RequiredDatasets is empty" in done.stdout + done.stderr
