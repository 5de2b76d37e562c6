"""Tokens that Rucio did not issue: from a provider, or from a command that runs again in time."""

from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from adapters.remote import RemoteObject
from adapters.rucio.catalogue import RucioSettings
from adapters.rucio.session.auth import CommandToken
from adapters.worker import Worker
from hydrator.domain.errors import CatalogueDenied
from hydrator.wiring import system_clock
from hydrator.wiring.catalogue_worker import encode_recipe
from hydrator.wiring.catalogues import CATALOGUE_WORKER
from testbed.patience import wait_for
from testbed.processes import is_running
from tests.factories import MINUTE, NOON, jwt

pytestmark = pytest.mark.outside


def settings_of(folder: Path, *command: str, seconds: float = 10) -> RucioSettings:
    login = {"auth_type": "token", "token_command": command}
    return RucioSettings("rucio", "http://r", "a", folder, timeout=timedelta(seconds=seconds), **login)


@pytest.fixture
def make(tmp_path):
    """Build a CommandToken whose command is a shell script; each run adds a line to ``runs``."""

    def bearer(script: str, clock=lambda: NOON) -> CommandToken:
        text = f"echo run >> {tmp_path}/runs; {script}"
        return CommandToken(settings_of(tmp_path, "sh", "-c", text), clock)

    return bearer


class Ticking:
    """A clock that is so many minutes past noon."""

    minutes = 0

    def __call__(self) -> datetime:
        return NOON + self.minutes * MINUTE


def runs(tmp_path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


@pytest.mark.parametrize(
    ("token", "runs_at"),
    [
        (jwt({"exp": (NOON + 60 * MINUTE).timestamp()}), [(0, 1), (57, 1), (58, 2), (60, 3)]),
        ("opaque", [(0, 1), (7, 1), (10, 2)]),
    ],
    ids=["until two minutes before its end", "for ten minutes without an end"],
)
def test_a_printed_token_is_kept(make, tmp_path, token, runs_at):
    clock = Ticking()
    bearer = make(f"echo {token}", clock)
    for minutes, run in runs_at:
        clock.minutes = minutes
        assert bearer.token() == token
        assert runs(tmp_path) == run


def test_a_refused_token_is_printed_again(make, tmp_path):
    bearer = make("echo opaque")
    bearer.token()
    bearer.forget()
    bearer.token()
    assert runs(tmp_path) == 2


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo secret-word; exit 3", "ended with status 3"),
        ("true", "does not contain a token"),
        ("echo two secret-words", "does not contain a token"),
        ("printf 'a\\nb'", "does not contain a token"),
        ("printf '\\377\\377'", "does not contain a token"),
    ],
)
def test_a_token_command_without_a_token_is_denied_without_its_output(make, script, words):
    with pytest.raises(CatalogueDenied, match=words) as failure:
        make(script).token()
    assert "secret-word" not in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("end", ["wait", "exit"])
def test_a_token_command_that_hangs_ends_at_its_timeout_with_what_it_started(tmp_path, end):
    """The child holds the output open, so a command that has ended hangs, too. The worker goes on."""
    script = f"trap '' TERM; sleep 1000 & echo $! >> {tmp_path}/children; {end}"
    settings = settings_of(tmp_path, "sh", "-c", script, seconds=1)
    recipe = encode_recipe(partial(CommandToken, settings, system_clock))
    with closing(Worker(CATALOGUE_WORKER, limit_bytes=500_000_000, setup=recipe)) as worker:
        bearer = RemoteObject("rucio", worker, 60, lambda method, reason: AssertionError(reason))
        for _ in range(2):
            with pytest.raises(CatalogueDenied, match=r"longer than 1 s"):
                bearer.token()
        children = (tmp_path / "children").read_text().split()
        assert len(children) == 2
        wait_for(lambda: not any(map(is_running, children)), "end of the children")
        assert worker.restart_count == 0


def test_a_missing_token_command_is_denied(tmp_path):
    with pytest.raises(CatalogueDenied, match="cannot be run"):
        CommandToken(settings_of(tmp_path, "/none/such"), lambda: NOON).token()
