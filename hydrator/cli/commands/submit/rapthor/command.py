"""``hydrator submit rapthor PARSET``: turn a parset into a job that runs where its measurement sets are."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption

from .options import GpuMode, LocalityMode, OutputFormat, OutputOptions

if TYPE_CHECKING:
    from hydrator.submit.rapthor.job import RunOptions

    from .job_folder import JobOptions

ParsetArgument = Annotated[Path, typer.Argument(help="The parset file, as you would give it to rapthor.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder in which the command makes a new folder for the job."),
]
FormOption = Annotated[
    OutputFormat,
    typer.Option(
        "--as", help="job: one job for the whole run; env: exports for Toil's steps; ad: a ClassAd."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; only with --as ad or --dry-run.")]
SubmitOption = Annotated[bool, typer.Option("--submit", help="Run condor_submit.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print which sites would match now.")]
ModeOption = Annotated[
    LocalityMode | None,
    typer.Option(
        help="require: run only at a site with the data; auto: run elsewhere if that ends sooner; wait:"
        " wait for such a site, then run anywhere."
        r" Default: the pool's default; without \[submit].stage_in, require."
    ),
]
ExpectedTimeOption = Annotated[
    int | None, typer.Option(min=1, help="Seconds that you expect the run to take at a site with its data.")
]
MaxWaitOption = Annotated[
    int | None, typer.Option(min=0, help="Seconds to wait for the data, with --mode wait and auto.")
]
NameOption = Annotated[
    str | None, typer.Option(help="Name of the run; default: the parset's name and the time.")
]
CpusOption = Annotated[int | None, typer.Option(min=1, help="Cores.")]
MemoryOption = Annotated[float | None, typer.Option(min=0.001, help="Memory.")]
DiskOption = Annotated[float | None, typer.Option(min=0.001, help="Scratch space.")]
ContainerOption = Annotated[
    str | None, typer.Option(help="Container image, as in container_image of a submit file.")
]
GpuOption = Annotated[
    GpuMode | None,
    typer.Option(
        help="prefer: a GPU slot first, else cores and memory without a GPU; require: GPU slots only."
    ),
]
CommandOption = Annotated[
    str, typer.Option("--command", help="Command to run at the site; run.parset is the job's parset.")
]
KeepOption = Annotated[
    bool,
    typer.Option("--keep-on-eviction", help="On eviction, keep finished operations at the schedd."),
]
ExpressionOption = Annotated[
    str, typer.Option(help="A ClassAd expression to add to the job's Requirements or Rank.")
]
LineOption = Annotated[list[str] | None, typer.Option(help="One more line for the submit description.")]
ToilParamsOption = Annotated[
    bool,
    typer.Option(
        help="With --as env: also set TOIL_HTCONDOR_PARAMS, for a Toil that ignores the other variables."
    ),
]
AllowUnknownOption = Annotated[
    bool, typer.Option("--allow-unknown", help="Accept datasets that no catalogue confirmed.")
]
SkipAbsentOption = Annotated[
    bool, typer.Option("--skip-absent", help="Run without the measurement sets that no site has.")
]
AtLeastOption = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="As --skip-absent, if this share of the measurement sets, 0 to 1, is left."
    ),
]
RefuseNowhereOption = Annotated[
    bool,
    typer.Option(
        "--refuse-nowhere",
        help="If no site has all data of the run now, submit nothing and exit with status 3.",
    ),
]


def submit_rapthor(
    parset: ParsetArgument,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    output: OutputOption = None,
    form: FormOption = OutputFormat.JOB,
    as_json: JsonOption = False,
    submit: SubmitOption = False,
    dry_run: DryRunOption = False,
    mode: ModeOption = None,
    max_wait: MaxWaitOption = None,
    expected_time: ExpectedTimeOption = None,
    name: NameOption = None,
    cpus: CpusOption = None,
    memory_gb: MemoryOption = None,
    disk_gb: DiskOption = None,
    container: ContainerOption = None,
    gpu: GpuOption = None,
    run_command: CommandOption = "rapthor run.parset",
    keep_on_eviction: KeepOption = False,
    requirements: ExpressionOption = "",
    rank: ExpressionOption = "",
    line: LineOption = None,
    toil_params: ToilParamsOption = True,
    allow_unknown: AllowUnknownOption = False,
    skip_absent: SkipAbsentOption = False,
    at_least: AtLeastOption = None,
    refuse_nowhere: RefuseNowhereOption = False,
) -> None:
    """Turn a Rapthor parset into a job that runs where its measurement sets are.

    Without -o and --submit, the command prints a submit description. With -o or --submit, the command
    writes a new folder, named after the parset and the time, in the folder of -o or in the current folder.
    With --submit, the command also submits the job. The command never replaces an existing file.
    """
    from hydrator.submit.rapthor.job import RunOptions

    from .job_folder import JobOptions

    options = RunOptions(
        mode.value if mode else None,
        max_wait,
        requirements.strip(),
        rank.strip(),
        tuple(line or ()),
        expected_time,
    )
    job = JobOptions(run_command, cpus, memory_gb, disk_gb, container, gpu, keep_on_eviction, output, submit)
    least = at_least if at_least is not None or not skip_absent else 0
    how = OutputOptions(form, as_json, dry_run, toil_params, allow_unknown, refuse_nowhere, least)
    _submit_parset(parset, config, name, options, job, how)


def _submit_parset(
    parset: Path,
    config: Path,
    name: str | None,
    options: "RunOptions",
    job: "JobOptions",
    output: OutputOptions,
) -> None:
    from hydrator.config import load

    from .checks import (
        check_expressions,
        check_sites,
        default_mode,
        exit_on_problems,
        finish_dry_run,
        mode_problems,
        parse_command,
        print_start,
        usage_problems,
    )
    from .job_folder import produce_job
    from .outlook import print_ad, print_exports
    from .run import prepare_run

    settings = load(config)
    options = replace(options, mode=default_mode(settings.submit, options, output))
    exit_on_problems(usage_problems(settings.submit, options, job, output))
    words = parse_command(job, settings.submit)
    options = check_expressions(settings, options)
    run = prepare_run(
        parset, settings, options, name, output, mode_problems(settings.submit, options, output)
    )
    if output.dry_run:
        finish_dry_run(run, output)
        return
    check_sites(run, output)
    print_start(run)
    if output.form is OutputFormat.AD:
        print_ad(run, as_json=output.as_json)
    elif output.form is OutputFormat.ENV:
        print_exports(run, toil=output.toil_params)
    else:
        produce_job(run, job, words)
