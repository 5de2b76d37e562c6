"""Examination of the installation: packages, catalogues, brokers, folders."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hydrator.diagnostics.check.findings import CheckInputs, Finding, Level, _name_list
from hydrator.diagnostics.trust import find_distrusted_sites
from hydrator.domain.errors import EventsError
from hydrator.domain.model import Site
from hydrator.domain.ports import Catalogue, EventSource
from hydrator.domain.text import format_count

PACKAGES = ("adapters", "hydrator", "toil_batch_system_classad_hydrator")
"""All packages of the distribution; Toil finds the third by its name."""


def check_packages(owners: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Check that no other distribution has one of these packages; two have common names.

    Args:
        owners: by package, the distributions that install it.
    """
    for package in PACKAGES:
        others = sorted(set(owners.get(package, [])) - {"classad-hydrator"})
        if others:
            yield Finding(
                Level.FAIL,
                "installation",
                f"the package {package} also belongs to {', '.join(others)}: one overwrites the other",
                "install classad-hydrator in a virtual environment of its own",
            )
            return
    yield Finding(Level.OK, "installation", "no other distribution installs the same package names")


def _check_catalogue(catalogue: Catalogue, sites: set[Site]) -> Iterator[Finding]:
    survey = catalogue.read(frozenset())
    sites |= survey.sites
    yield Finding(
        Level.OK,
        catalogue.name,
        f"answers, and covers {format_count(len(survey.sites), 'site')}: {_name_list(survey.sites)}",
    )
    if survey.unmapped_storages:
        yield Finding(
            Level.WARN,
            catalogue.name,
            f"{len(survey.unmapped_storages)} storage elements have no site:"
            f" {_name_list(survey.unmapped_storages)}",
            "give each RSE its site attribute, or name its site under [catalogue.rse_sites]",
        )


def _check_broker(broker: EventSource) -> Iterator[Finding]:
    """Check a broker. Polls go on without events, so an unreachable broker is only a warning."""
    subject = f"events {broker.name}"
    try:
        yield Finding(Level.OK, subject, broker.test_connection())
    except EventsError as error:
        yield Finding(
            Level.WARN,
            subject,
            f"{error.reason}: without its events, the daemon sees changes only when it polls",
            f"check that the broker runs, and check [[events.stomp]] {broker.name}: docs/reference/events.md",
        )


def _check_held_changes(changes: Mapping[Site, str]) -> Iterator[Finding]:
    for site, why in sorted(changes.items()):
        todo = "check its catalogue: docs/how-to/operate/when-a-change-is-held.md"
        yield Finding(Level.WARN, f"site {site}", f"a change is held: {why}", todo)


def _check_trust(inputs: CheckInputs) -> Iterator[Finding]:
    """Report sites of low trust; yield nothing before the first audit."""
    for site, line in find_distrusted_sites(inputs.audit, inputs.warn_below):
        yield Finding(
            Level.WARN, f"site {site}", line, "have the site's catalogue repaired: docs/explanation/trust.md"
        )


def _check_folder(folder: Path, subject: str, key: str) -> Iterator[Finding]:
    existing = next(parent for parent in (folder, *folder.parents) if os.access(parent, os.F_OK))
    if os.access(existing, os.W_OK | os.X_OK):
        yield Finding(Level.OK, subject, f"{folder} is writable")
    else:
        yield Finding(
            Level.FAIL, subject, f"{existing} is not writable", f"change its owner, or change {key}"
        )
