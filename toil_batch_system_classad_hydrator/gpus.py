"""GPU requests of steps: a slot with a GPU, or else many cores, as ``[submit] gpu`` says.

The expressions are a copy of those in hydrator/submit/gpus.py, because this package must not import hydrator;
a test compares them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from .datasets import read_settings

PREFERENCE_ATTRIBUTE = "GPUPreference"


@dataclass(frozen=True, slots=True)
class StepGpus:
    """The settings of ``[submit]`` on GPUs.

    If no GPU is free, a step requests at least ``cpus`` cores and ``memory_mib`` MiB of memory.
    """

    mode: str = "no"
    steps: tuple[str, ...] = ("*image*",)
    count: int = 1
    cpus: int = 16
    memory_mib: int = 61_035
    properties: str = ""
    rank: float = 100.0

    @classmethod
    def load(cls, file: str | None) -> Self:
        """Load the ``[submit]`` section of *file*, a configuration in TOML; the defaults if *file* is None.

        Raises:
            DatasetsError: the file cannot be read, or a value has the wrong type.
        """
        with read_settings(file) as settings:
            submit = settings.get("submit", {})
            mode = str(submit.get("gpu", "no"))
            if mode not in {"no", "prefer", "require"}:
                raise ValueError(f"gpu is {mode!r}: use no, prefer or require")
            return cls(
                mode,
                tuple(map(str, submit.get("gpu_steps", ["*image*"]))),
                int(submit.get("gpus", 1)),
                int(submit.get("cpus", 16)),
                round(float(submit.get("memory_gb", 64)) * 1e9 / 2**20),
                str(submit.get("require_gpus") or ""),
                float(submit.get("gpu_rank", 100)),
            )

    def choose(self, names: tuple[str, ...], cpus: int, memory_mib: int) -> "StepGpuChoice | None":
        """Return the requests of a step with these *names*, cores and memory; None without a GPU."""
        if self.mode == "no" or not any(fnmatchcase(name, one) for name in names for one in self.steps):
            return None
        plain = None if self.mode == "require" else (max(cpus, self.cpus), max(memory_mib, self.memory_mib))
        return StepGpuChoice((cpus, memory_mib), plain, self.count, self.properties, self.rank)


@dataclass(frozen=True, slots=True)
class StepGpuChoice:
    """The requests of a job: cores and MiB of memory with a GPU, and without a GPU.

    ``without_gpu`` is None for a job that needs a GPU.
    """

    with_gpu: tuple[int, int]
    without_gpu: tuple[int, int] | None
    gpus: int
    properties: str
    rank: float

    @property
    def gpus_available_expression(self) -> str:
        """A ClassAd expression: true if the slot has enough free GPUs for the job, else false."""
        free = "countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)" if self.properties else "TARGET.GPUs"
        return f"(({free} >= {self.gpus}) =?= true)"

    @property
    def requests(self) -> dict[str, str]:
        """The submit commands request_gpus, request_cpus and request_memory."""
        names = ("request_gpus", "request_cpus", "request_memory")
        with_gpu = (self.gpus, *self.with_gpu)
        if self.without_gpu is None:
            return dict(zip(names, map(str, with_gpu), strict=True))
        choices = zip(names, with_gpu, (0, *self.without_gpu), strict=True)
        return {name: f"{self.gpus_available_expression} ? {one} : {other}" for name, one, other in choices}

    @property
    def requirement(self) -> str:
        """The clause for Requirements: the slot has enough cores, and enough GPUs if the job needs GPUs."""
        enough = "TARGET.Cpus >= MY.RequestCpus"
        return f"{self.gpus_available_expression} && {enough}" if self.without_gpu is None else enough

    @property
    def attributes(self) -> Mapping[str, str]:
        """The job attributes for GPUs, each with its expression."""
        preference = {PREFERENCE_ATTRIBUTE: f"{self.gpus_available_expression} ? 1.0 : 0.0"}
        return {**preference, "RequireGPUs": self.properties} if self.properties else preference

    def rank_expression(self, users_rank: str) -> str:
        """Return the job's Rank: *users_rank*, plus ``rank`` if the slot has enough free GPUs."""
        own = f"(({users_rank}) ?: 0.0) + " if users_rank.strip() else ""
        return f"{own}{self.rank:g} * MY.{PREFERENCE_ATTRIBUTE}"
