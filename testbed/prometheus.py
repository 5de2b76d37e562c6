"""Prometheus and promtool, out of Debian's package: unpacked into the cache folder, not installed."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from .cached import Unavailable, built
from .patience import wait_for
from .ports import free_port
from .processes import end

RECIPE = b"apt-get download prometheus; usr/bin/promtool usr/bin/prometheus"


def promtool() -> str:
    """Return the program's path: the machine's own, else one that is downloaded once (18 MB).

    Raises:
        Unavailable: see there.
    """
    return shutil.which("promtool") or str(built("prometheus", RECIPE, _unpack) / "promtool")


def server() -> str:
    """Return the path of Prometheus itself, from the same places.

    Raises:
        Unavailable: see there.
    """
    return shutil.which("prometheus") or str(built("prometheus", RECIPE, _unpack) / "prometheus")


@dataclass(frozen=True)
class Prometheus:
    """A server that scrapes one daemon, every second."""

    url: str

    def rules(self) -> dict[str, str]:
        """Return every rule and its health: ok, unknown until it was evaluated, or err."""
        groups = httpx.get(f"{self.url}/api/v1/rules", trust_env=False, timeout=30).json()["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of *expression* now.

        Raises:
            AssertionError: it is not an expression.
        """
        answer = httpx.get(
            f"{self.url}/api/v1/query", params={"query": expression}, trust_env=False, timeout=30
        )
        body = answer.json()
        assert body["status"] == "success", body.get("error")
        series: list[dict[str, Any]] = body["data"]["result"]
        return series


@contextlib.contextmanager
def scraping(target: str, folder: Path, alerts: Path) -> Iterator[Prometheus]:
    """Run Prometheus on *target* (host:port) with the rules of *alerts*; its data is in *folder*.

    Raises:
        Unavailable: see there.
    """
    program = server()
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{alerts}']\n"
        f"scrape_configs: [{{job_name: classad-hydrator, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("ab") as log:
        running = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)

    def ready() -> bool:
        if running.poll() is not None:
            raise AssertionError(
                f"Prometheus ended with {running.returncode}: {(folder / 'log').read_text()[-2000:]}"
            )
        try:
            return httpx.get(f"http://{address}/-/ready", trust_env=False, timeout=30).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(ready, 30, "Prometheus to be ready")
        yield Prometheus(f"http://{address}")
    finally:
        end(running, 30)


def _unpack(home: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("there is neither promtool nor an apt-get to fetch one")
    with tempfile.TemporaryDirectory() as scratch:
        failure = _run(["apt-get", "download", "prometheus"], scratch)
        if failure:
            _run(["apt-get", "update"], scratch)
            failure = _run(["apt-get", "download", "prometheus"], scratch)
        if failure:
            raise Unavailable(f"apt-get cannot download prometheus: {failure}")
        [package] = Path(scratch).glob("prometheus_*.deb")
        if failure := _run(["dpkg-deb", "-x", str(package), "tree"], scratch):
            raise Unavailable(f"dpkg-deb cannot unpack {package.name}: {failure}")
        home.mkdir()
        for program in ("promtool", "prometheus"):
            shutil.copy2(Path(scratch) / "tree" / "usr" / "bin" / program, home)


def _run(command: list[str], folder: str) -> str:
    """Run *command* in *folder*; return its error, or nothing."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return (done.stderr.strip()[-300:] or "it does not say why") if done.returncode else ""
