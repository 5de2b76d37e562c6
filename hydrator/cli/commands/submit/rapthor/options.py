"""Types for the options of ``hydrator submit rapthor``."""

from dataclasses import dataclass
from enum import StrEnum


class OutputFormat(StrEnum):
    """The output: a job, exports for a shell, or a ClassAd."""

    JOB = "job"
    ENV = "env"
    AD = "ad"


class GpuMode(StrEnum):
    """Slots that the job uses: without GPUs, preferably with GPUs, or only with GPUs."""

    NO = "no"
    PREFER = "prefer"
    REQUIRE = "require"


class LocalityMode(StrEnum):
    """Values of the job attribute ``DataLocality``: the sites where the run may start."""

    AUTO = "auto"
    REQUIRE = "require"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options of the output, and of the cases in which the command refuses to go on.

    ``allow_unknown``: go on although no catalogue confirmed a dataset.
    ``refuse_nowhere``: exit if no site can start the run now.
    ``least_share``: leave out absent measurement sets, if at least this share (0 to 1) of them is left; None
    to leave out none.
    """

    form: OutputFormat
    as_json: bool
    dry_run: bool
    toil_params: bool
    allow_unknown: bool
    refuse_nowhere: bool
    least_share: float | None = None
