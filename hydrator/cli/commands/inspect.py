"""hydrator status, sites and datasets: show what the daemon knows."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.domain.errors import ConfigError

if TYPE_CHECKING:
    from hydrator.privacy.pseudonyms import Pseudonymizer

from hydrator.cli.output.printing import print_result


def status(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print what is known, published and read back, catalogue by catalogue and publisher by publisher."""
    from hydrator.cli.output import tables as show
    from hydrator.cli.output.rows import status_rows

    known = _load_state_view(config)
    print_result(as_json, status_rows(known), lambda: show.print_status(known))


def sites(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print every site: datasets by state, age, generation, and where its ad was read back."""
    from hydrator.cli.output import tables as show
    from hydrator.cli.output.rows import site_rows

    known = _load_state_view(config)
    print_result(as_json, site_rows(known), lambda: show.print_sites(known))


def datasets(
    dids: Annotated[
        list[str] | None, typer.Argument(help="Only these, as scope:name; default: all wanted.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Who said so, when, by which call, and what else it knows.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print every wanted dataset: its state and age at each site, and how many jobs want it."""
    from hydrator.cli.output import tables as show
    from hydrator.cli.output.rows import dataset_rows
    from hydrator.domain.model import parse_did
    from hydrator.reconcile.snapshot.provenance_rows import provenance_rows

    known = _load_state_view(config)
    veil = _load_pseudonymizer(config)
    asked = [parse_did(did, known.default_scope) for did in dids] if dids else None
    if asked and veil:
        asked = [veil.pseudonym(did) for did in asked]
    if why:
        told = provenance_rows(known.memories, asked or sorted(known.demand.dids), now=known.now)
        print_result(as_json, told, lambda: show.print_provenance(told, known.now))
        return
    print_result(as_json, dataset_rows(known, asked), lambda: show.print_datasets(known, asked))


def _load_state_view(config: Path) -> Any:  # noqa: ANN401 - show.Known, imported late
    from hydrator.cli.output.rows import StateView
    from hydrator.config import load
    from hydrator.state.store import Store, owner_of
    from hydrator.wiring import reconcile_policy, system_clock

    settings = load(config)
    veil = _load_pseudonymizer(config)
    with Store.open_to_read(settings.daemon.state_dir) as store:
        return StateView.from_store(
            store,
            reconcile_policy(settings, veil),
            now=system_clock(),
            owner=owner_of(settings.daemon.state_dir),
            poll_seconds=settings.daemon.poll_seconds,
        )


def _load_pseudonymizer(config: Path) -> "Pseudonymizer | None":
    """What private datasets are called, for who may read the key."""
    from hydrator.config import load
    from hydrator.wiring import build_pseudonym_store

    with suppress(ConfigError):
        register = build_pseudonym_store(load(config), is_owner=False)
        return register.pseudonymizer if register else None
    return None
