"""Bring the data: a real daemon, a real pool and a real Rucio, whose daemons run in steps.

No test touches a job, or the ads, after it was submitted: a rule, a transfer and the negotiator do it.
"""

import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hydrator.domain.staging_ports import StagingKind
from hydrator.staging.overview import StagingOverview
from hydrator.state.store import Store
from testbed.demo import BRISK, RucioHoldings
from testbed.installation import Installation
from testbed.patience import wait_for
from testbed.pool import Pool
from testbed.processes import run_program
from testbed.rucio import RucioServer
from tests.pages import blocks

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.timeout(900)]

SCOPES = (f"stg-{number}" for number in itertools.count())
DAY = 24 * 3600
SPACE = 10**14
SETTINGS = """
[staging]
mode = "propose"
name = "{scope}"
wait_minutes = 0.02
[staging.catalogues.rucio]
[staging.sites.UK]
[staging.sites.AU]
[staging.sites.NL]
[staging.limits]
hour_requests = 100
"""


class StagedInstallation(Installation):
    """An installation whose daemon may bring data, and the Rucio that its rules are in."""

    catalogue: RucioHoldings

    def __init__(self, pool: Pool, server: RucioServer, scope: str) -> None:
        sites = [site.name for site in pool.sites]
        holdings = RucioHoldings(server, pool.home, sites, scope=scope)
        super().__init__(
            pool,
            holdings,
            extra=BRISK,
            settings=SETTINGS.format(scope=scope),
        )
        self.server = server
        self.scope = scope
        self.other = f"other-{scope}"
        server.do("add_user", account=self.other, password="a-word-of-the-other")
        for rse in holdings.disks.values():
            server.do("report_space", rse=rse, free=SPACE, used=SPACE)

    def add(self, name: str, *more: tuple[str, dict]) -> str:
        """Add a closed dataset that no site has; *more* commands about it follow."""
        did = f"{self.scope}:{name}"
        self.catalogue.put(did, {})
        self.server.seed(
            ("close", {"did": did}),
            *((command, {"did": did, **values}) for command, values in more),
            ("abacus", {}),
        )
        return did

    def rse(self, site: str) -> str:
        return self.catalogue.disks[site]

    def rules_on(self, did: str) -> list[dict]:
        return self.server.do("rules_on", did=did)

    def ours(self, did: str) -> list[dict]:
        return [rule for rule in self.rules_on(did) if f"[hydrator:{self.scope}:" in (rule["comment"] or "")]

    def convey(self, did: str) -> str:
        """Wait for a rule for *did* on a disk, let Rucio transfer the files; return the site."""
        disks = set(self.catalogue.disks.values())
        found = wait_for(lambda: {rule["rse"] for rule in self.rules_on(did)} & disks, f"a rule for {did}")
        [rse] = found
        self.server.seed(("convey", {"rse": rse}), ("abacus", {}))
        return next(site for site, disk in self.catalogue.disks.items() if disk == rse)

    def files_at(self, did: str, site: str) -> int:
        return self.server.do("files_at", did=did, rse=self.rse(site))

    def run_clean_up(self, did: str, site: str, days: float = 0) -> None:
        """Let *days* pass for the rules of *did*; let Rucio delete ended rules and the files they kept."""
        self.server.seed(
            ("pass_time", {"did": did, "seconds": days * DAY}), ("clean", {}),
            ("reap", {"rse": self.rse(site)}), ("abacus", {}),
        )  # fmt: skip

    def overview(self) -> StagingOverview | None:
        with Store.open_to_read(self.home / "state") as store:
            return store.load_report("staging", StagingOverview)

    def let_request(self) -> None:
        """Change the mode in the configuration and let the daemon reload it, as the docs say."""
        text = self.config.read_text("utf-8")
        self.config.write_text(text.replace('mode = "propose"', 'mode = "request"'), "utf-8")
        self.reload()
        wait_for(lambda: (view := self.overview()) and view.mode == "request", "the mode request")

    def type(self, text: str, environment: Mapping[str, str]) -> str:
        """Type *text* of a page into a shell; return what it printed."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = run_program(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.home,
            env={**environment, "PATH": path, "HYDRATOR_CONFIG": str(self.config)},
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def reload(self) -> None:
        before = self.log.count("running")
        self._daemon.send_signal(signal.SIGHUP)
        wait_for(lambda: self.log.count("running") > before, "the reload")


@pytest.fixture(scope="module")
def proposing(own_pool, rucio_server) -> Iterator[StagedInstallation]:
    with StagedInstallation(own_pool, rucio_server, next(SCOPES)) as installation:
        yield installation


@pytest.fixture
def installed(proposing) -> Iterator[StagedInstallation]:
    """The installation in the mode request, with an empty queue."""
    if 'mode = "request"' not in proposing.config.read_text("utf-8"):
        proposing.let_request()
    yield proposing
    proposing.pool.empty_queue()


def test_propose_sends_nothing_and_a_reload_to_request_brings_the_data_to_the_job(proposing):
    did = proposing.add("first")
    job = proposing.submit([did], mode="wait")
    planned = wait_for(
        lambda: [row for row in getattr(proposing.overview(), "planned", ()) if row.first.did == did],
        "a proposal",
    )
    assert [row.mode for row in planned] == ["propose"]
    assert planned[0].bytes == 4_000_000_000
    at = planned[0].first.site
    assert planned[0].description == f"would ask for 4 GB in 1 dataset at {at}; the mode is propose"
    look, brake = (block.text for block in blocks("sh staging"))
    assert "the mode is propose" in proposing.type(look, os.environ)
    assert "the tape robot is down" in proposing.type(brake, os.environ)
    assert proposing.rules_on(did) == []
    assert proposing.pool.is_idle(job)

    proposing.let_request()
    site = proposing.convey(did)
    assert proposing.pool.ran_at(job) == [site]
    assert [(rule["rse"], rule["state"]) for rule in proposing.rules_on(did)] == [(proposing.rse(site), "OK")]


def test_data_manager_gives_the_daemon_an_account_with_a_quota(proposing):
    [block] = blocks("sh rucio")
    names = {" hydrator ": f" service-{proposing.scope} ", "hydrator\n": f"service-{proposing.scope}\n"}
    text = block.text.replace("CAM-DISK", proposing.rse("UK"))
    for name, instead in names.items():
        text = text.replace(name, instead)
    printed = proposing.type(text, proposing.server.client_environment())
    assert re.search(rf"{proposing.rse('UK')}.*5\.000 TB", printed), printed
    made = proposing.home / "rucio-password"
    assert (len(made.read_text()), made.stat().st_mode & 0o777) == (33, 0o600)


def test_data_that_would_expire_stays_until_its_job_has_run_and_goes_afterwards(installed):
    disk = installed.rse("UK")
    theirs = {"rse": disk, "account": installed.other, "lifetime": DAY // 3}
    pinned, forgotten = (
        installed.add(name, ("place", {"rse": disk}), ("replicate", theirs))
        for name in ("pinned", "forgotten")
    )
    busy = installed.pool.submit(
        "executable = /bin/sleep\narguments = 3600\nrequest_cpus = 8\nrequest_memory = 16\nrequest_disk = 1\n"
        'requirements = TARGET.GLIDEIN_Site == "UK"\nqueue\n',
        "bob",
    )
    installed.pool.until_running(busy)
    job = installed.submit([pinned], mode="wait")
    installed.reload()  # the search for data to pin runs every quarter of an hour, and at the start
    [pin] = wait_for(lambda: installed.ours(pinned), "the pin")
    assert pin["comment"].startswith(f"classad-hydrator {StagingKind.PIN} for jobs at UK")
    assert (pin["rse"], pin["sources"]) == (disk, disk)

    for did in (pinned, forgotten):
        [other] = [rule["id"] for rule in installed.rules_on(did) if rule["account"] == installed.other]
        installed.server.do("change_rule", rule=other, lifetime=-1)
        installed.run_clean_up(did, "UK")
    assert (installed.files_at(pinned, "UK"), installed.files_at(forgotten, "UK")) == (4, 0)
    assert installed.pool.is_idle(job)

    installed.pool.run("condor_rm", str(busy))
    assert installed.pool.ran_at(job) == ["UK"]
    installed.run_clean_up(pinned, "UK", days=2)
    assert installed.rules_on(pinned) == []
    assert installed.files_at(pinned, "UK") == 0
