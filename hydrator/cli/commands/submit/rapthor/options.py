"""Choices of ``hydrator submit rapthor``: values of its options, and the options on its output."""

from dataclasses import dataclass
from enum import StrEnum


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
    """Options on the output: its form, and the cases in which the command prints or submits nothing."""

    form: OutputFormat
    as_json: bool
    dry_run: bool
    toil_params: bool
    allow_unknown: bool
    refuse_nowhere: bool
