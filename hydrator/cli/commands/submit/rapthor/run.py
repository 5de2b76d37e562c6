"""A Rapthor run prepared for output: its datasets, their files, and the sites that could run it."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings
from hydrator.domain.errors import ConfigError, StateError
from hydrator.domain.model import Did, Site, SiteFacts
from hydrator.privacy.exchange import fetch_pseudonyms
from hydrator.reconcile.snapshot.update import CatalogueMemory, apply_survey, build_snapshot
from hydrator.state.store import Store
from hydrator.submit.dataset_names.resolver import Resolution
from hydrator.submit.dataset_paths import Paths, has_file_rule, local_paths
from hydrator.submit.file_lists import Listing, address_mismatches, list_files, single_file_notice
from hydrator.submit.rapthor.job import RapthorRun, RunOptions, run_name
from hydrator.submit.rapthor.outlook import SiteOutlook, explain_no_qualified_site, rank_sites
from hydrator.submit.rapthor.parset import Parset, parse_parset
from hydrator.wiring import build_file_listers, reconcile_policy

from .checks import exit_on_problems
from .datasets import resolve_datasets
from .options import OutputFormat, OutputOptions


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run, the answers about its datasets at ``now``, and its sites, the best first.

    ``pseudonyms`` has, by DID, the name that the pool uses; it is empty until :meth:`with_pseudonyms`.
    """

    run: RapthorRun
    parset: Parset
    settings: Settings
    resolution: Resolution
    listing: Listing
    paths: Paths
    sites: tuple[SiteOutlook, ...]
    now: datetime
    pseudonyms: Mapping[Did, Did] = field(default_factory=dict)

    @property
    def dids(self) -> list[Did]:
        """The datasets by their own names."""
        return [did for _, did in self.resolution.pairs]

    @property
    def private_dids(self) -> list[Did]:
        return [did for did in self.dids if self.pseudonyms[did] != did]

    @property
    def sites_with_paths(self) -> list[Site]:
        """The sites where every dataset has a path."""
        return [site for site, here in self.paths.items() if all(did in here for did in self.dids)]

    @property
    def no_site_reason(self) -> str:
        """One sentence on why no site can start the run now; empty if a site can."""
        return explain_no_qualified_site(self.run, self.sites)

    def with_pseudonyms(self) -> "PreparedRun":
        """Return the run under the names that the pool uses; the daemon creates those of private datasets."""
        pseudonyms = fetch_pseudonyms(frozenset(self.dids), self.settings)
        return replace(self, run=self.run.with_pseudonyms(pseudonyms), pseudonyms=pseudonyms)


def prepare_run(
    file: Path, settings: Settings, options: RunOptions, name: str | None, output: OutputOptions
) -> PreparedRun:
    """Read the parset *file*, find its datasets in the catalogues, and rank the sites."""
    parset = parse_parset(_read_parset(file), str(file))
    resolution, now = resolve_datasets(parset, settings, output)
    facts = _collect_site_facts(settings, resolution, now)
    dids = [did for _, did in resolution.pairs]
    is_for_job = output.form is OutputFormat.JOB
    listing = _list_files(settings, dids, output.allow_unknown) if is_for_job else Listing()
    paths = local_paths(settings.storage, dids, {**dict.fromkeys(listing.failures, ()), **listing.contents})
    label = run_name(name or file.stem)
    unique_name = label if name else f"{label}-{int(now.timestamp())}"
    run = RapthorRun(unique_name, tuple(dids), resolution.sizes, options, label)
    can_fetch = settings.submit.stage_in is not None
    sites = rank_sites(run, facts, paths, now=now.timestamp(), can_fetch=can_fetch)
    return PreparedRun(run, parset, settings, resolution, listing, paths, sites, now)


def _read_parset(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError([f"{file}: {error.strerror}; name a Rapthor parset"]) from error


def _collect_site_facts(
    settings: Settings, resolution: Resolution, now: datetime
) -> Mapping[Site, SiteFacts]:
    """Merge the answers of this command into the state that the daemon saved; leave out retired sites."""
    memories: Mapping[str, CatalogueMemory] = {}
    with suppress(StateError), Store.open_to_read(settings.daemon.state_dir) as store:
        memories = store.load().memories
    dids = frozenset(did for _, did in resolution.pairs)
    updated = {
        name: apply_survey(memories.get(name, CatalogueMemory()), answer, dids, now=now)
        for name, answer in resolution.answers.items()
    }
    snapshot = build_snapshot(updated, dids, now=now, max_age=settings.daemon.max_age)
    policy = reconcile_policy(settings)
    return {site: facts for site, facts in snapshot.sites.items() if not policy.is_retired(site)}


def _list_files(settings: Settings, dids: Collection[Did], allow_unknown: bool) -> Listing:
    """List the files of *dids* if a site has storage; exit if a rule for files lacks an answer it needs."""
    if not settings.storage:
        return Listing()
    listers = build_file_listers(settings)
    try:
        with show_progress("listing the files of the datasets"):
            listing = list_files(dids, settings, listers)
    finally:
        for lister in listers:
            lister.close()
    if has_file_rule(settings.storage):
        if not allow_unknown or listing.has_too_many_files:
            exit_on_problems(listing.problems, status=2 if listing.has_too_many_files else 1)
        print_problems(
            *listing.problems,
            single_file_notice(settings.storage, listing),
            *address_mismatches(settings.storage, listing.contents),
        )
    return listing
