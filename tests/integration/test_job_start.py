"""Jobs that open their data, on a real pool: the wrapper finds it, or the schedd tries another site.

Each site's storage is a folder of its own; catalogue and slots may list more than the disk has.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from hydrator.config import StorageArea
from hydrator.domain.model import Did
from hydrator.reconcile.misses import parse_misses
from hydrator.startd_cron import SITE_KEYS
from hydrator.submit.dataset_paths import local_paths, paths_file_text
from hydrator.submit.retry import retry_elsewhere
from testbed.files import write_program
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool

BRISK = {
    "startd": "UPDATE_INTERVAL = 5\n",  # a 23.9 startd sends its slots at this pace only
    "schedd": "PERIODIC_EXPR_INTERVAL = 5\n",
}

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SITES = ("UK", "AU", "NL")
MISS_ATTRIBUTES = ("ChirpDataLocalityMisses", "ChirpDataLocalityMissed", "ChirpDataLocalityMissedUntil")


class Storage:
    """A pool whose sites have storage, and the datasets that the catalogue lists there."""

    def __init__(self, installed: Installation) -> None:
        self.installed = installed
        self.pool = installed.pool
        self.folder = self.pool.shared / "storage"
        self._numbers = itertools.count(1)
        self.wrapper = write_program(
            self.pool.shared / "job_start", installed.run("submit", "wrapper").stdout
        )
        for site in SITES:
            (self.folder / site).mkdir(parents=True)

    def path(self, site: str, did: str) -> Path:
        return self.folder / site / did.replace(":", "/")

    def say(self, did: str, *sites: str) -> None:
        """Have the catalogue list *did* at *sites*, and wait until the slots of each advertise it.

        A held job names it: else the first slot that advertises it would get the job, whatever its rank.
        """
        self.installed.catalogue.add(did, **dict.fromkeys(sites, "available"))
        self.installed.submit([did], more="hold = True")
        self.installed.until_states(did, **dict.fromkeys(sites, "AVAILABLE"))

    def put(self, did: str, *sites: str) -> None:
        """Put *did* on the disks of *sites*: a folder with a file that names its path."""
        for site in sites:
            folder = self.path(site, did)
            folder.mkdir(parents=True)
            (folder / "table.dat").write_text(f"{did} at {site}\n")

    def submit(
        self,
        dids: Sequence[str],
        command: Sequence[str],
        *,
        tries: int = 5,
        more: str = "",
        data_sites: Sequence[str] = (),
    ) -> int:
        """Submit the wrapper with *command*, from a folder of the job's own."""
        home = self.home = self.pool.user_home("alice") / f"job{next(self._numbers)}"
        home.mkdir()
        areas = [StorageArea(site=site, prefix=str(self.folder / site), rule="name") for site in SITES]
        pairs = [(f"/elsewhere/{did.partition(':')[2]}", Did(did)) for did in dids]
        paths = local_paths(areas, map(Did, dids), None)
        table = paths_file_text(pairs, paths, None, SITE_KEYS, areas=areas, unpack=["*.ms.tar"])
        (home / "hydrator-paths.json").write_text(table)
        home.chmod(0o777)
        listed = ", ".join(f'"{did}"' for did in dids)
        words = " ".join("'" + word.replace("'", "''") + "'" for word in ["--", *command])
        with patch.multiple("hydrator.submit.retry", TRIES=tries, GRACE_SECONDS=2):
            retry_lines = retry_elsewhere([], SITE_KEYS, data_sites=data_sites)
        lines = [
            f"executable = {self.wrapper}",
            'arguments = "' + words.replace('"', '""') + '"',
            f"initialdir = {home}",
            "transfer_input_files = hydrator-paths.json",
            "should_transfer_files = YES",
            "output = out",
            "error = err",
            "log = log",
            "request_cpus = 1",
            "request_memory = 10",
            "request_disk = 1",
            f"+RequiredDatasets = {{{listed}}}",
            '+DataLocality = "require"',
            *retry_lines,
            *more.splitlines(),
            "queue",
        ]
        return self.pool.submit("\n".join(lines) + "\n")

    def end(self, cluster: int) -> str:
        """Return the job's output, once it has ended."""
        self.pool.ran_at(cluster)
        return (self.home / "out").read_text()

    def ended(self, cluster: int, *attributes: str) -> dict[str, object]:
        (ad,) = self.pool.history(f"ClusterId == {cluster}", "ExitCode", "NumJobStarts", *attributes)
        return ad


@pytest.fixture(scope="module")
def storage(own_pool: Pool) -> Iterator[Storage]:
    """Start one installation for all tests in this file; each uses datasets of its own."""
    with Installation(own_pool, ListedCatalogue(own_pool.home), extra=BRISK) as installed:
        yield Storage(installed)


def test_a_replica_that_the_disk_does_not_have_ends_in_a_second_try_at_another_site(storage):
    storage.say("miss:a", "NL", "UK")
    storage.put("miss:a", "UK")
    cluster = storage.submit(
        ["miss:a"],
        ["sh", "-c", 'cat "$INPUT_1/table.dat"; echo made > result.txt'],
        more='rank = TARGET.DataLocalitySite == "NL"\ntransfer_output_files = result.txt',
    )
    assert storage.end(cluster) == "miss:a at UK\n"
    ad = storage.ended(cluster, "RequestCpus", *MISS_ATTRIBUTES)
    assert (ad["ExitCode"], ad["NumJobStarts"], ad["ChirpDataLocalityMissed"]) == (0, 2, ["NL"])
    assert [(miss.site, miss.did) for miss in parse_misses(ad)] == [("NL", "miss:a")]
    assert (storage.home / "result.txt").read_text() == "made\n"


def test_job_is_held_after_its_tries_and_the_hold_reason_names_the_sites(storage):
    storage.say("nowhere:c", "NL", "UK", "AU")
    cluster = storage.submit(["nowhere:c"], ["true"], tries=3)
    storage.pool.wait(lambda: status(storage, cluster) == 5, "the job to be held")
    ad = storage.pool.job(cluster, "HoldReason", "HoldReasonSubCode", *MISS_ATTRIBUTES)
    assert ad is not None
    assert ad["HoldReasonSubCode"] == 85
    assert {miss.site for miss in parse_misses(ad)} == set(SITES)
    assert all(site in ad["HoldReason"] for site in SITES)
    assert "not readable at" in (storage.home / "err").read_text()


def test_misses_at_all_sites_that_should_have_the_data_hold_the_job_and_a_release_tries_them_again(storage):
    """Only two of five tries are made: no other site has the data, so the job does not wait an hour."""
    storage.say("gone:n", "NL", "UK")
    cluster = storage.submit(["gone:n"], ["cat", "$INPUT_1/table.dat"], data_sites=["NL", "UK"])
    storage.pool.wait(lambda: status(storage, cluster) == 5, "the job to be held")
    ad = storage.pool.job(cluster, "HoldReason", "HoldReasonSubCode", "NumJobCompletions", *MISS_ATTRIBUTES)
    assert ad is not None
    assert ad["HoldReasonSubCode"] == 85
    assert ad["NumJobCompletions"] == 2
    assert "could not be read at any site that should have them" in ad["HoldReason"]
    assert all(site in ad["HoldReason"] for site in ("NL", "UK"))
    done = storage.installed.run("why", str(cluster), check=False)
    assert done.returncode == 3
    assert "the job ran and could not read gone:n at" in done.stdout
    storage.put("gone:n", "NL", "UK")
    storage.pool.run("condor_release", str(cluster), user="alice")
    assert storage.end(cluster).startswith("gone:n at ")


def test_a_miss_after_the_last_of_the_users_retries_holds_the_job(storage):
    """Before, such a job left the queue with status 85 and without a message."""
    storage.say("spent:s", "NL", "UK", "AU")
    cluster = storage.submit(["spent:s"], ["true"], more="max_retries = 1")
    storage.pool.wait(lambda: status(storage, cluster) == 5, "the job to be held")
    ad = storage.pool.job(cluster, "HoldReasonSubCode", "NumJobCompletions")
    assert ad is not None
    assert (ad["HoldReasonSubCode"], ad["NumJobCompletions"]) == (85, 2)


def test_job_avoids_its_last_site_even_without_a_report(storage):
    storage.say("mute:f", "NL", "UK")
    storage.put("mute:f", "UK")
    mute = storage.pool.shared / "mute"
    text, calls = re.subn('"set_job_attr_delayed"', '"no_such_request"', storage.wrapper.read_text())
    assert calls == 1
    write_program(mute, text)
    cluster = storage.submit(
        ["mute:f"],
        ["cat", "$INPUT_1/table.dat"],
        more=f'rank = TARGET.DataLocalitySite == "NL"\nexecutable = {mute}',
    )
    assert storage.end(cluster) == "mute:f at UK\n"
    ad = storage.ended(cluster, *MISS_ATTRIBUTES)
    assert (ad["NumJobStarts"], parse_misses(ad)) == (2, ())


def status(storage: Storage, cluster: int) -> object:
    return (storage.pool.job(cluster, "JobStatus") or {}).get("JobStatus")
