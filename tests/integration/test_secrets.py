"""Secrets of a running daemon: read from credentials, renewed, and never printed. No pool is needed."""

import base64
import json
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
PLUGIN_SECRET = "plugin-c4nary-/+0123456789"
PLUGIN = f"""
import base64
from pathlib import Path
from hydrator.domain.errors import CatalogueUnreachable
from hydrator.domain.model import Provenance, Replica, ReplicaState, Seen, Site, Survey, Unseen
from datetime import UTC, datetime

EVIL = "\\x1b[2J\\u202e\\ud800"

class Talkative:
    def __init__(self, name, options):
        self.name, self.secret = name, Path(options["our_pass_file"])
        self.polls = 0

    def read(self, dids):
        secret = self.secret.read_text().strip()
        coded = base64.b64encode(secret.encode()).decode()
        said = f"you sent {{secret}} or {{coded}} {{EVIL}}"
        self.polls += 1
        if self.polls % 3 == 2:
            raise CatalogueUnreachable(self.name, said)
        origin = Provenance(said, "DISK" + EVIL, "its rule is stuck: " + said, said, said)
        site = Site("AU" + EVIL)
        held = [(did, Replica(did, site, ReplicaState.STUCK, 0.5, "DISK", origin)) for did in sorted(dids)]
        readings = {{did: Seen(datetime.now(UTC), (one,)) for did, one in held[::2]}}
        readings |= {{did: Unseen(said) for did, _ in held[1::2]}}
        return Survey(self.name, datetime.now(UTC), frozenset({{site}}), readings, frozenset({{EVIL}}))

    def find(self, patterns):
        return frozenset(["{SHOWN}", "{CANARY}", "{CANARY}-2", "embargo:" + EVIL])

    def close(self):
        pass

def catalogue(name, options, clock):
    return Talkative(name, options)
"""


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

    def talk(self) -> None:
        """Add a catalogue, a plugin, with secrets in all its answers; install it as packages are."""
        described = self.folder / "site-packages" / "talkative-1.0.dist-info"
        described.mkdir(parents=True)
        (described.parent / "talkative_catalogue.py").write_text(PLUGIN)
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: talkative\nVersion: 1.0\n")
        points = "[classad_hydrator.catalogues]\ntalkative = talkative_catalogue:catalogue\n"
        (described / "entry_points.txt").write_text(points)
        self.keep("our-pass", PLUGIN_SECRET)
        self.known |= {
            "plugin's secret in base64": base64.b64encode(PLUGIN_SECRET.encode()).decode()[:-4],
            "escape": "\x1b[2J",
            "override": "\u202e",
        }
        with (self.folder / "config.toml").open("a") as config:
            config.write(
                f'[[catalogue]]\ntype = "talkative"\nour_pass_file = "{self.credentials / "our-pass"}"\n'
            )

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


def test_secrets_in_catalogue_answers_are_printed_nowhere(running):
    running.talk()
    running.start()
    wait_for(lambda: "you sent" in running.log.read_text(), 30, "a poll that failed")
    wait_for(lambda: "AU" in running.get("/v1/datasets").text, 30, "a poll that answered")
    for path in ("/", "/v1/datasets", "/v1/sites", "/metrics", f"/v1/datasets?did={SHOWN}"):
        answer = running.get(path)
        assert answer.status_code == 200, path
        assert running.shown(answer.text) == [], path
    for words in (["status"], ["status", "--json"], ["datasets", "--why"], ["plan"], ["sites"]):
        done = running.run(*words)
        assert running.shown(done.stdout + done.stderr) == [], words
        assert "Traceback" not in done.stderr
    datasets = json.loads(running.run("datasets", "--why", "--json").stdout)
    assert any(row["why"].startswith("its rule is stuck: you sent ") for row in datasets)
    assert running.shown(running.log.read_text()) == []
    for file in (running.folder / "state").rglob("*"):
        if file.is_file():
            assert file.stat().st_mode & 0o077 == 0, file
            hits = running.shown(file.read_bytes().decode("latin-1"))
            # the state may have names that are never published: only the daemon's user reads it
            assert set(hits) <= {"a canary"}, file
