"""Supervision of the HTCondor child process, with a stand-in child that misbehaves."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.condor import CondorClient, CondorSettings
from adapters.condor.bindings.library import explain_failure
from adapters.condor.bindings.process import build_environment, summarize_stderr
from hydrator.domain.errors import PoolDenied, PoolError
from testbed.patience import wait_for

STANDIN = Path(__file__).parents[2] / "condor_standin.py"


class Bench:
    """A maker of clients with stand-in children; it reads which processes they started."""

    def __init__(self, folder: Path) -> None:
        self._starts = folder / "starts"
        self._starts.touch()
        self.clients: list[CondorClient] = []

    def command(self, mode: str = "") -> tuple[str, ...]:
        return (sys.executable, str(STANDIN), mode, str(self._starts))

    def client(self, mode: str = "", seconds: float = 30, **more: int) -> CondorClient:
        client = CondorClient(CondorSettings(timeout=timedelta(seconds=seconds)), self.command(mode), **more)
        self.clients.append(client)
        return client

    @property
    def started(self) -> list[int]:
        return [int(pid) for pid in self._starts.read_text().split()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for client in made.clients:
        client.close()


def ask(client: CondorClient, what: str) -> dict[str, str | None]:
    return client.config_of("schedd", [], name=what)


def alive(pid: int) -> bool:
    """Return True for a process that runs: it has not ended and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_no_child_is_started_before_it_is_needed(bench: Bench):
    client = bench.client()
    assert client.pid is None
    assert bench.started == []


@pytest.mark.outside
def test_child_after_its_last_call_is_replaced_without_counting_as_a_restart(bench: Bench):
    client = bench.client(max_calls_of_child=3)
    pids = [ask(client, str(n))["pid"] for n in range(7)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
    assert client.restart_count == 0
    assert not any(exists(pid) for pid in bench.started[:-1])


@pytest.mark.outside
@pytest.mark.parametrize("how", ["hang", "hang, ignoring signals"])
def test_a_child_that_hangs_is_killed_in_time_and_the_next_call_has_a_new_one(bench: Bench, how: str):
    client = bench.client(seconds=5)
    began = time.monotonic()
    with pytest.raises(PoolError, match=r"schedd hang.*: no answer within 5 s"):
        ask(client, how)
    assert time.monotonic() - began < 60
    assert not exists(bench.started[0])
    assert ask(client, "fine")["seen"] == "fine"
    assert client.restart_count == 1


@pytest.mark.outside
def test_a_child_that_died_between_calls_costs_one_call(bench: Bench):
    client = bench.client()
    ask(client, "fine")
    os.kill(bench.started[0], signal.SIGKILL)
    wait_for(lambda: not alive(bench.started[0]), 20, "the end of the child")
    with pytest.raises(PoolError, match="SIGKILL"):
        ask(client, "fine")
    assert ask(client, "fine")["seen"] == "fine"


@pytest.mark.outside
def test_fatal_error_in_the_bindings_is_reported_by_its_last_line_without_token(bench: Bench):
    with pytest.raises(PoolError) as caught:
        ask(bench.client(), "fatal")
    assert caught.value.daemon == "schedd fatal"
    assert caught.value.reason == (
        "the HTCondor process met a fatal error in HTCondor's C++ code (exit status 4): "
        'ERROR "no interface" (token)'
    )


@pytest.mark.outside
@pytest.mark.parametrize(
    ("how", "told"),
    [
        *((how, f"schedd {how}") for how in ("garbage", "another answer", "half an answer")),
        ("die", "was killed by SIGKILL"),
    ],
)
def test_child_that_is_killed_or_has_an_unreadable_answer_is_replaced(bench: Bench, how: str, told: str):
    client = bench.client()
    with pytest.raises(PoolError, match=told):
        ask(client, how)
    assert not exists(bench.started[0])
    assert ask(client, "fine")["seen"] == "fine"


@pytest.mark.outside
def test_a_denial_is_an_error_of_its_own_and_costs_no_child(bench: Bench):
    client = bench.client()
    with pytest.raises(
        PoolDenied, match=r"schedd denied: it authenticated the client as eve .*; the client needs READ"
    ):
        ask(client, "denied")
    assert client.restart_count == 0


@pytest.mark.outside
def test_child_that_never_starts_is_an_error_each_time_with_growing_pauses(bench: Bench):
    client = bench.client("stillborn")
    for _ in range(3):
        with pytest.raises(PoolError, match="ended with status 7"):
            ask(client, "fine")
    assert client.restart_count == 2
    assert not any(exists(pid) for pid in bench.started)


@pytest.mark.outside
def test_a_child_that_cannot_be_started_is_an_error():
    client = CondorClient(CondorSettings(), ("/no/such/program",))
    with client, pytest.raises(PoolError, match="could not be started"):
        client.site_ads()


@pytest.mark.outside
def test_calls_from_many_threads_each_get_their_own_answer(bench: Bench):
    client = bench.client()
    names = [f"schedd{n}" for n in range(40)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda name: ask(client, name)["seen"], names))
    assert answers == names
    assert len(bench.started) == 1


@pytest.mark.outside
def test_the_child_outlives_the_thread_that_first_needed_it(bench: Bench):
    client = bench.client("with the real one's safety")
    thread = threading.Thread(target=ask, args=(client, "fine"))
    thread.start()
    thread.join()
    assert ask(client, "again")["pid"] == str(bench.started[0])
    assert client.restart_count == 0


@pytest.mark.outside
def test_closing_ends_the_child_and_closing_twice_is_not_an_error(bench: Bench):
    client = bench.client()
    ask(client, "fine")
    client.close()
    client.close()
    assert not exists(bench.started[0])
    with pytest.raises(PoolError, match="closed"):
        ask(client, "fine")


@pytest.mark.outside
def test_closing_does_not_wait_for_a_call_that_hangs(bench: Bench):
    client = bench.client(seconds=100)
    ask(client, "fine")
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(ask, client, "hang")
        wait_for(hanging.running, 20, "the call to hang")
        began = time.monotonic()
        client.close()
        with pytest.raises(PoolError):
            hanging.result(timeout=120)
    assert time.monotonic() - began < 60
    assert not exists(bench.started[0])


PARENT = """
import sys, time
from datetime import timedelta
from adapters.condor import CondorClient, CondorSettings
client = CondorClient(CondorSettings(timeout=timedelta(hours=1)), sys.argv[2:])
client.config_of("schedd", [], name="fine")
print(client.pid, flush=True)
client.config_of("schedd", [], name=sys.argv[1]) if sys.argv[1] != "idle" else time.sleep(3600)
"""


@pytest.mark.outside
@pytest.mark.parametrize("busy", ["idle", "hang, ignoring signals"])
def test_the_child_dies_with_its_parent_even_when_it_hangs(bench: Bench, busy: str):
    command = bench.command("with the real one's safety")
    root = Path(__file__).parents[4]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, busy, *command], stdout=subprocess.PIPE, text=True, cwd=root
    ) as parent:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
    wait_for(lambda: not alive(child), 20, "the end of the child")


def test_an_installation_without_htcondor_needs_a_collector_and_tokens_only(tmp_path: Path):
    settings = CondorSettings("cm.example.org:9618", token_directory=tmp_path)
    env = build_environment(settings, {}, config_files=[str(tmp_path / "none")])
    assert env == {
        "CONDOR_CONFIG": "ONLY_ENV",
        "_CONDOR_COLLECTOR_HOST": "cm.example.org:9618",
        "_CONDOR_SEC_TOKEN_DIRECTORY": str(tmp_path),
        "_CONDOR_SEC_CLIENT_AUTHENTICATION": "PREFERRED",
        "_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS": "IDTOKENS",
    }


def test_an_installed_htcondor_keeps_its_configuration(tmp_path: Path):
    installed = tmp_path / "condor_config"
    installed.touch()
    assert build_environment(CondorSettings(), {}, config_files=[str(installed)]) == {}
    assert build_environment(CondorSettings(), {"CONDOR_CONFIG": "/x"}, config_files=[]) == {
        "CONDOR_CONFIG": "/x"
    }


def test_config_file_setting_overrides_the_environment_and_its_methods(tmp_path: Path):
    env = build_environment(
        CondorSettings(config_file=tmp_path / "c", token_directory=tmp_path), {"CONDOR_CONFIG": "/x"}
    )
    assert env == {"CONDOR_CONFIG": str(tmp_path / "c"), "_CONDOR_SEC_TOKEN_DIRECTORY": str(tmp_path)}


def test_slots_are_not_queried_for_the_long_attributes(bench: Bench):
    with pytest.raises(ValueError, match="datasetstates"):
        bench.client().slots(["Name", "datasetstates"])


def test_stderr_summary_is_the_last_error_line_if_any():
    assert (
        summarize_stderr("11/21/26 02:00:00 ERROR: broken\n11/21/26 02:00:01 SECMAN: chatter\n")
        == "ERROR: broken"
    )
    assert summarize_stderr("one\n\ntwo\n") == "two"
    assert summarize_stderr("") == ""


# the logs below are what htcondor 25.14.1 wrote when real collectors, 25.14.1 and 23.9.6, denied a client
REFUSALS = {
    "ERROR: AUTHENTICATE:1003:Failed to authenticate with any method|"
    "AUTHENTICATE:1004:Failed to authenticate using IDTOKENS": (
        "denied",
        "it accepted none of the credentials (tried IDTOKENS)",
    ),
    'SECMAN: FAILED: Received "DENIED" from server for user alice@test.pool using method IDTOKENS.': (
        "denied",
        "it authenticated the client as alice@test.pool (by IDTOKENS) and denies that identity",
    ),
    "AUTHENTICATE: method 2048 (IDTOKENS) failed.\n"
    'SECMAN: FAILED: Received "DENIED" from server for user unauthenticated@unmapped using no authentication '
    "method, which may imply host-based security.": (
        "denied",
        "it accepted none of the credentials (tried IDTOKENS) and denies unauthenticated clients",
    ),
    "TOKEN: No token found.\nAUTHENTICATE: method 2048 (IDTOKENS) failed.\n"
    "ERROR: SECMAN:2007:Failed to received post-auth ClassAd": (
        "denied",
        "it accepted none of the credentials (tried IDTOKENS; there was no token for this pool)",
    ),
    "AUTHENTICATE: method 4 (FS) failed.\nAuthentication was a Success.\n"
    'SECMAN: FAILED: Received "DENIED" from server for user eve@pool using method IDTOKENS.': (
        "denied",
        "it authenticated the client as eve@pool (by IDTOKENS) and denies that identity",
    ),
    'Received "DENIED" from server for user unauthenticated@unmapped using no authentication method': (
        "denied",
        "it accepted none of the credentials (tried none) and denies unauthenticated clients",
    ),
    "attempt to connect to <127.0.0.1:29999> failed: Connection refused (connect errno = 111).": (
        "pool",
        "no connection to 127.0.0.1:29999: Connection refused",
    ),
}


@pytest.mark.parametrize("log", REFUSALS)
def test_denial_is_explained_from_the_security_log(log: str):
    assert explain_failure(log) == REFUSALS[log]


def test_security_log_without_a_denial_explains_nothing():
    assert explain_failure("SECMAN: startCommand succeeded.") is None
    assert explain_failure("AUTHENTICATE: method 4 (FS) failed.\nAuthentication was a Success.\n") is None
