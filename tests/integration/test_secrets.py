"""Secrets of a running daemon: read from credentials, renewed, and never printed. No pool is needed."""

import base64
import os
import signal
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trustme

from testbed.installation import wait_for
from testbed.ports import free_port

HYDRATOR = [sys.executable, "-m", "hydrator.cli"]
SHOWN, CANARY = "lofar:L1", "embargo:canary-observation"


class Running:
    """A daemon with HTTPS, tokens and names that are never published, whose secrets are credentials."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.credentials = folder / "credentials"
        self.credentials.mkdir(mode=0o700)
        self.port = free_port()
        self.known: dict[str, str] = {}
        self.authority = trustme.CA()
        self.keep("tokens", "")
        self.renew()
        (folder / "catalogue.toml").write_text(
            f'sites = ["UK"]\n[datasets."{CANARY}"]\nsites.UK = "available"\n'
            f'[datasets."{SHOWN}"]\nsites.UK = "available"\n'
        )
        self.configure()
        self.log = folder / "log"
        self.process: subprocess.Popen | None = None

    def keep(self, name: str, text: str) -> None:
        file = self.credentials / name
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        file.write_text(text + "\n" if text else "")
        self.known[f"{name} {len(self.known)}"] = text

    def renew(self) -> None:
        """Write a new certificate and key for this machine."""
        pair = self.authority.issue_cert("127.0.0.1")
        pem = pair.private_key_pem.bytes().decode()
        (self.credentials / "certificate").write_bytes(b"".join(p.bytes() for p in pair.cert_chain_pems))
        self.keep("tls", pem)
        body = "".join(line for line in pem.splitlines() if "-----" not in line)
        self.known[f"tls body {len(self.known)}"] = base64.b64decode(body).hex()
        for line in pem.splitlines()[1:-1]:
            self.known[f"tls line {len(self.known)}"] = line

    def configure(self) -> None:
        (self.folder / "config.toml").write_text(
            f"""
            [daemon]
            state_dir = "state"
            poll_seconds = 0.2
            [[catalogue]]
            type = "file"
            path = "catalogue.toml"
            [demand]
            patterns = ["*"]
            ask_schedds = false
            [publish]
            never = ["embargo:*"]
            [publish.collector]
            enabled = false
            [publish.file]
            directory = "ads"
            [publish.http]
            port = {self.port}
            tokens_file = "tokens"
            tls_certificate = "certificate"
            tls_key = "tls"
            [log]
            level = "debug"
            """
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*HYDRATOR, *words, "-c", str(self.folder / "config.toml")]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=self.environment, timeout=120
        )

    @property
    def environment(self) -> dict[str, str]:
        packages = [str(self.folder / "site-packages"), os.environ.get("PYTHONPATH")]
        found = {"PYTHONPATH": os.pathsep.join(filter(None, packages))}
        return {**os.environ, **found, "CREDENTIALS_DIRECTORY": str(self.credentials)}

    def start(self) -> None:
        self.token = self.run("token", "new", "--role", "read").stdout.strip()
        self.known["token"] = self.token
        command = [*HYDRATOR, "run", "-c", str(self.folder / "config.toml")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env=self.environment)
        wait_for(self.listed, 30, "the daemon to serve the public dataset")

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(120)
            finally:
                self.process.kill()
                self.process.wait()

    def get(self, path: str) -> httpx.Response:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.get(
            f"https://127.0.0.1:{self.port}{path}",
            headers=headers,
            verify=context,
            trust_env=False,
            timeout=120,
        )

    def listed(self) -> list[str]:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            answer = self.get("/v1/datasets")
        except httpx.TransportError:
            return []
        rows = answer.json().get("datasets", [])
        return [row["did"] for row in rows if row["sites"]]

    def shown(self, text: str) -> list[str]:
        """Return the secrets that *text* contains."""
        lower = text.lower()
        hits = [what for what, secret in self.known.items() if secret and secret.lower() in lower]
        return hits + ["a canary"] * ("canary" in lower)


@pytest.fixture
def running(tmp_path):
    daemon = Running(tmp_path)
    yield daemon
    daemon.stop()


def test_secrets_are_read_from_credentials_and_printed_nowhere(running):
    running.start()
    assert running.listed() == [SHOWN]
    running.renew()
    (running.credentials / "certificate").write_text("torn")
    running.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reload" in running.log.read_text(), 20, "the reload")
    for words in (["status"], ["sites"], ["datasets"], ["plan"], ["check"], ["token", "list"]):
        done = running.run(*words)
        assert running.shown(done.stdout + done.stderr) == []
        assert "Traceback" not in done.stderr
    assert running.shown(running.log.read_text()) == []
    pid = running.process.pid
    for what in ("cmdline", "environ"):
        assert running.shown(Path(f"/proc/{pid}/{what}").read_bytes().decode(errors="replace")) == []
    folders = (running.folder / "state", running.folder / "ads")
    count = 0
    for file in (file for folder in folders for file in folder.rglob("*")):
        with suppress(FileNotFoundError):  # a new file that has just got its name, which is listed, too
            if file.stat().st_mode & 0o004:
                assert not file.is_file() or running.shown(file.read_bytes().decode("latin-1")) == [], file
                count += 1
    assert count
