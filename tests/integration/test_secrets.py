"""Secrets of a running daemon: read from credentials, renewed, and never printed. No pool is needed."""

import signal
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from testbed.files import write_secret
from testbed.patience import wait_for
from tests.daemon import Running

SHOWN, CANARY = "lofar:L1", "embargo:canary-observation"
HTTPS = """
            tokens_file = "tokens"
            tls_certificate = "certificate"
            tls_key = "tls"
            [publish]
            never = ["embargo:*"]
            [log]
            level = "debug"
"""


class Secretive(Running):
    """A daemon with HTTPS, a token and a name that is never published, whose secrets are credentials."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.scheme = "https"
        self.credentials = folder / "credentials"
        self.credentials.mkdir(mode=0o700)
        self.environ = {"CREDENTIALS_DIRECTORY": str(self.credentials)}
        self.known: list[str] = ["canary"]
        self.keep("tokens", "")
        self.renew()
        self.configure(HTTPS)
        self.catalogue({did: {"CAM": "available"} for did in (SHOWN, CANARY)})

    def keep(self, name: str, text: str) -> None:
        file = self.credentials / name
        file.unlink(missing_ok=True)
        write_secret(file, text)
        self.known += [line for line in text.splitlines() if line and "-----" not in line]

    def renew(self) -> None:
        """Write a new certificate and key for this machine."""
        pair = trustme.CA().issue_cert("127.0.0.1")
        (self.credentials / "certificate").write_bytes(b"".join(p.bytes() for p in pair.cert_chain_pems))
        self.keep("tls", pair.private_key_pem.bytes().decode())

    def shown(self, text: str) -> list[str]:
        """Return the secrets that *text* contains."""
        return [secret for secret in self.known if secret.lower() in text.lower()]


@pytest.fixture
def running(tmp_path, monkeypatch):
    daemon = Secretive(tmp_path)
    for name, value in daemon.environ.items():
        monkeypatch.setenv(name, value)
    yield daemon
    if daemon.alive:
        daemon.end()


def test_secrets_are_read_from_credentials_and_printed_nowhere(running):
    token = running.command("token", "new", "--role", "read").stdout.strip()
    running.known.append(token)
    running.start()
    headers = {"Authorization": f"Bearer {token}"}

    def listed() -> list[str]:
        rows = running.get(f"/v1/datasets?did={SHOWN}&did={CANARY}", headers=headers).json()["datasets"]
        return [row["did"] for row in rows if row["sites"]]

    wait_for(listed, "the daemon to serve the public dataset")
    assert listed() == [SHOWN]
    running.renew()
    (running.credentials / "certificate").write_text("torn")
    running.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reload" in running.log.read_text(), "the reload")
    for words in (["status"], ["sites"], ["datasets"], ["plan"], ["check"], ["token", "list"]):
        done = running.command(*words)
        assert running.shown(done.stdout + done.stderr) == []
        assert "Traceback" not in done.stderr
    assert running.shown(running.log.read_text()) == []
    for what in ("cmdline", "environ"):
        text = Path(f"/proc/{running.process.pid}/{what}").read_bytes().decode(errors="replace")
        assert running.shown(text) == []
    count = 0
    for name in ("state", "ads"):
        for file in (running.folder / name).rglob("*"):
            with suppress(FileNotFoundError):  # a new file that has just got its name, which is listed, too
                if file.stat().st_mode & 0o004 and file.is_file():
                    assert running.shown(file.read_bytes().decode("latin-1")) == [], file
                    count += 1
    assert count
