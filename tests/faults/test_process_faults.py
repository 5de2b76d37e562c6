"""The real daemon on a disk that is full or read-only, or that loses or damages files."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hydrator.state.store import Store
from testbed.patience import wait_for
from testbed.processes import run_program

from .process import SITES, Daemon

FULL = {"lofar:L1": dict.fromkeys(SITES, "available")}
MORE = {**FULL, "lofar:L2": dict.fromkeys(SITES, "available")}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Build daemons that run and have published FULL; *place* is a folder with a small disk of its own."""
    running = []

    def make(place: str = "") -> Daemon:
        daemon = Mounted(tmp_path, place) if place else Daemon(tmp_path)
        running.append(daemon)
        daemon.catalogue(FULL)
        daemon.start()
        wait_for(lambda: daemon.lists("CAM", "lofar:L1"), "the first ads")
        return daemon

    yield make
    for daemon in running:
        daemon.stop()


def generation(text: str | None) -> int:
    found = re.search(r"^DataLocalityGeneration = (\d+)$", text or "", re.MULTILINE)
    assert found, text
    return int(found[1])


def goes_on(daemon: Daemon) -> None:
    """Check that a change of the catalogue is published, and that no generation has decreased."""
    before = generation(daemon.file("CAM"))
    daemon.catalogue(MORE)
    wait_for(lambda: daemon.lists("CAM", "lofar:L2"), "the change to be published")
    assert generation(daemon.file("CAM")) >= before
    assert daemon.alive


def limit(daemon: Daemon, size: str) -> None:
    """Limit the size of all files of the daemon: a larger write fails with EFBIG."""
    subprocess.run(["prlimit", f"--pid={daemon.process.pid}", f"--fsize={size}:unlimited"], check=True)


def saved(daemon: Daemon) -> int:
    with Store.open_to_read(daemon.folder / "state") as store:
        return store.load().ads["CAM"].generation


def test_nothing_can_be_written_not_even_the_log_and_what_needs_no_disk_goes_on(made):
    daemon = made()
    limit(daemon, "1")
    daemon.catalogue(MORE)
    wait_for(lambda: "'lofar:L2'" in (daemon.served("CAM") or ""), "HTTP to go on")
    assert "'lofar:L1'" in daemon.file("CAM"), "a file that cannot be written stays whole"
    wait_for(lambda: daemon.metric("hydrator_state_saved") == 0, "the metric to follow")
    assert daemon.alive
    limit(daemon, "unlimited")
    wait_for(lambda: daemon.lists("CAM", "lofar:L2"), "the file to be written again")
    wait_for(lambda: saved(daemon) == generation(daemon.served("CAM")), "the state to be saved")
    wait_for(lambda: daemon.metric("hydrator_state_saved") == 1, "the metric to follow")
    assert daemon.stop() == 0


class Mounted(Daemon):
    """A daemon with a small disk of its own in place of one of its folders."""

    def __init__(self, folder: Path, place: str) -> None:
        self.place = folder / place
        self.place.mkdir()
        mount = 'mount -t tmpfs -o size=3m none "$0" && exec "$@"'
        words = ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, str(self.place))
        super().__init__(folder, before=words)

    def within(self, name: str) -> Path:
        return Path(f"/proc/{self.process.pid}/root{self.folder}", name)

    @property
    def filler(self) -> Path:
        return self.within(self.place.name) / "filler"

    def fill(self) -> None:
        command = ["dd", "if=/dev/zero", f"of={self.filler}", "bs=4096"]
        done = run_program(command)
        assert "No space left" in done.stderr

    def free(self) -> None:
        self.filler.unlink()


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, to mount a small disk"
)


@needs_mounts
def test_the_disk_of_the_ad_files_is_full_and_hooks_read_whole_old_ones(made):
    daemon = made("ads")
    daemon.fill()
    daemon.catalogue(MORE)
    wait_for(lambda: "'lofar:L2'" in (daemon.served("CAM") or ""), "HTTP to go on")
    for site in SITES:
        assert re.search(r"\nDataLocalityVersion = 1\n\Z", daemon.file(site)), "torn by a full disk"
    daemon.free()
    wait_for(lambda: all(daemon.lists(s, "lofar:L2") for s in SITES), "the files to follow")
    assert daemon.alive


@needs_mounts
def test_a_state_that_is_read_only_at_the_start_is_refused_in_one_sentence(tmp_path):
    daemon = Mounted(tmp_path, "state")
    daemon.catalogue(FULL)
    daemon.before = (
        *daemon.before[:-2],
        daemon.before[-2].replace("size=3m", "size=3m,ro"),
        daemon.before[-1],
    )
    daemon.start(ready=False)
    wait_for(lambda: not daemon.alive, "the daemon to refuse")
    assert "Traceback" not in daemon.log.read_text()
    assert "state_dir" in daemon.log.read_text()
    assert daemon.process.returncode in {1, 2}


def scribble(state: Path) -> None:
    """Overwrite the database and its log with garbage while the daemon runs."""
    for file in state.glob("state.sqlite*"):
        with file.open("r+b") as open_file:
            size = file.stat().st_size
            for place in range(0, size, 1024):
                open_file.seek(place)
                open_file.write(b"\xde\xad\xbe\xef" * 64)


def vanish(state: Path) -> None:
    shutil.rmtree(state)


def truncate(state: Path) -> None:
    for name in ("state.sqlite", "state.sqlite-wal"):
        os.truncate(state / name, 0)


@pytest.mark.parametrize("damage", [scribble, vanish, truncate])
def test_a_database_damaged_while_the_daemon_runs_stops_nothing_and_a_restart_begins_anew(made, damage):
    daemon = made()
    damage(daemon.folder / "state")
    goes_on(daemon)
    before = generation(daemon.file("CAM"))
    daemon.stop()
    daemon.start()
    wait_for(lambda: daemon.lists("CAM", "lofar:L2"), "the ads after a restart")
    assert generation(daemon.file("CAM")) >= before
    wait_for(lambda: saved(daemon) == generation(daemon.served("CAM")), "the state to be saved")
    assert daemon.alive
