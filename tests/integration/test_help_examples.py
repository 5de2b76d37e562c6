"""Every example of ``--help``, run as printed, beside a real pool and a daemon with a file catalogue.

The catalogue, the datasets and the job are those that the examples name. ``*.example.org`` is a server
of this test: one TLS certificate, and behind each name a stand-in or the daemon itself.
"""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import httpx
import pytest
import trustme

from hydrator.cli.output.examples import EXAMPLES
from hydrator.domain.model import Site
from hydrator.reconcile.history import HistoryEntry
from hydrator.state.store import Store
from testbed.dmapi_standin import DmapiStandIn
from testbed.installation import Installation, ListedCatalogue, wait_for
from testbed.pool import Pool, SiteSpec
from testbed.ports import free_port
from testbed.rucio_standin import RucioStandIn
from tests.desk import Desk
from tests.factories import ad

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SITES = (SiteSpec("RAL", cpus=2), SiteSpec("CAM", cpus=1))
POOL = {"schedd": "QUEUE_SUPER_USERS = $(QUEUE_SUPER_USERS), bob\nSCHEDD_CLUSTER_INITIAL_VALUE = 123\n"}
HELD = {f"lofar:L{n}": {"RAL": "available"} for n in range(120, 125)}
GENERATION = 1763726400
SHORT = "executable = /bin/true\nrequest_memory = 10\nrequest_disk = 1\n"
RESOLVER = """
import socket

_lookup = socket.getaddrinfo


def getaddrinfo(host, port, *more, **named):
    if isinstance(host, str) and host.endswith(".example.org"):
        host, port = "127.0.0.1", {port}
    return _lookup(host, port, *more, **named)


socket.getaddrinfo = getaddrinfo
"""
"""For PYTHONPATH: what a name server would say of the hosts in the examples."""


class Front(ThreadingHTTPServer):
    """HTTPS for the hosts in the examples: forwards each request to the server of its host in *behind*."""

    daemon_threads = True

    def __init__(self, behind: Mapping[str, str], authority: trustme.CA) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.behind = behind
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(*behind).configure_cert(context)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        behind = self.server.behind[self.headers["Host"].partition(":")[0]]
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in {"host", "accept-encoding"}
        }
        answer = httpx.request(
            self.command, behind + self.path, headers=headers, content=body, trust_env=False, timeout=120
        )
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in {"content-length", "content-encoding", "transfer-encoding", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_POST = do_GET  # noqa: N815 - http.server's name

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Pinned(Installation):
    """An installation that publishes the datasets of the examples from the start."""

    def install(self) -> None:
        super().install()
        pins = json.dumps(sorted(HELD))
        config = self.config.read_text()
        self.config.write_text(config.replace("[demand]\n", f"[demand]\npins = {pins}\n"))


class Place:
    """An operator's folder beside an installation, where the examples are typed."""

    def __init__(self, installed: Installation, desk: Desk, environment: Mapping[str, str]) -> None:
        self.installed = installed
        self.folder = desk.folder
        python = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            **environment,
            "PATH": f"{python}{os.pathsep}{desk.path}",
            "HYDRATOR_CONFIG": str(installed.config),
            "CONDOR_CONFIG": str(installed.pool.client("hydrator")),
            "COLUMNS": "200",
        }

    def type(self, line: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run *line* as a shell does, without a terminal."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def held(self) -> bool:
        return [row["site"] for row in self.installed.status()["held"]] == ["RAL"]


@pytest.fixture(scope="module")
def place(htcondor_release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    authority = trustme.CA()
    ca = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    with (
        Pool.start(htcondor_release, SITES, POOL) as pool,
        DmapiStandIn() as dmapi,
        RucioStandIn({"RAL_DISK": "RAL"}) as rucio,
    ):
        catalogue = ListedCatalogue(pool.home, ("RAL", "CAM"))
        catalogue.hold(HELD)
        settings = """
        tokens_file = "tokens"
        [submit]
        token_file = "read-token"
        names = { "a.ms" = "lofar:L123" }
        [breaker]
        confirm_polls = 100000
        """
        installed = Pinned(pool, catalogue, settings=settings)
        installed.install()
        token = installed.run("token", "new", "--role", "read").stdout
        (installed.home / "read-token").write_text(token)
        now = datetime.now(UTC)  # noqa: TID251 - history is kept for a time
        with Store.open_to_write(installed.home / "state") as store:
            earlier = ad("lofar:L123", site=Site("RAL"), at=now, generation=GENERATION)
            store.add_history([HistoryEntry(now, earlier, ())])
        desk = Desk(pool, pool.user_home("alice") / "desk")
        (desk.folder / "read-token").write_text(token)
        hosts = {"hydrator": installed.url, "rucio": rucio.url, "dm": f"{dmapi.root}/dm"}
        with Front({f"{name}.example.org": url for name, url in hosts.items()}, authority) as front:
            names = tmp_path_factory.mktemp("names")
            (names / "sitecustomize.py").write_text(RESOLVER.replace("{port}", str(front.server_port)))
            with installed:
                assert pool.submit(f'{SHORT}+RequiredDatasets = {{"lofar:L123"}}\nqueue 5\n') == 123
                pool.submit(f"{SHORT}queue\n", user="bob")  # gives bob a user record
                trust = dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(ca))
                yield Place(installed, desk, {"PYTHONPATH": str(names), **trust})


def queue_a_job(place: Place) -> None:
    """Queue a job of alice that stays in the queue."""
    place.installed.pool.submit(f"{SHORT}hold = true\nqueue\n")


def as_super_user(place: Place, line: str) -> str:
    """Type *line* with the token of a queue super user."""
    done = place.type(line, HYDRATOR_HTCONDOR__TOKEN_DIRECTORY=str(place.installed.pool.token("bob")))
    assert done.returncode == 0, done.stderr
    return done.stdout


def prepare_staging(place: Place) -> None:
    """Make the folder that a daemon with staging makes."""
    (place.installed.home / "state" / "staging").mkdir(exist_ok=True)


def type_unknown_request(place: Place, typed: str) -> str:
    """Type a command about a request that the daemon does not have: one sentence, and exit status 2."""
    done = place.type(typed)
    assert done.returncode == 2, (done.stdout, done.stderr)
    return done.stderr


@dataclass
class Typed:
    """An example with its preparation and the words that it must print.

    Args:
        prints: words of its output.
        before: called with the place.
        files: files that the folder must have.
        run: for an example that does not run to its end in a shell.
        environment: additional variables.
    """

    prints: str = ""
    before: Callable[[Place], None] = lambda _: None
    files: Mapping[str, str] = field(default_factory=dict)
    run: Callable[[Place, str], str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def answered(place: Place, line: str) -> str:
    """Type *line* at a terminal, and answers to the questions of ``init``; return its output."""
    config = place.folder / "asked" / "config.toml"
    main, terminal = pty.openpty()
    asking = subprocess.Popen(
        ["bash", "-c", line],
        cwd=place.folder,
        env=place.environment | STATE | {"HYDRATOR_CONFIG": str(config)},
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(terminal)
    os.write(main, f"file\n{place.folder}/datasets.json\n".encode())
    output, _ = asking.communicate(timeout=300)
    os.close(main)
    assert asking.returncode == 0, output
    return output


def daemon_until_told(place: Place, line: str) -> str:
    """Start the daemon that *line* starts, let it read its configuration again, and end it."""
    port = free_port()
    (place.folder / "config.toml").write_text(
        '[daemon]\nstate_dir = "state"\npoll_seconds = 1\n'
        '[[catalogue]]\ntype = "file"\npath = "datasets.json"\n[demand]\nask_schedds = false\n'
        '[publish.collector]\nenabled = false\n[publish.file]\ndirectory = "ads"\n'
        f"[publish.http]\nport = {port}\n"
    )
    (place.folder / "datasets.json").write_text(DATASETS)
    log = place.folder / "log"
    with log.open("w") as stderr:
        running = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=place.folder, env=place.environment, stderr=stderr
        )

    def is_ready() -> bool:
        assert running.poll() is None, log.read_text()
        try:
            return (
                httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=60).status_code == 200
            )
        except httpx.TransportError:
            return False

    try:
        wait_for(is_ready, 120, "the daemon to be ready")
        running.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloading" in log.read_text(), 120, "the reload")
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 0, log.read_text()
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
    return log.read_text()


def apart(place: Place, line: str) -> str:
    """Run *line* for an installation of the same pool whose daemon does not run."""
    config = place.installed.config.read_text()
    other = place.installed.home / "once.toml"
    other.write_text(config.replace("hydrator/state", "hydrator/once").replace('/ads"', '/ads-once"'))
    done = place.type(line, HYDRATOR_CONFIG=str(other))
    assert done.returncode == 0, done.stderr
    return done.stdout


def hold_a_change(place: Place) -> None:
    place.installed.catalogue.hold({})
    wait_for(place.held, 300, "the change at RAL to be held")


DATASETS = json.dumps({"sites": ["RAL", "CAM"], "datasets": {"lofar:L123": {"sites": {"RAL": "available"}}}})
LIST = {"datasets.json": DATASETS}
PARSET = {"field.parset": "[global]\ndir_working = /data/run\ninput_ms = a.ms\n"}
JOB = {"my.sub": f"{SHORT}queue\n"}

STATE = {"HYDRATOR_DAEMON__STATE_DIR": "var"}
"""Instead of /var/lib/classad-hydrator, which is the machine's own."""

RUNS = {
    "hydrator init": Typed("wrote", files=LIST, run=answered),
    "hydrator init --yes --catalogue file --path datasets.json": Typed(
        "wrote", files={f"listed/{name}": text for name, text in LIST.items()},
        environment={"HYDRATOR_CONFIG": "listed/config.toml"} | STATE,
    ),
    "hydrator init --catalogue rucio --url https://rucio.example.org --account hydrator"
    " --username hydrator --password-file rucio-password": Typed(
        "wrote", files={"rucio/rucio-password": "secret\n"},
        environment={"HYDRATOR_CONFIG": "rucio/config.toml"} | STATE,
    ),
    "hydrator run -c config.toml": Typed("stopped", run=daemon_until_told),
    "hydrator once --json": Typed('"complete": true', run=apart),
    "hydrator plan": Typed("RAL"),
    "hydrator status": Typed("last cycle"),
    "hydrator status --json": Typed('"held"'),
    "hydrator sites": Typed("RAL"),
    "hydrator sites RAL": Typed("RAL"),
    "hydrator network": Typed("nothing configured"),
    "hydrator datasets": Typed("lofar:L123"),
    "hydrator datasets lofar:L123 --why": Typed("RAL"),
    "hydrator check": Typed("RAL"),
    "hydrator run-anywhere 'Owner == \"alice\"'": Typed(
        "may run anywhere", before=queue_a_job, run=as_super_user
    ),
    "hydrator hook > classad-hydrator-hook && chmod 755 classad-hydrator-hook": Typed(),
    "hydrator why 123.4": Typed("123.4"),
    "hydrator why lofar:L123 lofar:L124 --site RAL": Typed("RAL"),
    "hydrator staging list": Typed(),
    "hydrator staging stop --reason 'tape robot is down'": Typed(before=prepare_staging),
    "hydrator staging resume": Typed(before=prepare_staging),
    "hydrator staging approve 4f1c09ab27": Typed("4f1c09ab27", run=type_unknown_request),
    "hydrator staging reject 4f1c09ab27": Typed("4f1c09ab27", run=type_unknown_request),
    "hydrator staging cancel 4f1c09ab27": Typed("no such request", run=type_unknown_request),
    "hydrator approve RAL": Typed("may remove", before=hold_a_change),
    "hydrator report --since 7d": Typed("7 d"),
    "hydrator submit pool-config --role schedd > 60-hydrator.conf": Typed(),
    "hydrator submit pool-config --remove": Typed(),
    "hydrator submit rapthor field.parset --dry-run": Typed("RAL", files=PARSET),
    "hydrator submit wrap --datasets lofar:L123 -- condor_submit my.sub": Typed("submitted", files=JOB),
    "hydrator submit filter --datasets lofar:L123 my.sub | condor_submit -": Typed("ClusterId", files=JOB),
    "hydrator token new --site RAL": Typed(),
    "hydrator token new --role read": Typed(),
    "hydrator token list": Typed("read"),
}  # fmt: skip
"""By example, how it is run."""
TYPED = [typed for examples in EXAMPLES.values() for typed, _ in examples]


@pytest.mark.parametrize("typed", TYPED, ids=range(len(TYPED)))
def test_an_example_of_the_help_runs_as_it_is_printed(place: Place, typed: str) -> None:
    run = RUNS[typed]
    for name, text in run.files.items():
        (place.folder / name).parent.mkdir(exist_ok=True)
        (place.folder / name).write_text(text)
    run.before(place)
    if run.run:
        output = run.run(place, typed)
    else:
        done = place.type(typed, **run.environment)
        assert done.returncode == 0, (done.stdout, done.stderr)
        output = done.stdout + done.stderr
    place.installed.catalogue.hold(HELD)
    assert run.prints in output


def test_every_example_has_its_run_and_no_run_is_left_over():
    assert set(RUNS) == set(TYPED)
