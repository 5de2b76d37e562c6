"""Output of ``--as job``: print the submit description, or write the job's folder and submit it."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from hydrator.cli.commands.submit.scripts import wrapper_text
from hydrator.cli.commands.submit.shared import exit_on_problems
from hydrator.cli.output.new_files import (
    make_new_folder,
    run_to_completion,
    unsafe_folder_reason,
    write_new_file,
)
from hydrator.cli.output.printing import print_problems
from hydrator.config import SubmitSettings
from hydrator.domain.errors import ConfigError
from hydrator.domain.text import shorten_list
from hydrator.submit.dataset_paths import ARCHIVE_SUFFIXES, PATHS_FILE, paths_file_text
from hydrator.submit.job_wrapper import OTHER_SERVICES
from hydrator.submit.rapthor.job import (
    JOB_PARSET,
    RESULT_FOLDERS,
    WRAPPER_FILE,
    explain_double_lines,
    job_lines,
    submit_description,
)
from hydrator.submit.rapthor.machine import WORKING_FOLDER, job_parset

from .run import PreparedRun


def produce_job(run: PreparedRun, command: list[str]) -> None:
    """Print the submit description; with -o or --submit, write the job's folder, and submit the job."""
    options, submit = run.options, _add_room_for_archives(run)
    names = {name: path.name for name, path in run.files.items()}
    parset_text, sentences = job_parset(run.parset, names)
    told = [f"{run.parset.origin}: {sentence}" for sentence in sentences]
    _report_services()
    lines, extra_lines = _job_lines(run, submit, command), run.run.options.extra_lines
    told += explain_double_lines(lines, extra_lines)
    description = submit_description(lines, extra_lines)
    parent, label = options.output or Path(), run.run.label
    stem = f"{label}-{run.now:%Y%m%dT%H%M%SZ}"
    if options.output is None and not options.submit:
        sys.stdout.write(description)
        print_problems(
            *told,
            "to write this job with its files into a new folder, add -o FOLDER; to submit it, add --submit",
        )
        return
    texts = {
        f"{label}.sub": description,
        JOB_PARSET: parset_text,
        PATHS_FILE: paths_file_text(
            run.resolution.pairs,
            run.paths,
            submit.stage_in,
            run.settings.sites.slot_attributes,
            areas=run.settings.storage,
            contents=run.listing.contents,
            unpack=submit.unpack,
        ),
    }
    folder = _write_job_folder(parent, stem, texts)
    if options.submit:
        _submit_job(folder, label)
    else:
        print(folder)
        print_problems(f"to submit the job: cd {shlex.quote(str(folder))} && condor_submit {label}.sub")
    results = [WORKING_FOLDER] if options.keep_on_eviction else RESULT_FOLDERS
    print_problems(*told, f"results: {folder}/ with {', '.join(results)}")
    if not options.keep_on_eviction:
        print_problems(
            "an evicted job loses all its results and starts from the beginning; --keep-on-eviction"
            " keeps its finished operations"
        )


def _add_room_for_archives(run: PreparedRun) -> SubmitSettings:
    """Return the resources that the job requests, with disk for unpacked archives; name the others."""
    submit = run.settings.submit
    archives, packed = (
        run.listing.archives(patterns, sorted(set(run.run.dids)), run.run.sizes)
        for patterns in (submit.unpack, [f"*{ending}" for ending in ARCHIVE_SUFFIXES])
    )
    if unread := sorted({file.did for file in packed} - {file.did for file in archives}):
        print_problems(
            f"Rapthor reads no archives, and the job unpacks only tar files that [submit].unpack names, not"
            f" {shorten_list(unread)}"
        )
    unpacked_gb = sum(file.bytes or 0 for file in archives) / 1e9
    if unknown := [file.did for file in archives if file.bytes is None]:
        print_problems(
            f"the job also unpacks {shorten_list(unknown)}, of unknown size: add room with --disk-gb"
            f" (now {submit.disk_gb:g} GB)"
        )
    if unpacked_gb:
        print_problems(
            f"the job unpacks {unpacked_gb:,.3f} GB of archives, so it requests this space in addition to"
            f" {submit.disk_gb:g} GB of scratch"
        )
    return submit.model_copy(update={"disk_gb": submit.disk_gb + unpacked_gb})


def _job_lines(run: PreparedRun, submit: SubmitSettings, command: list[str]) -> list[str]:
    """Return the job's own lines of the submit description.

    A job that can fetch its data may run at any site. A job that cannot fetch its data runs only at sites
    with paths to the data.
    """
    can_fetch = bool(run.settings.submit.stage_in)
    files = sorted(set(map(str, run.files.values())))
    return job_lines(
        run.run,
        submit,
        origin=run.parset.origin,
        input_files=[JOB_PARSET, PATHS_FILE, WORKING_FOLDER, *files],
        command=command,
        site_attributes=run.settings.sites.slot_attributes,
        path_sites=None if can_fetch else run.sites_with_paths,
        data_sites=() if can_fetch else [site.site for site in run.sites if site.can_run],
        should_keep_folder=run.options.keep_on_eviction,
    )


def _report_services() -> None:
    """Report the variables of this shell that name services which the job does not use."""
    if names := sorted(filter(OTHER_SERVICES.match, os.environ)):
        print_problems(f"the run starts its own Dask and Prefect, without the variables {', '.join(names)}")


def _write_job_folder(parent: Path, stem: str, texts: Mapping[str, str]) -> Path:
    """Write *texts* and the wrapper into a new folder in *parent*."""

    def fill(folder: Path) -> None:
        # Rapthor may not create all output folders, and HTCondor transfers only folders that exist
        for part in ("", *RESULT_FOLDERS):
            (folder / WORKING_FOLDER / part).mkdir()
        for name, text in {**texts, WRAPPER_FILE: wrapper_text()}.items():
            mode = 0o777 if name == WRAPPER_FILE else 0o666
            write_new_file(folder / name, text.encode("utf-8", "surrogateescape"), mode)

    try:
        if why := unsafe_folder_reason(parent):
            raise ConfigError([f"{parent}: {why}: choose another folder with -o, or run chmod o-w {parent}"])
        return make_new_folder(parent, stem, ".run", fill)
    except OSError as error:
        raise ConfigError(
            [f"{parent}: {error.strerror}; nothing was written; choose another folder with -o"]
        ) from error


def _submit_job(folder: Path, label: str) -> None:
    """Run condor_submit in *folder*; remove the folder if condor_submit rejects the job.

    The job refers to the folder by its name (initialdir), so the folder has its final name before
    condor_submit runs. If the command renamed the folder later, a job that starts at once would not find its
    files. If a kill -9 ended the command before the rename, the job would never find its files.
    The schedd writes the job's log when it accepts the job, so a log with content means that a job exists.
    """
    status = run_to_completion([find_condor_submit(), f"{label}.sub"], folder)
    log = folder / f"{label}.log"
    if status > 0 and not (log.exists() and log.stat().st_size):
        shutil.rmtree(folder, ignore_errors=True)
        exit_on_problems([f"condor_submit ended with status {status}; nothing was submitted"], status=1)
    if status:
        end = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
        exit_on_problems(
            [f"condor_submit {end}: check with condor_q whether the job exists; its files stay in {folder}"],
            status=1,
        )
    print_problems(f"the job's files are in {folder}")


def find_condor_submit() -> str:
    """Return the path of condor_submit; exit if PATH does not have it."""
    tool = shutil.which("condor_submit")
    if tool is None:
        exit_on_problems(["condor_submit is not on PATH: run this command on a host of the pool"], status=1)
    return str(tool)
