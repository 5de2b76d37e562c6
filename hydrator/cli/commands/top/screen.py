"""The screen of ``hydrator top``, from one state of the daemon: health, locality, staging, sites."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hydrator.cli.output import tables as show
from hydrator.domain.redaction import escape_unprintable
from hydrator.domain.text import format_count, format_duration, shorten_list

from .client import ServedState
from .plots import Glyphs, bucket_shares, choose_glyphs, draw_bar, draw_sparkline

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_COLUMNS = ("site", "read", "generation", "known", "available", "staging", "other")
_CELL_WIDTH = 38
_MAX_REQUESTS = 6
_SPANS = (("day", "last 24 hours", 24), ("week", "last 7 days", 168))
_STYLES = {"well": "bold green", "attention": "bold red", "waiting": "bold yellow"}
PIPE_WIDTH = 100


def print_once(state: ServedState) -> None:
    """Print the screen; without a terminal, sites are a table with a row for each site."""
    from rich.console import Group

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    if sys.stdout.isatty():
        width = show.terminal_width()
        show.print_renderable(render_frame(state, width, None, encoding=encoding, is_live=False))
        return
    upper = _render_upper(state, PIPE_WIDTH, choose_glyphs(encoding), is_live=False)
    show.print_renderable(Group(*upper, show.build_table(_COLUMNS, table_rows(state))))


def render_frame(
    state: ServedState, width: int, height: int | None, *, encoding: str, is_live: bool = True
) -> "RenderableType":
    """Return the content of the screen for one state.

    Args:
        state: the daemon's data.
        width: columns of the terminal.
        height: rows of the terminal; None for any number of rows.
        encoding: the encoding of the output; plots use block characters only with UTF-8.
        is_live: True if keys work.
    """
    from rich.console import Group
    from rich.text import Text

    glyphs = choose_glyphs(encoding)
    lines = [*_render_upper(state, width, glyphs, is_live=is_live), *_site_grid(state, width, glyphs)]
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], Text(f"{format_count(hidden, 'more line')}: make the terminal higher")]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(*lines)


def _render_upper(state: ServedState, width: int, glyphs: Glyphs, *, is_live: bool) -> list["Text"]:
    """Return all lines above the sites."""
    from rich.text import Text

    keys = "q quits, r asks now" if is_live else ""
    lines = [
        *_health_lines(state, width, keys),
        *(Text(line) for line in _wrap(_clean(summary_line(state)), width)),
        Text(_clean(estimates_line(state)), "dim"),
        Text(""),
    ]
    if state.health is not None:
        lines += [*_locality_lines(state.health, width, glyphs), Text("")]
        staging = list(_staging_lines(state.health, width, glyphs))
        lines += [*staging, Text("")] if staging else []
    return lines


def _clean(text: object) -> str:
    return escape_unprintable(str(text))


def _health_lines(state: ServedState, width: int, keys: str) -> Iterator["Text"]:
    """Yield the health in one line with the *keys*, and a sentence and a command for each need."""
    from rich.text import Text

    health = state.health
    if health is None:
        yield from [Text(keys, "dim")] if keys else []
        return
    summary = _clean(health["summary"])
    gap = " " * max(2, width - len(summary) - len(keys))
    style = _STYLES.get(health["status"], "bold")
    yield Text.assemble((summary, style), (f"{gap}{keys}" if keys else "", "dim"))
    for need in health["needs"]:
        text, command = _clean(need["text"]), _clean(need["command"])
        if len(f"  {text}; run {command}") <= width:
            yield Text.assemble(f"  {text}; run ", (command, "bold"))
            continue
        yield from (Text(f"  {part}") for part in _wrap(text, width - 2))
        yield Text.assemble("    run ", (command, "bold"))


def _wrap(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(10, width))[:3]


def _locality_lines(health: Mapping[str, Any], width: int, glyphs: Glyphs) -> Iterator["Text"]:
    """Yield the shares of jobs and bytes beside their data, with a plot over time."""
    from rich.text import Text

    locality = health["locality"]
    if not locality["hours"]:
        yield Text("beside their data: no job with datasets ended in the last 7 days")
        return
    for name, key in (("jobs", "share_of_jobs"), ("bytes", "share_of_bytes")):
        for span, title, hours in _SPANS:
            total = locality[span]
            share = None if total is None else total[key]
            pad = 38 if width >= 76 else 20
            points = min(24 if span == "day" else 28, max(7, width - pad - 7))
            values = bucket_shares(locality["hours"], key, health["now"], span_hours=hours, buckets=points)
            percent = "   ?" if share is None else f"{int(share * 100 + 1e-9):3d}%"
            label = f"{name} beside their data, {title}" if width >= 76 else f"{name}, {title}"
            yield Text.assemble(f"{label:<{pad}}{percent}  ", (draw_sparkline(values, glyphs), "green"))


def _staging_lines(health: Mapping[str, Any], width: int, glyphs: Glyphs) -> Iterator["Text"]:
    """Yield a bar for each request of data in progress."""
    from rich.text import Text

    rows = [row for row in health["staging"] if row["share"] is not None]
    if not rows:
        return
    yield Text("data on its way", "bold")
    bar_width = 20 if width >= 76 else 8
    name_width = max(12, width - bar_width - 38)
    for row in rows[:_MAX_REQUESTS]:
        share = row["share"]
        bar = draw_bar([(share, glyphs.full)], 1, bar_width, glyphs.empty)
        name = _shorten(f"{_clean(row['did'])} at {_clean(row['site'])}", name_width)
        ready = _ready_text(row, health["now"])
        style = "red" if row["is_stuck"] else "cyan"
        yield Text.assemble(f"  {name:<{name_width}} ", (bar, style), f" {int(share * 100):3d}%  {ready}")
    if len(rows) > _MAX_REQUESTS:
        yield Text(f"  and {format_count(len(rows) - _MAX_REQUESTS, 'more request')}: hydrator staging list")


def _ready_text(row: Mapping[str, Any], now: int) -> str:
    if row["is_stuck"]:
        return "stuck"
    if row["ready_at"] is None:
        return "end not known"
    return f"ready in {format_duration(max(0, row['ready_at'] - now))}"


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _site_grid(state: ServedState, width: int, glyphs: Glyphs) -> list["Text"]:
    """Return the sites in as many columns as the terminal has room for; a site in trouble has a mark."""
    from rich.text import Text

    sites = {site["site"]: site for site in state.sites}
    states = _count_states(state)
    needs = state.health["needs"] if state.health else ()
    in_need = {need["subject"].removeprefix("site ") for need in needs if need["subject"].startswith("site ")}
    cells = [
        Text(_site_cell(name, sites.get(name), states.get(name, Counter()), glyphs, has_need=name in in_need),
             "yellow" if name in in_need else "")
        for name in sorted(sites.keys() | states.keys())
    ]  # fmt: skip
    columns = max(1, (width + 2) // (_CELL_WIDTH + 2))
    height = -(-len(cells) // columns)
    title = (
        f"sites   {glyphs.full} on disk {glyphs.half} on its way {glyphs.empty} other, of the wanted datasets"
    )
    grid = [Text(title, "bold")]
    for row in range(height):
        line = Text()
        for cell in cells[row::height]:
            cell.truncate(_CELL_WIDTH, overflow="ellipsis", pad=True)
            line.append(cell).append("  ")
        grid.append(line)
    return grid


def _site_cell(
    name: str, site: Mapping[str, Any] | None, states: Counter[str], glyphs: Glyphs, *, has_need: bool
) -> str:
    available, staging, total = states["AVAILABLE"], states["STAGING"], sum(states.values())
    bar = draw_bar([(available, glyphs.full), (staging, glyphs.half)], total, 8, glyphs.empty)
    age = "no ad" if site is None else " ".join(format_duration(site["age_seconds"]).split()[:2])
    mark = "!" if has_need else " "
    return f"{mark}{_shorten(_clean(name), 13):<13} {bar} {f'{available}/{total}':>6} {age}"


def _count_states(state: ServedState) -> dict[str, Counter[str]]:
    """Return the number of wanted datasets in each state, by site."""
    states: dict[str, Counter[str]] = {}
    for dataset in state.datasets:
        for fact in dataset["sites"]:
            states.setdefault(fact["site"], Counter())[fact["state"]] += 1
    return states


def table_rows(state: ServedState) -> list[tuple[str, ...]]:
    """Return a row for every site, in the order of the columns."""
    states = _count_states(state)
    rows_by_site = {site["site"]: site for site in state.sites}
    return [
        _site_row(site, rows_by_site.get(site), states.get(site, Counter()))
        for site in sorted(rows_by_site.keys() | states.keys())
    ]


def _site_row(site: str, site_entry: Mapping[str, Any] | None, states: Mapping[str, int]) -> tuple[str, ...]:
    available, staging = states.get("AVAILABLE", 0), states.get("STAGING", 0)
    other = sum(states.values()) - available - staging
    if site_entry is None:
        return (site, "?", "not served", "?", str(available), str(staging), str(other))
    known = "?" if site_entry["known_datasets"] is None else str(site_entry["known_datasets"])
    age = f"{format_duration(site_entry['age_seconds'])} ago"
    return (site, age, str(site_entry["generation"]), known, str(available), str(staging), str(other))


def summary_line(state: ServedState) -> str:
    """Return one line: the time, and the number of wanted datasets that are available at a site."""
    available = sum(any(fact["state"] == "AVAILABLE" for fact in each["sites"]) for each in state.datasets)
    jobs = sum(each["jobs"] for each in state.datasets)
    unseen = sum(each["unseen"] is not None for each in state.datasets)
    when = f"{datetime.fromtimestamp(state.now, UTC):%Y-%m-%d %H:%M:%S} UTC"
    trouble = f"; no catalogue answered about {format_count(unseen, 'dataset')}" if unseen else ""
    counts = f"{available} of {format_count(len(state.datasets), 'wanted dataset')} available at a site"
    return f"{when}   {counts}, named {format_count(jobs, 'time')} by jobs{trouble}"


def estimates_line(state: ServedState) -> str:
    """Return one line: the number of sites with valid estimates; or that there are none, and why."""
    until = [site["estimates_until"] for site in state.sites if site.get("estimates_until")]
    if not until:
        return "no estimates of reads and queues" + (
            f": {state.estimates_none}" if state.estimates_none else ""
        )
    queues = [
        f"{site['site']} {format_duration(site['own_queue_seconds'])}"
        for site in state.sites
        if site.get("own_queue_seconds")
    ]
    line = f"estimates of reads and queues at {format_count(len(until), 'site')}"
    return line + (f"; queues of local jobs: {shorten_list(queues)}" if queues else "")
