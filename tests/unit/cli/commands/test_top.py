"""``hydrator top``: the screen at several widths, its plots, its keys, and colours on request only."""

import contextlib
import io
import os
import pty
import re
import sys
import termios
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console
from structlog.testing import capture_logs

from hydrator.cli import main
from hydrator.cli.commands.top.client import ServedState
from hydrator.cli.commands.top.keyboard import Keyboard
from hydrator.cli.commands.top.plots import ASCII, BLOCKS, bucket_shares, draw_bar, draw_sparkline
from hydrator.cli.commands.top.screen import render_frame
from hydrator.diagnostics.overview.locality_history import build_overview
from hydrator.domain.model import DatasetState, Fact, SiteFacts, Snapshot, to_unix
from hydrator.server.app import build_app
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from hydrator.state.locality_hours import LocalityHour
from tests.factories import CAM, HOUR, L1, NOON, RAL, ad, demand, want

NOW = to_unix(NOON)
NEED = {
    "subject": "site CAM",
    "text": "a change at CAM is held: 3 of 4 datasets would disappear",
    "command": "hydrator approve CAM",
}


def hour(hours_ago: float, share: float | None, jobs: int = 1) -> dict:
    at = NOW - int(hours_ago * 3600)
    return {"at": at, "jobs": jobs, "share_of_jobs": share, "share_of_bytes": share}


def request(share: float | None, *, ready_at: int | None = None, is_stuck: bool = False) -> dict:
    return {"did": L1, "site": RAL, "share": share, "ready_at": ready_at, "is_stuck": is_stuck}


HEALTH = {
    "now": NOW,
    "status": "attention",
    "summary": "1 thing needs you",
    "needs": [NEED],
    "locality": {
        "day": hour(24, 0.75, 4),
        "week": hour(168, 0.5, 8),
        "hours": [hour(100, 0.25), hour(1, 1.0)],
    },
    "staging": [request(0.4, ready_at=NOW + 720), request(0.1, is_stuck=True), request(None)],
}
SITES = [
    {"site": f"SITE-{number:02}", "age_seconds": 61, "generation": 1, "known_datasets": 2}
    for number in range(19)
]
STATE = ServedState(
    NOW,
    [*SITES, {"site": CAM, "age_seconds": 3600, "generation": 42, "known_datasets": 2}],
    [
        {"did": L1, "jobs": 2, "unseen": None, "sites": [{"site": CAM, "state": "AVAILABLE"}]},
        {"did": "a:2", "jobs": 2, "unseen": None, "sites": [{"site": CAM, "state": "STAGING"}]},
    ],
    health=HEALTH,
)


def shown(
    state: ServedState = STATE, *, width: int = 80, height: int | None = None, encoding="utf-8"
) -> list[str]:
    """Return the lines of the screen."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    console.print(render_frame(state, width, height, encoding=encoding))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_screen_fits_the_terminal_and_begins_with_the_health(width):
    lines = shown(width=width)
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("1 thing needs you")
    assert lines[0].endswith("q quits, r asks now")
    upper = " ".join(" ".join(lines[:6]).split())
    assert NEED["text"] in upper
    assert "run hydrator approve CAM" in upper


def test_twenty_sites_and_all_plots_fit_80_columns_and_24_rows():
    lines = shown(replace(STATE, health={**HEALTH, "staging": []}), height=24)
    assert len(lines) <= 24
    assert all(any(site["site"] in line for line in lines) for site in STATE.sites)


def test_rows_that_do_not_fit_are_counted():
    lines = shown(height=10)
    assert len(lines) == 10
    assert lines[-1] == f"{len(shown()) - 9} more lines: make the terminal higher"


def test_site_has_a_bar_of_its_datasets_and_a_mark_if_it_needs_somebody():
    (cell,) = re.findall(r"[ !]CAM .*?1 h", "\n".join(shown()))
    assert cell.split() == ["!CAM", "████▒▒▒▒", "1/2", "1", "h"]
    well = shown(replace(STATE, health={**HEALTH, "needs": []}))
    assert not any("!CAM" in line for line in well)


def test_requests_in_progress_have_bars_and_their_expected_end():
    lines = shown()
    begin = lines.index("data on its way")
    assert lines[begin + 1].split() == [L1, "at", RAL, "█" * 8 + "░" * 12, "40%", "ready", "in", "12", "min"]
    assert lines[begin + 2].endswith("10%  stuck")
    assert lines[begin + 3] == ""


def test_shares_of_the_last_day_and_week_have_plots():
    plots = [line for line in shown() if "beside their data" in line]
    assert [re.findall(r"last [\w ]+?  |\d+%", line) for line in plots[:2]] == [
        ["last 24 hours  ", "75%"],
        ["last 7 days  ", "50%"],
    ]
    assert plots[0].endswith("·█")
    assert plots[1].count("·") == 26


def test_screen_without_ended_jobs_says_so():
    nothing = {"day": None, "week": None, "hours": []}
    lines = shown(replace(STATE, health={**HEALTH, "locality": nothing}))
    assert "beside their data: no job with datasets ended in the last 7 days" in lines


def test_screen_of_an_older_daemon_has_the_sites_without_the_health():
    lines = shown(replace(STATE, health=None))
    assert any("SITE-00" in line for line in lines)
    assert not any("beside" in line for line in lines)


def test_screen_is_plain_ascii_where_the_terminal_has_no_blocks():
    assert "\n".join(shown(encoding="ascii")).isascii()


def test_names_from_the_daemon_cannot_control_the_terminal():
    evil = {**NEED, "text": "\x1b[2Jgone [bold]x[/bold]"}
    lines = shown(replace(STATE, health={**HEALTH, "needs": [evil]}))
    assert "\x1b" not in "".join(lines)
    assert any("gone [bold]x[/bold]" in line for line in lines)


# plots


def test_parts_of_a_span_average_their_hours_by_jobs():
    hours = [hour(3.5, 0.0, jobs=1), hour(3, 1.0, jobs=3), hour(0.5, None), hour(5, 1.0)]
    found = bucket_shares(hours, "share_of_jobs", NOW, span_hours=4, buckets=2)
    assert found == [0.75, None]


def test_present_hour_is_in_the_last_part():
    found = bucket_shares([hour(0, 0.5)], "share_of_jobs", NOW, span_hours=24, buckets=24)
    assert found == [*[None] * 23, 0.5]


def test_sparkline_has_a_step_for_each_share():
    assert draw_sparkline([0.0, 0.5, 1.0, None], BLOCKS) == "▁▅█·"
    assert draw_sparkline([0.0, 1.0, None], ASCII) == "_@ "


@pytest.mark.parametrize(
    ("parts", "bar"),
    [([(1, "#"), (1, "+")], "##++"), ([(1, "#"), (99, "+")], "#+++"), ([(0, "#"), (0, "+")], "....")],
)
def test_bar_shows_each_part_that_is_not_zero(parts, bar):
    assert draw_bar(parts, sum(amount for amount, _ in parts), 4, ".") == bar


# at a terminal


@pytest.fixture(scope="module")
def daemon():
    facts = {CAM: SiteFacts(NOON, {L1: Fact(DatasetState.AVAILABLE, NOON)})}
    ended = [LocalityHour(NOON - HOUR, all_count=3, none_count=1, bytes_at_site=3, bytes_elsewhere=1)]
    state = ServerState(
        {CAM: ad(L1)}, Snapshot(facts), demand(want(L1)), None, NOON, locality=build_overview(ended, NOON)
    )
    with (
        capture_logs(),
        HttpServer(build_app(lambda: state, CollectorRegistry(), max_age=timedelta(seconds=9))) as server,
    ):
        yield server


def watch(monkeypatch, url: str, key: str, *words: str, **environment: str) -> tuple[str, int]:
    """Run ``top`` at a terminal, press *key* when the screen is there; return the screen and the status."""
    main_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    mode = termios.tcgetattr(terminal)
    seen = bytearray()

    def read() -> None:
        is_pressed = False
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while more := os.read(main_end, 4096):
                seen.extend(more)
                if not is_pressed and b"sites" in seen:
                    os.write(main_end, key.encode())
                    is_pressed = True

    reader = threading.Thread(target=read)
    reader.start()
    with (
        os.fdopen(os.dup(terminal)) as stdin,
        os.fdopen(os.dup(terminal), "w") as stdout,
        monkeypatch.context() as patch,
    ):
        for name in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        for name, value in {"TERM": "xterm", **environment}.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "argv", ["hydrator", *words, "top", "--url", url, "--every", "3600"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert termios.tcgetattr(terminal) == mode
    os.close(terminal)
    reader.join()
    os.close(main_end)
    return seen.decode(), ended.value.code or 0


@pytest.mark.outside
@pytest.mark.parametrize("key", ["q", "\x1b", "\x04"])
def test_key_quits_and_the_terminal_is_as_before(monkeypatch, daemon, key):
    seen, status = watch(monkeypatch, daemon.url, key)
    assert status == 0
    assert "all is well" in seen
    assert "jobs beside their data, last 24 hours  75%" in re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert seen.index("\x1b[?1049h") < seen.index("all is well") < seen.index("\x1b[?1049l")


def test_screen_is_drawn_again_in_a_new_size_and_key_r_ends_the_wait():
    main_end, terminal = pty.openpty()
    draws = []

    def draw() -> None:
        draws.append(os.get_terminal_size(terminal).columns)
        if len(draws) == 1:
            termios.tcsetwinsize(terminal, (24, 40))
        else:
            os.write(main_end, b"r")

    termios.tcsetwinsize(terminal, (24, 80))
    with os.fdopen(os.dup(terminal)) as stdin, Keyboard(stdin) as keyboard:
        assert keyboard.wait(3600, draw) is False
    os.close(main_end)
    os.close(terminal)
    assert draws == [80, 40]


@pytest.mark.outside
def test_screen_has_colours_unless_the_user_wants_none(monkeypatch, daemon):
    colour = re.compile(r"\x1b\[[0-9;]*\b3[0-9]m")
    assert colour.search(watch(monkeypatch, daemon.url, "q")[0])
    assert not colour.search(watch(monkeypatch, daemon.url, "q", "--no-color")[0])
    assert not colour.search(watch(monkeypatch, daemon.url, "q", NO_COLOR="1")[0])
