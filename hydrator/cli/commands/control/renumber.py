"""``hydrator renumber``: new generations for ads whose generation every hook refuses."""

from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.printing import print_problems, print_result
from hydrator.domain.errors import ConfigError


def renumber(
    site: Annotated[
        str | None,
        typer.Argument(help="Only this site; default: all sites with a generation that hooks refuse."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Give a site's ad a new generation, based on the current time, in the daemon's next cycle.

    Use this command if a generation was forged or came from a wrong clock:
    docs/how-to/operate/run/refused-generation.md.
    """
    from hydrator.config import load
    from hydrator.domain.model import Site
    from hydrator.domain.text import comma_separated
    from hydrator.reconcile.ads.site_ads import implausible_generations
    from hydrator.reconcile.publish.overrides import Renumber
    from hydrator.state.command_files import CommandQueue
    from hydrator.state.store import Store
    from hydrator.wiring import system_clock

    state_dir = load(config).daemon.state_dir
    with Store.open_to_read(state_dir) as store:
        ads = store.load().ads
    if site is not None and Site(site) not in ads:
        known_sites = f"sites with an ad: {comma_separated(sorted(ads))}" if ads else "no site has an ad yet"
        raise ConfigError([f"renumber {site}: the daemon has no ad of this site; {known_sites}"])
    names = [Site(site)] if site is not None else sorted(implausible_generations(ads, system_clock()))
    for name in names:
        CommandQueue(state_dir).submit(Renumber(name))
    generations = {name: ads[name].generation for name in names}

    def print_texts() -> None:
        for name, generation in generations.items():
            print(f"{name}: the daemon's next cycle replaces generation {generation} of the site's ad")
        if not names:
            print_problems("no ad needs a new generation: hooks accept all ads")

    print_result(as_json, generations, print_texts)
