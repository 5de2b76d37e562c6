"""``hydrator submit rapthor PARSET``: turn a parset into a job that runs where its measurement sets are."""

from pathlib import Path
from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption

from .choices import GpuMode, LocalityMode, OutputFormat


def submit_rapthor(
    parset: Annotated[Path, typer.Argument(help="The parset, as you would give it to rapthor.")],
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the job into a new folder inside this one.")
    ] = None,
    form: Annotated[
        OutputFormat,
        typer.Option("--as", help="The whole run as a job; exports for Toil's steps; a ClassAd."),
    ] = OutputFormat.JOB,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, with --as ad and --dry-run.")] = False,
    submit: Annotated[bool, typer.Option("--submit", help="Run condor_submit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print which sites would match now.")
    ] = False,
    mode: Annotated[
        LocalityMode, typer.Option(help="Run only where the data is; wait for that first; or prefer it.")
    ] = LocalityMode.REQUIRE,
    max_wait: Annotated[
        int | None, typer.Option(min=0, help="Seconds to wait with --mode wait and prefer.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the run; default: the parset's name and the time.")
    ] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="Cores.")] = None,
    memory_gb: Annotated[float | None, typer.Option(min=0.001, help="Memory.")] = None,
    disk_gb: Annotated[float | None, typer.Option(min=0.001, help="Scratch space.")] = None,
    container: Annotated[str | None, typer.Option(help="An image, as container_image.")] = None,
    gpu: Annotated[
        GpuMode | None,
        typer.Option(help="A GPU slot first, else cores and memory without a GPU; or GPU slots only."),
    ] = None,
    run_command: Annotated[
        str, typer.Option("--command", help="Command to run at the site; run.parset is the job's parset.")
    ] = "rapthor run.parset",
    keep_on_eviction: Annotated[
        bool,
        typer.Option("--keep-on-eviction", help="On eviction, keep finished operations at the schedd."),
    ] = False,
    requirements: Annotated[str, typer.Option(help="A ClassAd expression of yours.")] = "",
    rank: Annotated[str, typer.Option(help="A ClassAd expression of yours.")] = "",
    line: Annotated[list[str] | None, typer.Option(help="One more line of the submit description.")] = None,
    toil_params: Annotated[
        bool, typer.Option(help="With --as env: print TOIL_HTCONDOR_PARAMS too, as a fallback.")
    ] = True,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Accept datasets that no catalogue confirmed.")
    ] = False,
    refuse_nowhere: Annotated[
        bool,
        typer.Option(
            "--refuse-nowhere",
            help="If no site has all of its data now, submit nothing and exit with status 3.",
        ),
    ] = False,
) -> None:
    """Turn a Rapthor parset into a job that runs where its measurement sets are.

    Prints a submit description. With --submit, submits the job from a new folder, named after the parset
    and the time, in the current folder or in that of -o. With -o alone, makes that folder, prints its name
    and submits nothing. Never replaces an existing file.
    """
    from hydrator.config import load
    from hydrator.submit.rapthor.job import RunOptions

    from .checks import check_expressions, check_sites, exit_on_problems, parse_command, usage_problems
    from .job_folder import JobOptions, produce_job
    from .outlook import exit_if_no_site, print_outlook
    from .printing import print_ad, print_exports
    from .run import prepare_run

    settings = load(config)
    raw_options = RunOptions(mode.value, max_wait, requirements.strip(), rank.strip(), tuple(line or ()))
    job = JobOptions(cpus, memory_gb, disk_gb, container, gpu, keep_on_eviction, output, submit)
    exit_on_problems(
        usage_problems(settings.submit, raw_options, form, job, dry_run=dry_run, as_json=as_json)
    )
    words = parse_command(run_command, job.container or settings.submit.container, submit=submit)
    options = check_expressions(settings, raw_options)
    run = prepare_run(
        parset, settings, options, name, form=form, allow_unknown=allow_unknown, dry_run=dry_run
    )
    if dry_run:
        print_outlook(run, as_json=as_json)
        exit_if_no_site(run, should_refuse=refuse_nowhere)
        return
    check_sites(run, form, should_refuse=refuse_nowhere)
    run = run.with_pseudonyms()
    if form is OutputFormat.AD:
        print_ad(run, as_json=as_json)
    elif form is OutputFormat.ENV:
        print_exports(run, toil=toil_params)
    else:
        produce_job(run, job, words)
