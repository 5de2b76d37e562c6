"""``hydrator history``: past generations of ads."""

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.printing import print_result
from hydrator.domain.errors import ConfigError

_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


def history(
    site: Annotated[str | None, typer.Option(help="Only this site.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only entries since this time: 90m, 6h or 2d ago, or 2026-11-21T12:00:00Z."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print each site's changes, newest first: added and removed datasets, reasons, and publishers."""
    from hydrator.cli.output import tables as show
    from hydrator.cli.output.rows import history_rows
    from hydrator.config import load
    from hydrator.state.store import Store
    from hydrator.wiring import system_clock

    now = system_clock()
    oldest = parse_since(since, now) if since else None
    with Store.open_to_read(load(config).daemon.state_dir) as store:
        entries = store.load_history()
    if site is not None and site not in {entry.ad.site for entry in entries}:
        raise ConfigError([f"--site {site}: this site has no history; see hydrator sites"])
    shown_entries = [
        entry
        for entry in entries
        if site in (None, entry.ad.site) and (oldest is None or entry.decided_at >= oldest)
    ]
    print_result(as_json, history_rows(shown_entries), lambda: show.print_history(shown_entries, now))


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time in *text*: ``6h`` means 6 hours before *now*; a date and time must have a time zone."""
    if match := re.fullmatch(r"(\d{1,5})\s*(s|m|min|h|d)", text.strip()):
        return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        formats = "give a time span like 90m, 6h or 2d, or a time like 2026-11-21T12:00:00Z"
        raise ConfigError([f"--since {text!r}: {formats}"])
    return moment
