"""``hydrator approve``: let the daemon apply changes that it holds back."""

from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, read_typed
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import READING_STATE, show_progress
from hydrator.domain.errors import ConfigError

_NOTHING_HELD = "the daemon holds back no change"


def approve(
    site: Annotated[
        str | None,
        typer.Argument(help="Only this site; default: all sites with a held change.", callback=read_typed),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
) -> None:
    """Approve the changes that the daemon holds back.

    `hydrator status` shows them; the daemon's next cycle applies them.
    """
    from hydrator.config import load
    from hydrator.domain.model import Site
    from hydrator.domain.text import comma_separated, format_count
    from hydrator.reconcile.state import Approve
    from hydrator.state.command_files import CommandQueue
    from hydrator.state.store import Store

    state_dir = load(config).daemon.state_dir
    with show_progress(READING_STATE), Store.open_to_read(state_dir) as store:
        state = store.load()
    held_datasets = {name: frozenset(loss.missing_polls) for name, loss in state.held_losses.items()}
    if site is not None and Site(site) not in held_datasets:
        held_sites = comma_separated(sorted(held_datasets))
        now_held = f"sites with a held change: {held_sites}" if held_datasets else _NOTHING_HELD
        raise ConfigError([f"approve {site}: this site has no held change; {now_held}"])
    approvals = {name: datasets for name, datasets in sorted(held_datasets.items()) if site in (None, name)}
    commands = CommandQueue(state_dir)
    for name, datasets in approvals.items():
        commands.submit(Approve(name, datasets))
        print(f"{name}: the daemon's next cycle may remove {format_count(len(datasets), 'dataset')}")
    if not approvals:
        print_problems(_NOTHING_HELD)
