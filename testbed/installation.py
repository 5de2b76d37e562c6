"""An installation as the docs describe it: pool, catalogue, daemon, hook, pool configuration.

with Pool.start() as pool, Installation(pool, ListedCatalogue(pool.home)) as installed:
    installed.catalogue.hold({"lofar:L1": {"UK": "available"}})
    installed.submit(["lofar:L1"])
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from .files import write_program
from .metrics import total
from .patience import LIMIT_SECONDS
from .pool import Pool
from .ports import free_port
from .processes import MORTAL, end, run_program

HYDRATOR = (sys.executable, "-m", "hydrator.cli")
Road = Literal["file", "url", "collector"]


def run_hydrator(
    words: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``hydrator`` with *words*, without standard input, in *folder* (default: that of this process)."""
    return run_program(
        [*HYDRATOR, *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, timeout=LIMIT_SECONDS
    )


class CatalogueSection(Protocol):
    """A catalogue that the daemon's configuration may name."""

    def section(self) -> str:
        """Its part of the configuration, in TOML."""


class ListedCatalogue:
    """The file catalogue, which is the default: a list in a file in *folder*, replaced as a whole."""

    def __init__(self, folder: Path, sites: Sequence[str] = ("UK", "AU", "NL")) -> None:
        self._file = folder / "catalogue.json"
        self._sites = tuple(sites)
        self._datasets: dict[str, dict[str, Any]] = {}
        self._write()

    def section(self) -> str:
        return f'[[catalogue]]\ntype = "file"\nname = "embedded"\npath = "{self._file}"\n'

    def hold(self, datasets: Mapping[str, Mapping[str, str]]) -> None:
        """Set the whole content: by dataset and site its state (``available``, ``staging``, …)."""
        self._datasets = {did: {"sites": dict(sites)} for did, sites in datasets.items()}
        self._write()

    def add(self, did: str, size_bytes: int | None = None, /, **sites: str) -> None:
        """Set the state of *did* at each site, and its size; other datasets stay."""
        self._datasets[did] = {"sites": sites, **({"bytes": size_bytes} if size_bytes else {})}
        self._write()

    def _write(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps({"sites": self._sites, "datasets": self._datasets}), "utf-8")
        fresh.rename(self._file)


class Installation:
    """The daemon beside a pool with the hook in every startd.

    Args:
        pool: a pool that is up.
        catalogue: the daemon's catalogue.
        road: the hook's source of its ad: the ad ``file``, a ``url`` or the ``collector``.
        period_seconds: interval of the hook's runs. With 2 s the hooks of seven pools need half of two cores.
        poll_seconds: interval of the polls of catalogues and schedds.
        extra: configuration by kind, after the generated one, as for the pool itself.
        settings: more TOML for the daemon's configuration.
        demand: more settings of its ``[demand]``.
    """

    def __init__(
        self,
        pool: Pool,
        catalogue: CatalogueSection,
        *,
        road: Road = "file",
        period_seconds: int = 4,
        poll_seconds: float = 1,
        extra: Mapping[str, str] | None = None,
        settings: str = "",
        demand: str = "",
    ) -> None:
        self.pool = pool
        self.catalogue = catalogue
        self.home = pool.home / "hydrator"
        self.ads = pool.shared / "ads"
        self.hook = pool.shared / "classad-hydrator-hook"
        self.config = self.home / "config.toml"
        self._road = road
        self._period = period_seconds
        self._poll = poll_seconds
        self._extra = dict(extra or {})
        self._settings = settings
        self._demand = demand
        self._client_config = pool.client_config
        self._port = free_port()
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.install()
            self.start_daemon()
            self.configure_pool()
        except BaseException:
            self.stop_daemon(signal.SIGKILL)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_daemon()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Return the process of the daemon that was started last."""
        assert self._daemon is not None
        return self._daemon.pid

    @property
    def log(self) -> str:
        """Return the log of the daemon."""
        return (self.home / "log").read_text("utf-8")

    def install(self) -> None:
        """Write the hook and the daemon's configuration."""
        self.home.mkdir(exist_ok=True)
        # a startd may be running the one that is there
        write_program(self.hook.with_suffix(".new"), self.run("hook").stdout).rename(self.hook)
        self.config.write_text(
            f"""\
[daemon]
state_dir = "{self.home}/state"
poll_seconds = {self._poll}
[htcondor]
config_file = "{self._client_config}"
{self.catalogue.section()}
[demand]
{self._demand}
[publish.file]
directory = "{self.ads}"
[publish.http]
port = {self._port}
{self._settings}
""",
            "utf-8",
        )

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``hydrator`` with *words*, as the operator would type it."""
        environment = {**os.environ, "HYDRATOR_CONFIG": str(self.config), "COLUMNS": "200"}
        done = run_hydrator(words, environment)
        if check and done.returncode:
            raise AssertionError(
                f"hydrator {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}"
            )
        return done

    def start_daemon(self) -> None:
        """Start ``hydrator run`` and wait until it is ready."""
        with (self.home / "log").open("ab") as log:
            command = [*MORTAL, *HYDRATOR, "run", "--config", str(self.config)]
            self._daemon = subprocess.Popen(command, stderr=log)
        self.pool.wait(self._ready, "the daemon to be ready")

    def stop_daemon(self, how: signal.Signals = signal.SIGTERM) -> int | None:
        """End the daemon; return its exit status, or None when none ran."""
        if self._daemon is None:
            return None
        ended, self._daemon = self._daemon, None
        return end(ended, LIMIT_SECONDS, how)

    def configure_pool(self) -> None:
        """Install the output of ``hydrator pool-config``, and the hook in every startd."""
        text = {role: self.pool_config(role) for role in ("schedd", "startd", "negotiator")}
        text["startd"] += self.cron_config()
        for kind, more in self._extra.items():
            text[kind] = f"{text.get(kind, '')}\n{more}"
        self.pool.reconfig(**text)
        self.pool.wait(self.is_hydrated, "every slot to carry our attributes")

    def pool_config(self, role: str) -> str:
        return self.run("pool-config", "--role", role).stdout

    def cron_config(self) -> str:
        """Return the STARTD_CRON job of the page install-on-a-glidein.md; startds share a file."""
        source = {
            "file": f"--file {self.ads}",
            "url": f"--url {self.url} --jitter 0",
            "collector": f"--collector {self.pool.collector}",
        }[self._road]
        lines = [
            "STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) LOCALITY",
            f"STARTD_CRON_LOCALITY_EXECUTABLE = {self.hook}",
            f"STARTD_CRON_LOCALITY_PERIOD = {self._period}s",
            "STARTD_CRON_LOCALITY_MODE = Periodic",
            "STARTD_CRON_LOCALITY_KILL = True",
        ]
        for site in self.pool.sites:
            words = f"--site '{site.name}' {source} --cache-dir {self.pool.shared}/cache-{site.name}"
            lines.append(f'{site.name}.STARTD_CRON_LOCALITY_ARGS = "{words}"')
        return "\n" + "\n".join(lines) + "\n"

    def is_hydrated(self) -> bool:
        """Return True if every slot has the locality attributes."""
        slots = self.pool.slots("DataLocalityAsOf", "DataLocalitySource")
        return bool(slots) and all(slot.get("DataLocalityAsOf") is not None for slot in slots)

    def states_at(self, site: str) -> dict[str, str]:
        """Return DatasetStates of the site's partitionable slot, as the collector has it."""
        slots = self.pool.slots("DatasetStates", constraint=f'PartitionableSlot && GLIDEIN_Site == "{site}"')
        return dict(slots[0].get("DatasetStates") or {}) if slots else {}

    def until_states(self, did: str, **states: str | None) -> None:
        """Wait until the slots of each site advertise this state of *did* (None: nothing)."""
        for site, state in states.items():
            self.pool.wait(
                lambda site=site, state=state: self.states_at(site).get(did) == state,  # type: ignore[misc]
                f"{site} to say {state} of {did}",
            )

    def fraction_at(self, site: str, did: str) -> float | None:
        """Return the part of *did* that the slots of *site* advertise as being there."""
        at_site = f'PartitionableSlot && GLIDEIN_Site == "{site}"'
        (slot,) = self.pool.slots("DatasetFractions", constraint=at_site)
        return (slot.get("DatasetFractions") or {}).get(did)

    def submit(
        self,
        datasets: Sequence[str],
        *,
        mode: str | None = None,
        count: int = 1,
        seconds: float = 0,
        user: str = "alice",
        more: str = "",
    ) -> int:
        """Submit jobs with only ``+RequiredDatasets``, if there are any, and *mode* if one is given."""
        listed = ", ".join(f'"{did}"' for did in datasets)
        wanted = f"+RequiredDatasets = {{{listed}}}\n" if datasets else ""
        mode_line = f'+DataLocality = "{mode}"\n' if mode else ""
        return self.pool.submit(
            f"executable = /bin/sleep\narguments = {seconds}\nrequest_cpus = 1\nrequest_memory = 10\n"
            f"request_disk = 1\n{wanted}{mode_line}{more}\nqueue {count}\n",
            user,
        )

    def status(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.run("status", "--json").stdout)

    def findings(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.run("check", "--json", check=False).stdout)

    def metric(self, series: str) -> float:
        """See :func:`testbed.metrics.total`."""
        import httpx

        return total(httpx.get(f"{self.url}/metrics", trust_env=False, timeout=LIMIT_SECONDS).text, series)

    def _ready(self) -> bool:
        assert self._daemon is not None
        if self._daemon.poll() is not None:
            raise AssertionError(f"the daemon ended with {self._daemon.returncode}: {self.log[-2000:]}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", self._port)):
                return False
        import httpx

        return httpx.get(f"{self.url}/readyz", trust_env=False, timeout=LIMIT_SECONDS).status_code == 200
