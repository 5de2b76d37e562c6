"""kill -9 at random moments under load: what was promised before it holds after it."""

import json
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hydrator.store import Store
from testbed.installation import HYDRATOR, Installation, ListedCatalogue, wait_for
from testbed.pool import Pool, SiteSpec

from .length import chosen, seeded

KILLS = chosen(25, 300)
KILLS_ON_A_POOL = chosen(6, 60)
SITES = ("CAM", "RAL", "OSO")
DIDS = tuple(f"lofar:L{number}" for number in range(30))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(chosen(300, 3600))]


class Witness:
    """Looks at ads wherever they are shown, all the time, and notes what must not be."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.looks = 0
        self._highest: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def saw(self, where: str, site: str, text: str | None) -> int:
        """An ad as it was read there, None where there was none; gives its generation."""
        self.looks += 1
        if text is None:
            if (where, site) in self._highest:
                self.wrong.append(f"{where}: {site} was withdrawn")
            return 0
        found = re.search(r"^DataLocalityGeneration = (\d+)$", text, re.MULTILINE)
        if not found or not re.search(r"\nDataLocalityVersion = 1\n\Z", text):
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
    """A daemon whose catalogue changes without end, and who is killed and started again."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.witness = Witness()
        self._over = threading.Event()
        self._here = {did: set(SITES) for did in DIDS}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        (folder / "config.toml").write_text(
            f"""
            [daemon]
            state_dir = "state"
            poll_seconds = 0.1
            [[catalogue]]
            type = "file"
            path = "catalogue.json"
            [demand]
            scope = "all"
            ask_schedds = false
            [publish.collector]
            enabled = false
            [publish.file]
            directory = "ads"
            [publish.http]
            port = {self.url.rpartition(":")[2]}
            """
        )
        self._change()
        self._threads = [threading.Thread(target=work) for work in (self._changes, self._looks)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*HYDRATOR, "run", "--config", str(self.folder / "config.toml")], stderr=log
            )

    def wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: ready(self.url) or process.poll() is not None, 60, "the daemon to be ready")

    def look_at_files(self) -> dict[str, int]:
        return {site: self.witness.saw("file", site, self._file(site)) for site in SITES}

    def look_at_state(self) -> dict[str, int]:
        """The generations in the database, which must open; no daemon runs meanwhile."""
        if not (self.folder / "state" / "state.sqlite").exists():
            return {}  # killed before it made one
        with Store.open_to_write(self.folder / "state") as store:
            if store.lost:
                self.witness.wrong.append(f"database: {store.lost}")
            ads = store.load().ads
        for site, ad in ads.items():
            self.witness.generation("database", site, ad.generation)
        return {site: ad.generation for site, ad in ads.items()}

    def _changes(self) -> None:
        while not self._over.wait(0.03):
            self._change()

    def _change(self) -> None:
        self._here[self.chance.choice(DIDS)] ^= {self.chance.choice(SITES)}
        datasets = {did: {"sites": dict.fromkeys(sorted(at), "available")} for did, at in self._here.items()}
        fresh = self.folder / "fresh"
        fresh.write_text(json.dumps({"sites": SITES, "datasets": datasets}))
        fresh.rename(self.folder / "catalogue.json")

    def _looks(self) -> None:
        with httpx.Client(base_url=self.url, trust_env=False, timeout=5) as client:
            while not self._over.wait(0.01):
                self.look_at_files()
                for site in SITES:
                    try:
                        answer = client.get(f"/v1/sites/{site}/ad")
                    except httpx.HTTPError:  # it was killed, or does not listen yet
                        continue
                    if answer.status_code != 503:  # just started, nothing known yet
                        self.witness.saw("HTTP", site, answer.text if answer.status_code == 200 else None)

    def _file(self, site: str) -> str | None:
        try:
            return (self.folder / "ads" / f"{site}.ad").read_text()
        except FileNotFoundError:
            return None


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    chance, seed = seeded()
    print(f"HYDRATOR_SEED={seed}")
    made = Loaded(tmp_path, chance)
    yield made
    made.close()


def ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_killed_at_any_moment_it_loses_nothing_and_takes_nothing_back(loaded, record_property):
    for number in range(KILLS):
        process = loaded.start()
        try:
            if number % 3:  # one in three dies while it starts
                loaded.wait_ready(process)
            time.sleep(loaded.chance.uniform(0, 0.8))
            assert process.poll() is None, (loaded.folder / "log").read_text()[-2000:]
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        files, kept = loaded.look_at_files(), loaded.look_at_state()
        ahead = [site for site in SITES if files[site] > kept.get(site, 0)]
        assert not ahead, f"published before it was saved: {ahead}"
        assert loaded.witness.wrong == []
    process = loaded.start()
    loaded.wait_ready(process)
    process.terminate()
    assert process.wait(30) == 0
    assert loaded.witness.wrong == []
    assert loaded.witness.looks > KILLS * len(SITES)
    assert "bug" not in (loaded.folder / "log").read_text()
    record_property("kills", KILLS)
    print(f"{KILLS} kills, {loaded.witness.looks} looks")


@pytest.mark.pool
def test_killed_at_any_moment_the_collector_keeps_every_site_and_no_generation_goes_back(
    htcondor_release, record_property
):
    chance, seed = seeded()
    print(f"HYDRATOR_SEED={seed}")
    witness = Witness()
    with Pool.start(htcondor_release, [SiteSpec(site, cpus=1) for site in SITES]) as pool:
        listed = ListedCatalogue(pool.home, SITES)
        with Installation(pool, listed, poll_seconds=0.5, period_seconds=2) as installed:
            installed.submit(DIDS, mode="require", more="requirements = false\n")
            for _ in range(KILLS_ON_A_POOL):
                for _ in range(chance.randrange(1, 4)):
                    listed.hold({did: {chance.choice(SITES): "available"} for did in DIDS})
                    time.sleep(chance.uniform(0, 1.5))
                orphans = children(installed.pid)
                installed.stop_daemon(signal.SIGKILL)
                look(pool, witness)
                wait_for(lambda left=orphans: not any(map(alive, left)), 20, "no child to outlive its daemon")
                installed.start_daemon()
                look(pool, witness)
            assert witness.wrong == []
    record_property("kills", KILLS_ON_A_POOL)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def look(pool: Pool, witness: Witness) -> None:
    told = ("DataLocalitySite", "DataLocalityGeneration")
    ads = {ad[told[0]]: ad[told[1]] for ad in pool.ads('MyType == "DataLocality"', *told)}
    slots = pool.slots("GLIDEIN_Site", *told, constraint="PartitionableSlot")
    for site in SITES:
        if site not in ads:
            witness.wrong.append(f"collector: {site} was withdrawn")
            continue
        witness.generation("collector", site, ads[site])
    for slot in slots:
        if "DataLocalityGeneration" not in slot:
            witness.wrong.append(f"slot: {slot['GLIDEIN_Site']} lost our attributes")
            continue
        witness.generation("slot", slot["GLIDEIN_Site"], slot["DataLocalityGeneration"])


def children(pid: int) -> list[int]:
    """The processes that *pid* started."""
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
