"""The command line for its users: help, man page, completion, exit statuses, `top`."""

import contextlib
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import typer
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hydrator import __version__
from hydrator.cli import main
from hydrator.cli.commands.top.client import DaemonEndpoint, DaemonUnavailable, ServedState, fetch_state
from hydrator.cli.commands.top.screen import summary_line, table_rows
from hydrator.cli.output.examples import EXAMPLES, EXIT_STATUSES
from hydrator.cli.output.manpage import build_manpage
from hydrator.domain.model import DatasetState, Fact, SiteFacts, Snapshot
from hydrator.server.app import build_app as http_app
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from hydrator.state.store import Store
from tests.command_tree import COMMANDS, TREE, options
from tests.factories import CAM, HOUR, L1, L2, NOON, RAL, ad, demand, want


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch):
    """Run one command in this process, as the installed script does, without a terminal."""
    monkeypatch.delenv("HYDRATOR_CONFIG", raising=False)

    def running(*words: str, **environment: str) -> Done:
        out, err, status = io.StringIO(), io.StringIO(), 0
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", ["hydrator", *words])
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                main()
            except SystemExit as end:
                status = end.code or 0
        return Done(status, out.getvalue(), err.getvalue())

    return running


def test_status_before_the_first_cycle_says_that_none_has_ended(run, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(
        '[daemon]\nstate_dir = "state"\n[[catalogue]]\ntype = "file"\nname = "list"\npath = "list.json"\n'
    )
    Store.open_to_write(tmp_path / "state").close()
    done = run("status", "-c", str(config))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "last cycle: no cycle has ended yet"), (
        done.stderr
    )


# help that teaches


@pytest.mark.parametrize("path", EXAMPLES)
def test_each_example_uses_existing_commands_and_options(path):
    command = COMMANDS[path]
    for typed, why in EXAMPLES[path]:
        assert typed.startswith(f"hydrator {path}")
        ours = re.split(r" [|>] ", typed)[0]
        assert {word for word in ours.split() if re.match(r"--?[a-z]", word)} <= options(path)
        assert why
        assert f"{typed}   # {why}" in command.epilog


def test_every_command_and_every_option_has_a_help_text():
    for path, command in COMMANDS.items():
        assert command.help, path
        for each in command.params:
            assert each.help or each.param_type_name == "argument", (path, each.name)


def test_help_fits_80_columns_and_obeys_no_color(run):
    said = run("why", "--help", COLUMNS="80", NO_COLOR="1", FORCE_COLOR="1").stdout
    assert "hydrator why 123.4   # explain why this job is idle" in said
    assert not re.search(r"\x1b\[(3[0-7]|9[0-7])", said)  # bold is no colour
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in said.splitlines()) <= 80


# the man page


PAGE = build_manpage(TREE, "1.0", "2026-11-21")


def test_the_man_page_has_every_command_option_example_and_exit_status():
    plain = PAGE.replace("\\-", "-")
    for path, command in COMMANDS.items():
        assert f"\n.SS {path}" in plain
        for each in command.params:
            assert all(name in plain for name in each.opts if name.startswith("--"))
    for status, _ in EXIT_STATUSES:
        assert f"\n.TP\n.B {status}\n" in plain


def test_man_page_escapes_texts_that_look_like_roff():
    first = typer.Typer(help="of . and ' and \\ and…")

    @first.command()
    def odd() -> None:
        """.TH is no request, and \\fB no font."""

    @first.command()
    def other() -> None:
        """'also."""

    page = build_manpage(typer.main.get_command(first), "1", "2026-11-21")
    assert "\n\\&.TH is no request, and \\efB no font." in page
    assert "\n\\(aqalso." in page
    assert page.isascii()


@pytest.mark.outside
@pytest.mark.skipif(not shutil.which("groff"), reason="NO GROFF, SO THE MAN PAGE IS NOT FORMATTED")
def test_groff_finds_nothing_wrong_with_the_man_page(run):
    groff = ["groff", "-man", "-Tutf8", "-ww"]
    done = subprocess.run(groff, input=PAGE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    assert "hydrator datasets lofar:L123 --why" in shown.replace("\u2212", "-")


def test_the_man_page_is_printed(run):
    printed = run("man")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout.startswith('.TH HYDRATOR 1 "20')


# completion


def completed(run, line: str) -> list[str]:
    """Return the words that bash offers after *line*, by the completion script's own query."""
    words = line.split(" ")
    said = run(_HYDRATOR_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)).stdout
    return said.split()


def test_bash_completes_commands_subcommands_and_options(run):
    assert {"status", "sites"} <= set(completed(run, "hydrator s"))
    assert "pool-config" in completed(run, "hydrator submit p")
    assert completed(run, "hydrator why --sch") == ["--schedd"]


@pytest.mark.outside
def test_the_script_for_bash_can_be_shown(run):
    script = run(_HYDRATOR_COMPLETE="source_bash").stdout
    assert "complete -o default -F" in script


# exit statuses


def test_wrong_option_or_missing_configuration_exits_2_without_traceback(tmp_path, run):
    for words in (("nonsense",), ("status", "--nonsense"), ("status", "-c", str(tmp_path / "none.toml"))):
        done = run(*words)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    assert "give a configuration with --config, or create one with `hydrator init`" in done.stderr


@pytest.mark.parametrize("words", [("--version",), ("-V",), ("version",)])
def test_the_version_is_printed(run, words):
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


def test_successful_command_exits_0(run):
    assert [run(*words).returncode for words in (("version",), ("--help",), ("hook",))] == [0, 0, 0]


# top


def view() -> ServerState:
    facts = {
        CAM: SiteFacts(NOON, {L1: Fact(DatasetState.AVAILABLE, NOON)}),
        RAL: SiteFacts(NOON, {L1: Fact(DatasetState.STAGING, NOON), L2: Fact(DatasetState.STUCK, NOON)}),
    }
    wanted = demand(want(L1, jobs=3), want(L2))
    return ServerState({CAM: ad(L1, at=NOON - HOUR, generation=42)}, Snapshot(facts), wanted, None, NOON)


class Daemon:
    def __init__(self) -> None:
        self.view = view()
        asgi = http_app(lambda: self.view, CollectorRegistry(), max_age=timedelta(seconds=9))
        self.server = HttpServer(asgi)


@pytest.fixture(scope="module")
def daemon():
    made = Daemon()
    with capture_logs(), made.server:  # else its log is in what the command prints, if it is late
        yield made


@pytest.mark.outside
def test_top_without_a_terminal_prints_every_site_once(daemon, run):
    done = run("top", "--url", daemon.server.url)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "all is well"
    assert lines[1].startswith("2026-11-21 12:00:00 UTC   1 of 2 wanted datasets available at a site")
    assert lines[-2].split() == [CAM, "1", "h", "ago", "42", "1", "1", "0", "0"]
    assert lines[-1].split() == [RAL, "?", "not", "served", "?", "0", "1", "1"]
    assert "\x1b" not in done.stdout


@pytest.mark.outside
def test_top_exits_1_with_the_reason_if_the_daemon_does_not_answer(daemon, run):
    daemon.view = replace(daemon.view, snapshot=None, not_ready_reason="no catalogue has been read yet")
    refused = run("top", "--url", daemon.server.url)
    daemon.view = view()
    assert (
        refused.returncode,
        "refuses the query (503): no catalogue has been read yet" in refused.stderr,
    ) == (
        1,
        True,
    )
    away = run("top", "--url", "http://127.0.0.1:1")
    assert (away.returncode, "does not answer" in away.stderr, "Traceback" in away.stderr) == (1, True, False)


@pytest.mark.outside
def test_top_takes_the_daemons_address_from_the_configuration(daemon, tmp_path, run):
    port = daemon.server.url.rpartition(":")[2]
    config = tmp_path / "config.toml"
    catalogue = '[[catalogue]]\ntype = "file"\npath = "c.toml"\n'
    config.write_text(f"{catalogue}[publish.http]\nport = {port}\n")
    assert run("top", "--once", "-c", str(config)).returncode == 0
    config.write_text(f"{catalogue}[publish.http]\nenabled = false\n")
    refused = run("top", "-c", str(config))
    assert (refused.returncode, "give --url" in refused.stderr) == (2, True)


@pytest.mark.parametrize("url", ["http://203.0.113.7", "HTTP://203.0.113.7", "http://127.evil.example"])
def test_top_sends_no_token_unencrypted_to_another_host(tmp_path, run, url):
    (tmp_path / "token").write_text("secret-token")
    refused = run("top", "--url", url, "--token-file", str(tmp_path / "token"))
    assert (refused.returncode, "unencrypted" in refused.stderr) == (2, True)
    assert "secret-token" not in refused.stderr


def test_invalid_url_of_top_is_one_sentence(tmp_path, run):
    (tmp_path / "token").write_text("secret-token")
    refused = run("top", "--url", "http://[203.0.113.7", "--token-file", str(tmp_path / "token"))
    assert (refused.returncode, "is not a URL" in refused.stderr) == (2, True)
    assert "Traceback" not in refused.stderr


def test_top_reports_a_server_that_is_not_a_hydrator_daemon():
    client = httpx.Client(
        base_url="http://x", transport=httpx.MockTransport(lambda _: httpx.Response(200, text="<html>"))
    )
    with pytest.raises(DaemonUnavailable, match="is not a hydrator daemon"), client:
        fetch_state(client, DaemonEndpoint("http://x"))


def test_top_reads_every_page_of_datasets():
    pages = {"": (["a:1", "a:2"], "a:2"), "a:2": (["a:3"], None)}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/sites":
            return httpx.Response(200, json={"now": 7, "sites": []})
        dids, following = pages[request.url.params.get("after", "")]
        rows = [{"did": did, "jobs": 1, "unseen": None, "sites": []} for did in dids]
        return httpx.Response(200, json={"now": 7, "datasets": rows, "next": following})

    with httpx.Client(base_url="http://x", transport=httpx.MockTransport(answer)) as client:
        seen = fetch_state(client, DaemonEndpoint("http://x"))
    assert [row["did"] for row in seen.datasets] == ["a:1", "a:2", "a:3"]


def test_top_counts_unseen_datasets_and_shows_sites_without_facts():
    dataset = {"did": L1, "jobs": 2, "unseen": "timeout", "sites": []}
    site = {"site": CAM, "age_seconds": 61, "generation": 1, "known_datasets": None}
    seen = ServedState(0, [site], [dataset])
    assert table_rows(seen) == [(CAM, "1 min 1 s ago", "1", "?", "0", "0", "0")]
    assert summary_line(seen).endswith("0 of 1 wanted dataset available at a site, named 2 times by jobs; "
                                  "no catalogue answered about 1 dataset")  # fmt: skip


# an astronomer, on a host that has nothing


@pytest.mark.outside
def test_configuration_for_submitters_in_the_docs_is_sufficient(daemon, tmp_path):
    """Run the page docs/how-to/submit/write-a-job.md with another address and an empty HOME."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "submit" / "write-a-job.md").read_text()
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (text,) = [block for block in blocks if "daemon_url" in block]
    config = tmp_path / "hydrator.toml"
    config.write_text(text.replace("https://hydrator.example.org", daemon.server.url))
    (tmp_path / "run.parset").write_text("[global]\ndir_working = /data/run\ninput_ms = L1.ms\n")
    done = subprocess.run(
        [sys.executable, "-m", "hydrator.cli", "submit", "rapthor", "run.parset", "--dry-run"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HYDRATOR_CONFIG": str(config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert CAM in done.stdout


# tables


def read_all(main_end: int) -> str:
    """Return all text written to a terminal until its last writer closed it; close it."""
    seen = b""
    with contextlib.suppress(OSError):  # EIO
        while more := os.read(main_end, 4096):
            seen += more
    os.close(main_end)
    return seen.decode()


@pytest.mark.outside
@pytest.mark.parametrize("columns", [60, 80, 132])
def test_table_fits_the_terminal_and_loses_no_text(planned, tmp_path, columns):
    site = "A-SITE-OF-A-LONG-NAME-" * 3
    (tmp_path / "list.json").write_text(f'{{"sites": ["{site}"], "datasets": {{}}}}')
    with planned.open("a") as config:
        config.write('[publish.file]\ndirectory = "ads"\n')
    main_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (50, columns))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    planning = subprocess.Popen(
        [sys.executable, "-m", "hydrator.cli", "plan", "-c", planned],
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(terminal)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", read_all(main_end)).splitlines()
    assert planning.wait(120) == 0
    assert max(len(line.rstrip()) for line in lines) <= columns
    head = next(line for line in lines if "publisher" in line)
    begin, end = head.index("site"), head.index("action")
    shown = "".join(line[begin:end].strip() for line in lines[lines.index(head) + 1 :])
    assert shown == site


@pytest.fixture
def planned(tmp_path):
    (tmp_path / "list.json").write_text('{"sites": ["CAM"], "datasets": {}}')
    file = tmp_path / "config.toml"
    file.write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\n[demand]\nask_schedds = false\n[publish.collector]\n'
        'enabled = false\n[[catalogue]]\ntype = "file"\nname = "list"\npath = "list.json"\n'
    )
    return file
