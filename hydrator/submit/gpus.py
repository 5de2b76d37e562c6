"""GPU choice: HTCondor expressions for a job that takes a slot with a free GPU, or else many cores.

``request_cpus``, ``request_memory`` and ``request_gpus`` are expressions over ``TARGET``. Negotiator, schedd
and startd evaluate these expressions against the slot. So the job gets from a partitionable slot a GPU with
few cores or, if no GPU is free, many cores without a GPU. Pure.

Tested on HTCondor 23.9.6 and 25.14.1 (tests/integration/test_gpus.py).

Two properties of HTCondor shape the texts:

- condor_submit adds ``TARGET.GPUs >= RequestGPUs`` to Requirements only if ``request_gpus`` is a number.
  With ``require_gpus`` condor_submit adds a clause that is undefined on slots without GPUs, so such slots
  never match. So this module writes the clause itself, with ``=?= true`` at its end, and sets the attribute
  RequireGPUs.
- A slot without the attribute GPUs has no GPU: the expressions take an undefined number of GPUs as 0.

Toil's leader imports this module without any library of ours, so the module needs only the standard library.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hydrator.domain.ads.contract import GPU_PREFERENCE

if TYPE_CHECKING:
    from hydrator.config import SubmitSettings

_RANK = 100
"""The value that a free GPU adds to the job's Rank: more than most ranks of users differ by."""


class SlotShare(NamedTuple):
    """The part of a slot that a job requests: cores, and MiB of memory."""

    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """The cores and memory that a job requests of a slot with a free GPU, and of a slot without a free GPU.

    ``without_gpu`` is None for a job that needs a GPU. ``properties`` is an expression over the GPUs'
    properties, as in ``require_gpus``.
    """

    with_gpu: SlotShare
    without_gpu: SlotShare | None
    properties: str = ""

    @property
    def gpus_available_expression(self) -> str:
        """A ClassAd expression: true if the slot has enough free GPUs for the job, else false."""
        free = "countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)" if self.properties else "TARGET.GPUs"
        return f"(({free} >= 1) =?= true)"

    @property
    def requests(self) -> dict[str, str]:
        """The request commands of the submit description."""
        names = ("request_gpus", "request_cpus", "request_memory")
        with_gpu = (1, *self.with_gpu)
        if self.without_gpu is None:
            return dict(zip(names, map(str, with_gpu), strict=True))
        choices = zip(names, with_gpu, (0, *self.without_gpu), strict=True)
        return {name: f"{self.gpus_available_expression} ? {one} : {other}" for name, one, other in choices}

    @property
    def requirement(self) -> str:
        """The clause for Requirements: the slot has enough cores and, if the job needs a GPU, enough GPUs.

        condor_submit does not add the clause on cores if ``request_cpus`` is an expression."""
        enough = "TARGET.Cpus >= MY.RequestCpus"
        return f"{self.gpus_available_expression} && {enough}" if self.without_gpu is None else enough

    @property
    def attributes(self) -> dict[str, str]:
        """The job attributes, each with its expression."""
        preference = {GPU_PREFERENCE: f"{self.gpus_available_expression} ? 1.0 : 0.0"}
        return {**preference, "RequireGPUs": self.properties} if self.properties else preference

    def rank_expression(self, users_rank: str) -> str:
        """Return the job's Rank: *users_rank* plus ``_RANK`` on a slot with a free GPU."""
        own = f"(({users_rank}) ?: 0.0) + " if users_rank.strip() else ""
        return f"{own}{_RANK} * MY.{GPU_PREFERENCE}"


def mebibytes(gigabytes: float) -> int:
    """Convert GB (1e9 bytes, as in the configuration) to MiB, HTCondor's unit of memory; at least 1."""
    return max(1, round(gigabytes * 1e9 / 2**20))


def gpu_choice(submit: "SubmitSettings", mode: str) -> GpuChoice | None:
    """Build the GPU choice from the [submit] settings for *mode* prefer or require; None for ``no``."""
    if mode == "no":
        return None
    return GpuChoice(
        with_gpu=SlotShare(submit.gpu_cpus, mebibytes(submit.gpu_memory_gb)),
        without_gpu=None if mode == "require" else SlotShare(submit.cpus, mebibytes(submit.memory_gb)),
        properties=submit.require_gpus or "",
    )


def submit_lines(choice: GpuChoice) -> Sequence[str]:
    """Return lines for an existing submit description, to insert before its first queue statement.

    The lines replace the description's requests for cores, memory and GPUs. They extend the description's
    requirements and rank by HTCondor's macro ``$(name:default)``.
    """
    return [
        *(f"{name} = {value}" for name, value in choice.requests.items()),
        *(f"+{name} = {value}" for name, value in choice.attributes.items()),
        f"requirements = ($(requirements:true)) && {choice.requirement}",
        f"rank = {choice.rank_expression('$(rank:0.0)')}",
    ]
