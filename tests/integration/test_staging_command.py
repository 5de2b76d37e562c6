"""Staging on a real pool: jobs whose data is at no site start after it arrived, with no hand on them.

The catalogue is a list in a file. The archive behind it is a command (a stand-in for the scripts of an
archive): data that was asked for arrives when the daemon looks for the third time.
"""

import json
import sys
from collections.abc import Iterator

import pytest

from hydrator.staging.overview import StagingOverview, overview_from_row
from hydrator.state.store import Store
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec
from tests.contracts import archive_command

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

DATASETS = {f"lofar:L{n}": {"bytes": 10**9 * n, "files": n} for n in (1, 2, 3)}
LARGE = "lofar:L4"
DATASETS[LARGE] = {"bytes": 3 * 10**12, "files": 4}  # a person must approve more than 2 TB
ARRIVE = """
import json, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import archive_command as archive

look = archive.look

def look_and_deliver(content, given):
    catalogue = Path({catalogue!r})
    listed = json.loads(catalogue.read_text())
    for one in archive.find_live(content).values():
        one["looks"] = one.get("looks", 0) + 1
        if one["looks"] == 3:
            one["state"] = "done"
            listed["datasets"][one["did"]] = {{"sites": {{one["site"]: "available"}}}}
            fresh = catalogue.with_suffix(".fresh")
            fresh.write_text(json.dumps(listed))
            fresh.rename(catalogue)
    return look(content, given)

archive.ACTIONS["look"] = look_and_deliver
sys.exit(archive.main())
"""


class Archive(ListedCatalogue):
    """A catalogue without replicas, and the archive that has the datasets."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool.home, ("UK", "NL"))
        self.file = pool.home / "archive.json"
        self._command = pool.home / "archive.py"
        folder = str(archive_command.__file__).rpartition("/")[0]
        self._command.write_text(ARRIVE.format(folder=folder, catalogue=str(self._file)))
        self.write({"now": 0, "sizes": DATASETS, "space": {"NL": 9 * 10**13}, "requests": {}})
        self._file.write_text(
            json.dumps({"sites": ["UK", "NL"], "datasets": {did: {"sites": {}} for did in DATASETS}})
        )

    def read(self) -> dict:
        return json.loads(self.file.read_text())

    def write(self, content: dict) -> None:
        self.file.write_text(json.dumps(content))

    def settings(self, mode: str) -> str:
        words = json.dumps([sys.executable, str(self._command), str(self.file)])
        return (
            f'[staging]\nmode = "{mode}"\nname = "test"\n'
            f"[staging.catalogues.embedded]\ncommand = {words}\n"
            "[staging.sites.NL]\n[staging.times]\nwait_minutes = 0\n"
        )


@pytest.fixture(scope="module")
def archive() -> dict:
    return {}


@pytest.fixture(scope="module")
def installed(htcondor_release: str, archive: dict) -> Iterator[Installation]:
    with Pool.start(htcondor_release, [SiteSpec("UK", 1), SiteSpec("NL", 2)]) as pool:
        archive["it"] = Archive(pool)
        settings = archive["it"].settings("ask")
        with Installation(pool, archive["it"], road="url", settings=settings) as installation:
            yield installation


def overview_of(installed: Installation) -> StagingOverview | None:
    with Store.open_to_read(installed.home / "state") as store:
        return overview_from_row(store.load_report("staging"))


def requests_of(archive: dict) -> list[dict]:
    return list(archive["it"].read()["requests"].values())


def test_jobs_start_after_their_data_arrived_with_no_hand_on_them(installed, archive):
    cluster = installed.submit(["lofar:L1", "lofar:L2"], mode="require", count=2)
    assert installed.ran_at(cluster, 240, jobs=2) == ["NL", "NL"]
    asked = [(one["did"], one["site"], one["kind"]) for one in requests_of(archive)]
    assert sorted(asked) == [("lofar:L1", "NL", "stage"), ("lofar:L2", "NL", "stage")]
    overview = overview_of(installed)
    assert overview is not None
    assert {row.did for row in overview.requests} == {"lofar:L1", "lofar:L2"}
    assert "staging asked a request at the catalogue" in installed.log


def test_the_operator_answers_and_cancels_a_large_request_of_the_running_daemon(installed, archive):
    pool = installed.pool
    cluster = installed.submit([LARGE], mode="require")

    def planned() -> list[str]:
        one = overview_of(installed)
        return [row.batch for row in one.planned if LARGE in row.dids and row.needs_approval] if one else []

    def is_rejected() -> bool:
        one = overview_of(installed)
        return one is not None and any("the operator rejected" in each.reason for each in one.not_asked)

    def live_requests() -> list[dict]:
        return [one for one in requests_of(archive) if one["did"] == LARGE and one["expires_at"] > 0]

    pool.wait(planned, 120, "the large request to wait for a person")
    [batch] = planned()
    assert f"hydrator staging approve {batch}" in installed.run("staging", "list").stdout
    installed.run("staging", "reject", batch)
    pool.wait(is_rejected, 60, "the request to be rejected")
    assert live_requests() == []
    installed.run("staging", "resume")  # it also forgets the answer
    pool.wait(planned, 60, "the large request to wait for a person again")
    installed.run("staging", "approve", batch)
    assert installed.ran_at(cluster, 240) == ["NL"]
    assert len(live_requests()) == 1
    installed.run("staging", "cancel", batch)
    pool.wait(lambda: live_requests() == [], 60, "the request to be cancelled")
