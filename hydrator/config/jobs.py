"""[demand], [jobs], [submit], [[storage]]."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .fields import Seconds, Section, SiteName


class DemandSettings(Section):
    """Selection of the published datasets."""

    scope: Literal["jobs", "all"] = Field(
        "jobs", description="datasets that jobs name, or all of the catalogues"
    )
    ask_schedds: bool = Field(True, description="query the schedds that the collector lists")
    ask_seconds: Seconds = Field(30, description="interval between queries of the schedds")
    keep_hours: float = Field(
        24, ge=0, le=720, description="how long a dataset stays published after its last job"
    )
    pins: list[str] = Field(default_factory=list, description="DIDs that are always published")
    patterns: list[str] = Field(
        default_factory=list, description="DIDs with * and ?: all that match are published"
    )


class JobsSettings(Section):
    """Defaults that `hydrator submit pool-config` gives to jobs with a bare RequiredDatasets."""

    default_mode: Literal["require", "wait", "prefer"] = Field(
        "wait", description="mode of a job without one"
    )
    wait_seconds: float = Field(
        3600, ge=0, le=31_536_000, description="how long a job with mode wait waits for its data"
    )
    settle_seconds: float = Field(
        600,
        ge=0,
        le=31_536_000,
        description="how long a job with mode prefer waits, so that its datasets can be published first",
    )
    rounding_seconds: float = Field(
        300,
        ge=1,
        le=3600,
        description="minimum step of deadlines, which are rounded up so that jobs share an autocluster",
    )
    rank_weight: float = Field(1000, ge=0, le=1e12, description="weight of locality in the job's own Rank")
    staging_credit: float = Field(
        0.5, ge=0, lt=1, description="rank weight of a dataset that is still being staged (0 to 1)"
    )


class NamePattern(Section):
    """A rule that converts names of measurement sets to DIDs: a regular expression and a template."""

    match: str = Field(
        description="a regular expression that must match the whole name, without a trailing /"
    )
    did: str = Field(description="the DID, with \\1 or \\g<name> for what the groups matched")


class SubmitSettings(Section):
    """Defaults of `hydrator submit`: measurement sets, resources and the daemon to ask."""

    names: dict[str, str] = Field(
        default_factory=dict, description="name of a measurement set = DID; has priority over patterns"
    )
    patterns: list[NamePattern] = Field(default_factory=list, description="tried in order, after names")
    stage_in: str | None = Field(
        None, description="a command that fetches {did} to {path}, for wait and prefer"
    )
    unpack: list[str] = Field(
        default=["*.ms.tar"],
        description="names of tar files, with * and ? in any letter case: unpacked into the scratch folder",
    )
    max_files: int = Field(
        20_000, ge=1, le=1_000_000, description="maximum number of files of all datasets of one run"
    )
    max_list_mb: float = Field(
        16,
        gt=0,
        le=1000,
        description="maximum size of hydrator-paths.json, which is transferred with the job",
    )
    cpus: int = Field(16, ge=1, le=4096)
    memory_gb: float = Field(64, gt=0, le=65_536)
    disk_gb: float = Field(100, gt=0, le=1_000_000)
    container: str | None = Field(None, description="an image for the job, as container_image")
    gpu: Literal["no", "prefer", "require"] = Field(
        "no", description="a GPU slot first, else the cores and memory above; or GPU slots only"
    )
    gpus: int = Field(1, ge=1, le=64, description="number of GPUs")
    gpu_cpus: int = Field(4, ge=1, le=4096, description="cores beside a GPU")
    gpu_memory_gb: float = Field(16, gt=0, le=65_536, description="memory beside a GPU")
    require_gpus: str | None = Field(None, description="requirements of the GPU, as in require_gpus")
    gpu_rank: float = Field(
        100,
        ge=0,
        le=1e12,
        description="weight of a GPU in the job's own Rank; complete data adds jobs.rank_weight",
    )
    gpu_steps: list[str] = Field(
        default=["*image*"], description="Toil's steps or Rapthor's operations that gpu is for, with * and ?"
    )
    daemon_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] | None = Field(
        None, description="address of the daemon, for hosts that cannot read its state"
    )
    token_file: Path | None = Field(None, description="a file with the bearer token for the daemon")
    ca_cert: Path | None = Field(None, description="the CA of the daemon's certificate")


class StorageArea(Section):
    """The local paths of datasets for jobs at one site."""

    site: SiteName
    prefix: str = Field(description="the folder, as jobs at the site see it")
    rule: Literal["hash", "identity", "catalogue", "name", "table"] = Field(
        "hash",
        description="below it, of each file: Rucio's scope/xx/yy/name, its scope/name, or by its address;"
        " of the dataset as one folder: scope/name, or by the table",
    )
    table: dict[str, str] = Field(default_factory=dict, description="DID = path below the prefix")
    rse: str | None = Field(
        None, description="for rule catalogue: the storage element whose addresses of files count"
    )
    address_prefix: str | None = Field(
        None, description="for rule catalogue: the start of these addresses, which prefix replaces"
    )

    @model_validator(mode="after")
    def _check_addresses(self) -> Self:
        given = self.rse is not None, self.address_prefix is not None
        if self.rule == "catalogue" and not all(given):
            raise ValueError('rule "catalogue" needs rse and address_prefix')
        if self.rule != "catalogue" and any(given):
            raise ValueError('rse and address_prefix are for rule = "catalogue"')
        return self
