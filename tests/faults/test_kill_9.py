"""kill -9 of a real process at random moments under load; kills at each step are the simulation's."""

import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hydrator.state.store import Store

from .length import chosen, seeded
from .process import SITES, Daemon

KILLS = chosen(25, 300)
DIDS = tuple(f"lofar:L{number}" for number in range(30))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(chosen(900, 3600))]


class Witness:
    """A reader of all published ads that runs all the time and records violations."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.looks = 0
        self._highest: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def saw(self, where: str, site: str, text: str | None) -> int:
        """Record an ad that was read, or None where none was there; return its generation."""
        self.looks += 1
        if text is None:
            if (where, site) in self._highest:
                self.wrong.append(f"{where}: {site} was withdrawn")
            return 0
        found = re.search(r"^DataLocalityGeneration = (\d+)$", text, re.MULTILINE)
        if not found or not text.endswith("\nDataLocalityVersion = 1\n"):
            self.wrong.append(f"{where}: half an ad of {site}: {text[-80:]!r}")
            return 0
        self.generation(where, site, int(found[1]))
        return int(found[1])

    def generation(self, where: str, site: str, number: int) -> None:
        with self._lock:
            last = self._highest.get((where, site), 0)
            if number < last:
                self.wrong.append(f"{where}: {site} went back from {last} to {number}")
            self._highest[where, site] = max(last, number)


class Loaded:
    """A daemon whose catalogue changes all the time, and which is killed and started again."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.witness = Witness()
        self._over = threading.Event()
        self._here = {did: set(SITES) for did in DIDS}
        self.daemon = Daemon(folder)
        self._change()
        self._threads = [threading.Thread(target=work) for work in (self._changes, self._looks)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def look_at_files(self) -> dict[str, int]:
        """Return the generations in the files."""
        return {site: self.witness.saw("file", site, self.daemon.file(site)) for site in SITES}

    def look_at_state(self) -> dict[str, int]:
        """Return the generations in the database, which must open; no daemon runs meanwhile."""
        if not (self.folder / "state" / "state.sqlite").exists():
            return {}  # killed before it made one
        with Store.open_to_write(self.folder / "state") as store:
            if store.damage_report:
                self.witness.wrong.append(f"database: {store.damage_report}")
            ads = store.load().ads
        for site, ad in ads.items():
            self.witness.generation("database", site, ad.generation)
        return {site: ad.generation for site, ad in ads.items()}

    def _changes(self) -> None:
        while not self._over.wait(0.03):
            self._change()

    def _change(self) -> None:
        self._here[self.chance.choice(DIDS)] ^= {self.chance.choice(SITES)}
        self.daemon.catalogue({did: dict.fromkeys(sorted(at), "available") for did, at in self._here.items()})

    def _looks(self) -> None:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{self.daemon.port}", trust_env=False, timeout=5
        ) as client:
            while not self._over.wait(0.01):
                self.look_at_files()
                for site in SITES:
                    try:
                        answer = client.get(f"/v1/sites/{site}/ad")
                    except httpx.HTTPError:  # it was killed, or does not listen yet
                        continue
                    if answer.status_code != 503:  # just started, nothing known yet
                        self.witness.saw("HTTP", site, answer.text if answer.status_code == 200 else None)


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    chance, seed = seeded()
    print(f"HYDRATOR_SEED={seed}")
    made = Loaded(tmp_path, chance)
    yield made
    made.close()
    made.daemon.stop(signal.SIGKILL)


def test_killed_at_any_moment_it_loses_nothing_and_takes_nothing_back(loaded, record_property):
    daemon = loaded.daemon
    for number in range(KILLS):
        daemon.start(ready=bool(number % 3))  # one in three dies while it starts
        time.sleep(loaded.chance.uniform(0, 0.8))
        assert daemon.alive, daemon.log.read_text()[-2000:]
        daemon.stop(signal.SIGKILL)
        files, saved = loaded.look_at_files(), loaded.look_at_state()
        ahead = [site for site in SITES if files[site] > saved.get(site, 0)]
        assert not ahead, f"published before it was saved: {ahead}"
        assert loaded.witness.wrong == []
    daemon.start()
    assert daemon.stop() == 0
    assert loaded.witness.wrong == []
    assert loaded.witness.looks > KILLS * len(SITES)
    assert "bug" not in daemon.log.read_text()
    record_property("kills", KILLS)
    print(f"{KILLS} kills, {loaded.witness.looks} looks")
