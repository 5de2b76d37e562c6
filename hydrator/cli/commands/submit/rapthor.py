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

from hydrator.cli.options import DEFAULT_CONFIG, NOT_NOW, Config
from hydrator.cli.output.progress import working

if TYPE_CHECKING:
    from hydrator.config import Settings
    from hydrator.domain.model import Did, Site, SiteFacts
    from hydrator.submit.dataset_paths import Paths
    from hydrator.submit.dataset_resolver import Resolution
    from hydrator.submit.file_lists import Listing
    from hydrator.submit.gpus import GpuChoice
    from hydrator.submit.rapthor_job import Outlook, Parset, Run, Wish

_SHOWN = 3


class Form(StrEnum):
    """What is made of the parset."""

    JOB = "job"
    ENV = "env"
    AD = "ad"


class Gpu(StrEnum):
    """Which slots."""

    NO = "no"
    PREFER = "prefer"
    REQUIRE = "require"


class LocalityMode(StrEnum):
    """Where the run may go."""

    REQUIRE = "require"
    WAIT = "wait"
    PREFER = "prefer"


def command(
    parset: Annotated[Path, typer.Argument(help="The parset, as you would give it to rapthor.")],
    config: Config = DEFAULT_CONFIG,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the job into a new folder of its own in this one."),
    ] = None,
    form: Annotated[
        Form, typer.Option("--as", help="The whole run as a job; exports for Toil's steps; a ClassAd.")
    ] = Form.JOB,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, with --as ad and --dry-run.")] = False,
    submit: Annotated[bool, typer.Option("--submit", help="Run condor_submit.")] = False,
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
        Gpu | None, typer.Option(help="A GPU slot first, else the cores and memory; or GPU slots only.")
    ] = None,
    run_command: Annotated[
        str, typer.Option("--command", help="What starts at the site; run.parset is the job's parset.")
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
    from hydrator.privacy.exchange import exchanged
    from hydrator.submit import rapthor_job as rapthor

    settings = load(config)
    asked = rapthor.Wish(mode.value, max_wait, requirements.strip(), rank.strip(), tuple(line or ()))
    _refuse(
        _usage(settings, asked, form, submit=submit, dry_run=dry_run, output=output, as_json=as_json, gpu=gpu)
    )
    words = _checked_words(run_command, container or settings.submit.container, submit=submit)
    wish = _checked(settings, asked)
    read = rapthor.parse(_content(parset), str(parset))
    resolution, facts, now = _known(read, settings, allow_unknown=allow_unknown, dry_run=dry_run)
    dids = [did for _, did in resolution.pairs]
    listing, paths = _stored(settings, dids, allow_unknown=allow_unknown, for_a_job=form is Form.JOB)
    label = rapthor.run_name(name or parset.stem)
    run = rapthor.Run(_unique(label, name, now), tuple(dids), resolution.sizes, wish, label)
    fetches = settings.submit.stage_in is not None
    sites = rapthor.outlook(run, facts, paths, now=now.timestamp(), fetches=fetches)
    if dry_run:
        _show(sites, run, _asked(resolution), as_json=as_json)
        _end_where_nowhere(rapthor.nowhere_text(run, sites), refuse=refuse_nowhere)
        return
    _refuse(_unreachable(settings, paths, dids) if form is Form.JOB else ())
    if form is not Form.ENV or refuse_nowhere:
        _say_nowhere(rapthor.nowhere_text(run, sites), run, refuse=refuse_nowhere)
    if form is Form.ENV:
        _say_spread(sites, wish)
    names = exchanged(frozenset(dids), settings)
    private = [did for did in dids if names[did] != did]
    run = run.called(names)
    if form is Form.AD:
        text = rapthor.as_json(run) if as_json else rapthor.as_ad(run)
        _refuse(_leaks(private, {"the ad": text}))
        sys.stdout.write(text)
    elif form is Form.ENV:
        sys.stdout.write(_exports(run, private, toil=toil_params))
    else:
        resources = rapthor.Resources(
            cpus or settings.submit.cpus,
            memory_gb or settings.submit.memory_gb,
            _disk_gb(settings, listing, disk_gb),
            container or settings.submit.container,
            _gpu(settings, gpu, cpus, memory_gb),
        )
        _say_foreign(read)
        extra, travelling = _files(read)
        bases = [Path(file).name for file in travelling.values()]
        description = rapthor.submit_description(
            run,
            resources,
            origin=str(parset),
            inputs=[rapthor.JOB_PARSET, _paths_file_name(), rapthor.WORKING_FOLDER, *extra],
            command=words,
            site_attributes=settings.sites.slot_attributes,
            path_sites=None if settings.submit.stage_in else _path_sites(paths, dids),
            data_sites=() if settings.submit.stage_in else [site.site for site in sites if site.qualifies],
            keep=keep_on_eviction,
        )
        parent, stem = output or Path(), f"{label}-{now:%Y%m%dT%H%M%SZ}"
        _refuse(_leaks(private, {"the job": description, "the job's folder": str(parent.absolute() / stem)}))
        if output is None and not submit:
            sys.stdout.write(description)
            _say("-o FOLDER writes this with the files it names, --submit submits it")
            return
        travel = rapthor.job_parset(read, dict(zip(travelling, bases, strict=True)))
        texts = {
            f"{label}.sub": description,
            rapthor.JOB_PARSET: travel,
            _paths_file_name(): _paths_text(settings, resolution, paths, names, listing),
        }
        folder = _write(parent, stem, texts, ours_alone=bool(private))
        _hand_over(folder, label, submit=submit, keep=keep_on_eviction)


# --- what is asked ------------------------------------------------------------------------------------


def _usage(
    settings: "Settings",
    wish: "Wish",
    form: Form,
    *,
    submit: bool,
    dry_run: bool,
    output: Path | None,
    as_json: bool,
    gpu: Gpu | None,
) -> list[str]:
    """What cannot be asked for together."""
    from hydrator.submit.submit_text import unfit

    problems = []
    # where Toil submits the steps, all of them see one file system
    if wish.mode != "require" and not settings.submit.stage_in and form is not Form.ENV:
        problems.append(
            f"--mode {wish.mode} lets the run start where its data is not, but Rapthor opens local paths:"
            " set [submit].stage_in to a command that fetches {did} to {path}, or leave --mode require"
        )
    if wish.mode == "require" and wish.max_wait is not None:
        problems.append("--max-wait is of --mode wait and prefer; require waits without end")
    if (submit or output) and (form is not Form.JOB or dry_run):
        problems.append("--submit and --output are for the job itself: leave --as and --dry-run out")
    if gpu and form is not Form.JOB:
        problems.append(
            "--gpu is for the whole run as a job; Toil's steps choose by [submit].gpu of $HYDRATOR_CONFIG"
        )
    if as_json and form is not Form.AD and not dry_run:
        problems.append("--json goes with --as ad and with --dry-run")
    try:
        shlex.split(settings.submit.stage_in or "")
    except ValueError as error:
        problems.append(f"[submit].stage_in cannot be read ({error}): quote it as for a shell")
    problems += [
        f"--line is one line each time: {why}" for text in wish.lines if text and (why := unfit(text))
    ]
    return problems


def _unique(label: str, name: str | None, now: datetime) -> str:
    """RapthorRun: the user's own *name*, else one that no other run has."""
    return label if name else f"{label}-{int(now.timestamp())}"


def _checked_words(run_command: str, container: str | None, *, submit: bool) -> list[str]:
    """What --command says, as a shell would split it; refused, with its companions, before any question."""
    words: list[str] = []
    try:
        words = shlex.split(run_command)
    except ValueError as error:
        _refuse([f"--command: {run_command[:200]!r} cannot be read ({error}): quote it as for a shell"])
    _refuse(_spoilt({"--command": run_command, "--container, [submit].container": container}))
    if submit:
        _condor_submit()
    return words


def _spoilt(texts: Mapping[str, str | None]) -> list[str]:
    """Values that would not stay one line of the submit description, or say nothing there."""
    from hydrator.submit.submit_text import unfit

    return [
        f"{what}: cannot be blank, nor more than one line: {why}"
        for what, text in texts.items()
        if text is not None and (why := unfit(text))
    ]


def _gpu(
    settings: "Settings", asked: Gpu | None, cpus: int | None, memory_gb: float | None
) -> "GpuChoice | None":
    """The choice between a GPU and many cores, by the options, else by [submit]."""
    from hydrator.submit.gpus import gpu_choice

    submit = settings.submit
    more = {"cpus": cpus or submit.cpus, "memory_gb": memory_gb or submit.memory_gb}
    return gpu_choice(submit.model_copy(update=more), str(asked or submit.gpu))


def _checked(settings: "Settings", wish: "Wish") -> "Wish":
    """*wish*, its expressions parsed by HTCondor's own parser, with every ``$`` kept from being a macro."""
    from dataclasses import replace

    from hydrator.submit.submit_text import literal, unfit_value
    from hydrator.wiring import condor_client

    texts = {
        "--requirements": wish.requirements,
        "--rank": wish.rank,
        "[submit].require_gpus": settings.submit.require_gpus or "",
    }
    given = {what: text for what, text in texts.items() if text}
    _refuse(
        [f"{what}: write it on one line: {why}" for what, text in given.items() if (why := unfit_value(text))]
    )
    if given:
        client = condor_client(settings)
        try:
            client.check_expressions(given)
        finally:
            client.close()
    return replace(wish, requirements=literal(wish.requirements), rank=literal(wish.rank))


def _content(parset: Path) -> bytes:
    from hydrator.domain.errors import ConfigError

    try:
        return parset.read_bytes()
    except OSError as error:
        raise ConfigError([f"{parset}: {error.strerror}; name a Rapthor parset"]) from error


# --- what is known ------------------------------------------------------------------------------------


def _known(
    read: "Parset", settings: "Settings", *, allow_unknown: bool, dry_run: bool
) -> "tuple[Resolution, Mapping[Site, SiteFacts], datetime]":
    """The measurement sets as datasets, and what is held true of them now.

    The daemon is asked for a dry run, and where there is no catalogue to ask.
    """
    from hydrator.domain.text import count
    from hydrator.submit.dataset_resolver import expand, resolve
    from hydrator.wiring import assemble, system_clock, witnesses

    daemon = witnesses(settings) if dry_run or not settings.catalogue else ()
    parts = assemble(settings, system_clock)
    try:
        found = expand(read.searches, _local, settings, parts.catalogues)
        for search, found_there in found.catalogued.items():
            meant = count(found_there, "dataset")
            _say(f"{search} matches nothing on this host; it stands for {meant} of the catalogues")
        away = [f"catalogue {name} did not answer: {why}" for name, why in found.unreachable.items()]
        if found.empty:
            nothing = [_no_match(read, search) for search in found.empty]
            _refuse([*away, *nothing], status=1 if away else 2)
        _refuse([text for s in read.searches if not _local(s) and (text := read.not_a_list(s))])
        _judge_absent(away, allow_unknown=allow_unknown)
        with working("asking where the datasets are"):
            resolution = resolve(found.names, settings, parts.catalogues, daemon)
        now = system_clock()
    finally:
        parts.close()
        for witness in daemon:
            witness.close()
    _judge(resolution, allow_unknown=allow_unknown)
    return resolution, _facts(settings, resolution, now), now


def _local(search: str) -> Collection[str]:
    return sorted(glob.glob(search))  # noqa: PTH207 - as Rapthor does it


def _no_match(read: "Parset", search: str) -> str:
    return read.not_a_list(search) or (
        f"{read.origin}: input_ms: {search} matches nothing, neither on this host nor in the catalogues"
    )


def _say_nowhere(text: str, run: "Run", *, refuse: bool) -> None:
    """Say why no site can start the run now, where that is so, and end here where the user asks for that."""
    if not text:
        return
    later = "it waits until one has" if run.wish.mode == "require" else "it runs anywhere after its wait"
    _say(f"{text}; {'nothing was submitted' if refuse else f'{later}: see hydrator why'}")
    _end_where_nowhere(text, refuse=refuse)


def _end_where_nowhere(text: str, *, refuse: bool) -> None:
    if text and refuse:
        raise typer.Exit(NOT_NOW)


def _judge_absent(away: Sequence[str], *, allow_unknown: bool) -> None:
    """A glob that only some catalogues could be asked about may stand for more than was found."""
    if away and not allow_unknown:
        _refuse(
            [*away, "the list may not be whole; try again later, or go on with --allow-unknown"], status=1
        )
    for text in away:
        _say(text)


def _judge(resolution: "Resolution", *, allow_unknown: bool) -> None:
    """Refuse what has no answer, all at once."""
    doubles = [
        f"{' and '.join(names)}: all are {did}; Rapthor would read it twice"
        for did, names in resolution.doubles.items()
    ]
    lost = [name for name, did in zip(resolution.names, resolution.dids, strict=True) if did is None]
    if resolution.problems and not (allow_unknown and not lost):
        _refuse(
            [*resolution.absences, *resolution.problems, *doubles],
            # who could not be asked might have known: that is no mistake of the user's
            status=1 if resolution.unreachable and not resolution.ambiguous else 2,
        )
    _refuse(doubles)
    if resolution.unchecked and not allow_unknown:
        some = ", ".join(sorted(resolution.unchecked)[:_SHOWN])
        advice = "try again later, or go on with --allow-unknown"
        text = f"{len(resolution.unchecked)} datasets could not be looked up ({some}, …): {advice}"
        _refuse([*resolution.absences, text], status=1)
    for text in (*resolution.absences, *resolution.problems):
        _say(text)


def _facts(settings: "Settings", resolution: "Resolution", now: datetime) -> "Mapping[Site, SiteFacts]":
    """What is held true of each site: what was answered just now, else what the daemon last knew."""
    from hydrator.domain.errors import StateError
    from hydrator.reconcile.snapshot.update import Memory, remember, snapshot
    from hydrator.state.store import Store
    from hydrator.wiring import rules

    before: Mapping[str, Memory] = {}
    with suppress(StateError), Store.open_to_read(settings.daemon.state_dir) as store:
        before = store.load().memories
    wanted = frozenset(did for _, did in resolution.pairs)
    memories = {
        name: remember(before.get(name, Memory()), answer, wanted, now=now)
        for name, answer in resolution.answers.items()
    }
    view = snapshot(memories, wanted, now=now, bound=settings.daemon.bound)
    policy = rules(settings)
    return {site: facts for site, facts in view.sites.items() if not policy.retires(site)}


def _stored(
    settings: "Settings", dids: "Collection[Did]", *, allow_unknown: bool, for_a_job: bool
) -> "tuple[Listing, Paths]":
    """The files of *dids*, and where each site keeps them; nothing where no job opens them by a path."""
    from hydrator.submit.dataset_paths import local_paths
    from hydrator.submit.file_lists import Listing

    listing = _listed(settings, dids, allow_unknown=allow_unknown) if for_a_job else Listing()
    contents = {**dict.fromkeys(listing.failed, ()), **listing.contents}
    return listing, local_paths(settings.storage, dids, contents)


def _listed(settings: "Settings", dids: "Collection[Did]", *, allow_unknown: bool) -> "Listing":
    """The files of *dids*, where some site has storage; refused where they cannot be known and must be."""
    from hydrator.submit.dataset_paths import has_file_rule
    from hydrator.submit.file_lists import Listing, foreign_addresses, list_files, taken_alone
    from hydrator.wiring import file_listers

    if not settings.storage:
        return Listing()
    listers = file_listers(settings)
    try:
        with working("listing the files of the datasets"):
            listing = list_files(dids, settings, listers)
    finally:
        for lister in listers:
            lister.close()
    if has_file_rule(settings.storage):
        if not allow_unknown or listing.is_too_long:
            _refuse(listing.problems, status=2 if listing.is_too_long else 1)
        alone = taken_alone(settings.storage, listing)
        for text in [
            *listing.problems,
            *([alone] if alone else []),
            *foreign_addresses(settings.storage, listing.contents),
        ]:
            _say(text)
    return listing


def _disk_gb(settings: "Settings", listing: "Listing", asked: float | None) -> float:
    """Scratch space: what was asked for, and besides what the job unpacks."""
    plain = asked or settings.submit.disk_gb
    packed = listing.packed_bytes(settings.submit.unpack) / 1e9
    if packed:
        _say(
            f"the job unpacks {packed:,.3f} GB of archives: it requests them besides {plain:g} GB of scratch"
        )
    return plain + packed


def _path_sites(paths: "Paths", dids: "Collection[Did]") -> "list[Site]":
    """The sites where every one of *dids* has a path."""
    return [site for site, here in paths.items() if all(did in here for did in dids)]


def _unreachable(settings: "Settings", paths: "Paths", dids: "Collection[Did]") -> list[str]:
    """Why no site could open the data, where that is so."""
    from hydrator.domain.model import has_unsafe_parts, is_unsafe_argument

    if unsafe := [did for did in dids if is_unsafe_argument(did)]:
        return [
            f"{did}: it begins like an option, or leads to the folder above: no job gets such a name"
            for did in unsafe
        ]
    if settings.submit.stage_in or _path_sites(paths, dids):
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


def _say_spread(sites: "Sequence[Outlook]", wish: "Wish") -> None:
    """Say that steps of Toil's own batch system, which each ask for all datasets, would wait for ever."""
    if wish.mode == "require" and not any(not site.missing for site in sites):
        _say(
            "with --batchSystem htcondor each step asks for all datasets, and waits until one site has them;"
            " --batchSystem classad_hydrator gives each step its own, and --mode prefer lets it start"
            " elsewhere after a while"
        )


def _present() -> dict[str, str | None]:
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
    from hydrator.submit.dataset_paths import bounded, called, job_datasets, paths_file

    text = paths_file(
        job_datasets(resolution.pairs, names),
        called(paths, names),
        settings.submit.stage_in,
        settings.sites.slot_attributes,
        areas=settings.storage,
        contents=listing.contents,
        unpack=settings.submit.unpack,
    )
    return bounded(text, settings.submit.max_list_mb * 1e6)


def _exports(run: "Run", private: "Sequence[Did]", *, toil: bool) -> str:
    """The exports for Toil's steps."""
    from hydrator.submit.rapthor_job import exports

    text = exports(run, os.environ, _present(), toil=toil)
    _refuse(_leaks(private, {"the exports": text}))
    if len(run.sizes) > 1:
        _say("sizes are left out: they need a ';', which is lost on the way; ranks count datasets instead")
    return text


def _leaks(private: "Sequence[Did]", texts: Mapping[str, str]) -> list[str]:
    """Where the names of *private* datasets would enter the job's ad, which everybody reads."""
    from hydrator.privacy.pseudonyms import leaks

    return [
        f"{did} is private, and {where} shows its name, which everybody in the pool could read:"
        f" {line[:200]}; nothing was submitted"
        for where, text in texts.items()
        for did, line in leaks(text, private)
    ]


def _say_foreign(read: "Parset") -> None:
    """Say which options of [cluster] are of another machine than the slot that the job will have."""
    from hydrator.submit.rapthor_job import foreign_options

    if foreign := foreign_options(read):
        listed = ", ".join(f"{name} = {value[:100]}" for name, value in foreign.items())
        _say(
            f"{read.origin}: [cluster] {listed}: where the job starts it sets what its slot has,"
            " or less where the parset says less"
        )


def _files(read: "Parset") -> tuple[list[str], dict[str, str]]:
    """Files that the parset names and that are here: they travel with the job, under their own names."""
    from hydrator.submit.submit_text import unfit_name

    here = {}
    for option, file in read.files.items():
        path = Path(file).absolute()
        if path.is_file():
            here[option] = str(path)
        else:
            _say(f"{option} = {file} is not a file on this host: the job will look for it where it runs")
    paths = sorted(set(here.values()))
    bases = [Path(path).name for path in paths]
    twice = sorted({base for base in bases if bases.count(base) > 1})
    _refuse(
        [
            f"two files of the parset are called {base}: they travel in one folder, rename one"
            for base in twice
        ]
        + [
            f"{path!r}: HTCondor cannot transfer this file with the job: {why}: rename it"
            for path in paths
            if (why := unfit_name(path))
        ]
    )
    return paths, here


def _write(parent: Path, stem: str, texts: Mapping[str, str], *, ours_alone: bool) -> Path:
    """Write *texts* and the wrapper into a new folder in *parent*; where private, for its owner alone."""
    from hydrator.cli.output.new_files import new_folder, unsafe_parent, write_new
    from hydrator.domain.errors import ConfigError
    from hydrator.submit import rapthor_job as rapthor

    wrapper = Path(__file__).parents[3].joinpath("submit", "job_wrapper.py").read_text("utf-8")

    def fill(folder: Path) -> None:
        # what Rapthor does not come to make is still there to be brought back
        for part in ("", *rapthor.RESULTS):
            (folder / rapthor.WORKING_FOLDER / part).mkdir()
        for name, text in {**texts, rapthor.WRAPPER_FILE: wrapper}.items():
            mode = 0o777 if name == rapthor.WRAPPER_FILE else 0o666
            write_new(folder / name, text.encode("utf-8", "surrogateescape"), mode)

    before = os.umask(0o077) if ours_alone else None
    try:
        if why := unsafe_parent(parent):
            raise ConfigError([f"{parent}: {why}: choose another folder with -o, or chmod o-w it"])
        return new_folder(parent, stem, ".run", fill)
    except OSError as error:
        raise ConfigError(
            [f"{parent}: {error.strerror}; nothing was written; choose another folder with -o"]
        ) from error
    finally:
        if before is not None:
            os.umask(before)


def _condor_submit() -> str:
    """The program; asked for before anything is looked up or written."""
    tool = shutil.which("condor_submit")
    if tool is None:
        _refuse(["condor_submit is not on PATH: submit on a host of the pool"], status=1)
    return str(tool)


def _hand_over(folder: Path, label: str, *, submit: bool, keep: bool) -> None:
    """Submit the job in *folder*, or print where it is and how to submit it."""
    if submit:
        _submit(folder, label)
    else:
        print(folder)
        _say(f"to submit it: cd {shlex.quote(str(folder))} && condor_submit {label}.sub")
    if not keep:
        _say(
            "if the job is evicted, all that it has computed is lost and it begins again; --keep-on-eviction"
            " keeps its finished operations"
        )


def _submit(folder: Path, label: str) -> None:
    """Run condor_submit in *folder*; where it refuses the job, nothing is left of the folder.

    The job runs in that folder, which therefore has its name before the job exists: a folder that was
    renamed only afterwards would be missing for a job that starts at once, and for ever after a kill -9.
    The schedd writes the job's log when it takes the job.
    """
    from hydrator.cli.output.new_files import run_to_its_end

    tool = _condor_submit()
    status = run_to_its_end([tool, f"{label}.sub"], folder)
    log = folder / f"{label}.log"
    if status > 0 and not (log.exists() and log.stat().st_size):
        shutil.rmtree(folder, ignore_errors=True)
        _refuse([f"condor_submit ended with status {status}; nothing was submitted"], status=1)
    if status:
        how = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
        _refuse(
            [f"condor_submit {how}: look with condor_q if there is a job; its files stay in {folder}"],
            status=1,
        )
    _say(f"the job's files are in {folder}")


# --- what is shown ------------------------------------------------------------------------------------


def _asked(resolution: "Resolution") -> dict[str, str]:
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


def _show(sites: "Sequence[Outlook]", run: "Run", asked: Mapping[str, str], *, as_json: bool) -> None:
    """Which sites would match now, and who said so."""
    if as_json:
        body = {"run": run.name, "datasets": len(set(run.dids)), "asked": asked, "sites": _rows(sites)}
        print(json.dumps(body, indent=2))
        return
    from hydrator.cli.output.tables import print_table
    from hydrator.domain.text import count, span

    rows = [
        (
            site.site,
            _verdict(site),
            f"{site.available} of {len(set(run.dids))}",
            "not known" if site.bytes_local is None else f"{site.bytes_local:,}",
            "" if site.oldest_seconds is None else span(site.oldest_seconds),
            _some_missing(site),
        )
        for site in sites
    ]
    print_table(("site", "matches now", "datasets", "bytes local", "facts", "missing"), rows)
    total = sum(run.sizes.values()) if len(run.sizes) == len(set(run.dids)) else None
    size = "sizes not all known" if total is None else f"{total:,} bytes"
    print(f"{count(len(set(run.dids)), 'dataset')}, {size}, mode {run.wish.mode}")
    print("asked: " + "; ".join(f"{name} ({said})" for name, said in asked.items()))


def _verdict(site: "Outlook") -> str:
    if site.missing:
        return "no"
    if site.has_paths:
        return "yes"
    return "yes, and fetches its data" if site.fetches else "no: no [[storage]] says where its data is there"


def _some_missing(site: "Outlook") -> str:
    listed = [f"{did} {state}" for did, state in list(site.missing.items())[:_SHOWN]]
    more = len(site.missing) - len(listed)
    return ", ".join([*listed, *([f"{more} more"] if more else [])])


def _rows(sites: "Sequence[Outlook]") -> list[dict[str, Any]]:
    return [
        {
            "site": site.site,
            "matches": site.qualifies,
            "available": site.available,
            "bytes_local": site.bytes_local,
            "facts_age_seconds": site.oldest_seconds,
            "has_paths": site.has_paths,
            "missing": dict(site.missing),
        }
        for site in sites
    ]


def _say(text: str) -> None:
    print(f"hydrator: {text}", file=sys.stderr)


def _refuse(problems: Sequence[str], status: int = 2) -> None:
    """End here where there are problems, all of them told."""
    for problem in problems:
        _say(problem)
    if problems:
        raise typer.Exit(status)
