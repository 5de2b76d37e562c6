"""The examples of docs/reference/files.md, each read by the program that reads such files."""

from datetime import UTC, datetime

from adapters.files.ad_files import AdFilePublisher
from adapters.files.sites_file import SitesFilePublisher
from hydrator import startd_cron
from hydrator.domain.model import Site
from hydrator.server.auth import Role, parse_grants
from hydrator.submit import job_wrapper
from tests.factories import HOUR, ad
from tests.pages import blocks

UK = Site("UK")
WRITTEN_AT = datetime.fromtimestamp(1763690400, UTC)
"""``written`` of the page's sites_by_dataset.json; the page's other times are close to it."""


def example(words: str) -> str:
    """Return the only block of the pages with these *words* behind its fence."""
    [block] = blocks(words)
    assert block.page == "files.md"
    return block.text


def test_tokens_file_example_grants_one_token():
    grants, problems = parse_grants(example("text tokens"))
    assert problems == ()
    assert [(grant.role, grant.site) for grant in grants] == [(Role.SITE, UK)]


def test_ad_example_is_read_by_the_hook_and_by_the_daemon(tmp_path):
    text = example("text ad").encode()
    read = startd_cron.read_ad(text, "UK", int(WRITTEN_AT.timestamp()))
    assert list(read) == [name for name, _ in ad("lofar:L1", site=UK).attributes]
    (tmp_path / "UK.ad").write_bytes(text)
    publisher = AdFilePublisher(tmp_path, lambda: WRITTEN_AT)
    assert publisher.published()[UK].generation == read["DataLocalityGeneration"] == 1763690000
    assert publisher.rejected == {}


def test_example_of_the_sites_file_is_what_the_daemon_reads_back(tmp_path):
    [block] = blocks("json")
    assert block.page == "files.md"
    file = tmp_path / "sites_by_dataset.json"
    file.write_text(block.text)
    publisher = SitesFilePublisher(file, valid_for=HOUR, max_age=HOUR, clock=lambda: WRITTEN_AT)
    assert publisher.published()[UK].generation == 1763690000
    assert publisher.rejected == {}


def test_paths_example_has_a_place_of_the_dataset_at_both_sites(tmp_path):
    file = tmp_path / "hydrator-paths.json"
    file.write_text(example("json paths"))
    inputs = job_wrapper.JobInputs(str(file))
    [dataset] = inputs.datasets
    assert (dataset.did, dataset.files) == ("lofar:L1", [("table.dat", 123)])
    assert inputs.places["AU"] == {"lofar:L1": "/data/lofar/L1"}
    [(_, _, paths)] = dataset.files_at(inputs.places["UK"]["lofar:L1"])
    assert paths == ["/data/rucio/lofar/6f/0c/L1.ms"]
