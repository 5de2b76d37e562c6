"""Choice of a GPU slot, else 16 cores and 64 GB: real negotiation and claims; the GPUs are stand-ins.

Configuration gives each startd its GPUs; all that HTCondor does with them is real.
The GPU site is the larger one, which a negotiator without the locality term would use last.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec
from tests.tables import write

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

MANY = 70_000  # MiB
SITES = (
    SiteSpec("GPU", cpus=24, memory=80_000, gpus=2),
    SiteSpec("CPU", cpus=16, memory=MANY),
)
SUBMIT = """
[submit]
disk_gb = 0.001
gpu_cpus = 2
gpu_memory_gb = 1
"""
SHOW = "/bin/sh -c 'echo took $_CONDOR_AssignedGPUs; grep -E \"^(Cpus|Memory|GPUs) =\" $_CONDOR_MACHINE_AD'"


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    with Pool.start(htcondor_release, SITES) as pool:
        catalogue = ListedCatalogue(pool.home, [site.name for site in SITES])
        disks = pool.shared / "disks"
        storage = "".join(
            f'[[storage]]\nsite = "{site.name}"\nprefix = "{disks}"\nrule = "name"\n' for site in SITES
        )
        for name in ("both.ms", "cores.ms", "many.ms"):
            write(disks / "lofar" / name)
        everywhere = dict.fromkeys(("GPU", "CPU"), "available")
        catalogue.hold(
            {
                "lofar:both.ms": everywhere,
                "lofar:many.ms": everywhere,
                "lofar:cores.ms": {"CPU": "available"},
            }
        )
        with Installation(pool, catalogue, settings=SUBMIT + storage) as installation:
            for name in ("both.ms", "cores.ms", "many.ms"):
                installation.submit([f"lofar:{name}"], more="hold = true")  # so that slots know of all
            pool.wait(
                lambda: {
                    site.name: len(installation.states_at(site.name)) for site in SITES
                } == {"GPU": 2, "CPU": 3}, "every site to say what it has"
            )  # fmt: skip
            yield installation


def run_of(installed: Installation, name: str, *options: str) -> tuple[Path, str]:
    """Prepare a run on one measurement set that prints its slot; return its folder and submit file."""
    folder = installed.pool.user_home("alice") / re.sub(r"\W", "_", f"{name}{''.join(options)}")[:60]
    folder.mkdir()
    (folder / "run.parset").write_text(f"[global]\ndir_working = /tmp\ninput_ms = {name}\n")
    words = ["submit", "rapthor", str(folder / "run.parset"), "-o", str(folder / "job"), "--command", SHOW]
    job = Path(installed.run(*words, *options).stdout.strip())
    installed.pool.run("chown", "-R", "1000", str(folder))
    return job, (job / "run.sub").read_text()


def taken(folder: Path) -> dict[str, str]:
    """Return the slot values that the job printed."""
    text = (folder / "run.out").read_text()
    return dict(re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE))


def test_a_run_prefers_a_gpu_slot_and_takes_few_cores_there(installed):
    folder, _ = run_of(installed, "both.ms", "--gpu", "prefer")
    assert installed.pool.ran_at(installed.pool.submit_file(folder / "run.sub")) == ["GPU"]
    assert taken(folder)["GPUs"] == "1"
    assert taken(folder)["Cpus"] == "2"
    assert "took GPU-gpu" in (folder / "run.out").read_text()


def test_site_of_the_data_ranks_above_a_gpu(installed):
    folder, text = run_of(
        installed, "cores.ms", "--gpu", "prefer", "--requirements", "TARGET.Cpus > 0", "--rank", "TARGET.Cpus"
    )
    assert "rank = (((TARGET.Cpus) ?: 0.0) + 100 * MY.GPUPreference) + (MY.DataLocalityRank ?: 0.0)" in text
    assert installed.pool.ran_at(installed.pool.submit_file(folder / "run.sub")) == ["CPU"]
    assert (taken(folder)["GPUs"], taken(folder)["Cpus"]) == ("0", "16")
    assert int(taken(folder)["Memory"]) >= 64e9 / 2**20


def test_run_takes_sixteen_cores_and_64_gb_if_all_gpus_are_in_use(installed):
    full = installed.pool.submit(
        "executable = /bin/sleep\narguments = 300\nrequest_gpus = 1\n"
        "request_memory = 10\nrequest_disk = 1\nqueue 2"
    )
    installed.pool.until_running(full, jobs=2)
    free = 'PartitionableSlot && GLIDEIN_Site == "GPU" && GPUs == 0'
    installed.pool.wait(lambda: installed.pool.slots("GPUs", constraint=free), "the collector to hear of it")
    folder, _ = run_of(installed, "many.ms", "--gpu", "prefer")
    (site,) = installed.pool.ran_at(installed.pool.submit_file(folder / "run.sub"))
    assert site in {"GPU", "CPU"}
    assert (taken(folder)["GPUs"], taken(folder)["Cpus"]) == ("0", "16")
    installed.pool.run("condor_rm", str(full), user="alice")
