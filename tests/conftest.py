"""Fixtures for everybody: a real HTCondor pool, on the releases that --htcondor names."""

import atexit
import gc
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hydrator.domain.redaction import SECRETS
from testbed import debian
from testbed.cached import Unavailable
from testbed.pool import Pool
from tests.daemon import Running
from tests.parts import without
from tests.rucio_fixtures import rucio_on_postgres, rucio_server

pytest_plugins = ["tests.inside"]
__all__ = ["rucio_on_postgres", "rucio_server"]

SITE_ADS = 'MyType == "DataLocality"'
_MISSING = pytest.StashKey[dict[str, str]]()


def pytest_configure() -> None:
    """Restore SIGINT: a shell ignores it in the background, and so would all processes of the tests.

    Collect no garbage while tests are collected: there is none, and the search takes ten seconds.
    Let rucio-clients in this process have a configuration, as in a worker.
    """
    gc.disable()
    folder = Path(tempfile.mkdtemp(prefix="rucio-clients-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config = folder / "rucio.cfg"
    config.write_text(f"[client]\nauth_token_file_path = {folder / 'token'}\n")
    os.environ["RUCIO_CONFIG"] = str(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--htcondor",
        default=os.environ.get("HYDRATOR_TEST_HTCONDOR"),
        help="releases for tests on a pool: 25.14, 23.9, or both with a comma "
        "(default: HYDRATOR_TEST_HTCONDOR, else 25.14)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "htcondor_release" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--htcondor") or "25.14"
        releases = [release.strip() for release in chosen.split(",")]
        known = [*debian.SUITES, *debian.SUITES.values()]
        if unknown := [release for release in releases if release not in known]:
            raise pytest.UsageError(
                f"--htcondor: {unknown[0]!r} is no release: choose from {', '.join(known)}"
            )
        metafunc.parametrize("htcondor_release", releases, indirect=True, scope="session")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file whose text shows that ``-m`` selects no test of it: each worker would."""
    marks = config.option.markexpr
    if not collection_path.match("test_*.py") or not re.fullmatch(r"(not )?\w+( and (not )?\w+)*", marks):
        return None
    text = collection_path.read_text("utf-8")
    for mark in marks.split(" and "):
        if mark.startswith("not "):
            if re.search(rf"^pytestmark = .*\bmark\.{mark[4:]}\b", text, re.MULTILINE):
                return True
        elif f"mark.{mark}" not in text:
            return True
    return None


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests() -> Iterator[None]:
    """Let this process forget at each test's end what its adapters showed to servers."""
    yield
    SECRETS.forget()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build missing Debian trees before the tests, so that it is not one test's time that they take.

    From here on, search for garbage, but not among the modules and the thousands of tests, which stay.
    """
    gc.enable()
    gc.freeze()
    missing = session.config.stash[_MISSING] = {}
    if session.config.option.collectonly:
        return
    wanted = {
        item.callspec.params["htcondor_release"]
        for item in session.items
        if isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and "htcondor_release" in item.callspec.params
    }
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    for release in sorted(wanted):
        try:
            Pool.prepare(release, say=terminal.write_line if terminal else print)
        except Unavailable as reason:
            missing[release] = str(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in red what could not be tested on real parts; told by the skips, which workers report too."""
    skipped = " ".join(str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    for what, count in Counter(re.findall(r"no ([\w ,'-]+) here: ", skipped)).items():
        line = f"{count} TESTS DID NOT RUN, BECAUSE THERE IS NO {what.upper()} HERE; their skips say why"
        terminalreporter.write_line(line, red=True, bold=True)


@pytest.fixture(scope="session")
def htcondor_release(request: pytest.FixtureRequest) -> str:
    """The release to test on; tests that need it are skipped, and in CI fail, where it cannot be had."""
    reason = request.config.stash[_MISSING].get(request.param)
    if reason:
        without("HTCondor pool", reason)
    return request.param


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Running]:
    """A daemon of the test's own as a process, without a pool; the test configures and starts it."""
    running = Running(tmp_path)
    yield running
    if running.alive:
        running.process.kill()
        running.process.wait()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may enter, with any umask: pytest's own are closed when another pytest starts."""
    umask = os.umask(0o022)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)
    os.umask(umask)


@pytest.fixture(scope="session")
def shared_pool(htcondor_release: str) -> Iterator[Pool]:
    """A pool with sites UK, AU and NL of 8, 4 and 2 cores, for `pool`."""
    with Pool.start(htcondor_release) as running:
        yield running


@pytest.fixture
def pool(shared_pool: Pool) -> Iterator[Pool]:
    """The pool shared by all tests that leave it as it was; site ads that one leaves are withdrawn."""
    yield shared_pool
    if shared_pool.ads(SITE_ADS, "Name"):
        farewell = shared_pool.shared / "farewell"
        farewell.write_text(f'MyType = "Query"\nTargetType = "DataLocality"\nRequirements = {SITE_ADS}\n')
        shared_pool.run("condor_advertise", "-tcp", "INVALIDATE_ADS_GENERIC", str(farewell))
        shared_pool.wait(lambda: not shared_pool.ads(SITE_ADS, "Name"), "site ads to leave")


@pytest.fixture(scope="module")
def own_pool(htcondor_release: str) -> Iterator[Pool]:
    """A pool like the shared one for one module, whose tests may configure it and leave things in it."""
    with Pool.start(htcondor_release) as running:
        yield running
