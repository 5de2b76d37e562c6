"""The examples of docs/reference/file-formats.md, each read by the program that reads such files."""

from datetime import UTC, datetime

from adapters.files.ad_files import AdFilePublisher
from adapters.files.catalogue_format import parse_file
from adapters.files.sites_file import SitesFilePublisher
from hydrator import startd_cron
from hydrator.domain.model import Site
from hydrator.reconcile.state import Approve
from hydrator.server.auth import Role, parse_grants
from hydrator.staging.commands import StagingCommand
from hydrator.state import command_files
from hydrator.state import staging as staging_state
from hydrator.submit import job_wrapper
from tests.factories import HOUR, ad
from tests.pages import blocks

UK = Site("UK")
WRITTEN_AT = datetime.fromtimestamp(1763690400, UTC)
"""``written`` of the page's sites_by_dataset.json; the page's other times are close to it."""


def example(words: str) -> str:
    """Return the only block of the pages with these *words* behind its fence."""
    [block] = blocks(words)
    assert block.page == "file-formats.md"
    return block.text


def test_catalogue_file_example_has_a_dataset_in_every_form_of_a_state():
    contents = parse_file(".toml", example("toml catalogue").encode(), None)
    assert contents.sites == {"UK", "AU", "NL"}
    [entry] = contents.datasets.values()
    assert [replica.fraction for replica in entry.replicas] == [0.5, None, 0.1, None]
    assert contents.as_of == datetime(2026, 11, 21, 2, tzinfo=UTC)
    in_json = parse_file(".json", example("json catalogue").encode(), None)
    assert in_json.as_of == contents.as_of
    assert in_json.datasets.keys() == contents.datasets.keys()


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
    assert block.page == "file-formats.md"
    file = tmp_path / "sites_by_dataset.json"
    file.write_text(block.text)
    publisher = SitesFilePublisher(file, valid_for=HOUR, max_age=HOUR, clock=lambda: WRITTEN_AT)
    assert publisher.published()[UK].generation == 1763690000
    assert publisher.rejected == {}


def test_order_example_is_executed_as_an_approval(tmp_path):
    queue = command_files.CommandQueue(tmp_path)
    queue.prepare()
    (tmp_path / queue.FOLDER_NAME / "000001-5ad4c2f0.json").write_text(example("json order"))
    pending = queue.read_pending()
    assert pending.invalid_files == ()
    assert [command for _, command in pending.commands] == [Approve(UK, frozenset({"lofar:L1"}))]


def test_staging_example_is_executed_as_an_approval(tmp_path):
    files = staging_state.StagingFiles(tmp_path)
    files.prepare()
    (tmp_path / files.FOLDER_NAME / "000001-5ad4c2f0.json").write_text(example("json staging"))
    [(_, command)] = files.read_pending().commands
    assert command == StagingCommand("approve", "0f3a8c21")


def test_cache_example_is_used_by_the_hook(tmp_path):
    settings = startd_cron.HookSettings(["--url", "https://hydrator.example.org", "--site", "UK"], {})
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    file = folder / startd_cron.cache_file_name(settings, "UK")
    file.write_text(example("text hookcache"))
    file.chmod(0o600)
    cache = startd_cron.CacheDirectory(str(folder))
    cached = startd_cron.read_cached_ad(cache, settings, "UK", int(WRITTEN_AT.timestamp()))
    assert cached is not None
    assert (cached.etag, cached.ad["AvailableDatasets"]) == ('"1763690000"', ["lofar:L1"])
    assert f"{settings.location}\n{cached.text}" == example("text hookcache")


def test_paths_example_has_a_place_of_the_dataset_at_both_sites(tmp_path):
    file = tmp_path / "hydrator-paths.json"
    file.write_text(example("json paths"))
    inputs = job_wrapper.JobInputs(str(file))
    [dataset] = inputs.datasets
    assert (dataset.did, dataset.files) == ("lofar:L1", [("table.dat", 123)])
    assert inputs.places["AU"] == {"lofar:L1": "/data/lofar/L1"}
    [(_, _, paths)] = dataset.files_at(inputs.places["UK"]["lofar:L1"])
    assert paths == ["/data/rucio/lofar/6f/0c/L1.ms"]
