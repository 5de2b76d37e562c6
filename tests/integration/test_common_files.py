"""HTCondor's common input files (25.x) with a dataset: what docs/explanation/common-files.md says.

If HTCondor shares a catalog between clusters, the second test fails: then the page is out of date.
"""

import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from testbed.pool import Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.timeout(600)]

SUBMIT = """\
executable = /bin/sleep
arguments = 3
transfer_executable = false
should_transfer_files = yes
MY.CommonInputCatalogs = "lofar_L1"
MY._x_catalog_lofar_L1 = "{url}"
request_cpus = 1
request_memory = 10
request_disk = 5000
queue {jobs}
"""


@dataclass
class Storage:
    """A web server with one file; it counts the downloads."""

    url: str = ""
    downloads: list[str] = field(default_factory=list)


@pytest.fixture
def storage() -> Iterator[Storage]:
    found = Storage()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.downloads.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(bytes(100_000))

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{server.server_port}/L1.ms"
        yield found
        server.shutdown()


@pytest.fixture(scope="module")
def nodes(htcondor_release: str) -> Iterator[Pool]:
    if htcondor_release != "25.14":
        pytest.skip("common input files need HTCondor 25.2")
    with Pool.start(htcondor_release, (SiteSpec("UK", cpus=4), SiteSpec("AU", cpus=4))) as pool:
        yield pool


def run(pool: Pool, storage: Storage, jobs: int) -> Counter[str]:
    """Run *jobs* jobs in one cluster; return how many ran on each node."""
    cluster = pool.submit(SUBMIT.format(url=storage.url, jobs=jobs))
    pool.wait(lambda: pool.done(cluster, jobs), 120, f"{jobs} jobs")
    return Counter(pool.ran_at(cluster))


def test_jobs_of_a_cluster_fetch_a_common_file_once_a_node(nodes, storage):
    ran = run(nodes, storage, 6)
    assert len(storage.downloads) == len(ran) <= 2
    nodes.wait(
        lambda: nodes.slots("Name", constraint="IsDataSlot =?= true"), 30, "a data slot in the collector"
    )


def test_another_cluster_fetches_the_same_file_again(nodes, storage):
    run(nodes, storage, 3)
    before = len(storage.downloads)
    ran = run(nodes, storage, 3)
    assert len(storage.downloads) - before == len(ran)
    scopes = {
        catalog["CatalogScopeType"]
        for slot in nodes.slots(constraint="IsDataSlot =?= true")
        for name, catalog in slot.items()
        if name.startswith("catalog_")
    }
    assert scopes == {"ClusterId"}
