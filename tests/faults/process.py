"""`hydrator run` as a process in its own folder, for tests that damage its environment. No pool is needed."""

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from testbed.installation import HYDRATOR, wait_for
from testbed.metrics import total
from testbed.ports import free_port

SITES = ("CAM", "RAL", "OSO")
CONFIG = """
[daemon]
state_dir = "{state}"
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
port = {port}
{more}
"""


class Daemon:
    """One daemon: its catalogue is a file, its publishers are files and HTTP.

    ``before`` has the words before the command, for example to run it in its own namespaces.
    """

    def __init__(
        self,
        folder: Path,
        *,
        poll: float = 0.1,
        state: str = "state",
        more: str = "",
        before: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.state = folder / state
        self.log_file = folder / "log"
        self._before = tuple(before)
        self._process: subprocess.Popen[bytes] | None = None
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        text = CONFIG.format(state=state, poll=poll, port=port, more=more)
        (folder / "config.toml").write_text(text)

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def hold(self, datasets: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the catalogue file."""
        listed = {did: {"sites": dict(sites)} for did, sites in datasets.items()}
        fresh = self.folder / "fresh"
        fresh.write_text(json.dumps({"sites": SITES, "datasets": listed}))
        fresh.rename(self.folder / "catalogue.json")

    def start(self, *, ready: bool = True) -> None:
        with self.log_file.open("ab") as log:
            command = [*self._before, *HYDRATOR, "run", "--config", str(self.folder / "config.toml")]
            self._process = subprocess.Popen(command, stderr=log, cwd=self.folder)
        if ready:
            self.wait_ready()

    def wait_ready(self) -> None:
        wait_for(lambda: self.ready() or not self.alive, 60, "the daemon to be ready")
        assert self.alive, self.log[-2000:]

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False, timeout=60).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int | None:
        if self._process is None:
            return None
        self._process.send_signal(how)
        try:
            return self._process.wait(120)
        finally:
            self._process.kill()
            self._process.wait()
            self._process = None

    def file(self, site: str) -> str | None:
        """Return the ad of *site* as a hook reads it from its file."""
        try:
            return (self.folder / "ads" / f"{site}.ad").read_text()
        except FileNotFoundError:
            return None

    def served(self, site: str) -> str | None:
        """Return the ad of *site* as a hook reads it over HTTP; None without one."""
        answer = httpx.get(f"{self.url}/v1/sites/{site}/ad", trust_env=False, timeout=120)
        return answer.text if answer.status_code == 200 else None

    def metric(self, name: str) -> float:
        return total(httpx.get(f"{self.url}/metrics", trust_env=False, timeout=120).text, name)

    def lists(self, site: str, did: str) -> bool:
        """Return whether both the file and HTTP list this dataset."""
        return f"'{did}'" in (self.file(site) or "") and f"'{did}'" in (self.served(site) or "")
