"""GPU choice: the expressions of a job, evaluated by HTCondor's library against each kind of slot."""

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree

from hydrator.config import SubmitSettings
from hydrator.submit.gpus import GpuChoice, SlotShare, gpu_choice, submit_lines

CHOICE = GpuChoice(with_gpu=SlotShare(4, 15_000), without_gpu=SlotShare(16, 61_000))
MODERN = GpuChoice(
    with_gpu=SlotShare(4, 15_000), without_gpu=SlotShare(16, 61_000), properties="Capability >= 8.0"
)
TWO_KINDS = "A = [Capability = 8.0]; B = [Capability = 7.0]; AvailableGPUs = {A, B}"
GPU_SLOT = f"[GPUs = 2; Cpus = 8; Memory = 32000; {TWO_KINDS}]"
SLOTS = {
    "a GPU slot": GPU_SLOT,
    "old GPUs only": "[GPUs = 1; Cpus = 8; Memory = 32000; B = [Capability = 7.0]; AvailableGPUs = {B}]",
    "all GPUs in use": "[GPUs = 0; TotalGPUs = 2; Cpus = 32; Memory = 128000; AvailableGPUs = {}]",
    "many cores": "[GPUs = 0; Cpus = 16; Memory = 64000]",
    "a slot that says nothing of GPUs": "[Cpus = 64; Memory = 256000]",
    "GPUs undefined": "[GPUs = undefined; Cpus = 16; Memory = 64000]",
    "GPUs in error": "[GPUs = error; Cpus = 16; Memory = 64000]",
    "GPUs as text": '[GPUs = "two"; Cpus = 16; Memory = 64000]',
}


def beside(choice: GpuChoice, slot: str) -> dict[str, object]:
    """Return the job's requests and clauses, evaluated against *slot*."""
    job, target = ClassAd(), ClassAd(slot)
    named = {"request_gpus": "RequestGPUs", "request_cpus": "RequestCpus", "request_memory": "RequestMemory"}
    for name, text in choice.requests.items():
        job[named[name]] = ExprTree(text)
    for name, text in choice.attributes.items():
        job[name] = ExprTree(text)
    job["Fits"] = ExprTree(f"({choice.requirement}) && TARGET.Memory >= MY.RequestMemory")
    job["Rank"] = ExprTree(choice.rank_expression("TARGET.NoSuchThing"))
    wanted = [*named.values(), "Fits", "GPUPreference", "Rank"]
    return {
        name: job.lookup(name).eval(job, target) if hasattr(job.lookup(name), "eval") else job[name]
        for name in wanted
    }


@pytest.mark.parametrize("slot", SLOTS)
def test_resource_requests_depend_on_a_free_gpu_in_the_slot(slot):
    requests = beside(CHOICE, SLOTS[slot])
    gpu = slot in {"a GPU slot", "old GPUs only"}
    assert (requests["RequestGPUs"], requests["RequestCpus"], requests["RequestMemory"]) == (
        (1, 4, 15_000) if gpu else (0, 16, 61_000)
    )
    assert requests["Fits"] is True
    assert (requests["GPUPreference"], requests["Rank"]) == ((1.0, 100.0) if gpu else (0.0, 0.0))


@pytest.mark.parametrize("slot", SLOTS)
def test_gpu_without_the_required_properties_does_not_count(slot):
    requests = beside(MODERN, SLOTS[slot])
    assert requests["RequestGPUs"] == (1 if slot == "a GPU slot" else 0)
    assert requests["Fits"] is (slot != "old GPUs only")  # which has too few cores for a job without GPU


@pytest.mark.parametrize("slot", SLOTS)
def test_job_that_requires_a_gpu_matches_only_slots_with_a_gpu(slot):
    needs = GpuChoice(with_gpu=SlotShare(4, 15_000), without_gpu=None)
    assert beside(needs, SLOTS[slot])["Fits"] is (slot in {"a GPU slot", "old GPUs only"})


@pytest.mark.parametrize("slot", ["[Cpus = 8; Memory = 256000]", "[Cpus = 64; Memory = 32000]", "[]"])
def test_slot_without_gpu_must_have_all_cores_and_memory(slot):
    assert beside(CHOICE, slot)["Fits"] is not True


def test_gpu_choice_follows_the_configuration():
    settings = SubmitSettings(cpus=32, memory_gb=128, gpu_cpus=8, gpu_memory_gb=1.048576)
    chosen = gpu_choice(settings, "prefer")
    assert chosen == GpuChoice(with_gpu=SlotShare(8, 1000), without_gpu=SlotShare(32, 122_070))
    needs = gpu_choice(settings, "require")
    assert needs is not None
    assert needs.without_gpu is None
    assert gpu_choice(settings, "no") is None


def test_gpu_lines_extend_requirements_and_rank_of_a_submit_file():
    lines = submit_lines(CHOICE)
    assert "requirements = ($(requirements:true)) && TARGET.Cpus >= MY.RequestCpus" in lines
    assert "rank = (($(rank:0.0)) ?: 0.0) + 100 * MY.GPUPreference" in lines
