"""The record of a start on a real pool: the job's ad says why the job ran where it ran.

Site UK has the data. The schedd expands DataLocalityStart with the slot of each start.
"""

import time
from collections.abc import Iterator

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
from hydrator.diagnostics.start_record import ASKED
from hydrator.diagnostics.why.query import WhyQuery, ask_job
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.pool_config import PROTECTED_ATTRIBUTES
from hydrator.wiring import system_clock
from testbed.pool import Pool, SiteSpec
from tests.located import Located, listed, record

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

DIDS = [Did("ska:Large_1"), Did("ska:large_2")]
KEY = set_key(DIDS)
RECORD = "MATCH_EXP_DataLocalityStart"
MAX_BYTES = 150
"""Largest growth of a job's ad by the text and its record."""


@pytest.fixture(scope="module")
def located(htcondor_release: str) -> Iterator[Located]:
    with Pool.start(htcondor_release, [SiteSpec("UK", 2), SiteSpec("AU", 2)]) as pool:
        yield Located(pool)


def advertise(located: Located, source: str = "UK", more: str = "") -> None:
    """Let UK have the data, and AU be open for it: a job reads it there in 240 s from *source*.

    *more* are further lines of AU.
    """
    valid = f"DataLocalityOpenUntil = {int(time.time()) + 3600}\n"
    away = valid + f"DataLocalitySets = {record({KEY: 0.0})}\nDataLocalityOpen = {record({KEY: 240})}\n"
    away += f"DataLocalityReadFrom = {record({KEY: source})}\n"
    located.advertise({"UK": valid + f"DataLocalitySets = {record({KEY: 1.0})}\n", "AU": away + more})


def submit(located: Located, site: str, run: str = "/bin/sleep 1") -> int:
    where = f'requirements = TARGET.GLIDEIN_Site == "{site}"'
    return located.submit(listed(DIDS), f'+DataLocalityKey = "{KEY}"', where, run=run)


def run_at(located: Located, site: str) -> dict[str, object]:
    cluster = submit(located, site)
    assert located.pool.ran_at(cluster) == [site]
    return located.pool.job(cluster)


def notes_of(located: Located, cluster: int) -> str:
    settings = CondorSettings(located.pool.collector, token_directory=located.pool.token("hydrator"))
    with CondorClient(settings) as client:
        query = WhyQuery(client, ["DataLocalitySite"], lambda *_: None, None, system_clock())
        return "; ".join(ask_job(query, cluster, 0, None).answers[0].notes)


def test_ad_of_a_job_has_the_offer_of_its_start_and_why_explains_it(located):
    advertise(located, '"UK"')
    job = run_at(located, "AU")
    assert job[RECORD] == "read 240 s from UK"
    lines = [f'{name} = "{job[name]!s}"\n' for name in (RECORD, "DataLocalityStart")]
    assert sum(map(len, lines)) + 2 <= MAX_BYTES, "two quotes are escaped"
    assert "DataLocalityStart" not in str(job.get("AutoClusterAttrs"))
    explained = "it started away from its data, to read it from UK in about 4 min"
    assert notes_of(located, job["ClusterId"]).endswith(explained)
    assert run_at(located, "UK")[RECORD] == "local"


def test_next_start_of_a_job_replaces_the_record(located):
    advertise(located, '"UK"')
    cluster = submit(located, "AU", "/bin/sleep 300")
    located.pool.until_running(cluster)
    assert located.pool.job(cluster, RECORD)[RECORD].startswith("read 240 s")
    assert "in about 4 min" in notes_of(located, cluster)
    located.pool.run("condor_hold", str(cluster))
    located.pool.run("condor_qedit", str(cluster), "Requirements", 'TARGET.GLIDEIN_Site == "UK"')
    located.pool.run("condor_release", str(cluster))
    located.pool.wait(
        lambda: located.pool.job(cluster, RECORD).get(RECORD) == "local", "the record of the start at UK"
    )
    located.pool.run("condor_rm", str(cluster))


def test_owner_cannot_edit_the_record_of_the_start(located):
    advertise(located, '"UK"')
    cluster = submit(located, "AU", "/bin/sleep 300")
    located.pool.until_running(cluster)
    before = located.pool.job(cluster, *PROTECTED_ATTRIBUTES)
    for name in PROTECTED_ATTRIBUTES:  # a schedd of 23.9 reports success
        located.pool.run("condor_qedit", str(cluster), name, '"local"', user="alice", check=False)
    assert located.pool.job(cluster, *PROTECTED_ATTRIBUTES) == before
    assert (before[RECORD], before["DataLocalityStart"]) == ("read 240 s from UK", ASKED)
    located.pool.run("condor_rm", str(cluster))


def test_record_and_marks_that_an_owner_submits_are_replaced(located):
    """The transform gives each job DataLocalityStart, which makes the schedd write the record."""
    advertise(located, '"UK"')
    forged = f'+{RECORD} = "local"', "+DataLocalityTransformed = true", f'+DataLocalityKey = "{KEY}"'
    cluster = located.submit(listed(DIDS), 'requirements = TARGET.GLIDEIN_Site == "AU"', *forged)
    assert located.pool.ran_at(cluster) == ["AU"]
    assert located.pool.job(cluster)[RECORD] == "read 240 s from UK"


@pytest.mark.parametrize("source", ['"a \\"quoted\\" name"', "error", "1/0", '"back\\\\slash"'])
def test_slot_with_a_strange_source_holds_no_job(located, source):
    advertise(located, source)
    assert run_at(located, "AU")[RECORD] == "read 240 s"


def test_slot_without_an_offer_leaves_the_record_empty(located):
    advertise(located, '"UK"', "DataLocalityOffer = undefined\n")
    assert run_at(located, "AU")[RECORD] == ""
