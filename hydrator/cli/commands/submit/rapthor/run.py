"""A Rapthor run prepared for output: its datasets, their files, and the sites that could run it."""

import glob
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from hydrator.cli.commands.submit.dataset_options import read_input_file
from hydrator.cli.commands.submit.shared import describe_unlisted, exit_on_problems
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings, SubmitSettings
from hydrator.diagnostics.why.nowhere import explain_no_complete_site
from hydrator.domain.ads.expressions import Mode
from hydrator.domain.errors import StateError
from hydrator.domain.model import DaemonKnowledge, Did, Site, Snapshot, Survey, Unseen
from hydrator.domain.text import format_count, shorten_list
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey, build_snapshot
from hydrator.state.store import Store
from hydrator.submit.dataset_names.lookup import base_name
from hydrator.submit.dataset_names.resolver import Resolution, resolve_names
from hydrator.submit.dataset_names.search import Expansion, expand_globs
from hydrator.submit.dataset_paths import PATHS_FILE, Paths, has_file_rule, local_paths
from hydrator.submit.file_lists import Listing, address_mismatches, list_files, single_file_notice
from hydrator.submit.rapthor.job import JOB_PARSET, WRAPPER_FILE, RapthorRun, RunOptions, run_name
from hydrator.submit.rapthor.machine import WORKING_FOLDER, spelling_questions
from hydrator.submit.rapthor.outlook import SiteOutlook, rank_sites
from hydrator.submit.rapthor.parset import Parset, parse_parset
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import assemble
from hydrator.wiring.catalogues import build_file_listers, daemon_catalogues, fetch_storage

from .options import RapthorOptions


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A Rapthor run, the catalogues' answers about its datasets at ``now``, and the sites, the best first.

    ``files`` are those that HTCondor transfers with the job, by their names in the parset.
    """

    options: RapthorOptions
    run: RapthorRun
    parset: Parset
    files: Mapping[str, Path]
    settings: Settings
    resolution: Resolution
    listing: Listing
    paths: Paths
    sites: tuple[SiteOutlook, ...]
    snapshot: Snapshot
    now: datetime

    @property
    def sites_with_paths(self) -> list[Site]:
        """The sites where every dataset has a path."""
        return [site for site, paths in self.paths.items() if all(did in paths for did in self.run.dids)]

    @property
    def sites_without_paths(self) -> list[SiteOutlook]:
        """The sites that may have all data, and where the job could not find it."""
        without = [] if self.settings.submit.stage_in else [one for one in self.sites if not one.has_paths]
        return [site for site in without if site.may_have_all or not site.missing_states]

    @property
    def no_path_reason(self) -> str:
        """Why the job would not find all its data at a site."""
        reason = "no [[storage]] gives the data's path there"
        if self.settings.catalogue:
            return reason
        return f"{reason}, or only those of files, and this host has no [[catalogue]] that lists the files"

    @property
    def no_site_reason(self) -> str:
        """One sentence on why no site can start the run now; empty if a site can start it."""
        if any(site.can_run for site in self.sites):
            return ""
        if complete := [site.site for site in self.sites if not site.missing_states]:
            return f"all data is at {shorten_list(complete)}, but {self.no_path_reason}"
        if unanswered := sorted(self.resolution.unanswered_dids):
            return f"it is not known yet which sites have {shorten_list(unanswered)}"
        knowledge = DaemonKnowledge(self.now, self.snapshot, queried_dids=frozenset(self.run.dids))
        can_fetch = self.settings.submit.stage_in is not None
        readable = [site.site for site in self.sites if site.has_paths or can_fetch]
        return explain_no_complete_site(knowledge, knowledge.queried_dids, readable)


def prepare_run(settings: Settings, run_options: RunOptions, options: RapthorOptions) -> PreparedRun:
    """Read the parset, find its datasets in the catalogues, and rank the sites.

    Exits with all problems of the mode and of the names together.
    """
    file = options.parset
    parset = parse_parset(read_input_file(file, "a Rapthor parset"), str(file))
    print_problems(*(f"{file}: {question}" for question in spelling_questions(parset)))
    is_for_job = options.form == "job"
    files = find_files_to_send(parset) if is_for_job else {}
    resolution, now = _resolve_datasets(parset, settings, options)
    problems = _mode_problems(settings.submit, run_options.mode, options.form)
    resolution = _check_resolution(resolution, options, problems, asks_only_daemon=not settings.catalogue)
    dids = [did for _, did in resolution.pairs]
    snapshot = _collect_facts(settings, resolution.answers, frozenset(dids), now)
    if is_for_job and not settings.storage:
        settings = settings.model_copy(update={"storage": fetch_storage(settings, frozenset(dids))})
    listing = _list_files(settings, dids, options) if is_for_job else Listing()
    paths = local_paths(settings.storage, dids, {**dict.fromkeys(listing.failures, ()), **listing.contents})
    label = run_name(options.name or file.stem)
    unique_name = label if options.name else f"{label}-{int(now.timestamp())}"
    run = RapthorRun(unique_name, label, tuple(dids), resolution.sizes, run_options)
    sites = rank_sites(
        run,
        snapshot.sites,
        paths,
        now=now.timestamp(),
        can_fetch=settings.submit.stage_in is not None,
        unanswered_dids=resolution.unanswered_dids,
    )
    return PreparedRun(
        options, run, parset, files, settings, resolution, listing, paths, sites, snapshot, now
    )


def _mode_problems(submit: SubmitSettings, mode: Mode | None, form: str) -> list[str]:
    """Return one sentence if the job may start away from its data and cannot fetch it.

    With --as env Toil submits the steps, and all of them use one file system.
    """
    if mode == "require" or form == "env" or submit.stage_in:
        return []
    advice = "set [submit].stage_in to a command that fetches {did} to {path}, or use --mode require"
    start = f"--mode {mode} lets the run start at a site without its data"
    return [f"{start}, but Rapthor opens local paths: {advice}"]


def find_files_to_send(parset: Parset) -> dict[str, Path]:
    """Return the files of *parset* that exist on this host, by their names in the parset.

    Exits if a file cannot be read, if two files have the same name, or if a relative path,
    which means nothing at a site, names no file.
    """
    paths: dict[str, Path] = {}
    problems = []
    for option, name in [(option, name) for option, names in parset.files.items() for name in names]:
        try:
            if Path(name).is_file():
                Path(name).open("rb").close()
                paths[name] = Path(name).absolute()
            elif Path(name).is_absolute():
                later = "the job will look for this path at its site"
                print_problems(f"{option} = {name} is not a file on this host: {later}")
            else:
                place = "in the current folder, and Rapthor expands neither ~ nor $: correct the path"
                problems.append(f"{option} = {name}: there is no such file {place}")
        except OSError as error:
            problems.append(f"{option} = {name}: you cannot read this file: {error.strerror}")
    sent = sorted({str(path) for path in paths.values()})
    names = [JOB_PARSET, PATHS_FILE, WRAPPER_FILE, WORKING_FOLDER, *(Path(path).name for path in sent)]
    problems += [
        f"two files of the job are called {name}: HTCondor transfers them into one folder, so rename one"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    exit_on_problems(problems)
    return paths


def _collect_facts(
    settings: Settings, answers: Mapping[str, Survey | Unseen], dids: frozenset[Did], now: datetime
) -> Snapshot:
    """Merge the catalogues' answers into the state that the daemon saved; leave out retired sites."""
    memories: Mapping[str, CatalogueMemory] = {}
    with suppress(StateError), Store.open_to_read(settings.daemon.state_dir) as store:
        memories = store.load().memories
    updated = {
        name: apply_survey(memories.get(name, CatalogueMemory()), answer, dids, now=now)
        for name, answer in answers.items()
    }
    snapshot = build_snapshot(updated, dids, now=now, max_age=settings.daemon.max_age)
    sites = {site: facts for site, facts in snapshot.sites.items() if not settings.sites.is_retired(site)}
    return replace(snapshot, sites=sites)


def _list_files(settings: Settings, dids: Collection[Did], options: RapthorOptions) -> Listing:
    """List the files of *dids* if there is a [[storage]].

    Exit if the files cannot be listed and a path rule needs them.
    """
    if not settings.storage:
        return Listing()
    task = "listing the files of the datasets"
    with show_progress(task, has_steps=True) as bar, ExitStack() as stack:
        bar.set_steps(len(set(dids)))
        listers = build_file_listers(settings, bar)
        for lister in listers:
            stack.callback(lister.close)
        listing = list_files(dids, settings, listers)
    if has_file_rule(settings.storage):
        if not options.allow_unknown or listing.has_too_many_files:
            exit_on_problems(listing.problems, status=2 if listing.has_too_many_files else 1)
        print_problems(
            *listing.problems,
            single_file_notice(settings.storage, listing),
            *address_mismatches(settings.storage, listing.contents),
        )
    return listing


# --- the datasets of the parset --------------------------------------------------------------------------


def _resolve_datasets(
    parset: Parset, settings: Settings, options: RapthorOptions
) -> tuple[Resolution, datetime]:
    """Find the datasets of the parset's measurement sets; also return the time of the catalogues' answers.

    For a dry run, or without a configured catalogue, the command also queries the daemon.
    """
    daemon = daemon_catalogues(settings) if options.dry_run or not settings.catalogue else ()
    with ExitStack() as stack:
        for catalogue in daemon:
            stack.enter_context(closing(catalogue))
        parts = stack.enter_context(closing(assemble(settings, system_clock)))
        with show_progress("searching for the datasets of the parset"):
            searched = parts.catalogues or daemon
            expansion = expand_globs(
                parset.input_globs,
                _glob_local_files,
                settings,
                searched,
                is_daemon=not parts.catalogues,
            )
        names = _check_expansion(parset, expansion, options.allow_unknown)
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            print_problems(f"input_ms names {shorten_list(repeated)} more than once: the run reads it once")
        names = [f"{name}/" if _is_plain_folder(Path(name)) else name for name in dict.fromkeys(names)]
        with show_progress("asking the catalogues for the sites of the datasets"):
            resolution = resolve_names(names, settings, parts.catalogues, daemon)
        now = system_clock()
    return resolution, now


def _is_plain_folder(path: Path) -> bool:
    """Return whether *path* is a folder on this host whose name and content are not of a measurement set."""
    return not path.suffix and path.is_dir() and not (path / "table.dat").exists()


def _check_expansion(parset: Parset, expansion: Expansion, allow_unknown: bool) -> Sequence[str]:
    """Return the measurement sets that match the globs of *parset*; exit if a glob matches nothing."""
    for search, matches in expansion.catalogue_matches.items():
        found = f"{search} matches nothing on this host; in the catalogues it matches"
        if len(several := _find_observations(matches)) > 1:
            advice = f"write a list with one glob for each that you mean, such as {several[0]}_*"
            exit_on_problems([f"{found} {len(several)} observations ({shorten_list(several)}): {advice}"])
        if matches:
            print_problems(f"{found} {format_count(len(matches), 'dataset')}")
    failures = _describe_failures(expansion.unreachable_catalogues)
    not_here = [search for search in parset.input_globs if not _glob_local_files(search)]
    exit_on_problems([hint for search in not_here if (hint := parset.missing_brackets_hint(search))])
    places = (
        ", neither on this host nor in the catalogues, whose names are compared with letter case,"
        " without [submit].patterns: list the names"
    )
    if failures:
        places = " on this host: try again when the catalogue answers, or list the names"
    nothing = [
        f"{parset.origin}: input_ms: {search} matches nothing{places}"
        for search, matches in expansion.catalogue_matches.items()
        if not matches
    ]
    if nothing:
        exit_on_problems([*failures, *nothing], status=1 if failures else 2)
    if failures and not allow_unknown:
        advice = "try again when the catalogue answers, or accept the list with --allow-unknown"
        exit_on_problems([*failures, f"the list of datasets may be incomplete; {advice}"], status=1)
    print_problems(*failures)
    return expansion.names


def _find_observations(names: Iterable[str]) -> list[str]:
    """Return the LOFAR observations of *names*.

    >>> _find_observations(["/data/L1_SB000_uv.MS", "L1_SB001_uv.MS", "L2_SB000_uv.MS", "other.MS"])
    ['L1', 'L2']
    """
    return sorted({found[0] for name in names if (found := re.match(r"L\d+(?=_)", base_name(name)))})


def _describe_failures(unreachable_catalogues: Mapping[str, str]) -> list[str]:
    return [f"catalogue {name} gave no answer: {why}" for name, why in unreachable_catalogues.items()]


def _glob_local_files(search: str) -> Collection[str]:
    return sorted(glob.glob(search))  # noqa: PTH207 - Rapthor calls glob.glob too


def _check_resolution(
    resolution: Resolution,
    options: RapthorOptions,
    problems_of_mode: Sequence[str],
    *,
    asks_only_daemon: bool,
) -> Resolution:
    """Return *resolution*, without absent names if the user said so.

    Exits if a name has no dataset, two names have the same dataset, or a catalogue did not answer. The daemon
    knows no dataset that no job has named. So without a catalogue this run may be the first that names one.
    """
    if options.least_share is not None:
        resolution = _leave_out_absent(resolution, options.least_share, problems_of_mode)
    duplicates = [
        f"{' and '.join(names)}: these are the same measurement set, {did}, and Rapthor would read it twice"
        for did, names in resolution.names_by_shared_did.items()
    ]
    notices, problems = _describe_failures(resolution.unreachable_catalogues), resolution.problems
    if problems and not (options.allow_unknown and None not in resolution.dids.values()):
        exit_on_problems(
            [*problems_of_mode, *notices, *problems, *duplicates, *_offer_to_skip(resolution)],
            # a catalogue that did not answer may have the dataset, so the name may be right
            status=1 if notices and not resolution.ambiguous_names else 2,
        )
    exit_on_problems([*problems_of_mode, *duplicates])
    unchecked = sorted(resolution.unchecked_dids)
    if unchecked and not options.allow_unknown and (notices or not asks_only_daemon):
        # a daemon that does not answer has also the paths, without which there is no job
        is_silent = all(isinstance(answer, Unseen) for answer in resolution.answers.values())
        otherwise = "" if asks_only_daemon and is_silent else ", or accept them with --allow-unknown"
        text = (
            f"{format_count(len(unchecked), 'dataset')} could not be looked up ({shorten_list(unchecked)}):"
            f" try again when the catalogue answers{otherwise}"
        )
        exit_on_problems([*notices, text], status=1)
    if unchecked and options.least_share is not None and asks_only_daemon:
        text = (
            f"the daemon does not know yet whether a site has {shorten_list(unchecked)}: submit without"
            " --skip-absent and --at-least; if `hydrator why` then names absent datasets, remove the job and"
            " submit it again with the option"
        )
        exit_on_problems([text])
    print_problems(*notices, *problems, *describe_unlisted(resolution.unlisted_dids))
    if any(resolution.unlisted_dids.values()) and not options.allow_unknown:
        exit_on_problems(["correct the name, or accept it with --allow-unknown; nothing was submitted"])
    return resolution


def _leave_out_absent(
    resolution: Resolution, least_share: float, problems_of_mode: Sequence[str]
) -> Resolution:
    """Return *resolution* without absent names; exit if less than *least_share* of the names are left.

    If a catalogue did not answer, a name that the others do not have may exist, so all names stay.
    """
    absent, total = resolution.absent_names, len(resolution.dids)
    if not absent or resolution.unreachable_catalogues:
        return resolution
    left = total - len(absent)
    sentences = [f"{name}: {why}" for name, why in absent.items()]
    if not left or left / total < least_share:
        too_few = f"only {left} of {total} measurement sets are left; nothing was submitted"
        exit_on_problems([*problems_of_mode, *sentences, too_few])
    print_problems(*sentences, f"the run leaves out {len(absent)} of {total} measurement sets")
    return resolution.without(absent)


def _offer_to_skip(resolution: Resolution) -> list[str]:
    """Return one sentence on how to run without the absent names, if that is possible."""
    absent, total = resolution.absent_names, len(resolution.dids)
    if resolution.unreachable_catalogues or resolution.ambiguous_names or len(absent) == total:
        return []
    missing = f"{len(absent)} of {total} measurement sets are absent"
    return [
        f"{missing}; to run without them, add --skip-absent, or --at-least 0.9 to need nine tenths of them"
    ]
