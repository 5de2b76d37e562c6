"""Rates between sites on a real pool: transfer records, the job wrapper, and `hydrator network`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from testbed.files import write_program
from testbed.installation import Installation, ListedCatalogue
from testbed.loopback import LoopbackRequest, LoopbackServer
from testbed.patience import wait_for
from testbed.pool import Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]
SITES = (SiteSpec("UK", cpus=3), SiteSpec("NL", cpus=3))
SIZE = 101_000_000
FETCH = """executable = {wrapper}
arguments = --paths hydrator-paths.json -- true
transfer_input_files = {paths}
should_transfer_files = yes
request_memory = 10
request_disk = 300MB
requirements = DataLocalitySite == "NL"
{more}queue 3
"""


def send_data(request: LoopbackRequest) -> None:
    """Send SIZE bytes for every path, as a storage server does."""
    request.send(200, {"Content-Length": str(SIZE)})
    if request.command == "GET":
        for _ in range(SIZE // 1_000_000):
            request.wfile.write(bytes(1_000_000))


@pytest.fixture(scope="module")
def storage_port() -> Iterator[int]:
    with LoopbackServer(send_data) as server:
        yield server.server_port


@dataclass
class Place:
    """An installation whose storage server counts as the site UK."""

    installed: Installation
    port: int

    def links(self) -> dict[tuple[str, str], dict]:
        done = json.loads(self.installed.run("network", "--json").stdout)
        return {(row["source"], row["destination"]): row for row in done["links"]}

    def samples(self, source: str, destination: str) -> int:
        rate = self.links()[source, destination]["rate"]
        return rate["samples"] if rate else 0

    def sources(self) -> dict[str, dict]:
        rows = json.loads(self.installed.run("network", "--json").stdout)["sources"]
        return {row["name"]: row["failures"] for row in rows}


@pytest.fixture
def place(htcondor_release: str, storage_port: int) -> Iterator[Place]:
    settings = '[network.hosts]\n"127.0.0.1" = "UK"\n'
    extra = {"schedd": "JOB_EPOCH_HISTORY = $(SPOOL)/epoch_history\n"}
    with Pool.start(htcondor_release, sites=SITES, extra=extra) as pool:
        catalogue = ListedCatalogue(pool.home, ("UK", "NL"))
        catalogue.hold({"lofar:L1": {"UK": "available"}})
        with Installation(pool, catalogue, extra=extra, settings=settings) as installed:
            yield Place(installed, storage_port)


@pytest.mark.older
def test_rates_come_from_transfer_records_and_from_the_job_wrapper(place):
    pool = place.installed.pool
    url = f"http://127.0.0.1:{place.port}/data"
    records = pool.submit(
        "executable = /bin/true\ntransfer_executable = false\nshould_transfer_files = yes\n"
        f"transfer_input_files = {url}\nrequest_memory = 10\nrequest_disk = 300MB\n"
        'requirements = DataLocalitySite == "NL"\nqueue 3\n'
    )
    pool.wait(lambda: pool.done(records, 3), "the jobs to end")
    wait_for(lambda: place.samples("UK", "NL") >= 3, "the transfer records to arrive")
    link = place.links()["UK", "NL"]
    assert link["rate"]["origin"] == "transfer records"
    assert link["rate"]["bytes_per_second"] > 1e6
    assert place.links()["NL", "UK"]["rate"]["origin"] == "[network] default"
    assert place.sources()["transfer records"] == {}

    home = pool.user_home("alice")
    wrapper = write_program(home / "wrapper", place.installed.run("submit", "wrapper").stdout)
    fetch = f"sh -c 'sleep 1; truncate -s {SIZE} $0/f; printf UK > $HYDRATOR_SOURCE_FILE' {{path}}"
    paths = {"version": 1, "datasets": [{"did": "lofar:L1"}], "sites": {}, "stage_in": fetch}
    (home / "hydrator-paths.json").write_text(json.dumps(paths))
    text = FETCH.format(wrapper=wrapper, paths=home / "hydrator-paths.json", more="+WantIOProxy = true\n")
    fetched = pool.submit(text)
    pool.wait(lambda: pool.done(fetched, 3), "the jobs that fetch to end")
    wait_for(lambda: place.samples("UK", "NL") >= 6, "the wrapper's reports to arrive")
    assert place.links()["UK", "NL"]["rate"]["origin"] == "job wrapper + transfer records"


@pytest.mark.older
def test_schedd_without_epoch_history_is_named_and_nothing_else_fails(place):
    pool = place.installed.pool
    pool.reconfig(schedd="JOB_EPOCH_HISTORY =\n")
    pool.stop_daemon("schedd")
    pool.start_daemon("schedd")

    def is_named() -> bool:
        """While the schedd starts, it has other reasons."""
        found = place.sources()
        reasons = list(found.get("transfer records", {}).values())
        is_right = len(reasons) == 1 and "JOB_EPOCH_HISTORY" in reasons[0]
        return is_right and found["job wrapper"] == {}

    wait_for(is_named, "the reason to be shown")
    text = place.installed.run("network").stdout
    assert "JOB_EPOCH_HISTORY" in text
    wait_for(lambda: place.installed.status()["cycle"]["complete"], "a complete cycle")
