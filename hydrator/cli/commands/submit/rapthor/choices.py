"""Values of the options ``--as``, ``--gpu`` and ``--mode``."""

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
