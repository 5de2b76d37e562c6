"""Ad files for the hook, one for each site: written whole and read back."""

import os
import resource
import stat
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.files.ad_files import AdFilePublisher, ad_file_name
from hydrator import startd_cron
from hydrator.domain.ads.contract import contract_1
from hydrator.domain.errors import PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from tests import factories
from tests.contracts.publisher import site_ad
from tests.factories import CAM, HOUR, L1, L2, NOON, RAL
from tests.umask import umask

AWKWARD = Site('a/../Žilina "CZ"\\2')


def ad(*available: str, **more) -> SiteAd:
    """An ad of contract 1, which has one file."""
    return contract_1(factories.ad(*available, **more))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "ads"


@pytest.fixture
def publisher(folder):
    return AdFilePublisher(folder, lambda: NOON)


@contextmanager
def files_no_larger_than(limit: int):
    """Make a write fail half-way, as on a full disk (EFBIG in place of ENOSPC)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_file_holds_the_text_the_hook_prints(publisher, folder):
    publisher.publish([ad(L1)])
    assert (folder / "CAM.ad").read_text() == ad(L1).text


def test_an_ad_file_is_read_back_with_its_time(publisher):
    publisher.publish([ad(L1, generation=5, at=NOON - HOUR), ad(site=RAL)])
    assert publisher.published() == {
        CAM: PublishedAd(CAM, 5, NOON - HOUR, NOON),
        RAL: PublishedAd(RAL, 1, NOON, NOON),
    }


def test_a_missing_folder_has_no_ads(publisher, folder):
    assert publisher.published() == {}
    assert not folder.exists()


def test_hooks_can_read_the_files_whatever_the_umask(publisher, folder):
    with umask(0o077):
        publisher.publish([ad(L1)])
    assert stat.S_IMODE((folder / "CAM.ad").stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_an_existing_folder_keeps_its_mode(publisher, folder):
    folder.mkdir(mode=0o700)
    publisher.publish([ad(L1)])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("site", [AWKWARD, "..", ".", "a b", "x.ad", "%2F", "/etc/passwd", "~", "ÅÄÖ" * 10])
def test_a_site_of_any_name_stays_inside_the_folder(publisher, folder, tmp_path, site):
    escaped = site.replace("\\", "\\\\").replace('"', '\\"')
    publisher.publish([renamed(site, escaped)])
    assert list(publisher.published()) == [site]
    assert [path.name for path in tmp_path.iterdir()] == ["ads"]
    assert len(list(folder.iterdir())) == 1
    publisher.withdraw({Site(site)})
    assert list(folder.iterdir()) == []


def renamed(site: str, literal: str) -> SiteAd:
    """Return the ad of a site whose name the factories reject; *literal* is its ClassAd literal."""
    content = dict(ad(L1).content) | {"DataLocalitySite": f'"{literal}"'}
    return replace(ad(L1), site=Site(site), content=tuple(content.items()))


def test_publishing_again_replaces_the_complete_file(publisher, folder):
    publisher.publish([ad(L1, L2, generation=1)])
    publisher.publish([ad(L1, generation=2)])
    assert (folder / "CAM.ad").read_text() == ad(L1, generation=2).text
    assert publisher.published()[CAM].generation == 2


def test_withdrawing_removes_the_file_if_there_is_one(publisher, folder):
    publisher.publish([ad(L1), ad(site=RAL)])
    publisher.withdraw({CAM, Site("nobody")})
    assert list(publisher.published()) == [RAL]
    publisher.withdraw({CAM})


def test_withdrawing_before_any_publication_raises_no_error(publisher):
    publisher.withdraw({CAM})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "incomplete"),
        (ad(L1).text[:-1], "incomplete"),
        (ad(L1).text.rsplit("\n", 2)[0] + "\n", "incomplete"),
        (ad(L1).text[: len(ad(L1).text) // 2], "incomplete"),
        ("\nDataLocalityVersion = 1\n", "not an ad of this daemon"),
        (ad(L1, site=RAL).text, "not the site in the file's name"),
        (ad(L1).text.replace("AsOf = 1", "AsOf = x1"), "not an ad of this daemon"),
        (ad(L1).text + ad(L1).text, "not an ad of this daemon"),
    ],
)
def test_a_torn_or_foreign_file_does_not_count_as_published(publisher, folder, text, message):
    publisher.publish([ad(site=RAL)])
    (folder / "CAM.ad").write_text(text)
    assert list(publisher.published()) == [RAL]
    assert message in publisher.rejected["CAM.ad"]
    publisher.publish([ad(L1)])
    assert list(publisher.published()) == [CAM, RAL]
    assert publisher.rejected == {}


def test_unreadable_files_and_folders_are_rejected_by_name(publisher, folder):
    folder.mkdir()
    (folder / "bytes.ad").write_bytes(b"\xff\xfe")
    (folder / "folder.ad").mkdir()
    os.mkfifo(folder / "pipe.ad")
    (folder / "gone.ad").symlink_to("nowhere")
    (folder / "README").write_text("not ours")
    assert publisher.published() == {}
    assert sorted(publisher.rejected) == ["bytes.ad", "folder.ad", "pipe.ad"]


def test_a_write_that_fails_half_way_leaves_the_old_ad_and_no_temporary_file(publisher, folder):
    publisher.publish([ad(L1, generation=1)])
    with files_no_larger_than(100), pytest.raises(PublishError, match="CAM: File too large"):
        publisher.publish([ad(L1, generation=2)])
    assert publisher.published()[CAM].generation == 1
    assert [path.name for path in folder.iterdir()] == ["CAM.ad"]


def test_one_site_that_fails_does_not_keep_the_others_from_being_written(publisher, folder):
    folder.mkdir()
    (folder / "CAM.ad").mkdir()
    with pytest.raises(PublishError, match=r"not written in .*CAM: Is a directory"):
        publisher.publish([ad(L1), ad(site=RAL)])
    assert list(publisher.published()) == [RAL]


def test_a_name_too_long_for_a_file_is_a_publish_error(publisher):
    with pytest.raises(PublishError, match="File name too long"):
        publisher.publish([renamed("é" * 100, "é" * 100)])


def test_a_folder_that_is_a_file_is_a_publish_error(publisher, folder):
    folder.write_text("")
    with pytest.raises(PublishError):
        publisher.published()
    with pytest.raises(PublishError):
        publisher.publish([ad(L1)])
    with pytest.raises(PublishError):
        publisher.withdraw({CAM})


def test_a_folder_that_cannot_be_made_is_a_publish_error():
    with pytest.raises(PublishError):
        AdFilePublisher(Path("/proc/hydrator"), lambda: NOON).publish([ad(L1)])


def test_leftovers_of_a_killed_daemon_are_removed_and_fresh_ones_left(publisher, folder):
    folder.mkdir()
    for name, age in ((".hydrator-old.tmp", HOUR), (".hydrator-new.tmp", timedelta(0)), ("other.tmp", HOUR)):
        (folder / name).write_text("DataLocality")
        moment = (NOON - age).timestamp()
        os.utime(folder / name, (moment, moment))
    publisher.publish([ad(L1)])
    assert sorted(path.name for path in folder.iterdir()) == [".hydrator-new.tmp", "CAM.ad", "other.tmp"]


@pytest.mark.outside
def test_a_reader_never_sees_half_an_ad(publisher, folder):
    ads = [ad(L1, generation=1), ad(*(f"a:{n}" for n in range(500)), generation=2)]
    publisher.publish(ads[:1])
    torn: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            text = (folder / "CAM.ad").read_text()
            if text not in (ads[0].text, ads[1].text):
                torn.append(text)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(100):
            publisher.publish([ads[number % 2]])
    finally:
        done.set()
        reader.join()
    assert torn == []


# ---------------------------------------------------------------------------------------- contract 2


def test_an_ad_of_contract_2_has_a_file_for_each_contract(publisher, folder):
    new = site_ad("CAM", as_of=NOON)
    publisher.publish([new])
    assert (folder / "CAM.v2.ad").read_text() == new.text
    assert (folder / "CAM.ad").read_text() == contract_1(new).text
    assert publisher.published() == {CAM: PublishedAd(CAM, new.generation, NOON, NOON)}
    publisher.withdraw({CAM})
    assert names(folder) == []


def test_an_upgraded_daemon_finds_its_old_file_and_replaces_it(publisher, folder):
    publisher.publish([site_ad("CAM", 7, as_of=NOON, contract=1)])
    assert names(folder) == ["CAM.ad"]
    assert publisher.published()[CAM].generation == 7
    publisher.publish([site_ad("CAM", 8, as_of=NOON)])
    assert (names(folder), publisher.published()[CAM].generation) == (["CAM.ad", "CAM.v2.ad"], 8)


def test_an_ad_of_contract_1_leaves_no_file_of_contract_2(publisher, folder):
    publisher.publish([site_ad("CAM", 8, as_of=NOON)])
    publisher.publish([site_ad("CAM", 9, as_of=NOON, contract=1)])
    assert names(folder) == ["CAM.ad"]


@pytest.mark.parametrize("name", ["CAM.ad", "CAM.v2.ad"])
@pytest.mark.parametrize(("generation", "as_of"), [(7, NOON), (8, NOON - HOUR)])
def test_the_older_file_of_a_site_counts(publisher, folder, name, generation, as_of):
    """For example the daemon was killed between the two files, or an older daemon wrote one of them."""
    publisher.publish([site_ad("CAM", 8, as_of=NOON)])
    older = site_ad("CAM", generation, as_of=as_of)
    (folder / name).write_text((contract_1(older) if name == "CAM.ad" else older).text)
    assert (publisher.published()[CAM].generation, publisher.published()[CAM].as_of) == (generation, as_of)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("CAM.v2.ad", site_ad("CAM").text[:-9], "incomplete"),
        ("CAM.ad", contract_1(site_ad("CAM")).text[:-9], "incomplete"),
        ("CAM.v2.ad", site_ad("RAL").text, "not the site in the file's name"),
        ("CAM.v2.ad", contract_1(site_ad("CAM")).text, "the name of an ad of contract version 1"),
        ("CAM.ad", site_ad("CAM").text, "the name of an ad of contract version 2"),
        ("CAM.ad", site_ad("CAM").text.replace("Version = 2", "Version = 12345678901"), "incomplete"),
    ],
)
def test_a_site_whose_second_file_is_spoilt_is_not_published(publisher, folder, name, text, reason):
    publisher.publish([site_ad("CAM"), site_ad("RAL")])
    (folder / name).write_text(text)
    assert set(publisher.published()) == {"RAL"}
    assert reason in publisher.rejected[name]
    publisher.publish([site_ad("CAM")])
    assert (set(publisher.published()), publisher.rejected) == ({"CAM", "RAL"}, {})


def test_a_site_without_its_file_for_older_hooks_is_not_published(publisher, folder):
    publisher.publish([site_ad("CAM"), site_ad("RAL")])
    (folder / "CAM.ad").unlink()
    assert set(publisher.published()) == {"RAL"}


def test_hooks_read_the_newest_file_before_the_older_one_changes(publisher, folder):
    """A hook that finds a newer ad of contract 1 takes the other for a leftover."""
    publisher.publish([site_ad("CAM", 7)])
    (folder / "CAM.ad").unlink()
    (folder / "CAM.ad").mkdir()
    with pytest.raises(PublishError):
        publisher.publish([site_ad("CAM", 8)])
    assert "DataLocalityGeneration = 8\n" in (folder / "CAM.v2.ad").read_text()


@pytest.mark.parametrize("site", ["UK", "UK.v2", "a/b c", "~x.v2.v2", ".v2", "50%"])
@pytest.mark.parametrize("contract", [1, 2])
def test_hook_and_publisher_have_the_same_file_names(site, contract):
    assert ad_file_name(Site(site), contract) == startd_cron.ad_file_name(site, contract)


def test_a_site_that_looks_like_a_contract_has_files_of_its_own(publisher, folder):
    sites = ("UK", "UK.v2", "UK.v2.v2")
    publisher.publish([site_ad(site, number) for number, site in enumerate(sites, 1)])
    assert {site: ad.generation for site, ad in publisher.published().items()} == dict(
        zip(sites, (1, 2, 3), strict=True)
    )
    publisher.withdraw({Site("UK")})
    assert set(publisher.published()) == {"UK.v2", "UK.v2.v2"}
    assert publisher.rejected == {}
