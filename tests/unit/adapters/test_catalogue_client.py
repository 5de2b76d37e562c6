"""A catalogue in a worker: its answers as rows, answers that are not valid, datasets that end the worker."""

import json
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest

from adapters.catalogue_client import MAX_FOUND, WorkerCatalogue
from adapters.catalogue_server import CatalogueServer
from adapters.worker import Message, WorkerFailed, WorkerRefused
from hydrator.domain.bugs import WorkerBug, describe_bug
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.domain.model import Did, Provenance, Seen, Survey, Unseen
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, replica

THOUSAND = frozenset(Did(f"lofar:L{n}") for n in range(1000))


class Told:
    """A catalogue with these readings, whose time goes on by a minute each poll."""

    def __init__(self, readings: dict[Did, Seen | Unseen]) -> None:
        self.name = "told"
        self.readings = readings
        self.now = NOON
        self.recounted: list[frozenset[Did]] = []
        self.error: Exception | None = None
        self.silent: frozenset[Did] = frozenset()

    def read(self, dids):
        if self.error or (dids and dids <= self.silent):
            raise self.error or CatalogueUnreachable("told", "none of them has an answer")
        self.now += MINUTE
        known = {did: self.readings[did] for did in dids if did in self.readings}
        dated = {
            did: replace(one, as_of=self.now) if isinstance(one, Seen) and one.as_of == NOON else one
            for did, one in known.items()
        }
        return Survey(self.name, self.now, frozenset({CAM, RAL}), dated, frozenset({"NOWHERE-DISK"}))

    def find(self, patterns):
        return frozenset(self.readings)

    def recount(self, dids):
        self.recounted.append(dids)

    def close(self) -> None: ...


class Fragile:
    """A worker in this process. It asks its server in batches of 100, and ends at each of ``poison``.

    ``second`` is the worker beside it; a catalogue that asks no more than one question at a time needs one.
    """

    def __init__(
        self,
        catalogue: Told,
        poison=(),
        garble: Callable[[Any], Any] = lambda part: part,
        *,
        is_silent=False,
    ) -> None:
        self.catalogue = catalogue
        self.poison = frozenset(map(Did, poison))
        self.slow: frozenset[Did] = frozenset()
        self.is_silent = is_silent
        self.ends = 0
        self.second: Fragile | None = None
        self.is_closed = False
        self.failed_starts = 0
        """The next starts that fail."""
        self.requests: list[Message] = []
        self.parts: list[Message] = []
        self.garble = garble
        self.before_request: Callable[[int], None] = lambda number: None
        self.before_second: Callable[[int], None] | None = None
        """Called before each request to the second worker, in place of ``before_request``."""
        self._server = CatalogueServer(catalogue, catalogue)

    def start(self) -> None:
        if self.is_closed:
            raise WorkerFailed("it is closed", has_ended_itself=False)
        if self.failed_starts:
            self.failed_starts -= 1
            raise WorkerFailed("its process could not be started")

    def close(self) -> None:
        self.is_closed = True

    def beside(self) -> "Fragile":
        if self.second is None:
            self.second = Fragile(self.catalogue, garble=self.garble, is_silent=self.is_silent)
        self.second.poison, self.second.slow = self.poison, self.slow
        self.second.before_request = self.before_second or self.before_request
        self.second.is_closed = False
        self.second._server = CatalogueServer(self.catalogue, self.catalogue)
        return self.second

    def exchange(
        self, request: Message, seconds: float, on_part: Callable[[Any], None] | None = None
    ) -> Message:
        assert on_part
        self.requests.append(request)
        self.before_request(len(self.requests))
        try:
            return self._answer(request, on_part)
        except WorkerFailed:
            self.ends += 1
            self._server = CatalogueServer(self.catalogue, self.catalogue)
            raise

    def _answer(self, request: Message, on_part: Callable[[Any], None]) -> Message:
        dids = request.get("dids", [])
        for batch in (dids[start : start + 100] for start in range(0, len(dids), 100)):
            if not self.is_silent:
                on_part({"asks": batch})
            if not self.poison.isdisjoint(batch) or not self.slow.isdisjoint(batch):
                raise WorkerFailed("its process needs too much", has_ended_itself=self.slow.isdisjoint(batch))
        parts: list[Message] = []
        answer: Message = json.loads(json.dumps(self._server.answer(request, parts.append)))
        self.parts += parts
        for part in parts:
            on_part(json.loads(json.dumps(self.garble(part))))
        return answer


class Clock:
    """A clock that stands still but where a test, or a question to a worker, moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> Callable[[int], None]:
        """Return a call before each request that takes so long."""

        def take(number: int) -> None:
            self.now += seconds

        return take

    def next_interval(self) -> None:
        self.now = 60 * (self.now // 60 + 1)


def at_once(work: Callable[[], object]) -> Callable[[], bool]:
    """A thread that has ended before the poll returns."""
    work()
    return lambda: True


def as_late_as_possible(work: Callable[[], object]) -> Callable[[], bool]:
    """A thread that works just before the next poll asks for its answers."""
    waiting = [work]

    def has_ended() -> bool:
        if waiting:
            waiting.pop()()
        return True

    return has_ended


def proxy(
    told: Told, *, is_slow_at_first=False, monotonic=lambda: 0.0, start_thread=at_once, **more: Any
) -> tuple[WorkerCatalogue, Fragile]:
    worker = Fragile(told, **more)
    options = {"is_slow_at_first": is_slow_at_first, "monotonic": monotonic, "start_thread": start_thread}
    return WorkerCatalogue("told", worker, 60, **options), worker


def test_survey_arrives_as_the_catalogue_gave_it():
    why = Provenance("whole; rule r ends", "r", "ann", NOON, NOON + HOUR)
    told = Told(
        {
            L1: Seen(NOON, (replace(replica(), storage="D", provenance=why), replica()), 7, frozenset({RAL})),
            L2: Seen(NOON - HOUR, (), None, frozenset(), frozenset({Did("lofar:l2")})),
            Did("lofar:L3"): Unseen("the server is away"),
        }
    )
    catalogue, _ = proxy(told)
    survey = catalogue.read(frozenset(told.readings))
    assert survey.sites == {CAM, RAL}
    assert survey.started_at == NOON + MINUTE
    assert survey.unmapped_storages == {"NOWHERE-DISK"}
    assert survey.readings[L1] == replace(told.readings[L1], as_of=NOON + MINUTE)
    assert survey.readings[L2] == told.readings[L2]
    assert survey.readings[Did("lofar:L3")] == Unseen("the server is away")
    assert catalogue.find(["*"]) == told.readings.keys()


def test_row_that_has_not_changed_is_sent_as_a_name_and_is_the_same_object():
    told = Told({did: Seen(NOON, (replica(did),)) for did in THOUSAND})
    catalogue, worker = proxy(told)
    first = catalogue.read(THOUSAND)
    assert [len(part["rows"]["seen"]) for part in worker.parts] == [500, 500, 0]
    told.readings[L2] = Seen(NOON, (replica(L2, RAL),))
    second = catalogue.read(THOUSAND - {L1})
    assert [len(part["rows"]["seen"]) for part in worker.parts[3:]] == [1, 0]
    assert second.readings[L2].replicas == (replica(L2, RAL),)
    third = Did("lofar:L3")
    assert second.readings[third].replicas is first.readings[third].replicas
    assert second.readings[third].as_of == NOON + 2 * MINUTE
    catalogue.read(THOUSAND - {L1})
    assert catalogue.read(THOUSAND).readings[L1].replicas == (replica(L1),)
    assert [request["forget"] for request in worker.requests] == [[], [L1], [], []]


def test_recounts_are_of_the_next_poll_alone():
    told = Told({L1: Seen(NOON), L2: Seen(NOON)})
    catalogue, _ = proxy(told)
    catalogue.recount({L1, Did("lofar:L9")})
    catalogue.read({L1, L2})
    catalogue.read({L1, L2})
    assert told.recounted == [{L1}]


@pytest.mark.parametrize("kind", [CatalogueDenied, CatalogueUnreachable, CatalogueGarbled])
def test_error_of_the_catalogue_is_the_same_error_here(kind):
    told = Told({})
    told.error = kind("told", "no")
    with pytest.raises(kind, match="no"):
        proxy(told)[0].read({L1})


MAKER = "the plugin told of their-catalogue 1.0 (Ann <ann@example.org>)"


@pytest.mark.parametrize(
    ("more", "ending"),
    [({}, "troubleshooting.md"), ({"maker": MAKER}, f"please report it to the maker of {MAKER}")],
)
def test_bug_of_a_catalogue_is_reported_to_its_maker_without_values(more, ending):
    told = Told({})
    told.error = KeyError("a secret name")
    with pytest.raises(WorkerBug) as caught:
        WorkerCatalogue("told", Fragile(told), 60, **more).read({L1})
    assert "a secret name" not in str(caught.value)
    sentence = describe_bug("catalogue told", caught.value)
    assert "KeyError at adapters/test_catalogue_client.py" in sentence
    assert (ending in sentence, "troubleshooting.md" in sentence) == (True, not more)


def with_row(change: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    def garble(part: Any) -> Any:
        rows = part["rows"]
        return {"rows": {**rows, "seen": [change(list(row)) for row in rows["seen"]]}}

    return garble


@pytest.mark.parametrize(
    "garble",
    [
        lambda _: {"rows": []},
        lambda part: {"rows": {**part["rows"], "names": [""]}},
        lambda part: {"rows": {**part["rows"], "names": ["x" * 501]}},
        lambda part: {"rows": {**part["rows"], "names": []}},
        lambda part: {"rows": {**part["rows"], "same": [L1]}},
        with_row(lambda row: ["lofar:L9", *row[1:]]),
        with_row(lambda row: [*row[:1], 10**30, *row[2:]]),
        with_row(lambda row: [*row[:2], -1, *row[3:]]),
        with_row(lambda row: [*row[:5], [[0, 9, None, 0]]]),
        with_row(lambda row: [*row[:5], [[0, 0, 1.5, 0]]]),
        with_row(lambda row: [*row[:5], [[0, 0, None, 7]]]),
    ],
)
def test_part_that_is_not_valid_is_garbled(garble):
    catalogue, _ = proxy(Told({L1: Seen(NOON, (replica(),))}), garble=garble)
    with pytest.raises(CatalogueGarbled, match="the answer of its worker"):
        catalogue.read({L1})


def thousand(**more: Any) -> tuple[WorkerCatalogue, Fragile]:
    return proxy(Told({did: Seen(NOON) for did in THOUSAND}), **more)


def stale(survey: Survey) -> set[Did]:
    return {did for did in THOUSAND if not isinstance(survey.readings[did], Seen)}


def poll_until_stale_are(catalogue: WorkerCatalogue, dids: Collection[Did]) -> None:
    while stale(catalogue.read(THOUSAND)) > set(dids):
        pass


def assert_all_are_back_two_intervals_later(catalogue: WorkerCatalogue, worker: Fragile) -> None:
    """Let the worker be well, and poll twice."""
    worker.poison = worker.slow = frozenset()
    catalogue.read(THOUSAND)
    assert not stale(catalogue.read(THOUSAND))


def take(worker: Fragile) -> tuple[list[int], list[int]]:
    """Return the sizes of the requests to *worker*, and to that beside it, since the last call."""
    sizes = []
    for one in (worker, worker.beside()):
        sizes.append([len(request.get("dids", ())) for request in one.requests])
        one.requests.clear()
    return sizes[0], sizes[1]


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("start_thread", [at_once, as_late_as_possible])
def test_dataset_that_ends_the_worker_is_named_and_asked_in_a_process_of_its_own(is_silent, start_thread):
    """A worker that reports no question, such as a plugin's, ended at the whole request."""
    told = Told({did: Seen(NOON) for did in THOUSAND})
    catalogue, worker = proxy(told, poison=["lofar:L777"], is_silent=is_silent, start_thread=start_thread)
    first = catalogue.read(THOUSAND)
    assert stale(first) == {"lofar:L777"}
    assert "its worker ended at this dataset" in first.readings[Did("lofar:L777")].reason
    take(worker)
    alone: list[int] = []
    for _ in range(12):
        survey = catalogue.read(THOUSAND)
        assert stale(survey) == {"lofar:L777"}
        assert {one.as_of for one in survey.readings.values() if isinstance(one, Seen)} == {told.now}
        catalogue.find(["*"])
        sound, second = take(worker)
        assert sound == [999, 0]
        alone += second
    assert alone == [1] * (12 if start_thread is at_once else 11)
    assert worker.ends == 1, "it keeps what it knows of the others"
    assert_all_are_back_two_intervals_later(catalogue, worker)


def test_dataset_whose_answer_is_too_slow_is_found_at_one_limit_a_poll():
    catalogue, worker = thousand()
    worker.slow = frozenset({Did("lofar:L777")})
    for _ in range(10):
        ends = worker.ends + worker.beside().ends
        survey = catalogue.read(THOUSAND)
        assert len(stale(survey)) <= 100
        assert worker.ends + worker.beside().ends - ends <= 2
    assert stale(survey) == worker.slow
    assert worker.ends == 1
    assert_all_are_back_two_intervals_later(catalogue, worker)


def test_many_datasets_that_end_their_process_are_asked_in_turn():
    poison = [f"lofar:L{n}" for n in range(20)]
    catalogue, worker = thousand(poison=poison)
    poll_until_stale_are(catalogue, set(poison))
    asked = []
    for _ in range(5):
        worker.beside().requests.clear()
        assert stale(catalogue.read(THOUSAND)) == set(poison)
        assert len(worker.beside().requests) == 16
        asked += [did for request in worker.beside().requests for did in request["dids"]]
    assert {asked.count(did) for did in poison} == {4}


@pytest.mark.parametrize("polls", [1, 2])
@pytest.mark.parametrize("well", range(5))
def test_one_of_several_datasets_that_take_long_is_back_after_two_intervals(polls, well):
    """Five questions of 9 s are asked in an interval of 60 s."""
    clock, poison = Clock(), [Did(f"lofar:L{n}") for n in range(5)]
    catalogue, worker = thousand(poison=poison, monotonic=clock)
    poll_until_stale_are(catalogue, set(poison))
    worker.before_second = clock.takes(9)
    for _ in range(polls):
        clock.next_interval()
        assert stale(catalogue.read(THOUSAND)) == set(poison)
    worker.poison = frozenset(poison) - {poison[well]}
    for _ in range(2):
        clock.next_interval()
        survey = catalogue.read(THOUSAND)
    assert stale(survey) == worker.poison


@pytest.mark.parametrize("polls", [2, 3, 4])
def test_dataset_that_takes_long_to_end_its_process_is_back_after_two_intervals(polls):
    clock = Clock()
    catalogue, worker = thousand(poison=["lofar:L777"], monotonic=clock)
    worker.before_second = clock.takes(7)
    for _ in range(polls):
        assert stale(catalogue.read(THOUSAND)) == worker.poison
        clock.now += 5
    worker.poison = frozenset()
    catalogue.read(THOUSAND)
    clock.now += 5
    assert not stale(catalogue.read(THOUSAND))


@pytest.mark.parametrize(("start_seconds", "seconds", "questions"), [(0, 120, 100), (5, 0, 400)])
def test_slow_dataset_costs_half_of_the_time_of_a_second_process(start_seconds, seconds, questions):
    """A process that starts slowly says nothing about its dataset, which is asked after each poll."""
    clock, is_running = Clock(), False
    catalogue, worker = thousand(monotonic=clock)
    worker.slow = frozenset({Did("lofar:L777")})
    poll_until_stale_are(catalogue, worker.slow)

    def take_long(number: int) -> None:
        nonlocal is_running
        clock.now += seconds
        is_running = False  # it ends at this question

    def start() -> None:
        nonlocal is_running
        clock.now += 0 if is_running else start_seconds
        is_running = True

    second = worker.beside()
    second.before_request = take_long
    second.start = start  # type: ignore[method-assign]
    worker.beside = lambda: second  # type: ignore[method-assign]
    second.close = lambda: None  # type: ignore[method-assign]
    second.requests.clear()
    for _ in range(400):
        assert stale(catalogue.read(THOUSAND)) == worker.slow
        clock.now += 30
    assert len(second.requests) == questions


class Waiting:
    """A thread that works when the test runs ``work``."""

    def __init__(self) -> None:
        self.is_over = False
        self.started: list[Callable[[], object]] = []

    def __call__(self, work: Callable[[], object]) -> Callable[[], bool]:
        self.started.append(work)
        return lambda: self.is_over


def test_no_poll_and_no_search_waits_for_a_slow_dataset():
    thread = Waiting()
    catalogue, worker = thousand(poison=["lofar:L777"], start_thread=thread)
    catalogue.read(THOUSAND)
    for _ in range(3):
        assert stale(catalogue.read(THOUSAND)) == worker.poison
        assert catalogue.find(["*"]) == THOUSAND
    assert len(thread.started) == 1
    worker.poison = frozenset()
    thread.started[0]()
    assert not stale(catalogue.read(THOUSAND)), "the thread is about to end, but has the answer"
    thread.is_over = True
    assert not stale(catalogue.read(THOUSAND))
    assert len(thread.started) == 1


def test_polls_use_what_a_thread_has_asked_so_far_and_new_suspects_stop_it():
    thread = Waiting()
    poison = [Did(f"lofar:L{n}") for n in range(5)]
    catalogue, worker = thousand(poison=poison, start_thread=thread)
    thread.is_over = True
    poll_until_stale_are(catalogue, set(poison))
    catalogue.read(THOUSAND)
    thread.is_over = False
    second = worker.beside()
    second.requests.clear()
    stale_datasets: list[set[Did]] = []

    def poll(number: int) -> None:
        """Poll while the thread waits for an answer. The first one is good; then one more ends the worker."""
        if number == 1:
            second.poison = worker.poison = worker.poison - set(second.requests[0]["dids"])
        elif number == 3:
            worker.poison |= {Did("lofar:L777")}
        stale_datasets.append(stale(catalogue.read(THOUSAND)))

    worker.before_second = poll
    started = len(thread.started)
    thread.started[-1]()
    assert stale_datasets[:2] == [set(poison), worker.poison - {"lofar:L777"}]
    assert len(stale_datasets[2]) == 4 + 100
    assert len(second.requests) == 3
    assert len(thread.started) == started
    worker.before_second = None
    thread.is_over = True
    poll_until_stale_are(catalogue, worker.poison)


@pytest.mark.parametrize("starts", [1, 100])
def test_worker_that_cannot_start_blames_no_dataset(starts):
    catalogue, worker = proxy(Told({did: Seen(NOON) for did in MANY}), is_slow_at_first=True)
    worker.failed_starts = starts
    with pytest.raises(CatalogueUnreachable, match="could not be started"):
        catalogue.read(MANY)
    assert worker.failed_starts == starts - 1
    worker.failed_starts = 0
    catalogue.read(MANY)
    assert take(worker) == ([500, 1000, 1500, 2250, 3000], [])


@pytest.mark.parametrize("is_found", [False, True])
def test_second_process_that_cannot_start_blames_no_dataset(is_found):
    catalogue, worker = thousand(poison=["lofar:L777"])
    if is_found:
        catalogue.read(THOUSAND)
    worker.beside().failed_starts = 1
    survey = catalogue.read(THOUSAND)
    assert worker.poison <= stale(survey)
    assert worker.beside().failed_starts == 0
    assert_all_are_back_two_intervals_later(catalogue, worker)


@pytest.mark.parametrize("is_found", [False, True])
def test_second_process_whose_configuration_is_wrong_is_closed(is_found):
    catalogue, worker = thousand(poison=["lofar:L777"])
    second = worker.beside()
    if is_found:
        catalogue.read(THOUSAND)
    wrong: Message = {"error": {"kind": "config", "problems": ["no token file"], "reason": ""}}
    answer, second._answer = second._answer, lambda *_: wrong  # type: ignore[method-assign]
    assert worker.poison <= stale(catalogue.read(THOUSAND))
    assert second.is_closed
    second._answer = answer  # type: ignore[method-assign]
    assert_all_are_back_two_intervals_later(catalogue, worker)


@pytest.mark.parametrize("is_found", [False, True])
def test_poll_that_ends_after_its_catalogue_was_closed_asks_no_second_process(is_found):
    catalogue, worker = thousand(poison=["lofar:L777"])
    if is_found:
        catalogue.read(THOUSAND)
        take(worker)
    asks_last = 2 - is_found
    worker.before_request = lambda number: catalogue.close() if number == asks_last else None
    with suppress(CatalogueUnreachable):
        catalogue.read(THOUSAND)
    assert worker.second
    assert not worker.second.requests


MANY = frozenset(Did(f"lofar:L{n:04}") for n in range(3000))
OLD = sorted(MANY)[-300:]


def unseen(catalogue: WorkerCatalogue) -> set[Did]:
    """Poll MANY, and return the datasets without an answer."""
    return {did for did, one in catalogue.read(MANY).readings.items() if isinstance(one, Unseen)}


def test_new_worker_is_asked_about_more_and_more_and_then_about_all():
    told = Told({did: Seen(NOON) for did in MANY})
    catalogue, worker = proxy(told, is_slow_at_first=True)
    catalogue.recount(set(OLD))
    survey = catalogue.read(MANY)
    assert [len(request["dids"]) for request in worker.requests] == [500, 1000, 1500, 2250, 3000]
    assert {one.as_of for one in survey.readings.values()} == {survey.started_at}
    assert all(request["recount"] == OLD for request in worker.requests), "the last asks about these"
    catalogue.read(MANY)
    assert len(worker.requests) == 6
    more = frozenset(Did(f"ska:L{n}") for n in range(1200))
    told.readings |= {did: Seen(NOON) for did in more}
    catalogue.read(MANY | more)
    assert [len(request["dids"]) for request in worker.requests[6:]] == [3500, 4200]


def test_new_worker_that_takes_long_answers_in_time_and_goes_on_in_the_next_poll():
    clock = Clock()
    told = Told({did: Seen(NOON) for did in MANY})
    catalogue, worker = proxy(told, is_slow_at_first=True, monotonic=clock)
    worker.before_request = clock.takes(61)
    unread = [len(unseen(catalogue)) for _ in range(3)]
    assert unread == [2000, 750, 0]
    assert [len(request["dids"]) for request in worker.requests] == [500, 1000, 1500, 2250, 2750, 3000]


def test_answers_before_the_end_of_a_worker_are_kept_and_the_oldest_come_first():
    told = Told({did: Seen(NOON) for did in MANY})
    catalogue, worker = proxy(told, is_slow_at_first=True)
    worker.slow = frozenset(OLD)
    unread = unseen(catalogue)
    assert set(OLD) <= unread
    assert len(unread) <= 1000
    worker.requests.clear()
    worker.slow = frozenset()
    assert not unseen(catalogue)
    assert set(worker.requests[0]["dids"]) <= unread


def test_oldest_datasets_without_an_answer_do_not_hide_the_others():
    told = Told({did: Seen(NOON) for did in MANY})
    told.silent = frozenset(sorted(MANY)[:700])
    told.readings |= dict.fromkeys(told.silent, Unseen("silent"))
    catalogue, worker = proxy(told, is_slow_at_first=True)
    for _ in range(2):
        assert unseen(catalogue) == told.silent
    assert [len(request["dids"]) for request in worker.requests] == [500, 3000, 3000]


def test_error_after_some_answers_keeps_these():
    told = Told({did: Seen(NOON) for did in MANY})
    catalogue, worker = proxy(told, is_slow_at_first=True)
    worker.before_request = lambda number: setattr(
        told, "error", CatalogueUnreachable("told", "502") if number > 2 else None
    )
    readings = catalogue.read(MANY).readings
    assert sum(isinstance(one, Seen) for one in readings.values()) == 1000
    assert readings[OLD[0]] == Unseen("502")
    with pytest.raises(CatalogueUnreachable, match="502"):
        catalogue.read(MANY)


def test_sick_catalogue_ends_its_worker_so_often_and_is_back_at_once():
    catalogue, worker = thousand(poison=THOUSAND)
    assert stale(catalogue.read(THOUSAND)) == THOUSAND
    assert len(worker.requests) <= 20
    assert_all_are_back_two_intervals_later(catalogue, worker)


def test_catalogue_whose_answers_are_too_slow_costs_two_limits_a_poll():
    catalogue, worker = thousand()
    worker.slow = THOUSAND
    with pytest.raises(CatalogueError, match="its process needs too much"):
        catalogue.read(THOUSAND)
    assert len(worker.requests) == 2
    worker.slow = frozenset()
    assert not stale(catalogue.read(THOUSAND))


def test_worker_that_ends_before_any_question_is_a_catalogue_that_does_not_answer():
    catalogue, _ = proxy(Told({L1: Seen(NOON)}), garble=lambda _: raise_failure())
    with pytest.raises(CatalogueUnreachable):
        catalogue.read(frozenset())
    with pytest.raises(CatalogueUnreachable):
        catalogue.find(["*"])


def test_patterns_that_match_more_datasets_than_the_daemon_is_made_for_are_refused():
    told = Told({Did(f"lofar:L{n}"): Seen(NOON) for n in range(MAX_FOUND)})
    catalogue, _ = proxy(told)
    assert len(catalogue.find(["*"])) == MAX_FOUND
    told.readings[Did("lofar:more")] = Seen(NOON)
    with pytest.raises(CatalogueError, match="more than 50,000 datasets match"):
        catalogue.find(["*"])


@pytest.mark.parametrize(("kind", "error"), [("config", ConfigError), ("bug", None)])
def test_catalogue_that_cannot_be_built_stops_a_command_if_its_configuration_is_wrong(kind, error):
    class Refusing(Fragile):
        def start(self) -> None:
            raise WorkerRefused({"kind": kind, "reason": "no", "problems": ["no such file"]})

        def exchange(self, request: Message, seconds: float, on_part=None) -> Message:
            raise WorkerRefused({"kind": kind, "reason": "no"})

    catalogue = WorkerCatalogue("told", Refusing(Told({})), 60)
    with pytest.raises(error, match="no such file") if error else nullcontext():
        catalogue.start()
    with pytest.raises(CatalogueUnreachable, match="no"):
        catalogue.read({L1})


def raise_failure() -> None:
    raise WorkerFailed("it ended")
