"""Texts in the ads of idle jobs: written when the phase of a request changes, and for nothing else."""

from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.condor.bindings.token_advice import NEEDS
from hydrator.domain.errors import PoolDenied
from hydrator.domain.model import Did, Unseen
from hydrator.domain.ports.staging import RefusalKind, RequestState, StagingRefused
from hydrator.privacy.pseudonyms import SCOPE
from hydrator.staging.plans.job_ads import MAX_CHARS, MAX_EDITS, MAX_JOBS, SETTLE, JobAdWriter, build_text
from hydrator.staging.policy import StagingMode
from hydrator.testing.memory_stager import Fault
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, OSO
from tests.staging_world import BOB, SCHEDD, StagingWorld, need, policy, run

OTHER = "ap2.example.org"


class MemoryJobTexts:
    """The queues: the text of each job by schedd and datasets; ``edits`` has each call."""

    def __init__(self):
        self.jobs = {}
        self.edits = []
        self.refusing = set()

    def set_staging_text(self, schedd, datasets, text, *, max_jobs):
        self.edits.append((schedd, datasets, text, max_jobs))
        if schedd in self.refusing:
            raise PoolDenied(f"schedd {schedd}", "it denies us")
        texts = self.jobs.setdefault((schedd, datasets), [None])
        due = [number for number, old in enumerate(texts) if old != text][:max_jobs]
        for number in due:
            texts[number] = text
        return len(due)


class World(StagingWorld):
    def __init__(self, rules=None, **sizes):
        self.texts = MemoryJobTexts()
        super().__init__(rules, **sizes)

    def restart(self, **more):
        writer = JobAdWriter(self.texts, lambda: self.control.stop_reason or self.guard_reason)
        super().restart(job_ads=writer, **more)

    def steps(self, count=1, after=timedelta(seconds=60)):
        """Run steps; return the texts that these wrote, without their times."""
        before = len(self.texts.edits)
        for _ in range(count):
            self.step(after)
        return [text for _, _, text, _ in self.texts.edits[before:]]


@pytest.fixture
def world():
    made = World(L1=1, L2=1)
    made.queue(need(L1))
    return made


def only_handle(world):
    (handle,) = world.stager.rules
    return handle


def test_each_phase_of_a_request_is_written_once_with_its_own_time(world):
    (asked,) = world.steps()
    assert asked == (
        "2026-11-21 12:01 UTC: lofar:L1: asked 12:01 UTC at CAM, request rule1, 0 of 100 files,"
        " ends 2026-11-24 12:01 UTC, 1 job needs it"
    )
    assert world.steps(5) == []
    world.arrive(L1)
    (arrived,) = world.steps()
    assert arrived.startswith(
        "2026-11-21 12:07 UTC: lofar:L1: asked 12:01 UTC at CAM, request rule1, complete"
    )
    assert world.steps(5) == []


def test_progress_alone_edits_no_job(world):
    world.steps()
    for done in (10, 50, 99):
        world.stager.set_state(only_handle(world), RequestState.MOVING, files_done=done)
        assert world.steps() == []
    assert world.overview.requests[0].files_done == 99


def test_a_stuck_request_is_written_once_the_operator_would_hear_of_it(world):
    world.steps()
    world.stager.set_state(only_handle(world), RequestState.STUCK)
    assert world.steps(5) == []
    (text,) = world.steps(25, HOUR)
    assert "stuck, 100 files left" in text


def test_the_reason_for_no_request_is_written_once_it_has_lasted(world):
    big = World(policy(limits=replace(policy().limits, request_bytes=5 * 10**11)), L1=1)
    big.queue(need(L1))
    assert big.steps(int(SETTLE / MINUTE)) == []
    (text,) = big.steps(20)
    assert text == "2026-11-21 12:11 UTC: not asked: 1 TB exceeds the limit of 500 GB for one request"
    big.policy = policy()
    big.restart()
    assert [each.partition(" at ")[0] for each in big.steps()] == [
        "2026-11-21 12:31 UTC: lofar:L1: asked 12:31 UTC"
    ]


def test_a_reason_that_differs_only_in_its_times_and_sizes_is_written_once(world):
    world.stager.faults["ask"] = [Fault(StagingRefused("rucio", "it is locked", RefusalKind.OTHER))]
    texts = world.steps(50)
    assert len(texts) == 1
    assert "1 attempt failed (it is locked); the next attempt is in 59 min" in texts[0]


def test_a_moment_without_an_answer_edits_no_job(world):
    world.steps()
    for _ in range(3):
        world.needs.needs[SCHEDD] = Unseen("timeout")
        assert world.steps(2) == []
        world.queue(need(L1))
        world.stager.is_broken = True
        assert world.steps(2) == []
        world.stager.is_broken = False
        assert world.steps(2) == []


def test_jobs_with_the_same_datasets_get_one_edit_also_those_that_come_later(world):
    world.queue(need(L1, jobs=3), need(L1, user=BOB, jobs=2), run(L1), need(L2))
    world.queue(need(L1), schedd=OTHER)
    world.steps()
    assert sorted((schedd, names) for schedd, names, _, _ in world.texts.edits) == [
        (SCHEDD, (L1,)), (SCHEDD, (L2,)), (OTHER, (L1,)),
    ]  # fmt: skip
    first = world.texts.edits[0][2]
    world.queue(need(L1, jobs=4), need(L1, user=BOB, jobs=2), need(L2))
    world.texts.jobs[SCHEDD, (L1,)].append(None)
    assert world.steps(3) == [first]
    assert world.texts.jobs[SCHEDD, (L1,)] == [first, first]


def test_a_large_set_of_jobs_gets_its_text_in_several_steps(world):
    world.texts.jobs[SCHEDD, (L1,)] = [None] * (2 * MAX_JOBS + 1)
    texts = world.steps(6)
    assert (len(texts), len(set(texts))) == (3, 1)
    assert set(world.texts.jobs[SCHEDD, (L1,)]) == set(texts)


def test_one_step_makes_a_limited_number_of_edits():
    names = [Did(f"lofar:D{n}") for n in range(MAX_EDITS + 5)]
    world = World(**{name.removeprefix("lofar:"): 0.01 for name in names})
    world.policy = policy(limits=replace(world.policy.limits, hour_requests=100))
    world.restart()
    world.queue(*(need(name) for name in names))
    assert [len(world.steps()) for _ in range(3)] == [MAX_EDITS, 5, 0]


def test_a_schedd_that_refuses_is_tried_with_one_job_a_step_and_hinders_no_other(world):
    world.queue(need(L1), need(L2))
    world.queue(need(L1), schedd=OTHER)
    world.texts.refusing = {SCHEDD}
    assert len(world.steps()) == 2
    assert world.overview.problems == {f"job ads {SCHEDD}": f"schedd {SCHEDD}: it denies us"}
    assert world.texts.jobs.keys() == {(OTHER, (L1,))}
    assert world.stages == {(L1, CAM), (L2, OSO)}
    world.texts.jobs[SCHEDD, (L1,)] = [None] * 3
    world.steps(3)
    assert [(schedd, most) for schedd, _, _, most in world.texts.edits[2:]] == [(SCHEDD, 1)] * 3
    world.texts.refusing.clear()
    assert len(world.steps()) == 1
    assert world.overview.problems == {}
    world.steps()
    assert None not in world.texts.jobs[SCHEDD, (L1,)]
    assert (SCHEDD, (L2,)) in world.texts.jobs


def test_nothing_is_edited_on_standby_after_a_stop_without_a_lease_or_with_the_mode_off(world):
    world.control.stop_reason = "the operator stopped staging"
    assert world.steps(20) == []
    world.control.stop_reason = None
    world.guard_reason = "the lease of this leader ends too soon"
    assert world.steps(20) == []
    world.controller.run_once(world.report, standby_reason="on standby: the daemon b publishes")
    assert world.texts.edits == []
    off = World(policy(StagingMode.OFF), L1=1)
    off.queue(need(L1))
    assert off.steps(20) == []


def test_an_unknown_error_of_an_edit_does_not_end_the_step(world):
    world.texts.set_staging_text = lambda *_, **__: 1 / 0
    world.steps()
    assert world.stages == {(L1, CAM)}
    assert "bug in the texts in the ads of jobs: ZeroDivisionError" in world.overview.problems["job ads"]


def test_jobs_with_a_private_dataset_get_no_text(world):
    private = Did(f"{SCOPE}:{'0a' * 16}")
    world.queue(need(private, L1), need(L2))
    world.steps(30)
    assert {names for _, names, _, _ in world.texts.edits} == {(L2,)}


def test_a_text_is_one_line_of_limited_length():
    text = build_text([f"lofar:L{n}: asked\n{'x' * 300}" for n in range(9)], NOON)
    assert len(text) == MAX_CHARS
    assert text.startswith("2026-11-21 12:00 UTC: lofar:L0: asked x")
    assert "\n" not in text
    assert build_text(["a", "a", "b", "c", "d"], NOON) == "2026-11-21 12:00 UTC: a; b; c; and 1 more"


def test_the_worst_dataset_of_a_job_decides_its_phase(world):
    world.queue(need(L1, L2, sites=[OSO]))
    assert len(world.steps()) == 1
    world.arrive(L1)
    assert world.steps() == []
    world.arrive(L2)
    (text,) = world.steps()
    assert text.count("complete") == 2


def test_a_denied_edit_names_the_right_that_it_needs():
    level, advice = NEEDS["set_staging_text"]
    assert level == "WRITE"
    assert "QUEUE_SUPER_USERS" in advice
