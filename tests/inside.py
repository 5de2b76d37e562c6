"""The gate's rules for tests: with --gate, tests in one process do only that, with few and fixed examples.

A test that starts a process or thread, opens a socket or sleeps fails when the machine is busy,
so it has the mark `outside`, and `make test-area` runs it.
"""

import os
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

FOLDERS = ("tests/unit/", "tests/properties/", "tests/contracts/", "tests/simulation/")
MARKS = ("outside", "pool", "rucio", "slow")
EXAMPLES = 25
"""As many examples as a test with random input has in the gate; areas have all."""
EVENTS = {
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.exec": "starts a process",
    "os.system": "starts a process",
    "socket.connect": "opens a socket",
    "socket.bind": "opens a socket",
    "socket.sendto": "opens a socket",
    "socket.sendmsg": "opens a socket",
    "socket.getaddrinfo": "asks the resolver",
    "socket.gethostbyname": "asks the resolver",
    "socket.gethostbyaddr": "asks the resolver",
}
"""Audit events of Python that a test of the gate must not cause."""
CALLS = ("catalogue ", "publisher ", "dmapi_", "schedds")
"""Names of the threads of a cycle; they are allowed, for catalogues and publishers in memory end at once.

Those of one read of DMAPI, and of one round of queries of schedds, end with it.
"""

# a law must not fail because the machine is busy
settings.register_profile(
    "area", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("gate", settings.get_profile("area"), derandomize=True, max_examples=EXAMPLES)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gate",
        action="store_true",
        help="few and fixed examples; in tests/unit, properties and contracts a test without the mark "
        "outside, pool, rucio or slow fails if it starts a process or thread, opens a socket or sleeps",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("gate" if config.option.gate else "area")
    if config.option.gate:
        cap_examples()
        config.pluginmanager.register(Guard())


def cap_examples() -> None:
    """Limit the examples of tests that ask for more: a profile does not reach them."""
    construct = settings.__init__

    def capped(self: settings, *parent: Any, **values: Any) -> None:
        if "max_examples" in values:
            values["max_examples"] = min(values["max_examples"], EXAMPLES)
        construct(self, *parent, **values)

    settings.__init__ = capped  # type: ignore[method-assign]


class Guard:
    """Fails a test of the gate, and the fixture it is in, at the first of EVENTS, before anything starts."""

    def __init__(self) -> None:
        self._is_held = False
        self._seen: list[str] = []
        self._pid = os.getpid()
        sys.addaudithook(self._audit)
        # Python 3.11 has no audit event for these two
        start, sleep = threading.Thread.start, time.sleep

        def watched_start(thread: threading.Thread) -> None:
            if not thread.name.startswith(CALLS):
                self._refuse(f"starts a thread ({thread.name})")
            start(thread)

        def watched_sleep(seconds: float, /) -> None:
            self._refuse(f"sleeps ({seconds} s)")
            sleep(seconds)

        threading.Thread.start = watched_start  # type: ignore[method-assign]
        time.sleep = watched_sleep

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._is_held and event in EVENTS:  # at the exit of Python EVENTS is gone
            self._refuse(f"{EVENTS[event]} ({event}{arguments})")

    def _refuse(self, event: str) -> None:
        if (
            self._is_held
            and threading.current_thread() is threading.main_thread()
            and os.getpid() == self._pid
        ):
            self._seen.append(event[:150])
            self._fail()

    def _fail(self) -> None:
        pytest.fail(f"a test of the gate {self._seen[0]}: mark it outside", pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._watch(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._watch(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._watch(item)

    def _watch(self, item: pytest.Item) -> Generator[None, None, None]:
        self._seen.clear()
        self._is_held = item.nodeid.startswith(FOLDERS) and not any(map(item.get_closest_marker, MARKS))
        try:
            yield
        finally:
            self._is_held = False
        if self._seen:  # the code under test handled the failure
            self._fail()
