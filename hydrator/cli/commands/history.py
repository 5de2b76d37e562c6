"""``hydrator history`` and ``hydrator rollback``: past generations of ads, and the return to one of them."""

import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.printing import print_result
from hydrator.domain.errors import ConfigError

if TYPE_CHECKING:
    from hydrator.domain.model import SiteAd

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


def rollback(
    site: Annotated[str, typer.Argument(help="The site.")],
    generation: Annotated[
        int | None, typer.Argument(help="Generation to return to, from `hydrator history`.")
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End the rollback: the ad follows the catalogues again.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Publish an earlier generation of a site's ad, with its old facts, until you end the rollback."""
    from hydrator.config import load
    from hydrator.domain.model import Site
    from hydrator.reconcile.publish.overrides import Resume, Return
    from hydrator.state.command_files import CommandQueue
    from hydrator.state.store import Store

    if end == (generation is not None):
        raise ConfigError([f"rollback {site}: give either a GENERATION or --end"])
    state_dir = load(config).daemon.state_dir
    with Store.open_to_read(state_dir) as store:
        state, entries = store.load(), store.load_history()
    commands = CommandQueue(state_dir)
    if generation is None:
        if Site(site) not in state.rollbacks:
            raise ConfigError([f"rollback {site} --end: this site is not rolled back"])
        commands.submit(Resume(Site(site)))
        message = f"{site}: from the daemon's next cycle on, the site's ad follows the catalogues again"
    else:
        known_ads = [entry.ad for entry in entries if entry.ad.site == site]
        ad = _find_ad(site, generation, known_ads, state.ads.get(Site(site)))
        commands.submit(Return(ad))
        message = (
            f"{site}: the daemon's next cycle publishes generation {generation}, with facts read at "
            f"{ad.as_of:%Y-%m-%d %H:%M:%S} UTC; to end this rollback, run hydrator rollback {site} --end"
        )
    print(json.dumps({"site": site, "generation": generation}) if as_json else message)


def _find_ad(
    site: str, generation: int, known_ads: "Sequence[SiteAd]", current_ad: "SiteAd | None"
) -> "SiteAd":
    """Return the ad of *generation* from the history; prefer the current ad if it has this generation."""
    ads = {ad.generation: ad for ad in reversed(known_ads)}
    if generation not in ads:
        generations = ", ".join(str(ad.generation) for ad in known_ads[-5:]) or "none"
        problem = f"the site's history has no such generation; its last generations are: {generations}"
        raise ConfigError([f"rollback {site} {generation}: {problem}"])
    return current_ad if current_ad and current_ad.generation == generation else ads[generation]


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
