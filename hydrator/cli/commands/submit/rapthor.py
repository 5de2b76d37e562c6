"""``hydrator submit rapthor PARSET``: from a parset to a job that runs beside its measurement sets."""

import glob
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, EXIT_NO_MATCH_NOW, ConfigOption
from hydrator.cli.output.progress import show_progress

if TYPE_CHECKING:
    from hydrator.config import Settings
    from hydrator.domain.model import Did, Site, SiteFacts
    from hydrator.submit.dataset_paths import Paths
    from hydrator.submit.dataset_resolver import Resolution
    from hydrator.submit.file_lists import Listing
    from hydrator.submit.gpus import GpuChoice
    from hydrator.submit.rapthor.job import RapthorRun, RunOptions, SiteOutlook
    from hydrator.submit.rapthor.parset import Parset

_MAX_LISTED = 3


class OutputFormat(StrEnum):
    """What is made of the parset."""

    JOB = "job"
    ENV = "env"
    AD = "ad"


class GpuMode(StrEnum):
    """Which slots."""

    NO = "no"
    PREFER = "prefer"
    REQUIRE = "require"


class LocalityMode(StrEnum):
    """Where the run may go."""

    REQUIRE = "require"
    WAIT = "wait"
    PREFER = "prefer"


def submit_rapthor(
    parset: Annotated[Path, typer.Argument(help="The parset, as you would give it to rapthor.")],
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the job into a new folder of its own in this one."),
    ] = None,
    form: Annotated[
        OutputFormat,
        typer.Option("--as", help="The whole run as a job; exports for Toil's steps; a ClassAd."),
    ] = OutputFormat.JOB,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, with --as ad and --dry-run.")] = False,
    submit: Annotated[bool, typer.Option("--submit", help="RapthorRun condor_submit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which sites would match now.")
    ] = False,
    mode: Annotated[
        LocalityMode,
        typer.Option(help="Only where the data is; wait for that first; or prefer such sites."),
    ] = LocalityMode.REQUIRE,
    max_wait: Annotated[
        int | None, typer.Option(min=0, help="Seconds that wait and prefer hold out.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the run; default: the parset's, and the time.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="Cores.")] = None,
    memory_gb: Annotated[float | None, typer.Option(min=0.001, help="Memory.")] = None,
    disk_gb: Annotated[float | None, typer.Option(min=0.001, help="Scratch space.")] = None,
    container: Annotated[str | None, typer.Option(help="An image, as container_image.")] = None,
    gpu: Annotated[
        GpuMode | None, typer.Option(help="A GPU slot first, else the cores and memory; or GPU slots only.")
    ] = None,
    run_command: Annotated[
        str, typer.Option("--submit_rapthor", help="What starts at the site; run.parset is the job's parset.")
    ] = "rapthor run.parset",
    keep_on_eviction: Annotated[
        bool,
        typer.Option("--keep-on-eviction", help="Keep finished operations at the schedd when it is evicted."),
    ] = False,
    requirements: Annotated[str, typer.Option(help="A ClassAd expression of yours.")] = "",
    rank: Annotated[str, typer.Option(help="A ClassAd expression of yours.")] = "",
    line: Annotated[list[str] | None, typer.Option(help="One more line of the submit description.")] = None,
    toil_params: Annotated[
        bool, typer.Option(help="With --as env: TOIL_HTCONDOR_PARAMS too, the fallback.")
    ] = True,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Go on with datasets that no catalogue confirmed.")
    ] = False,
    refuse_nowhere: Annotated[
        bool,
        typer.Option(
            "--refuse-nowhere",
            help="End with status 3 where no site has all of its data now; submit nothing.",
        ),
    ] = False,
) -> None:
    """Turn a Rapthor parset into a job that runs where its measurement sets are.

    Prints a submit description. --submit submits it; the job gets a new folder of its own, called after
    the parset and the time, here or in that of -o. -o alone makes that folder, prints its name and submits
    nothing. No file that exists is replaced.
    """
    from hydrator.config import load
    from hydrator.privacy.exchange import fetch_pseudonyms
    from hydrator.submit.rapthor import job as rapthor
    from hydrator.submit.rapthor.parset import parse_parset

    settings = load(config)
    asked = rapthor.RunOptions(mode.value, max_wait, requirements.strip(), rank.strip(), tuple(line or ()))
    _exit_on_problems(
        _usage_problems(
            settings, asked, form, submit=submit, dry_run=dry_run, output=output, as_json=as_json, gpu=gpu
        )
    )
    words = _parse_command(run_command, container or settings.submit.container, submit=submit)
    wish = _check_expressions(settings, asked)
    read = parse_parset(_read_parset(parset), str(parset))
    resolution, facts, now = _resolve_datasets(read, settings, allow_unknown=allow_unknown, dry_run=dry_run)
    dids = [did for _, did in resolution.pairs]
    listing, paths = _list_files_and_paths(
        settings, dids, allow_unknown=allow_unknown, is_for_job=form is OutputFormat.JOB
    )
    label = rapthor.run_name(name or parset.stem)
    run = rapthor.RapthorRun(_unique_run_name(label, name, now), tuple(dids), resolution.sizes, wish, label)
    fetches = settings.submit.stage_in is not None
    sites = rapthor.rank_sites(run, facts, paths, now=now.timestamp(), can_fetch=fetches)
    if dry_run:
        _print_outlook(sites, run, _catalogue_answers(resolution), as_json=as_json)
        _exit_if_no_site(rapthor.explain_no_qualified_site(run, sites), should_refuse=refuse_nowhere)
        return
    _exit_on_problems(_path_problems(settings, paths, dids) if form is OutputFormat.JOB else ())
    if form is not OutputFormat.ENV or refuse_nowhere:
        _warn_no_site(rapthor.explain_no_qualified_site(run, sites), run, should_refuse=refuse_nowhere)
    if form is OutputFormat.ENV:
        _warn_steps_wait(sites, wish)
    names = fetch_pseudonyms(frozenset(dids), settings)
    private = [did for did in dids if names[did] != did]
    run = run.with_pseudonyms(names)
    if form is OutputFormat.AD:
        text = rapthor.as_json(run) if as_json else rapthor.as_ad(run)
        _exit_on_problems(_privacy_problems(private, {"the ad": text}))
        sys.stdout.write(text)
    elif form is OutputFormat.ENV:
        sys.stdout.write(_format_exports(run, private, toil=toil_params))
    else:
        resources = rapthor.RunResources(
            cpus or settings.submit.cpus,
            memory_gb or settings.submit.memory_gb,
            _choose_disk_gb(settings, listing, disk_gb),
            container or settings.submit.container,
            _choose_gpu(settings, gpu, cpus, memory_gb),
        )
        _warn_cluster_options(read)
        extra, travelling = _find_files_to_send(read)
        bases = [Path(file).name for file in travelling.values()]
        description = rapthor.submit_description(
            run,
            resources,
            origin=str(parset),
            input_files=[rapthor.JOB_PARSET, _paths_file_name(), rapthor.WORKING_FOLDER, *extra],
            command=words,
            site_attributes=settings.sites.slot_attributes,
            path_sites=None if settings.submit.stage_in else _sites_with_paths(paths, dids),
            data_sites=() if settings.submit.stage_in else [site.site for site in sites if site.can_run],
            should_keep_folder=keep_on_eviction,
        )
        parent, stem = output or Path(), f"{label}-{now:%Y%m%dT%H%M%SZ}"
        _exit_on_problems(
            _privacy_problems(
                private, {"the job": description, "the job's folder": str(parent.absolute() / stem)}
            )
        )
        if output is None and not submit:
            sys.stdout.write(description)
            _print_message("-o FOLDER writes this with the files it names, --submit submits it")
            return
        travel = rapthor.job_parset(read, dict(zip(travelling, bases, strict=True)))
        texts = {
            f"{label}.sub": description,
            rapthor.JOB_PARSET: travel,
            _paths_file_name(): _paths_text(settings, resolution, paths, names, listing),
        }
        folder = _write_job_folder(parent, stem, texts, is_private=bool(private))
        _submit_or_print(folder, label, submit=submit, keep_on_eviction=keep_on_eviction)


# --- what is asked ------------------------------------------------------------------------------------


def _usage_problems(
    settings: "Settings",
    wish: "RunOptions",
    form: OutputFormat,
    *,
    submit: bool,
    dry_run: bool,
    output: Path | None,
    as_json: bool,
    gpu: GpuMode | None,
) -> list[str]:
    """What cannot be asked for together."""
    from hydrator.submit.submit_text import unfit_reason

    problems = []
    # where Toil submits the steps, all of them see one file system
    if wish.mode != "require" and not settings.submit.stage_in and form is not OutputFormat.ENV:
        problems.append(
            f"--mode {wish.mode} lets the run start where its data is not, but Rapthor opens local paths:"
            " set [submit].stage_in to a command that fetches {did} to {path}, or leave --mode require"
        )
    if wish.mode == "require" and wish.max_wait_seconds is not None:
        problems.append("--max-wait is of --mode wait and prefer; require waits without end")
    if (submit or output) and (form is not OutputFormat.JOB or dry_run):
        problems.append("--submit and --output are for the job itself: leave --as and --dry-run out")
    if gpu and form is not OutputFormat.JOB:
        problems.append(
            "--gpu is for the whole run as a job; Toil's steps choose by [submit].gpu of $HYDRATOR_CONFIG"
        )
    if as_json and form is not OutputFormat.AD and not dry_run:
        problems.append("--json goes with --as ad and with --dry-run")
    try:
        shlex.split(settings.submit.stage_in or "")
    except ValueError as error:
        problems.append(f"[submit].stage_in cannot be read ({error}): quote it as for a shell")
    problems += [
        f"--line is one line each time: {why}"
        for text in wish.extra_lines
        if text and (why := unfit_reason(text))
    ]
    return problems


def _unique_run_name(label: str, name: str | None, now: datetime) -> str:
    """RapthorRun: the user's own *name*, else one that no other run has."""
    return label if name else f"{label}-{int(now.timestamp())}"


def _parse_command(run_command: str, container: str | None, *, submit: bool) -> list[str]:
    """What --command says, as a shell would split it; refused, with its companions, before any question."""
    words: list[str] = []
    try:
        words = shlex.split(run_command)
    except ValueError as error:
        _exit_on_problems(
            [f"--command: {run_command[:200]!r} cannot be read ({error}): quote it as for a shell"]
        )
    _exit_on_problems(
        _line_problems({"--command": run_command, "--container, [submit].container": container})
    )
    if submit:
        _find_condor_submit()
    return words


def _line_problems(texts: Mapping[str, str | None]) -> list[str]:
    """Values that would not stay one line of the submit description, or say nothing there."""
    from hydrator.submit.submit_text import unfit_reason

    return [
        f"{what}: cannot be blank, nor more than one line: {why}"
        for what, text in texts.items()
        if text is not None and (why := unfit_reason(text))
    ]


def _choose_gpu(
    settings: "Settings", gpu_option: GpuMode | None, cpus: int | None, memory_gb: float | None
) -> "GpuChoice | None":
    """The choice between a GPU and many cores, by the options, else by [submit]."""
    from hydrator.submit.gpus import gpu_choice

    submit = settings.submit
    more = {"cpus": cpus or submit.cpus, "memory_gb": memory_gb or submit.memory_gb}
    return gpu_choice(submit.model_copy(update=more), str(gpu_option or submit.gpu))


def _check_expressions(settings: "Settings", wish: "RunOptions") -> "RunOptions":
    """*wish*, its expressions parsed by HTCondor's own parser, with every ``$`` kept from being a macro."""
    from dataclasses import replace

    from hydrator.domain.classad import escape_macros
    from hydrator.submit.submit_text import unfit_value_reason
    from hydrator.wiring import build_condor_client

    texts = {
        "--requirements": wish.requirements,
        "--rank": wish.rank,
        "[submit].require_gpus": settings.submit.require_gpus or "",
    }
    given = {what: text for what, text in texts.items() if text}
    _exit_on_problems(
        [
            f"{what}: write it on one line: {why}"
            for what, text in given.items()
            if (why := unfit_value_reason(text))
        ]
    )
    if given:
        client = build_condor_client(settings.htcondor)
        try:
            client.check_expressions(given)
        finally:
            client.close()
    return replace(wish, requirements=escape_macros(wish.requirements), rank=escape_macros(wish.rank))


def _read_parset(parset: Path) -> bytes:
    from hydrator.domain.errors import ConfigError

    try:
        return parset.read_bytes()
    except OSError as error:
        raise ConfigError([f"{parset}: {error.strerror}; name a Rapthor parset"]) from error


# --- what is known ------------------------------------------------------------------------------------


def _resolve_datasets(
    parset: "Parset", settings: "Settings", *, allow_unknown: bool, dry_run: bool
) -> "tuple[Resolution, Mapping[Site, SiteFacts], datetime]":
    """The measurement sets as datasets, and what is held true of them now.

    The daemon is asked for a dry run, and where there is no catalogue to ask.
    """
    from hydrator.domain.text import format_count
    from hydrator.submit.dataset_resolver import expand_globs, resolve_names
    from hydrator.wiring import assemble, daemon_catalogues, system_clock

    daemon = daemon_catalogues(settings) if dry_run or not settings.catalogue else ()
    parts = assemble(settings, system_clock)
    try:
        found = expand_globs(parset.input_globs, _glob_local_files, settings, parts.catalogues)
        for search, found_there in found.catalogue_counts.items():
            meant = format_count(found_there, "dataset")
            _print_message(f"{search} matches nothing on this host; it stands for {meant} of the catalogues")
        away = [
            f"catalogue {name} did not answer: {why}" for name, why in found.unreachable_catalogues.items()
        ]
        if found.unmatched_globs:
            nothing = [_no_match_text(parset, search) for search in found.unmatched_globs]
            _exit_on_problems([*away, *nothing], status=1 if away else 2)
        _exit_on_problems(
            [
                text
                for s in parset.input_globs
                if not _glob_local_files(s) and (text := parset.missing_brackets_hint(s))
            ]
        )
        _check_unreachable_catalogues(away, allow_unknown=allow_unknown)
        with show_progress("asking where the datasets are"):
            resolution = resolve_names(found.names, settings, parts.catalogues, daemon)
        now = system_clock()
    finally:
        parts.close()
        for witness in daemon:
            witness.close()
    _check_resolution(resolution, allow_unknown=allow_unknown)
    return resolution, _collect_site_facts(settings, resolution, now), now


def _glob_local_files(search: str) -> Collection[str]:
    return sorted(glob.glob(search))  # noqa: PTH207 - as Rapthor does it


def _no_match_text(parset: "Parset", search: str) -> str:
    return parset.missing_brackets_hint(search) or (
        f"{parset.origin}: input_ms: {search} matches nothing, neither on this host nor in the catalogues"
    )


def _warn_no_site(text: str, run: "RapthorRun", *, should_refuse: bool) -> None:
    """Say why no site can start the run now, where that is so, and end here where the user asks for that."""
    if not text:
        return
    later = "it waits until one has" if run.options.mode == "require" else "it runs anywhere after its wait"
    _print_message(f"{text}; {'nothing was submitted' if should_refuse else f'{later}: see hydrator why'}")
    _exit_if_no_site(text, should_refuse=should_refuse)


def _exit_if_no_site(text: str, *, should_refuse: bool) -> None:
    if text and should_refuse:
        raise typer.Exit(EXIT_NO_MATCH_NOW)


def _check_unreachable_catalogues(failures: Sequence[str], *, allow_unknown: bool) -> None:
    """A glob that only some catalogues could be asked about may stand for more than was found."""
    if failures and not allow_unknown:
        _exit_on_problems(
            [*failures, "the list may not be whole; try again later, or go on with --allow-unknown"], status=1
        )
    for text in failures:
        _print_message(text)


def _check_resolution(resolution: "Resolution", *, allow_unknown: bool) -> None:
    """Refuse what has no answer, all at once."""
    doubles = [
        f"{' and '.join(names)}: all are {did}; Rapthor would read it twice"
        for did, names in resolution.names_by_shared_did.items()
    ]
    lost = [name for name, did in zip(resolution.names, resolution.dids, strict=True) if did is None]
    if resolution.problems and not (allow_unknown and not lost):
        _exit_on_problems(
            [*resolution.unreachable_notices, *resolution.problems, *doubles],
            # who could not be asked might have known: that is no mistake of the user's
            status=1 if resolution.unreachable_catalogues and not resolution.ambiguous_names else 2,
        )
    _exit_on_problems(doubles)
    if resolution.unchecked_dids and not allow_unknown:
        some = ", ".join(sorted(resolution.unchecked_dids)[:_MAX_LISTED])
        advice = "try again later, or go on with --allow-unknown"
        text = f"{len(resolution.unchecked_dids)} datasets could not be looked up ({some}, …): {advice}"
        _exit_on_problems([*resolution.unreachable_notices, text], status=1)
    for text in (*resolution.unreachable_notices, *resolution.problems):
        _print_message(text)


def _collect_site_facts(
    settings: "Settings", resolution: "Resolution", now: datetime
) -> "Mapping[Site, SiteFacts]":
    """What is held true of each site: what was answered just now, else what the daemon last knew."""
    from hydrator.domain.errors import StateError
    from hydrator.reconcile.snapshot.update import CatalogueMemory, apply_survey, build_snapshot
    from hydrator.state.store import Store
    from hydrator.wiring import reconcile_policy

    before: Mapping[str, CatalogueMemory] = {}
    with suppress(StateError), Store.open_to_read(settings.daemon.state_dir) as store:
        before = store.load().memories
    wanted = frozenset(did for _, did in resolution.pairs)
    memories = {
        name: apply_survey(before.get(name, CatalogueMemory()), answer, wanted, now=now)
        for name, answer in resolution.answers.items()
    }
    view = build_snapshot(memories, wanted, now=now, max_age=settings.daemon.max_age)
    policy = reconcile_policy(settings)
    return {site: facts for site, facts in view.sites.items() if not policy.is_retired(site)}


def _list_files_and_paths(
    settings: "Settings", dids: "Collection[Did]", *, allow_unknown: bool, is_for_job: bool
) -> "tuple[Listing, Paths]":
    """The files of *dids*, and where each site keeps them; nothing where no job opens them by a path."""
    from hydrator.submit.dataset_paths import local_paths
    from hydrator.submit.file_lists import Listing

    listing = _list_dataset_files(settings, dids, allow_unknown=allow_unknown) if is_for_job else Listing()
    contents = {**dict.fromkeys(listing.failures, ()), **listing.contents}
    return listing, local_paths(settings.storage, dids, contents)


def _list_dataset_files(settings: "Settings", dids: "Collection[Did]", *, allow_unknown: bool) -> "Listing":
    """The files of *dids*, where some site has storage; refused where they cannot be known and must be."""
    from hydrator.submit.dataset_paths import has_file_rule
    from hydrator.submit.file_lists import Listing, address_mismatches, list_files, single_file_notice
    from hydrator.wiring import build_file_listers

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
            _exit_on_problems(listing.problems, status=2 if listing.has_too_many_files else 1)
        alone = single_file_notice(settings.storage, listing)
        for text in [
            *listing.problems,
            *([alone] if alone else []),
            *address_mismatches(settings.storage, listing.contents),
        ]:
            _print_message(text)
    return listing


def _choose_disk_gb(settings: "Settings", listing: "Listing", option_gb: float | None) -> float:
    """Scratch space: what was asked for, and besides what the job unpacks."""
    plain = option_gb or settings.submit.disk_gb
    packed = listing.archive_bytes(settings.submit.unpack) / 1e9
    if packed:
        _print_message(
            f"the job unpacks {packed:,.3f} GB of archives: it requests them besides {plain:g} GB of scratch"
        )
    return plain + packed


def _sites_with_paths(paths: "Paths", dids: "Collection[Did]") -> "list[Site]":
    """The sites where every one of *dids* has a path."""
    return [site for site, here in paths.items() if all(did in here for did in dids)]


def _path_problems(settings: "Settings", paths: "Paths", dids: "Collection[Did]") -> list[str]:
    """Why no site could open the data, where that is so."""
    from hydrator.domain.model import has_unsafe_parts, is_unsafe_argument

    if unsafe := [did for did in dids if is_unsafe_argument(did)]:
        return [
            f"{did}: it begins like an option, or leads to the folder above: no job gets such a name"
            for did in unsafe
        ]
    if settings.submit.stage_in or _sites_with_paths(paths, dids):
        return []
    if not settings.storage:
        return [
            "no [[storage]] says where jobs find datasets: add one for each site, or set [submit].stage_in"
        ]
    odd = next((did for did in dids if has_unsafe_parts(did.replace(":", "/", 1))), None)
    if odd:
        return [
            f"{odd}: no path is made of a name with an empty or dotted part: put it into a [[storage]] table"
        ]
    short = {site: next(did for did in dids if did not in here) for site, here in paths.items()}
    listed = ", ".join(f"{site} lacks {did}" for site, did in short.items())
    return [f"no [[storage]] has a path for every dataset ({listed}): complete a table, or change its rule"]


def _warn_steps_wait(sites: "Sequence[SiteOutlook]", wish: "RunOptions") -> None:
    """Say that steps of Toil's own batch system, which each ask for all datasets, would wait for ever."""
    if wish.mode == "require" and not any(not site.missing_states for site in sites):
        _print_message(
            "with --batchSystem htcondor each step asks for all datasets, and waits until one site has them;"
            " --batchSystem classad_hydrator gives each step its own, and --mode prefer lets it start"
            " elsewhere after a while"
        )


def _read_condor_values() -> dict[str, str | None]:
    """HTCondor's values on this host that the exports would replace; None where it does not say."""
    tool = shutil.which("condor_config_val")
    names = ("SUBMIT_ATTRS", "APPEND_REQ_VANILLA", "APPEND_RANK_VANILLA")
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in names if tool else ():
        try:
            done = subprocess.run([str(tool), name], capture_output=True, text=True, check=False, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            break
        if done.returncode == 0:
            found[name] = " ".join(done.stdout.split())
    return found


# --- what is written ----------------------------------------------------------------------------------


def _paths_file_name() -> str:
    from hydrator.submit.dataset_paths import PATHS_FILE

    return PATHS_FILE


def _paths_text(
    settings: "Settings",
    resolution: "Resolution",
    paths: "Paths",
    names: "Mapping[Did, Did]",
    listing: "Listing",
) -> str:
    from hydrator.submit.dataset_paths import check_length, job_datasets, paths_file_text, with_pseudonyms

    text = paths_file_text(
        job_datasets(resolution.pairs, names),
        with_pseudonyms(paths, names),
        settings.submit.stage_in,
        settings.sites.slot_attributes,
        areas=settings.storage,
        contents=listing.contents,
        unpack=settings.submit.unpack,
    )
    return check_length(text, settings.submit.max_list_mb * 1e6)


def _format_exports(run: "RapthorRun", private: "Sequence[Did]", *, toil: bool) -> str:
    """The exports for Toil's steps."""
    from hydrator.submit.rapthor.job import export_lines

    text = export_lines(run, os.environ, _read_condor_values(), toil=toil)
    _exit_on_problems(_privacy_problems(private, {"the exports": text}))
    if len(run.sizes) > 1:
        _print_message(
            "sizes are left out: they need a ';', which is lost on the way; ranks count datasets instead"
        )
    return text


def _privacy_problems(private: "Sequence[Did]", texts: Mapping[str, str]) -> list[str]:
    """Where the names of *private* datasets would enter the job's ad, which everybody reads."""
    from hydrator.privacy.pseudonyms import find_leaks

    return [
        f"{did} is private, and {where} shows its name, which everybody in the pool could read:"
        f" {line[:200]}; nothing was submitted"
        for where, text in texts.items()
        for did, line in find_leaks(text, private)
    ]


def _warn_cluster_options(parset: "Parset") -> None:
    """Say which options of [cluster] are of another machine than the slot that the job will have."""
    from hydrator.submit.rapthor.job import machine_options

    if foreign := machine_options(parset):
        listed = ", ".join(f"{name} = {value[:100]}" for name, value in foreign.items())
        _print_message(
            f"{parset.origin}: [cluster] {listed}: where the job starts it sets what its slot has,"
            " or less where the parset says less"
        )


def _find_files_to_send(parset: "Parset") -> tuple[list[str], dict[str, str]]:
    """Files that the parset names and that are here: they travel with the job, under their own names."""
    from hydrator.submit.submit_text import unfit_name_reason

    here = {}
    for option, file in parset.files.items():
        path = Path(file).absolute()
        if path.is_file():
            here[option] = str(path)
        else:
            _print_message(
                f"{option} = {file} is not a file on this host: the job will look for it where it runs"
            )
    paths = sorted(set(here.values()))
    bases = [Path(path).name for path in paths]
    twice = sorted({base for base in bases if bases.count(base) > 1})
    _exit_on_problems(
        [
            f"two files of the parset are called {base}: they travel in one folder, rename one"
            for base in twice
        ]
        + [
            f"{path!r}: HTCondor cannot transfer this file with the job: {why}: rename it"
            for path in paths
            if (why := unfit_name_reason(path))
        ]
    )
    return paths, here


def _write_job_folder(parent: Path, stem: str, texts: Mapping[str, str], *, is_private: bool) -> Path:
    """Write *texts* and the wrapper into a new folder in *parent*; where private, for its owner alone."""
    from hydrator.cli.output.new_files import make_new_folder, unsafe_folder_reason, write_new_file
    from hydrator.domain.errors import ConfigError
    from hydrator.submit.rapthor import job as rapthor

    wrapper = Path(__file__).parents[3].joinpath("submit", "job_wrapper.py").read_text("utf-8")

    def fill(folder: Path) -> None:
        # what Rapthor does not come to make is still there to be brought back
        for part in ("", *rapthor.RESULT_FOLDERS):
            (folder / rapthor.WORKING_FOLDER / part).mkdir()
        for name, text in {**texts, rapthor.WRAPPER_FILE: wrapper}.items():
            mode = 0o777 if name == rapthor.WRAPPER_FILE else 0o666
            write_new_file(folder / name, text.encode("utf-8", "surrogateescape"), mode)

    before = os.umask(0o077) if is_private else None
    try:
        if why := unsafe_folder_reason(parent):
            raise ConfigError([f"{parent}: {why}: choose another folder with -o, or chmod o-w it"])
        return make_new_folder(parent, stem, ".run", fill)
    except OSError as error:
        raise ConfigError(
            [f"{parent}: {error.strerror}; nothing was written; choose another folder with -o"]
        ) from error
    finally:
        if before is not None:
            os.umask(before)


def _find_condor_submit() -> str:
    """The program; asked for before anything is looked up or written."""
    tool = shutil.which("condor_submit")
    if tool is None:
        _exit_on_problems(["condor_submit is not on PATH: submit on a host of the pool"], status=1)
    return str(tool)


def _submit_or_print(folder: Path, label: str, *, submit: bool, keep_on_eviction: bool) -> None:
    """Submit the job in *folder*, or print where it is and how to submit it."""
    if submit:
        _submit_job(folder, label)
    else:
        print(folder)
        _print_message(f"to submit it: cd {shlex.quote(str(folder))} && condor_submit {label}.sub")
    if not keep_on_eviction:
        _print_message(
            "if the job is evicted, all that it has computed is lost and it begins again; --keep-on-eviction"
            " keeps its finished operations"
        )


def _submit_job(folder: Path, label: str) -> None:
    """Run condor_submit in *folder*; where it refuses the job, nothing is left of the folder.

    The job runs in that folder, which therefore has its name before the job exists: a folder that was
    renamed only afterwards would be missing for a job that starts at once, and for ever after a kill -9.
    The schedd writes the job's log when it takes the job.
    """
    from hydrator.cli.output.new_files import run_to_completion

    tool = _find_condor_submit()
    status = run_to_completion([tool, f"{label}.sub"], folder)
    log = folder / f"{label}.log"
    if status > 0 and not (log.exists() and log.stat().st_size):
        shutil.rmtree(folder, ignore_errors=True)
        _exit_on_problems([f"condor_submit ended with status {status}; nothing was submitted"], status=1)
    if status:
        how = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
        _exit_on_problems(
            [f"condor_submit {how}: look with condor_q if there is a job; its files stay in {folder}"],
            status=1,
        )
    _print_message(f"the job's files are in {folder}")


# --- what is shown ------------------------------------------------------------------------------------


def _catalogue_answers(resolution: "Resolution") -> dict[str, str]:
    """By catalogue (the daemon among them), what it said of the datasets as a whole."""
    from hydrator.domain.model import Unseen

    told = {}
    for name, answer in resolution.answers.items():
        if isinstance(answer, Unseen):
            told[name] = answer.reason
        else:
            unseen = sum(isinstance(reading, Unseen) for reading in answer.readings.values())
            told[name] = f"could not say of {unseen} of {len(answer.readings)}" if unseen else "answered"
    return told


def _print_outlook(
    sites: "Sequence[SiteOutlook]", run: "RapthorRun", answers: Mapping[str, str], *, as_json: bool
) -> None:
    """Which sites would match now, and who said so."""
    if as_json:
        body = {
            "run": run.name,
            "datasets": len(set(run.dids)),
            "answers": answers,
            "sites": _outlook_rows(sites),
        }
        print(json.dumps(body, indent=2))
        return
    from hydrator.cli.output.tables import print_table
    from hydrator.domain.text import format_count, format_duration

    rows = [
        (
            site.site,
            _verdict(site),
            f"{site.available_count} of {len(set(run.dids))}",
            "not known" if site.local_bytes is None else f"{site.local_bytes:,}",
            "" if site.oldest_age_seconds is None else format_duration(site.oldest_age_seconds),
            _missing_text(site),
        )
        for site in sites
    ]
    print_table(("site", "matches now", "datasets", "bytes local", "facts", "missing"), rows)
    total = sum(run.sizes.values()) if len(run.sizes) == len(set(run.dids)) else None
    size = "sizes not all known" if total is None else f"{total:,} bytes"
    print(f"{format_count(len(set(run.dids)), 'dataset')}, {size}, mode {run.options.mode}")
    print("asked: " + "; ".join(f"{name} ({said})" for name, said in answers.items()))


def _verdict(site: "SiteOutlook") -> str:
    if site.missing_states:
        return "no"
    if site.has_paths:
        return "yes"
    return (
        "yes, and fetches its data" if site.can_fetch else "no: no [[storage]] says where its data is there"
    )


def _missing_text(site: "SiteOutlook") -> str:
    from hydrator.domain.text import shorten_list

    return shorten_list([f"{did} {state}" for did, state in site.missing_states.items()], limit=_MAX_LISTED)


def _outlook_rows(sites: "Sequence[SiteOutlook]") -> list[dict[str, Any]]:
    return [
        {
            "site": site.site,
            "matches": site.can_run,
            "available": site.available_count,
            "bytes_local": site.local_bytes,
            "facts_age_seconds": site.oldest_age_seconds,
            "has_paths": site.has_paths,
            "missing": dict(site.missing_states),
        }
        for site in sites
    ]


def _print_message(text: str) -> None:
    print(f"hydrator: {text}", file=sys.stderr)


def _exit_on_problems(problems: Sequence[str], status: int = 2) -> None:
    """End here where there are problems, all of them told."""
    for problem in problems:
        _print_message(problem)
    if problems:
        raise typer.Exit(status)
