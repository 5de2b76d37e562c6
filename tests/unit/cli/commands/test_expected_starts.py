"""What `hydrator submit` says beforehand about the start of jobs; a live server answers."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hydrator.cli.options import EXIT_NO_MATCH_NOW
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason, write_openings
from hydrator.domain.model import DatasetState, Did, Fact, Site, SiteAd, SiteFacts, Snapshot, to_unix
from hydrator.server.view import ServerState
from hydrator.wiring import system_clock
from testbed.files import write_program
from tests.command_line import run_hydrator
from tests.factories import MINUTE, demand, server_state, want
from tests.served import server_of

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
[datasets."t:big"]
bytes = 500_000_000_000
sites.DE = "available"
[datasets."t:cal"]
bytes = 10_000_000
sites.UK = "available"
"""
WITH_CATALOGUE = '[[catalogue]]\ntype = "file"\npath = "catalogue.toml"\n'
PARSET = "[global]\ndir_working = /data/run\ninput_ms = /x/{name}\n"
A, B = Did("t:a"), Did("t:b")
SETS = ((A, B), (A,))


def queued_state() -> ServerState:
    """The state of a daemon with queued jobs of t:a and t:b, which UK has and DE may read in 256 s."""
    now = system_clock()
    until = now + 10 * MINUTE
    keys = [set_key(dids) for dids in SETS]
    named = {str(key): Opening(256, Site("UK"), 0) for key in keys}
    ads = {
        Site(site): SiteAd(
            Site(site),
            now,
            7,
            (("DataLocalitySets", "[" + ";".join(f"'{key}'={share}" for key in keys) + "]"),),
            write_openings(opened, 0),
            until,
        )
        for site, share, opened in (("UK", 1.0, {}), ("DE", 0.0, named))
    }
    made = Openings(
        {Site("DE"): named},
        to_unix(until),
        outlooks={key: Outlook(Reason.OPEN, (Site("DE"),)) for key in keys},
    )
    fact = Fact(DatasetState.AVAILABLE, now)
    facts = {Site("UK"): SiteFacts(now, {A: fact, B: fact}), Site("DE"): SiteFacts(now, {})}
    sizes = {A: 10_000_000_000, B: 1_000_000_000}
    wants = (want(*dids, jobs=1) for dids in SETS)
    return server_state(ads, Snapshot(facts, bytes_total=sizes), demand(*wants), None, now, openings=made)


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run ``hydrator submit`` in a user's folder with a configuration that names the daemon's address."""
    state = queued_state()
    monkeypatch.chdir(tmp_path)
    Path("catalogue.toml").write_text(CATALOGUE)
    Path("job.sub").write_text("executable = /bin/true\nqueue\n")
    with server_of(lambda: state) as server:

        def run(*words: str, more: str = "", sub: str = "", url: str = server.url) -> tuple[int, str]:
            Path("config.toml").write_text(CONFIG.format(url=url) + more)
            if sub:
                Path("job.sub").write_text(sub)
            done = run_hydrator("submit", *words, HYDRATOR_CONFIG="config.toml")
            return done.returncode, done.stderr.decode()

        yield run


def test_submission_of_a_set_that_queued_jobs_need_says_where_and_when_its_jobs_start(submit):
    status, said = submit("filter", "job.sub", "-d", "t:a,t:b")
    assert (status, said) == (
        0,
        "hydrator: 1 job: it may start now at DE by reading 11 GB from UK in 4 min 20 s\n",
    )


def test_submission_of_a_set_that_no_queued_job_needs_promises_nothing(submit):
    assert submit("filter", "job.sub", "-d", "t:new", more=WITH_CATALOGUE) == (0, "")


def test_filter_says_that_nobody_answered_where_the_data_is(submit):
    """Case S16 of cases/submit.md: the daemon is down, and there is no catalogue."""
    status, said = submit("filter", "job.sub", "-d", "t:a", url="http://127.0.0.1:1")
    assert status == 0
    assert said.startswith("hydrator: neither the daemon nor a catalogue answered where t:a is: ")
    assert "127.0.0.1:1" in said


@pytest.mark.parametrize("tool", ["condor_submit job.sub", "condor_submit_dag run.dag"])
@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1"])
def test_nowhere_is_refused_also_for_a_dataset_that_nobody_knows(submit, tool, url):
    Path("run.dag").write_text("JOB A job.sub\n")
    words = ("wrap", "-d", "t:A1,t:a", "--refuse-nowhere", "--", *tool.split())
    status, said = submit(*words, **({"url": url} if url else {}))
    assert status == EXIT_NO_MATCH_NOW
    assert "it is not known yet which sites have t:A1" in said
    assert said.endswith("; nothing was submitted\n")
    assert ("no catalogue of the daemon lists t:A1; " in said) == (url is None)


def test_rapthor_says_the_start_of_a_run(submit):
    Path("run.parset").write_text(PARSET.format(name="new"))
    more = 'names = { "new" = "t:a" }\nstage_in = "fetch {did} {path}"\n'
    status, said = submit("rapthor", "run.parset", "--dry-run", "--mode", "auto", more=more)
    assert status == 0, said
    assert "1 job: it may start now at DE by reading 10 GB from UK in " in said


def test_require_without_a_site_that_has_all_warns(submit):
    sub = 'executable = /bin/true\n+DataLocality = "require"\nqueue\n'
    _, said = submit("filter", "job.sub", "-d", "t:split,t:b", more=WITH_CATALOGUE, sub=sub)
    first = said.splitlines()[0]
    assert first.startswith("hydrator: no site has all data of the job now: ")
    assert first.endswith(
        "; with DataLocality = require a job waits until one site has all its data: consider auto"
    )
    assert "consider auto" not in submit("filter", "job.sub", "-d", "t:b", sub=sub)[1]


REQUIRE = 'executable = /bin/true\n+DataLocality = "require"\n'
FILES = {
    "job.sub": f"{REQUIRE}queue\n",
    "own.sub": f'{REQUIRE}+RequiredDatasets = {{"t:big", "t:cal"}}\nqueue\n',
    "items.sub": f'{REQUIRE}+RequiredDatasets = {{"$(a)", "$(b)"}}\nqueue a, b from (\nt:big t:cal\n)\n',
    "run.dag": "JOB A job.sub\n",
    "own.dag": "JOB A own.sub\n",
    "run.parset": "[global]\ndir_working = /data/run\ninput_ms = [/x/big, /x/cal]\n",
}
BIG = ("-d", "t:big,t:cal")
RAPTHOR = ("rapthor", "run.parset", "--mode", "require")


@pytest.mark.parametrize(
    "words",
    [
        ("filter", "job.sub", *BIG),
        ("filter", "own.sub"),
        ("filter", "items.sub"),
        ("filter", "run.dag", *BIG),
        ("wrap", *BIG, "--", "condor_submit", "job.sub"),
        ("wrap", "--", "condor_submit", "own.sub"),
        ("wrap", *BIG, "--refuse-nowhere", "--", "condor_submit", "job.sub"),
        ("wrap", *BIG, "--", "condor_submit_dag", "run.dag"),
        ("wrap", *BIG, "--refuse-nowhere", "--", "condor_submit_dag", "run.dag"),
        (*RAPTHOR, "-o", "job"),
        (*RAPTHOR, "-o", "job", "--submit"),
        (*RAPTHOR, "-o", "job", "--refuse-nowhere"),
    ],
    ids=" ".join,
)
def test_require_warns_if_only_a_small_part_is_missing_at_the_best_site(submit, monkeypatch, words):
    """P4: DE has 500 GB of the data, UK the other 10 MB. Each way to submit names the small copy."""
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("tools").mkdir()
    for tool in ("condor_submit", "condor_submit_dag"):
        write_program(Path("tools", tool), "#!/bin/sh\nexit 0\n")
    more = 'names = { "big" = "t:big", "cal" = "t:cal" }\nstage_in = "fetch {did} {path}"\n'
    monkeypatch.setenv("PATH", f"{Path('tools').resolve()}:{os.environ['PATH']}")
    status, said = submit(*words, more=more + WITH_CATALOGUE)
    assert "a copy of t:cal (10 MB) to DE would be enough" in said
    assert status == (EXIT_NO_MATCH_NOW if "--refuse-nowhere" in words else 0), said
