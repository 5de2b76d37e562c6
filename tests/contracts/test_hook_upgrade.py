"""Old and new hooks on old and new daemons: each pair has attributes, from a URL, a folder and a collector.

``hook_of_contract_1.txt`` is the hook of the last version with contract 1, unchanged.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from adapters.files.ad_files import AdFilePublisher
from adapters.http.publisher import ServedAds
from adapters.memory import system_clock
from hydrator import startd_cron
from hydrator.domain.ads.contract import contract_1
from hydrator.domain.model import SiteAd
from hydrator.server.app import build_app
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from tests.contracts.publisher import site_ad

pytestmark = pytest.mark.outside

OLD_HOOK = Path(__file__).with_name("hook_of_contract_1.txt")
NEW_HOOK = Path(startd_cron.__file__)
SOURCES = ("url", "file", "collector")


def sent_by(daemon: str, generation: int = 1_763_690_400) -> SiteAd:
    """Return the ad of CAM that an old or a new daemon has computed."""
    return site_ad("CAM", generation, contract={"old": 1, "new": 2}[daemon])


class Place:
    """The three sources of one daemon, all with the ads of this daemon, and the node of a hook."""

    def __init__(self, folder: Path, board: ServedAds, server: HttpServer) -> None:
        self.folder = folder
        self.board = board
        self.server = server
        (folder / "bin").mkdir()

    def publish(self, ad: SiteAd) -> None:
        self.board.put([ad], system_clock())
        AdFilePublisher(self.folder / "ads", system_clock).publish([ad])
        forms = [contract_1(ad)] if contract_1(ad) == ad else [ad, contract_1(ad)]
        ads = [f'MyType = "DataLocality"\nName = "CAM {form.text[-2]}"\n{form.text}' for form in forms]
        (self.folder / "out").write_text("\n".join(ads))
        tool = self.folder / "bin" / "condor_status"
        tool.write_text(f"#!/bin/sh\nexec /bin/cat {self.folder}/out\n")
        tool.chmod(0o755)

    def run(self, hook: Path, source: str) -> dict[str, str]:
        """Run *hook* once; return the attributes that it printed."""
        locations = {"url": self.server.url, "file": self.folder / "ads", "collector": "cm"}
        words = [sys.executable, "-I", "-S", hook, "--site", "CAM", f"--{source}", locations[source]]
        done = subprocess.run(
            [*words, "--cache-dir", self.folder / "cache", "--jitter", "0"],
            env={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return dict(line.split(" = ", 1) for line in done.stdout.split("\n") if " = " in line)


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    board = ServedAds()

    def view() -> ServerState:
        return ServerState(board.ads(), None, None, None, system_clock())

    asgi = build_app(view, CollectorRegistry())
    with HttpServer(asgi, "127.0.0.1", 0) as server:
        yield Place(tmp_path, board, server)


def expected(form: SiteAd) -> dict[str, str]:
    """Return the attributes of *form* as a hook prints them."""
    return {name: f"({literal})" if literal[0] in "[{" else literal for name, literal in form.attributes}


def without_additions(printed: dict[str, str]) -> dict[str, str]:
    added = {"DataLocalityTrouble", "DatasetLetters", "DataLocalityVia"}
    return {name: literal for name, literal in printed.items() if name not in added}


def test_the_old_hook_reads_contract_1_only():
    text = OLD_HOOK.read_text()
    assert "\nCONTRACT = 1\n" in text
    assert not any(name in text for name in startd_cron.NEW_ATTRIBUTES)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("hook", "daemon", "contract"),
    [(OLD_HOOK, "old", 1), (OLD_HOOK, "new", 1), (NEW_HOOK, "old", 1), (NEW_HOOK, "new", 2)],
)
def test_each_hook_reads_each_daemon(place, source, hook, daemon, contract):
    """The old daemon is a stand-in: the sources of this version with the ads of an old one."""
    ad = sent_by(daemon)
    place.publish(ad)
    for _ in range(2):
        printed = without_additions(place.run(hook, source))
        assert printed == expected(ad if contract == 2 else contract_1(ad))


@pytest.mark.parametrize("source", SOURCES)
def test_daemon_and_hook_are_upgraded_one_after_the_other_and_go_back(place, source):
    """The hooks share their local copy, as on a node whose hook is replaced."""
    steps = [
        (OLD_HOOK, sent_by("old", 1), "1"),
        (OLD_HOOK, sent_by("new", 2), "1"),
        (NEW_HOOK, sent_by("new", 2), "2"),
        (OLD_HOOK, sent_by("new", 2), "1"),
        (NEW_HOOK, sent_by("new", 3), "2"),
        (NEW_HOOK, sent_by("old", 4), "1"),
        (OLD_HOOK, sent_by("old", 4), "1"),
    ]
    for hook, ad, version in steps:
        place.publish(ad)
        printed = place.run(hook, source)
        assert (printed["DataLocalityVersion"], printed["DataLocalityGeneration"]) == (
            version,
            str(ad.generation),
        )


@pytest.mark.parametrize("source", ["file", "collector"])
def test_ads_that_a_downgraded_daemon_left_behind_lose_after_a_while(place, source):
    """The old daemon does not know the ads of contract 2, so it can neither renew nor remove them."""
    left = sent_by("new", 2)
    place.publish(left)
    for minutes, version in ((5, "2"), (16, "1")):
        renewed = replace(contract_1(left), as_of=left.as_of + timedelta(minutes=minutes), generation=3)
        (place.folder / "ads" / "CAM.ad").write_text(renewed.text)
        (place.folder / "out").write_text(f"{left.text}\n{renewed.text}")
        assert place.run(NEW_HOOK, source)["DataLocalityVersion"] == version
