"""Every fault of every catalogue, at the start, in steady running and while its data shrinks.

After each fault the daemon runs, other catalogues and sites continue, no false fact is published, facts keep
their state and age, and the first good answers repair everything.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hydrator.domain.model import to_unix
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.breaker import BreakerLimits
from testbed.dmapi_standin import DmapiStandIn
from testbed.faults import FaultProxy
from testbed.rucio_standin import RucioStandIn

from .length import chosen
from .sources import DirectorySource, DmapiSource, ListedSource, RucioSource, Source
from .watched import CAM, DIDS, FULL, RAL, SHRUNK, Watched

CYCLES = chosen(1, 3)
"""How long a fault lasts, in polls."""
PATIENCE = 15
"""Number of polls after which all must be well: a shrink must be confirmed."""
BUSY_SECONDS = 60
"""Seconds for which the polls continue: on a busy machine a poll may reach its time limit."""
SOURCES = {
    "a file": ListedSource,
    "folders": DirectorySource,
    "rucio (stand-in)": RucioSource,
    "dmapi (stand-in)": DmapiSource,
}


@pytest.fixture(scope="module")
def rucio_standin() -> Iterator[RucioStandIn]:
    with RucioStandIn({"CAM-DISK": CAM, "RAL-DISK": RAL}) as server:
        yield server


@pytest.fixture(scope="module")
def dmapi_standin() -> Iterator[DmapiStandIn]:
    with DmapiStandIn() as server:
        yield server


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    if request.param in {ListedSource, DirectorySource}:
        yield request.param(tmp_path, (CAM, RAL))
        return
    standin = {RucioSource: "rucio_standin", DmapiSource: "dmapi_standin"}[request.param]
    server = request.getfixturevalue(standin)
    with FaultProxy(server.url) as proxy:
        yield request.param(proxy, server, tmp_path)


@pytest.fixture
def watched(source: Source) -> Iterator[Watched]:
    made = Watched(source)
    yield made
    made.faulty.close()


def matrix(*, only_harmful: bool = False) -> pytest.MarkDecorator:
    cases = [
        pytest.param(kind, fault, id=f"{name}: {fault}")
        for name, kind in SOURCES.items()
        for fault in kind.faults
        if not (only_harmful and fault in kind.harmless)
    ]
    return pytest.mark.parametrize(("source", "fault"), cases, indirect=["source"])


def well(watched: Watched) -> None:
    """Poll until the published facts are the current truth."""
    polls, deadline = 0, time.monotonic() + BUSY_SECONDS
    while polls < PATIENCE or time.monotonic() < deadline:
        polls += 1
        if watched.run().is_complete and watched.shows(watched.truth):
            return
    raise AssertionError(f"not well after {polls} polls: {watched.published(CAM)}")


def is_reported(report: CycleReport) -> bool:
    """Return whether the daemon reports the failed catalogue, its unseen datasets, or held ads."""
    return bool(
        report.catalogue_errors["faulty"] or report.evaluation.snapshot.unseen_reasons or report.held_reasons
    )


def is_whole(report: CycleReport) -> bool:
    """Return whether the poll of the faulty catalogue had an answer about every dataset."""
    return not report.catalogue_errors["faulty"] and not report.evaluation.snapshot.unseen_reasons


@matrix()
def test_at_the_start_nothing_is_claimed_of_what_was_never_seen(watched, fault):
    watched.hold(FULL)
    watched.break_with(fault)
    if fault in watched.source.harmless:
        well(watched)
    for _ in range(CYCLES):
        if fault in watched.source.believable:
            watched.run()
        elif fault not in watched.source.harmless:
            assert is_reported(watched.run())
    watched.heal()
    well(watched)


@matrix()
def test_in_steady_running_every_fact_keeps_its_state_and_its_age(watched, fault):
    watched.hold(FULL)
    well(watched)
    well(watched)  # an unchanged ad is not published again: its facts are younger than the published times
    before, seen_at = dict(watched.collector.ads), to_unix(watched.clock.now)
    published_at = {site: min(watched.ages(site).values()) for site in (CAM, RAL)}
    watched.break_with(fault)
    if fault in watched.source.harmless:
        well(watched)
        return
    for _ in range(CYCLES):
        report = watched.run()
        if fault in watched.source.believable and not is_whole(report):
            return  # on a busy machine: a few false absences of an incomplete poll are no mass removal
    assert is_reported(report)
    for site in (CAM, RAL):
        state = "AVAILABLE" if site == CAM else "PARTIAL"
        assert watched.published(site) == {did: state for did in DIDS if site in FULL[did]}
        assert min(watched.ages(site).values()) in {published_at[site], seen_at}
    if report.catalogue_errors["faulty"]:
        assert {s: watched.collector.ads[s] for s in (CAM, RAL)} == {s: before[s] for s in (CAM, RAL)}
    watched.heal()
    well(watched)


@matrix(only_harmful=True)
def test_what_leaves_during_a_fault_is_taken_out_only_when_it_was_seen_to_be_gone(watched, fault):
    watched.hold(FULL)
    well(watched)
    watched.break_with(fault)
    watched.hold(SHRUNK)
    for _ in range(CYCLES):
        if watched.run().catalogue_errors["faulty"]:
            assert len(watched.published(CAM)) == len(DIDS)
    watched.heal()
    none_left = len(watched.published(CAM)) == len(DIDS)
    report = watched.run()
    if none_left and is_whole(report):  # else two polls may each remove a few
        assert len(watched.published(CAM)) == len(DIDS), "so much must be confirmed first"
    else:
        assert len(DIDS) - len(watched.published(CAM)) < BreakerLimits().min_datasets, (
            "so much must be confirmed first"
        )
    well(watched)
    assert len(watched.published(CAM)) == 2
