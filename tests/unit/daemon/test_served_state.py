"""The state that the HTTP server answers from: a cycle builds it once, and each request adds what is new."""

import os
import threading
from collections import UserList
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import httpx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from adapters.http.publisher import WebPublisher
from hydrator.config import Settings, parse
from hydrator.daemon import http_frontend
from hydrator.daemon.cycles import CycleRunner
from hydrator.daemon.http_frontend import HttpFrontend
from hydrator.daemon.runtime import Machine
from hydrator.diagnostics.overview.saved import Reload
from hydrator.diagnostics.why.query import WhyQuery, WhyResult
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import CatalogueError, ConfigError
from hydrator.domain.model import (
    DaemonKnowledge,
    DatasetState,
    Demand,
    DemandEntry,
    Origin,
    Replica,
    SiteFacts,
    Snapshot,
    to_unix,
)
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import ReconcileState
from hydrator.server.limits import TURN_WAIT_SECONDS, ConnectionLimiter
from hydrator.server.pages.overview import render_overview
from hydrator.server.view import ServerState, view_datasets
from tests.factories import CAM, L1, NOON, settings_with
from tests.memory import MemoryCatalogue
from tests.served import server_of
from tests.unit.daemon.contexts import context_with

pytestmark = pytest.mark.outside

REQUESTS = (
    f"/v1/sites/{CAM}/ad",
    "/v1/sites",
    f"/v1/datasets?did={L1}",
    "/v1/sets",
    "/healthz",
    "/readyz",
    "/metrics",
    "/",
    f"/site?site={CAM}",
    f"/dataset?did={L1}",
)


class CountedEntries(UserList[DemandEntry]):
    """Demand entries that count their readers."""

    read_count = 0

    def __iter__(self) -> Iterator[DemandEntry]:
        self.read_count += 1
        return iter(self.data)


class EndOfTest(Exception):
    """The cycle has begun."""


class Cycles:
    """Cycles of one catalogue, recorded as the daemon does it."""

    def __init__(self, *, has_http: bool = True) -> None:
        self.now = NOON
        self.hang_reason: str | None = None
        self.web_publisher = WebPublisher(lambda: None, self._clock)
        self.context = context_with(settings=Settings(publish={"http": {"enabled": has_http}}))
        parts = SimpleNamespace(web_publisher=self.web_publisher, pool=SimpleNamespace(client=None))
        self.context.runtime = SimpleNamespace(parts=parts)
        self._runner = CycleRunner(
            self.context, Mock(), Mock(), stopping=Mock(), is_clock_stepping=Mock(), machine=Mock()
        )
        self._reconciler = Reconciler(
            catalogues=[
                MemoryCatalogue("it", (Replica(L1, CAM, DatasetState.AVAILABLE),), (CAM,), clock=self._clock)
            ],
            queues=None,
            targets=(),
            settings=settings_with(pins={L1}),
            clock=self._clock,
            state=ReconcileState(),
            store=None,
        )
        self.frontend = HttpFrontend(
            self.context,
            CollectorRegistry(),
            lambda: self.hang_reason,
            Machine(clock=self._clock),
        )
        self.server = server_of(self.frontend.build_state)

    def _clock(self) -> datetime:
        return self.now

    def run(self, omitted_entries: Sequence[DemandEntry] = ()) -> None:
        """Run a cycle that publishes the ads, but has no room for *omitted_entries*."""
        report = self._reconciler.run()
        evaluation = report.evaluation
        drafts = {
            site: replace(draft, omitted_entries=omitted_entries) for site, draft in evaluation.drafts.items()
        }
        self.web_publisher.put(evaluation.ads.values())
        self.record(replace(report, evaluation=replace(evaluation, drafts=drafts)))

    def record(self, report: CycleReport) -> None:
        self._runner.record(self._reconciler, report, 0.1)

    def poll(self, reconciler: Reconciler, *, is_poll: bool = True) -> None:
        self._runner._run_cycle(reconciler, is_poll=is_poll)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.server.url}{path}", trust_env=False, timeout=120)

    def get_dataset(self) -> dict:
        return self.get(f"/v1/datasets?did={L1}").json()["datasets"][0]

    def get_site(self) -> dict:
        return self.get("/v1/sites").json()["sites"][0]


@pytest.fixture
def cycles():
    made = Cycles()
    with made.server:
        yield made


def test_requests_between_two_cycles_share_one_state(cycles):
    omitted = CountedEntries([DemandEntry((L1,), 1, Origin.JOB, NOON, set_key((L1,)))])
    cycles.run(omitted)
    read_count = omitted.read_count
    for path in REQUESTS * 3:
        assert cycles.get(path).status_code == 200, path
    assert omitted.read_count == read_count
    assert cycles.get_dataset()["left_out_at"] == [CAM]


def test_answers_about_named_datasets_count_the_jobs_once():
    entries = CountedEntries([DemandEntry((L1,), 3, Origin.JOB, NOON, set_key((L1,)))])
    state = ServerState(now=NOON, demand=Demand(entries))
    rows = [view_datasets(state, DaemonKnowledge(NOON, Snapshot({})), [L1]) for _ in range(5)]
    assert {row.jobs for (row,) in rows} == {3}
    assert entries.read_count <= 3  # for the jobs, the names and those that are kept


def test_answer_after_a_cycle_is_that_of_this_cycle(cycles):
    assert cycles.get("/readyz").status_code == 503
    cycles.run((DemandEntry((L1,), 1, Origin.JOB, NOON, set_key((L1,))),))
    assert cycles.get("/readyz").status_code == 200
    assert cycles.get_dataset()["left_out_at"] == [CAM]
    cycles.run()
    assert cycles.get_dataset()["left_out_at"] == []


def test_openings_end_between_two_cycles(cycles):
    cycles.run()
    ad = replace(cycles.web_publisher.ads()[CAM], open_until=NOON + timedelta(minutes=5))
    cycles.web_publisher.put([ad])
    until = [cycles.get_site()["open_until"]]
    cycles.now += timedelta(minutes=5)
    until.append(cycles.get_site()["open_until"])
    assert until == [(NOON + timedelta(minutes=5)).timestamp(), None]


def test_ad_is_served_when_it_is_published_not_when_the_cycle_ends(cycles):
    cycles.run()
    ad = replace(cycles.web_publisher.ads()[CAM], generation=7)
    cycles.web_publisher.put([ad])
    assert cycles.get(f"/v1/sites/{CAM}/ad").headers["ETag"].startswith('"7-')


def test_health_changes_between_two_cycles(cycles):
    cycles.run()
    cycles.hang_reason = "no step for an hour"
    cycles.context.reload = Reload(to_unix(NOON), ("a bad line",))
    assert cycles.get("/healthz").status_code == 503
    problems = cycles.frontend.build_state().problems
    assert {one.subject for one in problems} == {"daemon", "configuration"}


def test_a_page_after_a_cycle_counts_nothing_itself(cycles, monkeypatch):
    for _ in range(2):
        cycles.run()
        state = cycles.frontend.build_state()
        with monkeypatch.context() as patch:
            patch.setattr(SiteFacts, "find", lambda *_: pytest.fail("a reader builds facts"))
            assert cycles.get_site()["states"] == {"AVAILABLE": 1}
        assert L1 in render_overview(state)
        assert cycles.get(f"/site?site={CAM}").status_code == 200


@pytest.mark.parametrize("reason", ["news", "the first cycle", "another answer"])
def test_a_poll_without_news_runs_no_cycle(cycles, reason):
    reconciler = Mock()
    reconciler.poll.return_value.has_news = False
    cycles.run()
    cycles.poll(reconciler)
    assert not reconciler.run.called
    reconciler.run.side_effect = EndOfTest
    reconciler.poll.return_value.has_news = reason == "news"
    if reason == "the first cycle":
        cycles.context.report = None
    with pytest.raises(EndOfTest):
        cycles.poll(reconciler, is_poll=reason != "another answer")


def test_a_daemon_without_pages_counts_nothing():
    cycles = Cycles(has_http=False)
    cycles.run()
    assert cycles.context.cycle_state is None


def test_search_finds_no_name_that_is_never_published(tmp_path):
    file = tmp_path / "list.toml"
    file.write_text('sites = ["UK"]\n[datasets."x:L1"]\n[datasets."x:L2_own"]\n[datasets."own:L1"]\n')
    settings = Settings(catalogue=[{"type": "file", "path": file}], publish={"never": ["own:*", "*_own"]})
    assert http_frontend.find_datasets(settings, ["*:L*"]) == {"x:L1"}
    file.unlink()  # the catalogue is not asked for names that are never published
    assert http_frontend.find_datasets(settings, ["own:L1", "x:L2_own"]) == frozenset()
    with pytest.raises(CatalogueError, match="file: "):
        http_frontend.find_datasets(settings, ["*:L*"])


@pytest.mark.parametrize("never", [["own:*"], []])
def test_a_failed_search_names_no_dataset_if_some_are_never_published(tmp_path, never):
    file = tmp_path / "list.toml"
    file.write_text('sites = ["UK"]\n[datasets."own:L1_secret"]\nsites.UK = "odd"\n')
    settings = Settings(catalogue=[{"type": "file", "path": file}], publish={"never": never})
    with capture_logs() as logs, pytest.raises(CatalogueError, match="file: ") as caught:
        http_frontend.find_datasets(settings, ["*:*"])
    assert ("own:L1_secret" in str(caught.value)) == (not never)
    assert "own:L1_secret" in logs[0]["reason"]


def plugin(tmp_path, monkeypatch, find: str) -> Settings:
    """Return settings with a plugin whose search writes the file `asked`, and runs *find*."""
    (tmp_path / "searching.py").write_text(
        f"""
import pathlib, time
from tests.memory import MemoryCatalogue

class Searching(MemoryCatalogue):
    def find(self, patterns):
        pathlib.Path({str(tmp_path / "asked")!r}).write_text("")
        {find}

def build(name, options, clock):
    return Searching(name, [], clock=clock)
"""
    )
    described = tmp_path / "searching-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: searching\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[classad_hydrator.catalogues]\nsearching = searching:build\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return parse({"catalogue": [{"type": "searching", "name": "mine"}]}, folder=tmp_path, origin="test")


def test_a_search_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    settings = plugin(tmp_path, monkeypatch, "time.sleep(3600)")
    os.mkfifo(tmp_path / "asked")

    def end_once_asked(_seconds, work):
        def end():
            (tmp_path / "asked").read_text()  # waits for the search
            work()

        threading.Thread(target=end, daemon=True).start()
        return lambda: None

    with pytest.raises(CatalogueError, match="mine: the search took more than 20 s"):
        http_frontend.find_datasets(settings, ["*:L*"], end_once_asked)


def test_the_time_of_a_search_has_the_start_of_its_worker(tmp_path, monkeypatch):
    settings = plugin(tmp_path, monkeypatch, "return []")

    def end_at_once(_seconds, work):
        work()
        return lambda: None

    with pytest.raises(CatalogueError, match="the search took more than 20 s"):
        http_frontend.find_datasets(settings, ["*:L*"], end_at_once)
    assert not (tmp_path / "asked").exists()
    whole = TURN_WAIT_SECONDS + http_frontend.SEARCH_SECONDS
    assert whole <= ConnectionLimiter().request_seconds - 5, (
        "the client gets the reason before the server cuts it"
    )


def test_a_bug_of_a_plugin_fails_the_search_with_one_sentence(tmp_path, monkeypatch):
    settings = plugin(tmp_path, monkeypatch, "raise KeyError('own:secret')")
    with capture_logs() as logs, pytest.raises(CatalogueError) as caught:
        http_frontend.find_datasets(settings, ["*:L*"])
    assert str(caught.value).startswith("catalogue mine: bug in the search: KeyError at ")
    assert "secret" not in str(caught.value)
    assert "searching.py" in str(logs[0]["exc_info"])


def test_a_job_is_explained_with_the_facts_of_the_last_cycle(cycles, monkeypatch):
    known = []

    def ask(query: WhyQuery, *_: object) -> WhyResult:
        known.append(query.get_knowledge([], ()))
        return WhyResult(())

    monkeypatch.setattr(http_frontend, "ask_job", ask)
    assert http_frontend.explain_job(cycles.context, 7, None, None) == []
    cycles.run((DemandEntry((L1,), 1, Origin.JOB, NOON, set_key((L1,))),))
    cycles.now += timedelta(minutes=5)
    state = cycles.context.cycle_state
    cycles.context.cycle_state = replace(
        state, knowledge=replace(state.knowledge, lists_of_wrong_keys={"x": None})
    )
    http_frontend.explain_job(cycles.context, 7, None, None)
    before, after = known
    assert before is None
    assert after.snapshot.sites[CAM].facts[L1].state is DatasetState.AVAILABLE
    assert after.dids_without_room == {CAM: {L1}}
    assert (after.now, after.lists_of_wrong_keys) == (NOON, {"x": None})


@pytest.mark.parametrize(
    "text",
    [
        'RequiredDatasets is no list of strings: { "embargo:A",5 }',
        'requirements: member("own:L1",TARGET.AvailableDatasets)',
        "x:L1\nembargo:A",
        "the key x:@L1,own:@L1.",
    ],
)
def test_a_page_of_a_job_with_a_name_that_is_never_published_is_refused(cycles, monkeypatch, text):
    cycles.context.settings = Settings(publish={"never": ["embargo:*", "own:L?"]})
    monkeypatch.setattr(http_frontend, "ask_job", lambda *_: WhyResult((), others=text))
    with pytest.raises(ConfigError, match="a dataset that is never published") as caught:
        http_frontend.explain_job(cycles.context, 7, None, None)
    assert "L1" not in str(caught.value)
