"""SIGHUP to a real daemon: it executes itself again; a configuration that cannot be used changes nothing."""

import json
import secrets
import signal
import socket
from pathlib import Path

import httpx
import pytest

from hydrator.diagnostics.overview.saved import load_status
from hydrator.state.database import owner_of
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from testbed.files import write_secret
from testbed.patience import wait_for
from testbed.ports import free_port
from testbed.rucio_standin import RucioStandIn
from tests.daemon import Running

SITES_RETIRED = "[sites]\nretired = ['RAL']"
KEYED = '[htcondor]\ntoken_directory = "tokens.d"\n'
OK = "hydrator_config_last_reload_successful"


def lines(daemon: Running, event: str) -> list[dict]:
    found = [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"].startswith(event)]


def reload(daemon: Running) -> None:
    daemon.process.send_signal(signal.SIGHUP)


def await_reload(daemon: Running) -> None:
    """Wait until the daemon has executed itself again and answers."""
    wait_for(lambda: len(lines(daemon, "running")) > len(lines(daemon, "reloading")) > 0, "the reload")
    wait_for(daemon.ready, "readiness")


def two_more_cycles(daemon: Running) -> None:
    before = daemon.metric("hydrator_cycles_total")
    wait_for(lambda: daemon.metric("hydrator_cycles_total") >= before + 2, "two more cycles")


def keyed(daemon: Running) -> Path:
    """Configure a secret that the daemon reads; return its file."""
    key = daemon.folder / "tokens.d" / "pool"
    key.parent.mkdir(mode=0o700)
    write_secret(key, secrets.token_hex(32))
    daemon.configure(KEYED)
    return key


def test_reload_waits_for_a_secret_that_is_missing_for_a_moment(daemon):
    key = keyed(daemon)
    daemon.start()
    aside = key.rename(daemon.folder / "aside")
    daemon.configure(KEYED + SITES_RETIRED)
    reload(daemon)
    wait_for(lambda: lines(daemon, "reload waits"), "the daemon to wait for the key")
    aside.rename(key)
    await_reload(daemon)
    wait_for(lambda: daemon.get("/v1/sites/RAL/ad").status_code == 404, "the new parts to publish")
    assert daemon.end() == 0


def test_a_reload_without_a_secret_changes_nothing_and_says_so(daemon):
    key = keyed(daemon)
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), "the first dataset")
    aside = key.rename(daemon.folder / "aside")
    daemon.configure(KEYED + SITES_RETIRED)
    reload(daemon)
    (refused,) = wait_for(lambda: lines(daemon, "reload refused"), "the refusal")
    assert "htcondor.token_directory" in str(refused["problems"])
    assert daemon.metric(OK) == 0
    status = daemon.command("status").stdout
    assert "reload" in status
    assert "htcondor.token_directory" in status
    assert daemon.process.poll() is None
    two_more_cycles(daemon)
    assert daemon.get("/v1/sites/RAL/ad").status_code == 200
    aside.rename(key)
    reload(daemon)
    await_reload(daemon)
    assert daemon.metric(OK) == 1
    assert "reload" not in daemon.command("status").stdout
    assert daemon.end() == 0


def test_status_knows_the_daemon_also_while_it_executes_itself_again(daemon):
    daemon.start()
    state_dir, owners, problems = daemon.folder / "state", set(), set()

    def has_reloaded() -> bool:
        with Store.open_to_read(state_dir) as store:
            owners.add(owner := owner_of(state_dir))
            problems.add(load_status(store, system_clock(), owner, 1).daemon_problem)
        return len(lines(daemon, "running")) > len(lines(daemon, "reloading")) > 0

    wait_for(lambda: daemon.metric("hydrator_cycles_total") >= 1, "a cycle")
    reload(daemon)
    while not has_reloaded():  # without a pause: the new process needs the lock at once
        assert daemon.alive
    assert None in owners
    assert problems == {None}
    assert daemon.end() == 0


def test_reload_to_a_port_in_use_is_rejected_and_the_old_port_answers(daemon):
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), "the first dataset")
    old = daemon.port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        daemon.port = taken.getsockname()[1]
        daemon.configure(SITES_RETIRED)
        daemon.port = old
        reload(daemon)
        (refused,) = wait_for(lambda: lines(daemon, "reload refused"), "the refusal")
    assert "cannot listen" in str(refused["problems"])
    two_more_cycles(daemon)
    assert daemon.get("/v1/sites/RAL/ad").status_code == 200
    daemon.port = free_port()
    daemon.configure(SITES_RETIRED)
    reload(daemon)
    await_reload(daemon)
    wait_for(lambda: daemon.get("/v1/sites/RAL/ad").status_code == 404, "the new parts to publish")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{old}/healthz", trust_env=False)
    assert daemon.end() == 0


@pytest.fixture
def rucio(daemon):
    """Start a stand-in for Rucio; the daemon logs in to it with the password in its file."""
    with RucioStandIn({"UK-DISK": "UK"}) as server:
        server.holdings = {"lofar:L1": {"UK-DISK": "available"}}
        server.password = "first"
        (daemon.folder / "password").write_text("first")
        daemon.configure(f"""
            [[catalogue]]
            type = "rucio"
            name = "rucio"
            url = "{server.url}"
            account = "hydrator"
            username = "somebody"
            password_file = "password"
        """)
        yield server


def failure(daemon: Running) -> str | None:
    rows = json.loads(daemon.command("status", "--json").stdout)["cycle"]["catalogues"]
    return next((row["error"] for row in rows if row["name"] == "rucio"), "not asked yet")


def test_missing_password_file_at_the_start_fails_its_catalogue_alone(daemon, rucio):
    password = daemon.folder / "password"
    aside = password.rename(password.with_suffix(".new"))
    daemon.start()
    wait_for(lambda: "'lofar:L1'" in daemon.ad("CAM"), "the other catalogue's dataset")
    wait_for(lambda: "password_file" in (failure(daemon) or ""), "the missing file to be reported")
    aside.rename(password)
    wait_for(lambda: "'lofar:L1'" in daemon.ad("UK"), "the catalogue to be read")
    assert daemon.end() == 0
