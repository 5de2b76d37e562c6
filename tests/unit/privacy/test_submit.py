"""Submitting jobs on private datasets: names are exchanged first, or nothing private is written anywhere."""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from hydrator.cli import main
from hydrator.privacy.pseudonyms import find_leaks
from hydrator.submit.job_wrapper import JobInputs as TravellingJob
from tests.unit.privacy.test_exchange import VEIL, Daemon

pytestmark = pytest.mark.outside

CANARY = "embargo:canary-1.ms"
CONFIG = """
[daemon]
state_dir = "state"
default_scope = "lofar"
[demand]
ask_schedds = false
[publish.collector]
enabled = false
[[catalogue]]
type = "file"
path = "catalogue.toml"
[private]
patterns = ["embargo:*"]
[[storage]]
site = "UK"
prefix = "/data"
rule = "name"
[submit]
names = { "observation.ms" = "embargo:canary-1.ms", "L1.ms" = "lofar:L1.ms" }
stage_in = "rucio download --dir {path} {did}"
"""
CATALOGUE = """
sites = ["UK"]
[datasets."lofar:L1.ms"]
bytes = 100
sites.UK = "available"
[datasets."embargo:canary-1.ms"]
bytes = 300
sites.UK = "available"
"""
NAME = VEIL.pseudonym(CANARY)


@dataclass
class Done:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


class Host:
    """A host that submits, beside a daemon that exchanges names."""

    def __init__(self, folder: Path, daemon: Daemon, monkeypatch, capsys) -> None:
        self.folder = folder
        self.daemon = daemon
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.chdir(folder)
        (folder / "catalogue.toml").write_text(CATALOGUE)
        (folder / "run1.parset").write_text(
            "[global]\ndir_working = /r\ninput_ms = [L1.ms, observation.ms]\n"
        )
        self.find_daemon(daemon.server.url)

    def find_daemon(self, url: str | None) -> None:
        more = f'daemon_url = "{url}"\ntoken_file = "{self.daemon.folder}/submit"\n' if url else ""
        (self.folder / "config.toml").write_text(CONFIG + more)

    def run(self, *words: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["hydrator", "submit", *words, "-c", "config.toml"])
        with pytest.raises(SystemExit) as end:
            main()
        said = self._capsys.readouterr()
        return Done(int(end.value.code or 0), said.out, said.err)

    def written(self) -> set[str]:
        own = {"catalogue.toml", "run1.parset", "config.toml"}
        return {str(file.relative_to(self.folder)) for file in self.folder.rglob("*")} - own


@pytest.fixture
def host(tmp_path, monkeypatch, capsys):
    (tmp_path / "host").mkdir()
    (tmp_path / "daemon").mkdir()
    daemon = Daemon(tmp_path / "daemon")
    with daemon.server:
        yield Host(tmp_path / "host", daemon, monkeypatch, capsys)


def shown(text: str) -> str:
    """What of a submit description can enter a job's ad."""
    return re.sub(r"(?m)^\s*#.*\n", "", text).lower()


# a Rapthor run


@pytest.mark.parametrize("form", ["job", "ad", "env"])
def test_every_form_of_a_run_has_the_opaque_name_and_never_the_plain_one(host, form):
    done = host.run("rapthor", "run1.parset", "--as", form)
    assert done.returncode == 0, done.stderr
    assert NAME in done.stdout
    assert "lofar:L1.ms" in done.stdout
    assert "canary" not in done.stdout.lower()
    assert "embargo" not in done.stdout.lower()


def test_the_files_that_travel_tell_the_job_what_the_opaque_name_stands_for(host):
    done = host.run("rapthor", "run1.parset", "-o", "run")
    assert done.returncode == 0, done.stderr
    (folder,) = (host.folder / "run").iterdir()
    assert "canary" not in (folder / "run1.sub").read_text()
    travelling = TravellingJob(str(folder / "hydrator-paths.json"))
    private = next(dataset for dataset in travelling.datasets if dataset.did == NAME)
    assert private.real_did == CANARY
    assert travelling.locations_at("UK")[NAME] == "/data/embargo/canary-1.ms"


def test_what_is_written_of_a_private_run_is_for_its_owner_alone(host):
    (host.folder / "run").mkdir(mode=0o755)
    assert host.run("rapthor", "run1.parset", "-o", "run").returncode == 0
    (folder,) = (host.folder / "run").iterdir()
    assert {file.stat().st_mode & 0o077 for file in (folder, *folder.iterdir())} == {0}
    assert host.run("rapthor", "run1.parset", "-o", "new/run").returncode == 0
    assert (host.folder / "new" / "run").stat().st_mode & 0o077 == 0


def test_a_dry_run_needs_no_daemon(host):
    host.find_daemon(None)
    done = host.run("rapthor", "run1.parset", "--dry-run")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "options", [(), ("-o", "run"), ("--as", "ad"), ("--as", "env")], ids=["job", "folder", "ad", "env"]
)
def test_when_the_daemon_cannot_be_asked_nothing_is_printed_and_nothing_written(host, options):
    for url, status in ((None, 2), ("http://127.0.0.1:1", 1)):
        host.find_daemon(url)
        done = host.run("rapthor", "run1.parset", *options)
        assert done.returncode == status
        assert done.stdout == ""
        (said,) = done.stderr.splitlines()
        assert "nothing was submitted" in said
        assert host.written() == set()


@pytest.mark.parametrize(
    "options",
    [
        ("--name", "canary-1.ms"),
        ("--command", "rapthor --skip embargo:canary-1.ms run.parset"),
        ("--line", '+Comment = "about Canary-1.MS"'),
        ("-o", "canary-1.ms.run"),
    ],
    ids=["name", "command", "line", "folder"],
)
def test_a_job_that_would_show_the_name_otherwise_is_refused(host, options):
    done = host.run("rapthor", "run1.parset", *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "embargo:canary-1.ms is a private dataset, and " in done.stderr
    assert host.written() == set()


# plain submit files and DAGs


def filtered(host, text: str, *options: str, file: str = "x.sub") -> Done:
    (host.folder / file).write_text(text)
    return host.run("filter", file, *options)


def test_a_submit_file_gets_the_opaque_name(host):
    done = filtered(host, "executable = x\nqueue\n", "-d", f"{CANARY},lofar:L1")
    assert done.returncode == 0, done.stderr
    assert f'"{NAME}"' in done.stdout
    assert "canary" not in done.stdout


def test_each_node_of_a_dag_gets_its_opaque_names(host):
    (host.folder / "a.sub").write_text("executable = x\nqueue\n")
    done = filtered(host, "JOB A a.sub\nJOB B a.sub\n", "-d", f"A={CANARY}", "-d", "B=lofar:L1", file="x.dag")
    assert done.returncode == 0, done.stderr
    assert NAME in done.stdout
    assert "canary" not in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        '+RequiredDatasets = {"embargo:canary-1.ms"}',
        "arguments = --input canary-1.ms",
        "transfer_input_files = /data/embargo/canary-1.ms",
        'environment = "WHAT=Embargo:other"',
    ],
)
def test_a_submit_file_that_shows_a_private_name_is_refused(host, line):
    done = filtered(host, f"executable = x\n{line}\nqueue\n", "-d", CANARY)
    assert done.returncode == 2
    assert done.stdout == ""
    (said,) = done.stderr.splitlines()
    assert "x.sub shows the name of a private dataset" in said


def test_a_comment_shows_nobody_anything(host):
    done = filtered(host, "# embargo:canary-1.ms\nexecutable = x\nqueue\n", "-d", CANARY)
    assert done.returncode == 0, done.stderr


def test_a_dag_whose_node_shows_a_private_name_is_refused(host):
    (host.folder / "a.sub").write_text("executable = x\narguments = embargo:canary-1.ms\nqueue\n")
    done = filtered(host, "JOB A a.sub\n", "-d", "lofar:L1", file="x.dag")
    assert done.returncode == 2
    assert "node A (a.sub) shows the name of a private dataset" in done.stderr


def test_a_submit_file_without_private_datasets_needs_no_daemon(host):
    host.find_daemon(None)
    assert filtered(host, "executable = x\nqueue\n", "-d", "lofar:L1").returncode == 0
    done = filtered(host, "executable = x\nqueue\n", "-d", CANARY)
    assert done.returncode == 2
    assert "set daemon_url and token_file in [submit]" in done.stderr
    assert done.stdout == ""


def test_leaks_are_found_by_whole_words_in_any_case():
    did = "embargo:deep/L1.ms"
    assert find_leaks("x = l1.MS", [did]) == [(did, "x = l1.MS")]
    assert find_leaks("x = /data/deep/L1.ms/table", [did])
    assert find_leaks("x = L1.msx\n# L1.ms\nx = xL1.ms", [did]) == []


def test_the_ad_of_a_run_counts_the_bytes_of_private_datasets_under_their_names(host):
    ad = json.loads(host.run("rapthor", "run1.parset", "--as", "ad", "--json").stdout)
    assert ad["RequiredBytes"] == {NAME: 300, "lofar:L1.ms": 100}
