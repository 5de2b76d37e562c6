"""Drones that do not run yet, on a real pool with the real COBalD/TARDIS and its own HTCondor adapter.

Slurm is a stand-in: ``sbatch`` records the drones that TARDIS starts, and the test then starts a startd.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed import tardis
from testbed.installation import Installation, ListedCatalogue
from testbed.patience import wait_for
from testbed.pool import DOMAIN, Pool, SiteSpec
from testbed.processes import end
from tests.parts import NO_TARDIS, needs

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

DEPLOY = Path(__file__).parents[2] / "deploy" / "tardis"
ALLOW = f"COLLECTOR.ALLOW_ADVERTISE_STARTD = $(ALLOW_ADVERTISE_STARTD) hydrator@{DOMAIN}\n"
TYPES = "".join(
    f'[[publish.drones.types]]\nname = "{site.lower()}_2core"\nsite = "{site}"\ncpus = 2\nmemory_mib = 2048\n'
    for site in ("NL", "DE")
)
DRONES = f"[publish.drones]\nenabled = true\n{TYPES}"
MATCHES = ("MachineLastMatchTime", "MachineMatchCount")


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    """A pool whose only startd is at UK, and a daemon that knows drones of NL and DE."""
    sites = (SiteSpec("UK", cpus=1), SiteSpec("NL", cpus=2))
    with Pool.start(htcondor_release, sites) as pool:
        pool.stop_daemon("startd:NL")
        catalogue = ListedCatalogue(pool.home, ("UK", "NL", "DE"))
        catalogue.hold({"lofar:L1": {"NL": "available"}, "lofar:L2": {"UK": "available"}})
        drone = (
            f"include ifexist : {pool.shared}/drone.conf\nSTARTD_ATTRS = $(STARTD_ATTRS) TardisDroneUuid\n"
        )
        pool.reconfig(collector=ALLOW)  # before the daemon, so that its first ads are accepted
        extra = {"collector": ALLOW, "startd": drone}
        with Installation(pool, catalogue, settings=DRONES, extra=extra) as running:
            pool.wait(lambda: set(offline(pool)) == {"nl_2core", "de_2core"}, 60, "two offline ads")
            yield running


def offline(pool: Pool) -> dict[str, dict[str, Any]]:
    """Return the offline ads, by drone type."""
    names = ("DataLocalityDrone", "DataLocalitySite", "DatasetStates", "DataLocalityAsOf", *MATCHES)
    ads = pool.slots(*names, constraint="Offline =?= true")
    return {ad["DataLocalityDrone"]: ad for ad in ads}


@contextmanager
def cobald(installed: Installation, folder: Path) -> Iterator[Path]:
    """Run COBalD with the files of deploy/tardis in a new *folder*, with the pool's tools; yield its log."""
    folder.mkdir()
    with needs(NO_TARDIS):
        python = tardis.python()
    for tool, user in (("condor_status", "hydrator"), ("condor_drain", "root")):
        installed.pool.tool(tool, user, folder)
    for name, script in (
        ("sbatch", f'echo "$@" >> {folder}/started\necho Submitted batch job 17'),
        ("squeue", f"test -e {folder}/running && echo '17|nl|RUNNING' || echo '17||PENDING'"),
        ("scancel", f"echo $1 >> {folder}/cancelled"),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    (folder / "cobald.yml").write_text(
        "logging: {version: 1, root: {level: INFO, handlers: [out]},"
        " handlers: {out: {class: logging.StreamHandler}}}\n"
        + (DEPLOY / "cobald.yml")
        .read_text()
        .replace("interval: 60", "interval: 1")
        .replace("/etc/cobald/tardis.yml", f"{folder}/tardis.yml")
    )
    (folder / "tardis.yml").write_text(two_sites((DEPLOY / "tardis.yml").read_text()))
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(DEPLOY)}
    log = folder / "log"
    with log.open("w") as stream:
        command = [str(python), "-m", "cobald.daemon", str(folder / "cobald.yml")]
        running = subprocess.Popen(command, cwd=folder, env=environment, stdout=stream, stderr=stream)
    try:
        yield log
    finally:
        end(running, 60)


def two_sites(text: str) -> str:
    """Return the configuration of deploy/tardis for drones of 2 cores at NL and DE, with short intervals."""
    text = (
        text.replace("8core", "2core").replace("Cores: 8", "Cores: 2").replace("max_age: 1", "max_age: 0.01")
    )
    head, site = text.replace("    quota", "    drone_heartbeat_interval: 1\n    quota").split("\nNL:\n")
    listed = head[head.index("  - name: NL") :]
    return f"{head}{listed.replace('NL', 'DE')}\nNL:\n{site}\nDE:\n{site}"


def started(folder: Path) -> list[str]:
    """Return the names of the drones that TARDIS started."""
    file = folder / "started"
    return re.findall(r"TardisDroneUuid=([\w-]+)", file.read_text()) if file.exists() else []


def test_offline_ads_carry_the_datasets_of_their_site(installed):
    ads = offline(installed.pool)
    assert {name: ad["DataLocalitySite"] for name, ad in ads.items()} == {"nl_2core": "NL", "de_2core": "DE"}
    installed.submit(["lofar:L1"], mode="require", more="hold = true")

    def states(name: str) -> object:
        return offline(installed.pool)[name]["DatasetStates"]

    installed.pool.wait(lambda: states("nl_2core") == {"lofar:L1": "AVAILABLE"}, 60, "states")
    assert states("de_2core") == {}
    installed.pool.empty_queue()


def test_offline_ads_are_no_slots_of_the_pool(installed):
    findings = installed.run("check").stdout
    assert "accepts offline ads of drones (ADVERTISE_STARTD)" in findings
    assert "1 slot at 1 site" in findings


def test_a_job_that_may_run_at_a_slot_does_not_wait_for_a_drone(installed):
    """The offline ad of NL has the data and ranks higher by seconds, but the slot at UK comes first."""
    pool = installed.pool
    waiting = installed.submit(["lofar:L1"], mode="require")
    pool.wait(lambda: offline(pool)["nl_2core"].get(MATCHES[0]), 60, "the other job to match the offline ad")
    found = installed.run("why", f"{waiting}.0", check=False).stdout
    assert "it matches no slot now; it matches drones of type nl_2core, which do not run yet" in found
    assert "would match; the negotiator last matched" in found
    assert "a drone of type nl_2core starts (then the job matches at NL)" in found
    cluster = installed.submit(["lofar:L1"], mode="prefer", more="+DataLocalityMaxWait = 0")
    assert installed.ran_at(cluster) == ["UK"]
    pool.empty_queue()


def test_tardis_starts_a_drone_where_the_waiting_job_has_its_data(installed):
    pool = installed.pool
    folder = pool.shared / "cobald"  # the tools run inside the pool, in this folder
    with cobald(installed, folder) as log:
        before = offline(pool)["nl_2core"].get(MATCHES[0]) or 0
        cluster = installed.submit(["lofar:L1"], mode="require", seconds=1)
        pool.wait(
            lambda: (offline(pool)["nl_2core"].get(MATCHES[0]) or 0) > before, 60, "the negotiator's match"
        )
        assert offline(pool)["nl_2core"][MATCHES[1]] == 1
        wait_for(started_or_ended(folder, log), 120, "TARDIS to start a drone")
        [drone] = started(folder)
        assert drone.startswith("nl-")
        (pool.shared / "drone.conf").write_text(f'TardisDroneUuid = "{drone}"\n')
        pool.start_daemon("startd:NL")
        (folder / "running").touch()
        assert installed.ran_at(cluster) == ["NL"]
        wait_for(lambda: f"'drone_uuid': '{drone}'" in log.read_text(), 30, "the drone's states in the log")
        wait_for(lambda: "in AvailableState" in log.read_text(), 60, "the drone to be available")
    assert len(started(folder)) == 1
    assert offline(pool)["de_2core"].get(MATCHES[0]) is None


def started_or_ended(folder: Path, log: Path) -> Callable[[], bool]:
    def check() -> bool:
        assert "Traceback" not in log.read_text(), log.read_text()[-3000:]
        return bool(started(folder))

    return check
