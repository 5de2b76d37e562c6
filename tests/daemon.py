"""One daemon as a process with a folder of its own, without a pool."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx

from testbed.installation import HYDRATOR, run_hydrator
from testbed.metrics import total
from testbed.patience import LIMIT_SECONDS, wait_for
from testbed.ports import free_port
from testbed.processes import end


class Running:
    """One daemon with a folder of its own, and a catalogue file that tests rewrite.

    ``before`` has the words before the command, for example to run it in its own namespaces.
    """

    sites = ("CAM", "RAL")

    def __init__(self, folder: Path, before: Sequence[str] = ()) -> None:
        self.folder = folder
        self.before = tuple(before)
        self.port = free_port()
        self.process: subprocess.Popen | None = None
        self.scheme = "http"
        self.log = folder / "log"
        self.environ: dict[str, str] = {}
        self.words = ["run", "-c", str(folder / "config.toml")]
        self.configure()
        self.catalogue({"lofar:L1": {"CAM": "available"}})

    def configure(self, extra: str = "", poll: float = 0.2) -> None:
        (self.folder / "config.toml").write_text(
            f"""
            [daemon]
            state_dir = "state"
            poll_seconds = {poll}
            [[catalogue]]
            type = "file"
            path = "catalogue.json"
            [demand]
            patterns = ["*"]
            ask_schedds = false
            [publish.collector]
            enabled = false
            [publish.file]
            directory = "ads"
            [publish.http]
            port = {self.port}
            {extra}
            """
        )

    def catalogue(self, datasets: dict) -> None:
        text = json.dumps({"sites": self.sites, "datasets": {d: {"sites": s} for d, s in datasets.items()}})
        fresh = self.folder / "fresh"
        fresh.write_text(text)
        fresh.rename(self.folder / "catalogue.json")

    def start(self, *, ready: bool = True) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("HYDRATOR_")}
        with self.log.open("a") as log:
            command = [*self.before, *HYDRATOR, *self.words]
            self.process = subprocess.Popen(command, stderr=log, env=own | self.environ, cwd=self.folder)
        if ready:
            wait_for(self.ready, f"readiness; {self.log.read_text()}")

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, **more) -> httpx.Response:
        url = f"{self.scheme}://127.0.0.1:{self.port}{path}"
        return httpx.get(url, trust_env=False, timeout=LIMIT_SECONDS, verify=False, **more)

    def metric(self, name: str) -> float:
        return total(self.get("/metrics").text, name)

    def ad(self, site: str = "CAM") -> str:
        return self.get(f"/v1/sites/{site}/ad").text

    def generation(self, site: str = "CAM") -> int:
        sites = self.get("/v1/sites").json()["sites"]
        return next(row["generation"] for row in sites if row["site"] == site)

    def command(self, *words: str) -> subprocess.CompletedProcess:
        config = str(self.folder / "config.toml")
        return run_hydrator([*words, "-c", config])

    def reads_back(self) -> bool:
        """Return whether the last cycle has read back, from its files and over HTTP, what it published."""
        rows = json.loads(self.command("status", "--json").stdout)["cycle"]["publishers"]
        return {row["name"]: row["error"] for row in rows} == {"file": None, "http": None}

    def end(self, how: int = signal.SIGTERM) -> int:
        return end(self.process, LIMIT_SECONDS, how)
