"""Jobs with ``+RequiredDatasets`` follow their data: real pool, daemon, hook and transform."""

import pytest

from testbed.files import umask
from testbed.pool import site_of
from tests.gate.early import begin_early

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.older, pytest.mark.timeout(900)]

SMALL = "executable = /bin/true\nrequest_cpus = 1\nrequest_memory = 10\nrequest_disk = 1\n"
FAR_TOO_LARGE = 10**15
"""So many bytes are not worth a read from elsewhere, however long the queue of a site."""


@begin_early
def one_dataset(installed):
    """A job that may run anywhere runs at NL, so NL has some of the data of the other jobs."""
    installed.catalogue.add("req:uk", UK="available", NL="staging", AU="partial")
    installed.catalogue.add("req:au", AU="available", NL="partial")
    installed.catalogue.add("req:nl", NL="available")
    return {site: installed.submit([f"req:{site.lower()}"], mode="require") for site in ("UK", "AU", "NL")}


def test_a_required_dataset_decides_where_a_job_runs(installed, begun):
    jobs = begun(one_dataset)
    assert {site: installed.pool.ran_at(job) for site, job in jobs.items()} == {
        "UK": ["UK"],
        "AU": ["AU"],
        "NL": ["NL"],
    }


@begin_early
def two_datasets(installed):
    installed.catalogue.add("two:a", UK="available", NL="available")
    installed.catalogue.add("two:b", AU="available", UK="available")
    installed.catalogue.add("two:c", AU="available")
    together, apart = ["two:a", "two:b"], ["two:a", "two:c"]
    return installed.submit(together, mode="require"), installed.submit(apart, mode="require")


def test_a_job_that_needs_two_datasets_runs_where_both_are(installed, begun):
    together, apart = begun(two_datasets)
    assert installed.pool.ran_at(together) == ["UK"]
    installed.until_states("two:a", NL="AVAILABLE")
    installed.until_states("two:c", AU="AVAILABLE")
    assert installed.pool.stays_idle(apart)
    installed.remove(apart)


@begin_early
def long_names(installed):
    names = ("srcnet_test.comm:eb_001.prod_001/a/b.fits", "long:" + "x" * 245)
    for name in names:
        installed.catalogue.add(name, AU="available")
    return installed.submit(names, mode="require")


def test_dataset_names_with_slashes_and_of_250_characters_work(installed, begun):
    assert installed.pool.ran_at(begun(long_names)) == ["AU"]


@begin_early
def burst(installed):
    installed.catalogue.add("burst:six", FAR_TOO_LARGE, UK="available")
    go = installed.pool.shared / "burst"
    return installed.submit_waiting(["burst:six"], go, count=6), go


def test_burst_of_six_jobs_without_a_mode_runs_beside_its_data_at_once(installed, begun):
    cluster, go = begun(burst)
    installed.pool.until_running(cluster, jobs=6)
    go.touch()
    assert installed.pool.ran_at(cluster, jobs=6) == ["UK"] * 6


@begin_early
def first_job(installed):
    """No catalogue has the dataset yet, and no job named it before, so no slot advertises it."""
    installed.catalogue.add("first:later", NL="available")
    return installed.submit(["first:ever"], mode="auto"), installed.submit(
        ["first:later"], more="hold = true"
    )


def test_first_job_for_a_dataset_does_not_race_its_publication(installed, begun):
    """The daemon has met the job once the slots show the dataset of a later one."""
    job, later = begun(first_job)
    installed.until_states("first:later", NL="AVAILABLE")
    assert installed.pool.stays_idle(job)
    installed.catalogue.add("first:ever", FAR_TOO_LARGE, UK="available")
    assert installed.pool.ran_at(job) == ["UK"]
    installed.remove(later)


@begin_early
def data_nowhere(installed):
    stuck = installed.submit(["gone:require"], mode="require")
    installed.catalogue.add("pass:by", NL="available")
    return stuck, installed.submit(["pass:by"], mode="require")


def test_job_whose_dataset_is_nowhere_stays_idle_and_others_start(installed, begun):
    stuck, other = begun(data_nowhere)
    assert installed.pool.ran_at(other) == ["NL"]
    assert installed.pool.stays_idle(stuck)
    installed.remove(stuck)


@begin_early
def arrival(installed):
    installed.catalogue.add("late:arrival", AU="staging")
    return installed.submit(["late:arrival"], mode="require")


def test_a_dataset_that_arrives_lets_a_waiting_job_start_there(installed, begun):
    job = begun(arrival)
    installed.until_states("late:arrival", AU="STAGING")
    assert installed.pool.stays_idle(job)
    installed.catalogue.add("late:arrival", AU="available")
    assert installed.pool.ran_at(job) == ["AU"]


@begin_early
def dag(installed):
    pool = installed.pool
    installed.catalogue.add("dag:a", AU="available")
    installed.catalogue.add("dag:b", NL="available")
    home = pool.user_home("alice")
    with umask(0o022):  # alice reads them
        for node, did in (("A", "dag:a"), ("B", "dag:b")):
            (home / f"{node}.sub").write_text(
                f'{SMALL}+RequiredDatasets = {{"{did}"}}\n+DataLocality = "require"\nlog = dag.log\nqueue\n'
            )
        (home / "two.dag").write_text("JOB A A.sub\nJOB B B.sub\nPARENT A CHILD B\n")
    pool.run("condor_submit_dag", "-f", "two.dag", user="alice", cwd=home)


def test_dagman_nodes_follow_their_data(installed, begun):
    begun(dag)
    pool = installed.pool
    nodes = 'DAGNodeName isnt undefined && regexp("^dag:", RequiredDatasets[0]) =?= true'
    pool.wait(lambda: len(pool.history(nodes, "DAGNodeName")) == 2, "both nodes to end")
    ended = pool.history(nodes, "DAGNodeName", "LastRemoteHost")
    assert {job["DAGNodeName"]: site_of(job["LastRemoteHost"]) for job in ended} == {
        "A": "AU",
        "B": "NL",
    }


@begin_early
def late_materialization(installed):
    installed.catalogue.add("mat:a", UK="available")
    installed.catalogue.add("mat:b", NL="available")
    return installed.pool.submit(
        f'{SMALL}+RequiredDatasets = {{"$(item)"}}\n+DataLocality = "require"\nmax_materialize = 1\n'
        "queue item from (\nmat:a\nmat:b\n)\n"
    )


def test_items_of_late_materialization_follow_their_data(installed, begun):
    assert installed.pool.ran_at(begun(late_materialization), jobs=2) == ["UK", "NL"]


@begin_early
def written_by_hand(installed):
    installed.catalogue.add("hand:written", AU="available")
    requirements = 'requirements = member("hand:written", TARGET.AvailableDatasets)\n'
    return installed.pool.submit(f"{SMALL}{requirements}queue 3\n")


def test_job_with_requirements_by_hand_runs_only_where_its_pinned_data_is(installed, begun):
    """It has none of our attributes: the daemon publishes its dataset, because it is pinned."""
    assert installed.pool.ran_at(begun(written_by_hand), jobs=3) == ["AU"] * 3


def test_check_is_all_ok(installed, htcondor_release):
    """It advises against a schedd before 25.13.2, of which one is here."""
    findings = installed.findings()
    others = [finding for finding in findings if finding["level"] != "ok"]
    assert [finding["todo"] for finding in others] == (
        ["upgrade the schedd to 25.13.2 or later"] if htcondor_release == "23.9" else []
    )
    assert findings
