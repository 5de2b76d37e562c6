"""Misses that jobs report: each is logged and counted once, and its dataset is counted again."""

from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from hydrator.daemon.background import MissTasks
from tests.factories import CAM, L1, L2
from tests.unit.daemon.contexts import context_with, runtime_with


def miss(did: str, when: int = 1795000000, site: str = "CAM") -> str:
    return f"{when} {did} {site}"


def collector():
    """Return a function that runs the task once with some reports, the sets of DIDs to count again, and more.

    The function returns the misses that were counted at a site; the last value is the context of the task.
    """
    registry = CollectorRegistry()
    report = SimpleNamespace(evaluation=SimpleNamespace(ads={CAM: None}))
    context, recounted = context_with(registry=registry, report=report), []
    tasks = MissTasks(context)

    def run(*jobs, site="CAM"):
        tasks._collect_misses(lambda: jobs, [recounted.append])
        return registry.get_sample_value("hydrator_missed_datasets_total", {"site": site})

    return run, recounted, context


def test_each_miss_is_counted_and_recounted_once():
    run, recounted, _ = collector()
    assert run([miss(L1)]) == 1
    assert run([miss(L1)], [miss(L2), "no miss"]) == 2
    assert run([miss(L2), miss(L1, 1795000060)]) == 3
    assert recounted == [{L1}, {L2}, {L1}]


def test_misses_wait_for_the_first_cycle_and_count_at_sites_that_have_an_ad():
    run, recounted, context = collector()
    report, context.report = context.report, None
    assert run([miss(L1)]) is None
    assert recounted == []
    context.report = report
    assert run([miss(L1), miss(L2, site="a job's invention")]) == 1
    assert run(site="unknown") == 1


def test_misses_are_read_only_where_the_daemon_asks_schedds():
    scheduled = []
    scheduler = SimpleNamespace(
        add_job=lambda *given, **named: scheduled.append(named["id"]), add_executor=lambda *_: None
    )
    for misses in (None, SimpleNamespace(read_reports=list)):
        MissTasks(context_with()).schedule(
            runtime_with(scheduler, pool=SimpleNamespace(misses=misses), recounts=[])
        )
    assert scheduled == ["misses"]
