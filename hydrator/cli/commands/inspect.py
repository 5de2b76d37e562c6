"""``hydrator status``, ``sites``, ``datasets`` and ``network``: show the daemon's state."""

from dataclasses import replace
from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption, parse_dids, read_typed
from hydrator.cli.output import tables as show
from hydrator.cli.output.printing import print_result
from hydrator.cli.output.progress import READING_STATE, show_progress
from hydrator.config import load
from hydrator.diagnostics.overview.saved import load_status, load_view
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Site
from hydrator.domain.text import comma_separated
from hydrator.state.database import owner_of
from hydrator.state.store import Store
from hydrator.wiring import system_clock


def status(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print the daemon's state, and what needs attention.

    It has the catalogues, the publishers, the demand, the held changes and the credentials.
    """
    daemon, now = load(config).daemon, system_clock()
    with Store.open_to_read(daemon.state_dir) as store:
        loaded = load_status(store, now, owner_of(daemon.state_dir), daemon.poll_seconds)
    print_result(as_json, loaded, lambda: show.print_status(loaded, now))


def sites(
    site: Annotated[
        str | None,
        typer.Argument(help="Only this site, with the last 200 changes of its ad.", callback=read_typed),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print every site, or one site with the changes of its ad.

    A row has datasets by state, the age of the facts, the generation, and the publishers that have the ad.
    """
    with Store.open_to_read(load(config).daemon.state_dir) as store:
        cycle, now = load_view(store), system_clock()
        rows = cycle.sites if cycle else ()
        if site is None:
            print_result(as_json, rows, lambda: show.print_sites(rows, now))
            return
        found = [row for row in rows if row.site == site]
        if not found:
            known = comma_separated(row.site for row in rows) or "none"
            raise ConfigError([f"sites {site}: the daemon does not know this site; known sites: {known}"])
        changes = store.load_changes(Site(site))
    shown = [replace(row, changes=changes) for row in found]

    def print_texts() -> None:
        show.print_sites(shown, now)
        show.print_site_changes(changes, now)

    print_result(as_json, shown, print_texts)


def datasets(
    dids: Annotated[
        list[str] | None,
        typer.Argument(help="Only these datasets, as scope:name; default: all demanded datasets."),
    ] = None,
    why: Annotated[
        bool,
        typer.Option("--why", help="Show the source of each state: catalogue, time, call, rule and reason."),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print the state of every demanded dataset at each site."""
    from hydrator.diagnostics.overview.facts import load_facts, provenance_rows
    from hydrator.diagnostics.why.nowhere import add_similar_names
    from hydrator.reconcile.view import build_datasets, find_unseen

    settings, now = load(config), system_clock()
    with show_progress(READING_STATE), Store.open_to_read(settings.daemon.state_dir) as store:
        facts = load_facts(store, settings, now)
    names = parse_dids(dids, settings.daemon.default_scope) if dids else sorted(facts.demand.dids)
    if why:
        rows = provenance_rows(facts.memories, names, now=now)
        print_result(as_json, rows, lambda: show.print_provenance(rows, now))
        return
    knowledge = add_similar_names(facts.knowledge, names)
    snapshot = knowledge.snapshot
    unseen = find_unseen(facts.demand, snapshot, facts.memories, snapshot.present_dids)
    shown = build_datasets(names, knowledge, facts.demand, unseen)
    print_result(as_json, shown, lambda: show.print_datasets(shown, now))


def network(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print the rate between sites, and where it comes from."""
    from hydrator.cli.output.network import build_network, print_network
    from hydrator.reconcile.rates import RateTable
    from hydrator.state.reports import NETWORK_REPORT, NetworkRecord

    settings, now = load(config), system_clock()
    with show_progress(READING_STATE), Store.open_to_read(settings.daemon.state_dir) as store:
        record, ads = store.load_report(NETWORK_REPORT, NetworkRecord) or NetworkRecord(), store.load().ads
    table = RateTable(record.samples, now=now, network=settings.network)
    rates = build_network(table, ads.keys() | settings.network.sites, record.sources)
    print_result(as_json, rates, lambda: print_network(rates, now))
