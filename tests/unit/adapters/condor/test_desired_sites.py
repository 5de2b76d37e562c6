"""Edits of DESIRED_Sites, interrupted at each step and concurrent with edits of a user.

The queue is a stand-in that stores ads and evaluates constraints as a schedd does;
tests/integration/test_desired_sites.py tests real schedds.
"""

from collections.abc import Callable

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest

from adapters.condor.bindings.desired_sites import SAVED_ATTRIBUTE, DesiredSitesEditor
from adapters.condor.bindings.library import CallError
from hydrator.domain.model import DatasetState, Did, Fact, Site
from hydrator.domain.pool_ports import JobGroup, SavedDesiredSites
from hydrator.reconcile.desired_sites.decide import decide
from tests.factories import BOUND, NOON

GROUP_BY = object()
UK = {Site("UK"): {Did("lofar:L1"): Fact(DatasetState.AVAILABLE, NOON)}}


class Denied(Exception):
    """The exception that the stand-in queue raises, as the bindings do."""


class Queue:
    """A schedd's queue; it calls *before* before each edit, with the number of the edit from 0 on."""

    def __init__(self, *jobs: str) -> None:
        self.ads = [classad2.ClassAd(f"[ClusterId = 1; ProcId = {n}; {job}]") for n, job in enumerate(jobs)]
        self.edits = 0
        self.before: Callable[[int], None] = lambda number: None
        self.keeps: set[str] = set()

    def query(self, constraint, projection, *, opts=None, limit=-1):
        found = self.matching(constraint)
        if opts is not GROUP_BY:
            return found if limit < 0 else found[:limit]
        groups: dict[tuple, list] = {}
        for ad in found:
            groups.setdefault(tuple(str(ad.lookup(name)) for name in projection if name in ad), []).append(ad)
        return [self.group(ads) for ads in groups.values()]

    def group(self, ads):
        row = classad2.ClassAd(str(ads[0]))
        row["JobCount"] = len(ads)
        row["JobIds"] = f"{ads[0]['ClusterId']}.{ads[0]['ProcId']}"
        return row

    def edit(self, jobs, attribute, literal):
        self.before(self.edits)
        self.edits += 1
        if isinstance(jobs, str):
            found = self.matching(jobs)
            if not found:
                raise Denied("Unable to edit jobs matching constraint")
        else:
            found = [ad for ad in self.ads if f"{ad['ClusterId']}.{ad['ProcId']}" in jobs]
            if len(found) < len(jobs):
                raise Denied("Unable to commit transaction:Modifying attribute in nonexistent job")
        for ad in found:
            if attribute not in self.keeps:
                ad[attribute] = classad2.ExprTree(literal)

    def matching(self, constraint):
        return [ad for ad in self.ads if classad2.ExprTree(constraint).eval(ad) is True]

    def desired(self, number=0):
        value = self.ads[number].eval("DESIRED_Sites") if "DESIRED_Sites" in self.ads[number] else None
        return None if value is classad2.Value.Undefined else value

    def marked(self):
        return any(
            SAVED_ATTRIBUTE in ad and ad.eval(SAVED_ATTRIBUTE) is not classad2.Value.Undefined
            for ad in self.ads
        )


def sites(queue: Queue) -> DesiredSitesEditor:
    return DesiredSitesEditor(classad2, Denied, queue, GROUP_BY)


def turn(queue: Queue, known=UK, at_most: int = 100) -> int:
    """Run one edit cycle of the daemon; return the number of edited jobs."""
    edited = 0
    for row in sites(queue).read_job_groups():
        mark = SavedDesiredSites(**row["kept"]) if row["kept"] else None
        jobs = JobGroup(**{**row, "kept": mark, "datasets": tuple(row["datasets"])})
        _, change = decide(jobs, known, now=NOON, max_age=BOUND, default_scope=None)
        if change:
            edited += sites(queue).set_desired_sites(
                row, change.value, change.original, not change.is_restore, at_most
            )
    return edited


def job(own: str | None = None, **more: str) -> str:
    attributes = {
        "JobStatus": "1",
        "RequiredDatasets": '{"lofar:L1"}',
        "DataLocalityDesiredSites": "true",
        **more,
    }
    if own is not None:
        attributes["DESIRED_Sites"] = f'"{own}"'
    return "; ".join(f"{name} = {text}" for name, text in attributes.items())


@pytest.mark.parametrize("own", ["UK,NL", None])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_next_cycle_completes_an_interrupted_edit_and_restores_the_own_list(own, step):
    queue = Queue(job(own), job(own))

    def kill(number):
        if number == step:
            raise KeyboardInterrupt

    queue.before = kill
    with pytest.raises(KeyboardInterrupt):
        turn(queue)
    queue.before = lambda number: None
    turn(queue)
    assert [queue.desired(n) for n in (0, 1)] == ["UK", "UK"]
    queue.edits = 0
    queue.before = kill
    with pytest.raises(KeyboardInterrupt):
        turn(queue, {})
    queue.before = lambda number: None
    turn(queue, {})
    assert [queue.desired(n) for n in (0, 1)] == [own, own]
    assert not queue.marked()


@pytest.mark.parametrize("theirs", ['"NL"', '"UK,NL,AU"', "undefined", '"UK,NL"'])
@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_edit_of_a_user_at_any_step_of_a_cycle_is_kept(step, theirs):
    """An edit that writes the same value as before, during a cycle, cannot be recognised."""
    queue = Queue(job("UK,NL"), job("UK,NL"))

    def edit(number):
        if number == step:
            queue.ads[0]["DESIRED_Sites"] = classad2.ExprTree(theirs)

    queue.before = edit
    turn(queue)
    edit(3 if step == 3 else None)
    queue.before = lambda number: None
    wanted = queue.desired()
    unseen = theirs == '"UK,NL"' and step < 3
    for known in (UK, {}, UK):
        turn(queue, known)
        assert unseen or queue.desired() == wanted
    assert queue.desired(1) == "UK"
    if not unseen:
        assert wanted == (None if theirs == "undefined" else theirs.strip('"'))


def test_job_that_starts_during_a_cycle_is_edited_once_it_is_idle_again():
    queue = Queue(job("UK,NL"))

    def start(number):
        if number == 1:
            queue.ads[0]["JobStatus"] = 2

    queue.before = start
    turn(queue)
    assert queue.desired() == "UK,NL"
    queue.ads[0]["JobStatus"] = 1
    turn(queue)
    assert queue.desired() == "UK"


def test_job_that_leaves_the_queue_during_a_cycle_does_not_block_others():
    queue = Queue(job("UK,NL"), job("UK,NL"))

    def leave(number):
        if number == 0:
            del queue.ads[0]

    queue.before = leave
    assert turn(queue) == 1
    assert queue.desired() == "UK"


@pytest.mark.parametrize(
    ("keeps", "why"), [("DESIRED_Sites", "it keeps DESIRED_Sites"), (SAVED_ATTRIBUTE, "rejected the edit")]
)
def test_schedd_that_drops_an_edit_without_an_error_is_detected_and_has_no_mark(keeps, why):
    queue = Queue(job("UK,NL"))
    queue.keeps = {keeps}
    with pytest.raises(CallError, match=why):
        turn(queue)
    assert queue.desired() == "UK,NL"
    assert not queue.marked()


def test_jobs_released_by_hand_get_no_list():
    queue = Queue(job(DataLocalityHere="true"), job(DataLocalityHere="TARGET.x =?= 1"))
    assert turn(queue) == 1
    assert [queue.desired(n) for n in (0, 1)] == [None, "UK"]


def test_jobs_with_different_inputs_of_the_decision_are_edited_apart():
    young = job(DataLocalityMaxAge="600")
    queue = Queue(young, job(), job(DataLocalityAnyAfter="1"), job("NL"), job(DataLocalityMaxAge='"odd"'))
    aged = {
        site: {did: Fact(fact.state, NOON - BOUND / 2)}
        for site, facts in UK.items()
        for did, fact in facts.items()
    }
    turn(queue, aged)
    assert [queue.desired(n) for n in range(5)] == [None, "UK", None, "NL", "UK"]
