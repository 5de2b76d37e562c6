"""``hydrator status``, ``sites``, ``datasets`` and ``network``: show the daemon's state."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption, parse_dids

if TYPE_CHECKING:
    from hydrator.cli.output.rows import StateView

from hydrator.cli.output.printing import print_result
from hydrator.domain.errors import ConfigError


def status(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print the daemon's state, and what needs attention.

    It has the catalogues, the publishers, the demand, the held changes and the credentials.
    """
    from hydrator.cli.output import tables as show
    from hydrator.cli.output.rows import status_rows

    view = _load_state_view(config)
    print_result(as_json, status_rows(view), lambda: show.print_status(view))


def sites(
    site: Annotated[
        str | None, typer.Argument(help="Only this site, with the last 200 changes of its ad.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print every site, or one site with the changes of its ad.

    A row has datasets by state, the age of the facts, the generation, and the publishers that have the ad.
    """
    from hydrator.cli.output import tables as show
    from hydrator.cli.output.rows import site_change_rows, site_rows
    from hydrator.config import load
    from hydrator.domain.model import Site
    from hydrator.domain.text import comma_separated
    from hydrator.state.store import Store

    view = _load_state_view(config)
    rows = site_rows(view)
    if site is None:
        print_result(as_json, rows, lambda: show.print_sites(rows, view.now))
        return
    rows_of_site = [row for row in rows if row["site"] == site]
    if not rows_of_site:
        known_sites = comma_separated(row["site"] for row in rows) or "none"
        raise ConfigError([f"sites {site}: the daemon does not know this site; known sites: {known_sites}"])
    with Store.open_to_read(load(config).daemon.state_dir) as store:
        changes = site_change_rows(store.site_history.load_changes(Site(site)))

    def print_texts() -> None:
        show.print_sites(rows_of_site, view.now)
        show.print_site_changes(changes, view.now)

    print_result(as_json, [{**row, "changes": changes} for row in rows_of_site], print_texts)


def datasets(
    dids: Annotated[
        list[str] | None,
        typer.Argument(help="Only these datasets, as scope:name; default: all wanted datasets."),
    ] = None,
    why: Annotated[
        bool,
        typer.Option("--why", help="Show the source of each state: catalogue, time, call, rule and reason."),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print the state of every wanted dataset at each site."""
    from hydrator.cli.output import tables as show
    from hydrator.cli.output.rows import dataset_rows
    from hydrator.reconcile.snapshot.memory import provenance_rows

    view = _load_state_view(config)
    names = parse_dids(dids, view.default_scope) if dids else None
    if why:
        rows = provenance_rows(view.memories, names or sorted(view.demand.dids), now=view.now)
        print_result(as_json, rows, lambda: show.print_provenance(rows, view.now))
        return
    print_result(as_json, dataset_rows(view, names), lambda: show.print_datasets(view, names))


def network(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print the rate between sites, and where it comes from."""
    from hydrator.cli.output.network import build_network, print_network
    from hydrator.config import load
    from hydrator.state.network_rows import load_network
    from hydrator.state.store import Store
    from hydrator.wiring import build_rate_table, network_policy, system_clock

    settings, now = load(config), system_clock()
    policy = network_policy(settings)
    with Store.open_to_read(settings.daemon.state_dir) as store:
        record, ads = load_network(store), store.load().ads
    table = build_rate_table(record, policy, now)
    rates = build_network(table, ads.keys() | policy.sites, record.sources)
    print_result(as_json, rates, lambda: print_network(rates, now))


def _load_state_view(config: Path) -> "StateView":
    from hydrator.cli.output.rows import StateView
    from hydrator.config import load
    from hydrator.state.database import owner_of
    from hydrator.state.store import Store
    from hydrator.wiring import reconcile_policy, system_clock

    settings = load(config)
    with Store.open_to_read(settings.daemon.state_dir) as store:
        return StateView.from_store(
            store,
            reconcile_policy(settings),
            now=system_clock(),
            owner=owner_of(settings.daemon.state_dir),
            poll_seconds=settings.daemon.poll_seconds,
        )
