"""Condor-C: a grid job that one schedd passes to another one, real daemons under one master."""

import os
from collections.abc import Iterator

import classad2
import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from testbed.files import write_secret
from testbed.pool import UIDS, Pool, SiteSpec
from tests.located import brisk_schedd_config

pytestmark = [pytest.mark.pool, pytest.mark.timeout(600)]

FAR = """
SCHEDD_FAR = $(SCHEDD)
SCHEDD_FAR_ARGS = -f -local-name SCHEDD_FAR
SCHEDD_FAR.SCHEDD_NAME = far@
SCHEDD_FAR.SCHEDD_LOG = $(LOG)/SchedLog.FAR
SCHEDD_FAR.SPOOL = $(SPOOL)/far
DAEMON_LIST = $(DAEMON_LIST) SCHEDD_FAR
DC_DAEMON_LIST = + SCHEDD_FAR
CONDOR_JOB_POLL_INTERVAL = 2
C_GAHP_LOG = $(LOG)/../shared/CGAHPLog.$(USERNAME)
C_GAHP_WORKER_THREAD_LOG = $(LOG)/../shared/CGAHPWorkerLog.$(USERNAME)
"""
"""A second schedd; the helper that talks to it runs as the job's owner, who may not write into LOG."""
JOB = """universe = grid
grid_resource = condor far@ {collector}
executable = /bin/sleep
arguments = 1
transfer_executable = false
"""
PLAIN = '+RequiredDatasets = {"lofar:L1"}\n+DataLocality = "require"\n'
REMOTE = '+remote_RequiredDatasets = {"lofar:L1"}\n+remote_DataLocality = "require"\n'


@pytest.fixture(scope="module")
def pool(htcondor_release: str) -> Iterator[Pool]:
    config = {"all": FAR, "schedd": brisk_schedd_config()}
    with Pool.start(htcondor_release, (SiteSpec("UK", cpus=1),), config) as running:
        give_token(running, "alice")
        running.wait(lambda: running.ads('MyType == "Scheduler" && Name == "far@"', "Name"), "far@")
        yield running
        running.empty_queue()


def give_token(pool: Pool, user: str) -> None:
    """Put a user's token where HTCondor looks for it: Condor-C's helper gets no environment of the test."""
    source = pool.token(user, uid=UIDS[user]) / "token"
    folder = pool.user_home(user) / ".condor" / "tokens.d"
    folder.mkdir(parents=True, mode=0o700)
    token = write_secret(folder / user, source.read_text())
    for path in (folder.parent, folder, token):
        os.chown(path, UIDS[user], -1)


def handed_over(pool: Pool, cluster: int) -> classad2.ClassAd:
    """Return the job at the other schedd."""

    def known() -> str:
        (job,) = pool.jobs(f"ClusterId == {cluster}", "GridJobId", "HoldReason")
        assert not job.get("HoldReason"), job
        return str(job.get("GridJobId") or "").rpartition(" ")[2]

    far = pool.wait(known, f"job {cluster} to be handed over")
    return classad2.parseOne(pool.run("condor_q", "-allusers", "-name", "far@", far, "-long").stdout)


def test_jobs_that_condor_c_hands_over_are_tied_to_their_data_by_the_other_schedds_transform_once(pool):
    """The same for attributes with the prefix ``remote_``, as Condor-C's own have."""
    jobs = [pool.submit(f"{JOB.format(collector=pool.collector)}{lines}queue") for lines in (PLAIN, REMOTE)]
    for copy in [handed_over(pool, job) for job in jobs]:
        assert copy["JobUniverse"] == 5
        assert list(copy.eval("RequiredDatasets")) == ["lofar:L1"]
        assert copy["DataLocalityKey"] == set_key([Did("lofar:L1")])
        assert copy["DataLocality"] == "require"
        assert copy["DataLocalityTransformed"] is True
        assert "DataLocalityLocal" in str(copy.lookup("DataLocalityHere"))
        assert str(copy.lookup("Requirements")).count("DataLocalityHere") == 1
        assert "DataLocalityRank" not in str(copy.lookup("Rank"))


def test_grid_job_itself_stays_as_it_was_submitted(pool):
    cluster = pool.submit(f"{JOB.format(collector=pool.collector)}{PLAIN}hold = true\nqueue")
    job = classad2.parseOne(pool.run("condor_q", "-allusers", str(cluster), "-long").stdout)
    assert list(job.eval("RequiredDatasets")) == ["lofar:L1"]
    assert "DataLocalityHere" not in job
    assert "DataLocalityTransformed" not in job
