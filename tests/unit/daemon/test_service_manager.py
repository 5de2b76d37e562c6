"""Notifications of the service manager, on a real datagram socket."""

import os
import socket
import time

import pytest
from structlog.testing import capture_logs

from hydrator.daemon.process import ServiceManager, Watchdog


class Manager:
    """Our end of NOTIFY_SOCKET, as systemd has it."""

    def __init__(self, address: str | bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(20)
        self.socket.bind(address)

    def hear(self) -> list[str]:
        return self.socket.recv(4096).decode().split("\n")


@pytest.fixture
def manager(tmp_path):
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


@pytest.fixture
def supervisor(manager, tmp_path):
    return ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})


@pytest.mark.outside
def test_a_reload_says_when_it_began_by_the_clock_that_systemd_reads(manager, supervisor):
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    supervisor.notify_reloading()
    reloading, when = manager.hear()
    assert reloading == "RELOADING=1"
    assert before <= int(when.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


@pytest.mark.outside
def test_notify_socket_that_begins_with_an_at_sign_is_abstract():
    name = f"hydrator-test-{os.getpid()}"
    manager = Manager(b"\0" + name.encode())
    ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).set_status("3 sites,\n  4 datasets")
    assert manager.hear() == ["STATUS=3 sites, 4 datasets"], "one line"
    manager.socket.close()


def test_without_notify_socket_nothing_is_sent():
    with capture_logs() as logs:
        ServiceManager({}).notify("READY=1")
    assert logs == []


@pytest.mark.outside
def test_unreachable_service_manager_is_logged_once(tmp_path):
    supervisor = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    with capture_logs() as logs:
        supervisor.notify("WATCHDOG=1")
        supervisor.notify("WATCHDOG=1")
    assert [line["event"] for line in logs] == ["cannot notify systemd"]


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "6000000"}, 2),
        ({"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": str(os.getpid())}, 2),
        ({"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": "1"}, 30),
        ({"WATCHDOG_USEC": "900000000"}, 30),
        ({"WATCHDOG_USEC": "0"}, 30),
        ({"WATCHDOG_USEC": "soon"}, 30),
        ({}, 30),
    ],
)
def test_keep_alive_interval_is_a_third_of_the_watchdog_and_at_most_30_seconds(environ, seconds):
    assert ServiceManager(environ).watchdog_interval_seconds == seconds


def test_watchdog_reports_a_hang_only_after_its_limit():
    clock = iter([0.0, 90.0, 100.0, 200.0]).__next__
    progress = Watchdog(100, clock)
    progress.record_step("a cycle began")
    assert progress.hang_reason() is None  # at 100, ten seconds after the step
    assert progress.hang_reason() == "no progress for 110 s after a cycle began (limit 100 s)"
