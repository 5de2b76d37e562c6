"""Publisher contract for the sites file, and its own tests."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.files.sites_file import SitesFilePublisher
from hydrator.domain.errors import PublishError
from hydrator.domain.model import Site
from hydrator.wiring import system_clock
from testbed.files import umask
from tests.contracts.publisher import MORNING, PublisherContract, site_ad

HOUR = timedelta(hours=1)


class TestSitesFilePublisher(PublisherContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def publisher(self) -> SitesFilePublisher:
        return SitesFilePublisher(
            self.folder / "out" / "sites.json", valid_for=HOUR, max_age=6 * HOUR, clock=system_clock
        )

    def unreachable(self) -> SitesFilePublisher:
        (self.folder / "occupied").write_text("this is no folder")
        return SitesFilePublisher(
            self.folder / "occupied" / "sites.json", valid_for=HOUR, max_age=6 * HOUR, clock=system_clock
        )


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "sites_by_dataset.json"


@pytest.fixture
def publisher(path) -> SitesFilePublisher:
    return SitesFilePublisher(path, valid_for=HOUR, max_age=6 * HOUR, clock=lambda: MORNING)


def test_the_sites_file_has_datasets_times_and_validity(publisher, path):
    publisher.publish([site_ad("UK", 7, datasets=2), site_ad("AU", 8, datasets=1)])
    now = int(MORNING.timestamp())
    opened = {"backlog": 32, "open_until": now + 900}
    whole = {"share": 1.0, "as_of": now}
    read = {"share": 0.0, "as_of": now, "open_seconds": 64, "read_from": "RAL; no 2"}
    assert json.loads(path.read_text()) == {
        "version": 1,
        "written": now,
        "valid_until": now + 3600,
        "max_age": 21600,
        "sites": {
            "AU": {"as_of": now, "generation": 8, "heard": now, **opened},
            "UK": {"as_of": now, "generation": 7, "heard": now, **opened},
        },
        "datasets": {"ska:observation_00000": ["AU", "UK"], "ska:observation_00001": ["UK"]},
        "sets": {
            "s2bc4defghijklmnopqrs": dict.fromkeys(("AU", "UK"), read),
            "ska:observation_00000": {"AU": whole, "UK": whole},
            "ska:observation_00001": {"UK": whole},
        },
    }


@pytest.mark.parametrize("state", ["STAGING", "PARTIAL", "NEARLINE", "STUCK", "UNKNOWN"])
def test_only_what_is_available_is_listed(publisher, path, state):
    ad = site_ad("UK", datasets=2)
    record = f"['lofar:L1'=\"{state}\";'lofar:0a1b'=\"AVAILABLE\"]"
    publisher.publish([replace(ad, content=(*ad.content[:2], ("DatasetStates", record), *ad.content[3:]))])
    assert json.loads(path.read_text())["datasets"] == {"lofar:0a1b": ["UK"]}


def test_a_dataset_that_left_a_site_stays_listed_at_others(publisher, path):
    publisher.publish([site_ad("UK", 7, datasets=2), site_ad("AU", 7, datasets=2)])
    publisher.publish([site_ad("UK", 8, datasets=0)])
    assert set(map(tuple, json.loads(path.read_text())["datasets"].values())) == {("AU",)}


def test_the_sites_file_is_readable_by_all_whatever_the_umask(publisher, path):
    with umask(0o077):
        publisher.publish([site_ad("UK")])
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "other",
    [
        *("", '{"version": 1, "written": 17', "[]", "[" * 100_000),
        *({"version": version} for version in (2, None)),
        {"datasets": {"lofar:L1": ["NL"]}},
        {"datasets": {"lofar:L1": 7}},
        {"sets": 5},
        {"sites": []},
        {"sites": {"UK": {"as_of": 1e99, "generation": 1, "heard": 1}}},
        {"sites": {"UK": None}},
    ],
)
def test_a_torn_or_foreign_file_is_not_adopted_and_is_replaced(publisher, path, other):
    publisher.publish([site_ad("UK", 7)])
    good = json.loads(path.read_text())
    path.write_text(other if isinstance(other, str) else json.dumps(good | other))
    assert dict(publisher.published()) == {}
    assert publisher.rejected
    publisher.publish([site_ad("UK", 7)])
    assert set(publisher.published()) == {Site("UK")}
    assert publisher.rejected == {}


def test_a_reader_with_the_old_file_open_reads_the_old_content(publisher, path):
    publisher.publish([site_ad("UK", 7)])
    with path.open() as reader:
        publisher.publish([site_ad("UK", 8)])
        assert json.load(reader)["sites"]["UK"]["generation"] == 7
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_device_in_place_of_the_sites_file_is_neither_read_to_its_end_nor_replaced():
    publisher = SitesFilePublisher(Path("/dev/zero"), valid_for=HOUR, max_age=6 * HOUR, clock=lambda: MORNING)
    with pytest.raises(PublishError, match="not a regular file"):
        publisher.publish([site_ad("UK", 7, datasets=2)])
