"""What `hydrator submit` says beforehand about sets that no job has named yet; a live server answers."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from adapters.daemon_catalogue import DaemonCatalogue
from hydrator.cli import main
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import DatasetState, Did, Fact, SiteFacts, Snapshot
from hydrator.domain.pool_ports import SiteSlots
from hydrator.server.app import build_app
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from tests.factories import MINUTE, NOON
from tests.unit.reconcile.estimates.worlds import DE, GB, UK, World, running

pytestmark = pytest.mark.outside

CONFIG = """
[daemon]
state_dir = "state"
[demand]
ask_schedds = false
[publish.collector]
enabled = false
[submit]
daemon_url = "{url}"
"""
CATALOGUE = """
sites = ["UK", "DE"]
[datasets."t:new"]
bytes = 30_000_000_000
sites.UK = "available"
[datasets."t:split"]
bytes = 1_000_000_000
sites.DE = "available"
"""
WITH_CATALOGUE = '[[catalogue]]\ntype = "file"\npath = "catalogue.toml"\n'
PARSET = "[global]\ndir_working = /data/run\ninput_ms = /x/{name}\n"
WORLD = World(
    {UK: ["t:a", "t:b"], DE: []},
    slots=(SiteSlots(UK, 1, 0), SiteSlots(DE, 1, 1)),
    running=(running(UK, "t:a", ages=[0], seconds=3600),),
    sizes={"t:a": 10 * GB, "t:b": GB},
    sets=(("t:a",), ("t:b",)),
)
"""UK has the data and a job of an hour on its only core; DE reads at 100 MB/s."""


@dataclass
class Client:
    """A user's folder with a configuration that names the daemon's address."""

    run: Callable[..., tuple[int, str]]
    url: str


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Client]:
    made = WORLD.estimate()
    state = ServerState({}, WORLD.snapshot(), WORLD.demand(), None, NOON, set_estimator=made.set_estimator)
    monkeypatch.chdir(tmp_path)
    Path("catalogue.toml").write_text(CATALOGUE)
    Path("job.sub").write_text("executable = /bin/true\nqueue\n")
    with HttpServer(build_app(lambda: state, CollectorRegistry(), max_age=timedelta(0))) as server:

        def run(*words: str, more: str = "", sub: str = "") -> tuple[int, str]:
            Path("config.toml").write_text(CONFIG.format(url=server.url) + more)
            if sub:
                Path("job.sub").write_text(sub)
            monkeypatch.setattr(sys, "argv", ["hydrator", "submit", *words, "-c", "config.toml"])
            with pytest.raises(SystemExit) as end:
                main()
            return int(end.value.code or 0), capsys.readouterr().err

        assert server.url
        yield Client(run, server.url)


def test_first_submission_of_a_set_says_where_and_when_its_jobs_start(client):
    status, said = client.run("filter", "job.sub", "-d", "t:a,t:b")
    assert (status, said) == (0, "hydrator: 1 job would read 11 GB from UK, about 4 min 16 s\n")


def test_datasets_that_only_the_clients_catalogue_knows_have_an_estimate(client):
    """The daemon polls t:b, and gets the facts about t:new from the command."""
    status, said = client.run("filter", "job.sub", "-d", "t:new,t:b", more=WITH_CATALOGUE)
    assert status == 0
    assert said.startswith("hydrator: 1 job would read 31 GB from UK, about ")


def test_dataset_that_nobody_knows_is_named(client):
    status, said = client.run("filter", "job.sub", "-d", "t:unknown")
    assert status == 0
    assert said == (
        "hydrator: the start cannot be estimated yet: the daemon reads t:unknown from the catalogues only"
        " after a job names it\n"
    )


def test_rapthor_says_the_start_of_a_run_that_no_job_has_named(client):
    Path("run.parset").write_text(PARSET.format(name="new"))
    more = 'names = { "new" = "t:new" }\nstage_in = "fetch {did} {path}"\n' + WITH_CATALOGUE
    status, said = client.run("rapthor", "run.parset", "--dry-run", "--mode", "auto", more=more)
    assert status == 0, said
    assert "1 job would read 30 GB from UK, about " in said


def test_require_without_a_site_that_has_all_warns(client):
    sub = 'executable = /bin/true\n+DataLocality = "require"\nqueue\n'
    _, said = client.run("filter", "job.sub", "-d", "t:split,t:b", more=WITH_CATALOGUE, sub=sub)
    first = said.splitlines()[0]
    assert first.startswith("hydrator: no site has all data of the job now: ")
    assert first.endswith(
        "; with DataLocality = require a job waits until one site has all its data: consider auto"
    )
    assert "consider auto" not in client.run("filter", "job.sub", "-d", "t:b", sub=sub)[1]


def test_many_sets_are_asked_about_with_few_requests(client):
    daemon = DaemonCatalogue(client.url)
    sets = [(Did("t:a"),), (Did("t:b"),), (Did("t:a"), Did("t:b"))]
    new = Snapshot({UK: SiteFacts(NOON, {Did("t:b"): Fact(DatasetState.PARTIAL, NOON, 0.5)})})
    estimates, unknown = daemon.estimate_sets(sets, new, NOON)
    daemon.close()
    assert set(estimates.sites[DE].by_key) == {set_key(dids) for dids in sets}
    assert not unknown
    whole = estimates.sites[UK].by_key[set_key(sets[1])]
    assert (whole.read_seconds, whole.queue_site) == (0, UK), "the daemon's own facts count"
    assert estimates.valid_until == NOON + 10 * MINUTE
