"""GPU choice: HTCondor expressions for a job that uses a slot with a GPU if one is free, else many cores.

``request_cpus``, ``request_memory`` and ``request_gpus`` are expressions over ``TARGET``. Negotiator, schedd
and startd evaluate them against the slot. So a partitionable slot gives a GPU with few cores or, if no GPU is
free, many cores without a GPU. Tested on HTCondor 23.9.6 and 25.14.1 (tests/integration/test_gpus.py). Pure.

Two properties of HTCondor shape the texts:

- condor_submit writes ``TARGET.GPUs >= RequestGPUs`` for a plain number only. With ``require_gpus`` it writes
  a clause that is undefined, so never true, on slots without GPUs. So this module writes the clause itself,
  closed with ``=?= true``, and sets RequireGPUs as an attribute.
- A slot without the attribute GPUs has no GPU; its number is not unknown.

The Toil package has its own copy, because it must not import hydrator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hydrator.config import SubmitSettings

PREFERENCE_ATTRIBUTE = "GPUPreference"
"""Job attribute: 1.0 on a slot with the requested GPUs, else 0.0; used in NEGOTIATOR_PRE_JOB_RANK."""


class SlotShare(NamedTuple):
    """The share of a slot that a job requests: cores, and MiB of memory."""

    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """The shares that a job requests of a slot with a free GPU, and of a slot without one.

    ``without_gpu`` is None for a job that needs a GPU. ``properties`` is an expression over the GPUs'
    properties, as in ``require_gpus``. ``rank`` is the value that a GPU adds to the job's Rank; all data adds
    [jobs].rank_weight (1000).
    """

    with_gpu: SlotShare
    without_gpu: SlotShare | None
    gpus: int = 1
    properties: str = ""
    rank: float = 100.0

    @property
    def gpus_available_expression(self) -> str:
        """A ClassAd expression: true if the slot has the requested GPUs free, else false."""
        free = "countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)" if self.properties else "TARGET.GPUs"
        return f"(({free} >= {self.gpus}) =?= true)"

    @property
    def requests(self) -> dict[str, str]:
        """The request commands of the submit description."""
        names = ("request_gpus", "request_cpus", "request_memory")
        with_gpu = (self.gpus, *self.with_gpu)
        if self.without_gpu is None:
            return dict(zip(names, map(str, with_gpu), strict=True))
        choices = zip(names, with_gpu, (0, *self.without_gpu), strict=True)
        return {name: f"{self.gpus_available_expression} ? {one} : {other}" for name, one, other in choices}

    @property
    def requirement(self) -> str:
        """The clause for Requirements; condor_submit adds none if request_cpus is an expression."""
        enough = "TARGET.Cpus >= MY.RequestCpus"
        return f"{self.gpus_available_expression} && {enough}" if self.without_gpu is None else enough

    @property
    def attributes(self) -> dict[str, str]:
        """The job attributes, each with its expression."""
        preference = {PREFERENCE_ATTRIBUTE: f"{self.gpus_available_expression} ? 1.0 : 0.0"}
        return {**preference, "RequireGPUs": self.properties} if self.properties else preference

    def rank_expression(self, users_rank: str) -> str:
        """Return the job's Rank: the user's own plus the value of a GPU."""
        own = f"(({users_rank}) ?: 0.0) + " if users_rank.strip() else ""
        return f"{own}{self.rank:g} * MY.{PREFERENCE_ATTRIBUTE}"


def mebibytes(gigabytes: float) -> int:
    """Convert GB (1e9 bytes, as in the configuration) to MiB, HTCondor's unit of memory; at least 1."""
    return max(1, round(gigabytes * 1e9 / 2**20))


def gpu_choice(submit: SubmitSettings, mode: str) -> GpuChoice | None:
    """Build the choice from [submit] for *mode* ``prefer`` or ``require``; None for ``no``."""
    if mode == "no":
        return None
    return GpuChoice(
        with_gpu=SlotShare(submit.gpu_cpus, mebibytes(submit.gpu_memory_gb)),
        without_gpu=None if mode == "require" else SlotShare(submit.cpus, mebibytes(submit.memory_gb)),
        gpus=submit.gpus,
        properties=submit.require_gpus or "",
        rank=submit.gpu_rank,
    )


def submit_lines(choice: GpuChoice) -> Sequence[str]:
    """Return lines for an existing submit description, to insert before its first queue statement.

    They replace its requests, and extend the requirements and the rank that it has set before:
    ``$(name:default)`` is HTCondor's macro for these.
    """
    return [
        *(f"{name} = {value}" for name, value in choice.requests.items()),
        *(f"+{name} = {value}" for name, value in choice.attributes.items()),
        f"requirements = ($(requirements:true)) && {choice.requirement}",
        f"rank = {choice.rank_expression('$(rank:0.0)')}",
    ]
