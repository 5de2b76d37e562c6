"""Ad files for the hook, one for each site: written whole and read back."""

import os
import resource
import stat
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.files.ad_files import AdFilePublisher
from hydrator import startd_cron
from hydrator.domain.errors import PublishError
from hydrator.domain.model import Site, SiteAd, to_unix
from testbed.files import umask
from tests.contracts.publisher import MORNING, site_ad
from tests.factories import CAM, HOUR, L1, NOON, RAL, ad

AWKWARD = Site('a/../Žilina "CZ"\\2')


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


def test_hooks_can_read_the_files_whatever_the_umask(publisher, folder):
    assert (publisher.published(), folder.exists()) == ({}, False)
    with umask(0o077):
        publisher.publish([ad(L1)])
    assert stat.S_IMODE((folder / "CAM.ad").stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    folder.chmod(0o700)
    publisher.publish([ad(L1)])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "an existing folder keeps its mode"


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
        (ad(L1).text.replace("DataLocalityGen", "OldDataLocalityGen"), "not an ad of this daemon"),
        (ad(L1).text.replace("Version = 1", "Version = 2"), "the ad has contract version 2, not 1"),
        (ad(L1).text.replace("Version = 1", "Version = 12345678901"), "incomplete"),
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


def test_leftovers_of_a_killed_daemon_are_removed_and_fresh_ones_left(publisher, folder):
    folder.mkdir()
    for name, age in ((".hydrator-old.tmp", HOUR), (".hydrator-new.tmp", timedelta(0)), ("other.tmp", HOUR)):
        (folder / name).write_text("DataLocality")
        moment = (NOON - age).timestamp()
        os.utime(folder / name, (moment, moment))
    publisher.publish([ad(L1)])
    assert sorted(path.name for path in folder.iterdir()) == [".hydrator-new.tmp", "CAM.ad", "other.tmp"]


@pytest.mark.parametrize("site", ["UK", "UK.v2", "a-b c", "~x.ad", "50%"])
def test_hook_and_publisher_have_the_same_file_names(publisher, folder, site):
    publisher.publish([site_ad(site, 7)])
    read = startd_cron.ask_file(str(folder), site, to_unix(MORNING))
    assert read["DataLocalityGeneration"] == 7
