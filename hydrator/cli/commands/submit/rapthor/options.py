"""The options of ``hydrator submit rapthor``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, RefuseOption, number_option
from hydrator.config import Settings
from hydrator.domain.ads.expressions import Mode
from hydrator.submit.bindings import MAX_SECONDS


@dataclass(frozen=True, slots=True)
class RapthorOptions:
    """The options as the user gave them; without a resource, [submit] of the configuration has it."""

    parset: Annotated[Path, typer.Argument(help="The parset file, as you would give it to rapthor.")]
    config: ConfigOption = DEFAULT_CONFIG_PATH
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder in which the command makes a new folder for the job."),
    ] = None
    form: Annotated[
        Literal["job", "env"],
        typer.Option("--as", help="job: one job for the whole run; env: exports for Toil's steps."),
    ] = "job"
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; only with --dry-run.")] = False
    submit: Annotated[bool, typer.Option("--submit", help="Run condor_submit.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which sites would match now.")] = (
        False
    )
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="require: run only at a site with the data; auto: run elsewhere if that ends sooner; wait:"
            " wait for such a site, then run anywhere."
            r" Default: the pool's default; without \[submit].stage_in, require."
        ),
    ] = None
    max_wait: Annotated[
        int | None,
        number_option(
            int, 0, MAX_SECONDS, "seconds", "Time to wait for the data, with --mode wait and auto."
        ),
    ] = None
    expected_time: Annotated[
        int | None,
        number_option(int, 1, MAX_SECONDS, "seconds", "Run time that you expect at a site with the data."),
    ] = None
    name: Annotated[
        str | None, typer.Option(help="Name of the run; default: the parset's name and the time.")
    ] = None
    cpus: Annotated[int | None, number_option(int, 1, 4096, "cores", "Cores.")] = None
    memory_gb: Annotated[float | None, number_option(float, 0.001, 65_536, "GB", "Memory.")] = None
    disk_gb: Annotated[float | None, number_option(float, 0.001, 1_000_000, "GB", "Scratch space.")] = None
    container: Annotated[
        str | None, typer.Option(help="Container image, as in container_image of a submit file.")
    ] = None
    gpu: Annotated[
        Literal["no", "prefer", "require"] | None,
        typer.Option(
            help="prefer: a GPU slot first, else cores and memory without a GPU; require: GPU slots only."
        ),
    ] = None
    command: Annotated[
        str, typer.Option("--command", help="Command to run at the site; run.parset is the job's parset.")
    ] = "rapthor run.parset"
    keep_on_eviction: Annotated[
        bool,
        typer.Option("--keep-on-eviction", help="On eviction, keep finished operations at the schedd."),
    ] = False
    requirements: Annotated[
        str, typer.Option(help="A ClassAd expression that the slot must fulfil too, such as TARGET.HasAVX2.")
    ] = ""
    rank: Annotated[
        str, typer.Option(help="A ClassAd expression to add to the job's Rank, such as TARGET.KFlops.")
    ] = ""
    line: Annotated[list[str] | None, typer.Option(help="One more line for the submit description.")] = None
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Accept datasets that no catalogue confirmed.")
    ] = False
    skip_absent: Annotated[
        bool, typer.Option("--skip-absent", help="Run without the measurement sets that no site has.")
    ] = False
    at_least: Annotated[
        float | None,
        number_option(
            float, 0, 1, "", "As --skip-absent, if this share of the measurement sets, 0 to 1, is left."
        ),
    ] = None
    refuse_nowhere: RefuseOption = False

    @property
    def least_share(self) -> float | None:
        """The share of the measurement sets that must be left without the absent ones; None to skip none."""
        return self.at_least if self.at_least is not None or not self.skip_absent else 0

    def apply_resources(self, settings: Settings) -> Settings:
        """Return *settings* with the resources of the options in [submit]."""
        names = ("cpus", "memory_gb", "disk_gb", "container", "gpu")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return settings.model_copy(update={"submit": settings.submit.model_copy(update=given)})
