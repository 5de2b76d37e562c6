"""Both arms of a switchback experiment on a real pool: the jobs, and the slots that they may take.

In the first test the daemon publishes the arms: UK has the dataset and one core, which a job with mode
require keeps, and NL has a free core and no data. In the second test the ads are the test's own.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.reconcile.publish.experiment import Experiment
from hydrator.submit.submit_files.keys import CLAUSE_LINES
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec
from tests.factories import NOON
from tests.located import Located, record

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

NAME = "ska:visibilities"
HOURS = timedelta(hours=6)


def seed_with(*, is_observing: bool) -> int:
    """Return a seed whose first block is of this arm."""
    plans = (Experiment(seed, NOON, HOURS, 2, HOURS / 6) for seed in range(100))
    return next(plan.seed for plan in plans if plan.is_observing(NOON) is is_observing)


OFF = "[experiment]\nenabled = false\n"
OBSERVE, ACTIVE = (
    f"[experiment]\nenabled = true\ndrop_minutes = 0\nseed = {seed_with(is_observing=one)}\n"
    for one in (True, False)
)


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    with (
        Pool.start(htcondor_release, [SiteSpec("UK", 1), SiteSpec("NL", 1)]) as pool,
        Installation(
            pool, ListedCatalogue(pool.home, ("UK", "NL")), road="url", settings=OBSERVE
        ) as installation,
    ):
        installation.catalogue.hold({NAME: {"UK": "available"}})
        yield installation


def configure(installed: Installation, before: str, after: str) -> None:
    text = installed.config.read_text("utf-8")
    assert before in text
    installed.config.write_text(text.replace(before, after), "utf-8")
    os.kill(installed.pid, signal.SIGHUP)


def marks(installed: Installation) -> list[object]:
    slots = installed.pool.slots("DataLocalityObserve", constraint="PartitionableSlot")
    return [slot.get("DataLocalityObserve") for slot in slots]


def test_wait_job_runs_without_its_data_only_in_an_observe_block(installed):
    pool = installed.pool
    pool.wait(lambda: marks(installed) == [True, True], 120, "both slots to be observed")
    assert installed.status()["experiment"]["is_observing"] is True
    beside = installed.submit([NAME], mode="require", seconds=3000)
    pool.wait(
        lambda: pool.job(beside, "JobStatus") == {"JobStatus": 2}, 90, "the job with mode require to run"
    )
    stock = installed.submit([NAME], mode="wait")
    assert installed.ran_at(stock, 120) == ["NL"]
    counted = json.loads(installed.run("report", "--experiment", "--json").stdout)["left_out"]
    assert counted.pop("no_pair") == 1, "it started at a site whose ad followed the plan"
    assert set(counted.values()) == {0}
    bound = installed.submit([NAME], mode="require")
    pool.wait(lambda: pool.job(bound, "LastRejMatchTime"), 60, "the negotiator to have looked at the job")
    assert pool.job(bound, "JobStatus") == {"JobStatus": 1}

    configure(installed, OBSERVE, OFF)
    pool.wait(lambda: marks(installed) == [None, None], 120, "no slot to be observed")
    configure(installed, OFF, ACTIVE)
    pool.wait(lambda: installed.status()["experiment"]["is_observing"] is False, 60, "an active block")
    waiting = installed.submit([NAME], mode="wait")
    pool.wait(lambda: pool.job(waiting, "LastRejMatchTime"), 60, "the negotiator to have looked at the job")
    assert pool.job(waiting, "JobStatus") == {"JobStatus": 1}
    assert marks(installed) == [None, None]
    for cluster in (beside, bound, waiting):
        pool.run("condor_rm", str(cluster), user="alice")


PAIR = [Did("ska:Beam@1"), Did("ska:beam_2")]
FORMS = {
    "one dataset": (f'{{"{PAIR[0]}"}}', ()),
    "several, by hydrator submit": (
        f'{{"{PAIR[0]}", "{PAIR[1]}"}}',
        (f'+DataLocalityKey = "{set_key(PAIR)}"', *CLAUSE_LINES),
    ),
    "several, bare": (f'{{"{PAIR[0]}", "{PAIR[1]}"}}', ()),
}
"""The forms of jobs with datasets: RequiredDatasets, and more lines. Each form has a clause of its own."""
BOUND_MODES = ("auto", "wait", "prefer")


def submit(located: Located, form: str, mode: str) -> int:
    datasets, lines = FORMS[form]
    wait = () if mode == "require" else ("+DataLocalityMaxWait = 3600",)
    return located.submit(datasets, *lines, f'+DataLocality = "{mode}"', *wait)


def facts(*, is_observing: bool) -> dict[str, str]:
    """Return ads in which only UK has the datasets, and reading elsewhere ends later than waiting."""
    mark = "DataLocalityObserve = true\n" if is_observing else ""
    keys = [set_key(PAIR), *(set_key([did]) for did in PAIR)]
    away = f"{mark}DataLocalityEstimatesUntil = {int(time.time()) + 3600}\n"
    away += f"DataLocalitySets = {record(dict.fromkeys([keys[0], keys[1]], 0.0))}\n"
    away += f"DataLocalityReadSeconds = {record(dict.fromkeys(keys, 4096))}\n"
    away += f"DataLocalityQueueSeconds = {record(dict.fromkeys(keys, 64))}\n"
    home = f"{mark}DataLocalitySets = {record(dict.fromkeys(keys, 1.0))}\n"
    return {"UK": home, "AU": away, "NL": away}


def test_every_form_of_job_ignores_its_data_in_observe_blocks_only(htcondor_release):
    """UK has the data and the largest slot; a stock negotiator uses NL, the smallest slot, each time."""
    with Pool.start(htcondor_release, [SiteSpec("UK", 12), SiteSpec("AU", 4), SiteSpec("NL", 2)]) as pool:
        located = Located(pool)
        bound = {(form, mode): submit(located, form, mode) for form in FORMS for mode in BOUND_MODES}

        def all_rejected() -> bool:
            names = ("AutoClusterId", "LastRejMatchTime", "JobStatus")
            jobs = pool.jobs("true", *names)
            assert {job["JobStatus"] for job in jobs} == {1}, "a job started away from its data"
            rejected = {job["AutoClusterId"] for job in jobs if "LastRejMatchTime" in job}  # one job of each
            return {job.get("AutoClusterId") for job in jobs} == rejected and len(jobs) == len(bound)

        pool.wait(all_rejected, 90, "the negotiator to have looked at every autocluster")
        located.advertise(facts(is_observing=False))
        active = {job: located.ran_at(cluster, 1, 120) for job, cluster in bound.items()}
        assert active == {job: ["UK"] for job in bound}

        located.advertise(facts(is_observing=True))
        pool.wait_free()
        assert located.ran_at(located.submit(None)) == ["NL"], "the choice of a stock pool"
        observed = {}
        for job in bound:
            pool.wait_free()
            observed[job] = located.ran_at(submit(located, *job))
        assert observed == {job: ["NL"] for job in bound}
        strict = {form: located.ran_at(submit(located, form, "require")) for form in FORMS}
        assert strict == {form: ["UK"] for form in FORMS}
