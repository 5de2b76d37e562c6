"""Jobs that ``hydrator submit wrap`` gives a key: the schedd keeps it, and it finds the set in slot ads."""

from collections.abc import Iterator

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from testbed.pool import Pool
from tests.desk import Desk
from tests.located import Located, record

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

AB, AC = set_key(["lofar:a", "lofar:b"]), set_key(["lofar:a", "lofar:c"])
REQUIRE = '+DataLocality = "require"\n'
SMALL = "executable = /bin/true\nrequest_cpus = 1\nrequest_memory = 10\nlog = x.log\n" + REQUIRE


@pytest.fixture(scope="module")
def located(htcondor_release: str) -> Iterator[Located]:
    with Pool.start(htcondor_release) as pool:
        yield Located(pool)


def sets(**shares: float) -> str:
    return f"DataLocalitySets = {record(shares)}\nDataLocalityVersion = 1\n"


def test_wrapped_jobs_run_where_their_own_set_is_whole(located):
    """Also with late materialization, and with items of different sets in one submit file."""
    pool = located.pool
    first, second, *_ = (site.name for site in pool.sites)
    located.advertise({first: sets(**{AB: 1.0, AC: 0.99}), second: sets(**{AB: 0.5, AC: 1.0})})
    desk = Desk(pool, pool.user_home("alice") / "keys")
    items = '+RequiredDatasets = {"lofar:$(x)", "lofar:a"}\n'
    desk.write("both.sub", f"{SMALL}{items}max_materialize = 1\nqueue x in (b, c)\n")
    filtered = desk.hydrator("filter", "both.sub")
    assert filtered.returncode == 0, filtered.stderr
    desk.write("both.sub", filtered.stdout)
    done = pool.run("condor_submit", "-terse", "both.sub", user="alice", cwd=desk.folder)
    cluster = int(done.stdout.split(".")[0])
    pool.wait(lambda: pool.done(cluster, 2), 180, "both jobs to end")
    assert pool.ran_at(cluster) == [first, second]
    keys = pool.history(f"ClusterId == {cluster}", "DataLocalityKey")
    assert sorted(job["DataLocalityKey"] for job in keys) == sorted([AB, AC])


def test_wrapped_job_waits_while_no_site_has_its_set(located):
    pool = located.pool
    located.advertise({site.name: sets(**{AB: 0.99}) for site in pool.sites})
    desk = Desk(pool, pool.user_home("alice") / "waits")
    desk.write("x.sub", f"{SMALL}queue\n")
    done = desk.hydrator("wrap", "-d", "lofar:b,lofar:a", "--", "condor_submit", "-terse", "x.sub")
    assert done.returncode == 0, done.stderr
    cluster = int(done.stdout.split(".")[0])
    assert pool.job(cluster, "DataLocalityKey")["DataLocalityKey"] == AB
    pool.wait(
        lambda: (pool.job(cluster, "LastRejMatchReason") or {}).get("LastRejMatchReason"), 90, "a rejection"
    )
    located.advertise({pool.sites[0].name: sets(**{AB: 1.0})})
    pool.wait(lambda: pool.done(cluster), 120, "the job to end")
