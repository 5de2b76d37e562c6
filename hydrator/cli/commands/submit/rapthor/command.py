"""``hydrator submit rapthor PARSET``: turn a parset into a job that runs where its measurement sets are."""

import os
import sys

from hydrator.cli.commands.submit.shared import exit_on_problems
from hydrator.cli.options import command_of
from hydrator.config import load
from hydrator.submit.rapthor.environment import export_lines
from hydrator.submit.rapthor.job import RunOptions

from .checks import (
    check_expressions,
    check_sites,
    default_mode,
    finish_dry_run,
    parse_command,
    print_start,
    usage_problems,
)
from .job_folder import produce_job
from .options import RapthorOptions
from .outlook import read_condor_values
from .run import prepare_run


def submit_rapthor(options: RapthorOptions) -> None:
    """Turn a Rapthor parset into a job.

    The job runs where its measurement sets are.
    Without -o and --submit, the command prints a submit description. With -o or --submit, the command
    writes a new folder, named after the parset and the time, in the folder of -o or in the current folder.
    With --submit, the command also submits the job. The command never replaces an existing file.
    """
    settings = options.apply_resources(load(options.config))
    run_options = RunOptions(
        default_mode(settings.submit, options),
        options.max_wait,
        options.requirements.strip(),
        options.rank.strip(),
        tuple(options.line or ()),
        options.expected_time,
    )
    exit_on_problems(usage_problems(settings.submit, run_options, options))
    words = parse_command(settings.submit, options)
    run = prepare_run(settings, check_expressions(settings, run_options), options)
    if options.dry_run:
        finish_dry_run(run)
        return
    check_sites(run)
    print_start(run)
    if options.form == "env":
        sys.stdout.write(export_lines(run.run, os.environ, read_condor_values()))
    else:
        produce_job(run, words)


command = command_of(RapthorOptions, submit_rapthor)
