"""``hydrator submit rapthor PARSET``: turn a parset into a job that runs where its measurement sets are."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import typer

from hydrator.cli.commands.submit.shared import describe_expected_starts, exit_on_problems
from hydrator.cli.options import EXIT_NO_MATCH_NOW, command_of
from hydrator.cli.output.plain_table import print_table
from hydrator.cli.output.printing import print_json, print_problems
from hydrator.config import Settings, SubmitSettings, load
from hydrator.daemon.logs import configure_logs
from hydrator.domain.ads.classad import escape_macros
from hydrator.domain.ads.expressions import Mode
from hydrator.domain.model import Unseen
from hydrator.domain.text import format_count, format_duration, shorten_list
from hydrator.domain.untrusted import has_unsafe_parts, is_unsafe_argument
from hydrator.submit.dataset_names.resolver import Resolution
from hydrator.submit.outlook import JobsOfSet
from hydrator.submit.rapthor.environment import export_lines
from hydrator.submit.rapthor.job import JOB_PARSET, RunOptions
from hydrator.submit.rapthor.outlook import Outlook, SiteOutlook
from hydrator.submit.submit_files.values import unfit_reason, unfit_value_reason
from hydrator.wiring.condor import build_condor_client

from .job_folder import find_condor_submit, produce_job
from .options import RapthorOptions
from .run import PreparedRun, prepare_run


def submit_rapthor(options: RapthorOptions) -> None:
    """Turn a Rapthor parset into a job.

    The job runs where its measurement sets are.
    Without -o and --submit, the command prints a submit description. With -o or --submit, the command
    writes a new folder, named after the parset and the time, in the folder of -o or in the current folder.
    With --submit, the command also submits the job. The command never replaces an existing file.
    """
    configure_logs("error", sys.stderr)  # structlog alone prints values of variables, to standard output
    settings = options.apply_resources(load(options.config))
    run_options = RunOptions(
        _default_mode(settings.submit, options),
        options.max_wait,
        options.requirements.strip(),
        options.rank.strip(),
        tuple(options.line or ()),
        options.expected_time,
    )
    exit_on_problems(_usage_problems(settings.submit, run_options, options))
    words = _parse_command(options)
    settings = _find_image(settings, run_options.extra_lines)
    run = prepare_run(settings, _check_expressions(settings, run_options), options)
    if options.dry_run:
        _print_outlook(run)
    _check_paths(run)
    if options.dry_run:
        _finish_dry_run(run)
        return
    _warn_of_no_site(run)
    _print_start(run)
    if options.form == "env":
        lines = export_lines(run.run, os.environ, _read_submit_attrs())
        sys.stdout.buffer.write(lines.encode("utf-8", "surrogateescape"))
    else:
        produce_job(run, words)


command = command_of(RapthorOptions, submit_rapthor)


def _find_image(settings: Settings, lines: Sequence[str]) -> Settings:
    """Return *settings* with the absolute path of the container: condor_submit runs in the job's folder.

    Exits if HTCondor should transfer the image and this host does not have it.
    """
    image = settings.submit.container
    if not image or "://" in image:
        return settings
    is_sent = not image.startswith("/cvmfs/") and not any("transfer_container" in line for line in lines)
    if is_sent and not Path(image).exists():
        use = "give the path of an image, docker://NAME, or an image below /cvmfs/"
        exit_on_problems([f"container {image}: this host has no such file: {use}"])
    submit = settings.submit.model_copy(update={"container": str(Path(image).absolute())})
    return settings.model_copy(update={"submit": submit})


def _default_mode(submit: SubmitSettings, options: RapthorOptions) -> Mode | None:
    """Return the mode of the run; None for the pool's default.

    A run that cannot fetch its data, and a step of Toil, must start at a site with the data.
    """
    can_fetch = bool(submit.stage_in) and options.form != "env"
    return options.mode or (None if can_fetch else "require")


def _usage_problems(submit: SubmitSettings, run: RunOptions, options: RapthorOptions) -> list[str]:
    """Return one sentence for each option that contradicts another option or the configuration."""
    is_job = options.form == "job"
    own_parset = re.compile(rf"(?<![\w.-]){re.escape(options.parset.name)}(?![\w.-])")
    checks = {
        "--max-wait is for --mode wait and auto; --mode require waits without a limit": (
            run.mode == "require" and run.max_wait_seconds is not None
        ),
        "--submit and --output are valid only with --as job and without --dry-run": (
            bool(options.submit or options.output) and (not is_job or options.dry_run)
        ),
        "--gpu is valid only with --as job; Toil's steps use [submit].gpu of the file in HYDRATOR_CONFIG": (
            bool(options.gpu) and not is_job
        ),
        "--requirements and --rank are valid only with --as job: Toil's steps have their own": (
            bool(run.requirements or run.rank) and not is_job
        ),
        f"--command: the job's parset is {JOB_PARSET}, not {options.parset.name}": (
            bool(own_parset.search(options.command)) and JOB_PARSET not in options.command
        ),
        "--json is valid only with --dry-run": options.as_json and not options.dry_run,
        "--allow-unknown keeps the datasets that --skip-absent and --at-least leave out: use one of them": (
            options.allow_unknown and options.least_share is not None
        ),
    }
    problems = [problem for problem, is_wrong in checks.items() if is_wrong]
    try:
        shlex.split(submit.stage_in or "")
    except ValueError as error:
        problems.append(f"[submit].stage_in cannot be parsed ({error}): quote it as for a shell")
    problems += [
        f"--line {text}: the run is one job, which has its queue statement"
        for text in run.extra_lines
        if re.match(r"\s*queue\b(?!\s*=)", text, re.IGNORECASE)
    ]
    return problems


def _parse_command(options: RapthorOptions) -> list[str]:
    """Split the job's command into words as a shell does.

    Exits if the command is not one line, or if --submit is given without condor_submit on this host. These
    checks run before any catalogue is queried.
    """
    words: list[str] = []
    try:
        words = shlex.split(options.command)
    except ValueError as error:
        exit_on_problems(
            [f"--command: {options.command[:200]!r} cannot be parsed ({error}): quote it as for a shell"]
        )
    operators = {"&&", "||", "|", ">", "<"}
    if shell := [word for word in words if word in operators or (word[-1:] == ";" and " " not in word[1:])]:
        exit_on_problems([f"--command: {shell[0]}: no shell runs it: write sh -c '...' around the script"])
    if why := unfit_reason(options.command):
        exit_on_problems([f"--command: the value must be one line and not blank: {why}"])
    if options.submit:
        find_condor_submit()
    return words


def _check_expressions(settings: Settings, options: RunOptions) -> RunOptions:
    """Check all expressions with HTCondor's parser; return *options* with every ``$`` escaped."""
    texts = {
        "--requirements": options.requirements,
        "--rank": options.rank,
        "[submit].require_gpus": settings.submit.require_gpus or "",
    }
    expressions = {option: text for option, text in texts.items() if text}
    exit_on_problems(
        [
            f"{option}: the expression must be one line that HTCondor does not change: {why}"
            for option, text in expressions.items()
            if (why := unfit_value_reason(text))
        ]
    )
    if expressions:
        with closing(build_condor_client(settings.htcondor)) as client:
            client.check_expressions(expressions)
    return replace(
        options, requirements=escape_macros(options.requirements), rank=escape_macros(options.rank)
    )


def _check_paths(run: PreparedRun) -> None:
    """Exit if a job could find its data at no site; name the sites that may have it, without paths to it."""
    if run.options.form != "job":
        return
    exit_on_problems(_path_problems(run))
    if sites := [site.site for site in run.sites_without_paths]:
        print_problems(f"the run cannot start at {shorten_list(sites)}: {run.no_path_reason}")


def _warn_of_no_site(run: PreparedRun) -> None:
    """Warn, or exit on request, if no site can start the run now."""
    should_refuse = run.options.refuse_nowhere
    if run.no_site_reason and (run.options.form != "env" or should_refuse):
        later = "elsewhere the run may start after its wait, or as soon as reading from there ends sooner"
        if run.run.options.mode == "require":
            later = "the run waits until a site can start it"
        outcome = "nothing was submitted" if should_refuse else f"{later}; hydrator why explains more"
        print_problems(f"{run.no_site_reason}; {outcome}")
        _exit_if_no_site(run)


def _finish_dry_run(run: PreparedRun) -> None:
    """Print the start of the run; exit with status 3 on request, if no site can start the run now."""
    if run.run.options.requirements or run.run.options.rank:
        print_problems("--requirements and --rank are not evaluated before the submission")
    _print_start(run)
    _exit_if_no_site(run)


def _exit_if_no_site(run: PreparedRun) -> None:
    """Exit with status 3 on request, if no site can start the run now."""
    if run.no_site_reason and run.options.refuse_nowhere:
        raise typer.Exit(EXIT_NO_MATCH_NOW)


def _print_start(run: PreparedRun) -> None:
    """Print the start of the run that the daemon's openings promise; print nothing without them."""
    jobs = [JobsOfSet(tuple(run.run.dids))]
    print_problems(describe_expected_starts(run.settings, jobs, mode=run.run.options.mode))


def _path_problems(run: PreparedRun) -> list[str]:
    """Return the problems because of which the job could not open its data at any site."""
    settings, dids = run.settings, run.run.dids
    if unsafe := [did for did in dids if is_unsafe_argument(did)]:
        return [
            f"{did}: a job's command could read this name as an option or as a path with '..': rename it"
            for did in unsafe
        ]
    if settings.submit.stage_in or run.sites_with_paths:
        return []
    if not settings.storage:
        if settings.submit.daemon_url:
            advice = (
                "a [[catalogue]] that lists the files of datasets and a [[storage]], or [submit].stage_in"
            )
            reason = "it has no [[storage]], or one for single files only (rule hash, identity or catalogue)"
            return [f"the daemon gives no path of {shorten_list(dids)} at any site: {reason}: add {advice}"]
        return ["no [[storage]] gives the paths of datasets: add one for each site, or set [submit].stage_in"]
    dotted = next((did for did in dids if has_unsafe_parts(did.replace(":", "/", 1))), None)
    if dotted:
        advice = 'set rule = "table" in a [[storage]] and give this DID a path in its table'
        return [f"{dotted}: no rule gives a path for an empty, '.' or '..' part: {advice}"]
    missing = {
        site: next(did for did in dids if did not in locations) for site, locations in run.paths.items()
    }
    listed = ", ".join(f"{site} lacks {did}" for site, did in missing.items())
    return [
        f"no site's [[storage]] has a path for every dataset ({listed}): complete a table or change a rule"
    ]


def _print_outlook(prepared: PreparedRun) -> None:
    """Print the sites, the best first, and the answer of each catalogue."""
    run, sites = prepared.run, prepared.sites
    answers = _catalogue_answers(prepared.resolution)
    dataset_count = len(set(run.dids))
    if prepared.options.as_json:
        print_json(Outlook(run.name, dataset_count, answers, sites))
        return
    rows = [
        (
            site.site,
            "no: no path there" if site in prepared.sites_without_paths else _verdict(site),
            f"{site.available_count} of {dataset_count}",
            "not known" if site.local_bytes is None else f"{site.local_bytes:,}",
            "" if site.oldest_age_seconds is None else format_duration(site.oldest_age_seconds),
            shorten_list([f"{did} {state}" for did, state in site.missing_states.items()]),
        )
        for site in sites
    ]
    print_table(("site", "matches now", "datasets", "bytes local", "facts", "missing"), rows)
    has_all_sizes = len(run.sizes) == dataset_count
    size = f"{sum(run.sizes.values()):,} bytes" if has_all_sizes else "not all sizes are known"
    print(f"{format_count(dataset_count, 'dataset')}, {size}, mode {run.options.mode or 'of the pool'}")
    print("asked: " + "; ".join(f"{name} ({answer})" for name, answer in answers.items()))


def _catalogue_answers(resolution: Resolution) -> dict[str, str]:
    """Return one text for each queried catalogue or daemon: answered, partly answered, or why it failed."""
    texts = {}
    for name, answer in resolution.answers.items():
        if isinstance(answer, Unseen):
            texts[name] = answer.reason
        else:
            unseen = sum(isinstance(reading, Unseen) for reading in answer.readings.values())
            texts[name] = (
                f"no answer for {unseen} of {len(answer.readings)} datasets" if unseen else "answered"
            )
    return texts


def _verdict(site: SiteOutlook) -> str:
    if site.missing_states:
        return "not known" if site.may_have_all else "no"
    return "yes" if site.has_paths else "yes, and the job fetches its data"


def _read_submit_attrs() -> str:
    """Return SUBMIT_ATTRS of this host's HTCondor configuration; empty without it or without HTCondor."""
    try:
        words = ["condor_config_val", "SUBMIT_ATTRS"]
        done = subprocess.run(words, capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else " ".join(os.fsdecode(done.stdout).split())
