"""The sections [demand], [jobs], [submit] and [[storage]] of the configuration."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from .fields import DidPattern, Section, SiteName, Url


class DemandSettings(Section):
    """Selection of the published datasets."""

    ask_schedds: bool = Field(
        True, description="query the schedds that the collector lists for the datasets that jobs name"
    )
    pins: list[str] = Field(default_factory=list, description="DIDs that are always published")
    patterns: tuple[DidPattern, ...] = Field(
        (),
        description="patterns with * and ?; the daemon publishes every dataset whose DID matches a pattern",
    )


class JobsSettings(Section):
    """Defaults that `hydrator pool-config` gives to jobs that set only RequiredDatasets."""

    default_mode: Literal["auto", "require", "wait"] = Field(
        "auto", description="mode of a job that sets no mode"
    )
    wait_seconds: float = Field(
        3600, ge=0, le=31_536_000, description='how long a job with mode "wait" waits for its data'
    )
    glideinwms: bool = Field(
        False,
        description="jobs carry their datasets also as a text, RequiredDatasetsCSV, which GlideinWMS"
        " frontends read",
    )


class NamePattern(Section):
    """A rule that converts names of measurement sets to DIDs: a regular expression and a template."""

    match: str = Field(
        description="a regular expression that must match the whole name, without a trailing /"
    )
    did: str = Field(
        description="template of the DID; \\1 or \\g<name> stand for the text that a group of the"
        " regular expression in match found"
    )


class SubmitSettings(Section):
    """Defaults of `hydrator submit`: names of measurement sets, resources, and the daemon's address."""

    names: dict[str, str] = Field(
        default_factory=dict,
        description="DIDs of measurement sets, as name = DID; an entry has priority over all rules",
    )
    patterns: list[NamePattern] = Field(
        default_factory=list,
        description="rules for measurement sets that neither names nor a catalogue has; the first rule"
        " that matches gives the DID",
    )
    stage_in: str | None = Field(
        None,
        description="a command that copies the dataset {did} to {path}, for jobs with mode wait or auto",
    )
    unpack: list[str] = Field(
        default=["*.ms.tar", "*.ms_*.tar", "*.ms.dppp*.tar"],
        description="patterns (* and ?, any letter case) of tar files that a job unpacks into its scratch"
        " folder",
    )
    cpus: int = Field(16, ge=1, le=4096)
    memory_gb: float = Field(64, gt=0, le=65_536)
    disk_gb: float = Field(100, gt=0, le=1_000_000)
    container: str | None = Field(
        None, description="container image of the job, as for container_image in a submit file"
    )
    gpu: Literal["no", "prefer", "require"] = Field(
        "no",
        description="prefer: a GPU slot if one is free, else a slot with cpus and memory_gb; require: GPU"
        " slots only",
    )
    gpu_cpus: int = Field(4, ge=1, le=4096, description="cores that a job on a GPU slot requests")
    gpu_memory_gb: float = Field(16, gt=0, le=65_536, description="memory that a job on a GPU slot requests")
    require_gpus: str | None = Field(
        None,
        description="requirements on the GPU, as for require_gpus in a submit file; with another property"
        " than Capability, DeviceName or GlobalMemoryMb the negotiator does not prefer such a GPU",
    )
    gpu_steps: list[str] = Field(
        default=["*image*"],
        description="patterns (* and ?) of the Toil steps or Rapthor operations to which the key gpu applies",
    )
    daemon_url: Url | None = Field(
        None, description="address of the daemon, for hosts that cannot read the daemon's state_dir"
    )
    token_file: Path | None = Field(None, description="a file with the bearer token for the daemon")
    ca_cert: Path | None = Field(None, description="the CA of the daemon's certificate")


class StorageArea(Section):
    """The local paths of datasets for jobs at one site."""

    site: SiteName
    prefix: str = Field(pattern="^/", description="path of the storage's folder, as jobs at the site see it")
    rule: Literal["hash", "identity", "catalogue", "name", "table"] = Field(
        "hash",
        description='form of the paths below prefix. For each file: "hash" is Rucio\'s scope/xx/yy/name,'
        ' "identity" is scope/name, "catalogue" is the path in the file\'s address. For a'
        ' dataset as one folder: "name" is scope/name, "table" is an entry of table',
    )
    table: dict[str, str] = Field(
        default_factory=dict, description='if rule = "table": DID = path below prefix'
    )
    rse: str | None = Field(
        None, description='if rule = "catalogue": the RSE whose file addresses (PFNs) give the paths'
    )
    address_prefix: str | None = Field(
        None,
        description='if rule = "catalogue": the beginning of the file addresses; prefix replaces this'
        " beginning",
    )

    @model_validator(mode="after")
    def _check_addresses(self) -> Self:
        given = self.rse is not None, self.address_prefix is not None
        if self.rule == "catalogue" and not all(given):
            raise ValueError('rule "catalogue" needs rse and address_prefix')
        if self.rule != "catalogue" and any(given):
            raise ValueError('rse and address_prefix need rule = "catalogue"; remove them or set that rule')
        return self
