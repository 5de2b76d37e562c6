"""One real pool with one daemon, and one real Rucio server, for all scenarios of the gate.

UK has 8 cores, AU 4 and NL 2, so a stock negotiator sends every job to NL. FAR stores data and has no slots.
No test changes the configuration of the pool or of its daemon, each uses datasets of its own, and none
depends on another. All jobs are submitted before the first test waits for one: see `begin_early`.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from hydrator import startd_cron as hook
from testbed.demo import RucioHoldings
from testbed.files import write_program
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool
from testbed.rucio import RucioServer
from tests.gate.early import BEGINNINGS

SITES = ("UK", "AU", "NL")
PINS = ["hand:written", "late:arrival", "gone:require"]
"""Of a pinned dataset, slots advertise the share at once; of a new job's, only where it is whole."""
SETTINGS = """\
[[network.links]]
source = "FAR"
gbit_per_second = 8
[staging]
mode = "request"
name = "gate"
wait_minutes = 0
[staging.catalogues.rucio]
[staging.sites.NL]
space_tb = 100
"""
"""Data may be requested for NL. Rucio's datasets have no final size until a test closes one, and the daemon
requests only what has one: so it requests nothing for the other tests."""
RUCIO_SITES = """\
[catalogue.rse_sites]
GATE-ORIGIN = "FAR"
ORIGIN = "FAR"
"""
BULK_HOOK = """\
#!/bin/sh
# one run for each ad that the test has put there; between two ads nothing runs
cd {folder} || exit 1
[ -e NL.ad ] || exit 0
printf x >> runs
exec ./hook --site NL --file {folder} --cache-dir {folder}/cache --jitter 0 2>> said
"""


class Holdings(ListedCatalogue):
    """The datasets of the file catalogue, beside those of Rucio; tests add their own to it."""

    def __init__(self, folder: Path, rucio: RucioHoldings) -> None:
        self.rucio = rucio
        super().__init__(folder, (*SITES, "FAR"))

    def section(self) -> str:
        return super().section() + self.rucio.section() + RUCIO_SITES


class Gate(Installation):
    """The installation of all scenarios: the daemon on both catalogues, and a second hook at NL."""

    catalogue: Holdings

    def cron_config(self) -> str:
        """Add the hook of `test_hook.py`: each second, of an ad of its own, and under names of its own."""
        self.bulk = self.pool.shared / "bulk"
        self.bulk.mkdir()
        self.bulk.chmod(0o777)
        write_program(self.bulk / "hook", Path(hook.__file__).read_text("utf-8"))
        write_program(self.bulk / "run", BULK_HOOK.format(folder=self.bulk))
        return f"""{super().cron_config()}
NL.STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) BULK
STARTD_CRON_BULK_EXECUTABLE = {self.bulk}/run
STARTD_CRON_BULK_PREFIX = Bulk
STARTD_CRON_BULK_PERIOD = 1s
STARTD_CRON_BULK_MODE = Periodic
STARTD_CRON_BULK_KILL = True
STARTD_CRON_MAX_JOB_LOAD = 1.0
"""

    def remove(self, *clusters: int) -> None:
        """Take jobs that have been judged from the queue."""
        self.pool.run("condor_rm", *map(str, clusters))

    def submit_waiting(self, datasets: Sequence[str], go: Path, count: int) -> int:
        """Submit jobs that end once the file *go* exists."""
        text = f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.5; done\n"
        script = write_program(go.with_suffix(".sh"), text)
        return self.submit(datasets, count=count, more=f"executable = {script}\ntransfer_executable = false")


@pytest.fixture(scope="session")
def installed(htcondor_release: str, rucio_server: RucioServer) -> Iterator[Gate]:
    """Start the pool with the installation of all scenarios."""
    with Pool.start(htcondor_release) as pool:
        holdings = Holdings(pool.home, RucioHoldings(rucio_server, pool.home, SITES, scope="gate"))
        extra = {"negotiator": "NEGOTIATOR_DEPTH_FIRST = True\n"}
        with Gate(pool, holdings, settings=SETTINGS, demand=f"pins = {PINS}", extra=extra) as installation:
            yield installation


class Begun(Protocol):
    """Return the result of a function that `begin_early` has marked; raise what it raised."""

    def __call__(self, begin: Callable[[Gate], Any]) -> Any: ...


@pytest.fixture(scope="session")
def begun(installed: Gate) -> Begun:
    """Begin all scenarios, so that their jobs wait for HTCondor side by side; each test judges its own."""
    outcomes: dict[Callable[..., Any], Any] = {}
    for begin in BEGINNINGS:
        try:
            outcomes[begin] = begin(installed)
        except Exception as failure:  # noqa: BLE001 - it fails the test of this scenario only
            outcomes[begin] = failure

    def result(begin: Callable[[Gate], Any]) -> Any:
        outcome = outcomes[begin]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return result
