"""Options of ``hydrator submit rapthor``."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """The output: a job, exports for a shell, or a ClassAd."""

    JOB = "job"
    ENV = "env"
    AD = "ad"


class GpuMode(StrEnum):
    """Slots that the job uses: without GPUs, with GPUs first, or with GPUs only."""

    NO = "no"
    PREFER = "prefer"
    REQUIRE = "require"


class LocalityMode(StrEnum):
    """Sites where the run may start: the values of ``DataLocality``."""

    REQUIRE = "require"
    WAIT = "wait"
    PREFER = "prefer"


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options on the output, and on the conditions under which there is one."""

    form: OutputFormat
    as_json: bool
    dry_run: bool
    toil_params: bool
    allow_unknown: bool
    refuse_nowhere: bool


ParsetArgument = Annotated[Path, typer.Argument(help="The parset, as you would give it to rapthor.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the job into a new folder inside this one.")
]
FormOption = Annotated[
    OutputFormat,
    typer.Option("--as", help="The whole run as a job; exports for Toil's steps; a ClassAd."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON, with --as ad and --dry-run.")]
SubmitOption = Annotated[bool, typer.Option("--submit", help="Run condor_submit.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print which sites would match now.")]
ModeOption = Annotated[
    LocalityMode, typer.Option(help="Run only where the data is; wait for that first; or prefer it.")
]
MaxWaitOption = Annotated[
    int | None, typer.Option(min=0, help="Seconds to wait with --mode wait and prefer.")
]
NameOption = Annotated[
    str | None, typer.Option(help="Name of the run; default: the parset's name and the time.")
]
CpusOption = Annotated[int | None, typer.Option(min=1, help="Cores.")]
MemoryOption = Annotated[float | None, typer.Option(min=0.001, help="Memory.")]
DiskOption = Annotated[float | None, typer.Option(min=0.001, help="Scratch space.")]
ContainerOption = Annotated[str | None, typer.Option(help="An image, as container_image.")]
GpuOption = Annotated[
    GpuMode | None,
    typer.Option(help="A GPU slot first, else cores and memory without a GPU; or GPU slots only."),
]
CommandOption = Annotated[
    str, typer.Option("--command", help="Command to run at the site; run.parset is the job's parset.")
]
KeepOption = Annotated[
    bool,
    typer.Option("--keep-on-eviction", help="On eviction, keep finished operations at the schedd."),
]
ExpressionOption = Annotated[str, typer.Option(help="A ClassAd expression of yours.")]
LineOption = Annotated[list[str] | None, typer.Option(help="One more line of the submit description.")]
ToilParamsOption = Annotated[
    bool, typer.Option(help="With --as env: print TOIL_HTCONDOR_PARAMS too, as a fallback.")
]
AllowUnknownOption = Annotated[
    bool, typer.Option("--allow-unknown", help="Accept datasets that no catalogue confirmed.")
]
RefuseNowhereOption = Annotated[
    bool,
    typer.Option(
        "--refuse-nowhere",
        help="If no site has all of its data now, submit nothing and exit with status 3.",
    ),
]
