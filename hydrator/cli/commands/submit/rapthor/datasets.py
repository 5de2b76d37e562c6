"""Datasets of a parset: expand its globs, resolve the names, and reject names without a dataset."""

import glob
from collections.abc import Collection, Sequence
from datetime import datetime

from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings
from hydrator.domain.ports import Catalogue
from hydrator.domain.text import format_count
from hydrator.submit.dataset_names.globs import Expansion, expand_globs
from hydrator.submit.dataset_names.resolver import Resolution, resolve_names
from hydrator.submit.rapthor.parset import Parset
from hydrator.wiring import assemble, daemon_catalogues, system_clock

from .checks import MAX_LISTED, exit_on_problems
from .options import OutputOptions


def resolve_datasets(
    parset: Parset, settings: Settings, output: OutputOptions
) -> tuple[Resolution, datetime]:
    """Find the datasets of the measurement sets, with the catalogues' answers and the time of these.

    The daemon is queried too for a dry run, or if no catalogue is configured.
    """
    daemon = daemon_catalogues(settings) if output.dry_run or not settings.catalogue else ()
    parts = assemble(settings, system_clock)
    try:
        names = _expand(parset, settings, parts.catalogues, output.allow_unknown)
        with show_progress("asking where the datasets are"):
            resolution = resolve_names(names, settings, parts.catalogues, daemon)
        now = system_clock()
    finally:
        parts.close()
        for catalogue in daemon:
            catalogue.close()
    _check_resolution(resolution, output.allow_unknown)
    return resolution, now


def _expand(
    parset: Parset, settings: Settings, catalogues: Sequence[Catalogue], allow_unknown: bool
) -> Sequence[str]:
    """Return the names that the globs of *parset* match; exit if one matches nothing."""
    expansion = expand_globs(parset.input_globs, _glob_local_files, settings, catalogues)
    for search, count in expansion.catalogue_counts.items():
        datasets = format_count(count, "dataset")
        print_problems(f"{search} matches nothing on this host; it matches {datasets} in the catalogues")
    failures = [
        f"catalogue {name} did not answer: {why}" for name, why in expansion.unreachable_catalogues.items()
    ]
    _exit_on_unmatched_globs(parset, expansion, failures)
    if failures and not allow_unknown:
        advice = "the list may be incomplete; try again later, or accept it with --allow-unknown"
        exit_on_problems([*failures, advice], status=1)
    print_problems(*failures)
    return expansion.names


def _exit_on_unmatched_globs(parset: Parset, expansion: Expansion, failures: Sequence[str]) -> None:
    if expansion.unmatched_globs:
        nothing = [_no_match_text(parset, search) for search in expansion.unmatched_globs]
        exit_on_problems([*failures, *nothing], status=1 if failures else 2)
    hints = [
        parset.missing_brackets_hint(search) for search in parset.input_globs if not _glob_local_files(search)
    ]
    exit_on_problems([hint for hint in hints if hint])


def _glob_local_files(search: str) -> Collection[str]:
    return sorted(glob.glob(search))  # noqa: PTH207 - as Rapthor does it


def _no_match_text(parset: Parset, search: str) -> str:
    return parset.missing_brackets_hint(search) or (
        f"{parset.origin}: input_ms: {search} matches nothing, neither on this host nor in the catalogues"
    )


def _check_resolution(resolution: Resolution, allow_unknown: bool) -> None:
    """Exit if a name has no dataset, two names have one dataset, or a catalogue did not answer."""
    duplicates = [
        f"{' and '.join(names)}: all are {did}; Rapthor would read it twice"
        for did, names in resolution.names_by_shared_did.items()
    ]
    if resolution.problems and not (allow_unknown and None not in resolution.dids):
        exit_on_problems(
            [*resolution.unreachable_notices, *resolution.problems, *duplicates],
            # a catalogue that did not answer may have the dataset: not the user's mistake
            status=1 if resolution.unreachable_catalogues and not resolution.ambiguous_names else 2,
        )
    exit_on_problems(duplicates)
    unchecked = sorted(resolution.unchecked_dids)
    if unchecked and not allow_unknown:
        text = (
            f"{len(unchecked)} datasets could not be looked up ({', '.join(unchecked[:MAX_LISTED])}, …):"
            " try again later, or accept them with --allow-unknown"
        )
        exit_on_problems([*resolution.unreachable_notices, text], status=1)
    print_problems(*resolution.unreachable_notices, *resolution.problems)
