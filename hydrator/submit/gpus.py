"""A GPU slot first, else many cores: one job that fits both kinds of slot, as HTCondor expressions.

Pure. What a job requests may depend on the slot it meets: ``request_cpus``,
``request_memory`` and ``request_gpus`` are expressions over ``TARGET``, which
negotiator, schedd and startd evaluate against the slot in question, so a
partitionable slot hands out a GPU with few cores or, where none is free, many
cores and no GPU. Run on HTCondor 23.9.6 and 25.14.1 (tests/integration/test_gpus.py).

Two traps shape the texts. condor_submit writes ``TARGET.GPUs >= RequestGPUs`` for
a plain number only, and with ``require_gpus`` a clause that is undefined, so
never true, on slots without GPUs: we write the clause ourselves, closed with
``=?= true``, and set RequireGPUs as an attribute. And a slot may not say GPUs
at all: that is no GPU, not an unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydrator.config import SubmitSettings

PREFERENCE_ATTRIBUTE = "GPUPreference"
"""Job attribute: 1.0 on a slot with the GPUs asked for, else 0.0; the negotiator's term reads it."""


@dataclass(frozen=True, slots=True)
class SlotShare:
    """What a job takes of a slot: cores, and MiB of memory."""

    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """What a job takes of a slot with a free GPU, and of one without.

    ``without`` is None for a job that needs a GPU. ``properties`` is what the
    GPUs must have, an expression over their properties as in ``require_gpus``.
    ``rank`` is what a GPU adds to the job's Rank, where all data adds
    [jobs].rank_weight (1000).
    """

    with_gpu: SlotShare
    without_gpu: SlotShare | None
    gpus: int = 1
    properties: str = ""
    rank: float = 100.0

    @property
    def gpus_available_expression(self) -> str:
        """True where the slot has the GPUs free, false beside any other ad; never undefined."""
        free = "countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)" if self.properties else "TARGET.GPUs"
        return f"(({free} >= {self.gpus}) =?= true)"

    @property
    def requests(self) -> dict[str, str]:
        """The submit commands for what is taken."""
        if self.without_gpu is None:
            wanted = (str(self.gpus), str(self.with_gpu.cpus), str(self.with_gpu.memory_mib))
        else:
            pairs = (
                (self.gpus, 0),
                (self.with_gpu.cpus, self.without_gpu.cpus),
                (self.with_gpu.memory_mib, self.without_gpu.memory_mib),
            )
            wanted = tuple(f"{self.gpus_available_expression} ? {here} : {there}" for here, there in pairs)  # type: ignore[assignment]
        return dict(zip(("request_gpus", "request_cpus", "request_memory"), wanted, strict=True))

    @property
    def requirement(self) -> str:
        """The clause for Requirements; condor_submit writes none for cores that are an expression."""
        enough = "TARGET.Cpus >= MY.RequestCpus"
        return f"{self.gpus_available_expression} && {enough}" if self.without_gpu is None else enough

    @property
    def attributes(self) -> dict[str, str]:
        """Job attributes, each with its expression."""
        found = {PREFERENCE_ATTRIBUTE: f"{self.gpus_available_expression} ? 1.0 : 0.0"}
        return {**found, "RequireGPUs": self.properties} if self.properties else found

    def rank_expression(self, users_rank: str) -> str:
        """The job's Rank: the user's own, and what a GPU adds."""
        own = f"(({users_rank}) ?: 0.0) + " if users_rank.strip() else ""
        return f"{own}{self.rank:g} * MY.{PREFERENCE_ATTRIBUTE}"


def mebibytes(gigabytes: float) -> int:
    """GB (1e9 bytes, as in the configuration) as HTCondor counts memory, at least 1."""
    return max(1, round(gigabytes * 1e9 / 2**20))


def gpu_choice(submit: SubmitSettings, mode: str) -> GpuChoice | None:
    """What [submit] says of GPUs, for *mode* ``no``, ``prefer`` or ``require``."""
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
    """Lines for a submit description that somebody wrote, to stand before its first queue.

    They replace what it requests, and extend the requirements and the rank
    that it has set by then: ``$(name:default)`` is HTCondor's own macro of them.
    """
    return [
        *(f"{name} = {value}" for name, value in choice.requests.items()),
        *(f"+{name} = {value}" for name, value in choice.attributes.items()),
        f"requirements = ($(requirements:true)) && {choice.requirement}",
        f"rank = {choice.rank_expression('$(rank:0.0)')}",
    ]
